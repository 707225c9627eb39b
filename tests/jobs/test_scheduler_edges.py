"""The scheduler at its edges: what it counts, what it forgets, and what it does not tell twice."""

from jobs_world import worker_info
from scheduler_walk import SPECS, Walk

from iriscw.fleet.messages import Cordon, DemandChanged, WorkerReady, WorkersMissed
from iriscw.jobs.messages import (
    AttemptsOver,
    Due,
    JobAbsent,
    JobReport,
    JobsKnown,
    LinkGone,
    LiveAttempt,
    Placed,
    Placement,
)
from iriscw.jobs.scheduling.state import DEMAND_INTERVAL
from iriscw.runtime.vocabulary import ActorPath, Undelivered

FIRST, OTHER = "slice-0-0", "slice-1-1"


def whole():
    """A scheduler with all workers there and linked."""
    walk = Walk()
    walk.settle()
    return walk


def spoken(walk, message, kind):
    """Have the scheduler decide; give what it tells of a kind."""
    told = []
    walk._told, kept = lambda name, each: (told.append(each), kept(name, each)), walk._told
    walk.send(message)
    walk._told = kept
    return [each for each in told if isinstance(each, kind)]


def test_a_cordon_counts_attempts_on_absent_workers_of_its_slice():
    """They may live there, though nobody has told of the worker; those of another slice do not count."""
    walk = Walk()
    walk.jobs["a"], walk.pending["a"] = {"u": (0, "slice-7-0", "x"), "v": (1, "slice-8-0", "x")}, {}
    walk.restart()
    walk.report("a")
    for worker_ids, live in ((("slice-7-0",), 1), (("slice-7-0", "slice-8-0"), 2), ((FIRST,), 0)):
        walk.send(Cordon("slice", worker_ids, 1))
        assert walk.answers[-1].live_attempts == live


def test_a_cordon_counts_older_incarnations():
    """Their attempts are not over before their jobs say so."""
    walk = whole()
    walk.introduce("b")
    (where,) = {attempt[1] for attempt in walk.jobs["b"].values() if attempt[1] == FIRST}
    assert where == FIRST
    walk.announce(FIRST, fresh=True)
    walk.cordon(FIRST)
    assert walk.answers[-1].live_attempts == 1


def test_a_worker_that_is_announced_is_open():
    """The fleet would not announce what it has closed: that question, or its end, was lost."""
    walk = whole()
    walk.cordon(FIRST)
    host = walk.state.inventory.hosts[FIRST]
    assert not host.placeable
    walk.announce(FIRST, fresh=False)
    assert walk.state.inventory.hosts[FIRST] is host
    assert host.placeable


def test_a_job_that_does_not_answer_waits_for_nothing():
    """Its tasks are no demand any more, and take nobody's turn; the jobs after it are asked."""
    walk = Walk()
    walk.introduce("a")
    assert sum(walk.demand.values()) == 3
    walk.send(JobAbsent("a"))
    while "demand-soon" in walk.clocks:
        walk.ring("demand-soon")
    assert sum(walk.demand.values()) == 0
    walk.settle()
    assert walk.jobs["a"] == {}
    fresh = Walk()
    fresh.state = type(fresh.state)()
    fresh.send(JobsKnown(("x", "y")))
    for name in ("x", "y"):
        fresh.send(JobAbsent(name))
    assert not fresh.state.syncing


def test_demand_is_told_when_it_changed_and_not_too_often():
    """The first at once, the next when the interval is over; what is the same is told by the slow clock alone."""
    walk = Walk()
    walk.introduce("a")
    assert sum(walk.demand.values()) == 3
    walk.introduce("c")
    assert sum(walk.demand.values()) == 3
    assert walk.clocks["demand-soon"].delay == DEMAND_INTERVAL
    walk.ring("demand-soon")
    assert sum(walk.demand.values()) == 5
    walk.withdraw("a")
    walk.ring("demand-soon")
    assert sum(walk.demand.values()) == 2
    walk.ctx.now += DEMAND_INTERVAL
    assert spoken(walk, JobAbsent("nobody"), DemandChanged) == []


def test_nothing_is_repeated_while_nothing_waits():
    """The clock goes on for the day when something does."""
    walk = whole()
    clock = walk.clocks["demand"]
    assert spoken(walk, clock.message, DemandChanged) == []
    assert walk.clocks["demand"] == clock


def test_what_the_fleet_missed_is_asked_again_anyway():
    """A question that found a full mailbox needs no clock of its own."""
    walk = whole()
    before = dict(walk.clocks)
    walk.send(Undelivered(ActorPath("/fleet"), WorkersMissed(())))
    assert walk.clocks == before


def test_anything_else_that_found_no_room_is_told_as_it_was():
    """Each under a clock of its own."""
    walk = whole()
    first, second = Cordon("s", (), 1), Cordon("s", (), 2)
    for message in (first, second):
        walk.send(Undelivered(ActorPath("/somebody"), message))
    clocks = [each for each in walk.clocks.values() if hasattr(each.message, "message")]
    assert [(each.message.to, each.message.message) for each in clocks] == [
        (ActorPath("/somebody"), first),
        (ActorPath("/somebody"), second),
    ]


def test_a_report_with_an_old_token_changes_nothing():
    """It was written before the last question."""
    walk = whole()
    walk.introduce("a")
    walk.awake("a")
    old = walk.asked["a"]
    walk.awake("a")
    walk.send(JobReport("a", old, 0, SPECS["a"], True, (), ()))
    assert walk.state.jobs["a"].reporting
    assert len(walk.state.jobs["a"].live) == 3
    walk.report("a")
    assert not walk.state.jobs["a"].reporting


def test_room_that_a_report_does_not_name_is_free():
    """The job never got it, or has given it back; what it names beyond that is taken."""
    walk = whole()
    walk.introduce("b")
    (gone, kept) = walk.jobs["b"]
    walk.awake("b")
    live = (LiveAttempt(kept, *walk.jobs["b"][kept]), LiveAttempt("new", 0, FIRST, walk.workers[FIRST]))
    walk.pending["b"] = {}
    walk.send(JobReport("b", walk.asked["b"], 0, SPECS["b"], True, (), live))
    assert {*walk.state.inventory.where} == {kept, "new"}
    assert gone not in walk.state.jobs["b"].live


def test_a_worker_that_changed_keeps_its_attempts():
    """The same incarnation with other attributes: what runs there runs on, and is counted there."""
    walk = whole()
    walk.introduce("a")
    host = walk.state.inventory.hosts[FIRST]
    number = len(host.commitments)
    assert number > 0
    info = worker_info(0, cpus=4, incarnation=walk.workers[FIRST], rack="r")
    walk.send(WorkerReady(info))
    again = walk.state.inventory.hosts[FIRST]
    assert again is not host
    assert (again.info, len(again.commitments)) == (info, number)
    assert again.free.cpu_milli == 4000 - number * 1000
    assert walk.lost == []


def test_the_end_of_the_grace_calls_absent_attempts_lost():
    """Not fenced: they may live. Asked for again they are fenced when the fleet knows."""
    walk = Walk()
    walk.jobs["a"], walk.pending["a"] = {"u": (0, "slice-7-0", "x")}, {}
    walk.restart()
    walk.report("a")
    assert walk.lost == []
    walk.send(Due("adoption"))
    assert [(each.worker_id, each.fenced) for each in walk.lost] == [("slice-7-0", False)]


def test_a_job_without_room_for_a_message_gets_nothing_until_it_has_reported():
    """What it was to be given is free again, and none of its tasks is placed before it has said what it needs."""
    walk = whole()
    walk.introduce("b")
    placed = Placed(tuple(Placement(index, uid, *where) for uid, (index, *where) in walk.jobs["b"].items()))
    walk.send(Undelivered(ActorPath("/jobs/b"), placed))
    assert walk.state.inventory.where == {}
    walk.jobs["b"], walk.pending["b"] = {}, {0: None, 1: None}
    walk.send(AttemptsOver("b", (), ((0, 2),)))
    assert walk.jobs["b"] == {}
    walk.ring(("awake", "b"))
    walk.report("b")
    assert len(walk.jobs["b"]) == 2


def test_a_link_that_began_too_early_is_told_when_all_is_known():
    """Whom to hear: before the jobs have reported the scheduler does not know either."""
    walk = whole()
    walk.introduce("b")
    walk.restart()
    walk.expects.clear()
    for worker in walk.workers:
        walk.link(worker)
    assert walk.expects == {}
    walk.report("b")
    used = {worker for _, worker, _ in walk.jobs["b"].values()}
    assert {name: expects.job_ids for name, expects in walk.expects.items()} == {
        worker: ("b",) if worker in used else () for worker in walk.workers
    }


def test_an_absent_worker_is_asked_for_as_soon_as_a_job_names_it():
    """A job may begin anew long after the scheduler did: it does not wait for the next one to be missed."""
    walk = whole()
    walk.introduce("b")
    walk.awake("b")
    walk.jobs["b"]["u"] = (0, "slice-7-0", "x")
    walk.report("b")
    assert walk.missed == {("slice-7-0", "x"): None}
    assert walk.clocks["missed"].message == Due("missed")
    walk.missed = {}
    walk.ring("missed")
    assert walk.missed == {("slice-7-0", "x"): None}


def test_a_worker_whose_link_is_gone_gets_nothing():
    """Until it has one again; the end of an earlier incarnation's link, or of a stranger's, says nothing of it."""
    walk = whole()
    for name, incarnation in ((FIRST, "earlier"), ("slice-7-0", walk.workers[FIRST])):
        walk.send(LinkGone(name, incarnation))
    assert all(host.placeable for host in walk.state.inventory.hosts.values())
    walk.unlink(FIRST)
    walk.unlink(OTHER)
    walk.introduce("b")
    assert {worker for _, worker, _ in walk.jobs["b"].values()} == {"slice-2-2"}
    walk.link(FIRST)
    assert {worker for _, worker, _ in walk.jobs["b"].values()} == {FIRST, "slice-2-2"}


def test_a_job_that_reports_that_it_is_over_is_forgotten():
    """That it was withdrawn may have been told to the scheduler before this one; what it holds is waited for."""
    walk = whole()
    walk.introduce("b")
    walk.withdraw("b")
    walk.restart()
    walk.report("b")
    assert [*walk.state.jobs] == ["b"]
    walk.over("b", list(walk.jobs["b"]), again=False)
    assert walk.state.jobs == {}
    walk.restart()
    walk.report("b")
    assert walk.state.jobs == {}


def test_a_late_clock_finds_nothing_to_tell():
    """Demand was told by another pass meanwhile: it is not put together again before it changes."""
    walk = Walk()
    walk.introduce("a")
    walk.introduce("c")
    walk.ctx.now += DEMAND_INTERVAL
    walk.introduce("b")
    assert sum(walk.demand.values()) == 7
    late = walk.clocks.pop("demand-soon")
    assert spoken(walk, late.message, DemandChanged) == []
    assert "demand-soon" not in walk.clocks


def test_demand_is_told_by_a_name_of_its_own():
    """Tasks that are placed alike share it, others have another one; after a restart each is called as before."""
    walk = Walk()
    for name in ("a", "b", "c"):
        walk.introduce(name)
    walk.ring("demand-soon")
    told, walk.demand = walk.demand, {}
    assert all(told)
    assert sorted(told.values()) == [2, 5]
    walk.restart()
    for name in ("c", "b", "a"):
        walk.report(name)
    assert walk.demand == told
