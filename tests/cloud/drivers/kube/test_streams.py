"""Websockets of channels, and bodies, against servers of all kinds."""

import asyncio
from contextlib import asynccontextmanager

import anyio
import attrs
import pytest
from aiohttp import WSMsgType, web
from drivers_world import LIMITS
from raw_server import TOKEN, serving

from iriscw.cloud.drivers.kube import streams, upgrades
from iriscw.cloud.drivers.kube.access import ClusterAccess
from iriscw.cloud.drivers.kube.api import open_api
from iriscw.cloud.drivers.kube.credentials import Fixed, Header
from iriscw.cloud.drivers.kube.streams import MESSAGE_BYTES, PIECE_BYTES, V4, V5, AnswerBody, Channels
from iriscw.cloud.kube.messages import ApiRequest, ApiResponse, ApiUnreachable
from raised import that

WHERE = ApiRequest("GET", "/api/v1/namespaces/iris/pods/p/exec")


@asynccontextmanager
async def channels(script, protocols=(V5,), offered=(V5, V4), limits=LIMITS):
    """Channels to a server that does as an async function of its websocket and its request says."""

    async def answer(request):
        socket = web.WebSocketResponse(protocols=protocols, autoping=False, max_msg_size=0)
        await socket.prepare(request)
        await script(socket, request)
        return socket

    runner = web.ServerRunner(web.Server(answer, handler_cancellation=True), shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    access = ClusterAccess(f"http://127.0.0.1:{port}", Fixed(Header.of("Bearer", TOKEN)))
    try:
        async with open_api(access, limits) as api, api.channels(WHERE, offered) as opened:
            assert isinstance(opened, Channels)
            yield opened
        assert api.statistics().open_streams == 0
    finally:
        await runner.cleanup()


async def echo(socket, _request):
    async for message in socket:
        if message.type is WSMsgType.BINARY:
            await socket.send_bytes(message.data)
        elif message.type is WSMsgType.PING:
            await socket.pong(message.data)


async def test_messages_belong_to_channels():
    """In both directions; long ones are sent in pieces; empty ones are none."""

    async def script(socket, request):
        await socket.send_bytes(b"")
        await echo(socket, request)

    async with channels(script) as opened:
        assert opened.protocol == V5
        await opened.send(7, b"abc")
        assert await opened.receive() == (7, b"abc")
        data = bytes(range(256)) * 300
        await opened.send(0, data)
        pieces = [await opened.receive() for _ in range(3)]
        assert [len(piece) for _, piece in pieces] == [PIECE_BYTES, PIECE_BYTES, len(data) - 2 * PIECE_BYTES]
        assert b"".join(piece for _, piece in pieces) == data


async def test_a_channel_is_ended_where_there_is_a_word_for_it():
    """Version 5 has one."""
    async with channels(echo) as opened:
        assert await opened.end(0) is True
        assert await opened.receive() == (255, b"\x00")
    async with channels(echo, (V4,)) as opened:
        assert opened.protocol == V4
        assert await opened.end(0) is False


async def test_a_goodbye_is_an_end():
    """As often as it is asked for."""

    async def script(socket, _request):
        await socket.send_bytes(b"\x01last")
        await socket.close()

    async with channels(script) as opened:
        assert await opened.receive() == (1, b"last")
        assert await opened.receive() is None
        assert await opened.receive() is None
        with pytest.raises(ApiUnreachable):
            await opened.send(0, b"x")


@pytest.mark.parametrize("how", ["cut", "text", "too long"])
async def test_what_is_no_end_is_told(how):
    """A connection that is cut off, and messages of another kind."""

    async def script(socket, request):
        if how == "cut":
            request.transport.abort()
        elif how == "text":
            await socket.send_str("hello")
        else:
            await socket.send_bytes(bytes(MESSAGE_BYTES + 1))

    async with channels(script) as opened:
        with anyio.fail_after(10), pytest.raises(ApiUnreachable):
            await opened.receive()


async def test_who_is_silent_is_asked(monkeypatch):
    """Whoever answers is there; whoever does not is gone. A question is answered, too."""
    monkeypatch.setattr(streams, "PING_S", 0.05)
    asked = []

    async def answers(socket, _request):
        await socket.ping(b"you?")
        async for message in socket:
            asked.append((message.type, bytes(message.data)))
            if message.type is WSMsgType.PING:
                await socket.pong(message.data)
            if len(asked) == 8:
                await socket.send_bytes(b"\x01done")

    async with channels(answers) as opened:
        assert await opened.receive() == (1, b"done")
    assert (WSMsgType.PONG, b"you?") in asked
    assert (WSMsgType.PING, b"") in asked

    async def silent(_socket, _request):
        await asyncio.sleep(60)

    async with channels(silent) as opened:
        with (
            anyio.fail_after(10),
            pytest.raises(ApiUnreachable, check=that(comes_from="streams.Channels.receive")),
        ):
            await opened.receive()


async def test_who_does_not_read_holds_nobody_up_for_ever(monkeypatch):
    """Sending has a deadline."""
    monkeypatch.setattr(streams, "CLOSE_S", 0.2)
    monkeypatch.setattr(upgrades, "CLOSE_S", 0.2)

    async def deaf(_socket, request):
        request.transport.pause_reading()
        await asyncio.sleep(60)

    async with channels(deaf, limits=attrs.evolve(LIMITS, request_s=0.2)) as opened:
        with anyio.fail_after(20), pytest.raises(ApiUnreachable, check=that(comes_from="faults.deadline", names="0.2")):
            await opened.send(0, bytes(12_000_000))


@pytest.mark.slow
async def test_a_slow_reader_holds_up_the_server():
    """It can send so much and no more before somebody reads."""
    sent = []

    async def script(socket, _request):
        while True:
            await socket.send_bytes(b"\x01" + bytes(30_000))
            sent.append(1)

    async with channels(script) as opened:
        await opened.receive()
        await anyio.sleep(0.3)
        before = len(sent)
        await anyio.sleep(0.3)
        assert len(sent) == before
        for _ in range(before):
            await opened.receive()
        assert len(sent) > before


async def test_closing_never_waits_long(monkeypatch):
    """Though the other side does not say goodbye."""
    monkeypatch.setattr(streams, "CLOSE_S", 0.2)
    monkeypatch.setattr(upgrades, "CLOSE_S", 0.2)

    async def silent(_socket, request):
        request.transport.pause_reading()
        await asyncio.sleep(60)

    with anyio.fail_after(10):
        async with channels(silent):
            pass


async def test_a_body_comes_bit_by_bit():
    """For as long as it takes; what is cut off is told."""

    async def script(peer):
        await peer.begin()
        await peer.chunk(b"one")
        await anyio.sleep(0.1)
        await peer.chunk(b"two")
        await anyio.sleep(0.1)
        if peer.asked.path == "/cut":
            peer.cut()
        else:
            await peer.end()

    async with serving(script) as server, open_api(server.access, LIMITS) as api:
        async with api.body(ApiRequest("GET", "/log")) as body:
            assert isinstance(body, AnswerBody)
            assert [await body.more() for _ in range(3)] == [b"one", b"two", b""]
        async with api.body(ApiRequest("GET", "/cut")) as body:
            assert [await body.more() for _ in range(2)] == [b"one", b"two"]
            with pytest.raises(ApiUnreachable):
                await body.more()
        assert api.statistics().open_streams == 0
        await server.gone()


async def test_a_refused_body_is_an_answer():
    """With its code and what it says."""

    async def script(peer):
        await peer.answer(500, {"message": "no tunnel"})

    async with serving(script) as server, open_api(server.access, LIMITS) as api:
        async with api.body(ApiRequest("GET", "/log")) as answer:
            assert answer == ApiResponse(500, {"message": "no tunnel"})
        assert api.statistics().refusals == 1


async def test_streams_leave_connections_to_requests():
    """Whoever finds no place waits, within its deadline; requests do not wait for streams."""

    async def script(peer):
        if peer.asked.path == "/log":
            await peer.begin()
            await peer.reader.read()
        else:
            await peer.answer(200, {})

    limits = attrs.evolve(LIMITS, streams=2, connections=3, open_s=0.3)
    log = ApiRequest("GET", "/log")
    async with serving(script) as server, open_api(server.access, limits) as api:
        async with api.body(log), api.body(log):
            with (
                anyio.fail_after(10),
                pytest.raises(ApiUnreachable, check=that(comes_from="faults.deadline", names="2")),
            ):
                async with api.body(log):
                    pass
            assert (await api.request(ApiRequest("GET", "/other"))).code == 200
        async with api.body(log) as body:
            assert isinstance(body, AnswerBody)
