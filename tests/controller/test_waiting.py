"""Why watched jobs wait: another reason is told, whoever watches; what it costs is bounded."""

from contextlib import ExitStack
from itertools import pairwise

import anyio
import anyio.lowlevel
import pytest
from controller_world import CLIENTS, World

from iriscw._errors import ActorStopped, NoSuchActor
from iriscw.controller import waiting
from iriscw.controller.doors.access import Access
from iriscw.controller.events import EventHub, Subscription
from iriscw.controller.waiting import WaitingReasons
from iriscw.jobs.scheduling.messages import ExplainJobs, JobReasons
from iriscw.proto.iriscw import v1
from iriscw.runtime import ActorSystem
from waiting import until


class Scheduler:
    """Says why, of as many jobs as one step may take."""

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}
        self.at_once = 100
        self.asked: list[tuple[str, ...]] = []

    async def ask(self, path: str, message: ExplainJobs) -> JobReasons:
        assert path == "/jobs/scheduler"
        self.asked.append(message.job_ids)
        if not self.reasons:
            raise ActorStopped("it is being started")
        told = message.job_ids[: self.at_once]
        return JobReasons(tuple((each, self.reasons[each]) for each in told), message.job_ids[self.at_once :])


@pytest.fixture
def scheduler() -> Scheduler:
    """One that says nothing yet."""
    return Scheduler()


@pytest.fixture
def hub() -> EventHub:
    """Counts from nothing."""
    return EventHub(0, lambda event: None)


@pytest.fixture
def reasons(scheduler: Scheduler, hub: EventHub) -> WaitingReasons:
    """Nobody watches yet."""
    return WaitingReasons(scheduler, hub)


def rung(bell: Subscription) -> bool:
    """Whether it was rung since it was asked last."""
    was = bell._event.is_set()
    bell._event = anyio.Event()
    return was


async def test_another_reason_rings_once(reasons: WaitingReasons, scheduler: Scheduler, hub: EventHub) -> None:
    """The same reason is no news, nor are seconds that are counted down."""
    with hub.subscribed("j") as bell, reasons.watched("j", "full; tried again in 9 s"):
        said = ["full; tried again in 8 s", "no worker", "no worker", "full; tried again in 60 s"]
        heard = []
        for each in said:
            scheduler.reasons["j"] = each
            await reasons.look()
            heard.append(rung(bell))
        assert heard == [False, True, False, True]


async def test_one_question_for_all_who_watch(reasons: WaitingReasons, scheduler: Scheduler, hub: EventHub) -> None:
    """A job that many watch is asked for once, and those that a step left come first the next time."""
    scheduler.reasons = dict.fromkeys("abcde", "new")
    scheduler.at_once = 2
    with ExitStack() as watching:
        bells = [watching.enter_context(hub.subscribed(job)) for job in "abcde"]
        for job in "abcdeaab":
            watching.enter_context(reasons.watched(job, "old"))
        for _ in range(3):
            await reasons.look()
        assert [asked[:2] for asked in scheduler.asked] == [("a", "b"), ("c", "d"), ("e", "a")]
        assert {len(asked) for asked in scheduler.asked} == {5}
        assert all(rung(bell) for bell in bells)
    assert (reasons._watchers, reasons._known) == ({}, {})


async def test_who_begins_to_watch_rings_nobody(reasons: WaitingReasons, hub: EventHub) -> None:
    """Whatever the newcomer has read: watchers that rang each other would never end."""
    with hub.subscribed("j") as bell, reasons.watched("j", "old"):
        for newer in ("new", "newer"):
            with reasons.watched("j", newer):
                assert not rung(bell)
        assert reasons.known("j", "") == "old"


async def test_what_is_counted_is_no_news(reasons: WaitingReasons, scheduler: Scheduler, hub: EventHub) -> None:
    """Of 5,000 machines some number is busy, another one at each look; a name with other digits is another name."""
    with hub.subscribed("j") as bell, reasons.watched("j", "4711 of 5000 workers of g-1 lack CPU"):
        heard = []
        for said in ("4712 of 5000 workers of g-1 lack CPU", "4712 of 5000 workers of g-2 lack CPU"):
            scheduler.reasons["j"] = said
            await reasons.look()
            heard.append(rung(bell))
        assert heard == [False, True]


async def test_a_scheduler_that_is_away_is_asked_again(
    reasons: WaitingReasons, scheduler: Scheduler, hub: EventHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked while somebody watches and not before; that it cannot say is no news."""
    monkeypatch.setattr(waiting, "LOOK_INTERVAL_S", 0.001)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reasons.run)
        await anyio.wait_all_tasks_blocked()
        assert scheduler.asked == []
        with anyio.fail_after(10), hub.subscribed("j") as bell, reasons.watched("j", "old"):
            await until(lambda: len(scheduler.asked) >= 3)
            assert not rung(bell)
            scheduler.reasons["j"] = "new"
            await bell.wait()
        tasks.cancel_scope.cancel()


async def test_a_watch_tells_another_reason(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the same version: it is no change of the job. The same sentence is told once."""
    monkeypatch.setattr(waiting, "LOOK_INTERVAL_S", 0.01)
    job = await world.submit(freezable=True)
    request = v1.WatchJobRequest(job=v1.JobRef(job_id=job.job_id))
    seen: list[tuple[int, str]] = []
    with anyio.fail_after(20):
        async with world.client.server_stream(CLIENTS + "WatchJob", request, v1.JobStatus) as statuses:
            async for status in statuses:
                seen.append((status.version, status.reason))
                if status.reason.startswith("no worker is connected"):
                    break
            async with world.worker():
                async for status in statuses:
                    seen.append((status.version, status.reason))
                    if "the constraint freezable" in status.reason:
                        break
    assert len({version for version, _ in seen}) < len(seen) == len({*seen})


async def test_many_watchers_of_one_job_ask_no_more_than_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is told every other reason once; after what they asked when they came, only the looks ask."""
    monkeypatch.setattr(waiting, "LOOK_INTERVAL_S", 0.01)
    said = iter(f"reason {'abc'[number // 20 % 3]}, {number} lack CPU" for number in range(1_000_000))
    asked: dict[str, int] = {"looks": 0, "questions": 0}
    really = world.controller.system.ask

    async def ask(path: str, message: object, *more: object) -> object:
        if isinstance(message, ExplainJobs):
            asked["looks"] += 1
            return JobReasons(((message.job_ids[0], next(said)),), ())
        asked["questions"] += 1
        return await really(path, message, *more)

    job = await world.submit(freezable=True)
    request = v1.WatchJobRequest(job=v1.JobRef(job_id=job.job_id))
    heard: list[str] = []

    async def watch(ready: anyio.Event) -> None:
        mine: list[str] = []
        async with world.client.server_stream(CLIENTS + "WatchJob", request, v1.JobStatus) as statuses:
            async for status in statuses:
                ready.set()
                mine.append(status.reason.partition(",")[0])
                if len(mine) == 6:
                    break
        assert all(one != other for one, other in pairwise(mine))
        heard.append(mine[-1])

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            ready = [anyio.Event() for _ in range(12)]
            for each in ready:
                tasks.start_soon(watch, each)
            for each in ready:
                await each.wait()
            before = dict(asked)
            monkeypatch.setattr(world.controller.system, "ask", ask)
    assert len(heard) == 12
    assert asked["looks"] - before["looks"] >= 60
    assert asked["questions"] - before["questions"] <= 12


async def test_nobody_is_asked_once_all_have_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who leaves between two looks leaves nothing to look for."""
    monkeypatch.setattr(waiting, "LOOK_INTERVAL_S", 0.1)
    asked: list[ExplainJobs] = []

    class Asking:
        async def ask(self, path: str, message: ExplainJobs) -> JobReasons:
            asked.append(message)
            return JobReasons((), ())

    reasons = waiting.WaitingReasons(Asking(), None)  # type: ignore[arg-type]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reasons.run)
        with reasons.watched("job-a", "?"):
            for _ in range(5):
                await anyio.lowlevel.checkpoint()  # it has begun to wait for its first look
        await anyio.sleep(0.2)
        with reasons.watched("job-b", "?"), anyio.fail_after(60):
            while not asked:  # noqa: ASYNC110 - a look tells nobody
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    assert {each.job_ids for each in asked} == {("job-b",)}


async def test_actors_that_begin_anew_are_away_and_no_bug(world: World) -> None:
    """Looks, figures and listings go on: that there is no scheduler for a moment ends no controller."""
    access = Access(world.controller.features.parts["jobs"].workers.intake._logs)
    access.system = ActorSystem()
    async with access.system:
        access.stands(world.controller.features.children())
        for path in ("/fleet", "/jobs", "/jobs/scheduler", "/jobs/links", "/nodes/agent", "/nodes/orders"):
            with pytest.raises(ActorStopped):
                await access.ask(path, ExplainJobs(()))
        with pytest.raises(NoSuchActor):
            await access.ask("/jobs/job-aaaaaaaaaaaa", ExplainJobs(()))
