"""The inside of simulated containers: a log that follows from the clock, and a handful of commands.

Nothing runs here. A container says that it is simulated, then tells every :data:`LINE_PERIOD` that it is still there,
and at last how it ended. A pod may bring lines of its own in the annotation :data:`SCRIPT`. A command is looked up in a
table; one that is not there ends with 127, as in a shell, and says where one is.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from iriscw_sims.kube.clock import parsed
from iriscw_sims.kube.kinds import nested
from iriscw_sims.serve.ports import Conversation, Health, listens
from iriscw_sims.serve.streams import Command, ExecStreams, LogLine

SCRIPT = "sim.iriscw.dev/log"
"""An annotation of a pod: what its containers say when they start."""

LINE_PERIOD = 10_000_000_000
"""ns between two lines of a container that has nothing else to say."""

LINES_LIMIT = 10_000
"""Lines that are left of a log; the kubelet keeps 10 MiB (``containerLogMaxSize``)."""

TUNNEL_TIME = 30_000_000_000
"""ns after a node joined until its containers can be reached (konnectivity; 18 to 30 s were seen on CoreWeave)."""

SIMULATED = "this container is simulated"
NOT_FOUND = 127


def container_of(pod: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a container's specification, empty if there is none."""
    spec = pod.get("spec") or {}
    every = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    return next((each for each in every if each.get("name") == name), {})


def state_of(pod: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the status of a container, empty if there is none."""
    status = pod.get("status") or {}
    every = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    return next((each for each in every if each.get("name") == name), {})


def _span(pod: Mapping[str, Any], name: str) -> tuple[int | None, int | None, int]:
    """Return when a container started and ended, in ns since 1970 or ``None``, and its exit code."""
    state = state_of(pod, name).get("state") or {}
    over = state.get("terminated") or {}
    started = (state.get("running") or over).get("startedAt")
    begun = parsed(started) if isinstance(started, str) else None
    finished = over.get("finishedAt")
    ended = parsed(finished) if isinstance(finished, str) else None
    return begun, (ended if ended is not None or not over else begun), int(over.get("exitCode") or 0)


def _first_words(pod: Mapping[str, Any], name: str) -> list[str]:
    spec = container_of(pod, name)
    words = " ".join(map(str, [*(spec.get("command") or ()), *(spec.get("args") or ())]))
    script = nested(pod, "metadata", "annotations", SCRIPT) or ""
    first = f"iriscw: {SIMULATED}: image {spec.get('image', '?')}, command {words or 'of the image'}"
    return [first, *script.splitlines()]


class ScriptedStreams:
    """Containers that only say what they would be.

    Args:
        reachable: Who knows of a node by its name whether its containers can be reached; without one, a node can be
            reached after :data:`TUNNEL_TIME`.
    """

    def __init__(self, reachable: Callable[[str], bool] | None = None) -> None:
        self._reachable = reachable

    def exec_ready(self, node: Mapping[str, Any], now: int) -> bool:
        """Tell whether a node's tunnel stands."""
        if self._reachable is not None:
            return self._reachable(node["metadata"]["name"])
        created = parsed(nested(node, "metadata", "creationTimestamp") or "")
        return created is None or now - created >= TUNNEL_TIME

    def log(self, pod: Mapping[str, Any], container: str, now: int, first: int = 0) -> Sequence[LogLine]:
        """Return what a container has said until ``now``."""
        begun, ended, code = _span(pod, container)
        if begun is None:
            return []
        until = now if ended is None else min(now, ended)
        count = max(0, (until - begun) // LINE_PERIOD)
        start = _first_words(pod, container)
        lines = [LogLine(number, begun, text.encode()) for number, text in enumerate(start)]
        before = len(start) - 1  # the number of the line of a period is this and the number of the period
        for number in range(max(1, count - LINES_LIMIT, first - before), count + 1):
            text = f"iriscw: running for {number * LINE_PERIOD // 10**9} s"
            lines.append(LogLine(before + number, begun + number * LINE_PERIOD, text.encode()))
        if ended is not None and ended <= now:
            lines.append(LogLine(before + count + 1, ended, f"iriscw: ended with exit code {code}".encode()))
        return [line for line in lines[-LINES_LIMIT:] if line.number >= first]

    def next_line(self, pod: Mapping[str, Any], container: str, now: int) -> int | None:
        """Return when a running container says the next thing."""
        begun, ended, _ = _span(pod, container)
        if begun is None or ended is not None:
            return None
        return begun + ((max(now, begun) - begun) // LINE_PERIOD + 1) * LINE_PERIOD

    async def exec(self, command: Command, streams: ExecStreams, now: int) -> int:
        """Run one of the commands that are known here."""
        return await _run(command, [*command.argv], streams)

    def connect(self, pod: Mapping[str, Any], port: int, now: int) -> Conversation | None:
        """Connect to a worker's port: to those that a pod's containers name, to any if they name none."""
        if not listens(pod, port):
            return None
        begun, _, _ = _span(pod, pod["spec"]["containers"][0]["name"])
        return Health(pod, max(0, now - begun) / 10**9 if begun is not None else 0.0)


async def _run(command: Command, argv: Sequence[str], streams: ExecStreams) -> int:
    if not argv:
        return 0
    name, *words = argv
    if name in ("sh", "bash", "/bin/sh", "/bin/bash"):
        return await _shell(command, words, streams)
    if name == "cat":
        return await _cat(command, words, streams)
    if name == "exit":
        return _exit_code(words)
    said = _SAYINGS.get(name)
    if said is not None:
        code, text = said(command, words)
        await streams.stdout(text.encode())
        return code
    known = ", ".join(["cat", "exit", "sh", *_SAYINGS])
    await streams.stderr(f"{name}: not found: {SIMULATED} and knows {known}\n".encode())
    return NOT_FOUND


def _exit_code(words: Sequence[str]) -> int:
    return int(words[0]) % 256 if words and words[0].isascii() and words[0].isdecimal() else 0


async def _shell(command: Command, words: Sequence[str], streams: ExecStreams) -> int:
    """Run one line (``sh -c``), or the lines that are typed."""
    if words[:1] == ["-c"] and len(words) > 1:
        return await _line(command, words[1], streams)
    code, typed = 0, b""
    if command.tty:
        await streams.stdout(f"{SIMULATED}\r\n$ ".encode())
    async for data in streams.stdin():
        typed += data.replace(b"\r", b"\n") if command.tty else data
        if command.tty:
            await streams.stdout(data.replace(b"\r", b"\r\n"))
        *ready, typed = typed.split(b"\n")
        for line in ready:
            text = line.decode(errors="replace")
            code = await _line(command, text, streams)
            if text.split()[:1] == ["exit"]:
                return code
        if command.tty and ready:
            await streams.stdout(b"$ ")
    return await _line(command, typed.decode(errors="replace"), streams) if typed.strip() else code


async def _line(command: Command, text: str, streams: ExecStreams) -> int:
    try:
        argv = shlex.split(text)
    except ValueError as wrong:
        await streams.stderr(f"sh: {wrong}\n".encode())
        return 2
    if argv[:1] and argv[0].endswith("sh"):  # a shell in a shell in a shell would have no end
        await streams.stderr(f"{argv[0]}: not found: {SIMULATED}\n".encode())
        return NOT_FOUND
    return await _run(command, argv, streams)


async def _cat(command: Command, words: Sequence[str], streams: ExecStreams) -> int:
    if not words:
        async for data in streams.stdin():
            await streams.stdout(data)
        return 0
    code = 0
    for name in words:
        read = _FILES.get(name)
        if read is None:
            await streams.stderr(f"cat: {name}: No such file or directory ({SIMULATED})\n".encode())
            code = 1
        else:
            await streams.stdout(read(command).encode())
    return code


def _name_of(pod: Mapping[str, Any]) -> str:
    return str(nested(pod, "spec", "hostname") or nested(pod, "metadata", "name"))


def _environment(command: Command) -> str:
    variables = container_of(command.pod, command.container).get("env") or ()
    named = {each["name"]: each.get("value", "") for each in variables if "valueFrom" not in each}
    return "".join(f"{name}={value}\n" for name, value in {"HOSTNAME": _name_of(command.pod), **named}.items())


_FILES: dict[str, Callable[[Command], str]] = {
    "/etc/hostname": lambda command: f"{_name_of(command.pod)}\n",
    "/etc/os-release": lambda _command: f'NAME="iriscw"\nPRETTY_NAME="{SIMULATED}"\n',
}
"""The files of every container."""

_SAYINGS: dict[str, Callable[[Command, Sequence[str]], tuple[int, str]]] = {
    "echo": lambda _command, words: (0, " ".join(words) + "\n"),
    "env": lambda command, _words: (0, _environment(command)),
    "false": lambda _command, _words: (1, ""),
    "hostname": lambda command, _words: (0, f"{_name_of(command.pod)}\n"),
    "ls": lambda _command, _words: (0, "".join(f"{name}\n" for name in _FILES)),
    "pwd": lambda _command, _words: (0, "/\n"),
    "true": lambda _command, _words: (0, ""),
}
"""Commands that only say something: exit code and text."""
