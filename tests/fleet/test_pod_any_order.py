"""A worker's place in any order: of events that an honest world can bring, and of messages that none would."""

from __future__ import annotations

import copy

import attrs
import pytest
from hypothesis import HealthCheck, given, strategies as st
from pod_desk import WORKER, losses, reports, runs, send
from pod_walk import ERRORS, Walk

from iriscw.cloud.effects import CreatePod, DeletePod, ListPods
from iriscw.cloud.model import Attributes, Conflict, Gone, PodPhase, Unavailable
from iriscw.fleet.messages import WorkerDialled, WorkerHungUp, WorkerLost, WorkerSeen
from iriscw.fleet.model import PodState
from iriscw.fleet.signals import CheckLiveness, PodBriefed, PodSeen, PodVanished, RemovePod, TryAgain
from iriscw.runtime.vocabulary import Completed, Failed, Run, Undelivered
from profiles import examples

P = PodState
STEPS = 20
CLOCKS = {
    P.VACANT: {"fill", "pod"},
    P.CREATING: {"pod"},
    P.STARTING: {"pod"},
    P.REGISTERED: {"liveness", "pod"},
    P.ENDING: {"pod"},
    P.REMOVING: {"pod"},
    P.REMOVED: {"pod"},
}
"""The clocks that may run in a state, but for those of strays, and that of a pod that does not start."""


@examples(80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_history_of_an_honest_world(place, ctx, data):
    """After each step clocks, calls, reports and losses fit the state. Healed, the one pod of the place runs and its
    worker is registered; dismissed, it leaves no pod, no call and no clock that would ring for somebody.
    """
    walk = Walk(place, ctx)
    fences = Fences(walk)
    for _ in range(data.draw(st.integers(0, STEPS))):
        choices = dict(walk.choices())
        choices[data.draw(st.sampled_from(list(choices)))]()
        for check in (has_its_clocks, is_owed_nothing, is_reported, fences.are_right):
            check(walk)
    if data.draw(st.booleans()):
        walk.send(RemovePod())
    going = walk.place.state in (P.REMOVING, P.REMOVED)
    walk.settle()
    it = walk.place
    if going:
        assert (it.state, walk.pods, walk.calls, walk.clocks) == (P.REMOVED, {}, {}, {})
    else:
        assert it.state is P.REGISTERED, it
        assert ([*walk.pods], walk.calls) == ([it.pod.name], {})
        assert {key for key in walk.clocks if key != "pod"} == {"liveness"}


def has_its_clocks(walk):
    """Silence is judged while a worker is registered, and never else; no clock of a pod outlives what it was for."""
    state = walk.place.state
    running = {key for key in walk.clocks if isinstance(key, str)} - {"start"}
    assert running <= CLOCKS[state], f"{running} in {state}"
    assert ("liveness" in running) == (state is P.REGISTERED)
    assert all(clock.delay > 0 for clock in walk.clocks.values())


def is_owed_nothing(walk):
    """A place that is not where it should be has a call under way, or a clock that leads to one (INV-F7)."""
    it = walk.place
    led = "pod" in walk.calls or "pod" in walk.clocks or "fill" in walk.clocks
    assert led or it.state not in (P.CREATING, P.ENDING, P.REMOVING), it
    assert led or it.strays or it.state is not P.VACANT, it
    for name in it.strays:
        assert ("stray", name) in walk.calls or ("stray", name) in walk.clocks, name


def is_reported(walk):
    """State, registration and failures are told with the decision that changed them; a reason is never an old one."""
    reported, true = walk.reported, walk.truth()
    assert (reported.state, reported.info, reported.failures) == (true.state, true.info, true.failures)
    late = walk.place.pod is not None and true.reason in [str(each) for each in ERRORS]
    assert reported.reason == true.reason or late  # a create that failed although its pod is there


class Fences:
    """Each incarnation that registered and is gone was called so, and none that holds the place (INV-J2)."""

    def __init__(self, walk) -> None:
        self.held, self.registered = walk.place.incarnation, False

    def are_right(self, walk):
        it = walk.place
        fenced = {loss.incarnation for loss in walk.losses if loss.fenced}
        if it.incarnation != self.held and self.registered:
            assert self.held in fenced
        self.registered = it.state is P.REGISTERED or (self.registered and it.incarnation == self.held)
        self.held = it.incarnation
        if it.state in (P.CREATING, P.STARTING, P.REGISTERED):
            assert self.held not in fenced


@pytest.mark.parametrize("silent_s", [0, 5])
def test_a_worker_is_judged_silent_at_its_time(place, ctx, silent_s):
    """The clock rings until nothing has been heard for exactly the liveness timeout."""
    walk = Walk(place, ctx)
    walk.answer("pod")
    walk.dial()
    walk.ctx.later(silent_s)
    walk.contact()
    heard = walk.ctx.attentive
    walk.ctx.later(-silent_s)
    while "liveness" in walk.clocks:
        walk.ring("liveness")
    assert walk.ctx.attentive - heard == place.seed.config.timing.liveness_timeout
    assert walk.place.state is P.ENDING


@st.composite
def messages(draw, place, pod):
    """Any message, whether or not it makes sense."""
    incarnation = draw(st.sampled_from([place.incarnation or "none", "other", "dead"]))
    uid = draw(st.sampled_from(["u1", "u2"]))
    seen = pod(incarnation, uid, phase=draw(st.sampled_from(list(PodPhase))), deleting=draw(st.booleans()))

    def answer():
        create, delete = CreatePod(place.seed.spec(incarnation)), DeletePod(seen.name, uid)
        listed = draw(st.sampled_from([(), (seen,)]))
        effect, value = draw(st.sampled_from([(create, seen), (delete, None), (ListPods({}), listed)]))
        key = draw(st.sampled_from(["pod", ("stray", seen.name)])) if effect is delete else "pod"
        error = draw(st.sampled_from([None, Unavailable("a"), Gone("b"), Conflict("c"), KeyError("bug")]))
        return Completed(key, effect, value) if error is None else Failed(key, effect, error)

    def dial():
        capacity = place.seed.config.per_worker
        capacity = draw(st.sampled_from([capacity, attrs.evolve(capacity, gpu_count=1)]))
        return WorkerDialled(WORKER, incarnation, capacity, Attributes({"region": "lies"}), "10.0.0.9")

    kinds = (
        lambda: PodBriefed(draw(st.sampled_from([(), (seen,)]))),
        lambda: PodSeen(seen),
        lambda: PodVanished(seen),
        RemovePod,
        answer,
        answer,
        lambda: TryAgain(draw(st.sampled_from(["pod", "fill", f"stray {seen.name}"]))),
        dial,
        lambda: WorkerSeen(WORKER, incarnation),
        lambda: WorkerHungUp(WORKER, incarnation),
        CheckLiveness,
        lambda: Undelivered(place.seed.scheduler, WorkerLost(WORKER, incarnation, "", fenced=True)),
    )
    return draw(st.sampled_from(kinds))()


@examples(30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_message_in_any_state(place, ctx, pod, data):
    """Whatever comes, in whatever order: the place stays consistent, and says how it stands when that changed."""
    here = copy.deepcopy(place)
    for _ in range(data.draw(st.integers(1, 25))):
        message = data.draw(messages(here, pod))
        before = (here.state, here.incarnation, here.info)
        held = "" if here.unsure else here.incarnation  # of one that may still come nobody was ever told
        ctx.later(data.draw(st.sampled_from([0, 1, 20])))
        commands = send(here, ctx, message)
        here.check()
        if (here.state, here.incarnation, here.info) != before:
            assert reports(commands)[-1].state is here.state
        if held and here.incarnation != held:
            assert any(loss.fenced and loss.incarnation == held for loss in losses(commands))
        assert len(runs(command for command in commands if isinstance(command, Run) and command.key == "pod")) <= 2
