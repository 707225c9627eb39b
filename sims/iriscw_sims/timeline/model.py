"""What a run looks like afterwards: events, spans on lanes, and figures over time.

Theory of operation. A *subject* is whoever something happens to, written as ``kind/name``: ``slice/iris-g0-a2b``,
``task/job-x/3``, ``controller``. An *event* says that something happened to a subject at one moment, and why. A *lane*
is what a picture has a row for: a subject that is in one *state* at a time, and a *span* is the time it stays there.
Lanes hang below each other as people think of them: group, slice, worker; job, task.

Times are integer ns of virtual time. Everything here is a value; :mod:`iriscw_sims.timeline.recorder` makes it.
"""

from __future__ import annotations

import enum

import attrs

CONTROLLER = "controller"
DISK = "disk"
WORLD = "world"
FAULT = "fault"
INVARIANT = "invariant"
"""Subjects, or their first parts, that are no name of the fleet's or of a job's."""

WAITING = "waiting"
"""The state of a task that has no attempt."""


class Level(enum.IntEnum):
    """How much an event matters. The least goes first where there is no room for all."""

    DETAIL = 0
    """The same state, in other words."""
    CHANGE = 1
    """Something is in another state, or a fault came true."""
    LANDMARK = 2
    """What everything else is read by: the controller, the end of faults, a broken invariant."""


class Tone(enum.StrEnum):
    """What an event or a span means to somebody who looks for trouble."""

    PLAIN = "plain"
    GOOD = "good"
    BAD = "bad"
    """It did not end well, though nobody is to blame for it: tasks fail, slices are lost."""
    FAULT = "fault"
    """The simulated world did this on purpose."""
    BROKEN = "broken"
    """An invariant does not hold: a bug."""


@attrs.frozen
class Event:
    """Something happened."""

    at: int
    subject: str
    what: str
    why: str = ""
    level: Level = Level.CHANGE
    tone: Tone = Tone.PLAIN
    about: tuple[str, ...] = ()
    """Others that it concerns: the worker of an attempt."""


@attrs.frozen
class Span:
    """A lane's subject was in a state from ``began`` to ``ended``."""

    lane: str
    state: str
    began: int
    ended: int
    why: str
    """Why it began."""
    end_why: str
    """Why it ended; never empty."""
    label: str = ""
    """Which one it was, where a lane has one after the other: the attempt of a task."""
    outcome: str = ""
    """How what ended with it ended, in its own word; empty if something followed."""
    tone: Tone = Tone.PLAIN
    cut: bool = False
    """Whether the run ended before it did."""


@attrs.frozen
class Lane:
    """A row. ``above`` is the lane it hangs below, or empty."""

    subject: str
    above: str = ""
    title: str = ""
    """For people, where the subject's name says little."""


@attrs.frozen
class Point:
    """How many slices a group had at a moment."""

    at: int
    slices: int
    ready: int
    wanted: int


@attrs.frozen
class Timeline:
    """A whole run."""

    ended: int
    """The virtual time at the end, ns."""
    healed: int | None
    """When all faults were ended; None if it did not come to that."""
    events: tuple[Event, ...]
    """In the order of their times."""
    lanes: tuple[Lane, ...]
    """A lane stands behind the one above it."""
    spans: tuple[Span, ...]
    """In the order in which they ended."""
    points: tuple[tuple[str, tuple[Point, ...]], ...]
    """The figures of each group's lane."""
    fired: tuple[tuple[str, int], ...]
    """How often each fault came true; complete, whatever was thinned."""
    violations: tuple[str, ...]
    thinned: int = 0
    """Events, spans and points that were let go for want of room, the oldest and least first."""
    thinned_until: int = 0
    """Before this time some are missing, ns."""


def kind_of(subject: str) -> str:
    """Return the first part of a subject: ``slice`` of ``slice/iris-g0-a2b``."""
    return subject.partition("/")[0]


def name_of(subject: str) -> str:
    """Return all but the first part of a subject; the subject itself if it has one part."""
    return subject.partition("/")[2] or subject
