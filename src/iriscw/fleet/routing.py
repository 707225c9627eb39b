"""Which group takes which demand: packing on paper, without touching anything.

Theory of operation. Demand comes as entries, each so many tasks of one shape that the scheduler cannot
place now. They are routed in order of their band, gangs and big shapes first, as first-fit-decreasing does.
An entry may go to the groups whose workers could run it at all; those that meet more of its preferences
come first, then those with a lower ``priority``. It is packed in three rounds:

1. into slices that are on their way already;
2. into slices that could still be asked for;
3. into slices that wait for machines: only what nobody else takes.

A *bay* is the paper model of one group: slices that are untouched, and workers with room left. Workers with
the same room are kept as one stack, so that packing costs by shapes, not by tasks. A gang takes its workers
in one untouched slice; it fits where its members fit into ``num_vms`` workers (INV-J4).

For every demand the result has a sentence that says what is done about it, or what is missing (INV-J7).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence

import attrs

from iriscw.cloud.model import Capacity, Constraint, Op
from iriscw.fleet.messages import DemandEntry
from iriscw.fleet.model import Availability, GroupConfig

MAX_STACKS = 64
"""Stacks of partly used workers in a bay; with more, those with the least room are taken for full."""

MAX_GROUPS_NAMED = 3
"""Groups that a sentence for users names."""

DECIDED_BY_WORKERS = ("python",)
"""Attributes that only a running worker has, and that any new one may meet."""


class Round(enum.Enum):
    """The three rounds of packing."""

    ABSORBING = "on their way"
    ROOM = "to be asked for"
    WAITING = "waiting for machines"


@attrs.frozen
class Offer:
    """What a group can take now."""

    config: GroupConfig
    availability: Availability
    reason: str
    absorbing: int = 0
    room: int = 0
    waiting: int = 0


@attrs.frozen
class Routing:
    """What was decided: slices wanted by group, and a sentence for each demand."""

    wanted: Mapping[str, int]
    reasons: tuple[tuple[str, str], ...]


@attrs.define
class Bay:
    """The paper model of one group's slices in one round."""

    config: GroupConfig
    untouched: int
    used: int = 0
    stacks: list[tuple[Capacity, int]] = attrs.field(factory=list)
    """(room on each, how many such workers)."""

    def place(self, demand: Capacity, count: int, gang: int) -> int:
        """Pack up to ``count`` tasks; give how many found a place."""
        if gang > 1:
            return self._place_gangs(demand, count // gang, gang) * gang
        placed = self._place_in_stacks(demand, count)
        return placed + self._place_in_untouched(demand, count - placed)

    def _place_in_stacks(self, demand: Capacity, count: int) -> int:
        placed = 0
        stacks: list[tuple[Capacity, int]] = []
        for room, workers in self.stacks:
            each = room.times(demand) if placed < count else 0
            if each == 0:
                stacks.append((room, workers))
                continue
            taken = min(count - placed, each * workers)
            stacks += _split(room, workers, demand, each, taken)
            placed += taken
        self._keep(stacks)
        return placed

    def _place_in_untouched(self, demand: Capacity, count: int) -> int:
        each = self.config.per_worker.times(demand)
        per_slice = each * self.config.num_vms
        slices = min(self.untouched, -(-count // per_slice)) if per_slice else 0
        if slices == 0:
            return 0
        taken = min(count, slices * per_slice)
        self._touch(slices)
        workers = slices * self.config.num_vms
        self._keep(self.stacks + _split(self.config.per_worker, workers, demand, each, taken))
        return taken

    def _place_gangs(self, demand: Capacity, gangs: int, gang: int) -> int:
        each = self.config.per_worker.times(demand)
        workers = -(-gang // each) if each else self.config.num_vms + 1
        per_slice = self.config.num_vms // workers
        slices = min(self.untouched, -(-gangs // per_slice)) if per_slice else 0
        if slices == 0:
            return 0
        placed = min(gangs, slices * per_slice)
        self._touch(slices)
        stacks = list(self.stacks)
        busy = placed * workers
        stacks += _split(self.config.per_worker, busy, demand, each, placed * gang)
        stacks.append((self.config.per_worker, slices * self.config.num_vms - busy))
        self._keep(stacks)
        return placed

    def _touch(self, slices: int) -> None:
        self.untouched -= slices
        self.used += slices
        assert self.untouched >= 0

    def _keep(self, stacks: list[tuple[Capacity, int]]) -> None:
        self.stacks = [(room, workers) for room, workers in stacks if workers > 0 and not _full(room)]
        if len(self.stacks) > MAX_STACKS:
            self.stacks.sort(key=lambda stack: (stack[0].gpu_count, stack[0].cpu_milli), reverse=True)
            del self.stacks[MAX_STACKS:]


def _full(room: Capacity) -> bool:
    return room.cpu_milli == 0 or room.memory_bytes == 0


def _split(room: Capacity, workers: int, demand: Capacity, each: int, taken: int) -> list[tuple[Capacity, int]]:
    """Put ``taken`` tasks on a stack, ``each`` on a worker: give the stacks that result."""
    filled, rest = divmod(taken, each)
    result = [(_after(room, demand, each), filled)]
    if rest:
        result.append((_after(room, demand, rest), 1))
    result.append((room, workers - filled - (1 if rest else 0)))
    assert sum(number for _, number in result) == workers
    return result


def _after(room: Capacity, demand: Capacity, times: int) -> Capacity:
    return Capacity(
        room.cpu_milli - times * demand.cpu_milli,
        room.memory_bytes - times * demand.memory_bytes,
        room.disk_bytes - times * demand.disk_bytes,
        room.gpu_count - times * demand.gpu_count,
        room.gpu_class,
    )


# Which groups could run it at all


def misfit(config: GroupConfig, entry: DemandEntry) -> str:
    """Say why no slice of this group can ever run the entry; empty if one can."""
    short = config.per_worker.lacking(entry.demand)
    if short:
        return f"its workers have too little {', '.join(short)}"
    for constraint in entry.constraints:
        if constraint.required and not _may_satisfy(constraint, config):
            return f"it does not meet '{constraint}'"
    if entry.gang_size > 1:
        each = config.per_worker.times(entry.demand)
        if -(-entry.gang_size // each) > config.num_vms:
            return f"a gang of {entry.gang_size} needs more than the {config.num_vms} workers of a slice"
    return ""


def _may_satisfy(constraint: Constraint, config: GroupConfig) -> bool:
    name = constraint.key
    if name in DECIDED_BY_WORKERS and name not in config.attributes:
        return constraint.op is not Op.NOT_EXISTS
    return constraint.satisfied(config.attributes)


def _disliked(config: GroupConfig, entry: DemandEntry) -> int:
    return sum(1 for each in entry.constraints if not each.required and not _may_satisfy(each, config))


# Routing


def _order(entry: DemandEntry) -> tuple[int, int, int, int, int, str]:
    demand = entry.demand
    size = (-demand.gpu_count, -demand.cpu_milli, -demand.memory_bytes)
    return (entry.band, -entry.gang_size, *size, entry.demand_id)


def route(entries: Sequence[DemandEntry], offers: Sequence[Offer]) -> Routing:
    """Route all demand: pure, and the same for the same arguments."""
    # Where there are no slices there is nothing to place: in a large fleet that is at work, almost everywhere.
    bays = {
        (offer.config.name, round_): Bay(offer.config, slices)
        for offer in offers
        for round_, slices in (
            (Round.ABSORBING, offer.absorbing),
            (Round.ROOM, offer.room),
            (Round.WAITING, offer.waiting),
        )
        if slices
    }
    by_name = {offer.config.name: offer for offer in offers}
    reasons: list[tuple[str, str]] = []
    for entry in sorted((entry for entry in entries if entry.count > 0), key=_order):
        misfits = {offer.config.name: misfit(offer.config, entry) for offer in offers}
        fitting = sorted(
            (offer.config for offer in offers if not misfits[offer.config.name]),
            key=lambda config: (_disliked(config, entry), config.priority, config.name),
        )
        if not fitting:
            reasons.append((entry.demand_id, _impossible(misfits)))
            continue
        shares, left = _pack(entry, fitting, bays)
        reasons.append((entry.demand_id, _sentence(shares, left, fitting, by_name)))
    wanted = {offer.config.name: 0 for offer in offers}
    for (name, _), bay in bays.items():
        wanted[name] += bay.used
    return Routing(wanted, tuple(sorted(reasons)))


Shares = dict[tuple[str, Round], int]


def _pack(
    entry: DemandEntry, fitting: Sequence[GroupConfig], bays: Mapping[tuple[str, Round], Bay]
) -> tuple[Shares, int]:
    """Pack one entry: give how many tasks went where, and how many found no place."""
    left = entry.count
    shares: Shares = {}
    if not bays:
        return shares, left
    for round_ in Round:
        for config in fitting:
            bay = bays.get((config.name, round_))
            placed = bay.place(entry.demand, left, entry.gang_size) if bay is not None and left else 0
            if placed:
                shares[config.name, round_] = placed
                left -= placed
    assert 0 <= left <= entry.count
    return shares, left


# Sentences


def _impossible(misfits: Mapping[str, str]) -> str:
    if not misfits:
        return "there is no scale group"
    named = [f"{name}: {why}" for name, why in sorted(misfits.items())[:MAX_GROUPS_NAMED]]
    more = len(misfits) - len(named)
    return "no scale group can ever run this: " + "; ".join(named) + (f"; and {more} more" if more else "")


def _sentence(shares: Shares, left: int, fitting: Sequence[GroupConfig], offers: Mapping[str, Offer]) -> str:
    parts = []
    for (name, round_), count in shares.items():
        tasks = f"{count} task{'s' if count != 1 else ''}"
        match round_:
            case Round.ABSORBING:
                parts.append(f"{tasks} for slices of {name!r} that are on their way")
            case Round.ROOM:
                parts.append(f"{tasks} for new slices of {name!r}")
            case Round.WAITING:
                parts.append(f"{tasks} for slices of {name!r} that wait for machines: {offers[name].reason}")
    if left:
        closed = [
            f"{config.name!r} is {offers[config.name].availability.value}"
            + (f" ({offers[config.name].reason})" if offers[config.name].reason else "")
            for config in fitting[:MAX_GROUPS_NAMED]
        ]
        parts.append(f"no group takes {left} more now: " + ", ".join(closed))
    return "; ".join(parts)
