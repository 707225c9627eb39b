"""Who gives way to work of a higher band. Pure: rooms in, victims out.

What is asked is room for ``size`` tasks of one demand, all on workers of one *group* (one worker, for a task that is
placed alone). A *victim* is an attempt, or a gang as a whole: its room comes back on all of its workers.

Groups are compared by what they would cost, the least first: the highest band that is touched (one group where only
BATCH has to go is better than any where something INTERACTIVE has), attempts that end, those of them that lose their
work, and how long the oldest of them has run. Within a group victims are taken worker by worker, one that makes the
room by itself before several, and those without which there is room all the same are let off: none is taken too many.
A group without room for all ``size`` tasks takes no victim at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from iriscw.cloud.model import Capacity


@attrs.frozen(cache_hash=True)
class Victim:
    """What ends together.

    Args:
        uids: the attempts.
        band: of their job; a larger number is a lower band.
        rooms: what comes back, by the worker.
        freezes: whether it is frozen, and loses no work.
        since_wall_ns: when the first of its attempts was placed.
    """

    uids: tuple[str, ...]
    band: int
    rooms: tuple[tuple[str, Capacity, int], ...]
    """The worker, the room there, and of how many attempts."""
    freezes: bool
    since_wall_ns: int

    def price(self) -> tuple[int, int, int, int]:
        """Say what it costs to take it: what compares less is taken first."""
        number = len(self.uids)
        return (-self.band, number, 0 if self.freezes else number, -self.since_wall_ns)


@attrs.frozen
class WorkerRoom:
    """A worker: what is free there (as soon as all who leave have left), and for how many attempts; who could leave."""

    worker_id: str
    free: Capacity
    spare: int
    victims: tuple[Victim, ...]


@attrs.frozen
class VictimChoice:
    """On which workers the tasks would run, one for each task, and who has to leave."""

    worker_ids: tuple[str, ...]
    victims: tuple[Victim, ...]

    def price(self) -> tuple[int, int, int, int]:
        """Say what it costs: what compares less is better."""
        prices = [each.price() for each in self.victims]
        if not prices:
            return (-(1 << 31), 0, 0, 0)
        band, _, _, since = (max(column) for column in zip(*prices, strict=True))
        return (band, sum(price[1] for price in prices), sum(price[2] for price in prices), since)


def choose(groups: Iterable[Sequence[WorkerRoom]], demand: Capacity, size: int) -> VictimChoice | None:
    """Choose the group that costs least, and who leaves there; None: there would be no room however many left."""
    best: VictimChoice | None = None
    for rooms in groups:
        found = choose_within(rooms, demand, size)
        if found is not None and (best is None or found.price() < best.price()):
            best = found
    return best


def choose_within(rooms: Sequence[WorkerRoom], demand: Capacity, size: int) -> VictimChoice | None:
    """Choose within one group: with the lowest band alone, if that will do."""
    bands = sorted({victim.band: None for room in rooms for victim in room.victims}, reverse=True)
    for lowest in bands or [0]:
        found = _taking(rooms, demand, size, lowest)
        if found is not None:
            return found
    return None


def _taking(rooms: Sequence[WorkerRoom], demand: Capacity, size: int, lowest: int) -> VictimChoice | None:
    """Choose victims of ``lowest`` and the bands below it, worker by worker, the cheapest next task first."""
    bench = _Bench(rooms, demand, lowest)
    offers: dict[str, tuple[Victim, ...] | None] = {}
    prices: dict[str, tuple[int, int, int, int]] = {}
    for _ in range(size):
        for worker_id in bench.free:
            if worker_id not in offers:
                offer = offers[worker_id] = bench.for_one_more(worker_id)
                if offer is not None:
                    prices[worker_id] = VictimChoice((), offer).price()
        if not prices:
            return None
        # The first of those that cost the same: min() keeps the order in which workers came.
        best = min(prices, key=prices.__getitem__)
        chosen = offers[best] or ()
        bench.placed[best] = bench.placed.get(best, 0) + 1
        for victim in chosen:
            bench.take(victim)
        for name in (best, *(name for victim in chosen for name, _, _ in victim.rooms)):
            offers.pop(name, None)
            prices.pop(name, None)
    bench.let_off()
    worker_ids = tuple(worker_id for worker_id, number in bench.placed.items() for _ in range(number))
    return VictimChoice(worker_ids, tuple(bench.taken))


class _Bench:
    """What is free on each worker of a group while victims are chosen."""

    def __init__(self, rooms: Sequence[WorkerRoom], demand: Capacity, lowest: int) -> None:
        self.demand = demand
        self.free = {room.worker_id: (room.free, room.spare) for room in rooms}
        self.placed: dict[str, int] = {}
        """How many of the tasks would run on each."""
        self.taken: dict[Victim, None] = {}
        self._candidates = {
            room.worker_id: sorted((each for each in room.victims if each.band >= lowest), key=Victim.price)
            for room in rooms
        }

    def take(self, victim: Victim) -> None:
        """Have a victim leave, on all of its workers."""
        if victim in self.taken:
            return
        self.taken[victim] = None
        self._change(victim, 1)

    def let_off(self) -> None:
        """Have those stay without whom there is room all the same, the dearest first."""
        for victim in sorted(self.taken, key=Victim.price, reverse=True):
            self._change(victim, -1)
            if all(self._fits(*self.free[name], self.placed.get(name, 0)) for name in self._touched(victim)):
                del self.taken[victim]
            else:
                self._change(victim, 1)

    def _touched(self, victim: Victim) -> list[str]:
        return [name for name, _, _ in victim.rooms if name in self.free]

    def _change(self, victim: Victim, sign: int) -> None:
        for name, capacity, attempts in victim.rooms:
            if name in self.free:
                free, spare = self.free[name]
                self.free[name] = (free.plus(capacity) if sign > 0 else free.minus(capacity), spare + sign * attempts)

    def _fits(self, free: Capacity, spare: int, number: int) -> bool:
        return number == 0 or (spare >= number and free.times(self.demand) >= number)

    def for_one_more(self, worker_id: str) -> tuple[Victim, ...] | None:
        """Say who else has to leave so that one more task fits on a worker; None: it never does."""
        free, spare = self.free[worker_id]
        number = self.placed.get(worker_id, 0) + 1
        if self._fits(free, spare, number):
            return ()
        candidates = [(each, *_here(each, worker_id)) for each in self._candidates[worker_id] if each not in self.taken]
        for victim, capacity, attempts in candidates:
            if self._fits(free.plus(capacity), spare + attempts, number):
                return (victim,)
        chosen: list[Victim] = []
        while candidates:
            best = min(
                candidates,
                key=lambda each: (-self._helps(each[1], each[2], each[0], free, spare, number), each[0].price()),
            )
            candidates.remove(best)
            chosen.append(best[0])
            free, spare = free.plus(best[1]), spare + best[2]
            if self._fits(free, spare, number):
                return tuple(chosen)
        return None

    def _helps(
        self, capacity: Capacity, attempts: int, victim: Victim, free: Capacity, spare: int, number: int
    ) -> float:
        """Say how much of what is short a victim brings, of each resource, from 0 to 1; per attempt that ends."""
        demand, brought = self.demand, 0.0
        for has, gives, wants in (
            (free.cpu_milli, capacity.cpu_milli, demand.cpu_milli),
            (free.memory_bytes, capacity.memory_bytes, demand.memory_bytes),
            (free.disk_bytes, capacity.disk_bytes, demand.disk_bytes),
            (free.gpu_count, capacity.gpu_count, demand.gpu_count),
            (spare, attempts, 1),
        ):
            short = wants * number - has
            if short > 0:
                brought += min(gives / short, 1.0)
        return brought / len(victim.uids)


def _here(victim: Victim, worker_id: str) -> tuple[Capacity, int]:
    """Return what of a victim comes back on a worker."""
    return next((capacity, attempts) for name, capacity, attempts in victim.rooms if name == worker_id)
