"""One worker's place: the pod that holds it, and whether its worker is alive.

Theory of operation. The place is an actor of its own, ``/fleet/<group>/<slice>/<worker id>``. It keeps
plain state: after a restart it is briefed on the pods that exist here, adopts the one that lives, and
deletes all others. A pod is named by its incarnation, so a dead one is never mistaken for its successor,
and the successor is asked for only when the dead one is *known* to be gone
(:data:`iriscw.fleet.lifecycle.POD_TABLE`).

An incarnation is asked for once. A create that was not answered may land at any time, also when the pod that a second
create made is gone again: the same incarnation would live twice, without what the first one knew, and start attempts
again that the first one had started (INV-J2). So after silence the next create is for another incarnation.

Losing a worker has two steps. When contact is lost for too long, on the attentive clock, the scheduler is
told at once that nothing more may be placed there; when the pod is known to be gone it is told again, now
*fenced*, and may start the tasks elsewhere.

The decisions change the place's own state, which the cell owns, and read nothing but their arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from iriscw.cloud.effects import CreatePod, DeletePod, ListPods
from iriscw.cloud.lifecycle import CallRefusal, PodHealth, judge_error, judge_pod
from iriscw.cloud.model import (
    LABEL_CLUSTER,
    LABEL_GROUP,
    LABEL_INCARNATION,
    LABEL_MANAGED,
    LABEL_SLICE,
    LABEL_WORKER,
    Forbidden,
    Pod,
    PodSpec,
    Throttled,
)
from iriscw.fleet.lifecycle import PodEvent, next_pod_state
from iriscw.fleet.messages import (
    Accepted,
    DialAgain,
    WorkerDialled,
    WorkerExamined,
    WorkerHungUp,
    WorkerLost,
    WorkerSeen,
)
from iriscw.fleet.model import GroupConfig, PodState, WorkerInfo, WorkerRefused, pod_name, worker_name
from iriscw.fleet.pacing import backoff
from iriscw.fleet.registration import judge_dial
from iriscw.fleet.signals import (
    CheckLiveness,
    CheckStart,
    PodBriefed,
    PodReported,
    PodSeen,
    PodStarted,
    PodVanished,
    RemovePod,
    TryAgain,
)
from iriscw.runtime.vocabulary import (
    SECOND,
    ActorPath,
    Cancel,
    CancelTimer,
    Command,
    Completed,
    Context,
    DecisionFunction,
    Failed,
    Outcome,
    Refuse,
    Reply,
    Run,
    SetTimer,
    Tell,
    Undelivered,
)

GOOD_LIFE = 600 * SECOND
"""A worker that was registered for so long forgives earlier failures: Kubernetes resets its crash backoff
then, too."""

FIRST_RETELL = 1 * SECOND
"""Before a message that found a full mailbox is told again."""

SETTING_UP = 3
"""How many times as patient with a pod that is being set up: that takes a while, and its status tells no trouble from
a mere delay."""

HAD_NO_EFFECT = (Forbidden, Throttled)
"""Errors of a create that mean that no pod comes of it. After any other one may, some day."""

_PASSING = (CallRefusal.LATER, CallRefusal.FORBIDDEN)
"""What a failed create may mean and be asked for again."""

_UNKNOWN_POD = "the pod was made by an earlier incarnation of this controller"


@attrs.frozen
class PodSeed:
    """What a place is born with."""

    config: GroupConfig
    cluster: str
    slice_id: str
    index: int
    scheduler: ActorPath
    links: ActorPath

    @property
    def worker_id(self) -> str:
        """The worker of this place."""
        return worker_name(self.slice_id, self.index)

    def labels(self, incarnation: str = "") -> dict[str, str]:
        """Return the labels of the pods of this place, or of one incarnation."""
        labels = {
            LABEL_MANAGED: "true",
            LABEL_CLUSTER: self.cluster,
            LABEL_GROUP: self.config.name,
            LABEL_SLICE: self.slice_id,
            LABEL_WORKER: self.worker_id,
        }
        return {**labels, LABEL_INCARNATION: incarnation} if incarnation else labels

    def spec(self, incarnation: str) -> PodSpec:
        """Return the pod of one incarnation."""
        return PodSpec(
            name=pod_name(self.worker_id, incarnation),
            pool=self.slice_id,
            labels=self.labels(incarnation),
            request=self.config.per_worker,
            image=self.config.image,
            environment={
                "IRIS_WORKER_ID": self.worker_id,
                "IRIS_INCARNATION": incarnation,
                "IRIS_SCALE_GROUP": self.config.name,
                "IRIS_SLICE_ID": self.slice_id,
            },
        )


@attrs.define
class WorkerPlace:
    """A worker's place as its actor knows it."""

    seed: PodSeed
    state: PodState = PodState.VACANT
    briefed: bool = False
    incarnation: str = ""
    pod: Pod | None = None
    strays: dict[str, Pod] = attrs.field(factory=dict)
    """Pods at this place that do not hold it, by name."""
    info: WorkerInfo | None = None
    last_contact: int = 0
    registered_at: int = 0
    failures: int = 0
    asking: bool = False
    """Whether a create is under way: its answer comes before anything else is asked."""
    unsure: bool = False
    """Whether the create of this incarnation was not answered: it is not asked for again."""
    retries: int = 0
    """Calls that failed in a row."""
    denied: str = ""
    """What was said when the credentials did not allow the last call."""
    health: PodHealth = PodHealth.WELL
    """What keeps the pod from running; the clock for that runs unless it is nothing."""
    reason: str = ""
    refusal: str = ""
    """Why the worker that dialled may not register: said instead of how its pod fares."""
    finding: str = ""
    """What was found in the pod of a worker that has not dialled: said instead of that it runs."""

    @property
    def refused(self) -> bool:
        """Whether what is told of it now is that the credentials do not allow something."""
        return bool(self.denied) and self.reason == self.denied

    def check(self) -> None:
        """Assert what must always hold."""
        holds = self.state not in (PodState.VACANT, PodState.REMOVED)
        assert holds == bool(self.incarnation), f"{self.state} with incarnation {self.incarnation!r}"
        assert (self.info is not None) == (self.state is PodState.REGISTERED)
        assert self.pod is None or holds
        stray = self.strays.get(self.pod.name) if self.pod is not None else None
        assert stray is None or self.pod is None or stray.uid != self.pod.uid, "a pod that goes holds the place"


def resume(place: WorkerPlace, ctx: Context) -> tuple[Command, ...]:
    """Ask for the briefing: all that a fresh place owes."""
    return (Tell(ctx.path.parent, PodStarted(place.seed.worker_id)),)


def _report(place: WorkerPlace, ctx: Context) -> Command:
    place.check()
    told = PodReported(
        place.seed.worker_id, place.state, place.info, place.reason, place.failures, refused=place.refused
    )
    return Tell(ctx.path.parent, told, conflate="pod")


def _lost(place: WorkerPlace, *, fenced: bool) -> Command:
    """Say that the worker is lost. Where its tasks outlive it nobody knows their end before their lease is over."""
    certain = fenced and not place.seed.config.tasks_outlive_workers
    loss = WorkerLost(place.seed.worker_id, place.incarnation, place.reason, certain)
    return Tell(place.seed.scheduler, loss)


# Briefing and filling


def briefed(place: WorkerPlace, message: PodBriefed, ctx: Context) -> Outcome:
    """Learn which pods exist; a restarted actor reads them once more, past what the watch has not brought
    yet.
    """
    if place.briefed:
        return None
    place.briefed = True
    commands: list[Command] = []
    for pod in message.pods:
        commands += _see(place, pod, ctx)
    if ctx.incarnation > 0 and place.state is PodState.VACANT:
        commands.append(Run("pod", ListPods(place.seed.labels())))
    else:
        commands += _fill(place, ctx)
    return (*commands, _report(place, ctx))


def _fill(place: WorkerPlace, ctx: Context) -> list[Command]:
    """Ask for a pod, if the place is vacant and nobody may still run here."""
    if place.state is not PodState.VACANT or not place.briefed or place.strays:
        return []
    place.state = PodState.CREATING
    place.incarnation = ctx.new_id()
    place.reason = "a worker pod was asked for"
    return [CancelTimer("fill"), _ask(place, ctx)]


def _ask(place: WorkerPlace, ctx: Context) -> Command:
    """Ask for the pod of this incarnation, or of the next one if this one's may still come."""
    if place.unsure:
        place.incarnation, place.unsure = ctx.new_id(), False
    place.asking = True
    return Run("pod", CreatePod(place.seed.spec(place.incarnation)))


# What the cloud shows


def seen(place: WorkerPlace, message: PodSeen, ctx: Context) -> Outcome:
    """Take note of a pod that appeared or changed."""
    if not place.briefed:
        return None
    commands = _see(place, message.pod, ctx)
    return (*commands, _report(place, ctx)) if commands else None


def _see(place: WorkerPlace, pod: Pod, ctx: Context) -> list[Command]:
    incarnation = pod.labels.get(LABEL_INCARNATION, "")
    known = place.strays.get(pod.name)
    going = pod.deleting or pod.phase.over or (known is not None and known.uid == pod.uid)  # that one we asked to go
    if place.state is PodState.VACANT and incarnation and not going:
        place.incarnation = incarnation
        place.reason = _UNKNOWN_POD
        return [CancelTimer("fill"), *_acknowledge(place, pod, ctx)]
    if not place.incarnation or incarnation != place.incarnation:
        return _stray(place, pod)
    return _acknowledge(place, pod, ctx)


def _stray(place: WorkerPlace, pod: Pod) -> list[Command]:
    known = place.strays.get(pod.name)
    place.strays[pod.name] = pod
    if known is not None and known.uid == pod.uid:
        return []
    return [Run(("stray", pod.name), DeletePod(pod.name, pod.uid))]


def _acknowledge(place: WorkerPlace, pod: Pod, ctx: Context) -> list[Command]:
    """Take note of the pod that holds the place."""
    place.pod = pod
    place.retries = 0
    place.unsure, place.denied = False, ""
    commands: list[Command] = []
    following = next_pod_state(place.state, PodEvent.ACKNOWLEDGED)
    if following is not None:
        place.state = following
        commands.append(_report(place, ctx))
    if place.state in (PodState.ENDING, PodState.REMOVING):
        if following is None and pod.phase.over:
            return [_lost(place, fenced=True)]
        return commands
    if pod.phase.over:
        code = f" (exit code {pod.exit_code})" if pod.exit_code else ""
        place.reason = f"the worker pod ended: {pod.why or pod.phase.value}{code}"
        return commands + _give_up(place, ctx, fenced=True)
    if pod.deleting:
        place.reason = f"the worker pod is being removed from outside: {pod.reason or 'no reason given'}"
        return commands + _give_up(place, ctx, fenced=False)
    if place.state is PodState.STARTING:
        state = f"the worker pod is {pod.phase.value.lower()}" + (f": {pod.why}" if pod.why else "")
        place.reason = place.refusal or place.finding or state
        commands = [*_start_clock(place, judge_pod(pod)), _report(place, ctx)]
    return commands


def _start_clock(place: WorkerPlace, health: PodHealth) -> list[Command]:
    """Return a pod time for what keeps it from running: anew for each thing that does."""
    if health is place.health:
        return []
    place.health = health
    if health is PodHealth.WELL:
        return [CancelTimer("start")]
    patience = place.seed.config.timing.start_patience
    return [SetTimer("start", patience * (SETTING_UP if health is PodHealth.VOLUMES else 1), CheckStart())]


def check_start(place: WorkerPlace, message: CheckStart, ctx: Context) -> Outcome:
    """Replace a pod that never came to run, with the pauses and the bound of all failures at its place."""
    if place.state is not PodState.STARTING or place.pod is None or place.health is PodHealth.WELL:
        return None
    place.reason = f"the worker pod did not start, because {place.health.value}: {place.pod.why or 'no reason given'}"
    return (*_give_up(place, ctx, fenced=False), _report(place, ctx))


def vanished(place: WorkerPlace, message: PodVanished, ctx: Context) -> Outcome:
    """Take note that a pod is gone, with all its processes."""
    pod = message.pod
    stray = place.strays.get(pod.name)
    if stray is not None and stray.uid == pod.uid:
        return (*_stray_gone(place, stray, ctx), _report(place, ctx))
    if place.pod is None or place.pod.uid != pod.uid:
        return None
    return (*_pod_gone(place, ctx), _report(place, ctx))


def _stray_gone(place: WorkerPlace, stray: Pod, ctx: Context) -> list[Command]:
    """Say that nothing of its incarnation runs any more: a place that began anew may be the only one who knows."""
    del place.strays[stray.name]
    incarnation = stray.labels.get(LABEL_INCARNATION, "")
    certain = not place.seed.config.tasks_outlive_workers
    loss = WorkerLost(place.seed.worker_id, incarnation, "the worker pod is gone", certain)
    told = [Tell(place.seed.scheduler, loss)] if incarnation and incarnation != place.incarnation else []
    return [*told, *_fill(place, ctx)]


def _pod_gone(place: WorkerPlace, ctx: Context) -> list[Command]:
    following = next_pod_state(place.state, PodEvent.POD_GONE)
    if following is None:
        return []
    if place.state in (PodState.STARTING, PodState.REGISTERED):
        place.reason = "the worker pod is gone"
        _count_failure(place, ctx)
    commands = [_lost(place, fenced=True), CancelTimer("pod"), CancelTimer("liveness")]
    commands += _start_clock(place, PodHealth.WELL)
    place.state = following
    place.incarnation, place.pod, place.info, place.retries = "", None, None, 0
    place.refusal = place.finding = ""
    place.unsure, place.denied = False, ""
    if following is PodState.VACANT:
        timing = place.seed.config.timing
        delay = backoff(max(1, place.failures), timing.retry_backoff, timing.retry_backoff_max, ctx.rng)
        commands.append(SetTimer("fill", delay, TryAgain("fill")))
    return commands


# Giving a pod up


def _count_failure(place: WorkerPlace, ctx: Context) -> None:
    good = place.state is PodState.REGISTERED and ctx.now - place.registered_at >= GOOD_LIFE
    place.failures = 1 if good else place.failures + 1


def _give_up(place: WorkerPlace, ctx: Context, *, fenced: bool, event: PodEvent = PodEvent.GIVEN_UP) -> list[Command]:
    """Fence the incarnation off and delete its pod."""
    following = next_pod_state(place.state, event)
    assert following in (PodState.ENDING, PodState.REMOVING), f"{place.state} {event}"
    if event is PodEvent.GIVEN_UP:
        _count_failure(place, ctx)
    place.state = following
    place.info = None
    place.retries = 0
    return [*_start_clock(place, PodHealth.WELL), CancelTimer("liveness"), _lost(place, fenced=fenced), *_end(place)]


def _end(place: WorkerPlace) -> list[Command]:
    """Delete the pod. One whose uid nobody has seen is looked for first: its create may still have landed."""
    if place.asking:
        return []
    if place.pod is not None:
        return [Run("pod", DeletePod(place.pod.name, place.pod.uid))]
    return [Run("pod", ListPods(place.seed.labels(place.incarnation)))]


def removed(place: WorkerPlace, message: RemovePod, ctx: Context) -> Outcome:
    """End the pod for good: the slice goes."""
    if not place.briefed:
        return None  # told again after the briefing
    if place.state is PodState.VACANT:
        place.state = PodState.REMOVED
        return (CancelTimer("fill"), Cancel("pod"), _report(place, ctx))
    if place.state is PodState.ENDING:
        place.state = PodState.REMOVING
        return (_report(place, ctx),)
    if place.state in (PodState.REMOVING, PodState.REMOVED):
        return (_report(place, ctx),)
    place.reason = "the slice is being removed"
    return (*_give_up(place, ctx, fenced=False, event=PodEvent.DISMISSED), _report(place, ctx))


# Answers of the cloud


def completed(place: WorkerPlace, message: Completed, ctx: Context) -> Outcome:
    """Act on a call that went well."""
    match message.effect:
        case CreatePod(spec=spec) if spec.labels[LABEL_INCARNATION] == place.incarnation:
            place.asking = False
            given_up = place.state in (PodState.ENDING, PodState.REMOVING)
            commands = [] if place.pod is not None else _acknowledge(place, message.value, ctx)
            # The answer to a create that was given up meanwhile brings the uid the deletion needs.
            return (*commands, *(_end(place) if given_up else ()), _report(place, ctx))
        case ListPods():
            return _listed(place, message.value, ctx)
        case DeletePod() if message.key == "pod":
            return (_delete_again(place, ctx),)
        case DeletePod(name=name) if name in place.strays:
            return (_stray_again(place, name, ctx),)
    return None


def _listed(place: WorkerPlace, pods: tuple[Pod, ...], ctx: Context) -> Outcome:
    commands: list[Command] = []
    for pod in pods:
        commands += _see(place, pod, ctx)
    if place.state in (PodState.ENDING, PodState.REMOVING):
        commands += _end(place) if place.pod is not None else _pod_gone(place, ctx)
    else:
        commands += _fill(place, ctx)
    return (*commands, _report(place, ctx))


def failed(place: WorkerPlace, message: Failed, ctx: Context) -> Outcome:
    """Act on a call that failed."""
    judgement = judge_error(message.error)
    if isinstance(message.key, tuple):
        name = str(message.key[1])
        stray = place.strays.get(name)
        # An answer about an earlier pod of this name says nothing of the one that has it now.
        if stray is None or not isinstance(message.effect, DeletePod) or message.effect.uid != stray.uid:
            return None
        if judgement.refusal is CallRefusal.ABSENT:
            return (*_stray_gone(place, stray, ctx), _report(place, ctx))
        return (_stray_again(place, name, ctx),)
    if isinstance(message.effect, CreatePod):
        place.asking = False
        if place.pod is not None and place.state not in (PodState.ENDING, PodState.REMOVING):
            return None  # it was seen meanwhile
    place.retries += 1
    place.reason = judgement.text
    place.denied = judgement.text if judgement.refusal is CallRefusal.FORBIDDEN else ""
    match message.effect:
        case CreatePod():
            if place.state in (PodState.ENDING, PodState.REMOVING):
                return (*_end(place), _report(place, ctx))
            if place.state is PodState.CREATING and judgement.refusal not in _PASSING:
                return (*_give_up(place, ctx, fenced=False), _report(place, ctx))
            place.unsure = not isinstance(message.error, HAD_NO_EFFECT)
        case DeletePod(uid=uid):
            if judgement.refusal is CallRefusal.ABSENT and place.pod is not None and place.pod.uid == uid:
                return (*_pod_gone(place, ctx), _report(place, ctx))
    return (_later(place, ctx, judgement.retry_after), _report(place, ctx))


def _later(place: WorkerPlace, ctx: Context, at_least: int) -> Command:
    timing = place.seed.config.timing
    delay = backoff(max(1, place.retries), timing.retry_backoff, timing.retry_backoff_max, ctx.rng)
    return SetTimer("pod", max(delay, at_least), TryAgain("pod"))


def _delete_again(place: WorkerPlace, ctx: Context) -> Command:
    """Repeat a deletion that was acknowledged but not seen to happen (INV-F7)."""
    timing = place.seed.config.timing
    place.retries += 1
    delay = backoff(place.retries, timing.deletion_retry, timing.deletion_patience, ctx.rng)
    return SetTimer("pod", delay, TryAgain("pod"))


def _stray_again(place: WorkerPlace, name: str, ctx: Context) -> Command:
    timing = place.seed.config.timing
    delay = backoff(1, timing.deletion_retry, timing.deletion_patience, ctx.rng)
    return SetTimer(("stray", name), delay, TryAgain(f"stray {name}"))


def try_again(place: WorkerPlace, message: TryAgain, ctx: Context) -> Outcome:
    """Repeat what failed."""
    if message.what == "report":
        return (_report(place, ctx),)
    if message.what == "fill":
        commands = _fill(place, ctx)
        return (*commands, _report(place, ctx)) if commands else None
    if message.what.startswith("stray "):
        pod = place.strays.get(message.what.removeprefix("stray "))
        return (Run(("stray", pod.name), DeletePod(pod.name, pod.uid)),) if pod is not None else None
    match place.state:
        case PodState.CREATING:
            return (_ask(place, ctx), _report(place, ctx))
        case PodState.ENDING | PodState.REMOVING:
            return tuple(_end(place))
        case PodState.VACANT:
            return (Run("pod", ListPods(place.seed.labels())),)
    return None


# The worker


def dialled(place: WorkerPlace, message: WorkerDialled, ctx: Context) -> Outcome:
    """Register the worker, or refuse by name."""
    verdict = judge_dial(
        message,
        config=place.seed.config,
        slice_id=place.seed.slice_id,
        state=place.state,
        incarnation=place.incarnation,
        briefed=place.briefed,
    )
    if isinstance(verdict, WorkerRefused):
        if not verdict.fenced and place.briefed:
            place.reason = place.refusal = str(verdict)
        return (Refuse(verdict), _report(place, ctx))
    following = next_pod_state(place.state, PodEvent.REGISTERED)
    place.last_contact = ctx.attentive
    commands: list[Command] = [Reply(Accepted(verdict)), *_start_clock(place, PodHealth.WELL)]
    if following is not None:
        place.state = following
        place.registered_at = ctx.now
        timeout = place.seed.config.timing.liveness_timeout
        commands.append(SetTimer("liveness", timeout, CheckLiveness(), attentive=True))
    place.info = verdict
    place.reason = place.refusal = place.finding = ""
    return (*commands, _report(place, ctx))


def examined(place: WorkerPlace, message: WorkerExamined, ctx: Context) -> Outcome:
    """Say what was found in the pod of a worker that has not registered; that it was refused says more."""
    if place.state is not PodState.STARTING or message.incarnation != place.incarnation or place.refusal:
        return None
    place.reason = place.finding = f"the worker pod runs, and its worker has not registered: {message.finding}"
    return (_report(place, ctx),)


def contact(place: WorkerPlace, message: WorkerSeen, ctx: Context) -> Outcome:
    """Note a sign of life: nothing else happens, whatever the size of the fleet."""
    if place.info is not None and message.incarnation == place.incarnation:
        place.last_contact = ctx.attentive
        return None
    if not place.briefed:
        return None
    # Forgotten over a restart, or fenced off: its next dial tells it which.
    link = place.seed.links / place.seed.worker_id
    return (Tell(link, DialAgain(place.seed.worker_id, message.incarnation), conflate="dial"),)


def hung_up(place: WorkerPlace, message: WorkerHungUp, ctx: Context) -> Outcome:
    """Note that the stream ended: the worker may dial again until its liveness runs out."""
    if place.info is None or message.incarnation != place.incarnation:
        return None
    place.reason = "the worker's stream ended; it may dial again"
    return (_report(place, ctx),)


def check_liveness(place: WorkerPlace, message: CheckLiveness, ctx: Context) -> Outcome:
    """Judge the worker by the time since its last contact (INV-J10)."""
    if place.state is not PodState.REGISTERED:
        return None
    timeout = place.seed.config.timing.liveness_timeout
    silent = ctx.attentive - place.last_contact
    if silent < timeout:
        return (SetTimer("liveness", timeout - silent, CheckLiveness(), attentive=True),)
    place.reason = f"no contact with the worker for {silent // SECOND} s"
    return (*_give_up(place, ctx, fenced=False), _report(place, ctx))


def undelivered(place: WorkerPlace, message: Undelivered, ctx: Context) -> Outcome:
    """Tell again later. Losses name an incarnation that never returns, so their order does not matter."""
    if isinstance(message.message, WorkerLost):
        loss = message.message
        return (SetTimer(("lost", loss.incarnation, loss.fenced), FIRST_RETELL, loss),)
    return (SetTimer("report", FIRST_RETELL, TryAgain("report")),)


def tell_loss(place: WorkerPlace, message: WorkerLost, ctx: Context) -> Outcome:
    """Tell a loss that found the scheduler's mailbox full."""
    return (Tell(place.seed.scheduler, message),)


RULES: Mapping[type[Any], DecisionFunction] = {
    PodBriefed: briefed,
    PodSeen: seen,
    PodVanished: vanished,
    RemovePod: removed,
    Completed: completed,
    Failed: failed,
    TryAgain: try_again,
    WorkerDialled: dialled,
    WorkerSeen: contact,
    WorkerHungUp: hung_up,
    WorkerExamined: examined,
    CheckLiveness: check_liveness,
    CheckStart: check_start,
    Undelivered: undelivered,
    WorkerLost: tell_loss,
}
"""The decision for each message a place accepts."""
