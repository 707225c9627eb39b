"""The inside of a call: exact interruption, and nothing left behind."""

import asyncio

import pytest
from grpclib.const import Cardinality
from rpc_echo import EchoReply, EchoRequest
from rpc_world import UNARY

from iriscw.rpc.address import Address
from iriscw.rpc.client_call import Connector, ExactWrapper
from iriscw.rpc.errors import RpcUnavailable
from iriscw.rpc.limits import RpcLimits
from raised import that


class Interrupted:
    """A task that waits inside a wrapper."""

    def __init__(self) -> None:
        self.wrapper = ExactWrapper()
        self.task = asyncio.ensure_future(self._wait())

    async def _wait(self) -> None:
        with self.wrapper:
            await asyncio.Event().wait()


async def start() -> Interrupted:
    """Return one that waits already."""
    waiting = Interrupted()
    await asyncio.sleep(0)
    return waiting


async def test_interruption() -> None:
    """The task gets the error and does not count as cancelled; a second error changes nothing."""
    waiting = await start()
    waiting.wrapper.cancel(RpcUnavailable("first"))
    waiting.wrapper.cancel(RpcUnavailable("second"))
    with pytest.raises(RpcUnavailable, check=that(names="first")):
        await waiting.task
    assert waiting.task.cancelling() == 0


@pytest.mark.parametrize("ours_first", [True, False])
async def test_cancellation_from_elsewhere_comes_first(ours_first: bool) -> None:
    """A task interrupted and cancelled in the same turn ends as cancelled, whichever came first."""
    waiting = await start()
    if ours_first:
        waiting.wrapper.cancel(RpcUnavailable("x"))
    waiting.task.cancel()
    if not ours_first:
        waiting.wrapper.cancel(RpcUnavailable("x"))
    with pytest.raises(asyncio.CancelledError):
        await waiting.task
    assert waiting.task.cancelling() == 1


async def test_entering_after_the_error() -> None:
    """Who comes later meets the error at once."""
    wrapper = ExactWrapper()
    wrapper.cancel(RpcUnavailable("gone"))
    with pytest.raises(RpcUnavailable), wrapper:
        pytest.fail("the wrapper let it in")


async def test_no_timer_is_left() -> None:
    """A call that was never sent leaves no timer behind."""
    connector = Connector(Address.parse("127.0.0.1:1"), None, RpcLimits())
    shape = Cardinality.UNARY_UNARY
    call = connector.open(UNARY, shape, EchoRequest, EchoReply, timeout_s=3600, metadata={})
    async with call:
        assert call.timer is not None
        assert not call.timer.cancelled()
    assert call.timer.cancelled()
