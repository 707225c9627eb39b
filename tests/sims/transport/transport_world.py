"""A real door, real channels and a service that keeps count, on the simulated network; what must hold at the end."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio
from hypothesis import Phase, settings, strategies as st
from rpc_echo import EchoReply, EchoRequest, EchoServiceBase
from rpc_world import ADMIN, authenticate

from iriscw.rpc.address import Address
from iriscw.rpc.client import RpcChannel
from iriscw.rpc.limits import RpcLimits
from iriscw.rpc.server import DrainReport, RpcServer
from iriscw_sims.transport.network import Fault, FaultKind, Network
from iriscw_sims.transport.run import Simulated, simulate

LIMITS = RpcLimits()
NOTICE_S = LIMITS.keepalive_interval_s + LIMITS.keepalive_timeout_s
"""Within which a connection that carries nothing is noticed."""

SLACK_S = 0.001
"""Of virtual time, in which callbacks run after the moment that a bound names."""


class Ledger(EchoServiceBase):
    """Answers what it was sent, after ``count`` milliseconds; notes each time that a method ran, and how it ended."""

    def __init__(self) -> None:
        self.ran: Counter[str] = Counter()
        self.running = 0

    async def unary(self, message: EchoRequest) -> EchoReply:
        with self._running(message.text):
            await anyio.sleep(message.count / 1000)
            return EchoReply(text=message.text, body=message.body)

    async def download(self, message: EchoRequest) -> AsyncIterator[EchoReply]:
        with self._running(message.text):
            for number in range(message.count):
                yield EchoReply(count=number, body=message.body)

    async def upload(self, messages: AsyncIterator[EchoRequest]) -> EchoReply:
        total = 0
        with self._running("upload"):
            async for message in messages:
                total += len(message.body)
        return EchoReply(count=total)

    async def chat(self, messages: AsyncIterator[EchoRequest]) -> AsyncIterator[EchoReply]:
        with self._running("chat"):
            async for message in messages:
                yield EchoReply(text=message.text, count=message.count)

    def _running(self, text: str) -> "_Running":
        self.ran[text] += 1
        return _Running(self)


class _Running:
    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def __enter__(self) -> None:
        self.ledger.running += 1

    def __exit__(self, *_: object) -> None:
        self.ledger.running -= 1


class Stage:
    """What a test's play acts on."""

    def __init__(self, network: Network, server: RpcServer, ledger: Ledger, seed: int, limits: RpcLimits) -> None:
        self.network = network
        self.server = server
        self.ledger = ledger
        self.seed = seed
        self.limits = limits
        self.channels: list[RpcChannel] = []

    def channel(self, address: Address | None = None) -> RpcChannel:
        """Return a channel of its own; closed at the end."""
        rng = random.Random(f"{self.seed} {len(self.channels)}")
        address = address or self.server.address
        self.channels.append(RpcChannel(address, ADMIN, limits=self.limits, rng=rng, insecure_plaintext=True))
        return self.channels[-1]


Play = Callable[[Stage], Coroutine[Any, Any, Any]]


def perform(
    play: Play,
    *,
    seed: int = 0,
    faults: list[Fault] | tuple[Fault, ...] = (),
    limits: RpcLimits = LIMITS,
    settle_s: float = NOTICE_S,
    service: Ledger | None = None,
    **options: Any,
) -> Simulated[Any]:
    """Run a play, then close everything in order and check that nothing of it is left: no call, no task, no stream."""

    async def main(network: Network) -> Any:
        ledger = service or Ledger()
        async with RpcServer([ledger], authenticate=authenticate, limits=limits) as server:
            await server.listen_tcp("127.0.0.1", 0)
            stage = Stage(network, server, ledger, seed, limits)
            try:
                result = await play(stage)
                for channel in stage.channels:
                    assert open_streams(channel) == 0, "a call that ended keeps its stream"
                await anyio.sleep(settle_s)
                assert server.statistics().calls_in_flight == 0, "the server still serves callers that left"
                assert ledger.running == 0, "a method still runs whose caller left"
                assert server.statistics().unfinished.held == 0, "bytes count that nobody holds"
                check_connections(server)
            finally:
                for channel in stage.channels:
                    channel.close()
            report: DrainReport = await server.drain(1)
            assert report == DrainReport(0, 0)
        await anyio.sleep(2)  # the last bytes linger for one
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks are left: {left}"
        sides = [end for each in network.open_connections() for end in (each.client, each.server) if not end.gone]
        assert not sides, "a connection is left"
        return result

    return simulate(main, seed=seed, faults=faults, **options)


def check_connections(server: RpcServer) -> None:
    """Check that the server's connections hold no call, and that their callers have all of HTTP/2's window."""
    for protocol in server._http2:
        assert not protocol.processor.streams, "the server keeps a stream of a call that is over"
        window = protocol.connection._connection._inbound_flow_control_window_manager
        assert window.current_window_size + window._bytes_processed == window.max_window_size, "window was lost"


def open_streams(channel: RpcChannel) -> int:
    """Count the streams that a channel's connection holds, for itself and for HTTP/2."""
    protocol = channel._connector._protocol
    if protocol is None:
        return 0
    if protocol.connection.is_closing():
        return len(protocol.processor.streams)
    return max(len(protocol.processor.streams), protocol.connection._connection.open_outbound_streams)


@asynccontextmanager
async def elapsed(at_most_s: float) -> AsyncIterator[None]:
    """Check that the block takes no longer."""
    began = anyio.current_time()
    try:
        yield
    finally:
        took = anyio.current_time() - began
        assert took <= at_most_s + SLACK_S, f"took {took:.6f} s, at most {at_most_s:g} s were allowed"


moments = st.integers(0, 15_000).map(lambda number: number / 1000)
faults_of_any_kind = st.lists(
    st.builds(Fault, st.sampled_from(FaultKind), moments, st.integers(1, 60_000).map(lambda number: number / 1000)),
    max_size=4,
)
seeds = st.integers(0, 1 << 16)


FOUND_AND_SHRUNK = settings(phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink))
"""To explain takes as long again."""
