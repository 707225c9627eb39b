"""What a run cost, and how long people waited: figures of a whole run, for assertions.

Theory of operation. A :class:`Meter` hangs itself behind what a world shows anyway, as the timeline does: it adds
nothing to the trace, and a run that is measured is the run that was not. Slices and attempts are counted from their
promise on the disk until it is over there; a slice is ready from the time its actor says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from iriscw.fleet.groups.scaling import GIVEN_UP
from iriscw.fleet.model import SliceState, slice_of
from iriscw.fleet.records import SliceDeleted, SliceDoomed, SliceRequested
from iriscw.fleet.signals import SliceReported
from iriscw.jobs.records import AttemptEnded, AttemptPlaced, JobAccepted, JobEnded
from iriscw.runtime.cell import Cell
from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.fleet_checks import LONGEST_IDLE
from iriscw_sims.world import Run, World


@attrs.frozen(kw_only=True)
class Outcome(Run):
    """What came of one run, with figures over all of it: the time of faults, and that until the world was at rest."""

    slice_seconds: float
    """Summed over slices: from the promise until nothing is left. What machines cost goes with it."""
    slice_seconds_by_group: Mapping[str, float]
    """The same, of each group of the plan."""
    idle_slice_seconds: float
    """The part of it in which a slice was ready and no attempt lived on it."""
    most_slices: int
    """At any one time, those on their way out included."""
    waited_s: tuple[float, ...]
    """For each task, the shortest first: from its job's acceptance until its first attempt was placed on a worker, or
    until its job ended without one."""
    oscillations: int
    """How often a group asked for a slice after it had let one go because there were too many."""

    def waited_percentile_s(self, percent: float) -> float:
        """Return the wait that so many percent of all tasks did not exceed; 0 without tasks.

        Raises:
            ValueError: ``percent`` is not within 0 and 100.
        """
        if not 0 <= percent <= 100:
            raise ValueError(f"a percentile lies within 0 and 100, not at {percent}")
        rank = max(1, -(-len(self.waited_s) * percent // 100))
        return self.waited_s[int(rank) - 1] if self.waited_s else 0.0


@attrs.define
class _Slice:
    """A slice that is not gone."""

    group: str
    promised: int
    ready: bool = False
    attempts: int = 0
    idle_from: int | None = None


@attrs.define
class _Job:
    """A job that has not ended: its tasks that never were placed."""

    accepted: int
    unplaced: dict[int, None]


class Meter:
    """Measures a world that has not run yet."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._slices: dict[str, _Slice] = {}
        self._attempts: dict[str, str] = {}
        """The slice of each attempt that lives on the disk, by uid."""
        self._jobs: dict[str, _Job] = {}
        self._shrunk: dict[str, None] = {}
        """Groups whose last change was to let a slice go."""
        self._held = {group.name: 0 for group in world.plan.groups}
        self._idle = self._oscillations = self._most = 0
        self._waited: list[int] = []
        self._seen, world.simulation.seen = world.simulation.seen, self._message
        disk: Any = world.system.disk
        self._written, disk.written = disk.written, self._record

    def outcome(self, run: Run) -> Outcome:
        """Return the figures, once the world has run."""
        now = self._world.simulation.now
        for each in self._slices.values():
            self._turn(each, now, ready=False)
            self._held[each.group] += now - each.promised
        for job in self._jobs.values():
            self._waited += [now - job.accepted] * len(job.unplaced)
        return Outcome(
            **{field.name: getattr(run, field.name) for field in attrs.fields(Run)},
            slice_seconds=sum(self._held.values()) / SECOND,
            slice_seconds_by_group={group: held / SECOND for group, held in self._held.items()},
            idle_slice_seconds=self._idle / SECOND,
            most_slices=self._most,
            waited_s=tuple(sorted(waited / SECOND for waited in self._waited)),
            oscillations=self._oscillations,
        )

    def _message(self, cell: Cell, message: Any) -> None:
        if self._seen is not None:
            self._seen(cell, message)
        if type(message) is SliceReported and message.row.slice_id in self._slices:
            state = message.row.state
            if state is not SliceState.REQUESTED:  # else its actor is new, and knows nothing yet
                ready = state is SliceState.READY
                self._turn(self._slices[message.row.slice_id], self._world.simulation.now, ready=ready)

    def _turn(self, piece: _Slice, now: int, *, ready: bool | None = None, attempts: int = 0) -> None:
        """Take note of a change, and count the time for which the slice was idle until then."""
        if piece.idle_from is not None:
            self._idle += now - piece.idle_from
        piece.ready = piece.ready if ready is None else ready
        piece.attempts += attempts
        piece.idle_from = now if piece.ready and not piece.attempts else None

    def _record(self, path: str, record: Any) -> None:
        if self._written is not None:
            self._written(path, record)
        now, name = self._world.simulation.now, path.rpartition("/")[2]
        match record:
            case SliceRequested(slice_id=slice_id):
                self._slices[slice_id] = _Slice(name, now)
                self._most = max(self._most, len(self._slices))
                self._oscillations += name in self._shrunk
                self._shrunk.pop(name, None)
            case SliceDoomed(slice_id=slice_id, reason=reason):
                self._turn(self._slices[slice_id], now, ready=False)
                if reason.startswith((LONGEST_IDLE, GIVEN_UP)):
                    self._shrunk[name] = None
            case SliceDeleted(slice_id=slice_id):
                piece = self._slices.pop(slice_id)
                self._turn(piece, now, ready=False)
                self._held[piece.group] += now - piece.promised
            case JobAccepted(job_id=job_id, spec=spec):
                self._jobs[job_id] = _Job(now, dict.fromkeys(range(spec.replicas)))
            case AttemptPlaced() | AttemptEnded():
                self._attempt(now, name, record)
            case JobEnded():
                job = self._jobs.pop(name)
                self._waited += [now - job.accepted] * len(job.unplaced)

    def _attempt(self, now: int, job_id: str, record: AttemptPlaced | AttemptEnded) -> None:
        if isinstance(record, AttemptPlaced):
            job = self._jobs[job_id]
            if record.index in job.unplaced:
                del job.unplaced[record.index]
                self._waited.append(now - job.accepted)
            slice_id = self._attempts[record.uid] = slice_of(record.worker_id)
        else:
            slice_id = self._attempts.pop(record.uid, "")
        if slice_id in self._slices:
            change = 1 if isinstance(record, AttemptPlaced) else -1
            self._turn(self._slices[slice_id], now, attempts=change)
