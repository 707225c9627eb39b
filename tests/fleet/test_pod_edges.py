"""A worker's place at its edges: who is fenced when, what a late answer changes, what is repeated and how soon."""

from __future__ import annotations

import attrs
import pytest
from pod_walk import Walk

from iriscw.cloud.effects import CreatePod, DeletePod, ListPods
from iriscw.cloud.model import Attributes, Conflict, Forbidden, Gone, InvalidSpec, Pod, PodPhase, Unavailable
from iriscw.fleet import pods
from iriscw.fleet.messages import DialAgain, WorkerDialled, WorkerExamined, WorkerHungUp, WorkerLost, WorkerSeen
from iriscw.fleet.model import PodState
from iriscw.fleet.signals import CheckLiveness, PodBriefed, PodReported, PodSeen, PodVanished, RemovePod, TryAgain
from iriscw.runtime.vocabulary import Completed, Failed, Refuse, Reply, Run, SetTimer, Tell, Undelivered

P = PodState


@pytest.fixture
def walk(place, ctx):
    return Walk(place, ctx)


@pytest.fixture
def registered(walk):
    walk.answer("pod")
    walk.dial()
    assert walk.place.state is P.REGISTERED
    return walk


def runs(commands):
    return [each.effect for each in commands if isinstance(each, Run)]


def told(commands, kind):
    return [each.message for each in commands if isinstance(each, Tell) and isinstance(each.message, kind)]


def fenced(walk):
    return [loss.fenced for loss in walk.losses]


@pytest.mark.parametrize("error", [Conflict("taken"), InvalidSpec("no"), Gone("no pool")])
def test_a_create_that_was_refused_may_have_landed_before(walk, error):
    """The incarnation is given up, not fenced: first it is looked for; it is fenced when there is nothing."""
    walk.answer("pod", error)
    assert (walk.place.state, fenced(walk), walk.place.failures) == (P.ENDING, [False], 1)
    assert walk.reported == walk.truth()
    walk.answer("pod")
    assert (walk.place.state, fenced(walk)) == (P.VACANT, [False, True])


def test_a_create_that_brings_an_ended_pod_is_told(walk):
    """It lived and died before the answer was here: the slice hears of it with that answer."""
    (create,) = walk.calls["pod"]
    ended = Pod(create.spec.name, "u9", "1", dict(create.spec.labels), phase=PodPhase.FAILED)
    walk.pods[ended.name] = ended
    walk.answer("pod")
    assert (walk.place.state, fenced(walk)) == (P.ENDING, [True])
    assert walk.reported == walk.truth()


def test_who_holds_a_place_and_loses_contact_is_fenced_when_it_is_gone(registered):
    """Not before: it may still run (INV-J2)."""
    registered.ctx.attentive += 10**12
    registered.ring("liveness")
    assert (registered.place.state, fenced(registered)) == (P.ENDING, [False])
    name = registered.place.pod.name
    registered.answer("pod")
    assert registered.pods[name].deleting
    registered.vanish(name)
    assert fenced(registered) == [False, True]
    assert {loss.incarnation for loss in registered.losses} == {name.rpartition("-")[2]}


def test_a_pod_that_ends_while_it_goes_is_fenced(registered):
    """Its end is seen before its object is gone; nobody waits for that."""
    registered.send(RemovePod())
    assert fenced(registered) == [False]
    registered.show(registered.place.pod.name, phase=PodPhase.SUCCEEDED)
    assert fenced(registered) == [False, True]


def test_a_dismissal_is_no_failure(registered):
    """And so does not lengthen any pause."""
    registered.send(RemovePod())
    assert registered.place.failures == 0


def test_pauses_between_pods_grow_with_failures(walk):
    """The first short, later ones longer."""
    delays = []
    for _ in range(5):
        walk.answer("pod")
        walk.vanish(walk.place.pod.name)
        delays.append(walk.clocks["fill"].delay)
        walk.ring("fill")
    assert delays[4] > 5 * delays[0]


def test_a_place_that_has_a_pod_does_not_wait_for_another(walk):
    """One that shows during the pause before the next one is taken, and the pause is over: no clock rings for it."""
    walk.answer("pod")
    walk.vanish(walk.place.pod.name)
    assert [*walk.clocks] == ["fill"]
    walk.appear()
    assert (walk.place.state, [*walk.clocks]) == (P.STARTING, [])


def test_calls_that_fail_in_a_row_are_repeated_ever_later(walk):
    """And the count starts anew with a pod that is seen."""
    delays = []
    for _ in range(5):
        walk.answer("pod", Unavailable("no answer"))
        delays.append(walk.clocks["pod"].delay)
        walk.ring("pod")
    assert delays[4] > 5 * delays[0]
    walk.answer("pod")
    assert walk.place.retries == 0


def test_a_second_briefing_changes_nothing(registered):
    """It answers a question that was put twice."""
    assert registered.send(PodBriefed(())) == ()
    assert registered.place.state is P.REGISTERED


@pytest.mark.parametrize("deleting", [True, False])
def test_a_pod_on_its_way_out_is_not_adopted(place, ctx, deleting):
    """It is deleted like any other, and its place filled when it is gone."""
    spec = place.seed.spec("other")
    found = Pod(spec.name, "u1", "1", dict(spec.labels), deleting=deleting)
    commands = pods.RULES[PodBriefed](place, PodBriefed((found,)), ctx)
    assert place.state is (P.VACANT if deleting else P.STARTING)
    assert place.failures == 0, "somebody else's end is none of ours"
    assert runs(commands) == ([DeletePod(found.name, "u1")] if deleting else [])


def test_users_read_how_a_pod_fares(walk):
    """Its phase and reason while it starts; why it ended; that somebody removed it."""
    walk.answer("pod")
    name = walk.place.pod.name
    walk.show(name, reason="ImagePullBackOff")
    assert walk.place.reason == "the worker pod is pending: ImagePullBackOff"
    walk.show(name, reason="")
    assert walk.place.reason == "the worker pod is pending"
    walk.show(name, deleting=True)
    assert "no reason given" in walk.place.reason
    walk.settle()
    walk.show(walk.place.pod.name, phase=PodPhase.FAILED)
    assert walk.place.reason == "the worker pod ended: Failed"


def test_a_worker_that_registered_has_no_trouble_left(walk, big):
    """What was said of it, or of its pod, before."""
    walk.answer("pod")
    small = WorkerDialled(walk.place.seed.worker_id, walk.place.incarnation, type(big)(1, 1), Attributes(), "")
    refused, _ = walk.send(small)
    assert isinstance(refused, Refuse)
    assert walk.place.reason == walk.place.refusal == str(refused.error)
    walk.dial()
    assert (walk.place.reason, walk.place.refusal) == ("", "")


def test_what_was_found_in_a_pod_is_its_reason(walk, big):
    """For as long as it runs without its worker; a refusal says more, and of another pod it is nothing."""
    worker, incarnation = walk.place.seed.worker_id, walk.place.incarnation
    assert walk.send(WorkerExamined(worker, incarnation, "early")) == (), "there is no pod yet"
    walk.answer("pod")
    assert walk.send(WorkerExamined(worker, "other", "nothing")) == ()
    (report,) = told(walk.send(WorkerExamined(worker, incarnation, "no such name")), PodReported)
    assert report.reason == walk.place.reason
    assert report.reason.endswith("has not registered: no such name")
    walk.show(walk.place.pod.name, phase=PodPhase.RUNNING)
    assert walk.place.reason == report.reason
    walk.send(WorkerDialled(worker, incarnation, type(big)(1, 1), Attributes(), ""))
    refused = walk.place.reason
    assert walk.send(WorkerExamined(worker, incarnation, "no such name")) == ()
    assert walk.place.reason == refused != report.reason
    walk.dial()
    assert (walk.place.reason, walk.place.finding) == ("", "")
    assert walk.send(WorkerExamined(worker, incarnation, "late")) == ()


def test_a_stranger_that_dials_changes_no_reason(registered):
    """It is fenced off, and users read nothing of it."""
    refused, _ = registered.send(WorkerDialled("w", "other", registered.place.info.capacity, Attributes(), ""))
    assert refused.error.fenced
    assert (registered.place.reason, registered.place.refusal) == ("", "")


def test_a_worker_that_dials_again_is_accepted_and_heard(registered):
    """Its contact counts from then; nothing else begins anew."""
    since = registered.place.registered_at
    registered.ctx.later(9)
    registered.dial()
    assert registered.place.last_contact == registered.ctx.attentive
    assert registered.place.registered_at == since
    assert registered.clocks["liveness"].delay == registered.place.seed.config.timing.liveness_timeout


def test_contact_before_the_briefing_is_nobodys(place, ctx):
    """Who is there is told by the next dial, once the place knows its pods."""
    assert pods.contact(place, WorkerSeen("w", "i"), ctx) is None
    assert pods.hung_up(place, WorkerHungUp("w", "i"), ctx) is None
    for message in (RemovePod(), TryAgain("fill")):
        assert not pods.RULES[type(message)](place, message, ctx)


def test_contact_with_a_worker_that_is_not_registered_asks_it_to_dial(walk):
    """By way of its link."""
    walk.answer("pod")
    (asked,) = walk.send(WorkerSeen(walk.place.seed.worker_id, walk.place.incarnation))
    assert asked.message == DialAgain(walk.place.seed.worker_id, walk.place.incarnation)
    assert asked.to == walk.place.seed.links / walk.place.seed.worker_id


def test_liveness_is_judged_only_of_the_registered(walk):
    """A clock that rings late judges nobody."""
    walk.answer("pod")
    assert walk.send(CheckLiveness()) == ()
    assert walk.place.state is P.STARTING


def test_what_found_no_room_is_told_again(registered):
    """A report as it is true then; each loss by itself, as it was."""
    (clock,) = registered.send(Undelivered(registered.ctx.path, registered.truth()))
    assert told(registered.send(clock.message), type(registered.truth())) == [registered.truth()]
    clocks = []
    for is_fenced in (False, True):
        loss = WorkerLost("w", "i", "why", fenced=is_fenced)
        (clock,) = registered.send(Undelivered(registered.place.seed.scheduler, loss))
        assert isinstance(clock, SetTimer)
        clocks.append(clock)
        assert told(registered.send(clock.message), WorkerLost) == [loss]
    assert clocks[0].key != clocks[1].key


def test_what_was_refused_is_told_as_long_as_its_reason_is(walk):
    """A place that asks anew is not refused yet: it would hide one whose reason says so (seed 1119797, INV-F5)."""
    walk.answer("pod")
    gone = walk.place.pod
    walk.vanish(gone.name)
    walk.send(Failed("pod", ListPods(walk.place.seed.labels()), Forbidden("no right")))
    assert walk.place.refused
    walk.ring("fill")
    assert (walk.place.reason, walk.place.refused) == ("a worker pod was asked for", False)


def test_a_create_that_fails_says_nothing_of_a_pod_that_was_seen_meanwhile(walk):
    """The watch was faster: users read how the pod fares."""
    create = walk.calls["pod"][0]
    walk.land(create.spec)
    walk.show(create.spec.name)
    before = walk.place.reason
    assert walk.send(Failed("pod", create, Unavailable("x"))) == ()
    assert (walk.place.reason, walk.place.retries) == (before, 0)


def test_an_answer_to_an_older_create_is_nobodys(registered):
    """The place has another incarnation by now."""
    old = registered.place.seed.spec("older")
    assert registered.send(Completed("pod", CreatePod(old), None)) == ()


@pytest.mark.parametrize("known", [True, False])
def test_a_pod_that_vanishes_is_the_places_own_or_nobodys(registered, known):
    """By uid: a successor of that name is another pod."""
    pod = registered.place.pod if known else attrs.evolve(registered.place.pod, uid="another")
    assert bool(registered.send(PodVanished(pod))) == known
    assert (registered.place.state is P.VACANT) == known


def test_a_place_that_was_given_up_lists_by_its_incarnation(walk):
    """And takes what it finds for what it looked for."""
    walk.send(RemovePod())
    walk.lose_answer()
    (look,) = walk.calls["pod"]
    assert look == ListPods(walk.place.seed.labels(walk.place.incarnation))
    walk.answer("pod")
    assert isinstance(walk.calls["pod"][0], DeletePod)
    assert walk.place.pod is not None


def test_a_registration_is_answered(walk):
    """With what the place knows of the worker, first of all."""
    walk.answer("pod")
    (name,) = walk.pods
    dial = WorkerDialled(
        walk.place.seed.worker_id, walk.place.incarnation, walk.place.seed.config.per_worker, Attributes(), "1.2.3.4"
    )
    answer, *_ = walk.send(dial)
    assert isinstance(answer, Reply)
    assert answer.value.info == walk.place.info
    assert (answer.value.info.address, walk.place.pod.name) == ("1.2.3.4", name)


def test_a_pod_that_is_shown_as_it_was_is_no_news(registered):
    """A registered worker says more than its pod does."""
    assert registered.send(PodSeen(registered.place.pod)) == ()
