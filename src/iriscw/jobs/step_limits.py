"""How large a step is: no decision does more than this at a time (INV-R10).

What a user asks for may be as large as a job of 100,000 tasks; what one decision records, tells or looks at is not.
So the disk never gets more at once than a bound, whoever shares the controller with a large job waits for a step of
it and not for the job, and a crash tears work between two steps only, where each actor's state says how it goes on.

=====================  ============================================================================================
what is large          how it is cut
=====================  ============================================================================================
placing                passes of at most ``scheduler.CHUNK``; a job is told in parts of ``STEP_ATTEMPTS``
starting a gang        its room is taken in one decision, since it has all of it or none; the parts of what its job is
                       told are recorded one by one, and nothing is ordered before the last one is: see ``gangs``
what workers say       a link passes on ``STEP_ATTEMPTS`` observations, or ``STEP_BYTES``, at a time
a lost worker          its attempts end ``STEP_ATTEMPTS`` at a time; what is left is told again to oneself
a lost slice           its workers are taken out ``STEP_WORKERS`` at a time
stopping, timeouts     ``STEP_ATTEMPTS`` stops at a time, after the verdict is recorded
recovery               reports, links and logs: ``STEP_ATTEMPTS`` at a time; briefings of links: ``STEP_WORKERS``
=====================  ============================================================================================

A step goes on by a message to itself (``Continue``), which is never lost to a full mailbox and lets others have their
turn. It is lost with the incarnation, and the next one takes all of it up again; but of what is left of a lost worker
nobody would tell again, so that is an ordinary message, which outlives an incarnation. Such a message holds what there
was to do when the work began, and where it stands; each step looks at the ledger as it is then, and leaves out what
has settled itself.

Two things take time in proportion to a job and are one decision all the same, because they record and tell nothing
for each task: taking a gang's room, and reading which tasks wait. A snapshot is the third, and not bounded here: it is
one entry of the journal, which has no parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from iriscw.jobs.model import Observation

_T = TypeVar("_T")

STEP_ATTEMPTS = 128
"""Attempts that one decision records something of: about 2 ms, and 44 KB of records without faults. Kubernetes' Job
creates 500 pods in a sync at most, its ReplicaSet as many."""

STEP_BYTES = 16 * 1024
"""Bytes of faults and reasons that one step records, unless a single one has more."""

STEP_WORKERS = 256
"""Workers that one decision of the scheduler deals with: each is a message or two, and one for each job on it."""


def parts_of(items: tuple[_T, ...], size: int = STEP_ATTEMPTS) -> Iterator[tuple[_T, ...]]:
    """Cut into parts of at most ``size``; nothing gives no part."""
    return (items[first : first + size] for first in range(0, len(items), size))


def steps_of(observations: Iterable[Observation]) -> Iterator[tuple[Observation, ...]]:
    """Cut what a worker says into what one decision may record, in order."""
    part: list[Observation] = []
    size_bytes = 0
    for seen in observations:
        more_bytes = 0 if seen.end is None else _bytes_of(seen.details + seen.reason)
        if part and (len(part) >= STEP_ATTEMPTS or size_bytes + more_bytes > STEP_BYTES):
            yield tuple(part)
            part, size_bytes = [], 0
        part.append(seen)
        size_bytes += more_bytes
    if part:
        yield tuple(part)


def _bytes_of(text: str) -> int:
    """Return what a text takes in a record, at most: a character that is not ASCII is written as six or twelve."""
    return 2 * len(text) if text.isascii() else 12 * len(text)
