"""A slice on its way and ready: what it asks of the cloud, its clocks, its places, and whom it tells what."""

from __future__ import annotations

import copy

import attrs
import pytest
from slice_desk import (
    FIRST,
    NAME,
    OTHER,
    brief,
    registered,
    runs,
    send,
    stopped,
    timers,
    told,
    unregistered,
    whole,
)
from slice_walk import CONDITIONS, Walk

from iriscw.cloud.effects import CreateNodePool, DeleteNodePool, DeletePod, ListNodePools
from iriscw.cloud.model import (
    Condition,
    Conflict,
    Forbidden,
    InvalidSpec,
    NoCapacity,
    NodePool,
    Pod,
    QuotaExceeded,
    Throttled,
    Unavailable,
)
from iriscw.fleet.messages import (
    ActivityChanged,
    Cordon,
    Cordoned,
    SchedulerStarted,
    Uncordon,
    WorkerReady,
    WorkersMissed,
)
from iriscw.fleet.model import PodState, SliceState, Trouble
from iriscw.fleet.signals import (
    CordonAnswered,
    Dismiss,
    Overdue,
    PodBriefed,
    PodSeen,
    PodStarted,
    PodVanished,
    PoolSeen,
    PoolVanished,
    RemovePod,
    SliceReported,
    TryAgain,
)
from iriscw.fleet.slices.slice import MAX_POD_FAILURES
from iriscw.runtime.vocabulary import SECOND, ActorPath, Completed, Failed, Spawn, StopReason, Terminated, Undelivered

S = SliceState
TO_READY = {"stage", "startup", "slow"}


@pytest.fixture
def walk(piece, ctx):
    """A slice of two workers before an honest world."""
    return lambda told=None: Walk(piece, ctx, told)


@pytest.fixture
def lived(walk):
    """The same, and it is ready."""
    it = walk()
    it.settle()
    assert it.it.state is S.READY
    return it


@pytest.fixture
def ready(piece, ctx, pool):
    """A ready slice of two workers, of incarnation ``i1`` each."""
    return whole(piece(num_vms=2), ctx, pool)


# The beginning


def test_new_slice_asks_for_its_pool(piece, ctx):
    """Without a pool in journal or cloud, one is asked for, with its group's labels."""
    it = piece()
    (create,) = runs(send(it, ctx, brief()))
    assert isinstance(create, CreateNodePool)
    assert create.spec.labels["iris-slice-id"] == NAME
    assert it.state is S.CREATING


def test_promised_pool_that_is_gone_is_not_created_again(piece, ctx):
    """A pool the journal knows is looked for, and its absence is a failure, never a new create."""
    it = piece()
    (look,) = runs(send(it, ctx, brief(uid="u1")))
    assert isinstance(look, ListNodePools)
    assert runs(send(it, ctx, Completed("pool", look, ()))) == []
    assert it.state is S.FAILED


def test_doomed_slice_only_waits_for_its_dismissal(piece, ctx, pool):
    """It creates and deletes nothing before it is told to; then the pool that is shown, whatever the journal says."""
    it = piece()
    assert runs(send(it, ctx, brief(pool(uid="u7"), uid="u1", doomed="idle"))) == []
    assert it.state is S.FAILED
    assert runs(send(it, ctx, Dismiss("idle"))) == [DeleteNodePool(NAME, "u7")]


def test_adopted_slice_is_closed_until_it_is_whole(walk, pool, pod):
    """The scheduler may know it from before: it gets no work before it is opened as a whole (INV-F6)."""
    it = walk(brief(pool(2), uid="u1", pods=(pod(), pod(worker=OTHER))))
    assert {*it.places} == {FIRST, OTHER}
    assert it.closed is not None
    for name in (FIRST, OTHER):
        it.report(name)
    assert (it.it.state, it.closed) == (S.READY, None)


def test_a_briefed_slice_is_not_briefed_again(ready, ctx, pool):
    """The second briefing is an answer to a question that was put twice."""
    assert send(ready, ctx, brief(pool(uid="u9"), doomed="x")) == ()
    assert ready.state is S.READY


def test_nothing_is_done_before_the_briefing(piece, ctx, pool, pod):
    """What a slice does not know it cannot judge."""
    it = piece(num_vms=2)
    for each in (PoolVanished("u1"), Dismiss("x"), WorkersMissed(((FIRST, "i1"),)), PoolSeen(pool()), PodSeen(pod())):
        assert send(it, ctx, each) == ()
    assert send(it, ctx, PodVanished(pod())) == ()
    assert it.state is S.REQUESTED


# What the cloud asks for, and what it says


@pytest.mark.parametrize(
    ("error", "state", "trouble"),
    [
        (QuotaExceeded("q"), S.FAILED, Trouble.QUOTA),
        (InvalidSpec("i"), S.FAILED, Trouble.INVALID),
        (Conflict("c"), S.FAILED, Trouble.NAME_TAKEN),
        (NoCapacity("n"), S.CREATING, Trouble.CAPACITY),
        (Unavailable("u"), S.CREATING, Trouble.API),
        (Forbidden("f"), S.CREATING, Trouble.FORBIDDEN),
    ],
)
def test_refused_creates_are_told_apart(piece, ctx, error, state, trouble):
    """Each refusal of a create has a state and a reaction of its own (INV-F5)."""
    it = piece()
    (create,) = runs(send(it, ctx, brief()))
    send(it, ctx, Failed("pool", create, error))
    assert (it.state, it.trouble) == (state, trouble)
    assert str(error) in it.reason


@pytest.mark.parametrize("uid", ["", "u1"], ids=["create", "list"])
def test_a_call_that_failed_is_told_and_repeated_when_the_cloud_allows(piece, ctx, uid):
    """Not before the time that the cloud named, nor before one's own pause; users read why the slice waits."""
    it = piece()
    (call,) = runs(send(it, ctx, brief(uid=uid)))
    for error, least in ((Throttled(retry_after=300 * SECOND), 300 * SECOND), (Throttled(retry_after=1), 2)):
        commands = send(it, ctx, Failed("pool", call, error))
        assert timers(commands)["pool"].delay >= least
        (report,) = told(commands, SliceReported)
        assert (report.row.trouble, report.row.reason) == (Trouble.API, str(error))


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


def test_waiting_for_machines_stops_and_starts_clocks_once(walk):
    """No deadline runs meanwhile, and users are promised no time; when machines come, a whole boot is granted, once
    (INV-F5).
    """
    it = walk()
    it.answer("pool")
    waits, boots = CONDITIONS["waits for machines"], CONDITIONS["boots"]
    it.show(conditions=waits)
    assert not TO_READY & {*it.clocks}
    assert (it.it.trouble, it.it.row().expected_at) == (Trouble.CAPACITY, None)
    it.show(conditions=waits)
    it.show(conditions=boots)
    assert {*it.clocks} >= TO_READY
    assert it.it.trouble is Trouble.NONE
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


def test_the_answer_to_a_create_is_older_than_what_was_seen(piece, ctx, pool):
    """A pool that the watch has shown to wait for machines does not boot again because a slow answer shows it as it
    was made: it would be condemned for a boot that never began. Seeds 206 and 301 of the simulated world.
    """
    it = piece()
    (create,) = runs(send(it, ctx, brief()))
    queued = pool(total=1, conditions=CONDITIONS["waits for machines"])
    send(it, ctx, PoolSeen(queued))
    commands = send(it, ctx, Completed("pool", create, pool(total=1)))
    assert (it.pool, it.trouble) == (queued, Trouble.CAPACITY)
    assert timers(commands) == {}


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


def test_credentials_that_are_refused_are_told_until_the_first_answer(piece, ctx, pool):
    """The trouble has their name, whatever else fails meanwhile gets its own, and a deadline does not hide it."""
    it = piece()
    (create,) = runs(send(it, ctx, brief()))
    for error, trouble in ((Forbidden("f"), Trouble.FORBIDDEN), (Unavailable("u"), Trouble.API)) * 2:
        send(it, ctx, Failed("pool", create, error))
        assert it.trouble is trouble
    unheard = copy.deepcopy(it)
    send(unheard, ctx, PoolSeen(pool(total=1, in_progress_nodes=1)))
    assert (unheard.state, unheard.trouble) == (S.BOOTING, Trouble.NONE)
    send(it, ctx, Failed("pool", create, Forbidden("f")))
    late = copy.deepcopy(it)
    send(late, ctx, Overdue("requesting"))
    assert (late.state, late.trouble) == (S.FAILED, Trouble.FORBIDDEN)
    assert late.reason.endswith("(f)")
    send(it, ctx, PoolSeen(pool(total=1)))
    assert (it.state, it.trouble) == (S.BOOTING, Trouble.NONE)


def test_quota_that_shows_later_is_quota(piece, ctx, pool):
    """A pool that exists already may be refused still."""
    it = piece(num_vms=2)
    send(it, ctx, brief(pool()))
    send(it, ctx, PoolSeen(pool(conditions=(Condition("Quota", "False", "Over", "quota exceeded"),))))
    assert (it.state, it.trouble) == (S.FAILED, Trouble.QUOTA)


@pytest.mark.parametrize(("nodes", "total"), [(0, 1), (1, 1), (0, 3), (3, 3)])
def test_a_pool_of_another_size_fails_its_slice_at_once(piece, ctx, pool, nodes, total):
    """Its own size says nothing of the slice's, whether it is on the way or was ready (seed 9179, INV-F6)."""
    it = piece(num_vms=2)
    send(it, ctx, brief(pool()))
    send(it, ctx, PoolSeen(pool(nodes=nodes, total=total)))
    assert (it.state, it.trouble) == (S.FAILED, Trouble.WORKERS)
    assert f"resized from outside: {total} nodes, not 2" in it.reason


@pytest.mark.parametrize("how", ["removed", "replaced", "being deleted", "resized"])
def test_what_others_do_to_the_pool_of_a_ready_slice_fails_it(ready, ctx, pool, how):
    """It says what happened, and its group is told: it never waits for a node that will not come."""
    seen = {"replaced": pool(2, uid="u99"), "being deleted": pool(2, deleting=True), "resized": pool(2, total=1)}
    (report,) = told(send(ready, ctx, PoolSeen(seen[how]) if how in seen else PoolVanished("u1")), SliceReported)
    assert (report.row.state, report.row.trouble) == (S.FAILED, Trouble.WORKERS)
    assert f"{how} from outside" in report.row.reason


# Nodes and deadlines


def test_places_start_only_when_all_nodes_are_ready(piece, ctx, pool):
    """Pods come after all nodes, all at once (gang admission); a place that begins then is no news."""
    it = piece(num_vms=2)
    assert not [c for c in send(it, ctx, brief(pool(nodes=1))) if isinstance(c, Spawn)]
    assert len([c for c in send(it, ctx, PoolSeen(pool(nodes=2))) if isinstance(c, Spawn)]) == 2
    assert [type(each.message) for each in send(it, ctx, PodStarted(FIRST))] == [PodBriefed]


def test_a_node_that_is_lost_before_the_workers_are_there_sends_the_slice_back(walk):
    """It boots again, with a boot's clocks; its workers have not been shown to anybody."""
    it = walk()
    it.answer("pool")
    it.boot(2)
    assert it.it.state is S.INITIALIZING
    it.boot(1)
    assert it.it.state is S.BOOTING
    assert {*it.clocks} >= TO_READY
    assert it.known == {}


def test_a_ready_slice_stays_ready_while_its_workers_are_in_contact(lived):
    """Whatever the cloud says of its nodes."""
    lived.boot(0)
    assert lived.it.state is S.READY


@pytest.mark.parametrize(
    ("what", "condemned"),
    [
        ("requesting", [S.CREATING]),
        ("boot", [S.CREATING, S.BOOTING]),
        ("init", [S.INITIALIZING]),
        ("startup", [S.CREATING, S.BOOTING, S.INITIALIZING]),
    ],
)
def test_deadlines_apply_to_their_stage(piece, ctx, pool, ready, what, condemned):
    """Each condemns its own stage, and no other: one that rings late says nothing of a ready slice."""
    found = []
    for shown in (None, pool(total=1), pool(1, total=1)):
        it = piece()
        send(it, ctx, brief(shown))
        stage = it.state
        send(it, ctx, Overdue(what))
        if it.state is S.FAILED:
            found.append(stage)
    assert found == condemned
    send(ready, ctx, Overdue(what))
    assert ready.state is S.READY


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

    def lasts(*clocks):
        return tuple(it.clocks[clock].delay for clock in clocks)

    assert lasts("stage", "startup") == (timing.requesting_timeout, timing.startup_grace)
    it.answer("pool")
    assert lasts("stage", "startup") == (timing.boot_timeout, timing.startup_grace)
    it.boot(2)
    assert lasts("stage") == (timing.init_timeout,)
    it.send(Dismiss("idle"))
    assert lasts("pods", "stuck") == (timing.pod_grace, timing.deletion_patience)


@pytest.mark.parametrize("trouble", [Trouble.NONE, Trouble.WORKERS])
def test_a_slow_boot_is_said_if_nothing_worse_is(walk, trouble):
    """It does not hide what is wrong already, and ends with the boot; a ready slice is never slow."""
    it = walk()
    it.answer("pool")
    it.it.trouble = trouble
    it.ring("slow")
    assert it.it.trouble is (trouble if trouble is not Trouble.NONE else Trouble.SLOW_BOOT)
    it.boot(2)
    assert (it.it.state, it.it.trouble) == (S.INITIALIZING, Trouble.NONE)
    it.settle()
    it.send(Overdue("slow"))
    assert (it.it.state, it.it.trouble) == (S.READY, Trouble.NONE)


# Places


@pytest.mark.parametrize(("failures", "state"), [(MAX_POD_FAILURES - 1, S.INITIALIZING), (MAX_POD_FAILURES, S.FAILED)])
def test_a_place_may_fail_so_often(walk, failures, state):
    """Up to the bound it is trouble; with it the slice as a whole is replaced, and says whose pods failed."""
    it = walk()
    it.answer("pool")
    it.boot(2)
    it.report(OTHER, PodState.STARTING, failures)
    assert (it.it.state, it.it.trouble) == (state, Trouble.WORKERS)
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


def test_a_worker_whose_pod_is_refused_is_the_slices_trouble(piece, ctx, pool):
    """Users read at the slice that credentials are refused, before anything else; and no longer than it is so."""
    it = piece(num_vms=2)
    refused = attrs.evolve(unregistered(1, PodState.CREATING), refused=True, reason="no right")
    send(it, ctx, brief(pool(nodes=2)))
    send(it, ctx, unregistered(0, failures=1))
    send(it, ctx, refused)
    assert it.trouble is Trouble.FORBIDDEN
    assert it.reason.endswith("-1: no right")
    send(it, ctx, unregistered(1))
    assert it.trouble is Trouble.WORKERS
    for report in (refused, unregistered(0), unregistered(1)):
        send(it, ctx, report)
    assert it.trouble is Trouble.NONE


def test_trouble_with_workers_stays_while_nodes_are_ready(ready, ctx, pool):
    """What a pool shows says nothing about what is wrong with workers."""
    send(ready, ctx, unregistered(1))
    assert ready.state is S.INITIALIZING
    ready.trouble = Trouble.WORKERS
    send(ready, ctx, PoolSeen(pool(nodes=2)))
    assert ready.trouble is Trouble.WORKERS


def test_pods_are_passed_on_to_their_places(ready, ctx, pod):
    """What is seen, and what is gone; a place that begins is briefed of what exists."""
    second, first, third = (pod(each) for each in ("i2", "i1", "i3"))
    for message in (PodSeen(second), PodSeen(first), PodSeen(third), PodVanished(third)):
        (passed,) = send(ready, ctx, message)
        assert (passed.to.name, passed.message) == (FIRST, message)
    assert told(send(ready, ctx, PodStarted(FIRST)), PodBriefed) == [PodBriefed((first, second))]
    assert told(send(ready, ctx, PodStarted(OTHER)), PodBriefed) == [PodBriefed(())]


def test_pods_of_places_that_nobody_started_vanish_unseen(walk, pod):
    """There is nobody to tell."""
    assert walk().send(PodVanished(pod())) == ()


@pytest.mark.parametrize("worker", [f"{NAME}-2", f"{NAME}-01", f"{NAME}-x", "iris-gpu-b-0"])
def test_a_pod_without_a_place_is_deleted(ready, ctx, labels, worker):
    """By name and uid, and nothing else is done about it, whatever the answer is."""
    (run,) = send(ready, ctx, PodSeen(Pod("x", "u9", "1", labels(NAME, worker, "i1"))))
    assert (run.key, run.effect) == (("stray", "x"), DeletePod("x", "u9"))
    assert send(ready, ctx, Failed(("stray", "x"), run.effect, Unavailable("x"))) == ()


def test_a_place_that_begins_anew_makes_the_slice_incomplete(ready, ctx):
    """It is closed at once, and said to be."""
    commands = send(ready, ctx, PodStarted(OTHER))
    (cordon,) = told(commands, Cordon)
    assert cordon.worker_ids == (FIRST,)
    assert [report.row.state for report in told(commands, SliceReported)] == [ready.state] == [S.INITIALIZING]


def test_a_place_that_failed_for_good_condemns_the_slice(ready, ctx):
    """It fails with all that follows: its clocks stop, its worker is closed, its group is told."""
    commands = send(ready, ctx, Terminated(ActorPath(f"/fleet/gpu/{NAME}/{FIRST}"), StopReason.QUARANTINED))
    assert {*stopped(commands)} >= TO_READY
    assert told(commands, Cordon)
    assert [report.row.state for report in told(commands, SliceReported)] == [ready.state] == [S.FAILED]


# Attempts


def test_idle_clock_counts_attempts_of_the_present_incarnation(ready, ctx):
    """Idle begins when the last attempt ends; what another incarnation ran does not count."""
    first = ready.idle_since
    ctx.later(5)
    send(ready, ctx, ActivityChanged(FIRST, "i1", 2))
    assert ready.idle_since is None
    send(ready, ctx, ActivityChanged(OTHER, "old", 7))
    assert ready.live_total == 2
    ctx.later(5)
    send(ready, ctx, ActivityChanged(FIRST, "i1", 0))
    assert ready.idle_since == first + 10 * SECOND


def test_a_count_replaces_the_one_before(lived):
    """Per worker; a slice that ran anything is used from then on."""
    lived.run(FIRST, 0)
    assert not lived.it.used
    for name, count, total in ((FIRST, 2, 2), (FIRST, 1, 1), (OTHER, 3, 4), (FIRST, 0, 3)):
        lived.run(name, count)
        assert lived.it.live_total == total
    assert lived.it.used
    assert lived.send(ActivityChanged(FIRST, "another", 7)) == ()
    assert lived.send(ActivityChanged(f"{NAME}-5", "i1", 7)) == ()


def test_attempts_of_a_worker_that_is_gone_do_not_count(lived):
    """Whether it is unregistered, or its place failed for good."""
    for name in (FIRST, OTHER):
        lived.run(name, 2)
    lived.report(FIRST, PodState.STARTING)
    assert lived.it.live_total == 2
    lived.end(OTHER)
    assert lived.it.live_total == 0


@pytest.mark.parametrize("incarnation", ["i1", "i2"])
def test_what_an_earlier_incarnation_ran_does_not_count(ready, ctx, incarnation):
    """It is over, or never to be trusted again; the same one runs what it ran, and is not announced again."""
    send(ready, ctx, ActivityChanged(FIRST, "i1", 2))
    report = registered(ready, 0, incarnation)
    other = incarnation != "i1"
    assert told(send(ready, ctx, report), WorkerReady) == ([WorkerReady(report.info)] if other else [])
    assert (ready.live_total, ready.idle_since) == ((0, ctx.now) if other else (2, None))


# The scheduler


def test_incomplete_slice_closes_itself(ready, ctx):
    """A slice that loses a worker takes no new work until it is whole again, and is opened once (INV-F6)."""
    (cordon,) = told(send(ready, ctx, unregistered(1)), Cordon)
    assert cordon.worker_ids == (FIRST,)
    commands = send(ready, ctx, registered(ready, 1, "i2"))
    assert told(commands, Uncordon) == [Uncordon(NAME, cordon.round)]
    assert len(told(commands, WorkerReady)) == 2
    assert told(send(ready, ctx, registered(ready, 0, "i3")), Uncordon) == []


def test_answer_to_a_cordon_passes_with_the_idle_clock(ready, ctx):
    """The group hears from the slice itself since when it is idle, and when that was true (INV-F3)."""
    ctx.later(7)
    (answer,) = told(send(ready, ctx, Cordoned(NAME, 3, 11)), CordonAnswered)
    assert answer == CordonAnswered(NAME, 3, 11, idle_since=ready.idle_since, at=ctx.now)
    assert answer.idle_since is not None
    send(ready, ctx, ActivityChanged(FIRST, "i1", 1))
    (answer,) = told(send(ready, ctx, Cordoned(NAME, 1, 12)), CordonAnswered)
    assert answer.idle_since is None


def test_new_scheduler_hears_of_ready_slices_only(ready, piece, ctx):
    """A scheduler that began anew is told of each worker of a ready slice, and of no other."""
    assert len(told(send(ready, ctx, SchedulerStarted()), WorkerReady)) == 2
    assert send(piece(), ctx, SchedulerStarted()) == ()


def test_what_found_a_full_mailbox_is_told_again(ready, ctx):
    """A cordon as it is, if it is still meant; all else as it is true then, to places of a slice that goes too."""
    send(ready, ctx, unregistered(1))
    cordon = Cordon(NAME, (FIRST,), ready.cordon)
    for message in (cordon, Uncordon(NAME, 3)):
        (clock,) = send(ready, ctx, Undelivered(ready.seed.scheduler, message))
        assert (clock.key, clock.message) == ("cordon", message)
    assert told(send(ready, ctx, cordon), Cordon) == [cordon]
    assert send(ready, ctx, attrs.evolve(cordon, round=cordon.round + 1)) == ()
    send(ready, ctx, registered(ready, 1, "i2"))
    (clock,) = send(ready, ctx, Undelivered(ready.seed.scheduler, WorkerReady(registered(ready, 0).info)))
    commands = send(ready, ctx, clock.message)
    assert (clock.message, len(told(commands, WorkerReady))) == (TryAgain("retell"), 2)
    assert [report.row for report in told(commands, SliceReported)] == [ready.row()]
    send(ready, ctx, Dismiss("idle"))
    commands = send(ready, ctx, TryAgain("retell"))
    assert (told(commands, WorkerReady), len(told(commands, RemovePod))) == ([], 2)
