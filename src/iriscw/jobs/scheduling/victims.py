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

from collections.abc import Iterable, Mapping, Sequence

import attrs

from iriscw.cloud.model import Capacity


@attrs.frozen
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
    taken: dict[Victim, None] = {}
    left: dict[str, WorkerRoom] = {room.worker_id: room for room in rooms}
    placed: dict[str, int] = {}
    offers: dict[str, tuple[Victim, ...] | None] = {}
    for _ in range(size):
        for worker_id, room in left.items():
            if worker_id not in offers:
                offers[worker_id] = _for_one_more(room, demand, placed.get(worker_id, 0) + 1, lowest, taken)
        usable = {worker_id: offer for worker_id, offer in offers.items() if offer is not None}
        if not usable:
            return None
        # The first of those that cost the same: min() keeps the order in which workers came.
        worker_id = min(usable, key=lambda each: _cost(usable[each]))
        placed[worker_id] = placed.get(worker_id, 0) + 1
        touched = {worker_id: None, **{name: None for victim in usable[worker_id] for name, _, _ in victim.rooms}}
        taken.update(dict.fromkeys(usable[worker_id]))
        for name in touched:
            offers.pop(name, None)
    for victim in sorted(taken, key=Victim.price, reverse=True):  # the dearest are let off first
        others = [each for each in taken if each is not victim]
        if all(_fits(left[worker_id], demand, number, others) for worker_id, number in placed.items()):
            del taken[victim]
    worker_ids = tuple(worker_id for worker_id, number in placed.items() for _ in range(number))
    return VictimChoice(worker_ids, tuple(taken))


def _cost(victims: Sequence[Victim]) -> tuple[int, int, int, int]:
    return VictimChoice((), tuple(victims)).price()


def _fits(room: WorkerRoom, demand: Capacity, number: int, leaving: Iterable[Victim]) -> bool:
    free, spare = _after(room, leaving)
    return spare >= number and free.times(demand) >= number


def _after(room: WorkerRoom, leaving: Iterable[Victim]) -> tuple[Capacity, int]:
    free, spare = room.free, room.spare
    for victim in leaving:
        for worker_id, capacity, attempts in victim.rooms:
            if worker_id == room.worker_id:
                free, spare = free.plus(capacity), spare + attempts
    return free, spare


def _for_one_more(
    room: WorkerRoom, demand: Capacity, number: int, lowest: int, taken: Mapping[Victim, None]
) -> tuple[Victim, ...] | None:
    """Say who else has to leave so that ``number`` tasks fit on a worker; None: they never do."""
    if _fits(room, demand, number, taken):
        return ()
    candidates = sorted((each for each in room.victims if each.band >= lowest and each not in taken), key=Victim.price)
    for victim in candidates:
        if _fits(room, demand, number, (*taken, victim)):
            return (victim,)
    chosen: list[Victim] = []
    while candidates:
        free, spare = _after(room, (*taken, *chosen))
        best = min(candidates, key=lambda each: (-_helps(each, room, free, spare, demand, number), each.price()))
        candidates.remove(best)
        chosen.append(best)
        if _fits(room, demand, number, (*taken, *chosen)):
            return tuple(chosen)
    return None


def _helps(victim: Victim, room: WorkerRoom, free: Capacity, spare: int, demand: Capacity, number: int) -> float:
    """Say how much of what is short a victim brings, of each resource, from 0 to 1; per attempt that ends."""
    here = [(capacity, attempts) for worker_id, capacity, attempts in victim.rooms if worker_id == room.worker_id]
    brought = 0.0
    for capacity, attempts in here:
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
