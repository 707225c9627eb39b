"""What a job tells itself and publishes of the checkpoints that it has made of attempts that run on."""

from __future__ import annotations

from iriscw.runtime.vocabulary import message


@message
class CopiesView:
    """What is told of the checkpoints that are made of an attempt while it runs.

    Args:
        kept: of each that is kept its id, its node and when it was taken (ns since 1970), the newest first.
        began_wall_ns: when the latest was begun.
        under_way: whether that is being made.
        failure: why it was not made; empty if it was, or is being made.
        times: how often the attempt went on from one.
        back_to: from which it did last.
        back_wall_ns: when the life before that ended.
    """

    kept: tuple[tuple[str, str, int], ...]
    began_wall_ns: int
    under_way: bool
    failure: str
    times: int
    back_to: str
    back_wall_ns: int


@message
class CheckpointMade:
    """Published: a checkpoint of an attempt that runs on is complete."""

    job_id: str
    index: int
    uid: str
    checkpoint: str
    node: str
    lasted_ns: int
    wall_ns: int


@message
class CheckpointMissed:
    """Published: a checkpoint of an attempt that runs on was not made. ``again``: nor was the one before."""

    job_id: str
    index: int
    uid: str
    reason: str
    again: bool
    wall_ns: int


@message
class PassedOver:
    """Published: an attempt could not go on from a checkpoint that was kept of it, and that goes."""

    job_id: str
    index: int
    uid: str
    checkpoint: str
    reason: str
    wall_ns: int


@message
class GoesBack:
    """Published: an attempt that ended, and would be tried again, goes back to a checkpoint."""

    job_id: str
    index: int
    uid: str
    checkpoint: str
    reason: str
    wall_ns: int


# To oneself


@message
class CopyDue:
    """It is time for the next checkpoint of an attempt."""

    index: int
    uid: str


@message
class CopyOverdue:
    """A checkpoint takes too long."""

    index: int
    uid: str
    number: int


@message
class BackOverdue:
    """An attempt that goes back to a checkpoint has waited too long for a worker. ``number``: of its move."""

    index: int
    uid: str
    number: int
