"""The simulated TCP: the same play on it and on this machine's loopback, and the faults that a loopback has not got."""

import asyncio
import errno
import itertools
import os
from collections.abc import Callable

import anyio
import pytest
from hypothesis import given, strategies as st
from transport_world import FOUND_AND_SHRUNK, seeds

from iriscw_sims.transport.endpoint import HIGH_WATER_BYTES, UNANSWERED_S
from iriscw_sims.transport.network import SYN_RETRIES_S, Fault, FaultKind, Network
from iriscw_sims.transport.run import simulate
from iriscw_sims.transport.wire import Weather
from profiles import examples
from raised import that

CALM = Weather(latency_s=(0.01, 0.01), cuts=0)


class Notes(asyncio.Protocol):
    """A protocol that notes what it is told, and may act on it."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.data = bytearray()
        self.reactions: dict[str, Callable[[Notes], object]] = {}
        self.keep_open = False
        self.changed = asyncio.Event()
        self.transport: asyncio.Transport

    def _note(self, what: str) -> None:
        self.told.append(what)
        self.changed.set()
        if what in self.reactions:
            self.reactions.pop(what)(self)

    def connection_made(self, transport) -> None:
        self.transport = transport
        self._note("made")

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.told[-1:] = [*[each for each in self.told[-1:] if each != "data"], "data"]
        self.changed.set()
        if "data" in self.reactions:
            self.reactions.pop("data")(self)

    def eof_received(self) -> bool:
        self._note("end")
        return self.keep_open

    def pause_writing(self) -> None:
        self._note("paused")

    def resume_writing(self) -> None:
        self._note("resumed")

    def connection_lost(self, exc: Exception | None) -> None:
        self._note("lost" if exc is None else f"lost {type(exc).__name__}")

    async def until(self, what: str) -> None:
        with anyio.fail_after(5000):
            while what not in self.told:
                self.changed.clear()
                await self.changed.wait()


async def pair() -> tuple[Notes, Notes]:
    """Connect two protocols over whatever network the running loop has."""
    accepted: list[Notes] = []

    def factory() -> Notes:
        accepted.append(Notes())
        return accepted[-1]

    loop = asyncio.get_running_loop()
    server = await loop.create_server(factory, "127.0.0.1", 0)
    _, client = await loop.create_connection(Notes, *server.sockets[0].getsockname())
    while not accepted or "made" not in accepted[0].told:  # noqa: ASYNC110 - what is waited for has no event
        await anyio.sleep(0.001)
    server.close()
    return client, accepted[0]


# The same on both networks


async def _close_sends_what_is_buffered(client: Notes, server: Notes) -> None:
    client.transport.write(b"x" * (8 << 20))
    client.transport.close()
    await server.until("lost")
    await client.until("lost")
    assert len(server.data) == 8 << 20


async def _abort_drops_the_buffer(client: Notes, server: Notes) -> None:
    server.transport.pause_reading()
    client.transport.write(b"x" * (16 << 20))
    assert client.transport.get_write_buffer_size() > 0
    client.transport.abort()
    assert client.transport.get_write_buffer_size() == 0
    await client.until("lost")
    server.transport.resume_reading()
    await server.until("lost")
    assert 0 < len(server.data) < 16 << 20


async def _a_paused_reader_stops_the_writer(client: Notes, server: Notes) -> None:
    server.transport.pause_reading()
    client.transport.write(b"x" * (16 << 20))
    await client.until("paused")
    await anyio.sleep(0.05)
    assert client.transport.get_write_buffer_size() > HIGH_WATER_BYTES
    assert not server.data
    server.transport.resume_reading()
    await client.until("resumed")
    client.transport.close()
    await server.until("lost")
    assert len(server.data) == 16 << 20


async def _one_side_ends(client: Notes, server: Notes) -> None:
    server.keep_open = True
    client.transport.write(b"question")
    client.transport.write_eof()
    await server.until("end")
    assert bytes(server.data) == b"question"
    server.transport.write(b"answer")
    server.transport.close()
    await client.until("lost")
    assert bytes(client.data) == b"answer"


async def _both_close_at_once(client: Notes, server: Notes) -> None:
    client.transport.close()
    server.transport.close()
    assert client.transport.is_closing()
    assert not client.transport.is_reading()
    await client.until("lost")
    await server.until("lost")


async def _closed_with_unread_bytes(client: Notes, server: Notes) -> None:
    server.transport.pause_reading()
    client.transport.write(b"never read")
    await anyio.sleep(0.05)
    server.transport.close()
    await client.until("lost ConnectionResetError")


async def _writing_to_who_is_gone(client: Notes, server: Notes) -> None:
    client.keep_open = True
    server.transport.close()
    await client.until("end")
    client.transport.write(b"x")
    await anyio.sleep(0.05)
    client.transport.write(b"x")
    while not client.told[-1].startswith("lost "):  # noqa: ASYNC110 - likewise
        await anyio.sleep(0.01)


async def _a_protocol_hands_over(client: Notes, server: Notes) -> None:
    second = Notes()

    def hand_over(first: Notes) -> None:
        first.transport.set_protocol(second)
        second.connection_made(first.transport)

    server.reactions["data"] = hand_over
    client.transport.write(b"a")
    await server.until("data")
    client.transport.write(b"b")
    await second.until("data")
    client.transport.close()
    await second.until("lost")
    assert (bytes(server.data), bytes(second.data)) == (b"a", b"b")
    assert "lost" not in server.told


async def _aborted_in_the_middle_of_reading(client: Notes, server: Notes) -> None:
    server.reactions["data"] = lambda notes: notes.transport.abort()
    client.transport.write(b"a")
    await server.until("lost")
    await client.until("end")


PLAYS = [
    _close_sends_what_is_buffered,
    _abort_drops_the_buffer,
    _a_paused_reader_stops_the_writer,
    _one_side_ends,
    _both_close_at_once,
    _closed_with_unread_bytes,
    _writing_to_who_is_gone,
    _a_protocol_hands_over,
    _aborted_in_the_middle_of_reading,
]


@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.__name__.strip("_"))
def test_like_a_real_loopback(play) -> None:
    """Both protocols are told the same, in the same order, on this machine's sockets and in the simulator."""

    async def main(_network: object = None) -> list[list[str]]:
        client, server = await pair()
        await play(client, server)
        told = [[*notes.told] for notes in (client, server)]
        for notes in (client, server):
            if not notes.transport.is_closing():
                notes.transport.abort()
        await anyio.sleep(0.01)
        return told

    real = anyio.run(main, backend="asyncio")
    for seed in range(3):
        assert simulate(main, seed=seed, horizon_s=100).result == real


# Addresses


def test_addresses() -> None:
    """A port is one server's; a name must be known; nobody there is a refusal, and so is a door that closed."""

    async def main(network: Network) -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Notes, "door", 700)
        with pytest.raises(OSError, check=that(names=os.strerror(errno.EADDRINUSE))) as caught:
            await loop.create_server(Notes, "10.0.0.1", 700)
        assert caught.value.errno == errno.EADDRINUSE
        transport, _ = await loop.create_connection(Notes, "10.0.0.1", 700)
        assert transport.get_extra_info("peername") == ("10.0.0.1", 700)
        with pytest.raises(OSError):
            await loop.create_connection(Notes, "nowhere", 1)
        assert server.is_serving()
        server.close()
        await server.wait_closed()
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(Notes, "door", 700)
        assert network.dials == 2
        transport.close()
        anything = await loop.create_server(Notes, None, 0)
        port = anything.sockets[0].getsockname()[1]
        (await loop.create_connection(Notes, "127.0.0.1", port))[0].close()
        anything.close()

    simulate(main, names={"door": "10.0.0.1"})


def test_unanswered_dials() -> None:
    """A kernel tries for two minutes, then gives up; a dial that is cancelled leaves no connection."""

    async def main(network: Network) -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Notes, "127.0.0.1", 700)
        network.hanging = True
        began = loop.time()
        with pytest.raises(TimeoutError):
            await loop.create_connection(Notes, "127.0.0.1", 700)
        assert loop.time() - began == sum(SYN_RETRIES_S)
        network.hanging = False
        for tenths in range(40):
            with anyio.move_on_after(tenths / 1000):
                transport, _ = await loop.create_connection(Notes, "127.0.0.1", 700)
                transport.close()
        await anyio.sleep(1)
        assert network.open_connections() == []
        server.close()

    simulate(main, weather=CALM)


def test_slow_accepting() -> None:
    """The connection stands before the process takes it; a door that closes meanwhile resets it."""

    async def main(network: Network) -> tuple[float, float, list[str]]:
        loop = asyncio.get_running_loop()
        network.accept_delay_s = 3
        accepted: list[Notes] = []
        server = await loop.create_server(lambda: accepted.append(Notes()) or accepted[-1], "127.0.0.1", 700)
        transport, _ = await loop.create_connection(Notes, "127.0.0.1", 700)
        transport.write(b"early")
        connected = loop.time()
        while not accepted or not accepted[0].data:  # noqa: ASYNC110 - likewise
            await anyio.sleep(0.1)
        taken = loop.time()
        late, notes = await loop.create_connection(Notes, "127.0.0.1", 700)
        server.close()
        await notes.until("lost ConnectionResetError")
        transport.close()
        await accepted[0].until("lost")
        assert late.is_closing()
        return connected, taken, notes.told

    connected, taken, told = simulate(main, weather=CALM).result
    assert connected < 0.1 < 3 <= taken
    assert told == ["made", "lost ConnectionResetError"]


# Faults


def counting(size: int) -> bytes:
    """Bytes of which no piece can be taken for another."""
    return b"".join(number.to_bytes(4, "big") for number in range(size // 4))


@examples(20, FOUND_AND_SHRUNK)
@given(
    seeds,
    st.integers(0, 60),
    st.sampled_from([FaultKind.BREAK, FaultKind.HALF_OPEN_UP, FaultKind.VANISH, FaultKind.HALF_OPEN_DOWN]),
)
def test_a_stream_is_whole_or_a_prefix(seed, at_ms, kind) -> None:
    """Whatever happens to a connection, what arrived is a prefix of what was sent."""
    sent = counting(400_000)

    async def main(network: Network) -> tuple[bytes, list[str], list[str]]:
        client, server = await pair()
        client.transport.write(sent)
        server.transport.write(sent)
        network.schedule([Fault(kind, at_ms / 1000)])
        await anyio.sleep(2 * UNANSWERED_S)
        for notes in (client, server):
            assert sent.startswith(bytes(notes.data))
        if kind is FaultKind.BREAK:
            assert client.told[-1] == server.told[-1] == "lost ConnectionResetError"
        told = [client.told[-1], server.told[-1]]
        for notes in (client, server):
            notes.transport.abort()
        return bytes(server.data), *told

    weather = Weather(latency_s=(0.001, 0.01), bytes_per_s=2e7)
    got, client_end, server_end = simulate(main, seed=seed, weather=weather).result
    if kind is not FaultKind.BREAK and len(got) < len(sent):
        assert {"lost TimeoutError", "lost"} & {client_end, server_end}, "bytes without an answer end a connection"


@examples(20, FOUND_AND_SHRUNK)
@given(
    seeds, st.lists(st.tuples(st.sampled_from(["up", "down"]), st.integers(0, 3000), st.integers(1, 4000)), max_size=4)
)
def test_partitions_lose_nothing(seed, partitions) -> None:
    """What a partition holds comes when it is over, in order; one direction at a time, or both."""
    sent = counting(400_000)

    async def main(network: Network) -> None:
        client, server = await pair()
        for direction, at_ms, lasts_ms in partitions:
            network.loop.call_later(at_ms / 1000, network.partition, direction)
            network.loop.call_later((at_ms + lasts_ms) / 1000, network.heal, direction)
        for begin in range(0, len(sent), 20_000):
            client.transport.write(sent[begin : begin + 20_000])
            server.transport.write(sent[begin : begin + 20_000])
            await anyio.sleep(0.1)
        await anyio.sleep(60)
        assert bytes(client.data) == bytes(server.data) == sent
        client.transport.close()
        await server.until("lost")

    simulate(main, seed=seed)


def test_half_open_is_told_to_nobody_who_waits() -> None:
    """A reader of a half-open connection waits for good; a writer is told after 15 minutes, and one whose peer merely
    does not read never.
    """

    async def main(network: Network) -> None:
        client, server = await pair()
        reader, slow = await pair()
        slow.transport.pause_reading()
        reader.transport.write(bytes(1 << 20))
        await anyio.sleep(0.5)
        network.connections[0].down.die()
        server.transport.write(b"into the void")
        began = anyio.current_time()
        await server.until("lost TimeoutError")
        assert UNANSWERED_S <= anyio.current_time() - began < UNANSWERED_S + 2
        await anyio.sleep(86_400)
        assert client.told[-1] == "made"
        assert "lost" not in "".join(reader.told)
        slow.transport.resume_reading()
        await reader.until("resumed")
        for notes in (client, reader, slow):
            notes.transport.abort()

    simulate(main)


def test_bandwidth_and_windows() -> None:
    """A stream takes its size over the bandwidth; with a small window it takes a round trip for each window."""

    async def main(network: Network, window: int | None) -> float:
        if window:
            network.change_weather(window_bytes=window)
        client, server = await pair()
        began = anyio.current_time()
        client.transport.write(bytes(1_000_000))
        client.transport.close()
        await server.until("lost")
        return anyio.current_time() - began

    weather = Weather(latency_s=(0.01, 0.01), bytes_per_s=1e6, window_bytes=1 << 30, cuts=0)
    assert 1.0 < simulate(lambda network: main(network, None), weather=weather).result < 1.1
    narrow = Weather(latency_s=(0.01, 0.01), cuts=0)
    assert 19.9 < simulate(lambda network: main(network, 1000), weather=narrow).result < 20.2


@pytest.mark.parametrize("kind", FaultKind)
def test_every_fault_leaves_its_line(kind) -> None:
    """Each kind of fault strikes, lasts for as long as it was asked to, and is in the trace."""

    async def main(network: Network) -> tuple[bool, bool]:
        client, server = await pair()
        network.strike(Fault(kind, 0, duration_s=5))
        during = await reaches(network)
        await anyio.sleep(30)
        after = await reaches(network)
        client.transport.abort()
        server.transport.abort()
        return during, after

    async def reaches(network: Network) -> bool:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Notes, "127.0.0.1", 0)
        try:
            with anyio.fail_after(1):
                transport, _ = await loop.create_connection(Notes, *server.sockets[0].getsockname())
        except OSError:
            return False
        finally:
            server.close()
        transport.abort()
        return True

    run = simulate(main)
    lasting = {FaultKind.PARTITION_UP, FaultKind.PARTITION_DOWN, FaultKind.REFUSE, FaultKind.HANG}
    assert run.result == (kind not in lasting, True)
    assert any(line.endswith(f"fault {kind.value}") for line in run.lines)


def test_the_trace_is_the_runs() -> None:
    """Times do not go back, and the seed decides all: the same one gives the same trace, another one another."""

    async def main(_: Network) -> None:
        client, server = await pair()
        client.transport.write(bytes(1_000_000))
        client.transport.close()
        await server.until("lost")

    runs = [simulate(main, seed=seed) for seed in (1, 1, 2)]
    assert runs[0].fingerprint == runs[1].fingerprint != runs[2].fingerprint
    times = [int(line.split()[0]) for line in runs[0].lines]
    assert all(a <= b for a, b in itertools.pairwise(times))
