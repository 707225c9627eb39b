"""What every call keeps to, whatever the network does: its deadline, its one error, its number of attempts."""

import contextlib
from collections import Counter

import anyio
from hypothesis import given, strategies as st
from rpc_echo import EchoReply, EchoRequest
from rpc_world import CHAT, DOWNLOAD, UNARY, UPLOAD
from transport_world import FOUND_AND_SHRUNK, LIMITS, NOTICE_S, Stage, elapsed, faults_of_any_kind, perform, seeds

from iriscw._errors import IriscwError, OperationError
from iriscw.rpc.client import RpcChannel
from iriscw.rpc.errors import RpcCancelled, RpcDeadline, RpcUnavailable
from profiles import examples

NET_ERRORS = (RpcDeadline, RpcUnavailable, RpcCancelled)
"""What a network can make of a call that the service answers."""

calls = st.lists(
    st.tuples(
        st.integers(0, 10_000),  # begins, ms
        st.sampled_from(["plain", "safe", "keyed", "upload", "download", "chat"]),
        st.sampled_from([1, 40, 300, 5_000, 60_000, 200_000]),  # deadline, ms
        st.sampled_from([0, 0, 20, 3_000, 90_000]),  # the service takes, ms
        st.sampled_from([0, 10, 20_000, 700_000]),  # bytes
        st.one_of(st.none(), st.integers(0, 90_000)),  # cancelled after, ms
    ),
    min_size=1,
    max_size=5,
)


class Caller:
    """Makes calls of all shapes, and notes how each of them ended."""

    def __init__(self, channel: RpcChannel) -> None:
        self.channel = channel
        self.ended: Counter[str] = Counter()
        self.repeated: Counter[str] = Counter()

    async def call(self, name: str, kind: str, timeout_s: float, takes_ms: int, size: int) -> None:
        """Make one call; it ends by its deadline, with its answer or with an error of ours."""
        async with elapsed(timeout_s):
            try:
                await getattr(self, f"_{'unary' if kind in ('plain', 'safe', 'keyed') else kind}")(
                    name, kind, timeout_s, takes_ms, bytes(size)
                )
            except NET_ERRORS as error:
                self.ended[type(error).__name__] += 1
            else:
                self.ended["answered"] += 1

    async def _unary(self, name: str, kind: str, timeout_s: float, takes_ms: int, body: bytes) -> None:
        reply = await self.channel.unary(
            UNARY,
            EchoRequest(text=name, count=takes_ms, body=body),
            EchoReply,
            timeout_s=timeout_s,
            safe=kind == "safe",
            idempotency_key=name if kind == "keyed" else "",
            on_retry=lambda _: self.repeated.update([name]),
        )
        assert (reply.text, len(reply.body)) == (name, len(body))

    async def _upload(self, _name: str, _kind: str, timeout_s: float, _takes_ms: int, body: bytes) -> None:
        pieces = [EchoRequest(body=body)] * 3
        reply = await self.channel.client_stream(UPLOAD, pieces, EchoRequest, EchoReply, timeout_s=timeout_s)
        assert reply.count == 3 * len(body)

    async def _download(self, name: str, _kind: str, timeout_s: float, _takes_ms: int, body: bytes) -> None:
        request = EchoRequest(text=name, count=4, body=body)
        async with self.channel.server_stream(DOWNLOAD, request, EchoReply, timeout_s=timeout_s) as replies:
            got = [(reply.count, len(reply.body)) async for reply in replies]
        assert got == [(number, len(body)) for number in range(4)]

    async def _chat(self, _name: str, _kind: str, timeout_s: float, _takes_ms: int, body: bytes) -> None:
        text = "x" * len(body)
        async with self.channel.bidi(CHAT, EchoRequest, EchoReply, timeout_s=timeout_s) as call:
            for number in range(3):
                await call.send(EchoRequest(text=text, count=number))
                reply = await call.receive()
                assert reply is not None
                assert (reply.count, reply.text) == (number, text)
            await call.end()
            assert await call.receive() is None


@examples(25, FOUND_AND_SHRUNK)
@given(seeds, faults_of_any_kind, calls)
def test_every_call_keeps_its_word(seed, faults, plan) -> None:
    """Under any faults a call ends by its deadline, with its answer or one named error of the net; what may not be
    repeated reaches the service once at most; and afterwards nothing of any call is left.
    """

    async def play(stage: Stage) -> None:
        caller = Caller(stage.channel())

        async def one(number, begins, kind, deadline, takes, size, cancelled) -> None:
            await anyio.sleep(begins / 1000)
            with anyio.move_on_after(float("inf") if cancelled is None else cancelled / 1000):
                await caller.call(f"{kind} {number}", kind, deadline / 1000, takes, size)

        async with anyio.create_task_group() as tasks:
            for number, each in enumerate(plan):
                tasks.start_soon(one, number, *each)
        for name, runs in stage.ledger.ran.items():
            if name.startswith("plain"):
                assert runs == 1, f"{name} was sent {runs} times"
                assert not caller.repeated[name]
        at_most = sum(caller.repeated.values()) + len(plan)
        assert caller.channel.statistics().calls_started <= at_most

    perform(play, seed=seed, faults=faults, settle_s=max(200.0, NOTICE_S))


@examples(25, FOUND_AND_SHRUNK)
@given(seeds, faults_of_any_kind)
def test_the_net_heals(seed, faults) -> None:
    """When all faults are over, one call that may be repeated gets its answer: no state of a channel is a dead end."""

    async def play(stage: Stage) -> None:
        channel = stage.channel()
        for _ in range(8):
            with contextlib.suppress(*NET_ERRORS):
                await channel.unary(UNARY, EchoRequest(text="a"), EchoReply, timeout_s=25, safe=True)
            await anyio.sleep(10)
        await anyio.sleep(150)
        reply = await channel.unary(UNARY, EchoRequest(text="b"), EchoReply, safe=True, timeout_s=60)
        assert reply.text == "b"

    perform(play, seed=seed, faults=faults)


@examples(25, FOUND_AND_SHRUNK)
@given(seeds, st.integers(0, 30), st.sampled_from(["unary", "upload", "download", "chat"]))
def test_a_cancelled_call_leaves_nothing(seed, tenths_ms, kind) -> None:
    """Wherever the cancellation falls, in the connect too, the call's stream ends on both sides and its method stops;
    the connection serves the next call.
    """

    async def play(stage: Stage) -> None:
        caller = Caller(stage.channel())
        with anyio.move_on_after(tenths_ms / 10_000):
            await caller.call("x", "plain" if kind == "unary" else kind, 60, 100_000, 300_000)
        await anyio.sleep(0.1)
        assert stage.server.statistics().calls_in_flight == 0
        assert stage.ledger.running == 0
        await caller.call("y", "plain", 60, 0, 10)
        assert caller.ended["answered"] >= 1
        assert stage.network.dials <= 2

    perform(play, seed=seed, settle_s=0)


def test_errors_of_the_service_are_not_the_nets() -> None:
    """What the service says arrives as such: a check of the property's own alphabet."""
    assert all(issubclass(error, OperationError) and error.retryable for error in NET_ERRORS)
    assert all(issubclass(error, IriscwError) for error in NET_ERRORS)
    assert LIMITS.connect_timeout_s < NOTICE_S
