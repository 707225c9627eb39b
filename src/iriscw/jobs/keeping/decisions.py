"""How a job has checkpoints made of its attempts while they run.

Every ``checkpoint_every``, a tenth more or less, the attempt of a task that runs is *copied*: its node's agent freezes
it, with its folder, and lets it run on. Its worker has no part in that. Whatever becomes of a copy, the attempt runs
on; one that was not made is told, once for as long as none succeeds, and the next is tried when its time has come.

A copy that is under way is followed on by the next incarnation, as a freeze is: its key is in the journal. None is
begun while the attempt is suspended, or about to be. One that is asked to suspend while a copy is under way is
suspended after that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from iriscw.jobs.job.desired_attempts import latest_attempt, link_of, stop_for
from iriscw.jobs.job.ends import Ends
from iriscw.jobs.job.ledger import JobLedger
from iriscw.jobs.keeping.copies import Copies, Home, copy_key, dropped, outdated
from iriscw.jobs.keeping.messages import CheckpointMade, CheckpointMissed, CopyDue, CopyOverdue
from iriscw.jobs.keeping.records import CopyBegan, CopyFailed, CopyMade
from iriscw.jobs.model import Observation, Suspension, TaskState
from iriscw.jobs.settings import JobSettings
from iriscw.jobs.suspension.effects import DropCheckpoint, FreezeAttempt, Frozen, FrozenAttempt
from iriscw.jobs.suspension.messages import SuspendAttempts
from iriscw.jobs.suspension.model import Stage
from iriscw.runtime.vocabulary import (
    Cancel,
    CancelTimer,
    Command,
    Context,
    Decision,
    DecisionFunction,
    Emit,
    Outcome,
    Run,
    SetTimer,
    Tell,
)

SPREAD_PARTS = 10
"""The time to the next copy differs by this part of it: a thousand tasks that begin at once are not copied at once."""

MAX_REASON_CHARS = 1024


class CopyDecisions:
    """The decisions, for one set of settings."""

    def __init__(self, settings: JobSettings) -> None:
        self.settings = settings

    def rules(self) -> dict[type, DecisionFunction]:
        """Return the decision for each message."""
        return {CopyDue: self.due, CopyOverdue: self.overdue}

    def heard(self, ledger: JobLedger, index: int, seen: Observation, ends: Ends, ctx: Context) -> None:
        """Note where an attempt that runs has its files, and have its next copy be due."""
        every_ns = ledger.spec.checkpoint_every_ns
        runs = seen.state is TaskState.RUNNING and seen.suspension is Suspension.NONE
        if not every_ns or not runs or not seen.folder:
            return
        known = seen.uid in ledger.homes
        ledger.homes[seen.uid] = Home(seen.folder, seen.ports, seen.host, seen.process_started_wall_ns)
        if not known:
            ends.commands.append(self._next(ledger, index, seen.uid, ctx))

    def _next(self, ledger: JobLedger, index: int, uid: str, ctx: Context) -> Command:
        every_ns = ledger.spec.checkpoint_every_ns
        spread_ns = every_ns // SPREAD_PARTS
        wanted_ns = every_ns - spread_ns + ctx.rng.randrange(2 * spread_ns + 1)
        copies = ledger.copies.get(uid)
        began_ns = 0 if copies is None else copies.began_wall_ns
        gone_ns = min(max(ctx.wall - began_ns, 0), every_ns) if began_ns else 0  # a restart does not put it off
        left_ns = max(wanted_ns - gone_ns, every_ns // SPREAD_PARTS)
        return SetTimer(("copy due", uid), left_ns, CopyDue(index, uid))

    def due(self, ledger: JobLedger, message: CopyDue, ctx: Context) -> Outcome:
        """Begin a copy, unless there is a reason not to; have the next be due."""
        index, uid = message.index, message.uid
        if uid not in ledger.homes or not ledger.open:
            return None  # it is set again when it is seen to run
        if not self._may_begin(ledger, index, uid):
            return (self._next(ledger, index, uid, ctx),)
        home, move = ledger.homes[uid], ledger.moves.get(uid)
        paused_ns = 0 if move is None else move.paused_ns
        began = CopyBegan(
            index, uid, ctx.wall, home.folder, home.ports, home.host, home.process_started_wall_ns, paused_ns
        )
        copies = ledger.copies.get(uid)
        number = 1 if copies is None else copies.number + 1
        every_ns = ledger.spec.checkpoint_every_ns
        spread_ns = every_ns // SPREAD_PARTS
        again = SetTimer(
            ("copy due", uid), every_ns - spread_ns + ctx.rng.randrange(2 * spread_ns + 1), CopyDue(index, uid)
        )
        limit = SetTimer(("copy", uid), self.settings.copy_limit_ns, CopyOverdue(index, uid, number))
        return Decision(records=(began,), commands=(_copy(ledger, index, uid, number), again, limit))

    def _may_begin(self, ledger: JobLedger, index: int, uid: str) -> bool:
        if uid not in ledger.live:
            return False
        attempt, move, copies = latest_attempt(ledger, index), ledger.moves.get(uid), ledger.copies.get(uid)
        return (
            attempt.state is TaskState.RUNNING
            and (move is None or move.stage is Stage.RUNS)
            and (copies is None or not copies.under_way)
            and stop_for(ledger, attempt) is None
            and (attempt.worker_id, attempt.incarnation) not in ledger.suspects
        )

    def ended(self, ledger: JobLedger, key: Any, value: FrozenAttempt, ctx: Context) -> Decision | None:
        """Keep what was made, and have what is older than those that are kept be removed."""
        _, index, uid = key
        copies = ledger.copies.get(uid)
        if copies is None or not copies.under_way:
            return None
        if value.outcome is not Frozen.FROZEN:
            reason = value.reason or f"the freeze is {value.outcome.value}"
            return self._missed(ledger, index, uid, reason, ctx, drop=value.outcome is Frozen.UNKNOWN)
        made = CopyMade(index, uid, value.checkpoint, value.node, ctx.wall)
        drops = [dropped(uid, each) for each in outdated(copies, ledger.spec.keep_checkpoints)]
        lasted_ns = max(0, ctx.wall - copies.began_wall_ns)
        told = CheckpointMade(ledger.job_id, index, uid, value.checkpoint, value.node, lasted_ns, ctx.wall)
        removed = (Run(("drop", drop.key), drop) for drop in drops)
        commands = (CancelTimer(("copy", uid)), Emit(told), *removed, *_suspends_now(ledger, index, uid, ctx))
        return Decision(records=(made,), commands=commands)

    def _missed(self, ledger: JobLedger, index: int, uid: str, reason: str, ctx: Context, *, drop: bool) -> Decision:
        copies = ledger.copies[uid]
        reason = reason[:MAX_REASON_CHARS]
        told = CheckpointMissed(ledger.job_id, index, uid, reason, bool(copies.failure), ctx.wall)
        commands: tuple[Command, ...] = (CancelTimer(("copy", uid)), Cancel(("copy", index, uid)), Emit(told))
        if drop:
            left = DropCheckpoint(copy_key(uid, copies.number))
            commands = (*commands, Run(("drop", left.key), left))
        commands = (*commands, *_suspends_now(ledger, index, uid, ctx))
        return Decision(records=(CopyFailed(index, uid, reason, drop, ctx.wall),), commands=commands)

    def overdue(self, ledger: JobLedger, message: CopyOverdue, ctx: Context) -> Outcome:
        """Give a copy up: its order is ended, and what it has made is removed."""
        copies = ledger.copies.get(message.uid)
        if copies is None or not copies.under_way or copies.number != message.number:
            return None
        reason = f"not done within {self.settings.copy_limit_ns / 1_000_000_000:g} s"
        return self._missed(ledger, message.index, message.uid, reason, ctx, drop=True)

    def resume(self, ledger: JobLedger, ctx: Context) -> Iterator[Command]:
        """Take up the copies that are under way."""
        for uid, copies in ledger.copies.items():
            index = ledger.live.get(uid, ledger.away.get(uid))
            if copies.under_way and index is not None:
                limit_ns = self.settings.copy_limit_ns
                left_ns = min(max(copies.began_wall_ns + limit_ns - ctx.wall, 0), limit_ns)
                yield _copy(ledger, index, uid, copies.number)
                yield SetTimer(("copy", uid), left_ns, CopyOverdue(index, uid, copies.number))


def _copy(ledger: JobLedger, index: int, uid: str, number: int) -> Command:
    attempt = latest_attempt(ledger, index)
    effect = FreezeAttempt(
        key=copy_key(uid, number),
        uid=uid,
        job_id=ledger.job_id,
        index=index,
        worker_id=attempt.worker_id,
        incarnation=attempt.incarnation,
        tier="",
        force=False,
        labels=(),
        gpus=attempt.gpus,
        carries_folder=True,
        leave_running=True,
    )
    return Run(("copy", index, uid), effect)


def _suspends_now(ledger: JobLedger, index: int, uid: str, ctx: Context) -> Iterator[Command]:
    """Have the worker say again that the attempt may be frozen, if that has waited for the copy."""
    move = ledger.moves.get(uid)
    if move is not None and move.stage is Stage.ASKED:
        attempt = latest_attempt(ledger, index)
        yield Tell(link_of(ctx, attempt.worker_id), SuspendAttempts(attempt.incarnation, (uid,)))


def copying(copies: Copies | None) -> bool:
    """Whether a copy is under way."""
    return copies is not None and copies.under_way
