"""A scale group before a small honest world: the walks that laws about groups hold on.

Slices that it starts exist and report, pools are shown and go when they are asked to, the scheduler answers; whoever
walks says what is next.
"""

from __future__ import annotations

import copy

import attrs

from iriscw.cloud.effects import DeleteNodePool
from iriscw.cloud.model import Gone, NodePool, Pod, Removed, Unavailable, Upserted
from iriscw.fleet.groups import group as groups, rules as group_rules
from iriscw.fleet.messages import Cordon, ReopenGroup, SchedulerStarted, SliceGone, Uncordon
from iriscw.fleet.model import SliceRow, SliceState, Trouble
from iriscw.fleet.signals import (
    CordonAnswered,
    Dismiss,
    Evaluate,
    GroupReported,
    PodsListed,
    PoolsListed,
    SliceBriefed,
    SliceReported,
    SliceRowChanged,
    SliceStarted,
    SlicesWanted,
)
from iriscw.runtime.vocabulary import (
    SECOND,
    ActorPath,
    CancelTimer,
    Completed,
    Continue,
    Decision,
    Failed,
    Run,
    SetTimer,
    Spawn,
    StopChild,
    Tell,
)

COMING = (SliceState.CREATING, SliceState.BOOTING, SliceState.INITIALIZING)
STUCK = Trouble.STUCK_DELETION
TROUBLES = (Trouble.QUOTA, Trouble.SLOW_BOOT, Trouble.INVALID, Trouble.WORKERS)


class Walk:
    """One group, its clocks and calls, its slices as they are, and what the scheduler was told."""

    def __init__(self, group, ctx, **changes) -> None:
        self.it = group(**changes)
        self.ctx = copy.deepcopy(ctx)
        self.ctx.path = ActorPath("/fleet/gpu")
        self.clocks: dict[object, SetTimer] = {}
        self.calls: dict[object, object] = {}
        self.slices: dict[str, SliceReported | None] = {}
        """Each slice that lives, with its last report."""
        self.briefed: dict[str, SliceBriefed] = {}
        self.dismissed: dict[str, None] = {}
        self.were_stuck: dict[str, None] = {}
        """Slices whose deletion was stuck: their places were given to others."""
        self.pools: dict[str, NodePool] = {}
        self.pods: dict[str, Pod] = {}
        self.rows: dict[str, SliceRow] = {}
        """What the fleet shows."""
        self.closed: dict[str, int] = {}
        """Rounds of the scheduler's cordons, by slice."""
        self.cordons: list[Cordon] = []
        self.gone: list[str] = []
        """Slices that the scheduler was told are gone."""
        self.reported: GroupReported | None = None
        self.serial = 0
        self._do(groups.resume(self.it, self.ctx))
        self.send(PoolsListed(()))
        self.send(PodsListed(()))
        self.ring("takeover")

    def send(self, message) -> None:
        """Have the group decide, and take what it says for done."""
        outcome = group_rules.RULES[type(message)](self.it, message, self.ctx)
        if isinstance(outcome, Decision):
            for fact in outcome.records:
                groups.apply(self.it, fact)
            outcome = outcome.commands
        self._do(outcome or ())

    def _do(self, commands) -> None:
        further = []
        for each in commands:
            match each:
                case SetTimer():
                    self.clocks[each.key] = each
                case CancelTimer():
                    self.clocks.pop(each.key, None)
                case Run():
                    assert each.key not in self.calls, "asked for twice at a time"
                    self.calls[each.key] = each.effect
                case Spawn():
                    assert each.spec.name in self.it.promises, "promised first (INV-F1)"
                    self.slices[each.spec.name] = None
                    further.append(SliceStarted(each.spec.name))
                case StopChild():
                    del self.slices[each.name]
                case Continue():
                    further.append(each.message)
                case Tell():
                    self._told(each.to.name, each.message)
        for message in further:
            self.send(message)

    def _told(self, name, message) -> None:
        match message:
            case SliceBriefed():
                self.briefed[name] = message
            case Dismiss():
                self.dismissed[name] = None
            case SliceRowChanged(slice_id=slice_id, row=row):
                self.rows.pop(slice_id, None)
                if row is not None:
                    self.rows[slice_id] = row
            case Cordon(slice_id=slice_id, round=round_):
                self.closed[slice_id] = round_
                self.cordons.append(message)
            case Uncordon(slice_id=slice_id, round=round_):
                if self.closed.get(slice_id) == round_:
                    del self.closed[slice_id]
            case SliceGone(slice_id=slice_id):
                self.gone.append(slice_id)
            case GroupReported():
                self.reported = message

    # Slices

    def report(self, name, state, trouble=Trouble.NONE, *, idle=False) -> None:
        """Have a slice say how it stands."""
        before = self.slices[name]
        ready = state is SliceState.READY
        was_ready = before is not None and before.row.state is SliceState.READY
        self.slices[name] = SliceReported(
            row=SliceRow(name, "gpu", state, trouble, "why", self.ctx.wall, self.ctx.wall, workers=("w",)),
            pool_uid=f"pool-of-{name}",
            idle_since=(before.idle_since if was_ready and before.idle_since else self.ctx.now) if idle else None,
            ready_since=(before.ready_since if was_ready else self.ctx.now) if ready else None,
            used=before is not None and (before.used or (ready and not idle)),
            stuck=trouble is Trouble.STUCK_DELETION,
            bare=state in COMING[:2],
        )
        if trouble is Trouble.STUCK_DELETION:
            self.were_stuck[name] = None
        if state is SliceState.GONE:
            self.pools.pop(name, None)
        self.send(self.slices[name])

    def answer_cordon(self, live) -> None:
        """Have the scheduler answer by way of the slice."""
        asked = self.it.sight.cordon
        told = self.slices[asked.slice_id]
        self.send(CordonAnswered(asked.slice_id, live, asked.round, told.idle_since, self.ctx.now))

    def restart(self, name) -> None:
        """Have the actor of a slice begin anew: it has not reported."""
        self.slices[name] = None
        self.dismissed.pop(name, None)
        self.send(SliceStarted(name))

    # What the cloud shows

    def labels(self, slice_id):
        """Return the labels of what belongs to a slice."""
        return {"iris-managed": "true", "iris-cluster": "test", "iris-scale-group": "gpu", "iris-slice-id": slice_id}

    def late(self, slice_id="") -> None:
        """Show a pool, or a pod, of a slice that nobody promised."""
        self.serial += 1
        name = slice_id or f"iris-gpu-old{self.serial}"
        if self.serial % 2:
            self.pools[name] = NodePool(name, f"u{self.serial}", "1", self.labels(name))
            self.send(Upserted(self.pools[name]))
        else:
            self.pods[name] = Pod(name, f"u{self.serial}", "1", self.labels(name))
            self.send(Upserted(self.pods[name]))

    def lose(self, table, name) -> None:
        """Have something vanish."""
        self.send(Removed(table.pop(name)))

    def relist(self) -> None:
        """List everything anew."""
        self.send(PoolsListed(tuple(self.pools.values())))
        self.send(PodsListed(tuple(self.pods.values())))

    def answer(self, key, error=None) -> None:
        """Answer a deletion; it happens when it pleases the cloud."""
        effect = self.calls.pop(key)
        if error is not None:
            self.send(Failed(key, effect, error))
            return
        table = self.pools if isinstance(effect, DeleteNodePool) else self.pods
        thing = table.get(effect.name)
        if thing is None or thing.uid != effect.uid:
            self.send(Failed(key, effect, Gone("no such thing")))
            return
        table[effect.name] = attrs.evolve(thing, deleting=True)
        self.send(Completed(key, effect, None))

    def ring(self, key) -> None:
        """Let a clock ring, at its time."""
        clock = self.clocks.pop(key)
        self.ctx.later(clock.delay / SECOND)
        self.send(clock.message)

    # What may come next

    def choices(self):
        """Yield all that may come next: a name and a function."""
        for count in (0, 1, 3):
            yield f"wanted {count}", lambda count=count: self.send(SlicesWanted(count))
        yield "wanted 3 for a gang", lambda: self.send(SlicesWanted(3, spread=3))
        yield "time passes", lambda: (self.ctx.later(40), self.send(Evaluate()))
        yield "new scheduler", self.forget
        yield "reopened", lambda: self.send(ReopenGroup("gpu"))
        yield "something late", self.late
        yield "relisted", self.relist
        for key in self.clocks:
            yield f"ring {key}", lambda key=key: self.ring(key)
        for key in self.calls:
            yield f"answer {key}", lambda key=key: self.answer(key)
            yield f"{key} fails", lambda key=key: self.answer(key, Unavailable("no answer"))
        for table, kind in ((self.pools, "pool"), (self.pods, "pod")):
            for name in table:
                yield f"{kind} {name} vanishes", lambda table=table, name=name: self.lose(table, name)
        if self.it.sight.cordon is not None and self.it.sight.cordon.slice_id in self.slices:
            yield "idle, says the scheduler", lambda: self.answer_cordon(0)
            yield "busy, says the scheduler", lambda: self.answer_cordon(1)
        for name, told in self.slices.items():
            yield f"{name} begins anew", lambda name=name: self.restart(name)
            state = told.row.state if told is not None else SliceState.REQUESTED
            if name in self.dismissed:
                yield f"{name} drains", lambda name=name: self.report(name, SliceState.DRAINING)
                yield f"{name} is gone", lambda name=name: self.report(name, SliceState.GONE)
                yield f"{name} is stuck", lambda name=name: self.report(name, SliceState.DELETING, STUCK)
                continue
            if state is SliceState.FAILED:
                continue
            for trouble in TROUBLES:
                yield (
                    f"{name}: {trouble.value}",
                    lambda name=name, trouble=trouble: self.report(name, SliceState.FAILED, trouble),
                )
            yield f"{name} waits", lambda name=name: self.report(name, SliceState.BOOTING, Trouble.CAPACITY)
            for each in COMING:
                yield f"{name} {each.value}", lambda name=name, each=each: self.report(name, each)
            yield f"{name} busy", lambda name=name: self.report(name, SliceState.READY)
            yield f"{name} idle", lambda name=name: self.report(name, SliceState.READY, idle=True)

    def forget(self) -> None:
        """Have the scheduler begin anew."""
        self.closed = {}
        self.send(SchedulerStarted())

    def settle(self, wanted=0, rounds=150) -> None:
        """Heal the world: slices boot and idle, what goes is gone, calls and questions are answered; time passes."""
        self.send(ReopenGroup("gpu"))
        self.send(SlicesWanted(wanted))
        for _ in range(rounds):
            for name, told in list(self.slices.items()):
                state = told.row.state if told is not None else SliceState.REQUESTED
                if name in self.dismissed:
                    self.report(name, SliceState.GONE)
                elif state is not SliceState.FAILED and (state is not SliceState.READY or told.idle_since is None):
                    self.report(name, SliceState.READY, idle=True)
            for key in list(self.calls):
                self.answer(key)
            for table in (self.pools, self.pods):
                for name in [name for name, thing in table.items() if thing.deleting]:
                    self.lose(table, name)
            if self.it.sight.cordon is not None:
                self.answer_cordon(0)
            for key in [key for key in self.clocks if isinstance(key, tuple)]:
                self.ring(key)
            self.ring("evaluate")
