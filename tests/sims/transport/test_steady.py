"""Libraries are put right inside the block, and are as before after it."""

import gc
import sys
import time
import types

import anyio
import grpclib.client
import grpclib.metadata
import grpclib.protocol
import grpclib.server
import pytest
from anyio._backends import _asyncio as backend

from iriscw._errors import InvalidArgument
from iriscw_sims.transport.errors import Unsimulated
from iriscw_sims.transport.loop import VirtualLoop
from iriscw_sims.transport.network import Network
from iriscw_sims.transport.run import simulate
from iriscw_sims.transport.steady import CLOCKED, steady
from raised import that


def test_the_clock_of_grpclib_is_the_loops() -> None:
    """Deadlines and pings count virtual time; the rest of the module is the real one; afterwards all of it is."""

    async def main(_: Network) -> tuple[float, bool]:
        await anyio.sleep(1000)
        deadline = grpclib.metadata.Deadline.from_timeout(5)
        await anyio.sleep(4)
        return deadline.time_remaining(), grpclib.protocol.time.time() > 1e9  # type: ignore[attr-defined]

    left, is_real = simulate(main).result
    assert left == pytest.approx(1)
    assert is_real
    assert [sys.modules[name].time for name in CLOCKED] == [time] * 4  # type: ignore[attr-defined]
    assert (
        tuple(each.__name__ for each in (grpclib.client, grpclib.metadata, grpclib.protocol, grpclib.server)) == CLOCKED
    )


def test_nested_scopes_are_cancelled_in_the_order_of_entry() -> None:
    """A cancellation reaches the scopes inside a scope as they were entered, not by their addresses."""

    async def main(_: Network) -> list[int]:
        ended: list[int] = []

        async def child(number: int) -> None:
            try:
                async with anyio.create_task_group():
                    await anyio.sleep_forever()
            finally:
                ended.append(number)

        async with anyio.create_task_group() as tasks:
            for number in range(50):
                tasks.start_soon(child, number)
            await anyio.sleep(1)
            tasks.cancel_scope.cancel()
        return ended

    assert simulate(main).result == list(range(50))


def test_everything_is_as_before_afterwards() -> None:
    """Whatever happens inside the block."""
    before = (backend.CancelScope.__init__, vars(backend.AsyncIOBackend)["run_sync_in_worker_thread"], gc.isenabled())

    def fail() -> None:
        with steady(VirtualLoop()):
            assert not gc.isenabled()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    after = (backend.CancelScope.__init__, vars(backend.AsyncIOBackend)["run_sync_in_worker_thread"], gc.isenabled())
    assert before == after


def test_what_has_changed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that keeps its clock or its scopes elsewhere must not pass for a deterministic one."""
    monkeypatch.setitem(sys.modules, "another_library", types.ModuleType("another_library"))
    clocked = ("another_library", "not_imported")
    with pytest.raises(InvalidArgument, check=that(comes_from="steady.steady", names="another_library")):
        steady(VirtualLoop(), clocked=clocked).__enter__()
    original = backend.CancelScope.__init__

    def changed(scope, *args, **options) -> None:
        original(scope, *args, **options)
        scope._child_scopes = []

    monkeypatch.setattr(backend.CancelScope, "__init__", changed)
    with steady(VirtualLoop()), pytest.raises(Unsimulated, check=that(comes_from="steady._ordered_scopes.__init__")):
        backend.CancelScope()
