"""The facts that a job keeps of attempts that are suspended and resumed.

Each is of one attempt, which its ``uid`` names. What they come to is in :mod:`iriscw.jobs.suspension.moves`.
"""

from __future__ import annotations

from iriscw.jobs.suspension.model import Labels, Stage
from iriscw.journal.records import record, upcaster
from iriscw.runtime.vocabulary import message


@record("jobs.suspension_asked", version=1)
@message
class SuspensionAsked:
    """Somebody was promised that the attempt will be suspended, or what keeps it from that."""

    index: int
    uid: str
    key: str
    tier: str
    force: bool
    labels: Labels
    wall_ns: int
    store: bool = False
    yields: bool = False
    """Nobody was promised anything: it gives way."""


@record("jobs.attempt_freezing", version=1)
@message
class AttemptFreezing:
    """Its worker has said that it may be frozen. From here on somebody may freeze it.

    ``folder`` and what follows are what whoever takes it over has to know, as far as it was told by now: its worker may
    never say more.
    """

    index: int
    uid: str
    folder: str
    wall_ns: int
    ports: tuple[tuple[str, int], ...] = ()
    process_started_wall_ns: int = 0
    host: str = ""


@record("jobs.attempt_vacated", version=1)
@message
class AttemptVacated:
    """Its worker has said that nothing of it runs, and all that whoever takes it over has to know."""

    index: int
    uid: str
    folder: str
    ports: tuple[tuple[str, int], ...]
    process_started_wall_ns: int
    log_offset: int
    wall_ns: int
    host: str = ""


@record("jobs.attempt_frozen", version=1)
@message
class AttemptFrozen:
    """It is a checkpoint on ``node``."""

    index: int
    uid: str
    checkpoint: str
    node: str
    wall_ns: int


@record("jobs.attempt_deserted", version=1)
@message
class AttemptDeserted:
    """Its worker is gone for good while nobody has said yet what became of its freeze."""

    index: int
    uid: str
    reason: str
    wall_ns: int


@record("jobs.attempt_suspended", version=1)
@message
class AttemptSuspended:
    """It is a checkpoint, and its worker is done with it: it has no worker, and takes no room."""

    index: int
    uid: str
    wall_ns: int


@record("jobs.attempt_stored", version=1)
@message
class AttemptStored:
    """Its checkpoint lies in this repository, its files with it, and nowhere else: no machine is needed for it."""

    index: int
    uid: str
    repository: str
    wall_ns: int


@record("jobs.store_failed", version=1)
@message
class StoreFailed:
    """Its checkpoint did not come to the repository: it is suspended where it was frozen."""

    index: int
    uid: str
    reason: str
    wall_ns: int


@record("jobs.store_begun", version=1)
@message
class StoreBegun:
    """Its checkpoint, which did not come to the repository before, is on its way there once more."""

    index: int
    uid: str
    wall_ns: int


@record("jobs.suspension_undone", version=1)
@message
class SuspensionUndone:
    """It runs on. ``drop``: what its freeze may have made is to be removed."""

    index: int
    uid: str
    reason: str
    drop: bool
    wall_ns: int


@record("jobs.resumption_wanted", version=1)
@message
class ResumptionWanted:
    """Somebody was promised that it will go on; or, not ``wanted``, that it will not."""

    index: int
    uid: str
    key: str
    wanted: bool
    wall_ns: int


@record("jobs.attempt_resuming", version=2)
@message
class AttemptResuming:
    """A worker was chosen that may have it: the only one from here on. ``grant`` is the grant that it gets.

    ``node``: the machine that this worker is on; empty: the one that has the checkpoint.
    """

    index: int
    uid: str
    worker_id: str
    incarnation: str
    grant: str
    wall_ns: int
    node: str = ""


@upcaster("jobs.attempt_resuming", from_version=1)
def name_no_node(fields: dict[str, object]) -> dict[str, object]:
    """Version 1 knew workers of the machine that has the checkpoint only."""
    return {**fields, "node": ""}


@record("jobs.attempt_thawing", version=1)
@message
class AttemptThawing:
    """Its worker has put the grant on offer. From here on somebody may thaw it.

    ``gpus``: pairs of UUIDs, of the GPUs that it had and the others that it has instead.
    """

    index: int
    uid: str
    wall_ns: int
    gpus: tuple[tuple[str, str], ...] = ()


@record("jobs.thaw_undone", version=1)
@message
class ThawUndone:
    """It was not brought back by this try."""

    index: int
    uid: str
    reason: str
    wall_ns: int


@record("jobs.thaw_refused", version=1)
@message
class ThawRefused:
    """Its worker's machine cannot bring it back, for ``reason``: its grant there is to be taken back."""

    index: int
    uid: str
    reason: str
    wall_ns: int


@record("jobs.attempt_unplaced", version=1)
@message
class AttemptUnplaced:
    """Its worker has said that its grant was taken back before anybody took it: it has no worker, as before.

    ``node`` is not to be tried before ``until_wall_ns``. ``reason``: why, where its worker could not let it go on; else
    that is known already. ``lost``: the worker is gone instead; it may have lived there, and that life is over.
    """

    index: int
    uid: str
    node: str
    until_wall_ns: int
    wall_ns: int
    reason: str = ""
    lost: bool = False


@record("jobs.attempt_resumed", version=1)
@message
class AttemptResumed:
    """Its worker says that it runs. What it was suspended counts against no timeout; its checkpoint has no use."""

    index: int
    uid: str
    wall_ns: int


@record("jobs.attempt_given_up", version=1)
@message
class AttemptGivenUp:
    """It can neither be suspended nor go on: it is being stopped for that, and lost."""

    index: int
    uid: str
    reason: str
    wall_ns: int


@record("jobs.attempt_yields", version=1)
@message
class AttemptYields:
    """It has to give way to a task of a higher band, of the job that ``to`` names.

    ``kill``: it is being stopped for that; else it is, or will be, suspended.
    """

    index: int
    uid: str
    to: str
    kill: bool
    wall_ns: int


@record("jobs.checkpoint_dropped", version=1)
@message
class CheckpointDropped:
    """What the suspension ``key`` had left behind is removed; or will not be, and ``fault`` says why."""

    key: str
    fault: str = ""


# Snapshots


@record("jobs.suspension_kept", version=1)
@message
class SuspensionKept:
    """What is known of the suspensions of the live attempt of a task, as a snapshot holds it: behind its task's."""

    index: int
    number: int
    stage: Stage
    since_wall_ns: int
    key: str
    tier: str
    force: bool
    labels: Labels
    folder: str
    vacated: bool
    ports: tuple[tuple[str, int], ...]
    process_started_wall_ns: int
    log_offset: int
    checkpoint: str
    node: str
    reason: str
    wanted: bool
    resume_key: str
    grant: str
    thawing: bool
    tries: int
    paused_ns: int
    suspended_wall_ns: int
    given_up: str
    away: bool
    gpus: tuple[tuple[str, str], ...] = ()
    host: str = ""
    returning: bool = False
    returns: int = 0
    doubts: tuple[tuple[str, int, int], ...] = ()
    store: bool = False
    storing: bool = False
    repository: str = ""
    at: str = ""
    stores_failed: int = 0
    back: int = 0
    yields_to: str = ""
    stopped_to_yield: bool = False
    yielding: bool = False
    life_lost: bool = False


@record("jobs.checkpoint_due", version=1)
@message
class CheckpointDue:
    """A checkpoint that is to be removed, as a snapshot holds it."""

    key: str
    checkpoint: str
    node: str
    returns: int = 0
    repository: str = ""
    tried: tuple[str, ...] = ()
    stores_failed: int = 0
