"""The facts that a job keeps of the checkpoints that are made of its attempts while they run.

Each is of one attempt, which its ``uid`` names. What they come to is in :mod:`iriscw.jobs.keeping.copies`.
"""

from __future__ import annotations

import attrs

from iriscw.jobs.model import AttemptEnd
from iriscw.journal.records import record
from iriscw.runtime.vocabulary import message


@record("jobs.copy_began", version=1)
@message
class CopyBegan:
    """Somebody may be making a checkpoint of the attempt, which runs on: the next in number.

    What follows ``wall_ns`` is what whoever brings it back has to know: its folder and where it was reached, as its
    worker said, when its process was started, and how long it had been suspended by then.
    """

    index: int
    uid: str
    wall_ns: int
    folder: str
    ports: tuple[tuple[str, int], ...]
    host: str
    process_started_wall_ns: int
    paused_ns: int


@record("jobs.copy_made", version=1)
@message
class CopyMade:
    """The checkpoint that was begun last is complete, on ``node``. What the job keeps no more is to be removed."""

    index: int
    uid: str
    checkpoint: str
    node: str
    wall_ns: int


@record("jobs.copy_failed", version=1)
@message
class CopyFailed:
    """It was not made. ``drop``: what its order may have made is to be removed."""

    index: int
    uid: str
    reason: str
    drop: bool
    wall_ns: int


@record("jobs.checkpoint_passed_over", version=1)
@message
class CheckpointPassedOver:
    """The attempt cannot go on from this one: it is to be removed."""

    index: int
    uid: str
    number: int
    reason: str
    wall_ns: int


@record("jobs.went_back", version=1)
@message
class WentBack:
    """The attempt ended as ``end`` says, would be tried again, and goes back to a checkpoint instead.

    It has no worker from here on, takes no room, and waits for a worker that may bring it back.

    Args:
        index: of its task.
        uid: the attempt.
        number: of the checkpoint.
        checkpoint: its id.
        node: the machine that has it.
        end: how the life ended that is over.
        failure: whether that counts as a failure.
        preemption: whether it counts as lost to the infrastructure.
        log_offset: the bytes of its log; what it writes from now on follows these.
        wall_ns: when.
    """

    index: int
    uid: str
    number: int
    checkpoint: str
    node: str
    end: AttemptEnd
    failure: bool
    preemption: bool
    log_offset: int
    wall_ns: int


# Snapshots


@attrs.frozen
class CopyKept:
    """A checkpoint that is kept.

    Args:
        number: which copy of its attempt it is.
        checkpoint: its id.
        node: the machine that has it.
        taken_wall_ns: when it was begun.
        folder: of the attempt then.
        ports: of the attempt then.
        host: where it was reached then.
        process_started_wall_ns: when its process was started.
        paused_ns: how long it had been suspended by then.
    """

    number: int
    checkpoint: str
    node: str
    taken_wall_ns: int
    folder: str
    ports: tuple[tuple[str, int], ...] = ()
    host: str = ""
    process_started_wall_ns: int = 0
    paused_ns: int = 0


@record("jobs.copies_kept", version=1)
@message
class CopiesKept:
    """What is known of the copies of the live attempt of a task, as a snapshot holds it: behind its task's."""

    index: int
    number: int
    under_way: bool
    began_wall_ns: int
    paused_ns: int
    folder: str
    ports: tuple[tuple[str, int], ...]
    host: str
    process_started_wall_ns: int
    failure: str
    kept: tuple[CopyKept, ...]
    returns: tuple[WentBack, ...]
    times: int
