"""Doors: two protocols on one port, unix sockets, drains, and strangers."""

import asyncio
import http.client
import logging
import os
import socket
import stat
import struct
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from rpc_echo import EchoReply, EchoRequest
from rpc_world import ADMIN, DOWNLOAD, UNARY, EchoService, authenticate, knock

from iriscw._errors import InvalidArgument
from iriscw.rpc.client import RpcChannel
from iriscw.rpc.door import PREFACE
from iriscw.rpc.errors import (
    AddressInUse,
    AddressUnavailable,
    InsecureDoor,
    InvalidAddress,
    PeerNotTrusted,
    PermissionDenied,
    RpcUnavailable,
    Unauthenticated,
)
from iriscw.rpc.http1 import HttpResponse, Route
from iriscw.rpc.limits import RpcLimits
from iriscw.rpc.server import RpcServer
from iriscw.rpc.tls import client_tls, server_tls
from iriscw.rpc.tokens import ClusterTokens, Secret
from iriscw.rpc.transport import STOOD_STILL_S
from raised import that
from waiting import until

HELLO = EchoRequest(text="hi")
EMPTY_SETTINGS = b"\0\0\0\x04\0\0\0\0\0"

ROUTES = {
    "/health": Route(lambda: HttpResponse(200, "text/plain", b"ok\n"), public=True),
    "/metrics": Route(lambda: HttpResponse(200, "text/plain", b"up 1\n"), figures=True),
    "/page": Route(lambda: HttpResponse(200, "text/plain", b"whose\n")),
}


async def open_server(stack: AsyncExitStack, echo: EchoService, **more: object) -> RpcServer:
    """A door on a free loopback port, closed with the stack."""
    server = RpcServer([echo], authenticate=authenticate, routes=ROUTES, **more)
    await stack.enter_async_context(server)
    await server.listen_tcp("127.0.0.1", 0)
    return server


def curl(port: int, path: str, token: str = "", method: str = "GET") -> tuple[int, bytes]:
    """Ask as a probe does."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request(method, path, headers={"Authorization": f"Bearer {token}"} if token else {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


async def test_one_port_two_protocols(stack: AsyncExitStack, echo: EchoService) -> None:
    """gRPC and HTTP/1.1 are answered on one port; only /health without a token."""
    server = await open_server(stack, echo)
    port = server.address.port
    async with RpcChannel(f"http://127.0.0.1:{port}", ADMIN) as channel:
        assert (await channel.unary(UNARY, HELLO, EchoReply)).text == "hi"
    ask = asyncio.to_thread
    assert await ask(curl, port, "/health") == (200, b"ok\n")
    assert (await ask(curl, port, "/metrics"))[0] == 401
    assert (await ask(curl, port, "/metrics", "wrong"))[0] == 401
    assert await ask(curl, port, "/metrics", "admin-token") == (200, b"up 1\n")
    assert (await ask(curl, port, UNARY))[0] == 404
    assert (await ask(curl, port, UNARY, method="POST"))[0] == 405


async def test_a_token_for_metrics_reads_figures_alone(stack: AsyncExitStack, echo: EchoService) -> None:
    """It calls no method, even of a service without rules, and reads no other page."""
    tokens = ClusterTokens(Secret("cluster"), admins=[ADMIN], metrics=[Secret("for-metrics")])
    server = RpcServer([echo], authenticate=tokens.authenticate, routes=ROUTES)
    await stack.enter_async_context(server)
    port = (await server.listen_tcp("127.0.0.1", 0)).port
    ask = asyncio.to_thread
    answers = [(await ask(curl, port, path, "for-metrics"))[0] for path in (*ROUTES, "/nowhere", UNARY)]
    assert answers == [200, 200, 403, 404, 404]
    assert (await ask(curl, port, "/page", ADMIN.reveal()))[0] == 200
    async with RpcChannel(f"http://127.0.0.1:{port}", Secret("for-metrics")) as channel:
        with pytest.raises(PermissionDenied, check=that(names="/metrics")):
            await channel.unary(UNARY, HELLO, EchoReply)
    assert echo.calls == 0


async def test_unix_door(stack: AsyncExitStack, echo: EchoService, tmp_path: Path) -> None:
    """The unix socket has mode 0600, needs no token, says who calls, and is removed at the end."""
    server = await open_server(stack, echo)
    path = tmp_path / "door.sock"
    address = await server.listen_unix(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    async with RpcChannel(str(address)) as channel:
        assert (await channel.unary(UNARY, EchoRequest(text="who"), EchoReply)).text.startswith("local|")
    await server.drain(0)
    assert not path.exists()


async def test_unix_door_for_some_users(stack: AsyncExitStack, echo: EchoService, tmp_path: Path) -> None:
    """A process of another user than those that may come in is cut off, whatever the mode of the socket."""
    server = await open_server(stack, echo)
    mine = await server.listen_unix(tmp_path / "mine.sock", uids=(os.geteuid(),))
    theirs = await server.listen_unix(tmp_path / "theirs.sock", uids=(os.geteuid() + 1,))
    async with RpcChannel(mine) as channel:
        assert (await channel.unary(UNARY, HELLO, EchoReply)).text
    assert server.statistics().connections_refused == 0
    async with RpcChannel(theirs) as channel:
        with pytest.raises(RpcUnavailable):
            await channel.unary(UNARY, HELLO, EchoReply)
    assert server.statistics().connections_refused == 1
    assert echo.calls == 1


async def test_stale_socket(stack: AsyncExitStack, echo: EchoService, tmp_path: Path) -> None:
    """A socket whose owner is gone is replaced, one that is served is not, and a file is never removed."""
    path = tmp_path / "door.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    server = await open_server(stack, echo)
    await server.listen_unix(path)
    with pytest.raises(AddressInUse):
        await (await open_server(stack, echo)).listen_unix(path)
    (tmp_path / "file").write_text("precious")
    with pytest.raises(AddressInUse):
        await server.listen_unix(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "precious"
    with pytest.raises(AddressUnavailable):
        await server.listen_unix(tmp_path / "missing" / "door.sock")


async def test_port_in_use(stack: AsyncExitStack, echo: EchoService) -> None:
    """A port that is taken, and one that is none, are named errors."""
    server = await open_server(stack, echo)
    with pytest.raises(AddressInUse, check=that(comes_from="listening.named_errors", names=server.address.port)):
        await (await open_server(stack, echo)).listen_tcp("127.0.0.1", server.address.port)
    with pytest.raises(InvalidAddress):
        await server.listen_tcp("127.0.0.1", 70_000)


async def test_plain_text_off_loopback(stack: AsyncExitStack, echo: EchoService) -> None:
    """Off loopback without TLS the door opens only when told so in words."""
    server = await open_server(stack, echo)
    with pytest.raises(InsecureDoor, check=that(comes_from="server.RpcServer.listen_tcp")):
        await server.listen_tcp("0.0.0.0", 0)
    bold = RpcServer([echo], authenticate=authenticate, insecure_plaintext=True)
    await stack.enter_async_context(bold)
    assert (await bold.listen_tcp("0.0.0.0", 0)).port


async def test_no_address_yet(echo: EchoService) -> None:
    """A server that does not listen has no address; two services cannot offer the same method."""
    with pytest.raises(InvalidArgument):
        _ = RpcServer([echo], authenticate=authenticate).address
    with pytest.raises(InvalidArgument, check=that(comes_from="server._merge")):
        RpcServer([echo, EchoService()], authenticate=authenticate)


async def test_tls(stack: AsyncExitStack, echo: EchoService, tmp_path: Path) -> None:
    """With certificates both protocols are encrypted; a peer of another authority is not trusted."""
    trustme = pytest.importorskip("trustme")
    authority, other = trustme.CA(), trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    other.cert_pem.write_to_path(tmp_path / "other.pem")
    server = await open_server(stack, echo, tls=server_tls(tmp_path / "server.pem", tmp_path / "server.pem"))
    assert str(server.address).startswith("https://")
    trusting = client_tls(authority=tmp_path / "ca.pem")
    async with RpcChannel(server.address, ADMIN, tls=trusting) as channel:
        assert (await channel.unary(UNARY, HELLO, EchoReply)).text == "hi"
    async with RpcChannel(server.address, ADMIN, tls=client_tls(authority=tmp_path / "other.pem")) as channel:
        with pytest.raises(PeerNotTrusted):
            await channel.unary(UNARY, HELLO, EchoReply)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.address.port, ssl=trusting)
    writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 200 OK\r\n")
    writer.close()


async def test_drain_lets_calls_finish(server: RpcServer, channel: RpcChannel, echo: EchoService) -> None:
    """Within the grace calls finish; new ones on the open connection are refused as unavailable."""
    answers = []

    async def ask() -> None:
        answers.append(await channel.unary(UNARY, EchoRequest(text="wait"), EchoReply))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await echo.started.wait()
        tasks.start_soon(server.drain, 10)
        await until(lambda: server._calls.draining)
        with pytest.raises(RpcUnavailable, check=that(names="stopping")):
            await channel.unary(UNARY, HELLO, EchoReply)
        echo.release.set()
    assert [answer.text for answer in answers] == ["wait"]
    assert server.statistics().connections == 0


async def test_drain_under_load(server: RpcServer, channel: RpcChannel, echo: EchoService) -> None:
    """What does not finish in time is cut at once, by name; the drain ends while clients stay connected."""
    outcomes: list[str] = []

    async def ask() -> None:
        try:
            await channel.unary(UNARY, EchoRequest(text="wait"), EchoReply)
        except RpcUnavailable as error:
            outcomes.append(str(error))

    async def listen() -> None:
        request = EchoRequest(text="hold", count=5)
        try:
            async with channel.server_stream(DOWNLOAD, request, EchoReply) as replies:
                async for _ in replies:
                    pass
        except RpcUnavailable as error:
            outcomes.append(str(error))

    idle = socket.create_connection(("127.0.0.1", server.address.port))
    async with anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(ask)
            tasks.start_soon(listen)
        await until(lambda: server.statistics().calls_in_flight == 100)
        with anyio.fail_after(60):
            report = await server.drain(0.1)
    idle.close()
    assert report.calls_cut == 100
    assert report.methods_left == 0
    assert len(outcomes) == 100
    assert all("stopping" in text for text in outcomes)
    assert server.statistics().connections == 0


async def test_drain_twice(server: RpcServer) -> None:
    """A second drain has nothing to do."""
    await server.drain(0)
    assert (await server.drain(0)).calls_cut == 0


# Strangers.


async def test_garbage(server: RpcServer, channel: RpcChannel, caplog: pytest.LogCaptureFixture) -> None:
    """Garbage, before and after the preface, ends its own connection and nothing else."""
    for data in (b"\0" * 100 + b"\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", PREFACE + b"\xff" * 200):
        with anyio.fail_after(5):
            await knock(server.address, data)
    wild = struct.pack(">I", 9)[1:] + b"\xf3\0\0\0\0\x01" + b"?" * 9  # a frame type that nobody defined
    bad_header = b"\0\0\x04\x01\x05\0\0\0\x01" + b"\xff\xff\xff\xff"
    for frames in (wild, bad_header):
        with anyio.fail_after(5):
            await knock(server.address, PREFACE + EMPTY_SETTINGS + frames)
    assert not [record for record in caplog.records if record.levelno > logging.INFO]
    assert (await channel.unary(UNARY, HELLO, EchoReply)).text == "hi"


@pytest.mark.parametrize("first", [b"", b"PRI * HT", b"GET /health HT", PREFACE + EMPTY_SETTINGS])
async def test_silent_strangers(stack: AsyncExitStack, echo: EchoService, first: bytes) -> None:
    """A connection that never says enough, or never shows a right token, is closed."""
    server = await open_server(stack, echo, limits=RpcLimits(first_bytes_timeout_s=0.2, first_call_timeout_s=0.2))
    with anyio.fail_after(60):
        await knock(server.address, first)
    await until(lambda: server.statistics().connections == 0)


async def test_guessing_tokens(stack: AsyncExitStack, echo: EchoService) -> None:
    """A connection on which only wrong tokens come is closed after some; it is not kept for more guesses."""
    server = await open_server(stack, echo, limits=RpcLimits(max_stranger_refusals=3))
    async with RpcChannel(server.address) as channel:
        for _ in range(3):
            with pytest.raises(Unauthenticated):
                await channel.unary(UNARY, HELLO, EchoReply)
        await until(lambda: server.statistics().connections == 0)
    assert server.statistics().calls_refused == 3


async def test_max_connections(stack: AsyncExitStack, echo: EchoService) -> None:
    """Connections beyond the limit are cut at once; room comes back."""
    server = await open_server(stack, echo, limits=RpcLimits(max_connections=2))
    held = [await asyncio.open_connection("127.0.0.1", server.address.port) for _ in range(2)]
    await until(lambda: server.statistics().connections == 2)
    assert await knock(server.address, b"") == b""
    assert server.statistics().connections_refused == 1
    for _, writer in held:
        writer.close()
    await until(lambda: server.statistics().connections == 0)
    assert (await asyncio.to_thread(curl, server.address.port, "/health"))[0] == 200


async def test_ping_flood(stack: AsyncExitStack, echo: EchoService) -> None:
    """A stranger that sends pings and never reads the answers is cut at its buffer's limit."""
    server = await open_server(stack, echo, limits=RpcLimits(max_stranger_write_buffer_bytes=50_000))
    for listening in server._listeners[0].sockets:
        # Connections inherit it; left alone, the kernel takes megabytes of answers before one waits here.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    ping = b"\0\0\x08\x06\0\0\0\0\0" + b"12345678"
    with socket.create_connection(("127.0.0.1", server.address.port)) as flood:
        flood.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        flood.setblocking(False)
        flood.send(PREFACE + EMPTY_SETTINGS)
        with anyio.fail_after(20):
            while True:
                try:
                    flood.send(ping * 4000)
                except BlockingIOError:
                    await anyio.lowlevel.checkpoint()
                except ConnectionError:
                    break
                await anyio.lowlevel.checkpoint()
    await until(lambda: server.statistics().connections == 0)


async def test_client_that_never_reads(stack: AsyncExitStack, echo: EchoService) -> None:
    """A stream waits for a client that does not read, and ends with its keepalive; memory stays bounded."""
    limits = RpcLimits(keepalive_interval_s=0.2, keepalive_timeout_s=0.3)
    server = await open_server(stack, echo, limits=limits)
    async with RpcChannel(server.address, ADMIN) as channel:
        request = EchoRequest(count=10_000, body=b"x" * 60_000)
        async with channel.server_stream(DOWNLOAD, request, EchoReply) as replies:
            await anext(replies)
            transport = channel._connector._protocol.connection._transport
            transport.pause_reading()  # what a stopped process looks like
            with anyio.fail_after(60):
                await echo.cancelled.wait()
            await until(lambda: server.statistics().connections == 0)


async def test_stopped_server_is_noticed(stack: AsyncExitStack, echo: EchoService) -> None:
    """A server that hangs is noticed by the channel's keepalive, long before the deadline."""
    mute = await asyncio.start_server(_mute, "127.0.0.1", 0)
    limits = RpcLimits(keepalive_interval_s=0.2, keepalive_timeout_s=0.3)
    async with mute, RpcChannel(f"127.0.0.1:{mute.sockets[0].getsockname()[1]}", ADMIN, limits=limits) as channel:
        with pytest.raises(RpcUnavailable, check=that(names="keepalive")):
            await channel.unary(UNARY, HELLO, EchoReply, timeout_s=600)


async def test_a_peer_is_heard_before_it_is_given_up(stack: AsyncExitStack, echo: EchoService) -> None:
    """Who was asked and said something else lives; if this process stood still, it reads first, and judges later."""
    server = await open_server(stack, echo)
    async with RpcChannel(server.address, ADMIN) as channel:
        await channel.unary(UNARY, HELLO, EchoReply)
        connection, now = channel._connector._protocol.connection, asyncio.get_running_loop().time()
        connection._asked_at = now + 1
        connection._unanswered(now - 2 * STOOD_STILL_S)
        assert connection._close_by_ping_handler.when() >= now + RpcLimits().keepalive_timeout_s, "asked to wait again"
        connection.ping_ack_process()
        await channel.unary(UNARY, HELLO, EchoReply)
        connection._asked_at = connection.heard_at - 1
        connection._unanswered(now)
        await channel.unary(UNARY, HELLO, EchoReply)
        assert not connection.is_closing()
        connection._asked_at = now + 10
        connection._unanswered(now + 10)
        assert connection.is_closing()


async def _mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Speaks enough HTTP/2 for a call to be sent, and never again."""
    writer.write(EMPTY_SETTINGS)
    while await reader.read(1 << 16):
        pass
    writer.close()


async def test_peer_speaks_http1() -> None:
    """A channel to something that is no gRPC server fails by name and does not hang."""

    async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    listener = await asyncio.start_server(web, "127.0.0.1", 0)
    async with listener, RpcChannel(f"127.0.0.1:{listener.sockets[0].getsockname()[1]}", ADMIN) as channel:
        with anyio.fail_after(5), pytest.raises(RpcUnavailable):
            await channel.unary(UNARY, HELLO, EchoReply)


@pytest.mark.parametrize("per_turn", [1, 3])
async def test_a_crowd_is_let_in_by_and_by(stack: AsyncExitStack, echo: EchoService, per_turn: int) -> None:
    """Channels that dial at once are begun a few per turn of the loop; all are answered and none is left waiting."""
    server = await open_server(stack, echo, limits=RpcLimits(connections_per_turn=per_turn))
    answers: list[str] = []

    async def dial() -> None:
        async with RpcChannel(str(server.address), ADMIN) as channel:
            answers.append((await channel.unary(UNARY, HELLO, EchoReply)).text)

    async with anyio.create_task_group() as tasks:
        for _ in range(30):
            tasks.start_soon(dial)
    assert answers == ["hi"] * 30
    statistics = server.statistics()
    assert statistics.most_begun_in_turn == per_turn
    assert statistics.connections_waiting == 0
