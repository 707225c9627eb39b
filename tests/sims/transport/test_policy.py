"""The policy of sessions: how breaks are noticed, calls repeated, doors closed, and peers kept within bounds."""

import asyncio
import contextlib
import errno
import itertools
import logging
import os
from contextlib import AsyncExitStack

import anyio
import pytest
from grpclib.const import Cardinality
from hypothesis import given, strategies as st
from rpc_echo import EchoReply, EchoRequest
from rpc_world import ADMIN, CHAT, DOWNLOAD, UNARY, UPLOAD
from transport_world import FOUND_AND_SHRUNK, LIMITS, NOTICE_S, SLACK_S, Stage, elapsed, perform, seeds

from iriscw._errors import OperationError
from iriscw.rpc.client import BACKOFF_FIRST_S, BACKOFF_LONGEST_S, RpcChannel
from iriscw.rpc.client_call import translated
from iriscw.rpc.errors import MessageTooLarge, RpcDeadline, RpcUnavailable
from iriscw.rpc.limits import RpcLimits
from iriscw.rpc.server import ASKED_PER_TURN, DrainReport
from iriscw_sims.transport.network import Fault, FaultKind
from iriscw_sims.transport.wire import Weather
from profiles import examples
from raised import that


async def ask(channel: RpcChannel, text: str = "a", takes_ms: int = 0, **options: object) -> EchoReply:
    """One unary call."""
    return await channel.unary(UNARY, EchoRequest(text=text, count=takes_ms), EchoReply, **options)  # type: ignore[arg-type]


# Noticing


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", [FaultKind.HALF_OPEN_UP, FaultKind.HALF_OPEN_DOWN, FaultKind.VANISH])
@examples(15, FOUND_AND_SHRUNK)
@given(seeds, st.integers(0, 45_000))
def test_half_open_connections_are_noticed(kind, seed, at_ms) -> None:
    """A caller that waits on a half-open connection is told within keepalive's bound, by name, and the server lets go
    of it as well; the next call connects anew.
    """

    async def play(stage: Stage) -> None:
        channel = stage.channel()
        await ask(channel)
        stage.network.loop.call_later(at_ms / 1000, stage.network.strike, Fault(kind, 0))
        with pytest.raises(RpcUnavailable, check=that(comes_from="client_call.translated")):
            # What was on its way is heard after the fault.
            async with elapsed(at_ms / 1000 + 0.1 + NOTICE_S), channel.bidi(CHAT, EchoRequest, EchoReply) as call:
                await call.receive()
        await anyio.sleep(NOTICE_S)
        assert stage.server.statistics().connections == 0
        assert (await ask(channel, timeout_s=5)).text == "a"

    perform(play, seed=seed)


@examples(10, FOUND_AND_SHRUNK)
@given(seeds, st.integers(0, 3_000), st.sampled_from(["unary", "stream", "send"]))
def test_breaks_are_told_at_once(seed, at_ms, waits_in) -> None:
    """A caller that waits when its connection breaks is told by name within a few latencies, whatever it waits for."""

    async def play(stage: Stage) -> None:
        channel = stage.channel()
        await ask(channel)
        stage.network.schedule([Fault(FaultKind.BREAK, at_ms / 1000)])
        async with elapsed(at_ms / 1000 + 0.1):
            with pytest.raises(RpcUnavailable):
                await wait_in(channel, waits_in)

    perform(play, seed=seed)


async def wait_in(channel: RpcChannel, where: str) -> None:
    """Wait for an answer, for a message, or for room to send."""
    if where == "unary":
        await ask(channel, takes_ms=100_000, timeout_s=1000)
    async with channel.bidi(CHAT, EchoRequest, EchoReply, timeout_s=1000) as call:
        while where == "send":
            await call.send(EchoRequest(text="x" * 300_000))
        await call.receive()


def test_a_quiet_connection_stays() -> None:
    """Keepalive ends no connection that merely carries nothing for an hour, or is read slowly."""

    async def play(stage: Stage) -> None:
        channel = stage.channel()
        async with channel.bidi(CHAT, EchoRequest, EchoReply, timeout_s=10_000) as call:
            await anyio.sleep(3600)
            await call.send(EchoRequest(text="still here"))
            reply = await call.receive()
        assert reply is not None
        assert stage.network.dials == 1

    perform(play)


def test_who_speaks_is_not_asked_whether_it_lives() -> None:
    """A connection carries no pings while both sides speak more often than keepalive would ask; then it does."""

    async def play(stage: Stage) -> None:
        channel = stage.channel()
        async with channel.bidi(CHAT, EchoRequest, EchoReply, timeout_s=10_000) as call:
            for _ in range(60):
                await call.send(EchoRequest(text="a"))
                await call.receive()
                await anyio.sleep(LIMITS.keepalive_interval_s - 1)
            [server], client = stage.server._http2, channel._connector._protocol
            assert client is not None
            assert server.connection.last_ping_sent is client.connection.last_ping_sent is None
            await anyio.sleep(60)
            assert (server.connection.last_ping_sent, client.connection.last_ping_sent) != (None, None)
            assert stage.network.dials == 1

    perform(play)


def test_who_is_due_at_once_is_asked_in_turns() -> None:
    """After a loop stood still all timers are due; a few peers are asked in each turn, and none is left out."""
    peers = 2 * ASKED_PER_TURN + 1

    async def play(stage: Stage) -> None:
        async with AsyncExitStack() as stack:
            for _ in range(peers):
                call = await stack.enter_async_context(stage.channel().bidi(CHAT, EchoRequest, EchoReply))
                await call.send(EchoRequest(text="a"))
                await call.receive()
            connections = [protocol.connection for protocol in stage.server._http2]
            gone, stays = connections[-1], connections[:-1]
            for connection in connections:
                connection.heard_at = -LIMITS.keepalive_interval_s
                connection._ping()
            gone.close()
            asked = []
            while stage.server._asking.statistics().waiting:
                asked.append(sum(connection.last_ping_sent is not None for connection in stays))
                await asyncio.sleep(0)
            assert asked[0] == ASKED_PER_TURN
            assert sum(connection.last_ping_sent is not None for connection in stays) == 2 * ASKED_PER_TURN
            assert gone.last_ping_sent is None, "it was closed while it waited"
        assert stage.server.statistics().most_asked_in_turn == ASKED_PER_TURN

    perform(play)


# Repeating


def pauses_of(seed: int, timeout_s: float, begins: list[float], *, fault: FaultKind = FaultKind.REFUSE) -> None:
    """Note when a call that may be repeated dials while nobody answers."""

    async def play(stage: Stage) -> None:
        stage.network.strike(Fault(fault, 0, duration_s=1000))
        began = anyio.current_time()
        with pytest.raises(RpcUnavailable, check=that(names=os.strerror(errno.ECONNREFUSED))):
            async with elapsed(timeout_s):
                await ask(
                    stage.channel(),
                    safe=True,
                    timeout_s=timeout_s,
                    on_retry=lambda _: begins.append(anyio.current_time() - began),
                )
        begins.append(anyio.current_time() - began)

    perform(play, seed=seed, weather=Weather(latency_s=(0, 0)))


@examples(15, FOUND_AND_SHRUNK)
@given(seeds, st.integers(1, 120))
def test_repetitions_back_off(seed, timeout_s) -> None:
    """Pauses are at most 0.1 s, doubling to 5 s; they stop at the deadline, and there are neither many nor few."""
    at: list[float] = []
    pauses_of(seed, timeout_s, at)
    bounds = [min(BACKOFF_FIRST_S * 2**number, BACKOFF_LONGEST_S) for number in range(len(at))]
    pauses = [after - before for before, after in itertools.pairwise(at)]
    for pause, bound in zip(pauses, bounds, strict=False):
        assert 0 <= pause <= bound + SLACK_S
    assert at[-1] <= timeout_s
    assert len(at) < 10 + timeout_s
    if timeout_s >= 60:
        assert len(at) > 12
        assert sum(pauses) > sum(bounds) / 4


def test_repetitions_are_spread() -> None:
    """Callers that were cut off together do not come back together."""
    second: list[float] = []
    for seed in range(30):
        at: list[float] = []
        pauses_of(seed, 2, at)
        second.append(at[1])
    assert len({round(each, 4) for each in second}) > 25
    assert max(second) - min(second) > BACKOFF_FIRST_S / 2


def test_a_caller_that_wakes_late_is_told_what_its_last_attempt_met(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if its process was too busy to make another one within the deadline."""
    on_time = anyio.sleep

    async def late(seconds: float) -> None:
        await on_time(seconds + 0.5 if 0 < seconds < 5 else seconds)

    async def play(stage: Stage) -> None:
        stage.network.strike(Fault(FaultKind.REFUSE, 0, duration_s=1000))
        monkeypatch.setattr("iriscw.rpc.client.anyio.sleep", late)
        with pytest.raises(RpcUnavailable, check=that(names=os.strerror(errno.ECONNREFUSED))):
            await ask(stage.channel(), safe=True, timeout_s=1.2)
        monkeypatch.undo()

    for seed in range(5):
        perform(play, seed=seed)


# Ending


@examples(20, FOUND_AND_SHRUNK)
@given(seeds, st.lists(st.integers(0, 8_000), min_size=1, max_size=6), st.sampled_from([0, 1, 3]))
def test_a_drain_keeps_its_budget(seed, takes, grace_s) -> None:
    """A door that stops lets calls end that end within its grace, tells the others, and has closed everything in time;
    callers that come meanwhile are told at once.
    """

    async def play(stage: Stage) -> None:
        ended: dict[int, str] = {}
        channel = stage.channel()
        await ask(channel)

        async def one(number: int, takes_ms: int) -> None:
            try:
                await ask(channel, f"call {number}", takes_ms)
                ended[number] = "answered"
            except RpcUnavailable as error:
                ended[number] = "told" if "the server is stopping" in str(error) else str(error)

        async with anyio.create_task_group() as tasks:
            for number, takes_ms in enumerate(takes):
                tasks.start_soon(one, number, takes_ms)
            await anyio.sleep(0.5)
            async with elapsed(grace_s + 9):
                tasks.start_soon(_told_at_once, channel, ended)
                report = await stage.server.drain(grace_s)
            assert stage.server.statistics().connections == 0
        for number, takes_ms in enumerate(takes):
            if takes_ms < 1000 * (grace_s + 0.4):
                assert ended[number] == "answered"
            elif takes_ms > 1000 * (grace_s + 0.6):
                assert ended[number] == "told"
        assert report.calls_cut == sum(1 for number in range(len(takes)) if ended[number] == "told")
        assert report.methods_left == 0

    perform(play, seed=seed)


async def _told_at_once(channel: RpcChannel, ended: dict[int, str]) -> None:
    with pytest.raises(RpcUnavailable):
        async with elapsed(0.5):
            await ask(channel, "late", 60_000)
    ended[-1] = "told"


def test_a_drain_waits_for_nobody_who_vanished() -> None:
    """Peers that are gone without a word, or do not read, do not make a drain longer."""

    async def play(stage: Stage) -> None:

        async def never_reads(channel: RpcChannel) -> None:
            request = EchoRequest(count=9, body=bytes(1 << 20))
            async with channel.server_stream(DOWNLOAD, request, EchoReply):
                await anyio.sleep_forever()

        with contextlib.suppress(RpcUnavailable):
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(never_reads, stage.channel())
                while stage.ledger.running < 3:  # noqa: ASYNC110 - what is waited for has no event
                    await anyio.sleep(0.001)
                await anyio.sleep(0.01)
                assert all(each.server.get_write_buffer_size() for each in stage.network.open_connections())
                stage.network.strike(Fault(FaultKind.VANISH, 0))
                async with elapsed(1 + 9):
                    assert await stage.server.drain(1) == DrainReport(3, 0)
                tasks.cancel_scope.cancel()

    perform(play, weather=Weather(bytes_per_s=1e7))


def test_goodbye_is_a_named_end(caplog: pytest.LogCaptureFixture) -> None:
    """A peer that says GOAWAY ends the calls on it by name, in one latency; the next call connects anew."""
    caplog.set_level(logging.INFO, "iriscw")

    async def play(stage: Stage) -> None:
        channel = stage.channel()
        async with channel.bidi(CHAT, EchoRequest, EchoReply) as call:
            await call.send(EchoRequest(text="a"))
            await call.receive()
            (protocol,) = stage.server._http2
            protocol.connection.goodbye("maintenance")
            with pytest.raises(RpcUnavailable, check=that(names="GOAWAY")):
                async with elapsed(0.1):
                    await call.receive()
        await ask(channel)
        assert stage.network.dials == 2

    perform(play)


@pytest.mark.parametrize("end", ["goodbye", "break"])
def test_what_was_answered_is_answered(end) -> None:
    """An answer that is here is given, also if the end of the connection came in the same read: a caller who may not
    repeat his call would never learn of it.
    """

    async def play(stage: Stage) -> None:
        channel = stage.channel()
        answers: list[object] = []

        async def unary() -> None:
            answers.append((await ask(channel)).text)

        async def stream() -> None:
            request = EchoRequest(text="s", count=3, body=bytes(1000))
            async with channel.server_stream(DOWNLOAD, request, EchoReply) as replies:
                answers.append([reply.count async for reply in replies])

        await ask(channel)
        async with anyio.create_task_group() as tasks:
            stage.network.partition("down")
            tasks.start_soon(unary)
            tasks.start_soon(stream)
            await anyio.sleep(1)
            (protocol,) = stage.server._http2
            if end == "goodbye":
                protocol.connection.goodbye("maintenance")
            else:
                protocol.connection.abort()
            stage.network.heal("down")
        assert answers == ["a", [0, 1, 2]]

    perform(play)


def test_a_farewell_that_had_to_wait_leaves_no_error() -> None:
    """A connection whose last bytes leave within its second of linger is not cut afterwards: asyncio's transport has no
    loop then, and fails.
    """

    async def play(stage: Stage) -> None:
        channel = stage.channel()
        with anyio.move_on_after(0.05):
            async with channel.server_stream(DOWNLOAD, EchoRequest(count=9, body=bytes(900_000)), EchoReply) as replies:
                async for _ in replies:
                    await anyio.sleep(1)
        (connection,) = stage.network.open_connections()
        connection.client.pause_reading()
        with contextlib.suppress(RpcUnavailable):
            with anyio.move_on_after(1):
                await channel.unary(UNARY, EchoRequest(body=bytes(3 << 20)), EchoReply)
        (protocol,) = stage.server._http2
        assert connection.server.get_write_buffer_size() > 0
        protocol.connection.goodbye("enough")
        connection.client.resume_reading()
        await anyio.sleep(3)

    perform(play)


# Bounds


@examples(4, FOUND_AND_SHRUNK)
@given(seeds, st.integers(1, 12))
def test_a_slow_reader_is_bounded(seed, mebibytes) -> None:
    """A caller that does not read what it asked for costs its server one window and one buffer, whatever it asked for;
    others on the same connection are served meanwhile.
    """

    async def play(stage: Stage) -> None:
        channel = stage.channel()
        request = EchoRequest(count=mebibytes, body=bytes(1 << 20))
        async with channel.server_stream(DOWNLOAD, request, EchoReply) as replies:
            await anext(replies)
            await anyio.sleep(100)
            (connection,) = stage.network.open_connections()
            assert connection.server.get_write_buffer_size() <= 128 << 10
            stream = next(iter(channel._connector._protocol.processor.streams.values()))
            assert stream.buffer.held + stream.buffer.unread <= 5 << 20
            got = 1
            async for _ in replies:
                got += 1
            assert got == mebibytes

    perform(play, seed=seed)


@examples(4, FOUND_AND_SHRUNK)
@given(seeds, st.integers(1, 15))
def test_flow_control_that_is_used_up(seed, calls) -> None:
    """Uploads whose reader does not read use the window up: senders wait, within their deadline; the window comes back
    when they are gone.
    """

    async def play(stage: Stage) -> None:
        gate = anyio.Event()
        upload = stage.ledger.upload

        async def late(messages) -> EchoReply:
            await gate.wait()
            return await upload(messages)

        stage.ledger.upload = late  # type: ignore[method-assign]
        channel = stage.channel()
        ended: list[str] = []

        async def one() -> None:
            pieces = [EchoRequest(body=bytes(700_000))] * 4
            try:
                async with elapsed(20):
                    await channel.client_stream(UPLOAD, pieces, EchoRequest, EchoReply, timeout_s=20)
                ended.append("answered")
            except RpcDeadline:
                ended.append("late")

        async with anyio.create_task_group() as tasks:
            for _ in range(calls):
                tasks.start_soon(one)
        assert ended == ["late"] * calls
        await anyio.sleep(1)
        gate.set()
        ended.clear()
        await one()
        assert ended == ["answered"]

    perform(play, seed=seed)


@examples(5, FOUND_AND_SHRUNK)
@given(seeds, st.integers(1, 200_000))
def test_calls_that_are_given_up_at_once(seed, size) -> None:
    """A call whose beginning and end arrive in one read, as when it is cancelled at once, costs its server nothing that
    lasts: else the connection's window would be used up by and by, and uploads would stand still for good.
    """

    async def play(stage: Stage) -> None:
        channel = stage.channel()
        await ask(channel)
        for _ in range(10):
            stage.network.partition("up")
            async with channel.bidi(CHAT, EchoRequest, EchoReply) as call:
                await call.send(EchoRequest(text="x" * size))
            stage.network.heal("up")
            await anyio.sleep(1)
        reply = await channel.unary(UNARY, EchoRequest(body=bytes(5 << 20)), EchoReply, timeout_s=5)
        assert len(reply.body) == 5 << 20

    perform(play, seed=seed)


HOLDERS = 12
NARROW = RpcLimits(max_message_bytes=1 << 20, max_unfinished_bytes=2 << 20, assured_unfinished_bytes=1000)


async def hold_unfinished(stage: Stage) -> list[str]:
    """Begin messages of nearly 1 MiB and send all of them but the last byte; say how the calls ended, if they did."""
    channel = stage.channel()
    ended: list[str] = []

    async def one() -> None:
        call = channel._connector.open(
            UPLOAD, Cardinality.STREAM_UNARY, EchoRequest, EchoReply, timeout_s=1e6, metadata=bearer
        )
        try:
            async with call:
                await call.send_request()
                message = bytes(EchoRequest(body=bytes(900_000)))
                with translated(call), call._wrapper:
                    await call._stream.send_data(b"\0" + len(message).to_bytes(4, "big") + message[:-1])
                await call.only_reply()
        except OperationError as error:
            ended.append(type(error).__name__)

    bearer = {"authorization": f"Bearer {ADMIN.reveal()}"}
    async with anyio.create_task_group() as tasks:
        for _ in range(HOLDERS):
            tasks.start_soon(one)
        await anyio.sleep(5)
        assert stage.server.statistics().unfinished.most_held <= (2 << 20) + (16 << 10)
        tasks.cancel_scope.cancel()
    return ended


def test_unfinished_messages_are_bounded() -> None:
    """Whatever a caller begins and does not end, its connection holds a bounded number of bytes; what is beyond is
    refused by name, as an error that may be repeated, and others on the same connection are served.
    """

    async def play(stage: Stage) -> None:
        ended = await hold_unfinished(stage)
        assert ended == ["TooManyUnfinishedBytes"] * len(ended)
        assert 0 < len(ended) < HOLDERS
        await ask(stage.channels[0])

    perform(play, limits=NARROW)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", [FaultKind.BREAK, FaultKind.VANISH, FaultKind.HALF_OPEN_UP, FaultKind.PARTITION_UP])
@pytest.mark.parametrize("at_ms", [2, 10, 20, 40])
def test_unfinished_messages_are_given_back_after(kind, at_ms) -> None:
    """However a connection ends, what its unfinished messages held is given back, to the byte."""

    async def play(stage: Stage) -> None:
        stage.network.schedule([Fault(kind, at_ms / 1000)])
        with contextlib.suppress(OperationError):
            await hold_unfinished(stage)

    perform(play, limits=NARROW, weather=Weather(bytes_per_s=1e8))


def test_unfinished_messages_are_given_back() -> None:
    """By calls that are cancelled too."""

    async def play(stage: Stage) -> None:
        await hold_unfinished(stage)

    perform(play, limits=NARROW)


def test_a_reset_that_had_to_wait_for_room_is_sent() -> None:
    """A call that is given up while its connection takes no bytes ends at its server as soon as it takes them again,
    not with the next call or ping.
    """

    async def play(stage: Stage) -> None:
        channel = stage.channel()
        await ask(channel)
        stage.network.change_weather(window_bytes=1024)
        with anyio.move_on_after(0.1):
            await channel.client_stream(UPLOAD, [EchoRequest(body=bytes(300_000))], EchoRequest, EchoReply)
        stage.network.change_weather()
        await anyio.sleep(1)
        assert stage.server.statistics().calls_in_flight == 0

    perform(play)


def test_tasks_end_with_their_connection(caplog: pytest.LogCaptureFixture) -> None:
    """A call that was reset while its answer found no room, and whose connection then ended, leaves no task behind."""
    end_a_connection_with_answers_that_wait()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def end_a_connection_with_answers_that_wait() -> None:
    """What the test above does."""

    async def play(stage: Stage) -> None:
        channel = stage.channel()
        await ask(channel)
        (connection,) = stage.network.open_connections()
        connection.client.pause_reading()
        async with channel.server_stream(DOWNLOAD, EchoRequest(count=9, body=bytes(1 << 20)), EchoReply):
            with anyio.move_on_after(0.3):
                await ask(channel, takes_ms=900)
            assert connection.server.get_write_buffer_size() > 64 << 10
        await anyio.sleep(0.1)  # the resets arrive
        stage.network.strike(Fault(FaultKind.VANISH, 0))

    perform(play)


def test_messages_that_are_too_large() -> None:
    """Either side refuses them by name, before they were sent or read, and the connection serves on."""

    async def play(stage: Stage) -> None:
        generous = RpcLimits(max_message_bytes=16 << 20)
        async with RpcChannel(stage.server.address, ADMIN, limits=generous) as channel:
            with pytest.raises(MessageTooLarge, check=that(names="1048576")):
                await channel.unary(UNARY, EchoRequest(body=bytes(8 << 20)), EchoReply)
            assert (await ask(channel)).text == "a"
        own = stage.channel()
        with pytest.raises(MessageTooLarge, check=that(comes_from="transport.BoundedCodec.encode")):
            await own.unary(UNARY, EchoRequest(body=bytes(8 << 20)), EchoReply)
        await ask(own)
        assert stage.network.dials == 2

    perform(play, limits=RpcLimits(max_message_bytes=1 << 20))


def test_more_calls_than_streams() -> None:
    """Callers beyond the number of streams wait within their deadline, and are served as others end."""
    limits = RpcLimits(max_streams=3)

    async def play(stage: Stage) -> None:
        channel = stage.channel()
        await ask(channel)
        done: list[float] = []

        async def one() -> None:
            await ask(channel, takes_ms=1000)
            done.append(anyio.current_time())

        async with anyio.create_task_group() as tasks:
            for _ in range(9):
                tasks.start_soon(one)
        assert done[-1] - done[0] > 1.9
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(ask, channel, "long", 30_000)
            await anyio.sleep(0.1)
            with pytest.raises(RpcDeadline):
                async with elapsed(2):
                    await ask(channel, timeout_s=2)

    perform(play, limits=limits)


def test_the_bounds_are_those_of_the_limits() -> None:
    """What these tests allow is what the product promises."""
    assert NOTICE_S == LIMITS.keepalive_interval_s + LIMITS.keepalive_timeout_s == 40
    assert asyncio.iscoroutinefunction(ask)
