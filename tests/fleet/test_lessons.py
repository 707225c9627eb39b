"""What other systems have learned the hard way, as laws of the fleet: planted bugs repeat each (tests/sims/mutants)."""

from __future__ import annotations

import attrs
import pytest

from iriscw.cloud.effects import CreatePod, DeleteNodePool
from iriscw.cloud.model import Attributes, Node, NodePool, Pod, Unavailable
from iriscw.fleet import pods
from iriscw.fleet.messages import WorkerDialled
from iriscw.fleet.model import PodState, SliceState
from iriscw.fleet.signals import Dismiss, PodBriefed, PodSeen, PodVanished, SliceBriefed, TryAgain
from iriscw.fleet.slices import rules as slice_rules
from iriscw.runtime.vocabulary import SECOND, Completed, Failed, Refuse, Reply, Run, SetTimer

SLICE, WORKER = "iris-gpu-a", "iris-gpu-a-0"


def send(place, ctx, message):
    return pods.RULES[type(message)](place, message, ctx) or ()


def runs(commands):
    return [command.effect for command in commands if isinstance(command, Run)]


@pytest.fixture
def start(labels, ctx, big):
    """Have a place's pod exist, and its worker dial."""

    def make(place, create, uid):
        pod = Pod(create.spec.name, uid, "1", labels(SLICE, WORKER, place.incarnation))
        send(place, ctx, Completed("pod", create, pod))
        return send(place, ctx, WorkerDialled(WORKER, place.incarnation, big, Attributes(), "10.0.0.9"))

    return make


def test_an_earlier_incarnation_never_holds_the_place(place, ctx, start, big):
    """Not even from the same address: it is fenced off for good, in every state of the place."""
    (create,) = runs(send(place, ctx, PodBriefed(())))
    old = place.incarnation
    start(place, create, "u1")
    send(place, ctx, PodVanished(place.pod))
    states = []
    for step in (lambda: None, lambda: start(place, runs(send(place, ctx, TryAgain("fill")))[0], "u2")):
        step()
        states.append(place.state)
        answer = send(place, ctx, WorkerDialled(WORKER, old, big, Attributes(), "10.0.0.9"))[0]
        assert isinstance(answer, Refuse)
        assert answer.error.fenced
    assert states == [PodState.VACANT, PodState.REGISTERED]
    assert place.info.incarnation == place.incarnation != old


def test_registering_does_not_wipe_the_record_of_failures(place, ctx, start):
    """A worker that registers and dies at once, again and again, is seen to fail each time."""
    (create,) = runs(send(place, ctx, PodBriefed(())))
    for number in range(1, 6):
        assert isinstance(start(place, create, f"u{number}")[0], Reply)
        ctx.later(30)
        send(place, ctx, PodVanished(place.pod))
        assert place.failures == number
        (create,) = runs(send(place, ctx, TryAgain("fill")))


def test_a_create_of_unknown_outcome_deletes_nothing_that_lives(place, ctx, labels):
    """It may have landed: what shows is taken, and no other pod is asked for beside it."""
    (create,) = runs(send(place, ctx, PodBriefed(())))
    assert isinstance(create, CreatePod)
    commands = send(place, ctx, Failed("pod", create, Unavailable("no answer in time")))
    (clock,) = [command for command in commands if isinstance(command, SetTimer)]
    landed = Pod(create.spec.name, "u1", "1", labels(SLICE, WORKER, place.incarnation))
    assert runs(send(place, ctx, PodSeen(landed))) == []
    assert runs(send(place, ctx, clock.message)) == []
    assert place.pod == landed


def test_a_teardown_is_asked_for_until_it_happens(piece, ctx, labels):
    """An acknowledged deletion of a pool is repeated, with growing pauses, for as long as the pool is there."""
    it = piece()
    nodes = (Node("n0", "nu0", ready=False),)
    pool = NodePool(SLICE, "u1", "1", labels(SLICE), 1, nodes=nodes)

    def decide(message):
        return slice_rules.RULES[type(message)](it, message, ctx) or ()

    decide(SliceBriefed(9000 * SECOND, "u1", "", pool, (), 30 * SECOND, 45 * SECOND))
    (delete,) = runs(decide(Dismiss("nobody needs it")))
    assert delete == DeleteNodePool(SLICE, "u1")
    assert it.state is SliceState.DELETING
    delays = []
    for _ in range(6):
        (clock,) = [each for each in decide(Completed("pool", delete, None)) if isinstance(each, SetTimer)]
        delays.append(clock.delay)
        assert runs(decide(clock.message)) == [delete]
    assert delays[-1] > delays[0]
    assert attrs.evolve(it).pool_uid == "u1"
