"""Watchers see everything that lasts, in order, in bounded memory."""

from contextlib import aclosing

import anyio
import pytest
from hypothesis import given, strategies as st

from iriscw.cloud.drivers.watching import MAX_WAITING, Watchers, carries
from iriscw.cloud.model import Pod, Relisted, Upserted


def pod(name: str, version: int = 0, **labels: str) -> Pod:
    return Pod(name, name, str(version), labels)


@given(
    st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy")),
    st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy")),
)
def test_carries_is_containment(have: dict[str, str], want: dict[str, str]) -> None:
    """All wanted labels with their values, and any others."""
    assert carries(pod("p", **have), want) == (want.items() <= have.items())


async def test_all_first_then_changes_in_order() -> None:
    """What happened before the first item is read is in the list, not an event."""
    objects = [pod("a")]
    watchers = Watchers(lambda: tuple(objects))
    async with aclosing(watchers.watch({})) as watch:
        assert await anext(watch) == Relisted((objects[0],))
        events = [Upserted(pod("a", version)) for version in range(5)]
        for event in events:
            watchers.tell(event)
        assert [await anext(watch) for _ in events] == events
        with pytest.raises(TimeoutError), anyio.fail_after(0.01):
            await anext(watch)


async def test_other_labels_are_not_seen() -> None:
    """Neither in the list nor as an event."""
    objects = [pod("a", k="1"), pod("b", k="2")]
    watchers = Watchers(lambda: tuple(objects))
    async with aclosing(watchers.watch({"k": "2"})) as watch:
        assert await anext(watch) == Relisted((objects[1],))
        watchers.tell(Upserted(objects[0]))
        watchers.tell(Upserted(objects[1]))
        assert await anext(watch) == Upserted(objects[1])


async def test_a_slow_watcher_gets_a_new_list() -> None:
    """Beyond the bound what waits is thrown away; the next item is everything, then changes go on."""
    objects = [pod("a")]
    watchers = Watchers(lambda: tuple(objects))
    async with aclosing(watchers.watch({})) as watch:
        await anext(watch)
        for version in range(MAX_WAITING + 1):
            objects[0] = pod("a", version)
            watchers.tell(Upserted(objects[0]))
        assert await anext(watch) == Relisted((pod("a", MAX_WAITING),))
        watchers.tell(Upserted(pod("b")))
        assert await anext(watch) == Upserted(pod("b"))


async def test_a_closed_watch_is_forgotten() -> None:
    """Nothing collects for a watcher that left."""
    watchers = Watchers(tuple)
    async with aclosing(watchers.watch({})) as watch:
        await anext(watch)
    assert watchers._watchers == []
