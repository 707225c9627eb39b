"""The gate: bounded inside, bounded in the queue, first come first served, and nobody's place is lost."""

import anyio
from anyio.lowlevel import checkpoint
from hypothesis import given, strategies as st

from iriscw.controller.admission import MAX_RETRY_AFTER_MS, RETRY_AFTER_MS, AdmissionGate, ComeBack


class Crowd:
    """Workers at a gate; each stays inside until it is let go."""

    def __init__(self, gate: AdmissionGate) -> None:
        self.gate = gate
        self.inside: list[int] = []
        self.order: list[int] = []
        self.away: list[ComeBack] = []
        self.release = anyio.Event()

    async def come(self, index: int) -> None:
        """Shake hands."""
        async with self.gate.handshake() as later:
            if later is not None:
                self.away.append(later)
                return
            self.inside.append(index)
            self.order.append(index)
            try:
                await self.release.wait()
                await checkpoint()
            finally:
                self.inside.remove(index)


async def settle() -> None:
    """Let all tasks run until they wait."""
    await anyio.wait_all_tasks_blocked()


@given(handshakes=st.integers(1, 4), waiting=st.integers(0, 5), workers=st.integers(0, 14))
def test_bounds(handshakes: int, waiting: int, workers: int) -> None:
    """So many are inside, so many wait, the rest are turned away; those who wait get in by arrival."""

    async def scenario() -> None:
        gate = AdmissionGate(handshakes, waiting)
        crowd = Crowd(gate)
        async with anyio.create_task_group() as tasks:
            for index in range(workers):
                tasks.start_soon(crowd.come, index)
            await settle()
            figures = gate.statistics()
            assert figures.shaking_hands == len(crowd.inside) == min(handshakes, workers)
            assert figures.waiting == min(waiting, workers - figures.shaking_hands)
            assert figures.turned_away == len(crowd.away) == workers - figures.shaking_hands - figures.waiting
            crowd.release.set()
        assert crowd.order == sorted(crowd.order)
        assert gate.statistics().admitted == len(crowd.order) == min(workers, handshakes + waiting)
        assert (gate.statistics().shaking_hands, gate.statistics().waiting) == (0, 0)

    anyio.run(scenario)


async def test_retry_times_spread() -> None:
    """Each worker beyond the queue is told a later time, up to a bound; once the queue is gone it begins anew."""
    gate = AdmissionGate(1, 0)
    crowd = Crowd(gate)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(crowd.come, 0)
        await settle()
        for index in range(6_000):
            await crowd.come(index)
        times = [each.retry_after_ms for each in crowd.away]
        assert times == sorted(times)
        assert RETRY_AFTER_MS <= times[0] < times[1] < times[2]
        assert times[-1] == MAX_RETRY_AFTER_MS
        crowd.release.set()
        await settle()
    crowd.release = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(crowd.come, 0)
        await settle()
        await crowd.come(1)
        assert crowd.away[-1].retry_after_ms == times[0]
        crowd.release.set()


async def test_who_leaves_the_queue_is_skipped() -> None:
    """A worker that hangs up while it waits takes no place, not even in the moment in which it gets one."""
    gate = AdmissionGate(1)
    crowd = Crowd(gate)
    scopes = [anyio.CancelScope() for _ in range(4)]

    async def impatient(index: int) -> None:
        with scopes[index]:
            await crowd.come(index)

    async with anyio.create_task_group() as tasks:
        for index in range(4):
            tasks.start_soon(impatient, index)
            await settle()
        scopes[1].cancel()
        await settle()
        assert gate.statistics().waiting == 2
        scopes[0].cancel()
        await checkpoint()
        scopes[2].cancel()  # about when the place of the first becomes its own
        await settle()
        assert crowd.inside == [3]
        crowd.release.set()
    assert (gate.statistics().shaking_hands, gate.statistics().waiting) == (0, 0)


@given(steps=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2)), max_size=12))
def test_no_place_is_lost(steps: list[tuple[int, int]]) -> None:
    """However workers hang up, inside or in the queue, the gate is empty in the end."""

    async def scenario() -> None:
        gate = AdmissionGate(2)
        crowd = Crowd(gate)
        scopes = [anyio.CancelScope() for _ in range(6)]

        async def impatient(index: int) -> None:
            with scopes[index]:
                await crowd.come(index)

        async with anyio.create_task_group() as tasks:
            for index in range(6):
                tasks.start_soon(impatient, index)
            await settle()
            for index, turns in steps:
                scopes[index].cancel()
                for _ in range(turns):
                    await checkpoint()
                assert gate.statistics().shaking_hands <= 2
            crowd.release.set()
        assert (gate.statistics().shaking_hands, gate.statistics().waiting) == (0, 0)

    anyio.run(scenario)
