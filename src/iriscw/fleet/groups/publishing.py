"""What a group publishes of its slices: each new state and each new trouble, once.

Slices report whatever changes, a sentence of their reason too; what is published is what somebody outside acts on or
writes down. A restart publishes the present state of each slice anew, and says that nothing is known of before.
"""

from __future__ import annotations

from iriscw.fleet.messages import SliceChanged
from iriscw.fleet.model import Trouble
from iriscw.fleet.records import SlicePromise
from iriscw.fleet.signals import SliceReported
from iriscw.runtime.vocabulary import Command, Context, Emit


def publish(before: SliceReported | None, after: SliceReported, promise: SlicePromise, ctx: Context) -> list[Command]:
    """Publish how a slice stands, if that is news.

    Args:
        before: Its last report; None: nothing is known of it.
        after: Its report.
        promise: What is written down of it.
        ctx: Of the decision.
    """
    row, was = after.row, None if before is None else before.row
    if was is not None and (was.state, was.trouble) == (row.state, row.trouble):
        return []
    event = SliceChanged(
        row=row,
        pool_uid=after.pool_uid or promise.pool_uid,
        was=None if was is None else was.state,
        trouble_was=Trouble.NONE if was is None else was.trouble,
        at=ctx.wall,
    )
    return [Emit(event)]
