"""Served calls: admission, and methods that misbehave."""

import asyncio
from collections.abc import AsyncIterator

import anyio
import pytest
from rpc_echo import EchoReply, EchoRequest, EchoServiceBase
from rpc_world import ADMIN, PREFIX, UNARY, authenticate, until

from iriscw.rpc import server as server_module
from iriscw.rpc.client import RpcChannel
from iriscw.rpc.context import call_context
from iriscw.rpc.errors import InvalidAddress, NotInsideCall, RemoteFailure, RpcDeadline, RpcUnavailable
from iriscw.rpc.limits import RpcLimits
from iriscw.rpc.server import RpcServer
from iriscw.rpc.server_calls import _send_all


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
    with pytest.raises(InvalidAddress, match="one error in a group"):
        await ask(server, "grouped")


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
            with anyio.fail_after(5), pytest.raises(grpc.aio.AioRpcError, match="its deadline") as caught:
                await call(EchoRequest(text="slow"), metadata=[("authorization", "Bearer admin-token")])
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_stubborn_method_does_not_hang_a_drain(
    server: RpcServer, echo: Odd, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A method that ignores its cancellation is reported; its caller was told at once and the drain ends."""
    monkeypatch.setattr(server_module, "CLEAN_UP_S", 0.1)
    async with anyio.create_task_group() as tasks:

        async def call() -> None:
            with pytest.raises(RpcUnavailable, match="stopping"):
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


def test_outside_of_a_call() -> None:
    """There is no context outside of a call."""
    with pytest.raises(NotInsideCall):
        call_context()
