"""What must always hold of attempts that are suspended and resumed, judged by what really runs and what is on the disk.

========  ============================================================================================
INV-J2    an attempt runs in one place at a time: where the disk says, and never while it is suspended
INV-J3    a suspended attempt holds no room; room is held for it before it comes back
INV-J5    what is suspended is neither a failure nor a loss, and its time counts against no timeout
INV-J8    what a suspended attempt has written is not called complete before it is stored
INV-R9    nothing is frozen, thawed, let go, removed, promised or published before it is on the disk
INV-C10   what is suspended keeps its checkpoint, and none stays that nobody speaks of
========  ============================================================================================

That everything that was asked for comes to an end is liveness: a job with a suspended attempt does not end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from iriscw.fleet.model import slice_of
from iriscw.jobs.errors import GangNotSuspendable
from iriscw.jobs.job.ledger import JobLedger, compact, evolve
from iriscw.jobs.keeping.records import WentBack
from iriscw.jobs.model import Ending, Orders, Suspension
from iriscw.jobs.records import AttemptEnded
from iriscw.jobs.scheduling.state import Scheduler
from iriscw.jobs.suspension.effects import DropCheckpoint, FreezeAttempt, StoreCheckpoint, ThawAttempt
from iriscw.jobs.suspension.messages import SuspensionChanged, SuspensionView
from iriscw.jobs.suspension.model import SUSPENDING, Stage
from iriscw.jobs.suspension.records import (
    AttemptDeserted,
    AttemptFreezing,
    AttemptFrozen,
    AttemptResumed,
    AttemptResuming,
    AttemptStored,
    AttemptSuspended,
    AttemptUnplaced,
    CheckpointDropped,
    StoreFailed,
    SuspensionAsked,
    SuspensionUndone,
)
from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.swarm import STOPS_AMID_A_MOVE

if TYPE_CHECKING:
    from iriscw_sims.job_checks import JobChecks, TruthOfAttempt
    from iriscw_sims.workers import SimWorker
    from iriscw_sims.world import World

TIMER_SLACK = SECOND
"""How much earlier than by its timeout an attempt may be stopped: its start is told a moment after it began."""

WANTED: dict[type, Stage] = {
    FreezeAttempt: Stage.FREEZING,
    StoreCheckpoint: Stage.SUSPENDED,
    ThawAttempt: Stage.RESUMING,
}
"""The stage in which each effect may be asked for."""

LEADS_TO: dict[type, Stage] = {
    SuspensionAsked: Stage.ASKED,
    AttemptFreezing: Stage.FREEZING,
    AttemptFrozen: Stage.FROZEN,
    AttemptSuspended: Stage.SUSPENDED,
    AttemptUnplaced: Stage.SUSPENDED,
    AttemptStored: Stage.SUSPENDED,
    StoreFailed: Stage.SUSPENDED,
    SuspensionUndone: Stage.RUNS,
    AttemptResuming: Stage.RESUMING,
    AttemptResumed: Stage.RUNS,
    WentBack: Stage.SUSPENDED,
}
"""The stage that each record leads to."""


@attrs.define
class TruthOfMove:
    """What the disk and the world say about the suspensions of one live attempt."""

    stage: Stage = Stage.RUNS
    number: int = 0
    """How often it was to be suspended."""
    key: str = ""
    """What whoever asked for the latest calls it."""
    grant: str = ""
    told: bool = False
    """Whether its worker was told of that."""
    suspended: bool = False
    """Whether it ever was SUSPENDED."""
    away: bool = False
    """Whether it has no worker."""
    held_since: int = -1
    """Since when room is held for it nevertheless: one that is to come back gets it a moment before; -1: it is not.
    """
    frozen_at: int = -1
    """Since when nothing of it runs; -1 if something does."""
    began: int = -1
    ran: int = 0
    """For how long it ran before it was frozen last, ns."""
    unseen: int = 0
    """Time in which it was frozen already, and the controller could not know, ns."""


class MoveChecks:
    """The checks, fed with what happens."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.moves: dict[str, TruthOfMove] = {}
        """Of live attempts that somebody wanted to suspend, by uid."""
        self.excused: dict[str, None] = {}
        """The keys of suspensions whose checkpoint stays, and this is written down."""
        self.wrote = ""
        """The path of a job that has just written something about a suspension."""
        self.stops: list[int] = []
        """In how many steps after the next record of a suspension the controller stops, one per trap."""

    @property
    def jobs(self) -> JobChecks:
        """What is known of jobs."""
        return self.world.job_checks

    def broken(self, invariant: str, what: str) -> None:
        """Note that an invariant does not hold."""
        self.world.violate(invariant, what)

    def moving(self) -> list[str]:
        """Return the live attempts that are suspended by the disk, or on their way there or back."""
        return [uid for uid, move in self.moves.items() if move.stage is not Stage.RUNS]

    def replays(self) -> None:
        """Look at the job that wrote something about a suspension: its journal, and a snapshot, say what it knows."""
        path, self.wrote = self.wrote, ""
        state = self.world.system.state(path)
        if self.world.system.crashed or not isinstance(state, JobLedger):
            return
        for how, records in (("journal", self.world.system.journal.read(path)), ("snapshot", compact(state))):
            fresh = JobLedger(state.job_id, state.order, state.spec, state.submitted_wall_ns)
            for record in records:
                evolve(fresh, record)
            if _counted(fresh) != _counted(state):
                wrong = [name for name in _FIELDS if getattr(_counted(fresh), name) != getattr(_counted(state), name)]
                self.broken("R9", f"what a {how} of {path} comes to differs from what it knows in {', '.join(wrong)}")

    # What really runs

    def started(self, uid: str) -> None:
        """An attempt begins to run."""
        self.moves[uid] = TruthOfMove(began=self.world.simulation.now)

    def frozen(self, uid: str) -> None:
        """Nothing of an attempt runs any more: it is a checkpoint."""
        move, now = self.moves[uid], self.world.simulation.now
        move.ran += now - move.began
        move.frozen_at = now
        if move.stage not in (*SUSPENDING, Stage.RUNS):
            self.broken("R9", f"{uid} is frozen, and is {move.stage.value} by the disk")

    def thawed(self, worker: SimWorker, uid: str) -> None:
        """An attempt runs again."""
        move, known = self.moves.get(uid), self.jobs.attempts.get(uid)
        if move is None or known is None or known.over:
            self.broken("J2", f"{uid} comes back, and is over by the disk")
            return
        place, named = (worker.worker_id, worker.incarnation), (known.worker_id, known.incarnation)
        if move.stage is not Stage.RESUMING or place != named:
            self.broken("J2", f"{uid} comes back on {place}; by the disk it is {move.stage.value} on {named}")
        move.frozen_at, move.began = -1, self.world.simulation.now
        scheduler = self.world.system.state("/jobs/scheduler")
        if isinstance(scheduler, Scheduler) and not scheduler.syncing:
            job = scheduler.jobs.get(known.job_id)
            held = uid in scheduler.inventory.where or uid in scheduler.absent_of
            if job is not None and not job.reporting and not held:
                self.broken("J3", f"{uid} comes back on {worker.worker_id}, and no room is held for it")

    # What leaves the controller

    def ordered(self, worker: SimWorker, orders: Orders) -> None:
        """Orders leave the process: what they rest on must be on the disk."""
        for order in orders.run:
            move = self.moves.get(order.uid)
            if order.resumption is None or move is None:
                continue
            if move.grant != order.resumption.grant:
                self.broken("R9", f"{worker.worker_id} gets the grant {order.resumption.grant}: not on the disk")
            move.told = True
        for uid in orders.suspend:
            move = self.moves.get(uid)
            if move is not None and move.stage is Stage.RUNS and not move.key:
                self.broken("R9", f"{worker.worker_id} is told that {uid} will be frozen: not on the disk")

    def may_forget(self, worker: SimWorker, uid: str, known: TruthOfAttempt) -> bool:
        """Tell whether a worker need not keep a live attempt: by the disk it has none, another, or this one anew."""
        move = self.moves.get(uid, TruthOfMove())
        elsewhere = (known.worker_id, known.incarnation) != (worker.worker_id, worker.incarnation)
        return known.away or elsewhere or (move.stage is Stage.RESUMING and not move.told)

    def asked(self, effect: FreezeAttempt | StoreCheckpoint | ThawAttempt | DropCheckpoint) -> None:
        """Somebody is to freeze, store, thaw or remove."""
        if isinstance(effect, DropCheckpoint):
            self.world.copy_checks.drops(effect)
            made = self.world.freezing.orders.get(effect.key)
            uid = "" if made is None else made.effect.uid
            move = self.moves.get(uid)
            if move is not None and move.stage is not Stage.RUNS and effect.key == f"suspend-{uid}-{move.number}":
                self.broken("C10", f"the checkpoint of {uid}, which is {move.stage.value}, is to be removed")
            return
        if isinstance(effect, FreezeAttempt) and effect.leave_running:
            self.world.copy_checks.asked(effect)
            return
        if isinstance(effect, FreezeAttempt):
            self.world.copy_checks.freezes(effect.uid)
        wanted = WANTED[type(effect)]
        move = self.moves.get(effect.uid)
        if move is None or move.stage is not wanted:
            stage = "over" if move is None else move.stage.value
            self.broken("R9", f"{type(effect).__name__} of {effect.uid}, which is {stage} by the disk")

    def shown(self, event: SuspensionChanged) -> None:
        """Something was published."""
        move = self.moves.get(event.view.uid)
        if event.view.phase is Suspension.SUSPENDED and move is not None and not move.suspended:
            self.broken("R9", f"{event.view.uid} is shown as suspended, and the disk does not say so")

    def promised(self, key: str, view: SuspensionView | Exception, *, gang: bool) -> None:
        """Somebody's wish to suspend was answered."""
        if isinstance(view, SuspensionView):
            move = self.moves.get(view.uid)
            if view.phase is Suspension.SUSPENDING and view.key == key and move is not None and move.key != key:
                self.broken("R9", f"the suspension of {view.uid} is promised, and the disk does not say so")
            if gang:
                self.broken("J4", f"{view.uid} of a gang is suspended alone")
        elif isinstance(view, GangNotSuspendable) and not gang:
            self.broken("J4", f"what is not a gang is not suspended because it is one: {view}")

    # What is on the disk

    def durable(self, path: str, record: Any) -> None:
        """A record reached the disk: before the checks of jobs look at it."""
        match record:
            case AttemptEnded(uid=uid) if uid in self.moves:
                self._ended(path.rpartition("/")[2], record, self.moves.pop(uid))
            case CheckpointDropped(key=key, fault=fault) if fault:
                self.excused[key] = None
                if key not in self.world.freezing.stays:
                    self.broken("C10", f"what {key} left is said to stay ({fault}), and nobody tried to remove it")
            case AttemptDeserted(uid=uid):
                self._leaves(uid, self.moves[uid])
            case _ if type(record) in LEADS_TO:
                self._moves(path, record, self.moves[record.uid])

    def _moves(self, path: str, record: Any, move: TruthOfMove) -> None:
        world, uid = self.world, record.uid
        self.wrote = path
        before, move.stage = move.stage, LEADS_TO[type(record)]
        if self.stops and not world.healed:
            world.crash_at_step = world.simulation.steps + 1 + self.stops.pop()
            world.fired(STOPS_AMID_A_MOVE, f"attempt/{uid}")
        match record:
            case SuspensionAsked(key=key):
                move.key, move.number = key, move.number + 1
            case AttemptSuspended():
                if before is not Stage.FROZEN:
                    self.broken("C10", f"{uid} is suspended by the disk, and that it is a checkpoint is not there")
                move.suspended = True
                if not move.away:
                    self._leaves(uid, move)
                if move.frozen_at >= 0:
                    move.unseen += world.simulation.now - move.frozen_at
            case AttemptStored() | StoreFailed():
                if before is not Stage.SUSPENDED:
                    self.broken("C10", f"{uid} is stored, and was {before.value} by the disk")
            case WentBack():
                self._goes_back(path, record, move)
            case AttemptUnplaced(lost=lost):
                if lost:  # what that life wrote and nobody stored is lost with it
                    self.jobs.attempts[uid].log_bytes = world.workers.logs.stored.get(uid, 0)
                if before is not Stage.RESUMING:
                    self.broken("J2", f"{uid} is given back by a worker, and none has a grant by the disk")
                self._leaves(uid, move)
            case AttemptResuming(worker_id=worker_id, incarnation=incarnation, grant=grant):
                known = self.jobs.attempts[uid]
                if uid in self.jobs.running:
                    self.broken("J2", f"{uid} is to come back on {worker_id}, and runs on {known.worker_id}")
                known.worker_id, known.incarnation = worker_id, incarnation
                known.away, move.away, move.grant, move.told = False, False, grant, False
                self.jobs.live_on.setdefault(slice_of(worker_id), {})[uid] = None
                world.fleet_checks.placed(worker_id)

    def _goes_back(self, path: str, record: WentBack, move: TruthOfMove) -> None:
        """A life is over, and the next begins from a checkpoint: as of when that was made."""
        uid = record.uid
        move.number, move.suspended, move.grant = move.number + 1, True, ""
        if uid in self.jobs.running:
            self.broken("J2", f"{uid} goes back, and runs")
        if not move.away:
            self._leaves(uid, move)
        move.frozen_at = self.world.simulation.now
        move.ran, move.unseen = self.world.copy_checks.ran(record.checkpoint)
        self.jobs.went_back(path.rpartition("/")[2], record)

    def _leaves(self, uid: str, move: TruthOfMove) -> None:
        """By the disk it has no worker any more: then nothing of it runs."""
        process = self.jobs.running.get(uid)
        if process is not None:
            self.broken("J2", f"{uid} has no worker by the disk, and runs on {process.worker.worker_id}")
        known = self.jobs.attempts[uid]
        known.away = move.away = True
        self.jobs.leaves(uid, known)

    def _ended(self, job_id: str, record: AttemptEnded, move: TruthOfMove) -> None:
        counts = record.failure or record.preemption
        if move.stage is Stage.SUSPENDED and counts:
            self.broken("J5", f"{record.uid} was suspended, and counts against a budget as {record.end.ending.value}")
        if record.end.ending is Ending.TIMED_OUT:
            now, timeout = self.world.simulation.now, self.jobs.jobs[job_id].spec.timeout_ns
            runs = move.frozen_at < 0
            ran = move.ran + (now - move.began if runs else 0)
            unseen = move.unseen + (0 if runs or move.away else now - move.frozen_at)
            if ran + unseen < timeout - TIMER_SLACK:
                self.broken("J5", f"{record.uid} timed out after {ran // SECOND} of {timeout // SECOND} s")

    # The scheduler

    def scheduler(self, state: Scheduler) -> None:
        """INV-J3: nobody holds room for what is suspended and is to stay so."""
        world = self.world
        for uid, move in self.moves.items():
            if not move.away or uid not in state.inventory.where:
                move.held_since = -1
                continue
            if move.held_since < 0:
                move.held_since = world.simulation.now
            since = max(move.held_since, world.disturbed_until, world.booted_at)
            if world.simulation.now - since > world.pace.gone_bound:
                self.broken("J3", f"{uid} has no worker, and holds room of {state.inventory.where[uid].info.worker_id}")


_FIELDS = tuple(field.name for field in attrs.fields(JobLedger) if field.eq)


def _counted(ledger: JobLedger) -> JobLedger:
    """Leave counts of zero out: states that no task is in any more."""
    return attrs.evolve(ledger, counts={state: count for state, count in ledger.counts.items() if count})
