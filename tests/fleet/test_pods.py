"""A worker's place: pure decisions, one message at a time, in every state."""

from __future__ import annotations

import copy

import attrs
import pytest
from hypothesis import HealthCheck, given, strategies as st

from iriscw.cloud.effects import CreatePod, DeletePod, ListPods
from iriscw.cloud.model import Attributes, Conflict, Forbidden, Gone, Pod, PodPhase, Throttled, Unavailable
from iriscw.fleet import pods
from iriscw.fleet.messages import DialAgain, WorkerDialled, WorkerHungUp, WorkerLost, WorkerSeen
from iriscw.fleet.model import PodState
from iriscw.fleet.signals import (
    CheckLiveness,
    PodBriefed,
    PodReported,
    PodSeen,
    PodVanished,
    RemovePod,
    TryAgain,
)
from iriscw.runtime.vocabulary import Completed, Failed, Refuse, Reply, Run, SetTimer, Tell, Undelivered
from profiles import examples

WORKER = "iris-gpu-a-0"


def send(place, ctx, message):
    return pods.RULES[type(message)](place, message, ctx) or ()


def runs(commands):
    return [command.effect for command in commands if isinstance(command, Run)]


def losses(commands):
    return [c.message for c in commands if isinstance(c, Tell) and isinstance(c.message, WorkerLost)]


@pytest.fixture
def pod(labels):
    def make(incarnation, uid="u1", **changes):
        return Pod(f"{WORKER}-{incarnation}", uid, "1", labels("iris-gpu-a", WORKER, incarnation), **changes)

    return make


@pytest.fixture
def dial(big):
    return lambda incarnation, **changes: WorkerDialled(
        WORKER, incarnation, attrs.evolve(big, **changes), Attributes({"region": "lies"}), "10.0.0.9"
    )


@pytest.fixture
def starting(place, ctx, pod):
    """A place whose pod exists and whose worker has not dialled."""
    (create,) = runs(send(place, ctx, PodBriefed(())))
    send(place, ctx, Completed("pod", create, pod(place.incarnation)))
    assert place.state is PodState.STARTING
    return place


def test_pod_is_named_by_its_incarnation(place, ctx):
    """A fresh place asks for a pod whose name, labels and environment name the incarnation."""
    (create,) = runs(send(place, ctx, PodBriefed(())))
    assert create.spec.name == f"{WORKER}-{place.incarnation}"
    assert create.spec.environment["IRIS_INCARNATION"] == place.incarnation
    assert len(create.spec.name) <= 63


def test_an_incarnation_is_asked_for_once(place, ctx, pod):
    """A create that was not answered may land late: the next one is for another incarnation, and the late pod goes."""
    (create,) = runs(send(place, ctx, PodBriefed(())))
    first = place.incarnation
    send(place, ctx, Failed("pod", create, Unavailable("no answer")))
    assert place.state is PodState.CREATING
    (again,) = runs(send(place, ctx, TryAgain("pod")))
    assert again.spec.name == f"{WORKER}-{place.incarnation}" != create.spec.name
    send(place, ctx, Completed("pod", again, pod(place.incarnation, "u2")))
    assert runs(send(place, ctx, PodSeen(pod(first)))) == [DeletePod(f"{WORKER}-{first}", "u1")]
    assert place.pod.uid == "u2"


@pytest.mark.parametrize("error", [Throttled(retry_after=1), Forbidden("not now")])
def test_a_create_that_certainly_had_no_effect_is_repeated(place, ctx, error):
    """The same incarnation is asked for again."""
    (create,) = runs(send(place, ctx, PodBriefed(())))
    send(place, ctx, Failed("pod", create, error))
    assert runs(send(place, ctx, TryAgain("pod"))) == [create]


def test_a_pod_that_landed_without_an_answer_is_taken(place, ctx, pod):
    """It shows before the create is repeated: nothing more is asked for, then or after it is lost and replaced."""
    (create,) = runs(send(place, ctx, PodBriefed(())))
    send(place, ctx, Failed("pod", create, Unavailable("no answer")))
    send(place, ctx, PodSeen(pod(place.incarnation)))
    assert place.state is PodState.STARTING
    assert send(place, ctx, TryAgain("pod")) == ()
    send(place, ctx, PodVanished(pod(place.incarnation)))
    (create,) = runs(send(place, ctx, TryAgain("fill")))
    send(place, ctx, Failed("pod", create, Throttled(retry_after=1)))
    assert runs(send(place, ctx, TryAgain("pod"))) == [create]


def test_nothing_is_asked_before_the_briefing(place, ctx):
    """Before the briefing nothing of the cloud is acted on, and who dials is told to try again."""
    assert send(place, ctx, RemovePod()) == ()
    assert send(place, ctx, TryAgain("fill")) == ()
    (refused, _) = send(place, ctx, WorkerDialled(WORKER, "x", place.seed.config.per_worker, Attributes(), ""))
    assert isinstance(refused, Refuse)
    assert not refused.error.fenced


def test_living_pod_is_adopted_others_go(place, ctx, pod):
    """Of two pods found one is adopted; the other is deleted by uid."""
    commands = send(place, ctx, PodBriefed((pod("one"), pod("two", "u2"))))
    assert place.incarnation == "one"
    assert runs(commands) == [DeletePod(f"{WORKER}-two", "u2")]


def test_no_successor_while_a_dead_pod_is_still_there(place, ctx, pod):
    """A dead pod found at a vacant place is deleted first; only then another is asked for (INV-J2)."""
    dead = pod("dead", phase=PodPhase.FAILED)
    assert runs(send(place, ctx, PodBriefed((dead,)))) == [DeletePod(dead.name, "u1")]
    assert place.state is PodState.VACANT
    (create,) = runs(send(place, ctx, PodVanished(dead)))
    assert isinstance(create, CreatePod)


def test_restarted_actor_lists_before_it_creates(place, ctx):
    """After a restart of the actor the API is read first: the watch may not have brought the last create."""
    ctx.incarnation = 1
    assert runs(send(place, ctx, PodBriefed(()))) == [ListPods(place.seed.labels())]


def test_how_a_pod_fares_is_told_while_nothing_keeps_it(starting, ctx, pod):
    """Users read what their slice waits for, though nothing follows from it."""
    commands = send(starting, ctx, PodSeen(pod(starting.incarnation, phase=PodPhase.RUNNING)))
    told = [(each.message.state, each.message.reason) for each in commands if isinstance(each, Tell)]
    assert told[-1:] == [(PodState.STARTING, "the worker pod is running")]


def test_registration_and_what_the_group_says_wins(starting, ctx, dial):
    """An accepted worker has the attributes of its group, whatever it says itself."""
    commands = send(starting, ctx, dial(starting.incarnation))
    (reply,) = [command for command in commands if isinstance(command, Reply)]
    assert reply.value.info.attributes.get("region") == "lga1"
    assert reply.value.info.attributes.get("worker-id") == WORKER
    assert starting.state is PodState.REGISTERED


@pytest.mark.parametrize(("promised", "counted"), [(8, (8, "H100")), (0, (0, ""))])
def test_gpus_that_nobody_promised_are_not_counted(starting, ctx, dial, promised, counted):
    """A job with GPUs is never placed on a group that promised none, whatever its workers have."""
    config = starting.seed.config
    promise = attrs.evolve(config.per_worker, gpu_count=promised, gpu_class="H100" if promised else "")
    starting.seed = attrs.evolve(starting.seed, config=attrs.evolve(config, per_worker=promise))
    commands = send(starting, ctx, dial(starting.incarnation, gpu_count=16))
    (reply,) = [command for command in commands if isinstance(command, Reply)]
    capacity = reply.value.info.capacity
    assert (capacity.gpu_count, capacity.gpu_class) == counted
    assert not capacity.lacking(promise)


@pytest.mark.parametrize(
    ("changes", "text"),
    [({"gpu_count": 0}, "gpu 0 < 8"), ({"gpu_class": "L40"}, "gpu_class 'L40'"), ({"memory_bytes": 1}, "memory 1")],
)
def test_less_than_promised_is_named(starting, ctx, dial, changes, text):
    """What a worker lacks is named, and stays the reason until it dials with enough."""
    (refused, _) = send(starting, ctx, dial(starting.incarnation, **changes))
    assert text in str(refused.error)
    send(starting, ctx, PodSeen(attrs.evolve(starting.pod, phase=PodPhase.RUNNING)))
    assert text in starting.reason
    send(starting, ctx, dial(starting.incarnation))
    assert starting.state is PodState.REGISTERED


def test_silence_is_judged_on_the_attentive_clock(starting, ctx, dial):
    """Liveness counts attentive time alone, from the last contact (INV-J10)."""
    commands = send(starting, ctx, dial(starting.incarnation))
    (first,) = [each for each in commands if isinstance(each, SetTimer) and each.key == "liveness"]
    assert first.attentive
    ctx.now += 10**15
    (again,) = send(starting, ctx, CheckLiveness())
    assert isinstance(again, SetTimer)
    assert again.attentive
    ctx.attentive += starting.seed.config.timing.liveness_timeout - 1
    assert send(starting, ctx, WorkerSeen(WORKER, starting.incarnation)) == ()
    ctx.attentive += 2
    (again,) = send(starting, ctx, CheckLiveness())
    assert again.delay == starting.seed.config.timing.liveness_timeout - 2
    ctx.attentive += again.delay
    commands = send(starting, ctx, CheckLiveness())
    assert [loss.fenced for loss in losses(commands)] == [False]
    assert runs(commands) == [DeletePod(starting.pod.name, "u1")]


def test_contact_of_others_does_not_count(starting, ctx, dial):
    """Contact with another incarnation keeps nobody alive; it is asked to dial."""
    send(starting, ctx, dial(starting.incarnation))
    before = starting.last_contact
    ctx.later(3)
    (told,) = send(starting, ctx, WorkerSeen(WORKER, "old"))
    assert told.message == DialAgain(WORKER, "old")
    assert starting.last_contact == before
    send(starting, ctx, WorkerHungUp(WORKER, "old"))
    assert starting.state is PodState.REGISTERED


def test_credentials_that_are_refused_cost_no_incarnation(place, ctx, pod):
    """Who has no right to a pod asks again, later and for the same one, and says why until it is there."""
    (create,) = runs(send(place, ctx, PodBriefed(())))
    commands = send(place, ctx, Failed("pod", create, Forbidden("no right")))
    (told,) = [each.message for each in commands if isinstance(each, Tell) and isinstance(each.message, PodReported)]
    assert (told.state, told.refused, told.reason, told.failures) == (PodState.CREATING, True, "no right", 0)
    (again,) = runs(send(place, ctx, TryAgain("pod")))
    assert again == create
    send(place, ctx, Completed("pod", again, pod(place.incarnation)))
    assert (place.state, place.refused) == (PodState.STARTING, False)


def test_given_up_create_is_answered_before_anything_else(place, ctx, pod):
    """A place dismissed during its create waits for the answer, and deletes what that brings."""
    (create,) = runs(send(place, ctx, PodBriefed(())))
    assert runs(send(place, ctx, RemovePod())) == []
    made = pod(place.incarnation)
    assert runs(send(place, ctx, Completed("pod", create, made))) == [DeletePod(made.name, made.uid)]
    commands = send(place, ctx, PodVanished(made))
    assert place.state is PodState.REMOVED
    assert losses(commands)[-1].fenced


def test_unanswered_create_is_looked_for(place, ctx):
    """A create that may have landed is looked for by its incarnation before the place goes on."""
    (create,) = runs(send(place, ctx, PodBriefed(())))
    send(place, ctx, RemovePod())
    (look,) = runs(send(place, ctx, Failed("pod", create, Unavailable("x"))))
    assert look == ListPods(place.seed.labels(place.incarnation))
    send(place, ctx, Completed("pod", look, ()))
    assert place.state is PodState.REMOVED


def test_loss_that_finds_no_room_is_told_again(starting, ctx):
    """A loss is never dropped."""
    loss = WorkerLost(WORKER, "x", "y", fenced=True)
    (timer,) = send(starting, ctx, Undelivered(starting.seed.scheduler, loss))
    assert send(starting, ctx, timer.message) == (Tell(starting.seed.scheduler, loss),)


@st.composite
def messages(draw, place, make_pod, make_dial):
    incarnation = draw(st.sampled_from([place.incarnation or "none", "other", "dead"]))
    uid = draw(st.sampled_from(["u1", "u2"]))
    phase = draw(st.sampled_from(list(PodPhase)))
    seen = make_pod(incarnation, uid, phase=phase, deleting=draw(st.booleans()))
    spec = place.seed.spec(incarnation)
    effect = draw(st.sampled_from([CreatePod(spec), DeletePod(seen.name, uid), ListPods({})]))
    value = {CreatePod: seen, DeletePod: None, ListPods: draw(st.sampled_from([(), (seen,)]))}[type(effect)]
    error = draw(st.sampled_from([Unavailable("a"), Gone("b"), Conflict("c"), KeyError("bug")]))
    key = draw(st.sampled_from(["pod", ("stray", seen.name)])) if isinstance(effect, DeletePod) else "pod"
    return draw(
        st.sampled_from(
            [
                PodBriefed((seen,)),
                PodBriefed(()),
                PodSeen(seen),
                PodVanished(seen),
                RemovePod(),
                Completed(key, effect, value),
                Failed(key, effect, error),
                TryAgain("pod"),
                TryAgain("fill"),
                TryAgain(f"stray {seen.name}"),
                make_dial(incarnation),
                make_dial(incarnation, gpu_count=1),
                WorkerSeen(WORKER, incarnation),
                WorkerHungUp(WORKER, incarnation),
                CheckLiveness(),
                Undelivered(place.seed.scheduler, WorkerLost(WORKER, incarnation, "", fenced=True)),
            ]
        )
    )


@examples(30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_message_in_any_state(place, ctx, pod, dial, data):
    """Whatever comes, in whatever order: the place stays consistent, and says how it stands when that changed."""
    here = copy.deepcopy(place)
    for _ in range(data.draw(st.integers(1, 25))):
        message = data.draw(messages(here, pod, dial))
        before = (here.state, here.incarnation, here.info)
        held = "" if here.unsure else here.incarnation  # of one that may still come nobody was ever told
        ctx.later(data.draw(st.sampled_from([0, 1, 20])))
        commands = send(here, ctx, message)
        here.check()
        if (here.state, here.incarnation, here.info) != before:
            told = [c.message for c in commands if isinstance(c, Tell) and isinstance(c.message, PodReported)]
            assert told
            assert told[-1].state is here.state
        if held and here.incarnation != held:
            assert any(loss.fenced and loss.incarnation == held for loss in losses(commands))
        assert sum(1 for command in commands if isinstance(command, Run) and command.key == "pod") <= 2
