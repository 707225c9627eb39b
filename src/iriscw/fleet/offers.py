"""What groups offer to demand, and where it was placed: the values that routing goes by."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeAlias

import attrs

from iriscw.cloud.model import Attributes
from iriscw.fleet.bays import Bay
from iriscw.fleet.messages import DemandEntry
from iriscw.fleet.model import SLICE_ID, WORKER_ID, Availability, GroupConfig
from iriscw.fleet.newest import Doubt
from iriscw.fleet.useless import IdleSlice


class Round(enum.Enum):
    """The rounds of packing, in order."""

    IDLE = "ready, and nothing runs there"
    """For gangs that spread alone: whatever else waits has no room there, or it would run."""
    ABSORBING = "on their way"
    ROOM = "to be asked for"
    WAITING = "waiting for machines"
    RENEWAL = "in the place of idle ones that nothing that waits could use"
    """Last of all: it costs a slice."""


Kind: TypeAlias = tuple[Attributes, ...]
"""What the workers of an idle slice are like, as far as gangs ask for it; empty where that is not known."""

ANY: Kind = ()
"""What is still to come may be of any kind."""

Place: TypeAlias = tuple[str, Round, Kind]
Bays: TypeAlias = dict[Place, Bay]
Shares: TypeAlias = dict[tuple[str, Round], int]
Fit: TypeAlias = dict[str, dict[Place, None]]
"""By group: where its idle slices are that do for a gang that it takes slices for."""


@attrs.frozen
class GroupOffer:
    """What a group can take now."""

    config: GroupConfig
    availability: Availability
    reason: str
    absorbing: int = 0
    room: int = 0
    waiting: int = 0
    expected_at: int | None = None
    """When the first slice on its way should be ready, in wall-clock ns."""
    boot_estimate: int = 0
    """How long a boot is thought to take, in ns; 0: nobody knows."""
    idle: int = 0
    """Slices that are ready, and on which nothing runs."""
    later: int = 0
    """Slices that could be asked for once the group opens by itself: ``room`` where it is open."""
    known: tuple[IdleSlice, ...] = ()
    """The idle ones by name, the longest idle first; after ``idle`` of them come those that were ready only just. Where
    there are too few, or workers are not known, a slice is thought to do for every gang."""
    going: int = 0
    """Slices on their way out, whose places will be free."""
    fresh: int = 0
    """Of the absorbing ones, those that are ready: they have shown what they are like."""
    retry_at: int | None = None
    """When a closed group opens again by itself, in wall-clock ns."""
    ready: int = 0
    """Slices that are ready."""


@attrs.frozen
class PlacedDemand:
    """Where the tasks of one entry were routed to."""

    entry: DemandEntry
    order: tuple[str, ...]
    """The groups that were tried, in this order."""
    left_out: tuple[str, ...]
    """Groups that could run it, and that the routing policy did not name."""
    shares: Shares
    """How many of its tasks each group takes, in which round."""
    left: int
    """How many found no place."""
    doubts: Mapping[str, Doubt]


def spreads(entry: DemandEntry) -> bool:
    """Whether its tasks run together, on workers of one slice or of several."""
    return entry.gang_size > 1 and entry.gang_by not in (SLICE_ID, WORKER_ID)
