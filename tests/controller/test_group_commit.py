"""Writes that come while one is under way are done together, and each of them hears how its own went."""

from collections.abc import Sequence

import anyio
import pytest
from hypothesis import given, strategies as st

from iriscw.controller.stores.group_commit import GroupCommit
from profiles import examples


class Disk:
    """Notes what is written at once; each write waits until it is let go."""

    def __init__(self) -> None:
        self.written: list[list[int]] = []
        self.refused: set[int] = set()
        self.broken = False
        self.go = anyio.Event()
        self.group = GroupCommit(self.write)

    async def write(self, items: Sequence[int]) -> dict[int, Exception]:
        """Write items but those that are refused."""
        await self.go.wait()
        self.written.append(list(items))
        if self.broken:
            raise OSError("all of it")
        return {index: OSError(str(item)) for index, item in enumerate(items) if item in self.refused}

    async def put(self, item: int, told: list[object]) -> None:
        """Put one, and note what is heard of it."""
        try:
            await self.group.put(item)
        except OSError as error:
            told.append((item, str(error)))
        else:
            told.append(item)


@examples(15)
@given(first=st.integers(1, 5), second=st.integers(0, 5))
def test_what_comes_meanwhile_is_one_write(first: int, second: int) -> None:
    """All that come in one turn are written at once, in their order, and all that come while that is written."""

    async def run() -> None:
        disk, told = Disk(), []
        async with anyio.create_task_group() as tasks:
            for item in range(first):
                tasks.start_soon(disk.put, item, told)
            await anyio.wait_all_tasks_blocked()
            for item in range(first, first + second):
                tasks.start_soon(disk.put, item, told)
            await anyio.wait_all_tasks_blocked()
            assert told == []
            disk.go.set()
        batches = [list(range(first)), list(range(first, first + second))]
        assert disk.written == [each for each in batches if each]
        assert disk.group.writes == len(disk.written)
        assert sorted(told) == list(range(first + second))

    anyio.run(run)


async def test_each_hears_of_its_own() -> None:
    """One that is refused takes no other with it; a write that fails is everybody's, and the next one is none's."""
    disk, told = Disk(), []
    disk.refused = {1}
    disk.go.set()
    async with anyio.create_task_group() as tasks:
        for item in range(3):
            tasks.start_soon(disk.put, item, told)
    assert sorted(told, key=str) == [(1, "1"), 0, 2]
    told.clear()
    disk.broken = True
    async with anyio.create_task_group() as tasks:
        for item in range(2):
            tasks.start_soon(disk.put, item, told)
    assert sorted(told) == [(0, "all of it"), (1, "all of it")]
    told.clear()
    disk.broken = False
    await disk.put(0, told)
    assert told == [0]


@pytest.mark.parametrize("cancelled", [0, 1])
async def test_who_is_cancelled_takes_no_other_with_it(cancelled: int) -> None:
    """Neither the one that writes for all nor another; the item may be written all the same."""
    disk, told = Disk(), []
    scopes = [anyio.CancelScope() for _ in range(3)]

    async def put(item: int) -> None:
        with scopes[item]:
            await disk.put(item, told)

    async with anyio.create_task_group() as tasks:
        for item in range(3):
            tasks.start_soon(put, item)
        await anyio.wait_all_tasks_blocked()
        scopes[cancelled].cancel()
        await anyio.wait_all_tasks_blocked()
        disk.go.set()
    assert {0, 1, 2} - set(told) <= {cancelled}
    assert disk.written == [[0, 1, 2]]
