"""A worker's place before a small honest world: the walks that laws about places hold on.

What the place asks for runs, what it sets ticks, what it starts exists; whoever walks says what comes next.
"""

from __future__ import annotations

import copy

import attrs

from iriscw.cloud.effects import CreatePod, DeletePod, ListPods
from iriscw.cloud.model import LABEL_INCARNATION, Attributes, Conflict, Gone, Pod, PodPhase, Throttled, Unavailable
from iriscw.fleet import pods
from iriscw.fleet.messages import WorkerDialled, WorkerHungUp, WorkerLost, WorkerSeen
from iriscw.fleet.model import PodState
from iriscw.fleet.signals import PodBriefed, PodReported, PodSeen, PodVanished, RemovePod
from iriscw.runtime.vocabulary import SECOND, Cancel, CancelTimer, Completed, Failed, Run, SetTimer, Tell

ERRORS = (Unavailable("no answer"), Throttled(retry_after=30 * SECOND), Conflict("taken"), Gone("no such thing"))


class Walk:
    """One place, its clocks, its calls, and the pods that exist."""

    def __init__(self, place, ctx) -> None:
        self.place, self.ctx = copy.deepcopy(place), copy.deepcopy(ctx)
        self.clocks: dict[object, object] = {}
        self.calls: dict[object, list[object]] = {}
        """By key: the first runs, the others wait for it."""
        self.pods: dict[str, Pod] = {}
        self.reported: PodReported | None = None
        self.losses: list[WorkerLost] = []
        self.serial = 0
        self.send(PodBriefed(()))

    def send(self, message):
        """Have the place decide, and take what it says for done."""
        commands = pods.RULES[type(message)](self.place, message, self.ctx) or ()
        self.place.check()
        for each in commands:
            match each:
                case SetTimer():
                    self.clocks[each.key] = each
                case CancelTimer():
                    self.clocks.pop(each.key, None)
                case Run():
                    self.calls.setdefault(each.key, []).append(each.effect)
                case Cancel():
                    self.calls.pop(each.key, None)
                case Tell(message=PodReported()):
                    self.reported = each.message
                case Tell(message=WorkerLost()):
                    self.losses.append(each.message)
        return commands

    def truth(self) -> PodReported:
        """Return what a report would say now."""
        it = self.place
        return PodReported(it.seed.worker_id, it.state, it.info, it.reason, it.failures)

    # What may come next

    def answer(self, key, error=None) -> None:
        """Answer the call that runs under a key."""
        effect = self.calls[key].pop(0)
        if not self.calls[key]:
            del self.calls[key]
        if error is not None:
            self.send(Failed(key, effect, error))
            return
        match effect:
            case CreatePod(spec=spec):
                self.land(spec)
                self.send(Completed(key, effect, self.pods[spec.name]))
            case ListPods(labels=labels):
                found = [pod for pod in self.pods.values() if labels.items() <= pod.labels.items()]
                self.send(Completed(key, effect, tuple(found)))
            case DeletePod(name=name, uid=uid):
                pod = self.pods.get(name)
                if pod is None or pod.uid != uid:
                    self.send(Failed(key, effect, Gone("no such pod")))
                    return
                self.pods[name] = attrs.evolve(pod, deleting=True)
                self.send(Completed(key, effect, None))

    def land(self, spec) -> None:
        """Have the pod be there that a create asks for."""
        if spec.name not in self.pods:
            self.serial += 1
            self.pods[spec.name] = Pod(spec.name, f"u{self.serial}", "1", dict(spec.labels))

    def lose_answer(self) -> None:
        """Have a create land and its answer get lost."""
        self.land(self.calls["pod"][0].spec)
        self.answer("pod", Unavailable("no answer"))

    def ring(self, key) -> None:
        """Let a clock ring, at its time."""
        clock = self.clocks.pop(key)
        self.ctx.later(clock.delay / SECOND)
        self.send(clock.message)

    def show(self, name, **changes) -> None:
        """Show a pod, changed or as it is."""
        self.pods[name] = attrs.evolve(self.pods[name], **changes)
        self.send(PodSeen(self.pods[name]))

    def vanish(self, name) -> None:
        """Remove a pod, and tell."""
        self.send(PodVanished(self.pods.pop(name)))

    def appear(self) -> None:
        """Show a pod of this place that nobody here asked for."""
        other = self.place.seed.spec(f"other{self.serial}")
        self.land(other)
        self.show(other.name)

    def dial(self, incarnation=None) -> None:
        """Have a worker dial."""
        it = self.place
        who = it.incarnation if incarnation is None else incarnation
        self.send(WorkerDialled(it.seed.worker_id, who, it.seed.config.per_worker, Attributes(), "10.0.0.1"))

    def contact(self) -> None:
        """Have the worker give a sign of life."""
        self.send(WorkerSeen(self.place.seed.worker_id, self.place.incarnation))

    def choices(self):
        """Yield all that may come next: a name and a function."""
        worker, who = self.place.seed.worker_id, self.place.incarnation
        if any(pod.labels[LABEL_INCARNATION] == who for pod in self.pods.values()):
            yield "dial", self.dial
        yield "other dials", lambda: self.dial("other")
        yield "remove", lambda: self.send(RemovePod())
        yield "appear", self.appear
        if who:
            yield "contact", self.contact
            yield "hang up", lambda: self.send(WorkerHungUp(worker, who))
        for key in self.calls:
            yield f"answer {key}", lambda key=key: self.answer(key)
            if isinstance(self.calls[key][0], CreatePod):
                yield "the create lands, unanswered", self.lose_answer
            deletes = isinstance(self.calls[key][0], DeletePod)  # that what exists is gone would be a lie
            for error in ERRORS[:-1] if deletes else ERRORS:
                yield f"{key} fails: {error}", lambda key=key, error=error: self.answer(key, error)
        for key in self.clocks:
            yield f"ring {key}", lambda key=key: self.ring(key)
        for name in self.pods:
            yield f"{name} runs", lambda name=name: self.show(name, phase=PodPhase.RUNNING)
            yield f"{name} fails", lambda name=name: self.show(name, phase=PodPhase.FAILED)
            yield f"{name} goes", lambda name=name: self.show(name, deleting=True)
            yield f"{name} vanishes", lambda name=name: self.vanish(name)

    def settle(self) -> None:
        """Heal the world: calls are answered, what is deleted goes, workers dial and stay in contact."""
        for name in list(self.pods):
            self.show(name)
        for _ in range(300):
            gone = [name for name, pod in self.pods.items() if pod.deleting]
            if gone:
                self.vanish(gone[0])
            elif self.calls:
                self.answer(next(iter(self.calls)))
            elif self.place.state in (PodState.CREATING, PodState.STARTING) and self.place.pod is not None:
                self.dial()
            elif due := [key for key in self.clocks if key != "liveness"]:
                self.ring(due[0])
            else:
                return
        raise AssertionError(f"it never comes to rest: {self.place}")
