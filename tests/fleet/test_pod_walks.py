"""A worker's place in any order of events that an honest world can bring: its clocks, its calls, its reports."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, strategies as st
from pod_walk import ERRORS, Walk

from iriscw.fleet.model import PodState
from iriscw.fleet.signals import RemovePod
from profiles import examples

WALKS = examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
STEPS = 20


def steps(walk, data):
    """Take steps, each drawn from all that may come next."""
    for _ in range(data.draw(st.integers(0, STEPS))):
        choices = dict(walk.choices())
        choices[data.draw(st.sampled_from(list(choices)))]()
        yield


CLOCKS = {
    PodState.VACANT: {"fill", "pod"},
    PodState.CREATING: {"pod"},
    PodState.STARTING: {"pod"},
    PodState.REGISTERED: {"liveness", "pod"},
    PodState.ENDING: {"pod"},
    PodState.REMOVING: {"pod"},
    PodState.REMOVED: {"pod"},
}
"""The clocks that may run in a state, but for those of strays, and that of a pod that does not start."""


@WALKS
@given(st.data())
def test_each_state_has_its_clocks(place, ctx, data):
    """Silence is judged while a worker is registered, and never else; no clock of a pod outlives what it was for."""
    walk = Walk(place, ctx)
    for _ in steps(walk, data):
        state = walk.place.state
        running = {key for key in walk.clocks if isinstance(key, str)} - {"start"}
        assert running <= CLOCKS[state], f"{running} in {state}"
        assert ("liveness" in running) == (state is PodState.REGISTERED)
        assert all(clock.delay > 0 for clock in walk.clocks.values())


@WALKS
@given(st.data())
def test_what_is_owed_is_asked_for_or_waits_for_its_time(place, ctx, data):
    """A place that is not where it should be has a call under way, or a clock that leads to one (INV-F7)."""
    walk = Walk(place, ctx)
    for _ in steps(walk, data):
        it = walk.place
        led = "pod" in walk.calls or "pod" in walk.clocks or "fill" in walk.clocks
        owes = it.state in (PodState.CREATING, PodState.ENDING, PodState.REMOVING)
        assert led or not owes, it
        assert led or it.strays or it.state is not PodState.VACANT, it
        for name in it.strays:
            assert ("stray", name) in walk.calls or ("stray", name) in walk.clocks, name


@WALKS
@given(st.data())
def test_the_slice_knows_whatever_its_place_would_say(place, ctx, data):
    """State, registration and failures are told with the decision that changed them; a reason is never an old one."""
    walk = Walk(place, ctx)
    for _ in steps(walk, data):
        told, true = walk.reported, walk.truth()
        assert (told.state, told.info, told.failures) == (true.state, true.info, true.failures)
        late = walk.place.pod is not None and true.reason in [str(each) for each in ERRORS]
        assert told.reason == true.reason or late  # a create that failed although its pod is there


@WALKS
@given(st.data())
def test_each_incarnation_that_ends_is_lost_and_fenced(place, ctx, data):
    """The scheduler hears that it is gone, once it is; nobody who holds the place was called gone (INV-J2)."""
    walk = Walk(place, ctx)
    held = walk.place.incarnation
    registered = False
    for _ in steps(walk, data):
        it = walk.place
        fenced = {loss.incarnation for loss in walk.losses if loss.fenced}
        if it.incarnation != held and registered:
            assert held in fenced
        registered = it.state is PodState.REGISTERED or (registered and it.incarnation == held)
        held = it.incarnation
        if it.state in (PodState.CREATING, PodState.STARTING, PodState.REGISTERED):
            assert held not in fenced


@WALKS
@given(st.data())
def test_a_healed_place_has_its_worker(place, ctx, data):
    """In the end the one pod of the place runs and its worker is registered; all others are gone."""
    walk = Walk(place, ctx)
    for _ in steps(walk, data):
        pass
    going = walk.place.state in (PodState.REMOVING, PodState.REMOVED)
    walk.settle()
    it = walk.place
    if going:
        assert (it.state, walk.pods) == (PodState.REMOVED, {})
    else:
        assert it.state is PodState.REGISTERED, it
        assert [*walk.pods] == [it.pod.name]
        assert {key for key in walk.clocks if key != "pod"} == {"liveness"}
    assert walk.calls == {}


@WALKS
@given(st.data())
def test_a_place_that_is_dismissed_leaves_nothing(place, ctx, data):
    """Whatever was under way: no pod, no call, no clock that would ring for somebody."""
    walk = Walk(place, ctx)
    for _ in steps(walk, data):
        pass
    walk.send(RemovePod())
    walk.settle()
    assert (walk.place.state, walk.pods, walk.calls, walk.clocks) == (PodState.REMOVED, {}, {}, {})


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
    assert walk.place.state is PodState.ENDING
