"""Served calls: admission, and methods that misbehave."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import anyio
import anyio.lowlevel
import pytest
from rpc_echo import EchoReply, EchoRequest, EchoServiceBase
from rpc_world import ADMIN, CHAT, PREFIX, UNARY, EchoService, authenticate

from iriscw._errors import StrayExit
from iriscw.rpc import server as server_module
from iriscw.rpc.client import RpcChannel
from iriscw.rpc.context import call_context
from iriscw.rpc.errors import InvalidAddress, NotInsideCall, RemoteFailure, RpcDeadline, RpcUnavailable
from iriscw.rpc.limits import RpcLimits
from iriscw.rpc.server import RpcServer
from iriscw.rpc.server_calls import _send_all
from raised import that
from waiting import until


class Odd(EchoServiceBase):
    """Methods that do what they should not."""

    def __init__(self) -> None:
        self.release = anyio.Event()

    async def unary(self, message: EchoRequest) -> EchoReply:
        match message.text:
            case "grouped":
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._fail)
            case "stubborn":
                with anyio.CancelScope(shield=True):
                    await self.release.wait()
            case "late":
                try:
                    await anyio.sleep_forever()
                finally:
                    raise ZeroDivisionError("in clean-up")
            case "stray":
                future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                future.cancel()
                await future
            case "exits":
                raise SystemExit(3)
            case "nothing":
                return None  # type: ignore[return-value]
            case "slow":
                await anyio.sleep_forever()
        return EchoReply()

    async def _fail(self) -> None:
        raise InvalidAddress("one error in a group")


async def ask(server: RpcServer, text: str, timeout_s: float = 5) -> EchoReply:
    """One call on a connection of its own."""
    async with RpcChannel(server.address, ADMIN) as channel:
        return await channel.unary(UNARY, EchoRequest(text=text), EchoReply, timeout_s=timeout_s)


@pytest.fixture
def echo() -> Odd:  # type: ignore[override]
    """The service behind ``server``."""
    return Odd()


async def test_sole_error_of_a_group(server: RpcServer) -> None:
    """The one error inside a task group's wrapping is the caller's error."""
    with pytest.raises(InvalidAddress, check=that(names="group")):
        await ask(server, "grouped")


@pytest.mark.parametrize("way", ["stray", "exits"])
async def test_a_method_that_ends_with_no_exception(
    server: RpcServer, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    """Somebody else's cancelled future, or an exit: that call fails, is logged, and the next one is answered."""
    with pytest.raises(StrayExit):
        await ask(server, way)
    assert "Unary failed" in caplog.text
    await ask(server, "well")


async def test_no_answer(server: RpcServer, caplog: pytest.LogCaptureFixture) -> None:
    """A method that returns no message is the service's bug, logged there."""
    with pytest.raises(RemoteFailure):
        await ask(server, "nothing")
    assert "Unary failed" in caplog.text


async def test_error_after_the_deadline_is_logged(server: RpcServer, caplog: pytest.LogCaptureFixture) -> None:
    """An error of a clean-up that nobody waits for any more is in the log."""
    with pytest.raises(RpcDeadline):
        await ask(server, "late", timeout_s=0.1)
    await until(lambda: "in clean-up" in caplog.text)


async def test_server_side_deadline(echo: Odd) -> None:
    """A method without a caller's deadline ends at the server's own bound."""
    import grpc.aio

    limits = RpcLimits(unary_timeout_s=0.1)
    async with RpcServer([echo], authenticate=authenticate, limits=limits) as server:
        await server.listen_tcp("127.0.0.1", 0)
        async with grpc.aio.insecure_channel(str(server.address)) as channel:
            call = channel.unary_unary(PREFIX + "Unary", request_serializer=bytes)
            with anyio.fail_after(5), pytest.raises(grpc.aio.AioRpcError) as caught:
                await call(EchoRequest(text="slow"), metadata=[("authorization", "Bearer admin-token")])
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_stubborn_method_does_not_hang_a_drain(
    server: RpcServer, echo: Odd, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A method that ignores its cancellation is reported; its caller was told at once and the drain ends."""
    monkeypatch.setattr(server_module, "CLEAN_UP_S", 0.1)
    async with anyio.create_task_group() as tasks:

        async def call() -> None:
            with pytest.raises(RpcUnavailable, check=that(names="stopping")):
                await ask(server, "stubborn", timeout_s=60)

        tasks.start_soon(call)
        await until(lambda: server.statistics().calls_in_flight == 1)
        with anyio.fail_after(10):
            report = await server.drain(0)
    assert (report.calls_cut, report.methods_left) == (1, 1)
    assert "did not end" in caplog.text
    echo.release.set()


async def test_methods_are_closed_in_their_own_task() -> None:
    """A streaming method that is given up at a yield is closed there and then, not by the garbage collector."""
    closed_in: list[object] = []

    async def method(request: object) -> AsyncIterator[object]:
        try:
            yield request
        finally:
            closed_in.append(asyncio.current_task())

    class Gone:
        async def send_message(self, message: object) -> None:
            raise ConnectionError

    with pytest.raises(ConnectionError):
        await _send_all(method, Gone(), "request")  # type: ignore[arg-type]
    assert closed_in == [asyncio.current_task()]


@pytest.mark.parametrize("error", [ConnectionError(), asyncio.CancelledError()])
async def test_a_yield_is_the_sending(error: BaseException) -> None:
    """A method that yields inside a task group meets there what the sending met: the group ends in order with it."""
    met: list[BaseException] = []

    async def wait_until_cancelled() -> None:
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError as stopped:
            met.append(stopped)
            raise

    async def method(request: object) -> AsyncIterator[object]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait_until_cancelled)
            await anyio.lowlevel.checkpoint()
            try:
                yield request
            except BaseException as sent:
                met.append(sent)
                raise

    class Gone:
        async def send_message(self, message: object) -> None:
            raise error

    with pytest.raises((type(error), ExceptionGroup)) as caught:
        await _send_all(method, Gone(), "request")  # type: ignore[arg-type]
    found = caught.value
    assert error in (found.exceptions if isinstance(found, ExceptionGroup) else (found,))
    assert met[0] is error
    assert len(met) == 2


async def test_a_method_that_goes_on_after_its_caller_left() -> None:
    """A method that swallows what its yield met is closed all the same, and the error is the call's."""

    async def method(request: object) -> AsyncIterator[object]:
        for _ in range(3):
            with contextlib.suppress(ConnectionError):
                yield request

    class Gone:
        sent = 0

        async def send_message(self, message: object) -> None:
            self.sent += 1
            raise ConnectionError

    gone = Gone()
    with pytest.raises(ConnectionError):
        await _send_all(method, gone, "request")  # type: ignore[arg-type]
    assert gone.sent == 1


async def test_callers_that_leave_leave_no_trace(
    echo: EchoService, caplog: pytest.LogCaptureFixture, stack: AsyncExitStack
) -> None:
    """Streams whose callers hang up at any moment end without an error in the log, and without one nobody retrieved."""
    lost: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: lost.append(context))
    chatty = EchoService()
    server = await stack.enter_async_context(RpcServer([chatty], authenticate=authenticate))
    await server.listen_tcp("127.0.0.1", 0)
    for number in range(30):
        async with RpcChannel(server.address, ADMIN) as channel, channel.bidi(CHAT, EchoRequest, EchoReply) as call:
            for _ in range(number % 4):
                await call.send(EchoRequest(text="x" * 1000 * number))
    await until(lambda: server.statistics().calls_in_flight == 0)
    await until(lambda: not server._calls._tasks)
    gc.collect()
    await anyio.lowlevel.checkpoint()
    assert lost == []
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_outside_of_a_call() -> None:
    """There is no context outside of a call."""
    with pytest.raises(NotInsideCall):
        call_context()
