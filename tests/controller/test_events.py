"""The hub: versions grow, bells ring for their own job, nothing is lost in between."""

import anyio
from hypothesis import given, strategies as st

from iriscw.controller import events as module
from iriscw.controller.events import EventHub
from iriscw.jobs.meeting.messages import EndpointsChanged
from iriscw.jobs.messages import JobChanged
from iriscw.jobs.model import JobState


def changed(job_id: str) -> JobChanged:
    """An event of a job."""
    return JobChanged(job_id, JobState.RUNNING, "", 1)


@given(names=st.lists(st.sampled_from("abcd"), max_size=50), limit=st.integers(1, 4))
def test_versions_grow(names: list[str], limit: int) -> None:
    """A job's version grows with each of its events, also when it was forgotten in between."""
    kept, module.MAX_VERSIONS = module.MAX_VERSIONS, limit
    try:
        hub = EventHub(100, lambda _: None)
        last = dict.fromkeys("abcd", 100)
        for name in names:
            assert hub.version(name) >= last[name]
            hub.publish(changed(name))
            assert hub.version(name) > last[name]
            last[name] = hub.version(name)
    finally:
        module.MAX_VERSIONS = kept


async def test_bell() -> None:
    """A ring before the wait wakes it at once, another job's ring does not, and many rings are one."""
    seen: list[object] = []
    hub = EventHub(0, seen.append)
    with hub.subscribed("a") as bell:
        hub.publish(changed("b"))
        with anyio.move_on_after(0.01) as slept:
            await bell.wait()
        assert slept.cancelled_caught
        hub.publish(changed("a"))
        hub.publish(changed("a"))
        await bell.wait()
        with anyio.move_on_after(0.01) as slept:
            await bell.wait()
        assert slept.cancelled_caught
    assert not hub._subscribed
    assert len(seen) == 3
    assert hub.job_changes == {"RUNNING": 3}


async def test_an_address_rings_and_is_no_version() -> None:
    """Who waits for endpoints is woken; a job's status is what it was, so its watchers are told nothing."""
    hub = EventHub(7, lambda _: None)
    with hub.subscribed("a") as bell:
        hub.publish(EndpointsChanged("a"))
        with anyio.fail_after(5):
            await bell.wait()
    assert hub.version("a") == 7
