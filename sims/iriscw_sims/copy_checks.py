"""What must always hold of checkpoints that are made of attempts while these run, judged by the disk and the world.

========  ============================================================================================
INV-J2    an attempt that goes back has the same uid and a new grant, and nothing of its last life runs
INV-J5    a life that is over counts once, whether the attempt ends or goes back
INV-R9    nothing is copied or removed before it is on the disk, and nothing goes back that its job did not allow
INV-C10   no more are kept than the job wants, those are there, and none stays that nobody keeps
========  ============================================================================================

That an attempt that goes back comes to an end is liveness: its job ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from iriscw.jobs.keeping.records import CheckpointPassedOver, CopyBegan, CopyFailed, CopyMade, WentBack
from iriscw.jobs.model import Ending
from iriscw.jobs.records import AttemptEnded, AttemptOverran
from iriscw.jobs.suspension.effects import DropCheckpoint, FreezeAttempt
from iriscw.jobs.suspension.model import Stage

if TYPE_CHECKING:
    from iriscw_sims.world import World

COPY = "copy-"
"""What the keys of their orders begin with."""


@attrs.define
class TruthOfCopies:
    """What the disk says of the copies of one live attempt."""

    keep: int
    number: int = 0
    under_way: bool = False
    kept: dict[int, str] = attrs.field(factory=dict)
    """Their ids by number, the oldest first."""
    back: int = 0
    """To which it goes back, or did last."""
    overran: bool = False


class CopyChecks:
    """The checks, fed with what happens."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.copies: dict[str, TruthOfCopies] = {}
        """Of live attempts, by uid."""
        self.made = 0
        self.went_back = 0
        self.passed_over = 0
        self._dropping: dict[str, None] = {}
        """The keys of those that somebody was told to remove."""
        self._unkept: dict[str, int] = {}
        """Since when checkpoints are there that nobody keeps, by id."""
        self._ran: dict[str, tuple[int, int]] = {}
        """How long an attempt had run when it was copied, and for how long nobody could know that it did not."""

    def broken(self, invariant: str, what: str) -> None:
        """Note that an invariant does not hold."""
        self.world.violate(invariant, what)

    # What is really there

    def copied(self, key: str, uid: str, checkpoint: str) -> None:
        """Somebody has made one."""
        world, copies = self.world, self.copies.get(uid)
        move = world.move_checks.moves[uid]
        self._ran[checkpoint] = (move.ran + world.simulation.now - move.began, move.unseen)
        there = [
            each.key
            for each in world.freezing.checkpoints.values()
            if each.uid == uid and each.key.startswith(COPY) and each.key not in self._gone()
        ]
        if copies is not None and len(there) > copies.keep + 1:
            self.broken("C10", f"{len(there)} checkpoints of {uid} are there, and its job keeps {copies.keep}: {there}")

    def _gone(self) -> dict[str, None]:
        return {**self._dropping, **self.world.move_checks.excused}

    def ran(self, checkpoint: str) -> tuple[int, int]:
        """Return for how long an attempt had run when it was copied, and for how long it was frozen unseen, ns."""
        return self._ran[checkpoint]

    def look(self) -> None:
        """Look for what is there and kept by nobody for too long."""
        world = self.world
        kept = {name: None for each in self.copies.values() for name in each.kept.values()}
        making = {f"{COPY}{uid}-{each.number}": None for uid, each in self.copies.items() if each.under_way}
        for name, each in world.freezing.checkpoints.items():
            if not each.key.startswith(COPY) or name in kept or each.key in making:
                self._unkept.pop(name, None)
                continue
            if each.key in world.move_checks.excused:
                continue
            since = self._unkept.setdefault(name, world.simulation.now)
            since = max(since, world.disturbed_until, world.booted_at)
            if world.simulation.now - since > world.pace.gone_bound and not world.system.crashed:
                self.broken("C10", f"{name} of {each.uid} ({each.key}) is there, and nobody keeps it")

    # What leaves the controller

    def asked(self, effect: FreezeAttempt) -> None:
        """Somebody is to make one."""
        copies = self.copies.get(effect.uid)
        if copies is None or not copies.under_way or effect.key != f"{COPY}{effect.uid}-{copies.number}":
            self.broken("R9", f"{effect.key} is to be made, and is not under way by the disk")

    def freezes(self, uid: str) -> None:
        """Somebody is to suspend the attempt."""
        copies = self.copies.get(uid)
        if copies is not None and copies.under_way:
            self.broken("C10", f"{uid} is to be frozen, and a copy of it is under way by the disk")

    def drops(self, effect: DropCheckpoint) -> None:
        """Somebody is to remove one."""
        if not effect.key.startswith(COPY):
            return
        self._dropping[effect.key] = None
        uid, _, number = effect.key.removeprefix(COPY).rpartition("-")
        copies, move = self.copies.get(uid), self.world.move_checks.moves.get(uid)
        if copies is None:
            return
        if int(number) in copies.kept:
            self.broken("C10", f"{effect.key} is to be removed, and is kept by the disk")
        if move is not None and move.stage in (Stage.SUSPENDED, Stage.RESUMING) and copies.back == int(number):
            self.broken("C10", f"{effect.key} is to be removed, and {uid} goes back to it")

    # What is on the disk

    def durable(self, path: str, record: Any) -> None:
        """A record reached the disk: before the checks of moves and jobs look at it."""
        job_id = path.rpartition("/")[2]
        match record:
            case CopyBegan(uid=uid):
                self._began(job_id, uid)
            case CopyMade(uid=uid):
                self._made(uid, record)
            case CopyFailed(uid=uid):
                self.copies[uid].under_way = False
            case CheckpointPassedOver(uid=uid, number=number):
                self.passed_over += 1
                del self.copies[uid].kept[number]
                self.copies[uid].back = 0
            case WentBack(uid=uid):
                self._goes_back(job_id, record, self.copies[uid])
            case AttemptEnded(uid=uid):
                self.copies.pop(uid, None)
            case AttemptOverran(uid=uid) if uid in self.copies:
                self.copies[uid].overran = True
            case _:
                return
        if not isinstance(record, AttemptEnded | AttemptOverran):
            self.world.move_checks.wrote = path

    def _began(self, job_id: str, uid: str) -> None:
        spec = self.world.job_checks.jobs[job_id].spec
        copies = self.copies.setdefault(uid, TruthOfCopies(spec.keep_checkpoints))
        move = self.world.move_checks.moves.get(uid)
        if not spec.checkpoint_every_ns:
            self.broken("R9", f"{uid} of {job_id} is copied, and its job does not want that")
        if copies.under_way:
            self.broken("R9", f"{uid} of {job_id} is copied twice at once")
        if move is None or move.stage is not Stage.RUNS:
            self.broken("R9", f"{uid} of {job_id} is copied, and does not run by the disk")
        copies.number, copies.under_way = copies.number + 1, True

    def _made(self, uid: str, record: CopyMade) -> None:
        copies = self.copies[uid]
        self.made += 1
        copies.under_way = False
        copies.kept[copies.number] = record.checkpoint
        while len(copies.kept) > copies.keep:
            oldest = next(iter(copies.kept))
            del copies.kept[oldest]

    def _goes_back(self, job_id: str, record: WentBack, copies: TruthOfCopies) -> None:
        job, uid = self.world.job_checks.jobs[job_id], record.uid
        self.went_back += 1
        if not job.spec.retry_from_checkpoint or job.spec.group_by is not None:
            self.broken("R9", f"{uid} of {job_id} goes back, and its job does not allow that")
        if job.verdict is not None:
            self.broken("J1", f"{uid} of {job_id} goes back, and its job is {job.verdict.value} already")
        if copies.overran or record.end.ending in (Ending.SUCCEEDED, Ending.TIMED_OUT):
            self.broken("J5", f"{uid} of {job_id} goes back, and ended as {record.end.ending.value}")
        newest = max(copies.kept, default=0)
        if record.number != newest or copies.kept.get(record.number) != record.checkpoint:
            self.broken("C10", f"{uid} of {job_id} goes back to {record.number}, and {newest} is the newest")
        copies.back = record.number
