"""What runs have reached: each kind of fault, and each state of slices, places, groups, tasks, jobs and streams.

Theory of operation. A check that never meets a state proves nothing about it. A :class:`Coverage` looks at runs from
outside: at the state of each actor that is about to decide (a set lookup per delivery), at each record that reaches the
disk, at the events that were published, and at the faults that fired. What it saw are *points*, texts such as
``slice: booting`` or ``ending: WORKER_LOST``; for each it counts the runs that reached it.

:data:`POINTS` has all there are, from the enumerations and lists themselves: a new state, or a new fault, is a point
that nobody has reached yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any

from iriscw.fleet.model import Availability, PodState, SliceState, Trouble
from iriscw.fleet.pods import WorkerPlace
from iriscw.fleet.signals import GroupReported, PodReported, SliceReported
from iriscw.fleet.slices.slice import Slice
from iriscw.jobs.links.link import Link
from iriscw.jobs.messages import JobChanged, TaskChanged
from iriscw.jobs.model import TASK_LIVE, Ending, JobState, TaskState
from iriscw.jobs.records import AttemptAdvanced, AttemptEnded, AttemptPlaced, VerdictReached
from iriscw.jobs.suspension.model import Stage
from iriscw.runtime.cell import Cell
from iriscw_sims.move_checks import LEADS_TO
from iriscw_sims.swarm import FAULTS, RATES, Plan
from iriscw_sims.world import Run, World

STREAMS = ("no stream", "waits for the jobs", "not all jobs have spoken", "up")
"""What a worker's stream can be like, as its link sees it."""

_ENUMERATIONS: Mapping[str, type[Enum]] = {
    "slice": SliceState,
    "trouble": Trouble,
    "place": PodState,
    "group": Availability,
    "ending": Ending,
    "task": TaskState,
    "job": JobState,
    "suspension": Stage,
}


def _points() -> Iterator[str]:
    for name in FAULTS:
        yield f"fault: {name}"
    for name, _ in RATES:
        yield f"chance: {name}"
    for kind, enumeration in _ENUMERATIONS.items():
        for member in enumeration:
            yield f"{kind}: {member.value}"
    for state in TASK_LIVE:
        yield f"attempt: {state.value}"
    for stream in STREAMS:
        yield f"stream: {stream}"


POINTS: tuple[str, ...] = tuple(_points())
"""All points, in a fixed order."""

_FIRED = {name: f"fault: {name}" for name in FAULTS} | {name: f"chance: {name}" for name, _ in RATES}


class Coverage:
    """The points that some runs have reached."""

    def __init__(self) -> None:
        self.runs = 0
        self.reached: Counter[str] = Counter()
        """In how many runs each point was reached."""
        self._seen: dict[str, None] = {}
        self._looks: Mapping[type[Any], Callable[[Any], None]] = {
            Slice: self._slice,
            WorkerPlace: self._place,
            Link: self._link,
        }

    def run(self, seed: int, plan: Plan | None = None) -> Run:
        """Run a seed, or a plan, and count what it reaches."""
        world = World(seed, plan)
        self.watch(world)
        run = world.run()
        self.count(world, run)
        return run

    def watch(self, world: World) -> None:
        """Look at all that will happen in a world that has not begun."""
        self._seen = {}
        seen, disk = world.simulation.seen, world.system.disk
        written = getattr(disk, "written", None)

        def delivered(cell: Cell, message: Any) -> None:
            look = self._looks.get(type(cell.state))
            if look is not None:
                look(cell.state)
            report = _REPORTS.get(type(message))
            if report is not None:
                self._saw(_NAMES[report(message)])
            if seen is not None:
                seen(cell, message)

        def durable(path: str, record: Any) -> None:
            self._record(record)
            if written is not None:
                written(path, record)

        world.simulation.seen = delivered
        disk.written = durable  # type: ignore[attr-defined]

    def count(self, world: World, run: Run) -> None:
        """Count what a world that has run has reached."""
        for event in world.system.events:
            if isinstance(event, JobChanged):
                self._saw(f"job: {event.state.value}")
            elif isinstance(event, TaskChanged):
                self._saw(f"task: {event.state.value}")
        for name, _ in run.fired:
            if name in _FIRED:
                self._saw(_FIRED[name])
        self.runs += 1
        self.reached.update(self._seen.keys())

    def _saw(self, point: str) -> None:
        self._seen[point] = None

    def _slice(self, piece: Slice) -> None:
        self._saw(_NAMES[piece.state])
        self._saw(_NAMES[piece.trouble])

    def _place(self, place: WorkerPlace) -> None:
        self._saw(_NAMES[place.state])

    def _link(self, link: Link) -> None:
        if link.up:
            self._saw("stream: up" if link.unclaimed is None else "stream: not all jobs have spoken")
        else:
            self._saw("stream: no stream" if link.arrived is None else "stream: waits for the jobs")

    def _record(self, record: Any) -> None:
        match record:
            case AttemptPlaced():
                self._saw("attempt: ASSIGNED")
            case AttemptAdvanced(state=state):
                self._saw(f"attempt: {state.value}")
            case AttemptEnded(end=end, then=then):
                self._saw(f"ending: {end.ending.value}")
                self._saw(f"task: {then.value}")
            case VerdictReached(waiting=waiting):
                self._saw(f"task: {waiting.value}")
            case _ if type(record) in LEADS_TO:
                self._saw(f"suspension: {LEADS_TO[type(record)].value}")

    @property
    def missing(self) -> tuple[str, ...]:
        """The points that no run has reached."""
        return tuple(point for point in POINTS if not self.reached[point])

    def report(self) -> str:
        """Say how many runs reached each point, the rarest first."""
        order = sorted(POINTS, key=lambda point: (self.reached[point], point))
        return "\n".join(f"{point:<60}  reached by {self.reached[point]} of {self.runs} seeds" for point in order)


_NAMES: Mapping[Enum, str] = {
    member: f"{kind}: {member.value}"
    for kind in ("slice", "trouble", "place", "group")
    for member in _ENUMERATIONS[kind]
}

_REPORTS: Mapping[type[Any], Callable[[Any], Enum]] = {
    GroupReported: lambda message: message.availability,
    SliceReported: lambda message: message.row.state,
    PodReported: lambda message: message.state,
}
"""What actors say of themselves: the last states of those that end are seen nowhere else."""
