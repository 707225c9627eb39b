"""``agent health``: whether the agent on this machine answers. What a pod's probes run."""

from __future__ import annotations

import http.client
import os
import socket as sockets
from pathlib import Path
from typing import Final

import click

from iriscw.cli.outcome import CheckFailed
from iriscw.cli.output import emit

PATIENCE_S: Final = 10.0
"""How long it may take to answer; the probe of a pod waits a little longer."""

MOST_BYTES: Final = 64 << 10


@click.command()
@click.option(
    "--socket",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where the agent listens. Default: as for `iriscw agent serve`.",
)
def health(*, socket: Path | None) -> None:
    """Ask an agent whether it is well; exit code 0 if it says so, 1 if it does not, or does not answer."""
    from iriscw.agent.daemon import default_socket
    from iriscw.agent.local import state_folder

    place = socket or default_socket(os.environ, state_folder(os.environ))
    emit(ask(place))


def ask(place: Path, patience_s: float = PATIENCE_S) -> str:
    """Return what the agent at a socket says of its health.

    Raises:
        CheckFailed: it says that it is not well, or nothing.
    """
    connection = _Connection(place, patience_s)
    try:
        connection.request("GET", "/health")
        answer = connection.getresponse()
        body = answer.read(MOST_BYTES).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        raise CheckFailed(f"the agent at {place} does not answer: {type(error).__name__} {error}") from error
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise CheckFailed(f"the agent at {place} is not well: status {answer.status}, {body.strip()}")
    return body


class _Connection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, place: Path, patience_s: float) -> None:
        super().__init__("agent", timeout=patience_s)
        self._place = place
        self._patience_s = patience_s

    def connect(self) -> None:
        """Connect to the socket instead of a host."""
        self.sock = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
        self.sock.settimeout(self._patience_s)
        self.sock.connect(str(self._place))
