"""Ports of pods: connections whose messages come in any shape, and a port of this machine that leads there."""

import socket
import struct
from contextlib import asynccontextmanager

import anyio
import anyio.abc
import pytest
from served_pods import drivers_of, running_pod, serve

from iriscw.cloud.drivers.kube import forwarding
from iriscw.cloud.drivers.kube.forwarding import PortStream, PortUnreachable, listening
from iriscw.cloud.kube.messages import ApiUnreachable
from iriscw.cloud.model import Forbidden, Gone, InvalidSpec, Unavailable
from raised import that

PORT = b"\x90\x1f"


class Script:
    """Channels that say what they were told to say; what is sent is kept, or answered by ``echo``."""

    def __init__(self, *messages, echo=False):
        self.sent = b""
        self.closed = False
        self._send, self._receive = anyio.create_memory_object_stream(1000)
        self._echo = echo
        for message in messages:
            self._send.send_nowait(message)

    async def send(self, channel, data):
        if self.closed:
            raise ApiUnreachable("the connection is over")
        assert channel == 0
        self.sent += data
        if self._echo:
            await self._send.send((0, data))
        if data == b"bye":
            await self._send.send(None)

    async def receive(self):
        message = await self._receive.receive()
        if isinstance(message, Exception):
            raise message
        return message

    async def close(self):
        self.closed = True
        self._send.close()
        self._receive.close()


async def received(*messages):
    script = Script(*messages, None)
    stream = PortStream(script, 8080)
    try:
        return [chunk async for chunk in stream]
    finally:
        await stream.aclose()


@pytest.mark.parametrize(
    "messages",
    [
        [(0, PORT), (1, PORT), (0, b"ab"), (0, b"c")],
        [(0, PORT + b"ab"), (1, PORT), (0, b"c")],
        [(0, PORT[:1]), (1, PORT[:1]), (0, PORT[1:] + b"a"), (1, PORT[1:]), (7, b"x"), (0, b"bc")],
        [(0, b""), (0, PORT), (0, b""), (0, b"abc")],
    ],
)
async def test_the_port_at_the_beginning_is_taken_off(messages):
    """However its bytes come; unknown channels are passed over."""
    assert b"".join(await received(*messages)) == b"abc"


async def test_a_port_that_nobody_listens_on_is_told():
    """By name, with the kubelet's words; what came before it is given first."""
    stream = PortStream(Script((0, PORT), (1, PORT), (0, b"a"), (1, b"connection refused")), 8080)
    assert await stream.receive() == b"a"
    with pytest.raises(PortUnreachable, check=that(comes_from="forwarding.PortStream.receive", names="8080")):
        await stream.receive()
    with pytest.raises(anyio.EndOfStream):
        await stream.receive()
    await stream.aclose()


async def test_a_connection_that_breaks_is_told():
    """In both directions."""
    script = Script((0, PORT), ApiUnreachable("silence"))
    stream = PortStream(script, 8080)
    with pytest.raises(Unavailable, check=that(names="silence")):
        await stream.receive()
    await stream.aclose()
    with pytest.raises(Unavailable):
        await stream.send(b"x")


async def test_a_reader_takes_as_much_as_it_wants():
    """The rest is kept for the next time."""
    stream = PortStream(Script((0, PORT + b"abcde"), None), 8080)
    assert [await stream.receive(2) for _ in range(3)] == [b"ab", b"cd", b"e"]
    await stream.aclose()


def leading(*scripts):
    """Return what opens one connection after the other."""
    left = list(scripts)

    @asynccontextmanager
    async def connect():
        script = left.pop(0)
        if isinstance(script, Exception):
            raise script
        stream = PortStream(script, 8080)
        try:
            yield stream
        finally:
            await stream.aclose()

    return connect


async def talk(port, data):
    async with await anyio.connect_tcp("127.0.0.1", port) as client:
        await client.send(data)
        return b"".join([chunk async for chunk in client])


async def test_a_port_of_this_machine_leads_there():
    """Both ways, connection by connection; each ends by itself."""
    scripts = [Script((0, PORT), (1, PORT), (0, b"hello "), echo=True) for _ in range(3)]
    async with listening(leading(*scripts)) as here:
        with anyio.fail_after(10):
            for script in scripts:
                assert await talk(here.port, b"bye") == b"hello bye"
                assert script.sent == b"bye"
        assert (here.accepted, here.last_error) == (3, None)
    assert all(script.closed for script in scripts)
    with pytest.raises(OSError, check=that(comes_from="_sockets.connect_tcp")):
        await talk(here.port, b"")


async def test_what_cannot_be_opened_is_closed_and_told():
    """And the port goes on listening."""
    gone, refused = Gone("no such pod"), Script((0, PORT), (1, PORT), (1, b"refused"))
    async with listening(leading(gone, refused, Script((0, PORT), echo=True))) as here:
        with anyio.fail_after(10):
            assert await talk(here.port, b"x") == b""
            assert here.last_error is gone
            assert await talk(here.port, b"x") == b""
            assert isinstance(here.last_error, PortUnreachable)
            assert await talk(here.port, b"bye") == b"bye"


@pytest.mark.parametrize("how", ["goodbye", "cut off"])
async def test_a_client_that_leaves_ends_its_connection(how, monkeypatch):
    """Soon, though nothing comes from the other side."""
    monkeypatch.setattr(forwarding, "LINGER_S", 0.1)
    script = Script((0, PORT))
    async with listening(leading(script)) as here:
        with anyio.fail_after(10):
            client = await anyio.connect_tcp("127.0.0.1", here.port)
            await client.send(b"x")
            while not script.sent:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            if how == "cut off":
                raw = client.extra(anyio.abc.SocketAttribute.raw_socket)
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await client.aclose()
            while here.connections:  # noqa: ASYNC110
                await anyio.sleep(0.01)
    assert script.closed


async def test_who_has_said_all_hears_the_rest(monkeypatch):
    """A client that ends its own side only is answered for as long as there is something to say."""
    monkeypatch.setattr(forwarding, "LINGER_S", 0.3)
    script = Script((0, PORT))
    async with listening(leading(script)) as here:
        with anyio.fail_after(10):
            async with await anyio.connect_tcp("127.0.0.1", here.port) as client:
                await client.send_eof()
                for number in range(6):
                    await anyio.sleep(0.1)
                    script._send.send_nowait((0, b"%d" % number))
                assert b"".join([chunk async for chunk in client]) == b"012345"


async def test_connections_have_a_limit(monkeypatch):
    """One more is closed at once, and said to be one too many."""
    monkeypatch.setattr(forwarding, "CONNECTIONS", 1)
    async with listening(leading(Script((0, PORT + b"a")))) as here:
        with anyio.fail_after(10):
            async with await anyio.connect_tcp("127.0.0.1", here.port) as client:
                assert await client.receive() == b"a"
                assert await talk(here.port, b"") == b""
                assert "1 connections" in str(here.last_error)


async def test_errors_of_the_block_come_out_as_they_are():
    """And nothing is left behind."""
    with pytest.raises(ZeroDivisionError):
        async with listening(leading()) as here:
            raise ZeroDivisionError
    with pytest.raises(OSError, check=that(comes_from="_sockets.connect_tcp")):
        await talk(here.port, b"")


@pytest.fixture
async def served(tmp_path):
    """A simulated cluster."""
    async with serve(tmp_path) as running:
        yield running


async def test_a_simulated_workers_port(served):
    """It answers as a worker does; another port answers nothing; what is gone has a name."""
    async with drivers_of(served) as drivers:
        pod = await running_pod(drivers)
        await drivers.connection(pod.name, pod.uid).place.check()
        asked = b"GET /health HTTP/1.1\r\nHost: worker\r\nConnection: close\r\n\r\n"
        with anyio.fail_after(20):
            async with listening(lambda: drivers.port_forward(pod.name, pod.uid, 10001)) as here:
                assert (await talk(here.port, asked)).startswith(b"HTTP/1.1 200")
                assert here.last_error is None
            async with drivers.port_forward(pod.name, pod.uid, 10002) as stream:
                with pytest.raises(PortUnreachable):
                    await stream.receive()
            for name, uid in ((pod.name, "another"), ("none", pod.uid)):
                with pytest.raises(Gone):
                    async with drivers.port_forward(name, uid, 10001):
                        pass
        with pytest.raises(InvalidSpec):
            async with drivers.port_forward(pod.name, pod.uid, 70_000):
                pass
        assert drivers.statistics().api.open_streams == 0
    async with drivers_of(served, "CW-SECRET-wrong") as wrong:
        with pytest.raises(Forbidden, check=that(names="pods/portforward")):
            async with wrong.port_forward(pod.name, pod.uid, 10001):
                pass
