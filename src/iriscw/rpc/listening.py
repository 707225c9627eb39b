"""Taking an address: on which loop, who else has it, who could read what arrives there, and sockets nobody else can
open.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from iriscw.rpc.address import is_loopback
from iriscw.rpc.errors import AddressInUse, AddressUnavailable, InvalidAddress, NeedsAsyncio


def require_asyncio() -> None:
    """Refuse to begin where no asyncio loop runs: connections are grpclib's, which knows no other.

    Raises:
        NeedsAsyncio: none does.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise NeedsAsyncio(
            "clients and clusters run on asyncio only: use asyncio.run, or anyio.run with its default backend"
        ) from None


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the asyncio loop that runs this; None where none does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def exposed_addresses(host: str, port: int) -> list[str]:
    """Return the addresses behind ``host`` that other machines can reach. An empty host is every address there is.

    Raises:
        InvalidAddress: the host has no address, or the port is none.
    """
    if not 0 <= port < 1 << 16:
        raise InvalidAddress(f"{port} is not a port: it must be between 0 and 65535")
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise InvalidAddress(f"{host}:{port} has no address: {error}") from error
    return sorted({str(sockaddr[0]) for *_, sockaddr in found if not is_loopback(str(sockaddr[0]))})


@contextlib.contextmanager
def named_errors(address: str) -> Iterator[None]:
    """Turn what the system says about ``address`` inside into :class:`AddressInUse` or :class:`AddressUnavailable`."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise AddressInUse(f"{address} is in use: another process listens there") from error
        raise AddressUnavailable(f"cannot listen on {address}: {os.strerror(error.errno or 0)}") from error


def bind_unix(path: Path) -> tuple[socket.socket, int]:
    """Bind a socket nobody else can open. Until it listens, which happens after the mode is set, no one can
    connect.
    """
    _remove_stale(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(str(path))
        path.chmod(0o600)
        inode = path.stat().st_ino
    except BaseException:
        sock.close()
        raise
    return sock, inode


def _remove_stale(path: Path) -> None:
    """Remove a socket that nobody listens on; anything else stays, and binding will say so."""
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
        except TimeoutError:
            return  # someone listens, and is busy


def peer_uid(transport: asyncio.BaseTransport | None) -> int:
    """Return the user whose process is at the other end of a unix socket, as the kernel says; -1 where it does not."""
    sock = None if transport is None else transport.get_extra_info("socket")
    if sock is None:
        return -1
    _, uid, _ = struct.unpack("iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("iII")))
    return int(uid)


def widen_backlog(sockets: Iterable[Any], connections: int) -> None:
    """Let the kernel hold more connections for listening sockets than their loop accepts at a time.

    asyncio has one number for both. To listen again changes the kernel's only. What has no descriptor is not one of the
    kernel's sockets: a loop that simulates its network has its own backlog.
    """
    for listening in sockets:
        if listening.fileno() < 0:
            continue
        with socket.socket(fileno=os.dup(listening.fileno())) as same:
            same.listen(connections)
