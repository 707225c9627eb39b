"""What generated bugs of a worker's place showed to be unsaid: each test is the law that one of them broke."""

from __future__ import annotations

import attrs
import pytest

from iriscw.cloud.effects import CreatePod, DeletePod, ListPods
from iriscw.cloud.model import LABEL_INCARNATION, Attributes, Gone, Pod, PodPhase, Throttled, Unavailable
from iriscw.fleet import pods
from iriscw.fleet.messages import WorkerDialled, WorkerHungUp, WorkerLost, WorkerSeen
from iriscw.fleet.model import PodState
from iriscw.fleet.signals import CheckLiveness, PodBriefed, PodReported, PodSeen, PodVanished, RemovePod, TryAgain
from iriscw.runtime.vocabulary import SECOND, Cancel, CancelTimer, Completed, Failed, Reply, Run, SetTimer, Tell

WORKER = "iris-gpu-a-0"


def send(place, ctx, message):
    return pods.RULES[type(message)](place, message, ctx) or ()


def runs(commands):
    return [command.effect for command in commands if isinstance(command, Run)]


def timers(commands):
    return {command.key: command for command in commands if isinstance(command, SetTimer)}


def reports(commands):
    return [c.message for c in commands if isinstance(c, Tell) and isinstance(c.message, PodReported)]


def cancelled(commands):
    return [command.key for command in commands if isinstance(command, CancelTimer)]


@pytest.fixture
def pod(labels):
    def make(incarnation, uid="u1", **changes):
        return Pod(f"{WORKER}-{incarnation}", uid, "1", labels("iris-gpu-a", WORKER, incarnation), **changes)

    return make


@pytest.fixture
def registered(place, ctx, pod, big):
    """A place whose worker is registered."""
    (create,) = runs(send(place, ctx, PodBriefed(())))
    send(place, ctx, Completed("pod", create, pod(place.incarnation)))
    commands = send(place, ctx, WorkerDialled(WORKER, place.incarnation, big, Attributes(), "10.0.0.9"))
    assert [type(command) for command in commands[:2]] == [Reply, SetTimer]
    assert place.state is PodState.REGISTERED
    return place


def lose(place, ctx):
    """Have the pod gone, and its successor asked for and answered."""
    pod = place.pod
    send(place, ctx, PodVanished(pod))
    (create,) = runs(send(place, ctx, TryAgain("fill")))
    labels = {**pod.labels, "iris-incarnation": place.incarnation}
    send(place, ctx, Completed("pod", create, attrs.evolve(pod, name=create.spec.name, uid="u9", labels=labels)))


def test_registering_starts_the_liveness_clock(registered, ctx):
    """It runs on the attentive clock, for the liveness timeout; a worker that dials again does not start another."""
    timing = registered.seed.config.timing
    dial = WorkerDialled(WORKER, registered.incarnation, registered.seed.config.per_worker, Attributes(), "")
    again = send(registered, ctx, dial)
    assert timers(again) == {}
    send(registered, ctx, WorkerSeen(WORKER, registered.incarnation))
    ctx.attentive += timing.liveness_timeout - 1
    (clock,) = send(registered, ctx, CheckLiveness())
    assert (clock.key, clock.delay, clock.attentive) == ("liveness", 1, True)


def test_a_long_life_starts_the_count_of_failures_anew(registered, ctx):
    """A pod that was registered for long counts as the first failure; one that was not adds to them."""
    registered.failures = 3
    ctx.later(pods.GOOD_LIFE / SECOND - 1)
    send(registered, ctx, PodVanished(registered.pod))
    assert registered.failures == 4


def test_exactly_a_good_life_is_long_enough(registered, ctx):
    """From then on the failure is the first in a row."""
    registered.failures = 3
    ctx.later(pods.GOOD_LIFE / SECOND)
    send(registered, ctx, PodVanished(registered.pod))
    assert registered.failures == 1


def test_a_long_life_counts_from_the_registration(registered, ctx, big):
    """Not from the beginning of time, and not from the one before."""
    ctx.later(pods.GOOD_LIFE / SECOND + 5)
    lose(registered, ctx)
    send(registered, ctx, WorkerDialled(WORKER, registered.incarnation, big, Attributes(), ""))
    assert registered.state is PodState.REGISTERED
    ctx.later(5)
    send(registered, ctx, PodVanished(registered.pod))
    assert registered.failures == 2


def test_a_place_that_never_registered_had_no_life(place, ctx, pod):
    """However long it took to start."""
    (create,) = runs(send(place, ctx, PodBriefed(())))
    send(place, ctx, Completed("pod", create, pod(place.incarnation)))
    place.failures = 2
    ctx.later(10 * pods.GOOD_LIFE / SECOND)
    send(place, ctx, PodVanished(place.pod))
    assert place.failures == 3


def test_a_stream_that_ends_is_told(registered, ctx):
    """Users read that the worker may come back; another incarnation's stream is nobody's business."""
    assert send(registered, ctx, WorkerHungUp(WORKER, "old")) == ()
    (told,) = reports(send(registered, ctx, WorkerHungUp(WORKER, registered.incarnation)))
    assert "may dial again" in told.reason
    assert told.state is PodState.REGISTERED


def test_nobody_hangs_up_at_a_place_without_a_worker(place, ctx, pod):
    """What comes before the registration is ignored."""
    (create,) = runs(send(place, ctx, PodBriefed(())))
    send(place, ctx, Completed("pod", create, pod(place.incarnation)))
    assert send(place, ctx, WorkerHungUp(WORKER, place.incarnation)) == ()


def test_a_restarted_place_without_a_pod_asks_for_one(place, ctx):
    """Once the list says that there is none."""
    ctx.incarnation = 1
    (look,) = runs(send(place, ctx, PodBriefed(())))
    (create,) = runs(send(place, ctx, Completed("pod", look, ())))
    assert isinstance(create, CreatePod)
    assert place.state is PodState.CREATING


def test_a_restarted_place_adopts_what_the_list_shows(place, ctx, pod):
    """And asks for nothing."""
    ctx.incarnation = 1
    (look,) = runs(send(place, ctx, PodBriefed(())))
    assert runs(send(place, ctx, Completed("pod", look, (pod("one", phase=PodPhase.RUNNING),)))) == []
    assert (place.state, place.incarnation) == (PodState.STARTING, "one")


def test_a_list_that_fails_is_repeated(place, ctx):
    """Nothing is concluded from an API that does not answer; what it asks for is waited."""
    ctx.incarnation = 1
    (look,) = runs(send(place, ctx, PodBriefed(())))
    commands = send(place, ctx, Failed("pod", look, Throttled(retry_after=50 * SECOND)))
    assert timers(commands)["pod"].delay == 50 * SECOND
    assert runs(send(place, ctx, TryAgain("pod"))) == [look]


def test_the_deletion_of_a_stray_is_repeated_until_it_is_gone(place, ctx, pod):
    """Whether it failed or was acknowledged; then the place is filled."""
    dead = pod("dead", phase=PodPhase.FAILED)
    (delete,) = runs(send(place, ctx, PodBriefed((dead,))))
    assert delete == DeletePod(dead.name, "u1")
    key = ("stray", dead.name)
    for answer in (Failed(key, delete, Unavailable("x")), Completed(key, delete, None)):
        (clock,) = timers(send(place, ctx, answer)).values()
        assert clock.key == key
        assert runs(send(place, ctx, clock.message)) == [delete]
    (create,) = runs(send(place, ctx, Failed(key, delete, Gone("gone"))))
    assert isinstance(create, CreatePod)
    assert send(place, ctx, clock.message) == ()


def test_a_stray_that_vanished_is_not_deleted_again(place, ctx, pod):
    """What was answered late is of no consequence."""
    dead = pod("dead", phase=PodPhase.FAILED)
    (delete,) = runs(send(place, ctx, PodBriefed((dead,))))
    send(place, ctx, PodVanished(dead))
    assert send(place, ctx, Completed(("stray", dead.name), delete, None)) == ()
    assert send(place, ctx, Failed(("stray", dead.name), delete, Unavailable("x"))) == ()


def test_another_pod_of_a_strays_name_is_deleted_too(place, ctx, pod):
    """Who is meant is said by the uid; one that is known is not asked for twice."""
    dead = pod("dead", phase=PodPhase.FAILED)
    send(place, ctx, PodBriefed((dead,)))
    assert runs(send(place, ctx, PodSeen(dead))) == []
    assert runs(send(place, ctx, PodSeen(attrs.evolve(dead, uid="u2")))) == [DeletePod(dead.name, "u2")]


def losses(commands):
    return [each.message for each in commands if isinstance(each, Tell) and isinstance(each.message, WorkerLost)]


@pytest.mark.parametrize("gone", ["seen", "answered"])
def test_a_stray_that_is_gone_is_fenced(place, ctx, pod, gone):
    """A place that began anew may be the only one who knows of it: seed 10370, INV-J11."""
    dead = pod("dead", phase=PodPhase.FAILED)
    (delete,) = runs(send(place, ctx, PodBriefed((dead,))))
    by_answer = Failed(("stray", dead.name), delete, Gone("gone"))
    (loss,) = losses(send(place, ctx, PodVanished(dead) if gone == "seen" else by_answer))
    assert (loss.worker_id, loss.incarnation, loss.fenced) == (place.seed.worker_id, "dead", True)


def test_a_pod_that_was_asked_to_go_never_holds_the_place(place, ctx, pod):
    """A create landed late, its pod was asked to go, and the place was vacant before it went (seed 12513)."""
    send(place, ctx, PodBriefed(()))
    late = pod("late")
    (delete,) = runs(send(place, ctx, PodSeen(late)))
    assert delete == DeletePod(late.name, late.uid)
    mine = pod(place.incarnation, uid="u7")
    send(place, ctx, PodSeen(mine))
    send(place, ctx, PodVanished(mine))
    assert place.state is PodState.VACANT
    assert runs(send(place, ctx, PodSeen(attrs.evolve(late, resource_version="2")))) == []
    assert (place.state, place.incarnation) == (PodState.VACANT, "")
    assert isinstance(runs(send(place, ctx, PodVanished(late)))[0], CreatePod)


@pytest.mark.parametrize("runtime", ["pod", ""])
def test_tasks_with_pods_of_their_own_are_not_fenced_by_their_workers_end(registered, ctx, runtime):
    """They run on until their lease is over: only then may the job start them elsewhere (INV-J2)."""
    attributes = Attributes({"task-runtime": runtime} if runtime else {})
    seed = registered.seed
    registered.seed = attrs.evolve(seed, config=attrs.evolve(seed.config, attributes=attributes))
    pod = registered.pod
    told = losses(send(registered, ctx, PodSeen(attrs.evolve(pod, phase=PodPhase.FAILED))))
    told += losses(send(registered, ctx, PodVanished(pod)))
    labels = {**pod.labels, LABEL_INCARNATION: "other"}
    stray = attrs.evolve(pod, name="other", uid="u9", labels=labels, phase=PodPhase.FAILED)
    send(registered, ctx, PodSeen(stray))
    assert stray.name in registered.strays
    told += losses(send(registered, ctx, PodVanished(stray)))
    assert [each.fenced for each in told] == [not runtime] * 3


def test_an_answer_about_an_earlier_pod_says_nothing_of_the_later_one(place, ctx, pod):
    """That the first is gone does not fence the second, which has its name and may run."""
    first = pod("dead", phase=PodPhase.FAILED)
    (delete,) = runs(send(place, ctx, PodBriefed((first,))))
    later = attrs.evolve(first, uid="u2")
    (again,) = runs(send(place, ctx, PodSeen(later)))
    assert send(place, ctx, Failed(("stray", first.name), delete, Gone("gone"))) == ()
    assert place.strays == {first.name: later}
    assert losses(send(place, ctx, Failed(("stray", first.name), again, Gone("gone"))))


def test_a_vacant_place_that_goes_stops_what_it_was_about_to_do(place, ctx):
    """Neither its timer nor a list under way fills it again."""
    ctx.incarnation = 1
    send(place, ctx, PodBriefed(()))
    commands = send(place, ctx, RemovePod())
    assert cancelled(commands) == ["fill"]
    assert [command.key for command in commands if isinstance(command, Cancel)] == ["pod"]
    assert reports(commands)[-1].state is PodState.REMOVED


@pytest.mark.parametrize("twice", [False, True])
def test_a_place_that_goes_says_so_each_time(registered, ctx, twice):
    """The slice may have forgotten that it knows."""
    if twice:
        send(registered, ctx, RemovePod())
    (told,) = reports(send(registered, ctx, RemovePod()))
    assert told.state is PodState.REMOVING


def test_the_end_of_a_pod_stops_its_clocks(registered, ctx):
    """No clock of one pod runs on for the next; the successor waits a while."""
    commands = send(registered, ctx, PodVanished(registered.pod))
    assert {"pod", "liveness"} <= {*cancelled(commands)}
    assert timers(commands)["fill"].delay > 0
    assert [c.message.fenced for c in commands if isinstance(c, Tell) and isinstance(c.message, WorkerLost)] == [True]


def test_a_pod_that_is_given_up_is_not_judged_any_more(registered, ctx):
    """Its liveness clock stops with it."""
    gone = send(registered, ctx, PodSeen(attrs.evolve(registered.pod, phase=PodPhase.FAILED)))
    assert "liveness" in cancelled(gone)
    assert send(registered, ctx, CheckLiveness()) == ()


def test_a_deletion_that_is_acknowledged_is_repeated(registered, ctx):
    """Until the pod is seen to be gone (INV-F7), with growing pauses."""
    (delete,) = runs(send(registered, ctx, PodSeen(attrs.evolve(registered.pod, phase=PodPhase.FAILED))))
    delays = []
    for _ in range(6):
        delays.append(timers(send(registered, ctx, Completed("pod", delete, None)))["pod"].delay)
        assert runs(send(registered, ctx, TryAgain("pod"))) == [delete]
    assert delays[-1] > 2 * delays[0]


def test_a_deletion_that_finds_nothing_is_the_end(registered, ctx):
    """Gone by uid is gone; gone by another uid says nothing."""
    (delete,) = runs(send(registered, ctx, PodSeen(attrs.evolve(registered.pod, phase=PodPhase.FAILED))))
    send(registered, ctx, Failed("pod", DeletePod(delete.name, "other"), Gone("x")))
    assert registered.state is PodState.ENDING
    send(registered, ctx, Failed("pod", delete, Gone("x")))
    assert registered.state is PodState.VACANT


def test_a_list_of_an_ended_pod_that_finds_none_is_the_end(place, ctx):
    """The create never landed: the place is vacant again."""
    (create,) = runs(send(place, ctx, PodBriefed(())))
    commands = send(place, ctx, Failed("pod", create, Gone("no such pool")))
    assert runs(commands) == [ListPods(place.seed.labels(place.incarnation))]
    send(place, ctx, Completed("pod", runs(commands)[0], ()))
    assert place.state is PodState.VACANT


def test_a_pod_that_ended_is_fenced(registered, ctx):
    """Nothing of it runs any more: its attempts need not be waited for."""
    commands = send(registered, ctx, PodSeen(attrs.evolve(registered.pod, phase=PodPhase.FAILED)))
    assert [c.message.fenced for c in commands if isinstance(c, Tell) and isinstance(c.message, WorkerLost)] == [True]


def test_a_pod_that_is_being_removed_is_not_fenced_yet(registered, ctx):
    """Its processes have a grace."""
    commands = send(registered, ctx, PodSeen(attrs.evolve(registered.pod, deleting=True)))
    assert [c.message.fenced for c in commands if isinstance(c, Tell) and isinstance(c.message, WorkerLost)] == [False]


def test_the_last_stray_that_goes_lets_the_place_be_filled(place, ctx, pod):
    """And the slice hears how it stands."""
    dead = pod("dead", phase=PodPhase.FAILED)
    send(place, ctx, PodBriefed((dead,)))
    (report,) = reports(send(place, ctx, PodVanished(dead)))
    assert report.state is PodState.CREATING
