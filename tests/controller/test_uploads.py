"""What waits for an object store is taken as often as it takes, and a few at a time."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import pytest

from iriscw.controller.stores.uploads import AT_A_TIME, Uploads
from iriscw.objects.ports import StoreFull


@asynccontextmanager
async def running(uploads: Uploads) -> AsyncIterator[None]:
    """Have them made while the block lasts."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(uploads.run)
        yield
        tasks.cancel_scope.cancel()


async def until(changed: anyio.Condition, holds: Callable[[], bool]) -> None:
    """Wait until it holds."""
    with anyio.fail_after(60):
        async with changed:
            while not holds():
                await changed.wait()


async def test_each_is_made_once() -> None:
    """Whenever it was added, and however often; never more than a few at a time."""
    made: list[str] = []
    changed, go, most, now = anyio.Condition(), anyio.Event(), 0, 0

    async def upload(name: str) -> None:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await go.wait()
        now -= 1
        made.append(name)
        async with changed:
            changed.notify_all()

    uploads = Uploads(upload, "things")
    names = [str(number) for number in range(50)]
    for name in names[:30]:
        uploads.add(name)
    async with running(uploads):
        await anyio.wait_all_tasks_blocked()
        assert most == AT_A_TIME
        for name in names:
            uploads.add(name)
        uploads.drop("49")
        go.set()
        await until(changed, lambda: len(made) == 49)
        uploads.add("late")
        await until(changed, lambda: len(made) == 50)
    assert sorted(made) == sorted([*names[:49], "late"])
    assert (uploads.done, uploads.failures, uploads.trouble, most) == (50, 0, "", AT_A_TIME)


async def test_trouble_passes(caplog: pytest.LogCaptureFixture) -> None:
    """It is said once, lasts as long as it does, and the first that succeeds wakes those that pause."""
    changed, away = anyio.Condition(), True
    tried: dict[str, int] = {}

    async def upload(name: str) -> None:
        tried[name] = tried.get(name, 0) + 1
        async with changed:
            changed.notify_all()
        if away and name != "well":
            raise StoreFull("no room")

    uploads = Uploads(upload, "things", first_pause_s=10_000.0)
    for number in range(AT_A_TIME - 1):
        uploads.add(str(number))
    with caplog.at_level(logging.WARNING):
        async with running(uploads):
            await until(changed, lambda: sum(tried.values()) == AT_A_TIME - 1)
            await anyio.wait_all_tasks_blocked()
            assert (uploads.trouble, uploads.failures) == ("StoreFull: no room", AT_A_TIME - 1)
            away = False
            uploads.add("well")
            await until(changed, lambda: sum(tried.values()) == 2 * (AT_A_TIME - 1) + 1)
            await anyio.wait_all_tasks_blocked()
    assert (uploads.trouble, uploads.done) == ("", AT_A_TIME)
    assert [record.getMessage() for record in caplog.records] == [
        "things wait for the object store: StoreFull: no room",
        "the object store takes things again",
    ]


async def test_a_bug_is_no_trouble() -> None:
    """What is no failure of the world ends it."""

    async def upload(_name: str) -> None:
        raise KeyError("bug")

    uploads = Uploads(upload, "things")
    uploads.add("x")
    with pytest.raises(ExceptionGroup) as raised, anyio.fail_after(60):
        await uploads.run()
    assert raised.group_contains(KeyError)
