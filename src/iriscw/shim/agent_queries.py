"""What is asked of the agent before a container is paused, resumed, killed or deleted.

First, with nothing but a socket, whether an operation runs on the container: mostly none does, and that takes a
millisecond. Where no agent listens none runs: its operations hold nothing without it. ``kill`` and ``delete`` go on
whatever the agent says or does not say, within a bound, and whatever fails here: a container can always be killed.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from typing import Any

from iriscw.shim.runc_messages import say
from iriscw.shim.runc_options import ENDS, NotHonoured, RuncCommand

SOCKET_VARIABLE = "IRISCW_SHIM_SOCKET"
"""Names the agent's socket, if it is another one than root's."""

SHIM_SOCKET = "/run/kybernate/shim.sock"

LOOK_S = 20.0
"""For the agent to say what runs."""

STOP_S = 60.0
"""For what runs to be undone, before a container is killed all the same."""

MAX_ANSWER_BYTES = 4 << 20


def agent_socket(environment: Mapping[str, str]) -> str:
    """Say where the agent listens."""
    return environment.get(SOCKET_VARIABLE) or SHIM_SOCKET


def before(asked: RuncCommand) -> None:
    """See that no operation of the agent runs on the container; have it undone before the container is ended.

    Raises:
        NotHonoured: one does, and the container is to go on; or the agent does not say.
    """
    if not asked.words or (asked.command == "kill" and asked.words[1:2] == ("0",)):
        return
    container, root = asked.words[0], asked.root(os.environ, os.geteuid())
    path = agent_socket(os.environ)
    try:
        running = [each for each in busy(path) if (each.get("container_id"), each.get("root")) == (container, root)]
    except (FileNotFoundError, ConnectionRefusedError):
        return
    except (OSError, ValueError) as error:
        text = f"the agent at {path} does not say what runs on container {container}: {error}"
        if asked.command not in ENDS:
            raise NotHonoured(text) from error
        say(asked, "warning", f"{text}; {asked.command} goes on")
        return
    if not running:
        return
    if asked.command not in ENDS:
        named = running[0]
        what = f"operation {named.get('operation')} ({named.get('kind')}) runs on container {container}"
        raise NotHonoured(f"TargetBusy: {what}: {asked.command} would run into it")
    from iriscw.shim.checkpointing import stop

    if trouble := stop(path, container, root, STOP_S):
        say(asked, "warning", f"what runs on container {container} was not undone: {trouble}; {asked.command} goes on")


def busy(path: str) -> list[dict[str, Any]]:
    """Return the containers on which operations run.

    Raises:
        FileNotFoundError, ConnectionRefusedError: no agent listens.
        OSError: it does not answer.
        ValueError: it answers something else.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.settimeout(LOOK_S)
        channel.connect(path)
        channel.sendall(b"GET /containers HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n")
        answer = bytearray()
        while piece := channel.recv(65536):
            answer += piece
            if len(answer) > MAX_ANSWER_BYTES:
                raise ValueError("its answer has no end")
    head, _, body = bytes(answer).partition(b"\r\n\r\n")
    status = head.split(b"\r\n")[0].split()[1:2]
    if status != [b"200"]:
        raise ValueError(f"it answers {head[:80]!r}")
    found = json.loads(body)
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise ValueError("its answer is not a list of containers")
    return found
