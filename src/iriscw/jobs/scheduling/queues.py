"""Which task is placed next: bands, then submission, interleaved by job.

Tasks that are placed alike wait together: a :class:`Shape` is a band and a wish, with the jobs that have
tasks of it. Each band has a ring of shapes; the head's turn lasts for one task of each of its jobs, in the
order of submission, then it goes to the end. So within a band every job gets one task per round, and the
earliest submission is first. A lower band has its turn when no shape of a higher one can be placed.

A shape for which no worker has room leaves its ring; it comes back when a worker of one of its pools has room
for it again. While it is out, neither new tasks of it nor anything else costs more than a look. Smaller work
behind it goes ahead: nothing is reserved for a task that waits, until somebody of a lower band gives way to it
(:mod:`iriscw.jobs.scheduling.preempting`).

A gang is a shape of its own, and is placed whole.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable

import attrs

from iriscw.jobs.model import Band, JobSpec
from iriscw.jobs.scheduling.placement import Host, Inventory, PlacementWish, WorkerPool


@attrs.define(eq=False)
class Waiting:
    """A job's tasks that wait, and what the scheduler knows of the job."""

    job_id: str
    order: int = 0
    spec: JobSpec | None = None
    ranges: deque[list[int]] = attrs.field(factory=deque)
    count: int = 0
    live: dict[str, None] = attrs.field(factory=dict)
    """The attempts that hold room."""
    token: int = 0
    """Of the report it was asked for last."""
    reporting: bool = False
    """Between that question and its answer: nothing is placed."""
    reported: dict[str, None] = attrs.field(factory=dict)
    """The attempts that the parts of a report have named so far."""
    withdrawn: bool = False
    accepted_here: bool = False
    """Whether it was submitted to the fleet's present configuration: one from before may wait for another one."""
    told_never: bool = False

    resting: dict[int, tuple[tuple[int, int], ...]] = attrs.field(factory=dict)
    """Tasks that wait before they wait for a worker, by the first of them."""
    rested_at: int = 0
    """When the last of them has."""
    refused: str = ""
    """What the worker said that refused one of its attempts last."""

    shape: Shape | None = None
    """Where its tasks wait; None if none does."""


Key = tuple[Band, PlacementWish, str]


@attrs.define(eq=False)
class Shape:
    """Tasks that are placed alike. ``gang`` is the attribute that all tasks of its only job share, or None."""

    key: Key
    band: Band
    wish: PlacementWish
    gang: str | None
    jobs: deque[Waiting] = attrs.field(factory=deque)
    turn: int = 0
    blocked: bool = False
    pools: list[WorkerPool] = attrs.field(factory=list)
    generation: int = -1
    count: int = 0
    """How many tasks wait."""
    blocked_since: int = -1
    """When no worker took a task of it first; -1: not yet."""
    demand_id: str = ""
    """What the fleet knows it by, once it was named."""

    def candidates(self, inventory: Inventory) -> list[WorkerPool]:
        """Return the pools that may take it."""
        if self.generation != inventory.generation:
            self.pools = inventory.pools_for(self.wish)
            self.generation = inventory.generation
        return self.pools


def key_of(job: Waiting) -> Key:
    """Return the key of the shape that a job's tasks have."""
    spec = job.spec
    assert spec is not None
    wish = PlacementWish(spec.demand, spec.constraints, spec.entrypoint.python)
    return spec.band, wish, job.job_id if spec.group_by is not None else ""


def demand_name(asked: object) -> str:
    """Name what is asked of the fleet: the same for the same demand, across restarts."""
    return f"demand-{hashlib.sha256(repr(asked).encode()).hexdigest()[:12]}"


class Queues:
    """All that waits."""

    def __init__(self) -> None:
        self.shapes: dict[Key, Shape] = {}
        self.rings: dict[Band, deque[Shape]] = {band: deque() for band in Band}
        self.blocked: dict[Key, Shape] = {}

    def add(self, job: Waiting, ranges: Iterable[tuple[int, int]]) -> None:
        """Have more tasks of a job wait, behind those that wait already."""
        number = 0
        for first, end in ranges:
            job.ranges.append([first, end])
            number += end - first
        if not number:
            return
        job.count += number
        if job.shape is None:
            job.shape = self._shape(key_of(job), job)
            job.shape.jobs.append(job)
        job.shape.count += number

    def _shape(self, key: Key, job: Waiting) -> Shape:
        shape = self.shapes.get(key)
        if shape is None:
            assert job.spec is not None
            shape = self.shapes[key] = Shape(key, key[0], key[1], job.spec.group_by)
            self.rings[shape.band].append(shape)
        return shape

    def drop(self, job: Waiting) -> None:
        """Have no task of a job wait."""
        shape = job.shape
        if shape is not None:
            shape.jobs.remove(job)
            self._leave(shape, job)
        job.ranges.clear()
        job.resting.clear()
        job.count = 0

    def _leave(self, shape: Shape, job: Waiting) -> None:
        shape.count -= job.count
        job.shape = None
        if not shape.jobs:
            self._discard(shape)

    def head(self) -> Shape | None:
        """Return the shape whose turn it is."""
        for ring in self.rings.values():
            if ring:
                return ring[0]
        return None

    def take(self, shape: Shape, number: int) -> list[int]:
        """Return the next tasks of the head's first job, ``number`` of them; then it is the next one's turn."""
        job = shape.jobs[0]
        indexes = []
        for _ in range(number):
            head = job.ranges[0]
            indexes.append(head[0])
            head[0] += 1
            if head[0] >= head[1]:
                job.ranges.popleft()
        job.count -= number
        shape.count -= number
        shape.turn += 1
        if job.count:
            shape.jobs.rotate(-1)
        else:
            shape.jobs.popleft()
            shape.turn -= 1
            self._leave(shape, job)
        if shape.jobs and shape.turn >= len(shape.jobs):
            shape.turn = 0
            self.rings[shape.band].rotate(-1)
        return indexes

    def lead(self, shape: Shape) -> None:
        """Have a shape be the head of its ring, whether it was blocked or not."""
        if shape.blocked:
            shape.blocked = False
            del self.blocked[shape.key]
        else:
            self.rings[shape.band].remove(shape)
        self.rings[shape.band].appendleft(shape)

    def block(self, shape: Shape, now: int) -> None:
        """The head cannot be placed for now."""
        if shape.blocked_since < 0:
            shape.blocked_since = now
        shape.blocked = True
        shape.turn = 0
        self.blocked[shape.key] = shape
        self.rings[shape.band].popleft()

    def wake(self, host: Host, inventory: Inventory) -> bool:
        """A worker has room: let the shapes that may use it take part again. Tells whether there are any."""
        woken = [
            shape
            for shape in self.blocked.values()
            if host.takes(shape.wish.demand) and host.pool in shape.candidates(inventory)
        ]
        for shape in woken:
            del self.blocked[shape.key]
            shape.blocked = False
            self.rings[shape.band].append(shape)
        return bool(woken)

    def _discard(self, shape: Shape) -> None:
        del self.shapes[shape.key]
        if shape.blocked:
            del self.blocked[shape.key]
        else:
            self.rings[shape.band].remove(shape)
