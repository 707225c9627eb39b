"""The port of a controller that was not told one: that of last time, so that pods that lived on find it."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

from iriscw.files import StateUnusable, write_atomic


def dialled(host: str) -> str:
    """Return where on this machine one dials what listens on ``host``."""
    return {"": "127.0.0.1", "0.0.0.0": "127.0.0.1"}.get(host, host)  # noqa: S104 - where it listens, not a bind


def usual_port(path: Path, host: str) -> int:
    """Return the port of last time if it is free, else any free one, and write it down.

    Args:
        path: the file with the port of last time.
        host: to listen on.

    Raises:
        StateUnusable: no port is free, or it cannot be written down.
    """
    try:
        usual = int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        usual = 0
    for port in (usual, 0):
        with contextlib.suppress(OSError), socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind((dialled(host), port))
            chosen: int = trial.getsockname()[1]
            break
    else:
        raise StateUnusable(f"no port is free on {host}")
    if chosen != usual:  # a full disk does not keep a controller from starting where it was
        try:
            write_atomic(path, f"{chosen}\n".encode())
        except OSError as error:
            raise StateUnusable(f"{path}: {error.strerror or error}") from error
    return chosen
