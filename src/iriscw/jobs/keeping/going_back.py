"""When an attempt goes back to a checkpoint that was made while it ran, and to which. Pure.

================================================  =====================================================================
the attempt                                       so
================================================  =====================================================================
failed, was lost, stopped or preempted, and is    it goes back to the newest, if its job wants that; this counts as the
to be tried again                                 end would
overran its timeout, is of a gang, has none, or   it ends, and another attempt begins from nothing
is a callable that raised
could not be brought back, in all tries, or its   that checkpoint goes, and it goes back to the one before; this counts
machine refused it ``RETURNS`` times              against nothing
found no worker on the machine in time            likewise, with all that lie on that machine
has no checkpoint left                            it ends, and another attempt begins from nothing, on any machine
================================================  =====================================================================
"""

from __future__ import annotations

from iriscw.jobs.job.ledger import JobLedger
from iriscw.jobs.keeping.copies import Copies
from iriscw.jobs.keeping.records import CopyKept
from iriscw.jobs.lifecycle import Judgement
from iriscw.jobs.model import Ending, EntrypointKind, TaskState
from iriscw.jobs.suspension.model import Stage
from iriscw.jobs.suspension.moves import Move
from iriscw.runtime.vocabulary import SECOND

BACK_LIMIT_NS = 600 * SECOND
"""How long an attempt that goes back waits for a worker on the machine that has the checkpoint: that machine may be
gone for good. A worker that was killed is there again within two minutes."""

RETURNS = 3
"""Refusals of its machine after which an attempt does not go on from a checkpoint."""

GOES_BACK = (Ending.FAILED, Ending.WORKER_LOST, Ending.MISSING, Ending.KILLED, Ending.PREEMPTED)
"""What of an attempt may be over, so that its life is begun again from a checkpoint."""


def may_go_back(ledger: JobLedger, ending: Ending, judged: Judgement, exit_code: int | None) -> bool:
    """Tell whether an attempt that ends so may go back.

    A callable that ended by itself has left a result, what it raised: an attempt has one, and keeps it.
    """
    callable_ = ledger.spec.entrypoint.kind is EntrypointKind.CALLABLE
    if callable_ and ending is Ending.FAILED and exit_code is not None and exit_code >= 0:
        return False
    wanted = ledger.spec.retry_from_checkpoint and not ledger.gang and ledger.verdict is None
    return wanted and judged.then is TaskState.PENDING and ending in GOES_BACK


def is_passed_over(move: Move | None) -> bool:
    """Tell whether an attempt that ends was on its way back, and could not be brought back."""
    if move is None or not move.back:
        return False
    return move.stage is Stage.SUSPENDED or (move.stage is Stage.RESUMING and bool(move.given_up))


def passed_over(copies: Copies, move: Move | None) -> tuple[CopyKept, ...]:
    """Return the checkpoints from which an attempt that is passed over cannot go on."""
    if move is None or not is_passed_over(move):
        return ()
    whole_node = move.stage is Stage.SUSPENDED and move.returns < RETURNS
    return tuple(each for each in copies.kept if each.number == move.back or (whole_node and each.node == move.node))
