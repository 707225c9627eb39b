"""How the checkpoint of a suspended attempt comes to the repository: decisions of the job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from iriscw.jobs.job.ends import Ends, conclude, step
from iriscw.jobs.job.ledger import JobLedger
from iriscw.jobs.settings import JobSettings
from iriscw.jobs.suspension.effects import CheckpointStored
from iriscw.jobs.suspension.messages import StoreAgain
from iriscw.jobs.suspension.moves import Move, to_be_stored
from iriscw.jobs.suspension.placing import MAX_REASON_CHARS, pause_ns, placed, stored_by_agent
from iriscw.jobs.suspension.records import AttemptStored, StoreBegun, StoreFailed
from iriscw.runtime.vocabulary import Command, Context, Outcome, SetTimer


class StoreDecisions:
    """The decisions, for one set of settings."""

    def __init__(self, settings: JobSettings) -> None:
        self.settings = settings

    def ended(self, ledger: JobLedger, key: Any, value: CheckpointStored, ctx: Context) -> Outcome:
        """Its checkpoint lies in the repository, or where it was; from there it may go on."""
        _, index, uid = key
        move = ledger.moves.get(uid)
        if move is None or not move.storing or uid not in ledger.away:
            return None
        ends = Ends()
        reason = f"it was not stored: {value.reason}"[:MAX_REASON_CHARS]
        ended = (
            AttemptStored(index, uid, value.repository, ctx.wall)
            if value.repository
            else StoreFailed(index, uid, reason, ctx.wall)
        )
        then = step(ledger, index, uid, ends, ctx, ended)
        if ledger.open:
            ends.waiting += placed(ledger, index, uid, then, ctx)
            ends.commands += self.later(index, uid, then)
        return conclude(ledger, ends, ctx)

    def later(self, index: int, uid: str, move: Move) -> Iterator[Command]:
        """Have it stored again in a while, if it was to be stored, is not, and does not go on."""
        if to_be_stored(move):
            again = StoreAgain(index, uid, move.number, move.stores_failed)
            yield SetTimer(("store", uid), pause_ns(self.settings, max(move.stores_failed - 1, 0)), again)

    def again(self, ledger: JobLedger, message: StoreAgain, ctx: Context) -> Outcome:
        """Store it again."""
        index, uid = message.index, message.uid
        move = ledger.moves.get(uid)
        asked = (message.number, message.failed)
        if move is None or not ledger.open or not to_be_stored(move) or asked != (move.number, move.stores_failed):
            return None
        ends = Ends()
        then = step(ledger, index, uid, ends, ctx, StoreBegun(index, uid, ctx.wall))
        ends.commands.append(stored_by_agent(index, uid, then))
        return conclude(ledger, ends, ctx)
