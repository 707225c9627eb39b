"""What a suspended attempt that has no worker has done for it: stored, or a worker looked for."""

from __future__ import annotations

from collections.abc import Iterator

from iriscw.jobs.job.desired_attempts import scheduler_of
from iriscw.jobs.job.ledger import JobLedger
from iriscw.jobs.settings import JobSettings
from iriscw.jobs.suspension.effects import StoreCheckpoint
from iriscw.jobs.suspension.messages import PlaceAgain, PlaceSuspended
from iriscw.jobs.suspension.moves import (
    Move,
    freeze_key,
    store_key,
    waiting_for,
    waits_for_worker,
)
from iriscw.runtime.vocabulary import (
    Command,
    Context,
    Run,
    SetTimer,
    Tell,
)

MAX_DOUBLINGS = 16
"""Of the time for which a machine is not tried again: far beyond the longest."""

MAX_REASON_CHARS = 1024
"""Of what others say about a freeze or a thaw, in the journal."""


def pause_ns(settings: JobSettings, times: int) -> int:
    """Return how long what has failed so often before is not tried again."""
    return min(settings.doubt_ns << min(times, MAX_DOUBLINGS), settings.longest_doubt_ns)


def stored_by_agent(index: int, uid: str, move: Move) -> Command:
    """Have its checkpoint come to the repository."""
    effect = StoreCheckpoint(store_key(freeze_key(uid, move), move.stores_failed), uid, move.checkpoint, move.node)
    return Run(("store", index, uid), effect)


def placed(ledger: JobLedger, index: int, uid: str, move: Move, ctx: Context) -> Iterator[Command]:
    """Have a worker found for it, if one is wanted."""
    if waits_for_worker(move):
        yield Tell(scheduler_of(ctx), PlaceSuspended(ledger.job_id, waiting_for(uid, index, move, ctx.wall)))
        yield from tried_again(index, uid, move, ctx)


def tried_again(index: int, uid: str, move: Move, ctx: Context) -> Iterator[Command]:
    """Have the first of the machines that are not to be tried now be tried when its time has come."""
    until = [until_ns for _, _, until_ns in move.doubts if until_ns > ctx.wall]
    if until:
        yield SetTimer(("doubt", uid), min(until) - ctx.wall, PlaceAgain(index, uid, move.number))
