"""Channels: the four shapes, errors by name, deadlines, cancellation, retries."""

import asyncio
import os
import random
from collections.abc import AsyncIterator

import anyio
import pytest
from rpc_echo import EchoReply, EchoRequest
from rpc_world import ADMIN, CHAT, DOWNLOAD, UNARY, UPLOAD, WORKER, EchoService, authenticate

from iriscw._errors import InvalidArgument, JournalUnavailable, NoSuchActor
from iriscw.rpc.client import RpcChannel
from iriscw.rpc.errors import (
    ClientClosed,
    InsecureDoor,
    MessageTooLarge,
    NeedsAsyncio,
    PermissionDenied,
    RemoteFailure,
    RpcDeadline,
    RpcUnavailable,
    Unauthenticated,
    VersionMismatch,
)
from iriscw.rpc.limits import RpcLimits
from iriscw.rpc.server import RpcServer
from iriscw.rpc.tokens import Secret
from raised import Check, that
from waiting import until


async def ask(channel: RpcChannel, text: str = "hi", **more: object) -> EchoReply:
    """One unary call."""
    return await channel.unary(UNARY, EchoRequest(text=text, count=7), EchoReply, **more)


async def test_unary(channel: RpcChannel) -> None:
    """A unary call gives the service's answer."""
    assert (await ask(channel)).count == 7


async def test_context(channel: RpcChannel) -> None:
    """The service sees who calls, what, and under which key; the token is not among the metadata."""
    assert (await ask(channel, "who", idempotency_key="k1")).text == f"admin|{UNARY}|k1|False"


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("usage", InvalidArgument, that(names="negative")),
        ("absent", NoSuchActor, that(names="/fleet/h100")),
        ("busy", JournalUnavailable, that(names="disk")),
    ],
)
async def test_errors_keep_their_class(channel: RpcChannel, text: str, error: type[Exception], words: Check) -> None:
    """What the service raises arrives as the same class with the same text."""
    with pytest.raises(error, check=words) as caught:
        await ask(channel, text)
    assert type(caught.value) is error


async def test_bug_leaks_nothing(channel: RpcChannel, caplog: pytest.LogCaptureFixture) -> None:
    """An unknown exception leaves as its class name only; the server's log has the rest."""
    with pytest.raises(RemoteFailure, check=that(names="ZeroDivisionError")) as caught:
        await ask(channel, "bug")
    assert "secret" not in str(caught.value)
    assert "a secret in the text" in caplog.text


async def test_roles(server: RpcServer) -> None:
    """A method may require a role."""
    async with RpcChannel(server.address, WORKER) as channel:
        with pytest.raises(PermissionDenied, check=that(names=("admin", "worker"))):
            await ask(channel, "admins")


@pytest.mark.parametrize("token", [None, Secret("wrong")])
async def test_wrong_token(server: RpcServer, echo: EchoService, token: Secret | None) -> None:
    """Without a right token nothing reaches the service, from loopback too."""
    async with RpcChannel(server.address, token) as channel:
        with pytest.raises(Unauthenticated):
            await ask(channel)
    assert echo.calls == 0


async def test_no_such_method(channel: RpcChannel) -> None:
    """A method that the peer does not offer is a mismatch of versions."""
    with pytest.raises(VersionMismatch):
        await channel.unary("/iriscw.test.v1.EchoService/New", EchoRequest(), EchoReply)


async def test_protocol_version(channel: RpcChannel) -> None:
    """Another version of the protocol is refused by name."""
    with pytest.raises(VersionMismatch, check=that(names=("1", "2"))):
        await ask(channel, metadata={"iriscw-protocol": "2"})


async def test_deadline_then_task_group(channel: RpcChannel, echo: EchoService) -> None:
    """A deadline is one error, leaves no cancellation behind, and lets the method's clean-up finish."""
    for _ in range(3):
        with pytest.raises(RpcDeadline):
            await ask(channel, "wait", timeout_s=0.05)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    async with asyncio.TaskGroup() as tasks:  # on 3.13 this failed after an unguarded deadline
        tasks.create_task(asyncio.sleep(0))
        await asyncio.sleep(0)
    with anyio.fail_after(5):
        await echo.cleaned.wait()


async def test_default_deadline(server: RpcServer) -> None:
    """A call that names no deadline has one on both sides."""
    async with RpcChannel(server.address, ADMIN, limits=RpcLimits(unary_timeout_s=9.0)) as channel:
        assert 1000 < (await ask(channel, "deadline")).count <= 9000


async def test_cancel_is_clean(channel: RpcChannel, echo: EchoService) -> None:
    """A cancelled scope cancels the method once, and its shielded clean-up ends; the channel goes on."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, channel, "wait")
        await echo.started.wait()
        tasks.cancel_scope.cancel()
    with anyio.fail_after(5):
        await echo.cleaned.wait()
    assert (await ask(channel)).text == "hi"


async def test_native_cancellation_wins(channel: RpcChannel, echo: EchoService) -> None:
    """A task that is cancelled from outside ends as cancelled, never as an error of the call."""
    task = asyncio.create_task(ask(channel, "wait"))
    await echo.started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_retries_what_may_be_repeated(server: RpcServer, echo: EchoService) -> None:
    """A safe call is repeated until it succeeds, one with a key too."""
    echo.fail_first = 2
    async with RpcChannel(server.address, ADMIN, rng=random.Random(1)) as channel:
        assert (await ask(channel, "flaky", safe=True)).text == "flaky"
        assert channel.statistics().retries == 2
        echo.calls = 0
        assert (await ask(channel, "flaky", idempotency_key="k")).text == "flaky"


async def test_never_repeats_others(channel: RpcChannel, echo: EchoService) -> None:
    """A call that may have had its effect is not repeated, nor is one that can never succeed."""
    echo.fail_first = 1
    with pytest.raises(JournalUnavailable):
        await ask(channel, "flaky")
    with pytest.raises(InvalidArgument):
        await ask(channel, "usage", safe=True)
    assert echo.calls == 2


async def test_retries_end_at_the_deadline(channel: RpcChannel) -> None:
    """Repeating stops at the deadline with the last error."""
    with anyio.fail_after(30), pytest.raises(JournalUnavailable):
        await ask(channel, "busy", safe=True, timeout_s=2)


async def test_says_why_it_repeats(channel: RpcChannel, echo: EchoService) -> None:
    """Whoever wants to know is told each error that a repetition follows, and not the one that is raised."""
    echo.fail_first = 2
    told: list[str] = []
    await ask(channel, "flaky", safe=True, on_retry=lambda error: told.append(type(error).__name__))
    assert told == ["JournalUnavailable", "JournalUnavailable"]
    with pytest.raises(InvalidArgument):
        await ask(channel, "usage", safe=True, on_retry=lambda error: told.append(type(error).__name__))
    assert len(told) == 2


async def test_refused_connection(server: RpcServer) -> None:
    """Nobody listening is unavailable, and retryable."""
    await server.drain(0)
    async with RpcChannel(server.address, ADMIN) as channel:
        with pytest.raises(RpcUnavailable, check=that(comes_from="client_call.translated")) as caught:
            await ask(channel)
    assert caught.value.retryable


async def test_reconnects(server: RpcServer, channel: RpcChannel, echo: EchoService) -> None:
    """The first call after a lost connection makes a new one."""
    await ask(channel)
    address = server.address
    await server.drain(0)
    async with RpcServer([echo], authenticate=authenticate) as second:
        await second.listen_tcp(address.host, address.port)
        assert (await ask(channel, safe=True)).text == "hi"


async def test_server_stream(channel: RpcChannel) -> None:
    """Answers come in order, and then the iteration ends."""
    async with channel.server_stream(DOWNLOAD, EchoRequest(count=300), EchoReply) as replies:
        assert [reply.count async for reply in replies] == list(range(300))


async def test_server_stream_error(channel: RpcChannel) -> None:
    """An error in the middle is raised after the answers before it."""
    async with channel.server_stream(DOWNLOAD, EchoRequest(text="fail", count=9), EchoReply) as replies:
        assert [(await anext(replies)).count for _ in range(3)] == [0, 1, 2]
        with pytest.raises(InvalidArgument, check=that(names="three")):
            await anext(replies)


async def test_leaving_a_stream_early(channel: RpcChannel, echo: EchoService) -> None:
    """Leaving the block ends the call at once and cancels the method."""
    with anyio.fail_after(5):
        async with channel.server_stream(DOWNLOAD, EchoRequest(text="hold", count=9), EchoReply) as replies:
            async for _ in replies:
                break
        await echo.cancelled.wait()
    assert (await ask(channel)).text == "hi"


async def test_own_errors_pass(channel: RpcChannel) -> None:
    """An error of the caller's own code inside the block is not translated."""
    with pytest.raises(FileNotFoundError):
        async with channel.server_stream(DOWNLOAD, EchoRequest(count=9), EchoReply):
            raise FileNotFoundError("mine")


async def test_client_stream(channel: RpcChannel) -> None:
    """Many messages, one answer; plain and async iterables alike."""
    requests = [EchoRequest(count=n) for n in range(10)]

    async def later() -> AsyncIterator[EchoRequest]:
        for request in requests:
            yield request

    for source in (requests, later()):
        assert (await channel.client_stream(UPLOAD, source, EchoRequest, EchoReply)).count == 45


async def test_client_stream_early_answers(channel: RpcChannel) -> None:
    """The answer, or the refusal, ends the call even if the iterator never does."""

    async def endless(text: str) -> AsyncIterator[EchoRequest]:
        yield EchoRequest(text=text, count=3)
        await anyio.sleep_forever()

    with anyio.fail_after(5):
        assert (await channel.client_stream(UPLOAD, endless("enough"), EchoRequest, EchoReply)).count == 3
        with pytest.raises(InvalidArgument, check=that(names="more")):
            await channel.client_stream(UPLOAD, endless("refuse"), EchoRequest, EchoReply)


async def test_client_stream_source_fails(channel: RpcChannel) -> None:
    """An error of the iterator is the caller's, as it is, and the channel goes on."""

    async def broken() -> AsyncIterator[EchoRequest]:
        yield EchoRequest()
        raise KeyError("mine")

    with anyio.fail_after(5), pytest.raises(KeyError):
        await channel.client_stream(UPLOAD, broken(), EchoRequest, EchoReply)
    assert (await ask(channel)).text == "hi"


async def test_bidi(channel: RpcChannel, echo: EchoService) -> None:
    """Both directions at once; the end of one does not end the other."""
    async with channel.bidi(CHAT, EchoRequest, EchoReply) as call:
        for number in range(5):
            await call.send(EchoRequest(count=number))
            reply = await call.receive()
            assert reply is not None
            assert reply.count == number
        await call.end()
        assert await call.receive() is None
        with pytest.raises(InvalidArgument):
            await call.send(EchoRequest())
    assert echo.cleaned.is_set()


async def test_bidi_peer_ends(channel: RpcChannel) -> None:
    """The peer may end the call, well or with an error, while this side still sends."""
    async with channel.bidi(CHAT, EchoRequest, EchoReply) as call:
        await call.send(EchoRequest(text="bye"))
        assert [reply async for reply in call] == []
    async with channel.bidi(CHAT, EchoRequest, EchoReply) as call:
        await call.send(EchoRequest(text="refuse"))
        with pytest.raises(InvalidArgument, check=that(names="more")):
            await call.receive()
    assert (await ask(channel)).text == "hi"


async def test_bidi_cancelled_receive_loses_nothing(channel: RpcChannel) -> None:
    """A receive that was given up leaves the next message whole."""
    async with channel.bidi(CHAT, EchoRequest, EchoReply) as call:
        with anyio.move_on_after(0.05):
            await call.receive()
        for number in range(3):
            await call.send(EchoRequest(count=number, text="x" * 5))
        assert [(await call.receive()).count for _ in range(3)] == [0, 1, 2]  # type: ignore[union-attr]


async def test_bidi_many_senders(channel: RpcChannel) -> None:
    """Messages of concurrent senders never mix."""
    async with channel.bidi(CHAT, EchoRequest, EchoReply) as call, anyio.create_task_group() as tasks:

        async def send(number: int) -> None:
            await call.send(EchoRequest(text=str(number) * 40_000, count=number))

        for number in range(10):
            tasks.start_soon(send, number)
        for _ in range(10):
            reply = await call.receive()
            assert reply is not None
            assert reply.text == str(reply.count) * 40_000


async def test_messages_too_large(server: RpcServer) -> None:
    """Both limits, both ways: what is sent, and what is received, each by name."""
    small, large = RpcLimits(max_message_bytes=1000), RpcLimits(max_message_bytes=1 << 27)
    body = b"x" * (64 << 20)
    async with RpcChannel(server.address, ADMIN, limits=small) as channel:
        with pytest.raises(MessageTooLarge, check=that(comes_from="transport.BoundedCodec.encode")):
            await channel.unary(UNARY, EchoRequest(body=b"x" * 1001), EchoReply)
        with pytest.raises(MessageTooLarge, check=that(comes_from="transport.BoundedStream._check")):
            await channel.unary(UNARY, EchoRequest(text="big", count=1001), EchoReply)
    async with RpcChannel(server.address, ADMIN, limits=large) as channel:
        with pytest.raises(MessageTooLarge, check=that(names="67108869")):
            await channel.unary(UNARY, EchoRequest(body=body), EchoReply)
        with pytest.raises(MessageTooLarge, check=that(names="EchoReply")):
            await channel.unary(UNARY, EchoRequest(text="big", count=17 << 20), EchoReply)
        assert (await ask(channel)).text == "hi"


@pytest.mark.slow
async def test_thousand_calls(channel: RpcChannel, echo: EchoService, server: RpcServer) -> None:
    """A thousand calls run at once on one fresh connection."""
    async with anyio.create_task_group() as tasks:
        for _ in range(1000):
            tasks.start_soon(ask, channel, "wait")
        await until(lambda: server.statistics().calls_in_flight == 1000)
        assert server.statistics().connections == 1
        echo.release.set()


def test_token_stays_home() -> None:
    """A token is not sent off this machine in plain text unless someone says so."""
    with pytest.raises(InsecureDoor, check=that(comes_from="client.RpcChannel.__init__", names="controller:10000")):
        RpcChannel("controller:10000", ADMIN)


async def test_closed_for_good(server: RpcServer) -> None:
    """After its block a channel does not dial again: every call says so."""
    async with RpcChannel(server.address, ADMIN) as channel:
        assert (await ask(channel)).text == "hi"
    with pytest.raises(ClientClosed, check=that(comes_from="client.RpcChannel._call")):
        await ask(channel)
    with pytest.raises(ClientClosed):
        async with channel.server_stream(UNARY, EchoRequest(), EchoReply):
            pass
    assert channel.statistics().retries == 0


def test_other_loops_are_refused() -> None:
    """On trio a channel and a door say that they need asyncio."""

    async def channel() -> None:
        RpcChannel("127.0.0.1:1")

    async def server() -> None:
        async with RpcServer([], authenticate=lambda _: None):
            pass

    for use in (channel, server):
        with pytest.raises(NeedsAsyncio):
            anyio.run(use, backend="trio")


async def test_a_text_that_is_not_utf8(channel: RpcChannel) -> None:
    """It is the caller's mistake, by name; the channel goes on."""
    with pytest.raises(InvalidArgument, check=that(names=("EchoRequest", "UTF-8", "2"))):
        await channel.unary(UNARY, EchoRequest(text="a\udcff"), EchoReply)
    assert (await channel.unary(UNARY, EchoRequest(text="a"), EchoReply)).text == "a"


async def test_a_channel_in_a_forked_child(channel: RpcChannel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection is its parent's: using it from both would mix their calls."""
    await channel.unary(UNARY, EchoRequest(text="a"), EchoReply)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(ClientClosed, check=that(comes_from="client.RpcChannel._call")):
        await channel.unary(UNARY, EchoRequest(text="a"), EchoReply)
