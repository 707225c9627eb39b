"""Which worker takes a task: first fit over an index, a reason when none does.

Workers of the same capacity and attributes (but for the two that are unique to each) form a *pool*; a fleet
of thousands has a handful. Whether a task's constraints hold is decided once per pool, so what remains per
task is to find the first worker of the pool with room. For each pool and demand there is a heap of places in
the pool where the demand may fit, lowest first. A worker leaves the heap when it turns out to be full, and
comes back when something is given back on it: the pool keeps a log of such workers, and each heap reads it
from where it was. So 5,000 tasks on 5,000 workers cost some ten thousand steps, and a full pool costs one
look at an empty heap, however often one asks.

Required constraints filter. Preferred ones score pools: those that satisfy more come first; within a pool,
and among equals, the worker that has been known longest. A preference for one slice or worker is not scored.
Workers that refused come after all others that have room, whatever their pool.

Sums are exact: what is taken is kept under the attempt's uid and given back by it, at most once (INV-J3).
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

import attrs

from iriscw.cloud.model import Attributes, Capacity, Constraint
from iriscw.fleet.model import SLICE_ID, WORKER_ID, WorkerInfo

MAX_ATTEMPTS_PER_WORKER = 256
"""Attempts that live on one worker at a time. Kubernetes' default is 110 pods per node."""

HEAPS_KEPT = 512
"""Demands per pool for which a heap is kept; a demand beyond them pays for a new heap, of all workers, each time it
comes back. The heap of a demand that waits is empty; all full, those of a pool of 5,000 workers take 20 MB."""

LOG_LIMIT = 4096
"""Entries of a pool's log after which it starts anew, and the heaps with it."""

UNIQUE = (WORKER_ID, SLICE_ID)
"""Attributes that do not divide workers into pools."""

DEMOTED = 1 << 40
"""Ranks from here on are of workers that refused: behind those of workers that are yet to come."""

PYTHON = "python"


@attrs.frozen
class PlacementWish:
    """What a task wants of a worker: tasks with equal wishes are placed alike."""

    demand: Capacity
    constraints: tuple[Constraint, ...] = ()
    python: str = ""

    def required(self) -> tuple[Constraint, ...]:
        """Return the constraints that must hold."""
        return tuple(each for each in self.constraints if each.required)


@attrs.define
class Commitment:
    """Room that an attempt takes on a worker."""

    job_id: str
    index: int
    demand: Capacity
    refusals: int = 0
    """How often in a row the worker had refused when this was placed."""
    placed_wall_ns: int = 0
    """When that was."""


@attrs.frozen
class Refusing:
    """That a worker refused attempts: how often in a row, until when it gets nothing (ns), and what it said last."""

    count: int
    until: int
    reason: str


@attrs.define(eq=False)
class Host:
    """A worker as the scheduler sees it."""

    info: WorkerInfo
    pool: WorkerPool
    rank: int
    """Where it stands in its pool: how many came before it; from ``DEMOTED`` on, if it refused."""
    free: Capacity
    commitments: dict[str, Commitment] = attrs.field(factory=dict)
    linked: bool = False
    """Its link knows what should run there, and passes on what is told."""
    lost: bool = False
    cordon: int | None = None
    """The round in which its slice was cordoned."""
    refusing: Refusing | None = None
    paused: bool = False
    """Whether it gets nothing because it refused."""
    claimed: dict[int, int] = attrs.field(factory=dict)
    """For how many tasks room is kept that is not ``free`` therefore, by the number of the claim."""

    @property
    def placeable(self) -> bool:
        """Whether work may be placed there at all."""
        return self.linked and not self.lost and self.cordon is None and not self.paused

    def takes(self, demand: Capacity) -> bool:
        """Tell whether it takes one more attempt of this demand now."""
        taken = len(self.commitments) + sum(self.claimed.values())
        return self.placeable and taken < MAX_ATTEMPTS_PER_WORKER and self.free.fits(demand)

    def claim(self, number: int, demand: Capacity) -> None:
        """Keep room for one more task. It may not be free yet."""
        self.claimed[number] = self.claimed.get(number, 0) + 1
        self.free = self.free.minus(demand)

    def unclaim(self, number: int, demand: Capacity) -> None:
        """Keep none of it any more."""
        for _ in range(self.claimed.pop(number)):
            self.free = self.free.plus(demand)


@attrs.define(eq=False)
class Heap:
    """Where in a pool a demand may fit."""

    ranks: list[int]
    read: int
    epoch: int


class WorkerPool:
    """Workers that no ordinary constraint tells apart."""

    def __init__(self, capacity: Capacity, attributes: Attributes) -> None:
        self.capacity = capacity
        self.attributes = attributes
        self.hosts: dict[int, Host] = {}
        self._ranks = 0
        self.freeings = 0
        """How often a worker of it may have begun to take what it did not take before."""
        self._log: list[int] = []
        self._epoch = 0
        self._heaps: dict[tuple[Capacity, tuple[Constraint, ...]], Heap] = {}

    def add(self, info: WorkerInfo) -> Host:
        """Take a worker in, last in rank, without room for anything until its link is there."""
        host = Host(info, self, self._ranks, info.capacity)
        self.hosts[host.rank] = host
        self._ranks += 1
        return host

    def move(self, host: Host, first: int) -> None:
        """Make a worker the last in rank, of those from ``first`` on."""
        del self.hosts[host.rank]
        host.rank = first + self._ranks
        self.hosts[host.rank] = host
        self._ranks += 1

    def freed(self, host: Host) -> None:
        """Note that a worker may take something it did not take before."""
        self.freeings += 1
        self._log.append(host.rank)
        if len(self._log) > LOG_LIMIT + len(self.hosts):
            self._log.clear()
            self._epoch += 1

    def find(self, demand: Capacity, special: tuple[Constraint, ...]) -> Host | None:
        """Return the first worker that takes the demand and satisfies the constraints on unique attributes."""
        heap = self._heap(demand, special)
        ranks = heap.ranks
        while ranks:
            host = self.hosts.get(ranks[0])
            if host is not None and host.takes(demand) and _all_hold(special, host.info.attributes):
                return host
            heappop(ranks)
        return None

    def _heap(self, demand: Capacity, special: tuple[Constraint, ...]) -> Heap:
        key = (demand, special)
        heap = self._heaps.get(key)
        if heap is None or heap.epoch != self._epoch:
            if len(self._heaps) >= HEAPS_KEPT:
                del self._heaps[next(iter(self._heaps))]
            ranks = list(self.hosts)
            heapify(ranks)
            heap = self._heaps[key] = Heap(ranks, len(self._log), self._epoch)
        for rank in self._log[heap.read :]:
            heappush(heap.ranks, rank)
        heap.read = len(self._log)
        return heap


def _all_hold(constraints: Iterable[Constraint], attributes: Attributes) -> bool:
    return all(each.satisfied(attributes) for each in constraints)


def _without_unique(attributes: Attributes) -> Attributes:
    return Attributes([pair for pair in attributes.pairs if pair[0] not in UNIQUE])


class Inventory:
    """All workers, with what is taken on each."""

    def __init__(self) -> None:
        self.pools: dict[tuple[Capacity, Attributes], WorkerPool] = {}
        self.hosts: dict[str, Host] = {}
        """By worker id; the latest incarnation only."""
        self.nodes: dict[str, dict[str, Host]] = {}
        """Those by the machine they are on, if they have said."""
        self.where: dict[str, Host] = {}
        """By attempt uid, older incarnations included."""
        self.generation = 0
        """Counts additions of workers: which pools there are may have changed."""
        self._misses: dict[tuple[Capacity, tuple[Constraint, ...]], dict[WorkerPool, int]] = {}
        """By demand, the pools without room for it, as of so many freeings: a fleet may have many pools after all."""
        self._gang_misses: dict[tuple[PlacementWish, str], int] = {}
        """The size of the smallest gang of each kind for which there was no room, since room was last added."""

    # Workers

    def add(self, info: WorkerInfo) -> Host:
        """Take a worker in. One of the same id must have been dropped before."""
        key = (info.capacity, _without_unique(info.attributes))
        pool = self.pools.get(key)
        if pool is None:
            pool = self.pools[key] = WorkerPool(*key)
        host = self.hosts[info.worker_id] = pool.add(info)
        if info.node:
            self.nodes.setdefault(info.node, {})[info.worker_id] = host
        self.generation += 1
        self._gang_misses.clear()
        return host

    def drop(self, host: Host) -> None:
        """Take a worker out. What is committed on it stays, until it is given back."""
        host.lost = True
        host.pool.hosts.pop(host.rank, None)
        if self.hosts.get(host.info.worker_id) is host:
            del self.hosts[host.info.worker_id]
        here = self.nodes.get(host.info.node, {})
        if here.get(host.info.worker_id) is host:
            del here[host.info.worker_id]
            if not here:
                del self.nodes[host.info.node]
        if not host.pool.hosts:
            self.pools.pop((host.pool.capacity, host.pool.attributes), None)
            self.generation += 1
            self._misses.clear()

    def demote(self, host: Host, refusing: Refusing) -> None:
        """Have a worker that refused come after all others."""
        host.refusing = refusing
        host.pool.move(host, DEMOTED)

    def promote(self, host: Host) -> None:
        """Have a worker that refuses no more be like any other."""
        host.refusing = None
        host.pool.move(host, 0)
        self.freed(host)

    # Room

    def commit(self, host: Host, uid: str, commitment: Commitment) -> None:
        """Take room for an attempt."""
        assert uid not in self.where, f"attempt {uid} has room already"
        host.commitments[uid] = commitment
        host.free = host.free.minus(commitment.demand)
        self.where[uid] = host

    def release(self, uid: str) -> Host | None:
        """Give the room of an attempt back, and its worker; None if it has none (any more)."""
        host = self.where.pop(uid, None)
        if host is None:
            return None
        host.free = host.free.plus(host.commitments.pop(uid).demand)
        self.freed(host)
        return host

    def freed(self, host: Host) -> None:
        """Note that a worker may take something it did not take before."""
        host.pool.freed(host)
        self._gang_misses.clear()

    # Search

    def pools_for(self, wish: PlacementWish) -> list[WorkerPool]:
        """Return the pools whose workers may do, best first."""
        required = [each for each in wish.required() if each.key not in UNIQUE]
        preferred = [each for each in wish.constraints if not each.required and each.key not in UNIQUE]
        fitting = [
            pool
            for pool in self.pools.values()
            if pool.capacity.fits(wish.demand)
            and _python_fits(wish, pool.attributes)
            and _all_hold(required, pool.attributes)
        ]
        if preferred:
            fitting.sort(key=lambda pool: -sum(each.satisfied(pool.attributes) for each in preferred))
        return fitting

    def find(self, wish: PlacementWish, pools: Iterable[WorkerPool]) -> Host | None:
        """Return the first worker with room for the wish; one that refused, if there is no other."""
        special = tuple(each for each in wish.required() if each.key in UNIQUE)
        key = (wish.demand, special)
        misses = self._misses.get(key)
        if misses is None:
            if len(self._misses) >= HEAPS_KEPT:
                del self._misses[next(iter(self._misses))]
            misses = self._misses[key] = {}
        demoted: Host | None = None
        for pool in pools:
            if misses.get(pool) == pool.freeings:
                continue
            host = pool.find(wish.demand, special)
            if host is None:
                misses[pool] = pool.freeings
            elif host.refusing is None:
                return host
            elif demoted is None:
                demoted = host
        return demoted

    def find_gang(
        self, wish: PlacementWish, pools: Iterable[WorkerPool], group_by: str, size: int
    ) -> list[Host] | None:
        """Return a worker for each of ``size`` tasks, all with the same value of ``group_by``, or None.

        The first such value wins, in the order of pools and ranks. Takes time in proportion to the workers looked at,
        but once only for all gangs of a kind: where a small one finds no room, none of its size or above does until
        room is added. A thousand waiting gangs would be a thousand searches for each attempt that ends.
        """
        kind = (wish, group_by)
        missed = self._gang_misses.get(kind)
        if missed is not None and size >= missed:
            return None
        pools = tuple(pools)
        found = self._search_gang(wish, pools, group_by, size, refusing=False)
        if found is None and any(host.refusing is not None for pool in pools for host in pool.hosts.values()):
            found = self._search_gang(wish, pools, group_by, size, refusing=True)
        if found is None:
            self._gang_misses[kind] = size
        return found

    def _search_gang(
        self, wish: PlacementWish, pools: Iterable[WorkerPool], group_by: str, size: int, *, refusing: bool
    ) -> list[Host] | None:
        """Search among all workers, or those alone that have not refused."""
        special = [each for each in wish.required() if each.key in UNIQUE]
        groups: dict[str, list[Host]] = {}
        room: dict[str, int] = {}
        for pool in pools:
            for host in pool.hosts.values():
                value = host.info.attributes.get(group_by)
                if host.refusing is not None and not refusing:
                    continue
                if value is None or not host.takes(wish.demand) or not _all_hold(special, host.info.attributes):
                    continue
                spare = MAX_ATTEMPTS_PER_WORKER - len(host.commitments) - sum(host.claimed.values())
                times = min(host.free.times(wish.demand), spare, size)
                group = groups.setdefault(str(value), [])
                group += [host] * times
                room[str(value)] = room.get(str(value), 0) + times
                if room[str(value)] >= size:
                    return group[:size]
        return None


def _python_fits(wish: PlacementWish, attributes: Attributes) -> bool:
    return not wish.python or attributes.get(PYTHON) == wish.python
