# ruff: noqa: PTH123, PTH208
# pathlib would double the time that this program takes to start.
"""Say why a worker whose pod runs may not have registered: one line on standard output.

This file is run in the worker's pod, as ``python -I -S -c SOURCE INCARNATION``, with nothing but the standard library.
It finds the worker's process, and does what that does: looks its controller up, connects, and verifies its certificate.
"""

from __future__ import annotations

import os
import socket
import ssl
import sys
from urllib.parse import urlsplit

CONNECT_S = 5.0
INCARNATION_VARIABLE = b"IRIS_INCARNATION"


def worker(incarnation: bytes) -> tuple[list[str], dict[str, str]] | None:
    """Find the worker's process: its command line and its variables."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        if int(name) == os.getpid():
            continue
        try:
            parts = []
            for part in ("cmdline", "environ"):
                with open(f"/proc/{name}/{part}", "rb") as file:
                    parts.append(file.read().split(b"\0"))
        except OSError:
            continue  # it has ended, or is somebody else's
        words, pairs = parts
        if INCARNATION_VARIABLE + b"=" + incarnation in pairs and any(b"worker" in word for word in words[:4]):
            split = (os.fsdecode(pair).partition("=") for pair in pairs)
            found.append((int(name), [*map(os.fsdecode, words)], {key: value for key, _, value in split}))
    return min(found)[1:] if found else None


def option(words: list[str], name: str) -> str:
    """Return the value of an option of a command line; empty if it is not there."""
    for index, word in enumerate(words):
        if word == name:
            return "".join(words[index + 1 : index + 2])
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return ""


def trouble(address: str, authority: str) -> str:
    """Connect to the controller, and say what is wrong; empty if nothing is."""
    place = urlsplit(address if "://" in address else f"http://{address}")
    try:
        host, port = place.hostname or "", place.port or 0
        connection = socket.create_connection((host, port), CONNECT_S)
    except socket.gaierror as error:
        return f"the controller's name {host!r} is not known in its pod: {error.strerror}"
    except (OSError, ValueError) as error:
        return f"the controller at {address} cannot be reached from its pod: {error}"
    with connection:
        if place.scheme != "https":
            return ""
        try:
            context = ssl.create_default_context(cafile=authority or None)
            with context.wrap_socket(connection, server_hostname=host):
                return ""
        except (OSError, ValueError) as error:
            return f"the controller's certificate is not accepted in its pod: {error}"


def main(incarnation: str) -> str:
    """Return the finding, one sentence without its end."""
    found = worker(incarnation.encode())
    if found is None:
        return "no process of the worker runs in its pod"
    words, variables = found
    address = option(words, "--controller") or variables.get("IRIS_CONTROLLER_ADDRESS", "")
    if not address:
        return "the worker was told no controller's address"
    authority = option(words, "--ca-file") or variables.get("IRISCW_CA_FILE", "")
    return trouble(address, authority) or f"the controller at {address} can be reached from its pod: see the pod's log"


if __name__ == "__main__":
    sys.stdout.write(main(sys.argv[1]))
