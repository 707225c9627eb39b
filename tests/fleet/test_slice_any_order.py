"""A slice in any order: of events that an honest world can bring, and of messages that none would."""

from __future__ import annotations

import attrs
from hypothesis import HealthCheck, given, strategies as st
from slice_desk import NAME, brief, registered, runs, send, told, unregistered
from slice_walk import CONDITIONS, Walk

from iriscw.cloud.effects import CreateNodePool, DeleteNodePool, ListNodePools, ListPods
from iriscw.cloud.model import Condition, Gone, NoCapacity, QuotaExceeded, Unavailable
from iriscw.fleet.messages import ActivityChanged, SchedulerStarted, WorkersMissed
from iriscw.fleet.model import PodState, SliceState, Trouble, worker_name
from iriscw.fleet.signals import (
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
from iriscw.runtime.vocabulary import ActorPath, Completed, Failed, Spawn, StopReason, Terminated
from profiles import examples

S = SliceState
STEPS = 25
TO_READY = {"stage", "startup", "slow"}
CLOCKS = {
    S.REQUESTED: {"pool"},
    S.CREATING: {"pool", *TO_READY},
    S.BOOTING: {"pool", *TO_READY},
    S.INITIALIZING: {"pool", *TO_READY},
    S.READY: {"pool"},
    S.FAILED: {"pool"},
    S.DRAINING: {"pods", "stuck"},
    S.DELETING: {"pool", "stuck"},
    S.GONE: set(),
}
"""The clocks that may run in a state, but for that of missed workers."""


@examples(80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_history_of_an_honest_world(piece, ctx, data):
    """After each step clocks, calls, reports and the scheduler fit the state; healed it is ready or failed (a clock
    waits for its group), and dismissed it leaves nothing.
    """
    walk = Walk(piece, ctx)
    checks = (has_its_clocks, is_owed_nothing, is_reported, is_known_to_the_scheduler, is_idle_if_nothing_runs)
    if data.draw(st.booleans()):  # by and large the slice gets somewhere
        walk.settle()
    for _ in range(data.draw(st.integers(0, STEPS))):
        if walk.it.state is S.GONE:
            break  # its group stops it
        for check in checks:
            check(walk)
        choices = dict(walk.choices())
        choices[data.draw(st.sampled_from(list(choices)))]()
    for check in checks:
        check(walk)
    if dismissed := data.draw(st.booleans()):
        walk.send(Dismiss("enough"))
    walk.settle()
    if dismissed:
        assert (walk.it.state, walk.pool, {*walk.clocks} - {"missed"}) == (S.GONE, None, set()), walk.it
    assert walk.it.state in (S.READY, S.FAILED, S.GONE), walk.it
    assert (walk.it.state is S.READY) <= (walk.it.trouble is Trouble.NONE)


def has_its_clocks(walk):
    """A deadline runs in the stage it is for, and no clock outlives what it was for."""
    running = {key for key in walk.clocks if key != "missed"}
    assert running <= CLOCKS[walk.it.state], f"{running} in {walk.it.state}"


def is_owed_nothing(walk):
    """No stage lasts for ever: but for the wait for machines, each has a deadline; calls are repeated (INV-F7)."""
    it, clocks = walk.it, walk.clocks
    if it.state in (S.CREATING, S.BOOTING, S.INITIALIZING):
        waits = it.trouble is Trouble.CAPACITY
        assert "stage" in clocks or waits
        assert "startup" in clocks or waits or it.state is S.INITIALIZING
    if it.state is S.CREATING or (it.state is S.DELETING and not it.pool_gone):
        assert "pool" in walk.calls or "pool" in clocks
    if it.state is S.DRAINING:
        assert "pods" in clocks or it.places == {}
    if it.state in (S.DRAINING, S.DELETING):
        assert "stuck" in clocks or it.stuck


def is_reported(walk):
    """Whatever a decision changed of what a group judges by was told with it."""
    reported, true = walk.reported, walk.truth()
    if walk.it.state is not S.READY:  # of others nobody asks for the workers
        reported, true = (attrs.evolve(each, row=attrs.evolve(each.row, workers=())) for each in (reported, true))
    assert reported == true


def is_known_to_the_scheduler(walk):
    """All its workers, in their present incarnations, and open; once it is incomplete it is closed (INV-F6)."""
    if walk.it.state is S.READY:
        assert walk.known == {name: report.info.incarnation for name, report in walk.places.items()}
        assert walk.closed is None
    elif walk.known and walk.it.state in (S.BOOTING, S.INITIALIZING, S.FAILED) and walk.it.workers:
        assert walk.closed is not None


def is_idle_if_nothing_runs(walk):
    """A ready slice on which nothing lives is idle since it was so; one that is not ready never is."""
    it = walk.it
    assert (it.idle_since is not None) == (it.state is S.READY and it.live_total == 0)
    assert (it.idle_since is None) == (it.idle_since_wall is None)


INVALID = (Condition("Validated", "False", "Invalid"),)
ERRORS = (Unavailable("a"), Gone("b"), QuotaExceeded("c"), NoCapacity("d"), KeyError("e"))
CLOCKS_OF_ALL = ("requesting", "boot", "init", "startup", "slow", "pods", "deletion")


@st.composite
def messages(draw, it, pool, pod):
    """Any message, whether or not it makes sense."""
    uid = draw(st.sampled_from(["u1", "u2"]))
    name = worker_name(NAME, draw(st.integers(0, 1)))
    incarnation = draw(st.sampled_from(["i1", "i2"]))

    def shown():
        deleting = draw(st.sampled_from([False] * 4 + [True]))
        conditions = draw(st.sampled_from([*CONDITIONS.values(), INVALID]))
        return pool(draw(st.integers(0, 2)), uid, conditions=conditions, deleting=deleting)

    def answer():
        value, effect = draw(
            st.sampled_from(
                [
                    (shown, CreateNodePool(it.seed.pool)),
                    (lambda: None, DeleteNodePool(NAME, uid)),
                    (lambda: draw(st.sampled_from([(), (shown(),)])), ListNodePools(it.seed.labels)),
                    (tuple, ListPods(it.seed.labels)),
                ]
            )
        )
        return draw(st.sampled_from([Completed("pool", effect, value()), *(Failed("pool", effect, e) for e in ERRORS)]))

    def report():
        if draw(st.booleans()):
            return registered(it, int(name[-1]), incarnation)
        state = draw(st.sampled_from([PodState.STARTING, PodState.REMOVED]))
        return unregistered(int(name[-1]), state, draw(st.integers(0, 6)))

    def stranger():
        found = pod("x", worker=worker_name(NAME, draw(st.sampled_from([0, 1, 7]))))
        return draw(st.sampled_from([PodSeen, PodVanished]))(found)

    kinds = (
        brief,
        lambda: brief(shown(), uid=uid),
        lambda: PoolSeen(shown()),
        lambda: PoolVanished(uid),
        answer,
        answer,
        lambda: TryAgain(draw(st.sampled_from(["pool", "retell", "missed"]))),
        lambda: Overdue(draw(st.sampled_from(CLOCKS_OF_ALL))),
        report,
        report,
        lambda: PodStarted(name),
        stranger,
        lambda: ActivityChanged(name, incarnation, draw(st.integers(0, 2))),
        SchedulerStarted,
        lambda: WorkersMissed(((name, incarnation),)),
        lambda: Dismiss("enough"),
        lambda: Terminated(ActorPath(f"/fleet/gpu/{NAME}/{name}"), StopReason.QUARANTINED),
    )
    return draw(st.sampled_from(kinds))()


@examples(30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_message_in_any_state(piece, ctx, pool, pod, data):
    """Whatever comes: the slice stays consistent, reports what changed, and never leaves its end again."""
    it = piece(num_vms=2)
    places: set[str] = set()
    for _ in range(data.draw(st.integers(1, 30))):
        message = data.draw(messages(it, pool, pod))
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
        if before in (S.DRAINING, S.DELETING, S.GONE):
            assert it.state in (before, S.DELETING, S.GONE)
        assert it.state is S.CREATING or not any(isinstance(effect, CreateNodePool) for effect in runs(commands))
        assert it.row().slice_id == NAME
