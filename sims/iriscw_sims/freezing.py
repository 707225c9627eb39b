"""Those who freeze and thaw attempts in the simulated fleet: the agent of a machine, its orders, and its checkpoints.

Theory of operation. All workers are on one machine, as they are on the local platform: a checkpoint is of one machine,
and on it any worker may have the attempt next. In plans in which suspensions are stored there are two machines, whose
agents share a repository: what is stored is thawed on either, which keeps a copy of what it fetched for that.

An order has a key, and the same key again is the same order, whichever life of the controller asks: orders go on while
it is down. Each takes its time; then the agent does what it was told, fails and says so, finds that it cannot be done
on this machine as that is, or is replaced in the midst of it, and nobody can say what it did.

A program that is brought back takes the grant that is on offer in its attempt's folder, which a worker put there. If
there is none, or its worker has lost its lease, it ends before it has run: the thaw has failed.

What really exists is here for checks: :attr:`Freezing.checkpoints`, and which of them can be removed no more.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

from iriscw.controller.errors import CheckpointKept
from iriscw.jobs.model import Suspension
from iriscw.jobs.suspension.effects import (
    CheckpointStored,
    DropCheckpoint,
    FreezeAttempt,
    Frozen,
    FrozenAttempt,
    StoreCheckpoint,
    ThawAttempt,
    Thawed,
    ThawedAttempt,
)
from iriscw.jobs.suspension.messages import FollowRepositories, NodeRepositories
from iriscw.jobs.suspension.moves import store_key
from iriscw.runtime.vocabulary import MILLISECOND, SECOND
from iriscw.testing.simulation import SimOperation
from iriscw_sims.attempts import Program, SimAttempt

if TYPE_CHECKING:
    from iriscw_sims.workers import SimWorker
    from iriscw_sims.world import World

MACHINE: Final = "host"
"""Where all workers are, as they and the agent name it."""

STORED: Final = "suspension stored"
"""The chance that what is suspended is to be stored."""

REPOSITORY: Final = "s3://checkpoints"

LONGEST_S: Final = 4
"""What a freeze or a thaw takes, at most."""

LONGEST_SLOW_S: Final = 120
"""The same, of one that is slow: longer than jobs wait for it."""


@attrs.define(eq=False)
class Leave:
    """A grant to go on that is on offer in an attempt's folder."""

    worker: SimWorker
    attempt: SimAttempt

    @property
    def grant(self) -> str:
        """How it is called."""
        resumption = self.attempt.order.resumption
        assert resumption is not None
        return resumption.grant


@attrs.frozen
class Checkpoint:
    """A program that was frozen. ``key`` is the order's that made it."""

    key: str
    uid: str
    program: Program
    log_bytes: int
    node: str
    """The machine that has it; empty: the repository."""
    copies: tuple[str, ...] = ()
    """Machines that have fetched it from there."""


Effect: TypeAlias = FreezeAttempt | StoreCheckpoint | ThawAttempt
End: TypeAlias = FrozenAttempt | CheckpointStored | ThawedAttempt


def machines_of(world: World) -> tuple[str, ...]:
    """Return where workers are."""
    return (f"{MACHINE}-0", f"{MACHINE}-1") if STORED in dict(world.plan.rates) else (MACHINE,)


def machine_of(world: World, worker_id: str) -> str:
    """Return where a worker is."""
    machines = machines_of(world)
    return machines[zlib.crc32(worker_id.encode()) % len(machines)]


@attrs.define(eq=False)
class SimOrder:
    """A freeze or a thaw that the agent was told."""

    effect: Effect
    operation: str
    """The agent's name for it: of a freeze, that of its checkpoint."""
    end: End | None = None
    cancelled: bool = False
    waiting: list[SimOperation] = attrs.field(factory=list)
    """Whoever asks what became of it."""


class Freezing:
    """The agent, as the controller sees it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.stream("freezing")
        self.orders: dict[str, SimOrder] = {}
        """By key."""
        self.checkpoints: dict[str, Checkpoint] = {}
        """What there is, by name."""
        self.stays: dict[str, None] = {}
        """The keys of checkpoints that could not be removed, and were said so."""
        self._unplaced: dict[str, SimOperation] = {}
        """Freezes for which no worker has named a process yet, by key."""
        self._offers: dict[str, Leave] = {}
        """By uid."""
        self._spent: dict[str, None] = {}
        """Leaves that were taken, or withdrawn."""
        self._copying: dict[str, SimOrder] = {}
        """The latest copy that was ordered of each attempt, by uid."""
        self._numbers = 0

    # What the controller asks for

    def perform(self, operation: SimOperation) -> None:
        """Carry an effect out."""
        effect = operation.effect
        if isinstance(effect, FollowRepositories):
            if len(machines_of(self.world)) > 1:
                operation.send(NodeRepositories(tuple((each, REPOSITORY) for each in machines_of(self.world))))
            return
        self.world.move_checks.asked(effect)
        if isinstance(effect, DropCheckpoint):
            self._drop(operation, effect)
            return
        order = self.orders.get(effect.key)
        if order is not None:
            self._follow(order, operation)
        elif isinstance(effect, StoreCheckpoint | ThawAttempt) or effect.leave_running:
            self._follow(self._place(effect), operation)
        else:
            self._unplaced[effect.key] = operation
            self._place_if_named(effect.key)

    def heard(self, worker: SimWorker) -> None:
        """A worker has said something: which processes may be frozen, perhaps."""
        for key in list(self._unplaced):
            effect = self._unplaced[key].effect
            if (effect.worker_id, effect.incarnation) == (worker.worker_id, worker.incarnation):
                self._place_if_named(key)

    def _place_if_named(self, key: str) -> None:
        operation = self._unplaced[key]
        if operation.ended or operation.system_restarted:
            del self._unplaced[key]
            return
        found = self._find(operation.effect)
        if found is not None and found[0].connection is not None:
            del self._unplaced[key]
            self._follow(self._place(operation.effect), operation)

    def _find(self, effect: FreezeAttempt) -> tuple[SimWorker, SimAttempt] | None:
        """Find the process that a worker says may be frozen."""
        for worker in self.world.workers.live:
            if (worker.worker_id, worker.incarnation) == (effect.worker_id, effect.incarnation):
                attempt = worker.attempts.get(effect.uid)
                if attempt is not None and attempt.alive and attempt.seen.suspension is Suspension.SUSPENDING:
                    return worker, attempt
        return None

    def _place(self, effect: Effect) -> SimOrder:
        self._numbers += 1
        order = self.orders[effect.key] = SimOrder(effect, f"ck-{self._numbers:04d}")
        slow = self.world.chance("freeze or thaw slow", f"attempt/{effect.uid}")
        most = LONGEST_SLOW_S if slow else LONGEST_S
        delay = self.rng.randrange(100 * MILLISECOND, most * SECOND)
        if isinstance(effect, FreezeAttempt) and effect.leave_running:
            self._copying[effect.uid] = order
            self.world.simulation.call_after(delay, self._copies, order, effect)
        elif isinstance(effect, FreezeAttempt):
            found = self._find(effect)
            assert found is not None
            self.world.simulation.call_after(delay, self._freezes, order, effect, *found)
        elif isinstance(effect, StoreCheckpoint):
            self.world.simulation.call_after(delay, self._stores, order, effect)
        else:
            self.world.simulation.call_after(delay, self._thaws, order, effect)
        return order

    def _follow(self, order: SimOrder, operation: SimOperation) -> None:
        if order.end is None:
            order.waiting.append(operation)
        else:
            self.world.simulation.call_after(self._while(), operation.complete, order.end)

    def _while(self) -> int:
        return self.rng.randrange(SECOND // 2)

    def _ends(self, order: SimOrder, end: End) -> None:
        order.end = end
        waiting, order.waiting = order.waiting, []
        for operation in waiting:
            if isinstance(operation.effect, DropCheckpoint):
                self._drop(operation, operation.effect)
            else:
                operation.complete(end)

    # Freezing

    def _freezes(self, order: SimOrder, effect: FreezeAttempt, worker: SimWorker, attempt: SimAttempt) -> None:
        about = f"attempt/{effect.uid}"
        undone = FrozenAttempt(Frozen.UNDONE, reason="QuiesceFailed: its hook has failed")
        if attempt.running is None or not worker.alive:
            undone = FrozenAttempt(Frozen.UNDONE, reason="ProcessGone: there is no such process")
            self._ends(order, undone)
        elif effect.uid in self._copying and self._copying[effect.uid].end is None:
            self._ends(order, FrozenAttempt(Frozen.UNDONE, reason="TargetBusy: a copy of it is under way"))
        elif order.cancelled and self.rng.random() < 0.5:
            self._ends(order, FrozenAttempt(Frozen.UNDONE, reason="Cancelled: the order was cancelled"))
        elif self.world.chance("freeze fails", about):
            self._ends(order, undone)
        elif self.world.chance("freeze lost", about):
            if self.rng.random() < 0.5:
                self._keep(order, effect, worker, attempt)
            self._ends(order, FrozenAttempt(Frozen.UNKNOWN, reason="the agent was replaced"))
        else:
            self._keep(order, effect, worker, attempt)
            self._ends(order, FrozenAttempt(Frozen.FROZEN, order.operation, machine_of(self.world, worker.worker_id)))

    def _keep(self, order: SimOrder, effect: FreezeAttempt, worker: SimWorker, attempt: SimAttempt) -> None:
        log_bytes = attempt.log_bytes
        program = worker.freezes(attempt)
        node = machine_of(self.world, worker.worker_id)
        self.checkpoints[order.operation] = Checkpoint(effect.key, effect.uid, program, log_bytes, node)

    def _copies(self, order: SimOrder, effect: FreezeAttempt) -> None:
        """Make a checkpoint of what runs on; its worker has no part in that."""
        about, undone = f"attempt/{effect.uid}", Frozen.UNDONE
        place = (effect.worker_id, effect.incarnation)
        process = self.world.job_checks.running.get(effect.uid)
        here = process is not None and (process.worker.worker_id, process.worker.incarnation) == place
        if process is None or not here or process.attempt.running is None:
            self._ends(order, FrozenAttempt(undone, reason="ProcessGone: there is no such process"))
        elif order.cancelled and self.rng.random() < 0.5:
            self._ends(order, FrozenAttempt(undone, reason="Cancelled: the order was cancelled"))
        elif self.world.chance("freeze fails", about):
            self._ends(order, FrozenAttempt(undone, reason="NoRoom: the tier is full"))
        else:
            lost = self.world.chance("freeze lost", about)
            node = machine_of(self.world, effect.worker_id)
            if not lost or self.rng.random() < 0.5:
                program = process.attempt.running.frozen(self.world.simulation.now)
                made = Checkpoint(effect.key, effect.uid, program, process.attempt.log_bytes, node)
                self.checkpoints[order.operation] = made
                self.world.copy_checks.copied(effect.key, effect.uid, order.operation)
            if lost:
                self._ends(order, FrozenAttempt(Frozen.UNKNOWN, reason="the agent was replaced"))
            else:
                self._ends(order, FrozenAttempt(Frozen.FROZEN, order.operation, node))

    # Storing

    def _stores(self, order: SimOrder, effect: StoreCheckpoint) -> None:
        found = self.checkpoints.get(effect.checkpoint)
        if found is None or order.cancelled:
            self._ends(order, CheckpointStored(reason="OrderCancelled: it was cancelled"))
        elif self.world.chance("store fails", f"attempt/{effect.uid}"):
            self._ends(order, CheckpointStored(reason="StoreUnavailable: the repository does not answer"))
        else:
            if found.node != effect.node:
                self.world.move_checks.broken("C10", f"{effect.checkpoint} is not on {effect.node}, and to be stored")
            self.checkpoints[effect.checkpoint] = attrs.evolve(found, node="")
            self._ends(order, CheckpointStored(REPOSITORY))

    # Leaves

    def offer(self, worker: SimWorker, attempt: SimAttempt) -> str:
        """Put a grant into an attempt's folder; give why it cannot be, or nothing."""
        leave, uid = Leave(worker, attempt), attempt.order.uid
        if self.world.chance("leave refused", f"attempt/{uid}"):
            return "ResumeRefused: its folder is gone"
        if leave.grant in self._spent or uid in self._offers:
            return f"GrantRefused: {leave.grant} is spent, or another one is on offer"
        self._offers[uid] = leave
        return ""

    def withdraw(self, attempt: SimAttempt) -> bool:
        """Take a grant back, if its worker has it; whether nobody had taken it."""
        leave = self._offers.get(attempt.order.uid)
        if leave is not None and leave.attempt is attempt:
            del self._offers[attempt.order.uid]
            self._spent[leave.grant] = None
        return attempt.running is None

    # Thawing

    def _thaws(self, order: SimOrder, effect: ThawAttempt) -> None:
        about = f"attempt/{effect.uid}"
        if self.world.chance("checkpoint damaged", about):
            self.checkpoints.pop(effect.checkpoint, None)
        found = self.checkpoints.get(effect.checkpoint)
        if found is None:
            self._ends(order, ThawedAttempt(Thawed.DAMAGED, f"CheckpointDamaged: {effect.checkpoint} is no good"))
        elif self.world.chance("thaw refused", about):
            self._ends(order, ThawedAttempt(Thawed.REFUSED, "GateRefused: files: /usr/lib/libx is another one"))
        elif not self._is_at(effect, found):
            self._ends(order, ThawedAttempt(Thawed.UNDONE, f"ArtifactUnknown: {effect.checkpoint} is not here"))
        elif self.world.chance("thaw fails", about):
            self._ends(order, ThawedAttempt(Thawed.UNDONE, "CriuFailed: it cannot be restored"))
        elif self.world.chance("thaw lost", about):
            if self.rng.random() < 0.5:
                self._brings_back(found, effect.node)
            self._ends(order, ThawedAttempt(Thawed.UNKNOWN, "the agent was replaced"))
        elif self._brings_back(found, effect.node):
            self._ends(order, ThawedAttempt(Thawed.THAWED))
        else:
            self._ends(order, ThawedAttempt(Thawed.UNDONE, "LeaveMissing: nobody wants it to go on"))

    def _is_at(self, effect: ThawAttempt, found: Checkpoint) -> bool:
        """Have a machine fetch what the repository has; whether it has it then."""
        if found.node:
            if found.node != effect.node:
                self.world.move_checks.broken("C10", f"{effect.checkpoint} on {found.node} is thawed on {effect.node}")
            return found.node == effect.node
        copies = dict.fromkeys((*found.copies, effect.node))
        self.checkpoints[effect.checkpoint] = attrs.evolve(found, copies=tuple(copies))
        return True

    def _brings_back(self, checkpoint: Checkpoint, node: str) -> bool:
        leave = self._offers.get(checkpoint.uid)
        if leave is not None and machine_of(self.world, leave.worker.worker_id) != node:
            return False
        if leave is None or not leave.worker.alive or leave.worker.lease_over or not leave.attempt.returning:
            return False
        del self._offers[checkpoint.uid]
        self._spent[leave.grant] = None
        leave.worker.thaws(leave.attempt, checkpoint.program, checkpoint.log_bytes)
        return True

    # Removing

    def _drop(self, operation: SimOperation, effect: DropCheckpoint) -> None:
        order = self.orders.get(effect.key)
        checkpoint = effect.checkpoint
        if order is not None and order.end is None:
            order.cancelled = True
            order.waiting.append(operation)
            return
        store = self.orders.get(store_key(effect.key, effect.stores_failed))
        if store is not None and store.end is None:
            store.cancelled = True
            store.waiting.append(operation)
            return
        if order is not None and not checkpoint:
            checkpoint = order.operation
        self.world.simulation.call_after(self._while(), self._remove, operation, checkpoint)

    def _remove(self, operation: SimOperation, checkpoint: str) -> None:
        if operation.ended or operation.system_restarted:
            return
        if checkpoint in self.checkpoints and self.world.chance("checkpoint stays", f"checkpoint/{checkpoint}"):
            self.stays[operation.effect.key] = None
            operation.fail(CheckpointKept(f"{checkpoint} on {MACHINE} was not removed: its folder is busy"))
            return
        gone, effect = self.checkpoints.pop(checkpoint, None), operation.effect
        if gone is not None and effect.repository:
            missed = [node for node in gone.copies if node not in effect.tried]
            if missed:
                self.world.move_checks.broken("C10", f"copies of {checkpoint} are left on {missed}")
        operation.complete()

    def stranded(self, uid: str) -> bool:
        """Whether an attempt is frozen on a machine that has no worker for it any more."""
        if len(machines_of(self.world)) == 1:
            return False
        workers, jobs = self.world.workers.live, self.world.job_checks
        spec = jobs.jobs[jobs.attempts[uid].job_id].spec
        if any(job.spec.checkpoint_every_ns for job in self.world.plan.jobs):
            workers = [each for each in workers if each.capacity.fits(spec.demand)]
        machines = dict.fromkeys(machine_of(self.world, each.worker_id) for each in workers)
        return any(each.uid == uid and each.node and each.node not in machines for each in self.checkpoints.values())

    def left_over(self) -> str:
        """Say what of suspensions is left although no attempt lives; empty if nothing is."""
        busy = [key for key, order in self.orders.items() if order.end is None]
        left = [name for name, each in self.checkpoints.items() if each.key not in self.world.move_checks.excused]
        if left:
            return f"checkpoints are left: {left}"
        return f"orders of the agent go on: {busy}" if busy else ""
