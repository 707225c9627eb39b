"""A slice: pure decisions, one message at a time, in every state."""

from __future__ import annotations

import copy

import attrs
import pytest
from hypothesis import HealthCheck, given, strategies as st
from slice_desk import NAME, brief, registered, runs, send, told

from iriscw.cloud.effects import CreateNodePool, DeleteNodePool, ListNodePools, ListPods
from iriscw.cloud.model import (
    Condition,
    Conflict,
    Forbidden,
    Gone,
    InvalidSpec,
    NoCapacity,
    Node,
    NodePool,
    Pod,
    QuotaExceeded,
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
from iriscw.fleet.model import PodState, SliceState, Trouble, worker_name
from iriscw.fleet.signals import (
    CordonAnswered,
    Dismiss,
    Overdue,
    PodReported,
    PodSeen,
    PodStarted,
    PodVanished,
    PoolSeen,
    PoolVanished,
    SliceReported,
    TryAgain,
)
from iriscw.runtime.vocabulary import (
    SECOND,
    CancelTimer,
    Completed,
    Failed,
    Run,
    SetTimer,
    Spawn,
    StopReason,
    Terminated,
)
from profiles import examples


@pytest.fixture
def pool(labels):
    def make(nodes=0, uid="u1", total=2, **changes):
        ready = tuple(Node(f"n{index}", f"nu{index}", ready=True) for index in range(nodes))
        return NodePool(NAME, uid, "1", labels(NAME), total, nodes=ready, **changes)

    return make


def unregistered(index, state=PodState.STARTING, failures=0):
    return PodReported(worker_name(NAME, index), state, None, "pulling its image", failures)


@pytest.fixture
def ready(piece, ctx, pool):
    """A ready slice of two workers."""
    it = piece(num_vms=2)
    send(it, ctx, brief(pool(nodes=2)))
    send(it, ctx, registered(it, 0))
    send(it, ctx, registered(it, 1))
    assert it.state is SliceState.READY
    return it


def test_new_slice_asks_for_its_pool(piece, ctx):
    """Without a pool in journal or cloud, one is asked for, with its group's labels."""
    it = piece()
    (create,) = runs(send(it, ctx, brief()))
    assert isinstance(create, CreateNodePool)
    assert create.spec.labels["iris-slice-id"] == NAME
    assert it.state is SliceState.CREATING


def test_promised_pool_that_is_gone_is_not_created_again(piece, ctx):
    """A pool the journal knows is looked for, and its absence is a failure, never a new create."""
    it = piece()
    (look,) = runs(send(it, ctx, brief(uid="u1")))
    assert isinstance(look, ListNodePools)
    commands = send(it, ctx, Completed("pool", look, ()))
    assert it.state is SliceState.FAILED
    assert runs(commands) == []


def test_doomed_slice_only_waits_for_its_dismissal(piece, ctx, pool):
    """A slice doomed before the restart creates nothing and deletes nothing before it is told to."""
    it = piece()
    assert runs(send(it, ctx, brief(pool(), doomed="idle"))) == []
    assert it.state is SliceState.FAILED
    assert runs(send(it, ctx, Dismiss("idle"))) == [DeleteNodePool(NAME, "u1")]


def test_places_start_only_when_all_nodes_are_ready(piece, ctx, pool):
    """Pods come after all nodes, all at once (gang admission)."""
    it = piece(num_vms=2)
    assert not [c for c in send(it, ctx, brief(pool(nodes=1))) if isinstance(c, Spawn)]
    assert len([c for c in send(it, ctx, PoolSeen(pool(nodes=2))) if isinstance(c, Spawn)]) == 2


def test_incomplete_slice_closes_itself(ready, ctx):
    """A slice that loses a worker takes no new work until it is whole again (INV-F6)."""
    commands = send(ready, ctx, unregistered(1))
    (cordon,) = told(commands, Cordon)
    assert cordon.worker_ids == (worker_name(NAME, 0),)
    commands = send(ready, ctx, registered(ready, 1, "i2"))
    assert told(commands, Uncordon) == [Uncordon(NAME, cordon.round)]
    assert len(told(commands, WorkerReady)) == 2


def test_idle_clock_counts_attempts_of_the_present_incarnation(ready, ctx):
    """Idle begins when the last attempt ends; what another incarnation ran does not count."""
    first = ready.idle_since
    ctx.later(5)
    send(ready, ctx, ActivityChanged(worker_name(NAME, 0), "i1", 2))
    assert ready.idle_since is None
    send(ready, ctx, ActivityChanged(worker_name(NAME, 1), "old", 7))
    assert ready.live_total == 2
    ctx.later(5)
    send(ready, ctx, ActivityChanged(worker_name(NAME, 0), "i1", 0))
    assert ready.idle_since == first + 10 * SECOND
    assert ready.used


def test_answer_to_a_cordon_passes_with_the_idle_clock(ready, ctx):
    """The group hears from the slice itself since when it is idle, and when that was true (INV-F3)."""
    ctx.later(7)
    (answer,) = told(send(ready, ctx, Cordoned(NAME, 3, 11)), CordonAnswered)
    assert answer == CordonAnswered(NAME, 3, 11, idle_since=ready.idle_since, at=ctx.now)
    assert answer.idle_since is not None
    send(ready, ctx, ActivityChanged(worker_name(NAME, 0), "i1", 1))
    (answer,) = told(send(ready, ctx, Cordoned(NAME, 1, 12)), CordonAnswered)
    assert answer.idle_since is None


def test_a_pool_that_is_seen_ends_the_trouble_with_the_api(piece, ctx, pool):
    """The create was not answered, and the pool boots all the same: nothing is wrong with that slice."""
    it = piece()
    (create,) = [c.effect for c in send(it, ctx, brief()) if isinstance(c, Run)]
    send(it, ctx, Failed("pool", create, Unavailable("no answer in time")))
    assert it.trouble is Trouble.API
    send(it, ctx, PoolSeen(pool(total=1, in_progress_nodes=1)))
    assert (it.state, it.trouble) == (SliceState.BOOTING, Trouble.NONE)


def test_capacity_stops_the_clocks_and_starts_them_anew(piece, ctx, pool):
    """Waiting for machines is not booting: no deadline runs meanwhile (INV-F5)."""
    it = piece()
    queued = pool(total=1, conditions=(Condition("Capacity", "False", "QueuedAwaitingCapacity"),))
    commands = send(it, ctx, brief(queued))
    assert it.trouble is Trouble.CAPACITY
    assert [c.key for c in commands if isinstance(c, CancelTimer)] == ["stage", "startup", "slow"]
    assert it.row().expected_at is None
    commands = send(it, ctx, PoolSeen(pool(total=1, in_progress_nodes=1)))
    assert it.trouble is Trouble.NONE
    assert {c.key for c in commands if isinstance(c, SetTimer)} == {"stage", "startup", "slow"}


def test_the_answer_to_a_create_is_older_than_what_was_seen(piece, ctx, pool):
    """A pool that the watch has shown to wait for machines does not boot again because a slow answer shows it as it
    was made: it would be condemned for a boot that never began. Seeds 206 and 301 of the simulated world.
    """
    it = piece()
    (create,) = runs(send(it, ctx, brief()))
    queued = pool(total=1, conditions=(Condition("Capacity", "False", "QueuedAwaitingCapacity"),))
    send(it, ctx, PoolSeen(queued))
    commands = send(it, ctx, Completed("pool", create, pool(total=1)))
    assert (it.pool, it.trouble) == (queued, Trouble.CAPACITY)
    assert not [each for each in commands if isinstance(each, SetTimer)]


def test_credentials_that_are_refused_are_told_until_the_first_answer(piece, ctx, pool):
    """The trouble has their name, whatever else fails meanwhile gets its own, and a deadline does not hide it."""
    it = piece()
    (create,) = runs(send(it, ctx, brief()))
    for error, trouble in ((Forbidden("f"), Trouble.FORBIDDEN), (Unavailable("u"), Trouble.API)) * 2:
        send(it, ctx, Failed("pool", create, error))
        assert it.trouble is trouble
    send(it, ctx, Failed("pool", create, Forbidden("f")))
    late = copy.deepcopy(it)
    send(late, ctx, Overdue("requesting"))
    assert (late.state, late.trouble) == (SliceState.FAILED, Trouble.FORBIDDEN)
    assert late.reason.endswith("(f)")
    send(it, ctx, PoolSeen(pool(total=1)))
    assert (it.state, it.trouble) == (SliceState.BOOTING, Trouble.NONE)


def test_a_worker_whose_pod_is_refused_is_the_slices_trouble(piece, ctx, pool):
    """Users read at the slice that credentials are refused, before anything else; and no longer than it is so."""
    it = piece(num_vms=2)
    send(it, ctx, brief(pool(nodes=2)))
    send(it, ctx, unregistered(0, failures=1))
    send(it, ctx, attrs.evolve(unregistered(1, PodState.CREATING), refused=True, reason="no right"))
    assert it.trouble is Trouble.FORBIDDEN
    assert it.reason.endswith("-1: no right")
    send(it, ctx, unregistered(1))
    assert it.trouble is Trouble.WORKERS
    send(it, ctx, attrs.evolve(unregistered(1, PodState.CREATING), refused=True, reason="no right"))
    send(it, ctx, unregistered(0))
    send(it, ctx, unregistered(1))
    assert it.trouble is Trouble.NONE


@pytest.mark.parametrize(
    ("error", "state", "trouble"),
    [
        (QuotaExceeded("q"), SliceState.FAILED, Trouble.QUOTA),
        (InvalidSpec("i"), SliceState.FAILED, Trouble.INVALID),
        (Conflict("c"), SliceState.FAILED, Trouble.NAME_TAKEN),
        (NoCapacity("n"), SliceState.CREATING, Trouble.CAPACITY),
        (Unavailable("u"), SliceState.CREATING, Trouble.API),
        (Forbidden("f"), SliceState.CREATING, Trouble.FORBIDDEN),
    ],
)
def test_refused_creates_are_told_apart(piece, ctx, error, state, trouble):
    """Each refusal of a create has a state and a reaction of its own (INV-F5)."""
    it = piece()
    (create,) = runs(send(it, ctx, brief()))
    send(it, ctx, Failed("pool", create, error))
    assert (it.state, it.trouble) == (state, trouble)
    assert str(error) in it.reason


@pytest.mark.parametrize(("what", "state"), [("requesting", "creating"), ("boot", "booting"), ("init", "initializing")])
def test_deadlines_apply_to_their_stage(piece, ctx, pool, what, state):
    """Each deadline condemns its own stage, and no other."""
    for stage, shown in (("creating", None), ("booting", pool(total=1)), ("initializing", pool(1, total=1))):
        it = piece()
        send(it, ctx, brief(shown))
        assert it.state.value == stage
        send(it, ctx, Overdue(what))
        condemned = stage == state or (what, stage) == ("boot", "creating")
        assert (it.state is SliceState.FAILED) == condemned


def test_end_waits_for_the_answer_to_the_create(piece, ctx, pool):
    """A slice dismissed during its create deletes what the create brings, and is not gone before."""
    it = piece()
    (create,) = runs(send(it, ctx, brief()))
    assert runs(send(it, ctx, Dismiss("unwanted"))) == []
    assert it.state is SliceState.DELETING
    assert runs(send(it, ctx, Completed("pool", create, pool()))) == [DeleteNodePool(NAME, "u1")]
    send(it, ctx, PoolVanished("u1"))
    assert it.state is SliceState.GONE


def test_stuck_create_does_not_hold_up_the_end_for_ever(piece, ctx):
    """A call that is never answered is given up on when the deletion is overdue."""
    it = piece()
    send(it, ctx, brief())
    send(it, ctx, Dismiss("unwanted"))
    assert isinstance(runs(send(it, ctx, Overdue("deletion")))[0], ListNodePools)
    assert it.stuck


def test_pool_is_deleted_when_pods_had_their_time(ready, ctx):
    """Pods that do not end do not keep the pool; the slice is gone only when both are."""
    assert runs(send(ready, ctx, Dismiss("idle"))) == []
    assert runs(send(ready, ctx, Overdue("pods"))) == [DeleteNodePool(NAME, "u1")]
    send(ready, ctx, PoolVanished("u1"))
    assert ready.state is SliceState.DELETING
    for index in (0, 1):
        send(ready, ctx, unregistered(index, PodState.REMOVED))
    assert ready.state is SliceState.GONE


def test_new_scheduler_hears_of_ready_slices_only(ready, piece, ctx):
    """A scheduler that began anew is told of each worker of a ready slice, and of no other."""
    assert len(told(send(ready, ctx, SchedulerStarted()), WorkerReady)) == 2
    assert send(piece(), ctx, SchedulerStarted()) == ()


@st.composite
def messages(draw, it, pool, labels):
    uid = draw(st.sampled_from(["u1", "u2"]))
    condition = draw(
        st.sampled_from(
            [
                (),
                (Condition("Capacity", "False", "QueuedAwaitingCapacity"),),
                (Condition("Quota", "False", "Over"),),
                (Condition("Validated", "False", "Invalid"),),
            ]
        )
    )
    shown = pool(
        draw(st.integers(0, 2)), uid, conditions=condition, deleting=draw(st.sampled_from([False] * 4 + [True]))
    )
    effect = draw(
        st.sampled_from(
            [
                CreateNodePool(it.seed.pool),
                DeleteNodePool(NAME, uid),
                ListNodePools(it.seed.labels),
                ListPods(it.seed.labels),
            ]
        )
    )
    listed = draw(st.sampled_from([(), (shown,)]))
    value = {CreateNodePool: shown, DeleteNodePool: None, ListNodePools: listed, ListPods: ()}[type(effect)]
    error = draw(st.sampled_from([Unavailable("a"), Gone("b"), QuotaExceeded("c"), NoCapacity("d"), KeyError("e")]))
    index = draw(st.integers(0, 1))
    name = worker_name(NAME, index)
    stranger = worker_name(NAME, draw(st.sampled_from([0, 1, 7])))
    pod = Pod(f"{stranger}-x", "pu", "1", labels(NAME, stranger, "x"))
    report = draw(
        st.sampled_from(
            [
                registered(it, index, draw(st.sampled_from(["i1", "i2"]))),
                unregistered(
                    index, draw(st.sampled_from([PodState.STARTING, PodState.REMOVED])), draw(st.integers(0, 6))
                ),
            ]
        )
    )
    return draw(
        st.sampled_from(
            [
                brief(),
                brief(shown, uid=uid),
                PoolSeen(shown),
                PoolVanished(uid),
                Completed("pool", effect, value),
                Failed("pool", effect, error),
                TryAgain("pool"),
                TryAgain("retell"),
                Overdue(draw(st.sampled_from(["requesting", "boot", "init", "startup", "slow", "pods", "deletion"]))),
                report,
                report,
                PodStarted(name),
                PodSeen(pod),
                PodVanished(pod),
                ActivityChanged(name, draw(st.sampled_from(["i1", "i2"])), draw(st.integers(0, 2))),
                SchedulerStarted(),
                WorkersMissed(((name, draw(st.sampled_from(["i1", "i2"]))),)),
                TryAgain("missed"),
                Dismiss("enough"),
                Terminated(_path(name), StopReason.QUARANTINED),
            ]
        )
    )


def _path(name):
    from iriscw.runtime.vocabulary import ActorPath

    return ActorPath(f"/fleet/gpu/{NAME}/{name}")


@examples(30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_message_in_any_state(piece, ctx, pool, labels, data):
    """Whatever comes: the slice stays consistent, reports what changed, and never leaves its end again."""
    it = piece(num_vms=2)
    places: set[str] = set()
    for _ in range(data.draw(st.integers(1, 30))):
        message = data.draw(messages(it, pool, labels))
        if isinstance(message, PodReported | PodStarted | Terminated) and not places:
            continue
        before = it.state
        ctx.later(1)
        commands = send(it, ctx, message)
        it.check()
        for command in commands:
            if isinstance(command, Spawn):
                assert command.spec.name not in places, "a place is started once"
                places.add(command.spec.name)
        if it.state is not before:
            assert told(commands, SliceReported)[-1].row.state is it.state
        if before in (SliceState.DRAINING, SliceState.DELETING, SliceState.GONE):
            assert it.state in (before, SliceState.DELETING, SliceState.GONE)
        assert not any(isinstance(effect, CreateNodePool) for effect in runs(commands)) or (
            it.state is SliceState.CREATING
        )
        assert attrs.asdict(it.row(), recurse=False)["slice_id"] == NAME


def test_adopted_slice_is_closed_until_it_is_whole(piece, ctx, pool, labels):
    """A slice found with pods may be known to the scheduler already: it gets no work before it is whole (INV-F6)."""
    it = piece(num_vms=2)
    name = worker_name(NAME, 0)
    found = Pod(f"{name}-x", "pu", "1", labels(NAME, name, "x"))
    assert told(send(it, ctx, brief(pool(nodes=2), uid="u1", pods=(found,))), Cordon)
