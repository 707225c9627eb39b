"""A slice before a small honest world: the walks that laws about slices hold on.

The pool it asks for exists, its places start and say how they stand, its clocks tick; whoever walks says what is next.
"""

from __future__ import annotations

import copy

import attrs
from slice_desk import NAME, brief, registered

from iriscw.cloud.effects import CreateNodePool, DeleteNodePool, DeletePod, ListNodePools, ListPods
from iriscw.cloud.model import (
    Condition,
    Gone,
    InvalidSpec,
    NoCapacity,
    Node,
    NodePool,
    QuotaExceeded,
    Throttled,
    Unavailable,
)
from iriscw.fleet.messages import (
    ActivityChanged,
    Cordon,
    Cordoned,
    SchedulerStarted,
    Uncordon,
    WorkerReady,
    WorkersMissed,
)
from iriscw.fleet.model import PodState, SliceState, worker_name
from iriscw.fleet.signals import (
    CordonAnswered,
    Dismiss,
    PodReported,
    PodStarted,
    PoolSeen,
    PoolVanished,
    RemovePod,
    SliceReported,
)
from iriscw.fleet.slices import rules as slice_rules, slice as slices
from iriscw.runtime.vocabulary import (
    SECOND,
    CancelTimer,
    Completed,
    Failed,
    Run,
    SetTimer,
    Spawn,
    StopReason,
    Tell,
    Terminated,
)

ERRORS = (Unavailable("no answer"), Throttled(retry_after=30 * SECOND))
REFUSALS = (QuotaExceeded("no quota"), NoCapacity("no machines"), InvalidSpec("no such type"))
TO_READY = ("stage", "startup", "slow")
CONDITIONS = {
    "boots": (),
    "waits for machines": (Condition("Capacity", "False", "QueuedAwaitingCapacity"),),
    "is over quota": (Condition("Quota", "False", "Over"),),
}


class Walk:
    """One slice of two workers, its clocks and calls, its pool, and what the scheduler was told."""

    size = 2

    def __init__(self, piece, ctx, told=None) -> None:
        self.it = piece(num_vms=self.size)
        self.ctx = copy.deepcopy(ctx)
        self.clocks: dict[object, SetTimer] = {}
        self.calls: dict[object, list[object]] = {}
        """By key: the first runs, the others wait for it."""
        self.pool: NodePool | None = None
        self.places: dict[str, PodReported | None] = {}
        """Each place that was started, with its last report."""
        self.going: dict[str, None] = {}
        """Places that were told to end."""
        self.reported: SliceReported | None = None
        self.known: dict[str, str] = {}
        """The scheduler's workers: the incarnation by name."""
        self.closed: int | None = None
        """The round of the cordon that the scheduler keeps."""
        self.answers: list[CordonAnswered] = []
        self.serial = 0
        self.send(told or brief())

    def send(self, message):
        """Have the slice decide, and take what it says for done."""
        commands = slice_rules.RULES[type(message)](self.it, message, self.ctx) or ()
        self.it.check()
        for each in commands:
            match each:
                case SetTimer():
                    self.clocks[each.key] = each
                case CancelTimer():
                    self.clocks.pop(each.key, None)
                case Run():
                    self.calls.setdefault(each.key, []).append(each.effect)
                case Spawn():
                    assert each.spec.name not in self.places, "a place is started once"
                    self.places[each.spec.name] = None
                case Tell():
                    self._told(each.to.name, each.message)
        return commands

    def _told(self, name, message) -> None:
        match message:
            case SliceReported():
                self.reported = message
            case CordonAnswered():
                self.answers.append(message)
            case RemovePod():
                self.going[name] = None
            case WorkerReady(info=info):
                self.known[info.worker_id] = info.incarnation
            case Cordon(round=round_):
                self.closed = round_
            case Uncordon(round=round_) if round_ == self.closed:
                self.closed = None

    def truth(self) -> SliceReported:
        """Return what a report would say now."""
        return slices.report(self.it, self.ctx).message

    # The pool

    def answer(self, key, error=None) -> None:
        """Answer the call that runs under a key."""
        effect = self.calls[key].pop(0)
        if not self.calls[key]:
            del self.calls[key]
        if error is not None:
            self.send(Failed(key, effect, error))
            return
        match effect:
            case CreateNodePool():
                self._land()
                self.send(Completed(key, effect, self.pool))
            case ListNodePools():
                self.send(Completed(key, effect, () if self.pool is None else (self.pool,)))
            case ListPods():
                self.send(Completed(key, effect, ()))
            case DeletePod():
                self.send(Completed(key, effect, None))
            case DeleteNodePool(uid=uid):
                if self.pool is None or self.pool.uid != uid:
                    self.send(Failed(key, effect, Gone("no such pool")))
                    return
                self.pool = attrs.evolve(self.pool, deleting=True)
                self.send(Completed(key, effect, None))

    def _land(self) -> None:
        if self.pool is None:
            self.serial += 1
            self.pool = NodePool(NAME, f"u{self.serial}", "1", dict(self.it.seed.labels), self.size)

    def lose_answer(self) -> None:
        """Have a create land and its answer get lost."""
        self._land()
        self.answer("pool", Unavailable("no answer"))

    def show(self, **changes) -> None:
        """Show the pool, changed or as it is."""
        self.pool = attrs.evolve(self.pool, **changes)
        self.send(PoolSeen(self.pool))

    def boot(self, count) -> None:
        """Have so many nodes be ready."""
        self.show(nodes=tuple(Node(f"n{index}", f"nu{index}", ready=True) for index in range(count)), conditions=())

    def lose_pool(self) -> None:
        """Have the pool vanish."""
        uid, self.pool = self.pool.uid, None
        self.send(PoolVanished(uid))

    # The places

    def report(self, name, state=PodState.REGISTERED, failures=0) -> None:
        """Have a place say how it stands."""
        told = PodReported(name, state, None, "pulling its image", failures)
        if state is PodState.REGISTERED:
            self.serial += 1
            told = registered(self.it, int(name.rpartition("-")[2]), f"i{self.serial}")
        self.places[name] = told
        self.send(told)

    def restart(self, name) -> None:
        """Have a place's actor begin anew: it knows nothing."""
        self.places[name] = None
        self.send(PodStarted(name))

    def run(self, name, count) -> None:
        """Have attempts live on a worker."""
        told = self.places[name]
        self.send(ActivityChanged(name, told.info.incarnation, count))

    def end(self, name) -> None:
        """Have a place fail for good."""
        self.going.pop(name, None)
        del self.places[name]
        path = self.ctx.path / name
        self.send(Terminated(path, StopReason.QUARANTINED))

    def ring(self, key) -> None:
        """Let a clock ring, at its time."""
        clock = self.clocks.pop(key)
        self.ctx.later(clock.delay / SECOND)
        self.send(clock.message)

    # What may come next

    def choices(self):
        """Yield all that may come next: a name and a function."""
        yield "dismiss", lambda: self.send(Dismiss("enough"))
        yield "new scheduler", self.forget
        yield "missed", lambda: self.send(WorkersMissed(((worker_name(NAME, 0), "i0"),)))
        yield "cordoned", lambda: self.send(Cordoned(NAME, 0, 5))
        for key, (effect, *_) in self.calls.items():
            yield f"answer {key}", lambda key=key: self.answer(key)
            creates = isinstance(effect, CreateNodePool)
            if creates:
                yield "the create lands, unanswered", self.lose_answer
            for error in (*ERRORS, *REFUSALS) if creates and self.pool is None else ERRORS:
                yield f"{key} fails: {error}", lambda key=key, error=error: self.answer(key, error)
        for key in self.clocks:
            yield f"ring {key}", lambda key=key: self.ring(key)
        if self.pool is not None:
            yield "pool vanishes", self.lose_pool
            yield "pool goes", lambda: self.show(deleting=True)
            for text, conditions in CONDITIONS.items():
                yield f"pool {text}", lambda conditions=conditions: self.show(conditions=conditions)
            for count in range(self.size + 1):
                yield f"{count} nodes", lambda count=count: self.boot(count)
        for name, told in self.places.items():
            yield f"{name} begins", lambda name=name: self.restart(name)
            yield f"{name} fails for good", lambda name=name: self.end(name)
            if name in self.going:
                yield f"{name} ends", lambda name=name: self.report(name, PodState.REMOVED)
            if told is None or told.state is not PodState.REMOVED:
                yield f"{name} registers", lambda name=name: self.report(name)
                yield f"{name} starts", lambda name=name: self.report(name, PodState.STARTING)
                yield f"{name} fails", lambda name=name: self.report(name, PodState.STARTING, 5)
            if told is not None and told.info is not None:
                yield f"{name} runs", lambda name=name: self.run(name, 1)
                yield f"{name} idles", lambda name=name: self.run(name, 0)

    def forget(self) -> None:
        """Have the scheduler begin anew."""
        self.known, self.closed = {}, None
        self.send(SchedulerStarted())

    def settle(self) -> None:
        """Heal the world: calls are answered, pools boot, what is deleted goes, places do as they are told."""
        for _ in range(300):
            if self.it.state is SliceState.GONE:
                return
            ending = [name for name, told in self.places.items() if name in self.going and _lives(told)]
            starting = [name for name, told in self.places.items() if told is None or told.info is None]
            if self.pool is not None and self.pool.deleting:
                self.lose_pool()
            elif self.calls:
                self.answer(next(iter(self.calls)))
            elif self.pool is not None and (len(self.pool.nodes) < self.size or self.pool.conditions):
                self.boot(self.size)
            elif ending:
                self.report(ending[0], PodState.REMOVED)
            elif starting and not self.going:
                self.report(starting[0])
            elif due := sorted((key in ("pods", "stuck"), key) for key in self.clocks if key not in TO_READY):
                self.ring(due[0][1])
            else:
                return
        raise AssertionError(f"it never comes to rest: {self.it}")


def _lives(told) -> bool:
    return told is None or told.state is not PodState.REMOVED
