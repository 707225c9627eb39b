"""A slice at its edges: bounds, instants, and whom it tells what when something is missing, late or twice."""

from __future__ import annotations

import pytest
from slice_desk import NAME, brief, registered, send
from slice_walk import CONDITIONS, Walk

from iriscw.cloud.effects import CreateNodePool, DeleteNodePool, ListNodePools, ListPods
from iriscw.cloud.model import Gone, NoCapacity, Node, NodePool, Pod, PodPhase, Unavailable
from iriscw.fleet.messages import ActivityChanged, Cordon, WorkerLost, WorkerReady, WorkersMissed
from iriscw.fleet.model import PodState, SliceState, Trouble, worker_name
from iriscw.fleet.signals import (
    Dismiss,
    Overdue,
    PodBriefed,
    PodSeen,
    PodStarted,
    PodVanished,
    PoolSeen,
    PoolVanished,
    RemovePod,
    TryAgain,
)
from iriscw.fleet.slices.slice import MAX_POD_FAILURES
from iriscw.runtime.vocabulary import SECOND, Completed, Failed, Run, Tell

S = SliceState
FIRST, OTHER = worker_name(NAME, 0), worker_name(NAME, 1)


@pytest.fixture
def walk(piece, ctx):
    return lambda told=None: Walk(piece, ctx, told)


@pytest.fixture
def ready(walk):
    it = walk()
    it.settle()
    assert it.it.state is S.READY
    return it


@pytest.fixture
def pool(labels):
    def make(nodes=0, uid="u1", **changes):
        ready = tuple(Node(f"n{index}", f"nu{index}", ready=True) for index in range(nodes))
        return NodePool(NAME, uid, "1", labels(NAME), 2, nodes=ready, **changes)

    return make


@pytest.fixture
def pod(labels):
    def make(worker=FIRST, incarnation="i1", **changes):
        return Pod(f"{worker}-{incarnation}", "pu", "1", labels(NAME, worker, incarnation), **changes)

    return make


def told(commands, kind):
    return [each.message for each in commands if isinstance(each, Tell) and isinstance(each.message, kind)]


def runs(commands):
    return [each.effect for each in commands if isinstance(each, Run)]


# On the way


def test_a_node_that_is_lost_before_the_workers_are_there_sends_the_slice_back(walk):
    """It boots again, with a boot's clocks; its workers have not been shown to anybody."""
    it = walk()
    it.answer("pool")
    it.boot(2)
    assert it.it.state is S.INITIALIZING
    it.boot(1)
    assert it.it.state is S.BOOTING
    assert {"stage", "startup", "slow"} <= {*it.clocks}
    assert it.known == {}


def test_a_ready_slice_stays_ready_while_its_workers_are_in_contact(ready):
    """Whatever the cloud says of its nodes."""
    ready.boot(0)
    assert ready.it.state is S.READY


@pytest.mark.parametrize(("failures", "state"), [(MAX_POD_FAILURES - 1, S.INITIALIZING), (MAX_POD_FAILURES, S.FAILED)])
def test_a_place_may_fail_so_often(walk, failures, state):
    """Up to the bound it is trouble; with it the slice as a whole is replaced, and says whose pods failed."""
    it = walk()
    it.answer("pool")
    it.boot(2)
    it.report(OTHER, PodState.STARTING, failures)
    assert (it.it.state, it.it.trouble) == (state, Trouble.WORKERS)
    if state is S.FAILED:
        assert OTHER in it.it.reason


def test_users_read_what_a_worker_waits_for(walk):
    """The first place that has something to say, beside the count; a place without trouble is no trouble."""
    it = walk()
    it.answer("pool")
    it.boot(2)
    it.report(FIRST)
    it.report(OTHER, PodState.STARTING)
    assert it.it.reason == f"1 of 2 workers are registered; {OTHER}: pulling its image"
    assert it.it.trouble is Trouble.NONE


def test_waiting_for_machines_stops_and_starts_clocks_once(walk):
    """Seen twice it changes nothing; when machines come, a whole boot is granted, once."""
    it = walk()
    it.answer("pool")
    waits, boots = CONDITIONS["waits for machines"], CONDITIONS["boots"]
    it.show(conditions=waits)
    assert not {"stage", "startup", "slow"} & {*it.clocks}
    it.show(conditions=waits)
    it.show(conditions=boots)
    assert {"stage", "startup", "slow"} <= {*it.clocks}
    del it.clocks["stage"]
    it.show(conditions=boots)
    assert "stage" not in it.clocks


def test_a_create_that_waits_for_machines_has_no_deadline_until_it_is_heard(walk):
    """Refused for capacity its clocks stop; another refusal, which is none of capacity, starts them again."""
    it = walk()
    it.answer("pool", NoCapacity("no machines"))
    assert (it.it.trouble, it.it.state) == (Trouble.CAPACITY, S.CREATING)
    assert {*it.clocks} == {"pool"}
    it.ring("pool")
    it.answer("pool", Unavailable("x"))
    assert {"stage", "startup"} <= {*it.clocks}
    assert it.it.trouble is Trouble.API
    del it.clocks["stage"]
    it.ring("pool")
    it.answer("pool", Unavailable("x"))
    assert "stage" not in it.clocks


def test_calls_that_fail_in_a_row_are_repeated_ever_later(walk):
    """And the count starts anew with the first that goes well."""
    it = walk()
    delays = []
    for _ in range(5):
        it.answer("pool", Unavailable("x"))
        delays.append(it.clocks["pool"].delay)
        it.ring("pool")
    assert delays[4] > 5 * delays[0]
    it.answer("pool")
    assert it.it.retries == 0


@pytest.mark.parametrize("trouble", [Trouble.NONE, Trouble.WORKERS])
def test_a_slow_boot_is_said_if_nothing_worse_is(walk, trouble):
    """A deadline of one's own does not hide what is wrong already; a ready slice is never slow."""
    it = walk()
    it.answer("pool")
    it.it.trouble = trouble
    it.ring("slow")
    assert it.it.trouble is (trouble if trouble is not Trouble.NONE else Trouble.SLOW_BOOT)
    it.settle()
    it.send(Overdue("slow"))
    assert (it.it.state, it.it.trouble) == (S.READY, Trouble.NONE)


@pytest.mark.parametrize("what", ["requesting", "boot", "init", "startup"])
def test_no_deadline_condemns_a_ready_slice(ready, what):
    """It came in time, and a clock that rang before it was stopped is late itself."""
    ready.send(Overdue(what))
    assert ready.it.state is S.READY


@pytest.mark.parametrize(("what", "span"), [("stage", "boot_timeout"), ("startup", "startup_grace")])
def test_users_read_what_took_too_long(walk, what, span):
    """For how long it was waited, and what was last said."""
    it = walk()
    it.answer("pool")
    said = it.it.reason
    seconds = getattr(it.it.seed.config.timing, span) // SECOND
    it.ring(what)
    assert it.it.state is S.FAILED
    assert f"within {seconds} s ({said})" in it.it.reason


def test_each_clock_lasts_for_its_whole_span(walk):
    """Neither longer nor shorter: a stage, the whole start, the grace of pods, and the patience with a deletion."""
    it = walk()
    timing = it.it.seed.config.timing

    def lasts(clock):
        return it.clocks[clock].delay

    assert (lasts("stage"), lasts("startup")) == (timing.requesting_timeout, timing.startup_grace)
    it.answer("pool")
    assert (lasts("stage"), lasts("startup")) == (timing.boot_timeout, timing.startup_grace)
    it.boot(2)
    assert lasts("stage") == timing.init_timeout
    it.send(Dismiss("idle"))
    assert (lasts("pods"), lasts("stuck")) == (timing.pod_grace, timing.deletion_patience)


# Restarts


def test_an_adopted_slice_that_is_whole_is_opened(walk, pool, pod):
    """What an earlier controller closed, or may have shown, is closed first and opened as a whole."""
    it = walk(brief(pool(2), uid="u1", pods=(pod(), pod(OTHER))))
    assert {*it.places} == {FIRST, OTHER}
    assert it.closed is not None
    for name in (FIRST, OTHER):
        it.report(name)
    assert (it.it.state, it.closed) == (S.READY, None)


def test_a_doomed_slice_with_a_pool_deletes_that_one(walk, pool):
    """By the uid that is shown, whatever the journal says."""
    it = walk(brief(pool(uid="u7"), uid="u1", doomed="idle"))
    it.send(Dismiss("idle"))
    assert it.calls["pool"] == [DeleteNodePool(NAME, "u7")]


def test_a_briefed_slice_is_not_briefed_again(ready, pool):
    """The second briefing is an answer to a question that was put twice."""
    assert ready.send(brief(pool(uid="u9"), doomed="x")) == ()
    assert ready.it.state is S.READY


@pytest.mark.parametrize("message", [PoolVanished("u1"), Dismiss("x"), WorkersMissed(((FIRST, "i1"),))])
def test_nothing_is_done_before_the_briefing(piece, ctx, message, pool, pod):
    """What a slice does not know it cannot judge."""
    it = piece(num_vms=2)
    for each in (message, PoolSeen(pool()), PodSeen(pod()), PodVanished(pod())):
        assert send(it, ctx, each) == ()
    assert it.state is S.REQUESTED


def test_pods_are_passed_on_to_their_places(ready, pod):
    """What is seen, and what is gone."""
    second, first = pod(incarnation="i2"), pod(incarnation="i1")
    for each in (second, first):
        (passed,) = ready.send(PodSeen(each))
        assert (passed.to.name, passed.message) == (FIRST, PodSeen(each))
    (passed,) = ready.send(PodVanished(second))
    assert (passed.to.name, passed.message) == (FIRST, PodVanished(second))


def test_the_briefing_of_a_place_has_what_exists(ready, pod):
    """Not what has vanished."""
    for incarnation in ("i2", "i1", "i3"):
        ready.send(PodSeen(pod(incarnation=incarnation)))
    ready.send(PodVanished(pod(incarnation="i3")))
    (briefed,) = told(ready.send(PodStarted(FIRST)), PodBriefed)
    assert briefed == PodBriefed((pod(incarnation="i1"), pod(incarnation="i2")))
    assert told(ready.send(PodStarted(OTHER)), PodBriefed) == [PodBriefed(())]


def test_pods_of_places_that_nobody_started_vanish_unseen(walk, pod):
    """There is nobody to tell."""
    assert walk().send(PodVanished(pod())) == ()


@pytest.mark.parametrize(
    ("worker", "index"),
    [(FIRST, True), (f"{NAME}-2", False), (f"{NAME}-01", False), (f"{NAME}-x", False), ("iris-gpu-b-0", False)],
)
def test_only_a_place_of_this_slice_gets_a_pod(ready, labels, worker, index):
    """Any other pod under its label is deleted."""
    stray = Pod("x", "pu", "1", labels(NAME, worker, "i1"))
    commands = ready.send(PodSeen(stray))
    assert bool(runs(commands)) != index


# Attempts


def test_attempts_of_a_worker_that_is_gone_do_not_count(ready):
    """Whether it is unregistered, or its place failed for good."""
    for name in (FIRST, OTHER):
        ready.run(name, 2)
    ready.report(FIRST, PodState.STARTING)
    assert ready.it.live_total == 2
    ready.end(OTHER)
    assert ready.it.live_total == 0


def test_a_count_replaces_the_one_before(ready):
    """Per worker; a slice that ran anything is used from then on."""
    assert not ready.it.used
    for name, count, total in ((FIRST, 2, 2), (FIRST, 1, 1), (OTHER, 3, 4), (FIRST, 0, 3)):
        ready.run(name, count)
        assert ready.it.live_total == total
    assert ready.it.used
    assert ready.send(ActivityChanged(FIRST, "another", 7)) == ()
    assert ready.send(ActivityChanged(f"{NAME}-5", "i1", 7)) == ()


def test_nothing_run_is_not_used(ready):
    """A count of none says nothing about having been used."""
    ready.run(FIRST, 0)
    assert not ready.it.used


# Missed workers


def test_a_missed_worker_of_an_incomplete_slice_is_announced_closed(ready):
    """What runs there goes on, and nothing more comes; a ready slice is not closed for it."""
    mine = ready.places[FIRST].info
    missed = WorkersMissed(((FIRST, mine.incarnation),))
    assert [type(each) for each in [*told(ready.send(missed), WorkerReady | Cordon)]] == [WorkerReady]
    ready.report(OTHER, PodState.STARTING)
    announced, closed = told(ready.send(missed), WorkerReady | Cordon)
    assert (announced, closed.worker_ids) == (WorkerReady(mine), (FIRST,))
    ready.send(Dismiss("enough"))
    assert told(ready.send(missed), WorkerReady | Cordon) == []


def test_a_missed_worker_whose_pod_lives_is_waited_for(ready, pod):
    """One whose pod ended is lost for good; one without a pod is looked for, with one list at a time."""
    ready.send(PodSeen(pod(incarnation="old", phase=PodPhase.RUNNING)))
    assert ready.send(WorkersMissed(((FIRST, "old"),))) == ()
    ready.send(PodSeen(pod(incarnation="old", phase=PodPhase.FAILED, reason="OOMKilled")))
    (lost,) = told(ready.send(WorkersMissed(((FIRST, "old"),))), WorkerLost)
    assert (lost.fenced, "OOMKilled" in lost.reason) == (True, True)
    assert runs(ready.send(WorkersMissed(((FIRST, "none"),)))) == [ListPods(ready.it.seed.labels)]
    assert ready.send(WorkersMissed(((OTHER, "none"),))) == ()
    (lost,) = told(ready.send(Completed("missed", ListPods({}), ())), WorkerLost)
    assert (lost.worker_id, lost.incarnation, lost.fenced) == (FIRST, "none", True)
    assert ready.send(Completed("missed", ListPods({}), ())) == ()


# The end


def test_a_stuck_deletion_says_what_is_stuck(ready):
    """Pods while it drains, the pool after that; it is said once, and the pool is asked to go again."""
    ready.send(Dismiss("enough"))
    ready.send(Overdue("deletion"))
    assert "worker pods" in ready.it.reason
    assert (ready.it.stuck, ready.it.trouble) == (True, Trouble.STUCK_DELETION)
    ready.ring("pods")
    ready.it.stuck = False
    ready.answer("pool")
    commands = ready.send(Overdue("deletion"))
    assert "node pool" in ready.it.reason
    assert [type(each) for each in runs(commands)] == [DeleteNodePool]
    assert runs(ready.send(Overdue("deletion"))) == []
    ready.it.stuck = False
    ready.lose_pool()
    assert runs(ready.send(Overdue("deletion"))) == []
    assert "worker pods" in ready.it.reason


@pytest.mark.parametrize("state", [S.READY, S.FAILED])
def test_no_deletion_is_stuck_before_it_began(ready, state):
    """A clock that rings late says nothing."""
    if state is S.FAILED:
        ready.end(FIRST)
    ready.send(Overdue("deletion"))
    assert not ready.it.stuck


def test_a_slice_told_to_go_again_repeats_itself(ready):
    """While it drains; after that there is nobody left to be told."""
    ready.send(Dismiss("enough"))
    assert len(told(ready.send(Dismiss("again")), RemovePod)) == 2
    ready.ring("pods")
    assert told(ready.send(Dismiss("again")), RemovePod) == []


def test_a_pool_that_is_gone_while_pods_drain_is_not_deleted(ready):
    """The slice is gone with its last pod."""
    ready.send(Dismiss("enough"))
    ready.lose_pool()
    ready.ring("pods")
    assert ready.it.state is S.DELETING
    assert ready.calls == {}
    for name in (FIRST, OTHER):
        ready.report(name, PodState.REMOVED)
    assert (ready.it.state, ready.clocks) == (S.GONE, {})


def test_what_a_late_create_brought_is_deleted_too(ready, pool):
    """A pool of another uid than the one that is being deleted: one deletion for each, by uid."""
    ready.send(Dismiss("enough"))
    ready.ring("pods")
    fresh = pool(uid="u99")
    assert runs(ready.send(PoolSeen(fresh))) == [DeleteNodePool(NAME, "u99")]
    assert runs(ready.send(PoolSeen(fresh))) == []


def test_a_pool_of_another_uid_is_no_pool_of_a_ready_slice(ready, pool):
    """It was replaced from outside: the slice fails."""
    ready.send(PoolSeen(pool(2, uid="u99")))
    assert (ready.it.state, ready.it.trouble) == (S.FAILED, Trouble.WORKERS)


def test_the_absence_of_another_pool_says_nothing(ready):
    """Only the uid that was to be deleted can be gone."""
    ready.send(Dismiss("enough"))
    ready.ring("pods")
    uid = ready.it.pool_uid
    assert ready.send(Failed("pool", DeleteNodePool(NAME, "u99"), Gone("x"))) == ()
    ready.send(Failed("pool", DeleteNodePool(NAME, uid), Gone("x")))
    assert ready.it.pool_gone


def test_a_slice_that_never_saw_its_pool_looks_for_it(walk):
    """And for nothing once it is told that there is none."""
    it = walk()
    it.answer("pool", Unavailable("x"))
    it.send(Dismiss("enough"))
    assert it.calls["pool"] == [ListNodePools(it.it.seed.labels)]
    it.answer("pool")
    assert it.it.state is S.GONE


def test_a_look_that_fails_says_nothing_of_a_pool_that_was_seen_meanwhile(walk):
    """The watch was faster, and shows what the pool waits for (seed 1111585, INV-F5)."""
    it = walk(brief(uid="u1"))
    (look,) = it.calls["pool"]
    it.pool = NodePool(NAME, "u1", "1", dict(it.it.seed.labels), it.size)
    it.show(conditions=CONDITIONS["waits for machines"])
    assert (it.it.state, it.it.trouble) == (S.BOOTING, Trouble.CAPACITY)
    before = it.it.reason
    assert it.send(Failed("pool", look, Unavailable("x"))) == ()
    assert (it.it.trouble, it.it.reason, it.it.retries) == (Trouble.CAPACITY, before, 0)


def test_a_repeated_call_is_the_one_that_is_needed(walk):
    """A create while it is asked for, a look for a pool that was promised, a deletion while one is owed."""
    it = walk()
    it.answer("pool", Unavailable("x"))
    assert runs(it.send(TryAgain("pool"))) == [CreateNodePool(it.it.seed.pool)]
    other = walk(brief(uid="u1"))
    assert runs(other.send(TryAgain("pool"))) == [ListNodePools(other.it.seed.labels)]
    it.answer("pool")
    assert it.send(TryAgain("pool")) == ()
    it.send(Dismiss("enough"))
    assert runs(it.send(TryAgain("pool"))) == [DeleteNodePool(NAME, it.it.pool_uid)]


def test_what_was_not_heard_is_told_again(ready):
    """A report that found a full mailbox: the whole truth, as it is by then."""
    ready.reported = None
    ready.send(TryAgain("retell"))
    assert ready.reported == ready.truth()


def test_a_registered_worker_is_announced_when_it_is_another(ready):
    """To a scheduler that knows the one before."""
    again = registered(ready.it, 0, "i99")
    assert told(ready.send(again), WorkerReady) == [WorkerReady(again.info)]
    assert told(ready.send(again), WorkerReady) == []


def test_a_create_that_lands_after_the_pool_vanished_is_looked_for(walk):
    """It was sent twice, and answered by silence each time: the second pool may be there when the first has gone."""
    it = walk()
    steps = ("the create lands, unanswered", "ring pool", "0 nodes", "pool vanishes", "the create lands, unanswered")
    for step in steps:
        dict(it.choices())[step]()
    it.send(Dismiss("enough"))
    it.settle()
    assert (it.it.state, it.pool) == (S.GONE, None)


def test_a_slice_that_goes_waits_for_the_answer_to_its_create(walk):
    """Its pool has vanished, and another one may come of the create that is under way."""
    it = walk()
    for step in ("the create lands, unanswered", "ring pool", "0 nodes", "dismiss", "pool vanishes"):
        dict(it.choices())[step]()
    assert it.it.state is S.DELETING
    it.lose_answer()
    it.settle()
    assert (it.it.state, it.pool) == (S.GONE, None)
