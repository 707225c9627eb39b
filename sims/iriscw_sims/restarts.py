"""Faults of the time between two controllers: what is lost while nobody watches, and stops at the worst moment.

Theory of operation. A controller that is down sees nothing, and the next one is told of what is there, never of what
was. So what vanished meanwhile has to be concluded, and the conclusions of one actor have to reach another that may be
new as well. The faults here lose everything while the controller is down, in order or killed, and then set a trap: a
second stop exactly between what the fleet has written down and what a job has, or a scheduler that begins anew just
before it hears of a slice's end. A trap that springs counts as fired; one that does not is forgotten at the end.

A loss without a victim shows little, so these faults wait until something runs, up to :data:`PATIENCE`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs

from iriscw.fleet.groups.group import Group
from iriscw.fleet.messages import SliceGone
from iriscw.fleet.model import SliceState
from iriscw.fleet.signals import SliceReported
from iriscw.jobs.scheduling.state import Scheduler
from iriscw.runtime.cell import Cell
from iriscw.runtime.vocabulary import SECOND

if TYPE_CHECKING:
    from iriscw_sims.world import World

PATIENCE = 60 * SECOND
"""How long a loss waits for something that runs."""

LONGEST_DOWN_S = 40

CLOSES = "controller closes"
CLOUD_LOST = "cloud lost while the controller is down"
MACHINES_LOST = "machines lost while the controller is down"
STOPS_BEHIND = "controller stops behind the end of a slice"
MEETS_NEW = "end of a slice meets a new scheduler"

SCHEDULER = "/jobs/scheduler"


@attrs.define
class Poison:
    """A message that no actor has a rule for: it fails whoever gets it."""


class Restarts:
    """Losses that wait for a victim, and traps that wait for their moment."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.stops: list[int] = []
        """For how many seconds the controller will be down that stops behind the end of a slice, one per trap."""
        self.poisons = 0
        """How many ends of slices will meet a new scheduler."""
        self.ending: tuple[Group, str] | None = None
        """The group that decides in this step on the end of a slice, and which."""

    # Losses

    def close(self, pick: int) -> bool:
        """Close the controller in order, and start it again."""
        return self.world.close(_down(pick))

    def lose(self, kind: str, pick: int) -> bool:
        """Stop the controller and lose things while it is down; tells nothing: it may take place later, or never."""
        self._wait(kind, pick, self.world.simulation.now + PATIENCE)
        return False

    def _wait(self, kind: str, pick: int, deadline: int) -> None:
        world = self.world
        if world.healed:
            return
        if not world.job_checks.running and world.simulation.now < deadline:
            world.simulation.call_after(SECOND, self._wait, kind, pick, deadline)
            return
        cloud = world.cloud
        losses: Callable[[], None] = cloud.lose_everything
        if kind == MACHINES_LOST:
            losses = cloud.lose_pods if pick & 2 else cloud.lose_machines

        def lost() -> None:
            losses()
            if kind in (CLOUD_LOST, MACHINES_LOST):
                world.fired(kind)
            self.stops += [_down(pick >> 8)] if kind == STOPS_BEHIND else []
            self.poisons += kind == MEETS_NEW

        if pick & 1:
            world.close(_down(pick), lost)
        elif world.crash(_down(pick)):
            lost()

    # Traps

    def check(self) -> None:
        """Stop behind the step in which a group writes a slice's end down, if jobs have attempts there.

        What waits for the disk reaches it: the fleet's record is the last one, and no job has heard of it.
        """
        if self.ending is None:
            return
        (group, slice_id), self.ending = self.ending, None
        world, journal = self.world, self.world.system.journal
        behind = self.stops and slice_id not in group.promises and world.job_checks.live_on_slice(slice_id)
        if behind and world.crash(self.stops[-1], keep=journal.appended - journal.durable):
            self.stops.pop()
            world.fired(STOPS_BEHIND)

    def delivered(self, cell: Cell, message: Any) -> None:
        """An actor is about to decide on a message."""
        if not (self.poisons or self.stops) or self.world.healed:
            return
        if isinstance(message, SliceReported) and message.row.state is SliceState.GONE:
            self.ending = (cell.state, message.row.slice_id)
            if self.poisons:
                # What the group is about to tell finds this in front of it.
                self.world.system.tell(SCHEDULER, Poison())
            return
        meets = isinstance(message, SliceGone) and isinstance(cell.state, Scheduler) and cell.state.syncing
        if meets and self.poisons:
            self.poisons -= 1
            self.world.fired(MEETS_NEW)


def _down(pick: int) -> int:
    """Return for how many seconds the controller is down."""
    return 1 + (pick >> 8) % LONGEST_DOWN_S
