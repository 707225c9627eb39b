"""What jobs ask of those who freeze and thaw: effects, and how they end. The port is in :mod:`iriscw.jobs.ports`."""

from __future__ import annotations

import enum

from iriscw.jobs.suspension.model import Labels
from iriscw.runtime.vocabulary import message


class Frozen(enum.Enum):
    """How a freeze ended."""

    FROZEN = "frozen"
    """The attempt is a checkpoint, and nothing of it runs."""
    UNDONE = "undone"
    """It runs on as if nothing had been."""
    UNKNOWN = "unknown"
    """Nobody can say: the order is lost, or its agent was replaced."""


class Thawed(enum.Enum):
    """How a thaw ended."""

    THAWED = "thawed"
    """The attempt is back."""
    UNDONE = "undone"
    """Nothing of it runs, as before."""
    REFUSED = "refused"
    """Nothing of it runs, and it cannot be brought back on this machine as that is: something else is needed there."""
    DAMAGED = "damaged"
    """Nothing of it runs, and no machine can bring it back: its checkpoint is damaged, or is not there any more."""
    UNKNOWN = "unknown"
    """Nobody can say."""


@message
class FreezeAttempt:
    """Freeze the processes of an attempt, guarded by its folder, with its connections given up.

    Args:
        key: names this suspension, for ever. Carrying out the same key again is following the same order.
        uid: the attempt.
        job_id: whose it is.
        index: of its task.
        worker_id: the worker that has it.
        incarnation: of that worker.
        tier: where the checkpoint goes; empty: to the agent's default.
        force: freeze also if its quiescing fails.
        labels: of the user, for the checkpoint.
        gpus: that it has, by UUID, for the checkpoint's labels.
        carries_folder: its folder becomes a part of the checkpoint, because that is to go to the repository: one that
            has none is not frozen.
        leave_running: it runs on, and its folder is carried, to no repository.
    """

    key: str
    uid: str
    job_id: str
    index: int
    worker_id: str
    incarnation: str
    tier: str
    force: bool
    labels: Labels
    gpus: tuple[str, ...] = ()
    carries_folder: bool = False
    leave_running: bool = False


@message
class FrozenAttempt:
    """What became of a freeze. ``checkpoint`` and ``node`` (its machine) of one that is FROZEN; ``reason`` else."""

    outcome: Frozen
    checkpoint: str = ""
    node: str = ""
    reason: str = ""


@message
class StoreCheckpoint:
    """Move the checkpoint of a suspended attempt from ``node`` to the repository of its agent, and leave none there."""

    key: str
    uid: str
    checkpoint: str
    node: str


@message
class CheckpointStored:
    """What became of that: the URL of the repository that has it; empty: it is where it was, for ``reason``."""

    repository: str = ""
    reason: str = ""


@message
class ThawAttempt:
    """Bring a suspended attempt back, on ``node``: its agent has the checkpoint, or the repository that has it.

    ``key`` names this try.

    ``gpus`` has a pair for each GPU of which the content comes to another one: by UUID, from and to. ``repository`` is
    the one that has it, if one has.
    """

    key: str
    uid: str
    checkpoint: str
    node: str
    gpus: tuple[tuple[str, str], ...] = ()
    repository: str = ""


@message
class ThawedAttempt:
    """What became of a thaw; ``reason`` unless it is THAWED."""

    outcome: Thawed
    reason: str = ""


@message
class DropCheckpoint:
    """Remove what the suspension ``key`` left behind.

    ``checkpoint`` and ``node`` are empty if the job never learned what became of it: then what its order has made, or
    is making, is what has to go. The order of that key is ended first if it has not.

    ``returns``: how many machines have said that they do not take it; their thaws are over. ``repository`` has it, if
    that is named, and the machines ``tried``, where it may have been brought, may have copies. ``stores_failed``: how
    often it did not come to the repository; those moves are over.
    """

    key: str
    checkpoint: str = ""
    node: str = ""
    returns: int = 0
    repository: str = ""
    tried: tuple[str, ...] = ()
    stores_failed: int = 0
