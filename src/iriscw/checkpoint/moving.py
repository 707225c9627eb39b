r"""The life of one move: a checkpoint comes to another tier, and goes from where it lay.

::

    NEW -> OPENING -> COPYING -> PUBLISHING -> DROPPING -> OVER
              |          |           |            |
              +----------+-----------+------------+-> UNDOING -> OVER

Theory of operation. The source is pinned from OPENING on, and the target from before its copy can be seen, so nobody
removes either meanwhile. The copy is made under the name of the move and is nobody's until PUBLISHING: every byte of it
was compared with the manifest by then, and is on the disk; what a repository has stored was read back, if the source is
to go. Only in DROPPING the source goes, and only if the target has the checkpoint with the same manifest at that
moment: a target in memory may have lost it with a reboot (INV-C10). So at every instant one of the two has all of it.

Entering a phase is a record, and the phase's effect leaves only when that record is on the disk. What was left before
PUBLISHING is undone: nothing of it is at the target, and the source is as it was. What was left later is finished. A
source that somebody else uses stays: the move has made a copy then, which is said, and is no failure.

A repository shows what it stores in one step, so a move that is undone leaves there what was stored as a whole: it may
be somebody else's by then, and who undoes it does not know.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import attrs

from iriscw.checkpoint.effects import CopyOver, DropSource, OpenSource, PublishCopy, SourceOpened, UndoCopy
from iriscw.checkpoint.messages import MoveCheckpoint
from iriscw.checkpoint.model import CopyLost, MovePhase as Phase, MovePlan
from iriscw.checkpoint.records import MoveAccepted, MoveBegan, MoveEnded, MoveOpened, MoveUndoing
from iriscw.freeze.messages import Again, CancelOperation, OperationChanged, OperationEnded, Recover
from iriscw.freeze.model import Outcome
from iriscw.runtime.vocabulary import (
    SECOND,
    Cancel,
    CancelTimer,
    Command,
    Completed,
    Context,
    Continue,
    Decision,
    DecisionFunction,
    Emit,
    Failed,
    Outcome as Returned,
    Run,
    SetTimer,
)

KEY = "step"
"""All effects have one key: the next one starts only when the earlier one has really ended, cancelled or not."""

TRIES = 5
"""Of what should always work: removing."""

AGAIN_NS = 2 * SECOND


class MoveTurn(enum.Enum):
    """What is done about a phase that did not come to its end."""

    UNDO = "undo"
    """What may have been done is undone."""
    AGAIN = "again"
    """The step is taken again: it may be repeated."""


@attrs.frozen
class MoveRow:
    """One phase: what is done in it, and what follows."""

    does: str
    then: Phase
    failed: MoveTurn
    crashed: MoveTurn


_U, _A = MoveTurn.UNDO, MoveTurn.AGAIN
PHASES: Mapping[Phase, MoveRow] = {
    Phase.OPENING: MoveRow("finds the checkpoint and pins it", Phase.COPYING, _U, _U),
    Phase.COPYING: MoveRow("takes room, copies, compares every byte", Phase.PUBLISHING, _U, _U),
    Phase.PUBLISHING: MoveRow("makes the copy visible", Phase.DROPPING, _U, _A),
    Phase.DROPPING: MoveRow("removes what it was copied from, unless that is kept or used", Phase.OVER, _A, _A),
    Phase.UNDOING: MoveRow("removes what was written", Phase.OVER, _A, _A),
}
"""The life of a move. NEW and OVER owe nothing. A target that has lost its copy undoes a move in DROPPING, too."""

CANCELLABLE = (Phase.OPENING, Phase.COPYING)
"""Later than that it comes to its end, which takes no time."""


@attrs.define(eq=False)
class CheckpointMove:
    """One move, as its records say."""

    phase: Phase = Phase.NEW
    plan: MovePlan | None = None
    opened: MoveOpened | None = None
    undoing: MoveUndoing | None = None
    ended: MoveEnded | None = None

    @property
    def asked(self) -> MovePlan:
        """What was asked for."""
        assert self.plan is not None
        return self.plan

    @property
    def id(self) -> str:
        """The operation's."""
        return self.asked.operation

    @property
    def source(self) -> str:
        """Where it lay; empty if that is not known, or it lies in the target alone."""
        return self.opened.source if self.opened is not None else ""


def evolve(move: CheckpointMove, record: object) -> None:
    """Apply a record."""
    match record:
        case MoveAccepted(plan=plan):
            move.phase, move.plan = Phase.OPENING, plan
        case MoveOpened():
            move.phase, move.opened = Phase.COPYING, record
        case MoveBegan(phase=phase):
            move.phase = phase
        case MoveUndoing():
            move.phase, move.undoing = Phase.UNDOING, record
        case MoveEnded():
            move.phase, move.ended = Phase.OVER, record


def rules() -> dict[type, DecisionFunction]:
    """Return the decision for each message."""
    return {
        MoveCheckpoint: accept,
        CancelOperation: cancel,
        Recover: recover,
        Again: again,
        Completed: completed,
        Failed: failed,
    }


def resume(move: CheckpointMove, ctx: Context) -> tuple[Command, ...]:
    """Take up what an earlier life owes."""
    return () if move.phase in (Phase.NEW, Phase.OVER) else (Continue(Recover(move.phase)),)


def accept(move: CheckpointMove, message: MoveCheckpoint, ctx: Context) -> Returned:
    """Look for the checkpoint, once."""
    if move.phase is not Phase.NEW:
        return None
    plan = message.plan
    changed = Emit(OperationChanged(plan.operation, Phase.OPENING))
    look = Run(KEY, OpenSource(plan.operation, plan.artifact, plan.target, plan.source))
    return Decision(records=(MoveAccepted(plan, ctx.wall),), commands=(look, changed))


def cancel(move: CheckpointMove, message: CancelOperation, ctx: Context) -> Returned:
    """Undo it, unless the copy may be seen already."""
    if move.phase not in CANCELLABLE:
        return None
    turned = _undo(move, "Cancelled", message.text)
    return attrs.evolve(turned, commands=(Cancel(KEY), CancelTimer(KEY), *turned.commands))


def recover(move: CheckpointMove, message: Recover, ctx: Context) -> Returned:
    """Do what the table says about the phase in which an earlier life ended."""
    if move.phase is not message.phase:
        return None
    if PHASES[move.phase].crashed is MoveTurn.AGAIN:
        return (Run(KEY, _effect(move)),)
    return _undo(move, "Interrupted", f"the process that moved it ended while it was {move.phase.value}")


def again(move: CheckpointMove, message: Again, ctx: Context) -> Returned:
    """Try an effect again."""
    return None if move.phase is Phase.OVER else (Run(KEY, message.effect),)


def completed(move: CheckpointMove, message: Completed, ctx: Context) -> Returned:
    """Take the next step."""
    match message.effect:
        case OpenSource():
            return _opened(move, message.value)
        case CopyOver():
            return _begin(move, Phase.PUBLISHING)
        case PublishCopy():
            return _begin(move, Phase.DROPPING)
        case DropSource():
            return _dropped(move, message.value, ctx)
        case UndoCopy():
            return _undone(move, "", ctx)
    return None


def failed(move: CheckpointMove, message: Failed, ctx: Context) -> Returned:
    """Undo it, or try again what must succeed in the end."""
    kind, text = type(message.error).__name__, str(message.error)
    match message.effect:
        case DropSource() if isinstance(message.error, CopyLost):
            return _undo(move, kind, text)
        case DropSource(tries=tries, stays=stays) if tries < TRIES:
            return (SetTimer(KEY, AGAIN_NS, Again(_drop(move, stays, tries + 1))),)
        case DropSource(stays="", keep=False):
            return (Run(KEY, _drop(move, f"it could not be removed: {text}")),)
        case DropSource(stays=stays):
            return _dropped(move, f"{stays}; it stays in use: {text}" if stays else f"it stays in use: {text}", ctx)
        case UndoCopy(tries=tries) if tries < TRIES:
            return (SetTimer(KEY, AGAIN_NS, Again(_undo_copy(move, tries + 1))),)
        case UndoCopy():
            return _undone(move, f"; what was written in {move.asked.target} is left: {text}", ctx)
    return _undo(move, kind, text)


def _opened(move: CheckpointMove, opened: SourceOpened) -> Returned:
    records = (MoveOpened(opened.source, opened.size_bytes, opened.digest, opened.there),)
    after = attrs.evolve(move)
    evolve(after, records[0])
    if opened.there and (move.asked.keep or not opened.source):  # nothing is to be copied, and nothing to be removed
        return _begin(after, Phase.DROPPING, *records)
    changed = Emit(OperationChanged(move.id, Phase.COPYING))
    return Decision(records=records, commands=(Run(KEY, _effect(after)), changed))


def _begin(move: CheckpointMove, phase: Phase, *before: object) -> Decision:
    after = attrs.evolve(move, phase=phase)
    changed = Emit(OperationChanged(move.id, phase))
    return Decision(records=(*before, MoveBegan(phase)), commands=(Run(KEY, _effect(after)), changed))


def _effect(move: CheckpointMove) -> CopyOver | PublishCopy | DropSource | UndoCopy:
    """Return what is done in a phase."""
    plan = move.asked
    match move.phase:
        case Phase.COPYING:
            assert move.opened is not None
            size = move.opened.size_bytes
            return CopyOver(plan.operation, plan.artifact, move.source, plan.target, size, plan.keep)
        case Phase.PUBLISHING:
            return PublishCopy(plan.operation, plan.artifact, plan.target)
        case Phase.DROPPING:
            return _drop(move)
    return _undo_copy(move)


def _drop(move: CheckpointMove, stays: str = "", tries: int = 0) -> DropSource:
    assert move.opened is not None
    plan, digest = move.asked, move.opened.digest
    return DropSource(plan.operation, plan.artifact, move.source, plan.target, digest, plan.keep, stays, tries)


def _undo_copy(move: CheckpointMove, tries: int = 0) -> UndoCopy:
    return UndoCopy(move.id, move.asked.artifact, move.source, move.asked.target, tries)


def _undo(move: CheckpointMove, kind: str, text: str) -> Decision:
    changed = Emit(OperationChanged(move.id, Phase.UNDOING))
    undo = Run(KEY, _effect(attrs.evolve(move, phase=Phase.UNDOING)))
    return Decision(records=(MoveUndoing(kind, text),), commands=(undo, changed))


def _dropped(move: CheckpointMove, stays: str, ctx: Context) -> Decision:
    """End well: that the source stays changes no outcome (INV-C15), but is said."""
    assert move.opened is not None
    notes = []
    if move.opened.there:
        notes.append(f"{move.asked.target} had it already")
    if stays:
        notes.append(f"it stays in {move.source or move.asked.target}, too: {stays}")
    copied = bool(stays) or (move.asked.keep and bool(move.source))
    return _over(move, Outcome.COPIED if copied else Outcome.MOVED, "", "; ".join(notes), ctx)


def _undone(move: CheckpointMove, more: str, ctx: Context) -> Decision:
    assert move.undoing is not None
    return _over(move, Outcome.STAYED, move.undoing.kind, f"{move.undoing.text}{more}", ctx)


def _over(move: CheckpointMove, outcome: Outcome, kind: str, text: str, ctx: Context) -> Decision:
    ended = Emit(OperationEnded(move.id, outcome, kind, text))
    return Decision(records=(MoveEnded(outcome, kind, text, ctx.wall),), commands=(ended,))
