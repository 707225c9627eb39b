"""A worker's place: its pod, the worker in it, who is fenced when, and what a late answer changes."""

from __future__ import annotations

import attrs
import pytest
from pod_desk import WORKER, losses, reports, runs, send, start, stopped, timers, told
from pod_walk import Walk

from iriscw.cloud.effects import CreatePod, DeletePod, ListPods
from iriscw.cloud.model import (
    LABEL_INCARNATION,
    Attributes,
    Conflict,
    Forbidden,
    Gone,
    InvalidSpec,
    Pod,
    PodPhase,
    Throttled,
    Unavailable,
)
from iriscw.fleet import pods
from iriscw.fleet.messages import DialAgain, WorkerDialled, WorkerExamined, WorkerHungUp, WorkerLost, WorkerSeen
from iriscw.fleet.model import PodState
from iriscw.fleet.signals import CheckLiveness, PodBriefed, PodReported, PodSeen, PodVanished, RemovePod, TryAgain
from iriscw.runtime.vocabulary import SECOND, Cancel, Completed, Failed, Refuse, Reply, SetTimer, Tell, Undelivered

P = PodState
FAILED = PodPhase.FAILED


@pytest.fixture
def walk(place, ctx):
    """A place before an honest world."""
    return Walk(place, ctx)


@pytest.fixture
def lived(walk):
    """The same, and its worker is registered."""
    walk.answer("pod")
    walk.dial()
    assert walk.place.state is P.REGISTERED
    return walk


@pytest.fixture
def dial(big):
    return lambda incarnation, **changes: WorkerDialled(
        WORKER, incarnation, attrs.evolve(big, **changes), Attributes({"region": "lies"}), "10.0.0.9"
    )


@pytest.fixture
def starting(place, ctx, pod):
    """A place whose pod exists and whose worker has not dialled."""
    return start(place, ctx, pod)


@pytest.fixture
def registered(starting, ctx, dial):
    """A place whose worker is registered."""
    commands = send(starting, ctx, dial(starting.incarnation))
    assert [type(command) for command in commands[:2]] == [Reply, SetTimer]
    assert starting.state is P.REGISTERED
    return starting


def fenced(walk):
    return [loss.fenced for loss in walk.losses]


# The create


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
    assert place.state is P.CREATING
    (again,) = runs(send(place, ctx, TryAgain("pod")))
    assert again.spec.name == f"{WORKER}-{place.incarnation}" != create.spec.name
    send(place, ctx, Completed("pod", again, pod(place.incarnation, "u2")))
    assert runs(send(place, ctx, PodSeen(pod(first)))) == [DeletePod(f"{WORKER}-{first}", "u1")]
    assert place.pod.uid == "u2"


@pytest.mark.parametrize("error", [Throttled(retry_after=1), Forbidden("no right")])
def test_a_create_that_certainly_had_no_effect_is_repeated(place, ctx, pod, error):
    """For the same incarnation, and at no cost; credentials that are refused are said until the pod is there."""
    (create,) = runs(send(place, ctx, PodBriefed(())))
    (report,) = reports(send(place, ctx, Failed("pod", create, error)))
    refused = isinstance(error, Forbidden)
    assert (report.state, report.refused, report.reason, report.failures) == (P.CREATING, refused, str(error), 0)
    (again,) = runs(send(place, ctx, TryAgain("pod")))
    assert again == create
    send(place, ctx, Completed("pod", again, pod(place.incarnation)))
    assert (place.state, place.refused) == (P.STARTING, False)


@pytest.mark.parametrize("error", [Conflict("taken"), InvalidSpec("no"), Gone("no pool")])
def test_a_create_that_was_refused_may_have_landed_before(walk, error):
    """The incarnation is given up, not fenced: first it is looked for; it is fenced when there is nothing."""
    walk.answer("pod", error)
    assert (walk.place.state, fenced(walk), walk.place.failures) == (P.ENDING, [False], 1)
    assert walk.calls["pod"] == [ListPods(walk.place.seed.labels(walk.place.incarnation))]
    assert walk.reported == walk.truth()
    walk.answer("pod")
    assert (walk.place.state, fenced(walk)) == (P.VACANT, [False, True])


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


def test_a_pod_that_landed_without_an_answer_is_taken(place, ctx, pod):
    """It shows before the create is repeated: nothing more is asked for, then or after it is lost and replaced."""
    (create,) = runs(send(place, ctx, PodBriefed(())))
    send(place, ctx, Failed("pod", create, Unavailable("no answer")))
    assert runs(send(place, ctx, PodSeen(pod(place.incarnation)))) == []
    assert place.state is P.STARTING
    assert send(place, ctx, TryAgain("pod")) == ()
    send(place, ctx, PodVanished(pod(place.incarnation)))
    (create,) = runs(send(place, ctx, TryAgain("fill")))
    send(place, ctx, Failed("pod", create, Throttled(retry_after=1)))
    assert runs(send(place, ctx, TryAgain("pod"))) == [create]


def test_a_create_that_fails_says_nothing_of_a_pod_that_was_seen_meanwhile(walk):
    """The watch was faster: users read how the pod fares."""
    create = walk.calls["pod"][0]
    walk.land(create.spec)
    walk.show(create.spec.name)
    before = walk.place.reason
    assert walk.send(Failed("pod", create, Unavailable("x"))) == ()
    assert (walk.place.reason, walk.place.retries) == (before, 0)


def test_a_create_that_brings_an_ended_pod_is_told(walk):
    """It lived and died before the answer was here: the slice hears of it with that answer."""
    (create,) = walk.calls["pod"]
    walk.pods[create.spec.name] = Pod(create.spec.name, "u9", "1", dict(create.spec.labels), phase=FAILED)
    walk.answer("pod")
    assert (walk.place.state, fenced(walk)) == (P.ENDING, [True])
    assert walk.reported == walk.truth()


def test_an_answer_to_an_older_create_is_nobodys(lived):
    """The place has another incarnation by now."""
    old = lived.place.seed.spec("older")
    assert lived.send(Completed("pod", CreatePod(old), None)) == ()


def test_what_was_refused_is_told_as_long_as_its_reason_is(walk):
    """A place that asks anew is not refused yet: it would hide one whose reason says so (seed 1119797, INV-F5)."""
    walk.answer("pod")
    walk.vanish(walk.place.pod.name)
    walk.send(Failed("pod", ListPods(walk.place.seed.labels()), Forbidden("no right")))
    assert walk.place.refused
    walk.ring("fill")
    assert (walk.place.reason, walk.place.refused) == ("a worker pod was asked for", False)


# The briefing, and pods that nobody here asked for


def test_nothing_is_done_before_the_briefing(place, ctx):
    """Nothing of the cloud is acted on, and who dials is told to try again."""
    for message in (RemovePod(), TryAgain("fill"), WorkerSeen("w", "i"), WorkerHungUp("w", "i")):
        assert send(place, ctx, message) == ()
    (refused, _) = send(place, ctx, WorkerDialled(WORKER, "x", place.seed.config.per_worker, Attributes(), ""))
    assert isinstance(refused, Refuse)
    assert not refused.error.fenced


def test_a_second_briefing_changes_nothing(registered, ctx):
    """It answers a question that was put twice."""
    assert send(registered, ctx, PodBriefed(())) == ()
    assert registered.state is P.REGISTERED


def test_living_pod_is_adopted_others_go(place, ctx, pod):
    """Of two pods found one is adopted; the other is deleted by uid."""
    commands = send(place, ctx, PodBriefed((pod("one"), pod("two", "u2"))))
    assert (place.incarnation, place.state) == ("one", P.STARTING)
    assert runs(commands) == [DeletePod(f"{WORKER}-two", "u2")]


@pytest.mark.parametrize("state", [{"phase": FAILED}, {"deleting": True}], ids=["ended", "going"])
def test_no_successor_while_a_dead_pod_is_still_there(place, ctx, pod, state):
    """One found at a vacant place is deleted first, which is no failure; then another is asked for (INV-J2)."""
    dead = pod("dead", **state)
    assert runs(send(place, ctx, PodBriefed((dead,)))) == [DeletePod(dead.name, "u1")]
    assert (place.state, place.failures) == (P.VACANT, 0)
    commands = send(place, ctx, PodVanished(dead))
    assert [type(each) for each in runs(commands)] == [CreatePod]
    assert reports(commands)[-1].state is P.CREATING


@pytest.mark.parametrize("found", [True, False])
def test_restarted_actor_lists_before_it_creates(place, ctx, pod, found):
    """The watch may not have brought the last create: what the list shows is adopted, and else a pod asked for. One
    that fails is repeated, when the cloud allows.
    """
    ctx.incarnation = 1
    (look,) = runs(send(place, ctx, PodBriefed(())))
    assert look == ListPods(place.seed.labels())
    commands = send(place, ctx, Failed("pod", look, Throttled(retry_after=50 * SECOND)))
    assert timers(commands)["pod"].delay == 50 * SECOND
    assert runs(send(place, ctx, TryAgain("pod"))) == [look]
    asked = runs(send(place, ctx, Completed("pod", look, (pod("one", phase=PodPhase.RUNNING),) * found)))
    assert [type(each) for each in asked] == [CreatePod] * (not found)
    assert place.state is (P.STARTING if found else P.CREATING)
    assert (place.incarnation == "one") == found


def test_a_place_that_has_a_pod_does_not_wait_for_another(walk):
    """One that shows during the pause before the next one is taken, and the pause is over: no clock rings for it."""
    walk.answer("pod")
    walk.vanish(walk.place.pod.name)
    assert [*walk.clocks] == ["fill"]
    walk.appear()
    assert (walk.place.state, [*walk.clocks]) == (P.STARTING, [])


def test_the_deletion_of_a_stray_is_repeated_until_it_is_gone(place, ctx, pod):
    """Whether it failed or was acknowledged; then the place is filled."""
    dead = pod("dead", phase=FAILED)
    (delete,) = runs(send(place, ctx, PodBriefed((dead,))))
    key = ("stray", dead.name)
    for answer in (Failed(key, delete, Unavailable("x")), Completed(key, delete, None)):
        (clock,) = timers(send(place, ctx, answer)).values()
        assert clock.key == key
        assert runs(send(place, ctx, clock.message)) == [delete]
    (create,) = runs(send(place, ctx, Failed(key, delete, Gone("gone"))))
    assert isinstance(create, CreatePod)
    for late in (clock.message, Completed(key, delete, None), Failed(key, delete, Unavailable("x"))):
        assert send(place, ctx, late) == ()


@pytest.mark.parametrize("gone", ["seen", "answered"])
def test_a_stray_that_is_gone_is_fenced(place, ctx, pod, gone):
    """A place that began anew may be the only one who knows of it: seed 10370, INV-J11."""
    dead = pod("dead", phase=FAILED)
    (delete,) = runs(send(place, ctx, PodBriefed((dead,))))
    by_answer = Failed(("stray", dead.name), delete, Gone("gone"))
    (loss,) = losses(send(place, ctx, PodVanished(dead) if gone == "seen" else by_answer))
    assert (loss.worker_id, loss.incarnation, loss.fenced) == (WORKER, "dead", True)


def test_another_pod_of_a_strays_name_is_deleted_too(place, ctx, pod):
    """Who is meant is said by the uid, of which each is asked for once: that the first is gone does not fence it."""
    first = pod("dead", phase=FAILED)
    (delete,) = runs(send(place, ctx, PodBriefed((first,))))
    assert runs(send(place, ctx, PodSeen(first))) == []
    later = attrs.evolve(first, uid="u2")
    (again,) = runs(send(place, ctx, PodSeen(later)))
    assert again == DeletePod(first.name, "u2")
    assert send(place, ctx, Failed(("stray", first.name), delete, Gone("gone"))) == ()
    assert place.strays == {first.name: later}
    assert losses(send(place, ctx, Failed(("stray", first.name), again, Gone("gone"))))


def test_a_pod_that_was_asked_to_go_never_holds_the_place(place, ctx, pod):
    """A create landed late, its pod was asked to go, and the place was vacant before it went (seed 12513)."""
    send(place, ctx, PodBriefed(()))
    late = pod("late")
    (delete,) = runs(send(place, ctx, PodSeen(late)))
    assert delete == DeletePod(late.name, late.uid)
    mine = pod(place.incarnation, uid="u7")
    send(place, ctx, PodSeen(mine))
    send(place, ctx, PodVanished(mine))
    assert place.state is P.VACANT
    assert runs(send(place, ctx, PodSeen(attrs.evolve(late, resource_version="2")))) == []
    assert (place.state, place.incarnation) == (P.VACANT, "")
    assert isinstance(runs(send(place, ctx, PodVanished(late)))[0], CreatePod)


# Registering


def test_registration_and_what_the_group_says_wins(starting, ctx, dial):
    """An accepted worker has the attributes of its group, whatever it says itself."""
    reply, *_ = send(starting, ctx, dial(starting.incarnation))
    assert isinstance(reply, Reply)
    info = reply.value.info
    assert (info, starting.state) == (starting.info, P.REGISTERED)
    assert (info.address, info.attributes.get("region"), info.attributes.get("worker-id")) == (
        "10.0.0.9",
        "lga1",
        WORKER,
    )


@pytest.mark.parametrize(("promised", "counted"), [(8, (8, "H100")), (0, (0, ""))])
def test_gpus_that_nobody_promised_are_not_counted(starting, ctx, dial, promised, counted):
    """A job with GPUs is never placed on a group that promised none, whatever its workers have."""
    config = starting.seed.config
    promise = attrs.evolve(config.per_worker, gpu_count=promised, gpu_class="H100" if promised else "")
    starting.seed = attrs.evolve(starting.seed, config=attrs.evolve(config, per_worker=promise))
    reply, *_ = send(starting, ctx, dial(starting.incarnation, gpu_count=16))
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
    assert starting.reason == starting.refusal == str(refused.error)
    send(starting, ctx, dial(starting.incarnation))
    assert (starting.state, starting.reason, starting.refusal) == (P.REGISTERED, "", "")


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


def test_users_read_how_a_pod_fares(walk):
    """Its phase and reason while it starts; why it ended; that somebody removed it."""
    walk.answer("pod")
    name = walk.place.pod.name
    walk.show(name, reason="ImagePullBackOff")
    assert walk.reported.reason == walk.place.reason == "the worker pod is pending: ImagePullBackOff"
    walk.show(name, reason="")
    assert walk.place.reason == "the worker pod is pending"
    walk.show(name, deleting=True)
    assert "no reason given" in walk.place.reason
    walk.settle()
    walk.show(walk.place.pod.name, phase=FAILED)
    assert walk.place.reason == "the worker pod ended: Failed"


def test_an_earlier_incarnation_never_holds_the_place(starting, ctx, dial, pod):
    """Not even from the same address: it is fenced off for good, in every state of the place, and changes nothing."""
    old = starting.incarnation
    send(starting, ctx, dial(old))
    send(starting, ctx, PodVanished(starting.pod))
    states = []
    for vacant in (True, False):
        if not vacant:
            (create,) = runs(send(starting, ctx, TryAgain("fill")))
            send(starting, ctx, Completed("pod", create, pod(starting.incarnation, "u2")))
            send(starting, ctx, dial(starting.incarnation))
        states.append(starting.state)
        before = starting.reason
        answer = send(starting, ctx, dial(old))[0]
        assert isinstance(answer, Refuse)
        assert answer.error.fenced
        assert (starting.reason, starting.refusal) == (before, "")
    assert states == [P.VACANT, P.REGISTERED]
    assert starting.info.incarnation == starting.incarnation != old


# Contact


def test_silence_is_judged_on_the_attentive_clock(starting, ctx, dial):
    """Liveness counts attentive time alone, from the last contact (INV-J10)."""
    timeout = starting.seed.config.timing.liveness_timeout
    first = timers(send(starting, ctx, dial(starting.incarnation)))["liveness"]
    assert (first.delay, first.attentive) == (timeout, True)
    ctx.now += 10**15
    (again,) = send(starting, ctx, CheckLiveness())
    assert isinstance(again, SetTimer)
    assert again.attentive
    ctx.attentive += timeout - 1
    assert send(starting, ctx, WorkerSeen(WORKER, starting.incarnation)) == ()
    ctx.attentive += 2
    (again,) = send(starting, ctx, CheckLiveness())
    assert (again.key, again.delay, again.attentive) == ("liveness", timeout - 2, True)
    ctx.attentive += again.delay
    commands = send(starting, ctx, CheckLiveness())
    assert [loss.fenced for loss in losses(commands)] == [False]
    assert runs(commands) == [DeletePod(starting.pod.name, "u1")]


def test_a_worker_that_dials_again_is_accepted_and_heard(registered, ctx, dial):
    """Its contact counts from then; nothing else begins anew, and no second clock."""
    since = registered.registered_at
    ctx.later(9)
    assert timers(send(registered, ctx, dial(registered.incarnation))) == {}
    assert (registered.last_contact, registered.registered_at) == (ctx.attentive, since)


def test_contact_of_others_does_not_count(registered, ctx):
    """Contact with another incarnation keeps nobody alive; it is asked to dial."""
    before = registered.last_contact
    ctx.later(3)
    (asked,) = send(registered, ctx, WorkerSeen(WORKER, "old"))
    assert asked.message == DialAgain(WORKER, "old")
    assert registered.last_contact == before


def test_a_worker_that_is_not_registered_is_asked_to_dial(starting, ctx):
    """By way of its link; it hangs up nothing, and a clock that rings late judges nobody."""
    (asked,) = send(starting, ctx, WorkerSeen(WORKER, starting.incarnation))
    assert (asked.to, asked.message) == (starting.seed.links / WORKER, DialAgain(WORKER, starting.incarnation))
    for message in (WorkerHungUp(WORKER, starting.incarnation), CheckLiveness()):
        assert send(starting, ctx, message) == ()
    assert starting.state is P.STARTING


def test_a_stream_that_ends_is_told(registered, ctx):
    """Users read that the worker may come back; another incarnation's stream is nobody's business."""
    assert send(registered, ctx, WorkerHungUp(WORKER, "old")) == ()
    (report,) = reports(send(registered, ctx, WorkerHungUp(WORKER, registered.incarnation)))
    assert "may dial again" in report.reason
    assert report.state is P.REGISTERED


def test_a_pod_that_is_shown_as_it_was_is_no_news(registered, ctx):
    """A registered worker says more than its pod does."""
    assert send(registered, ctx, PodSeen(registered.pod)) == ()


def test_what_found_no_room_is_told_again(lived):
    """A report as it is true then; each loss by itself, as it was."""
    (clock,) = lived.send(Undelivered(lived.ctx.path, lived.truth()))
    assert told(lived.send(clock.message), PodReported) == [lived.truth()]
    keys = []
    for certain in (False, True):
        loss = WorkerLost("w", "i", "why", fenced=certain)
        (clock,) = lived.send(Undelivered(lived.place.seed.scheduler, loss))
        keys.append(clock.key)
        assert lived.send(clock.message) == (Tell(lived.place.seed.scheduler, loss),)
    assert keys[0] != keys[1]


# Failures in a row


@pytest.mark.parametrize(("lived_s", "failures"), [(pods.GOOD_LIFE / SECOND - 1, 4), (pods.GOOD_LIFE / SECOND, 1)])
def test_a_long_life_starts_the_count_of_failures_anew(registered, ctx, lived_s, failures):
    """A pod that was registered for so long counts as the first failure; one that was not adds to them."""
    registered.failures = 3
    ctx.later(lived_s)
    send(registered, ctx, PodVanished(registered.pod))
    assert registered.failures == failures


def test_registering_does_not_wipe_the_record_of_failures(starting, ctx, dial, pod):
    """A worker that registers and dies at once, again and again, is seen to fail each time: a long life counts from its
    own registration, and a long start is none.
    """
    for number in range(1, 6):
        if number == 2:
            ctx.later(10 * pods.GOOD_LIFE / SECOND)
        assert isinstance(send(starting, ctx, dial(starting.incarnation))[0], Reply)
        ctx.later(30)
        send(starting, ctx, PodVanished(starting.pod))
        assert starting.failures == number
        (create,) = runs(send(starting, ctx, TryAgain("fill")))
        send(starting, ctx, Completed("pod", create, pod(starting.incarnation, f"u{number + 1}")))


def test_a_place_that_never_registered_had_no_life(starting, ctx):
    """However long it took to start."""
    starting.failures = 2
    ctx.later(10 * pods.GOOD_LIFE / SECOND)
    send(starting, ctx, PodVanished(starting.pod))
    assert starting.failures == 3


def test_pauses_between_pods_grow_with_failures(walk):
    """The first short, later ones longer."""
    delays = []
    for _ in range(5):
        walk.answer("pod")
        walk.vanish(walk.place.pod.name)
        delays.append(walk.clocks["fill"].delay)
        walk.ring("fill")
    assert delays[4] > 5 * delays[0]


# The end of a pod


def test_the_end_of_a_pod_stops_its_clocks(registered, ctx):
    """No clock of one pod runs on for the next; the successor waits a while."""
    commands = send(registered, ctx, PodVanished(registered.pod))
    assert {"pod", "liveness"} <= {*stopped(commands)}
    assert timers(commands)["fill"].delay > 0
    assert [loss.fenced for loss in losses(commands)] == [True]


@pytest.mark.parametrize(("end", "certain"), [({"phase": FAILED}, True), ({"deleting": True}, False)])
def test_a_pod_that_ended_is_fenced(registered, ctx, end, certain):
    """Nothing of it runs any more. One that is being removed is not fenced yet: its processes have a grace. Neither is
    judged for silence any more.
    """
    commands = send(registered, ctx, PodSeen(attrs.evolve(registered.pod, **end)))
    assert [loss.fenced for loss in losses(commands)] == [certain]
    assert "liveness" in stopped(commands)
    assert send(registered, ctx, CheckLiveness()) == ()


@pytest.mark.parametrize("runtime", ["pod", ""])
def test_tasks_with_pods_of_their_own_are_not_fenced_by_their_workers_end(registered, ctx, runtime):
    """They run on until their lease is over: only then may the job start them elsewhere (INV-J2)."""
    attributes = Attributes({"task-runtime": runtime} if runtime else {})
    seed = registered.seed
    registered.seed = attrs.evolve(seed, config=attrs.evolve(seed.config, attributes=attributes))
    pod = registered.pod
    found = losses(send(registered, ctx, PodSeen(attrs.evolve(pod, phase=FAILED))))
    found += losses(send(registered, ctx, PodVanished(pod)))
    labels = {**pod.labels, LABEL_INCARNATION: "other"}
    stray = attrs.evolve(pod, name="other", uid="u9", labels=labels, phase=FAILED)
    send(registered, ctx, PodSeen(stray))
    found += losses(send(registered, ctx, PodVanished(stray)))
    assert [each.fenced for each in found] == [not runtime] * 3


def test_who_holds_a_place_and_loses_contact_is_fenced_when_it_is_gone(lived):
    """Not before: it may still run (INV-J2)."""
    lived.ctx.attentive += 10**12
    lived.ring("liveness")
    assert (lived.place.state, fenced(lived)) == (P.ENDING, [False])
    name = lived.place.pod.name
    lived.answer("pod")
    assert lived.pods[name].deleting
    lived.vanish(name)
    assert fenced(lived) == [False, True]
    assert {loss.incarnation for loss in lived.losses} == {name.rpartition("-")[2]}


def test_a_deletion_is_repeated_until_the_pod_is_gone(registered, ctx):
    """With growing pauses (INV-F7); gone by its uid is gone, gone by another uid says nothing."""
    (delete,) = runs(send(registered, ctx, PodSeen(attrs.evolve(registered.pod, phase=FAILED))))
    delays = []
    for _ in range(6):
        delays.append(timers(send(registered, ctx, Completed("pod", delete, None)))["pod"].delay)
        assert runs(send(registered, ctx, TryAgain("pod"))) == [delete]
    assert delays[-1] > 2 * delays[0]
    send(registered, ctx, Failed("pod", DeletePod(delete.name, "other"), Gone("x")))
    assert registered.state is P.ENDING
    send(registered, ctx, Failed("pod", delete, Gone("x")))
    assert registered.state is P.VACANT


@pytest.mark.parametrize("known", [True, False])
def test_a_pod_that_vanishes_is_the_places_own_or_nobodys(registered, ctx, known):
    """By uid: a successor of that name is another pod."""
    pod = registered.pod if known else attrs.evolve(registered.pod, uid="another")
    assert bool(send(registered, ctx, PodVanished(pod))) == known
    assert (registered.state is P.VACANT) == known


# The end of the place


def test_given_up_create_is_answered_before_anything_else(place, ctx, pod):
    """A place dismissed during its create waits for the answer, and deletes what that brings."""
    (create,) = runs(send(place, ctx, PodBriefed(())))
    assert runs(send(place, ctx, RemovePod())) == []
    made = pod(place.incarnation)
    assert runs(send(place, ctx, Completed("pod", create, made))) == [DeletePod(made.name, made.uid)]
    commands = send(place, ctx, PodVanished(made))
    assert place.state is P.REMOVED
    assert losses(commands)[-1].fenced


@pytest.mark.parametrize("landed", [True, False])
def test_unanswered_create_is_looked_for(walk, landed):
    """By its incarnation, before the place goes on; what is found is taken for what was looked for, and deleted."""
    walk.send(RemovePod())
    if landed:
        walk.lose_answer()
    else:
        walk.answer("pod", Unavailable("x"))
    assert walk.calls["pod"] == [ListPods(walk.place.seed.labels(walk.place.incarnation))]
    assert walk.reported == walk.truth()
    walk.answer("pod")
    assert (walk.place.pod is not None) == landed
    assert [type(each) for each in walk.calls.get("pod", ())] == [DeletePod] * landed
    assert walk.place.state is (P.REMOVING if landed else P.REMOVED)


def test_a_pod_that_ends_while_it_goes_is_fenced(lived):
    """Its end is seen before its object is gone; nobody waits for that. A dismissal is no failure."""
    lived.send(RemovePod())
    assert (fenced(lived), lived.place.failures) == ([False], 0)
    lived.show(lived.place.pod.name, phase=PodPhase.SUCCEEDED)
    assert fenced(lived) == [False, True]


def test_a_vacant_place_that_goes_stops_what_it_was_about_to_do(place, ctx):
    """Neither its timer nor a list under way fills it again."""
    ctx.incarnation = 1
    send(place, ctx, PodBriefed(()))
    commands = send(place, ctx, RemovePod())
    assert stopped(commands) == ["fill"]
    assert [command.key for command in commands if isinstance(command, Cancel)] == ["pod"]
    assert reports(commands)[-1].state is P.REMOVED


def test_a_place_that_goes_says_so_each_time(registered, ctx):
    """The slice may have forgotten that it knows."""
    for _ in range(2):
        (report,) = reports(send(registered, ctx, RemovePod()))
        assert report.state is P.REMOVING
