"""How an attempt gives way to a task of a higher band.

The scheduler says who has to (``PreemptAttempts``); what becomes of it is as its job was submitted:

* ``kill``: its worker is told to stop it, and it ends as PREEMPTED.
* ``freeze``: it is suspended as if somebody had asked for that, and is to go on from the start, as soon as its machine
  has room. If it has not begun there is nothing to freeze, and it is stopped; so is one whose freeze was undone, or did
  not end within ``yield_limit_ns``.

Nobody's order is cut short. One that is being suspended because somebody asked for that is left alone: its room comes
back when that is done, and if it is undone instead, the attempt gives way then. One that is being brought back is
stopped, or frozen again as soon as it runs.

A gang gives way as a whole. One of its members ends as PREEMPTED, which counts once; the others are stopped because of
that one, as always.
"""

from __future__ import annotations

import attrs

from iriscw.jobs.job.desired_attempts import latest_attempt, link_of, stop_for, stops
from iriscw.jobs.job.ends import Ends, conclude, move_of, step, stop_all
from iriscw.jobs.job.gangs import GAVE_WAY
from iriscw.jobs.job.ledger import JobLedger
from iriscw.jobs.messages import Disband
from iriscw.jobs.model import Assembly, AttemptEnd, Ending, Observation, Preemption, TaskState
from iriscw.jobs.records import GangAssembly
from iriscw.jobs.settings import JobSettings
from iriscw.jobs.suspension.messages import MoveOverdue, PreemptAttempts, SuspendAttempts
from iriscw.jobs.suspension.model import SUSPENDING, Stage
from iriscw.jobs.suspension.moves import Move
from iriscw.jobs.suspension.records import AttemptYields, ResumptionWanted, SuspensionAsked
from iriscw.jobs.traits import Fault
from iriscw.runtime.vocabulary import Command, Context, Continue, Outcome, SetTimer, Tell, replace


class YieldDecisions:
    """The decisions, for one set of settings."""

    def __init__(self, settings: JobSettings) -> None:
        self.settings = settings

    def preempt(self, ledger: JobLedger, message: PreemptAttempts, ctx: Context) -> Outcome:
        """Have attempts give way. Of one that ends, or gives way already, nothing more is wanted."""
        if not ledger.open:
            return None
        ends = Ends()
        if ledger.gang:
            self._gang(ledger, message, ends, ctx)
            return conclude(ledger, ends, ctx)
        for uid in message.uids:
            index = ledger.live.get(uid)
            if index is None or stop_for(ledger, latest_attempt(ledger, index)) is not None:
                continue
            move = ledger.moves.get(uid)
            if move is None or not move.yields_to:
                self._begin(ledger, index, uid, message.to, ends, ctx)
        return conclude(ledger, ends, ctx)

    def _begin(self, ledger: JobLedger, index: int, uid: str, to: str, ends: Ends, ctx: Context) -> None:
        move = move_of(ledger, uid, ends)
        stage = Stage.RUNS if move is None else move.stage
        freezes = self._freezes(ledger, index)
        if stage in SUSPENDING or (freezes and stage is Stage.RESUMING):
            _note(index, uid, to, False, move, ends, ctx)
        elif freezes:
            self._freeze(ledger, index, uid, to, move, ends, ctx)
        else:
            _stop(ledger, index, uid, to, move, ends, ctx)

    def go_on(self, ledger: JobLedger, index: int, uid: str, ends: Ends, ctx: Context) -> None:
        """It runs, after a suspension that was undone, or again: have it give way now, if it has to."""
        move = move_of(ledger, uid, ends)
        if (
            move is None
            or not move.yields_to
            or move.stopped_to_yield
            or stop_for(ledger, latest_attempt(ledger, index))
        ):
            return
        if self._freezes(ledger, index) and not move.yielding:
            self._freeze(ledger, index, uid, move.yields_to, move, ends, ctx)
        else:
            _stop(ledger, index, uid, move.yields_to, move, ends, ctx)

    def _freezes(self, ledger: JobLedger, index: int) -> bool:
        attempt = latest_attempt(ledger, index)
        reached = (attempt.worker_id, attempt.incarnation) not in ledger.suspects
        return ledger.spec.preemption is Preemption.FREEZE and attempt.state is TaskState.RUNNING and reached

    def _freeze(
        self, ledger: JobLedger, index: int, uid: str, to: str, move: Move | None, ends: Ends, ctx: Context
    ) -> None:
        attempt = latest_attempt(ledger, index)
        key = f"yields-{uid}-{1 if move is None else move.number + 1}"
        _note(index, uid, to, False, move, ends, ctx)
        asked = SuspensionAsked(index, uid, key, "", False, (), ctx.wall, yields=True)
        then = step(ledger, index, uid, ends, ctx, asked, ResumptionWanted(index, uid, key, True, ctx.wall))
        ends.commands.append(Tell(link_of(ctx, attempt.worker_id), SuspendAttempts(attempt.incarnation, (uid,))))
        ends.commands.append(limit_of(self.settings, index, uid, then, ctx))

    def _gang(self, ledger: JobLedger, message: PreemptAttempts, ends: Ends, ctx: Context) -> None:
        """Have one member give way, and all the others with it."""
        named = [(ledger.live[uid], uid) for uid in message.uids if uid in ledger.live]
        if not named or ledger.assembly is Assembly.DISBANDING or ledger.broken or ledger.unjudged or ledger.moves:
            return
        if ledger.assembly is Assembly.GATHERING:  # nothing of it was ordered yet
            ends.records.append(GangAssembly(Assembly.DISBANDING))
            ends.commands.append(Continue(Disband()))
            return
        index, uid = min(named)
        _stop(ledger, index, uid, message.to, None, ends, ctx)
        others = tuple(each for each in ledger.live if each != uid)
        ends.commands += stop_all(ledger, others, Ending.GANG_STOPPED, ctx)


def _note(index: int, uid: str, to: str, kill: bool, move: Move | None, ends: Ends, ctx: Context) -> Move:
    """Write down that it has to give way. Nothing is published of that: what is told of it comes with what follows."""
    record = AttemptYields(index, uid, to, kill, ctx.wall)
    then = ends.moves[uid] = attrs.evolve(move or Move(), yields_to=to, stopped_to_yield=kill)
    ends.records.append(record)
    return then


def _stop(ledger: JobLedger, index: int, uid: str, to: str, move: Move | None, ends: Ends, ctx: Context) -> None:
    _note(index, uid, to, True, move, ends, ctx)
    ends.commands += stops(ledger, (uid,), Ending.PREEMPTED, ctx)


def preempted(seen: Observation, to: str) -> Observation:
    """Say of an attempt that was stopped for it to whom it gave way: its worker knows only that it had to end it."""
    assert seen.end is not None
    return replace(seen, end=AttemptEnd(Ending.PREEMPTED, seen.exit_code, Fault("", f"{GAVE_WAY}{to}")))


def limit_ns(settings: JobSettings, move: Move) -> int:
    """Return how long an attempt may be on its way to being suspended, or back."""
    yields = move.yielding and move.stage in SUSPENDING
    return settings.yield_limit_ns if yields else settings.suspend_limit_ns


def limit_of(settings: JobSettings, index: int, uid: str, move: Move, ctx: Context) -> Command:
    """Have it be looked at when that time is over."""
    whole_ns = limit_ns(settings, move)
    left_ns = min(max(move.since_wall_ns + whole_ns - ctx.wall, 0), whole_ns)
    return SetTimer(("move", uid), left_ns, MoveOverdue(index, uid, move.number))
