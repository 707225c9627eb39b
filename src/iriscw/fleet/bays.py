"""Packing on paper: which tasks would find a place on slices that are all alike.

Theory of operation. A *bay* is the paper model of slices of one group: some are untouched, and on the workers of the
others is room left. Workers with the same room are kept as one stack, so that packing costs by shapes, not by tasks.
"""

from __future__ import annotations

import attrs

from iriscw.cloud.model import Capacity
from iriscw.fleet.model import GroupConfig

MAX_STACKS = 64
"""Stacks of partly used workers in a bay; with more, those with the least room are taken for full."""


@attrs.define
class Bay:
    """The paper model of one group's slices in one round."""

    config: GroupConfig
    untouched: int
    used: int = 0
    spread: int = 0
    """Of the used ones, those that a gang that spreads touched first."""
    stacks: list[tuple[Capacity, int]] = attrs.field(factory=list)
    """(room on each, how many such workers)."""
    slices: tuple[str, ...] = ()
    """All of them by name, where those are known."""

    def place(self, demand: Capacity, count: int, gang: int) -> int:
        """Pack up to ``count`` tasks; give how many found a place."""
        if gang > 1:
            return self._place_gangs(demand, count // gang, gang) * gang
        placed = self._place_in_stacks(demand, count)
        return placed + self._place_in_untouched(demand, count - placed)

    def has_room(self, demand: Capacity, count: int) -> int:
        """Say how many of up to ``count`` tasks of a gang that spreads would find a place."""
        room = self.untouched * self.config.num_vms * self.config.per_worker.times(demand) if self.untouched else 0
        for stack, workers in self.stacks:
            if room >= count:
                return count
            room += stack.times(demand) * workers
        return min(room, count)

    def spread_over(self, demand: Capacity, count: int) -> None:
        """Pack ``count`` tasks of a gang that spreads, for which there is room."""
        used = self.used
        placed = self.place(demand, count, 1)
        assert placed == count
        self.spread += self.used - used

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
