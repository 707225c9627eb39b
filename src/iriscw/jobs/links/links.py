"""Decisions of ``/jobs/links``: which workers have a link.

The scheduler says for which incarnation of each worker a link is wanted; there is one actor for each of them, and
none for another incarnation until that one has stopped. The state is plain: a new one has no link, says so, and is
told which are wanted.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from iriscw.jobs.messages import AnnounceLink, Due, LinkGone, LinksAwake, LinkUnwanted, LinkWanted
from iriscw.runtime.behavior import ChildSpec
from iriscw.runtime.vocabulary import (
    SECOND,
    ActorPath,
    Command,
    Context,
    DecisionFunction,
    Outcome,
    ReviveChild,
    SetTimer,
    Spawn,
    StopChild,
    StopReason,
    Tell,
    Terminated,
    Undelivered,
    Watch,
)

AGAIN = 1 * SECOND
"""Before a full mailbox is told again."""


@attrs.define(eq=False)
class Links:
    """Which incarnation each worker's link is for: wanted, and running."""

    wanted: dict[str, str] = attrs.field(factory=dict)
    running: dict[str, str] = attrs.field(factory=dict)


class LinksDecisions:
    """The decisions of ``/jobs/links``, for one way to make a link's actor.

    Args:
        child: gives the child spec of the link to a worker's incarnation.
    """

    def __init__(self, child: Callable[[str, str], ChildSpec]) -> None:
        self.child = child

    def rules(self) -> dict[type, DecisionFunction]:
        """Return the decision for each message."""
        return {
            LinkWanted: self.wanted,
            LinkUnwanted: self.unwanted,
            Terminated: self.terminated,
            Undelivered: self.undelivered,
            Due: self.due,
        }

    def resume(self, links: Links, ctx: Context) -> tuple[Command, ...]:
        """Tell the scheduler that there is no link: it says which are wanted."""
        return (Tell(_scheduler(ctx), LinksAwake()),)

    def wanted(self, links: Links, message: LinkWanted, ctx: Context) -> Outcome:
        """Have a link to this incarnation, and none to another."""
        worker_id = message.worker_id
        running = links.running.get(worker_id)
        links.wanted[worker_id] = message.incarnation
        if running is None:
            return (self._start(links, worker_id),)
        if running == message.incarnation:
            return (ReviveChild(worker_id), Tell(ctx.path / worker_id, AnnounceLink()))
        return (StopChild(worker_id), Watch(ctx.path / worker_id))

    def _start(self, links: Links, worker_id: str) -> Command:
        links.running[worker_id] = links.wanted[worker_id]
        return Spawn(self.child(worker_id, links.wanted[worker_id]))

    def unwanted(self, links: Links, message: LinkUnwanted, ctx: Context) -> Outcome:
        """Have no link to this incarnation."""
        if links.wanted.get(message.worker_id) != message.incarnation:
            return None
        del links.wanted[message.worker_id]
        return (StopChild(message.worker_id), Watch(ctx.path / message.worker_id))

    def terminated(self, links: Links, message: Terminated, ctx: Context) -> Outcome:
        """A link is gone: start the one that is wanted now, or say that there is none."""
        worker_id = message.path.name
        incarnation = links.running.get(worker_id)
        if incarnation is None:
            return None
        if message.reason is StopReason.QUARANTINED:
            return (Tell(_scheduler(ctx), LinkGone(worker_id, incarnation)),)
        del links.running[worker_id]
        return (self._start(links, worker_id),) if worker_id in links.wanted else None

    def undelivered(self, links: Links, message: Undelivered, ctx: Context) -> Outcome:
        """A mailbox was full: tell again in a while."""
        return (SetTimer("again", AGAIN, Due("again")),)

    def due(self, links: Links, message: Due, ctx: Context) -> Outcome:
        """Tell the scheduler again to say which links are wanted: each of them announces itself then."""
        return (Tell(_scheduler(ctx), LinksAwake()),)


def _scheduler(ctx: Context) -> ActorPath:
    return ctx.path.parent / "scheduler"
