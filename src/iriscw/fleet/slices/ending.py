"""How a slice goes: its pods first, then its pool, and nothing is taken for gone before it is known to be.

Theory of operation. The group has written down that the slice goes, and says so (``Dismiss``). DRAINING
ends the worker pods; after ``pod_grace`` the pool is deleted whether they have ended or not, because a pool
that is not deleted costs money. DELETING deletes the pool by its uid. A slice that never saw a uid looks
for the pool first: a create that was answered by silence may still have landed, and the key of the effect
keeps the look behind it. Whatever lands after that is an orphan, which the group reclaims.

A deletion that takes longer than ``deletion_patience`` is *stuck*: it is reported, repeated with growing
pauses for ever, and holds up nothing else (INV-F7).
"""

from __future__ import annotations

from iriscw.cloud.effects import DeleteNodePool
from iriscw.fleet.lifecycle import GOING, SliceEvent
from iriscw.fleet.model import SliceState, Trouble
from iriscw.fleet.pacing import backoff
from iriscw.fleet.signals import Overdue, RemovePod, TryAgain
from iriscw.fleet.slices.slice import Slice, look_for_pool, move, places_over, stop_clocks
from iriscw.runtime.vocabulary import SECOND, CancelTimer, Command, Context, Run, SetTimer, Tell


def dismiss(piece: Slice, ctx: Context, reason: str) -> list[Command]:
    """Begin the end."""
    commands = move(piece, SliceEvent.DISMISSED, ctx, reason)
    if not commands and piece.state is not SliceState.DRAINING:
        return []
    timing = piece.seed.config.timing
    commands += stop_clocks()
    commands += [CancelTimer("pool"), SetTimer("stuck", timing.deletion_patience, Overdue("deletion"))]
    commands.append(SetTimer("pods", timing.pod_grace, Overdue("pods")))
    commands += [Tell(ctx.path / name, RemovePod()) for name in piece.places]
    return commands + proceed(piece, ctx)


def proceed(piece: Slice, ctx: Context) -> list[Command]:
    """Take the next step of the end, if its time has come."""
    commands: list[Command] = []
    if piece.state is SliceState.DRAINING and places_over(piece):
        commands += pods_over(piece, ctx)
    if piece.state is SliceState.DELETING and piece.pool_gone and places_over(piece):
        commands += move(piece, SliceEvent.ALL_GONE, ctx, "gone")
        commands += [CancelTimer("stuck"), CancelTimer("pool")]
    return commands


def pods_over(piece: Slice, ctx: Context) -> list[Command]:
    """Go on to the pool: the pods are gone, or had their time."""
    assert piece.state is SliceState.DRAINING
    commands = [*move(piece, SliceEvent.PODS_OVER, ctx, piece.reason), CancelTimer("pods")]
    piece.retries = 0
    return commands if piece.pool_gone else commands + delete(piece)


def delete(piece: Slice) -> list[Command]:
    """Delete the pool, or look for it if nobody has seen its uid; a create under way is answered first."""
    if piece.asking:
        return []
    if piece.pool_uid:
        return [Run("pool", DeleteNodePool(piece.seed.slice_id, piece.pool_uid))]
    return [look_for_pool(piece)]


def delete_again(piece: Slice, ctx: Context) -> Command:
    """Repeat a deletion that was acknowledged but not seen to happen."""
    timing = piece.seed.config.timing
    piece.retries += 1
    delay = backoff(piece.retries, timing.deletion_retry, timing.deletion_patience, ctx.rng)
    return SetTimer("pool", delay, TryAgain("pool"))


def pool_is_gone(piece: Slice, ctx: Context) -> list[Command]:
    """Note that the pool is gone: the end of a slice that goes, the failure of one that does not.

    While a create is under way another pool may come of it: then the end looks again once that is answered.
    """
    piece.pool, piece.pool_uid, piece.pool_gone = None, "", not piece.asking
    if piece.state in GOING:
        return proceed(piece, ctx)
    commands = move(piece, SliceEvent.POOL_GONE, ctx, "the node pool was removed from outside")
    if commands:
        piece.trouble = Trouble.WORKERS
    return commands


def overdue(piece: Slice, ctx: Context) -> list[Command]:
    """Report a deletion that is stuck, and free the slice's place in its group."""
    if piece.state not in (SliceState.DRAINING, SliceState.DELETING) or piece.stuck:
        return []
    piece.stuck = True
    piece.trouble = Trouble.STUCK_DELETION
    minutes = piece.seed.config.timing.deletion_patience // (60 * SECOND)
    what = "node pool" if piece.state is SliceState.DELETING and not piece.pool_gone else "worker pods"
    piece.reason = f"the deletion of the {what} has taken more than {minutes} minutes and is being repeated"
    # No call takes that long: one that was never answered must not hold up the end.
    piece.asking = False
    return delete(piece) if piece.state is SliceState.DELETING and not piece.pool_gone else []
