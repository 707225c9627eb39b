"""What the fleet's own actors tell each other; nobody else sends or receives these.

Downwards go observations of the cloud and orders, upwards go reports. A report is the whole truth about its
sender, so reports conflate, and whoever starts anew asks for a briefing instead of remembering
(``GroupStarted``, ``SliceStarted``, ``PodStarted``).
"""

from __future__ import annotations

from iriscw.cloud.model import Attributes, NodePool, Pod
from iriscw.fleet.model import Availability, GroupRow, PodState, SliceRow, WorkerInfo
from iriscw.runtime.vocabulary import message

# /fleet -> group


@message
class PoolsListed:
    """All pools of the group, at one moment."""

    pools: tuple[NodePool, ...]


@message
class PodsListed:
    """All pods of the group, at one moment."""

    pods: tuple[Pod, ...]


@message
class SlicesWanted:
    """So many slices, those on their way included, have demand routed to them. Conflated.

    Of these, ``spread`` are for gangs over several slices: for such a one it does not matter whether a slice is on its
    way or ready and idle. So that stays true while slices become ready. Idle slices on which none of them could run, as
    their workers are, are named in ``unfit``.

    Beside these, ``renew`` slices could run what finds no room, in the place of slices that are on their way out and of
    the idle ones in ``useless``, which nothing that waits could use.
    """

    count: int
    spread: int = 0
    unfit: tuple[str, ...] = ()
    renew: int = 0
    useless: tuple[str, ...] = ()


# group -> /fleet


@message
class GroupStarted:
    """A group began and knows nothing of the cloud: list it again."""

    group: str


@message
class GroupReported:
    """How a group stands. Conflated."""

    row: GroupRow
    availability: Availability
    absorbing: int
    """Slices that will soon take demand."""
    waiting: int
    """Slices that wait in the cloud's queue for machines."""
    room: int
    """Slices that could still be asked for."""
    expected_at: int | None = None
    """When the first slice on its way should be ready, in wall-clock ns."""
    idle: int = 0
    """Slices that are ready, and on which nothing runs."""
    going: int = 0
    """Slices on their way out, or failed, whose places are not free yet."""
    fresh: int = 0
    """Of the absorbing ones, those that are ready, since so recently that the scheduler may not have filled them."""
    renewing: bool = False
    """Whether an idle slice went so that another could come, and none has since."""


@message
class SliceRowChanged:
    """What users see of a slice; ``row`` is None once it is gone. Conflated by slice."""

    slice_id: str
    row: SliceRow | None
    workers: tuple[Attributes, ...] = ()
    """What each worker of a slice that is ready is like."""


# group -> slice


@message
class SliceBriefed:
    """All that is known of a slice: its promise, and what was seen of it."""

    requested_at: int
    pool_uid: str
    doomed: str
    """Why it goes, if that is written down already; else empty."""
    pool: NodePool | None
    pods: tuple[Pod, ...]
    boot_estimate: int
    slow_after: int


@message
class Dismiss:
    """It is written down that the slice goes."""

    reason: str


@message
class PoolSeen:
    """The slice's pool appeared or changed."""

    pool: NodePool


@message
class PoolVanished:
    """The slice's pool of this uid is gone."""

    uid: str


# slice -> group


@message
class SliceStarted:
    """A slice actor began and knows nothing: answer with :class:`SliceBriefed`."""

    slice_id: str


@message
class SliceReported:
    """How a slice stands: complete, conflated. Times are monotonic ns."""

    row: SliceRow
    pool_uid: str
    idle_since: int | None
    ready_since: int | None
    used: bool
    """Whether it ever ran something."""
    stuck: bool
    bare: bool
    """Whether no worker was ever started on it: then nothing can run there."""
    workers: tuple[Attributes, ...] = ()
    """What each worker of a slice that is ready is like."""


@message
class CordonAnswered:
    """The scheduler's answer to a cordon, with what the slice knew when it came by. Times are monotonic ns."""

    slice_id: str
    live_attempts: int
    round: int
    idle_since: int | None
    at: int


# group -> slice -> pod


@message
class PodSeen:
    """A pod of the slice appeared or changed."""

    pod: Pod


@message
class PodVanished:
    """A pod of the slice is gone, with all its processes."""

    pod: Pod


# slice -> pod


@message
class PodBriefed:
    """All pods that were seen at this place."""

    pods: tuple[Pod, ...]


@message
class RemovePod:
    """End the pod; no other shall follow."""


# pod -> slice


@message
class PodStarted:
    """A pod actor began and knows nothing: answer with :class:`PodBriefed`."""

    worker_id: str


@message
class PodReported:
    """How a worker's place stands: complete, conflated."""

    worker_id: str
    state: PodState
    info: WorkerInfo | None
    reason: str
    failures: int
    """Pods that failed here in a row."""
    refused: bool = False
    """Whether the credentials do not allow what its pod needs: the reason says so."""


# timers


@message
class Evaluate:
    """Look whether something should be done now."""


@message
class Relist:
    """Open the watches anew, so that everything is listed."""


@message
class Takeover:
    """No request of an earlier controller can land any more."""


@message
class Overdue:
    """What was begun under ``what`` should have been over by now."""

    what: str


@message
class TryAgain:
    """Do again what failed under ``what``."""

    what: str


@message
class CheckStart:
    """Look whether the pod still is in the way of its own start."""


@message
class CheckLiveness:
    """Look when the worker was last heard of."""
