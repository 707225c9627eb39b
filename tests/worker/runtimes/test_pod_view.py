"""The view of a worker's pods: late, repeated and missing news, strays, an API that is away."""

from collections import deque

import anyio
import anyio.lowlevel
import attrs
import pytest

from iriscw.cloud.model import Forbidden, Pod, PodPhase, Relisted, Removed, Unavailable, Upserted
from iriscw.worker.runtimes import pod_view
from iriscw.worker.runtimes.pod_view import PodView

PATIENCE_S = 60
POD = Pod("mine", "u1", "1", {}, PodPhase.RUNNING, False, node="n")
OTHER = attrs.evolve(POD, name="other", uid="u2")


class ScriptedPods:
    """A driver that says what it was told to say, in this order; a watch that has nothing more to say waits."""

    def __init__(self, *watches):
        self.watches = deque(watches)
        self.looks = deque()
        self.deleted = []
        self.refusals = deque()
        self.done = anyio.Event()
        """Set when there is no more to tell."""

    def is_ours(self, pod):
        """Those of the present incarnation have no label here; others' have."""
        return not pod.labels

    async def look(self, name):
        """Return what the script has, or raise it."""
        found = self.looks.popleft()
        if isinstance(found, Exception):
            raise found
        return found

    async def delete(self, name, uid, grace_s):
        """Take note, or refuse."""
        if self.refusals:
            raise self.refusals.popleft()
        self.deleted.append((name, uid))

    async def watch(self):
        """Tell the next script."""
        for event in self.watches.popleft() if self.watches else ():
            if isinstance(event, Exception):
                raise event
            yield event
        if not self.watches:
            self.done.set()
            await anyio.sleep_forever()


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    """What is waited out here has passed already."""
    monkeypatch.setattr(pod_view, "PAUSE_S", 0)


async def told(view, driver):
    """Let a view hear all that its driver has to say."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(view.follow)
        with anyio.fail_after(PATIENCE_S):
            await driver.done.wait()
        tasks.cancel_scope.cancel()


async def swept(view, holds):
    """Let a view sweep until something holds."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(view.sweep)
        with anyio.fail_after(PATIENCE_S):
            while not holds():
                await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()


async def test_a_pod_is_as_it_was_told_last():
    """A list, a change, a deletion; the same thing twice changes nothing."""
    ended = attrs.evolve(POD, phase=PodPhase.SUCCEEDED)
    driver = ScriptedPods([Relisted((POD,)), Upserted(POD), Upserted(ended), Upserted(ended)])
    view = PodView(driver)
    view.hold("mine")
    bell = view.bell("mine")
    await told(view, driver)
    assert view.state("mine") == (ended, False)
    assert bell.is_set()
    gone = ScriptedPods([Relisted((ended,)), Removed(ended)])
    view = PodView(gone)
    view.hold("mine")
    await told(view, gone)
    assert view.state("mine") == (ended, True)


async def test_a_list_that_is_older_than_the_pod_does_not_end_it():
    """Only a look for it is believed: it is there, it is gone, or nobody can say."""
    for answer, gone in ((POD, False), (None, True)):
        driver = ScriptedPods([Relisted(())])
        driver.looks.append(answer)
        view = PodView(driver)
        view.hold("mine")
        view.told(POD)
        await told(view, driver)
        assert view.state("mine") == (POD, gone)


async def test_a_look_without_an_answer_is_made_again():
    """With the next list; until then the pod is as it was seen."""
    driver = ScriptedPods([Relisted(())], [Relisted(())])
    driver.looks.extend([Unavailable("away"), None])
    view = PodView(driver)
    view.hold("mine", expected=True)
    await told(view, driver)
    assert view.state("mine") == (None, True)
    assert view.statistics().failures == 1


async def test_a_name_that_was_not_asked_for_is_not_missed():
    """While its pod is being made, a list without it says nothing."""
    driver = ScriptedPods([Relisted(())])
    view = PodView(driver)
    view.hold("mine")
    await told(view, driver)
    assert view.state("mine") == (None, False)


async def test_a_watch_that_breaks_is_opened_again():
    """Whatever it broke of; nothing is forgotten meanwhile."""
    driver = ScriptedPods(
        [Relisted((POD,)), Unavailable("broke")], [Forbidden("not now")], [Relisted((POD,)), Removed(POD)]
    )
    view = PodView(driver)
    view.hold("mine")
    await told(view, driver)
    assert view.state("mine") == (POD, True)
    assert view.statistics().failures == 2


async def test_news_of_another_life_of_the_name_end_nothing():
    """A deletion that was told late, of a pod whose name was used again."""
    driver = ScriptedPods([Relisted((POD,)), Removed(attrs.evolve(POD, uid="u0"))])
    view = PodView(driver)
    view.hold("mine")
    await told(view, driver)
    assert view.state("mine") == (POD, False)


async def test_what_nobody_holds_is_deleted_once_all_is_taken_up():
    """Not before: it might be of an attempt that is about to be adopted. By its uid, as often as it takes."""
    driver = ScriptedPods([Relisted((POD, OTHER))])
    driver.refusals.extend([Unavailable("away"), Unavailable("away")])
    view = PodView(driver)
    view.hold("mine")
    await told(view, driver)
    assert driver.deleted == []
    view.settle()
    await swept(view, lambda: driver.deleted)
    assert driver.deleted == [("other", "u2")]
    assert view.statistics() == pod_view.ViewStatistics(held=1, strays=0, deleted=1, failures=2)


async def test_a_pod_that_comes_late_is_a_stray():
    """Its attempt was given up and released: whenever it lands, it goes."""
    driver = ScriptedPods([Relisted(()), Upserted(POD)])
    view = PodView(driver)
    view.settle()
    view.hold("mine")
    view.release("mine")
    await told(view, driver)
    await swept(view, lambda: driver.deleted)
    assert driver.deleted == [("mine", "u1")]


async def test_a_released_pod_goes_and_one_that_is_going_is_left_alone():
    """No deletion is asked for twice."""
    going = attrs.evolve(OTHER, deleting=True)
    driver = ScriptedPods([Relisted((POD, going))])
    view = PodView(driver)
    view.settle()
    view.hold("mine")
    await told(view, driver)
    view.release("mine")
    await swept(view, lambda: driver.deleted)
    assert driver.deleted == [("mine", "u1")]
    assert view.state("mine") == (None, True)


async def test_a_stray_that_is_held_after_all_stays():
    """Its pod was seen before its attempt was taken up."""
    driver = ScriptedPods([Relisted((POD,))])
    view = PodView(driver)
    await told(view, driver)
    view.hold("mine", expected=True)
    view.settle()
    assert view.state("mine") == (POD, False)
    assert view.statistics().strays == 0


async def test_only_incarnations_that_were_there_before_are_swept():
    """A worker that was cut off, and is still there, leaves alone what a later incarnation of it makes."""
    earlier, later = (attrs.evolve(POD, name=name, uid=name, labels={"of": name}) for name in ("earlier", "later"))
    driver = ScriptedPods([Relisted((earlier,)), Upserted(later)], [Relisted((earlier, later))])
    view = PodView(driver)
    view.settle()
    await told(view, driver)
    assert view.statistics().strays == 1
    await swept(view, lambda: driver.deleted)
    assert driver.deleted == [("earlier", "earlier")]
