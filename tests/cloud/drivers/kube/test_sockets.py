"""Sockets find their peer's end by themselves, and are closed in the end."""

import asyncio
import os
import socket

import pytest

from iriscw.cloud.drivers.kube.sockets import KEEPALIVE_IDLE_S, Sockets

ADDRESS = (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 1))


def test_tcp_asks_by_itself():
    """Whether somebody is there."""
    sockets = Sockets()
    with sockets.make(ADDRESS) as made:
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        if os.uname().sysname == "Linux":
            assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == KEEPALIVE_IDLE_S
            assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) > 0
        assert sockets.open == 1
    assert sockets.open == 0


def test_sockets_are_remembered_weakly():
    """Those that were closed and let go cost nothing."""
    sockets = Sockets()
    for _ in range(10):
        sockets.make(ADDRESS).close()
    assert len(sockets._made) == 0


@pytest.mark.parametrize("reading", [True, False])
async def test_what_is_left_is_ended(reading):
    """Whoever owns it notices, as if the peer had gone."""
    sockets, ended = Sockets(), asyncio.Event()

    class Protocol(asyncio.Protocol):
        def connection_lost(self, _error):
            ended.set()

    async def hang(reader, writer):
        await reader.read()
        writer.close()

    listening = await asyncio.start_server(hang, "127.0.0.1", 0)
    async with listening:
        made = sockets.make(ADDRESS)
        made.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(made, listening.sockets[0].getsockname())
        transport, _ = await loop.create_connection(Protocol, sock=made)
        if not reading:
            transport.pause_reading()
            transport.write(b"x")
        await sockets.end()
        if reading:
            assert ended.is_set()
            assert sockets.open == 0
        transport.abort()
