"""What the fleet's actors accept, and what they tell those above. Both directions stand here (the lower
feature owns its protocols).

Resync. The scheduler and the fleet restart independently. A new incarnation of the scheduler tells ``/fleet``
:class:`SchedulerStarted`, and is re-told each :class:`WorkerReady`. A new incarnation of a fleet actor
re-tells
:class:`WorkerReady` for what it finds; the scheduler treats a repeated one as new knowledge on the same
worker, and answers with :class:`ActivityChanged` if attempts live there. A worker whose registration was
forgotten is asked to dial again (:class:`DialAgain`) at its next sign of life.
"""

from __future__ import annotations

from iriscw.cloud.model import Attributes, Capacity, Constraint
from iriscw.fleet.model import SLICE_ID, SliceRow, SliceState, Trouble, WorkerInfo
from iriscw.runtime.vocabulary import message

MAX_DEMAND_ENTRIES = 1_000
"""Entries of one :class:`DemandChanged` that are routed: the scheduler merges tasks of one shape into one
entry, and a thousand shapes at once are more than any cluster has shown. Those beyond wait, and are told
so."""


# jobs -> fleet, to `/fleet`


@message
class DemandEntry:
    """Tasks of one shape that cannot be placed now.

    ``count`` is the number of tasks, a multiple of ``gang_size``; a gang's tasks go together to workers that share the
    attribute ``gang_by``. ``band`` is the priority band: lower ones are routed first.
    """

    demand_id: str
    demand: Capacity
    constraints: tuple[Constraint, ...]
    count: int
    gang_size: int
    band: int
    gang_by: str = SLICE_ID


@message
class DemandChanged:
    """All that cannot be placed now: complete each time, so only the latest matters (conflate it)."""

    entries: tuple[DemandEntry, ...]


@message
class ActivityChanged:
    """How many attempts live on a worker now. Told on every change."""

    worker_id: str
    incarnation: str
    live_attempts: int


@message
class Cordoned:
    """The answer to :class:`Cordon`: nothing more will be placed there, and so many attempts still live."""

    slice_id: str
    live_attempts: int
    round: int


@message
class SchedulerStarted:
    """The scheduler is a new incarnation and knows no worker."""


@message
class WorkersMissed:
    """Attempts are recorded on these workers, and nobody has told of them: ids with incarnations.

    Answered with :class:`SliceGone` for each slice that is certainly gone, with a fenced :class:`WorkerLost` for each
    other worker that is, with :class:`WorkerReady` for each that is registered, closed (:class:`Cordon`) while its
    slice is incomplete; else with nothing: ask again. What was lost while the scheduler or a job could not hear it is
    told of in this way only.
    """

    places: tuple[tuple[str, str], ...]


# fleet -> jobs, to the scheduler


@message
class WorkerReady:
    """Work may be placed on this worker: its slice is ready as a whole (INV-F6).

    Told again for a worker known already, it replaces what was known and lifts any cordon of its slice.
    """

    info: WorkerInfo


@message
class WorkerLost:
    """Place nothing more on this incarnation.

    With ``fenced`` its processes are known to be gone, and its tasks may start elsewhere. A loss that is
    not fenced yet is told again once it is. Told for incarnations that were never ready, too: ignore the
    unknown.
    """

    worker_id: str
    incarnation: str
    reason: str
    fenced: bool


@message
class SliceGone:
    """Nothing of a slice is left, machines included: whatever ran on any worker of it is fenced.

    Told once a slice is dropped, because an actor of the fleet that was restarted may not know the workers that its
    predecessor announced, and so never tells their loss one by one. Told again in answer to :class:`WorkersMissed`.
    """

    slice_id: str


@message
class Cordon:
    """Place nothing on these workers, and answer with :class:`Cordoned` to ``/fleet`` in the same round."""

    slice_id: str
    worker_ids: tuple[str, ...]
    round: int


@message
class Uncordon:
    """Work may be placed there again. Undoes cordons up to ``round``; later ones stay."""

    slice_id: str
    round: int


@message
class DemandRouted:
    """What the fleet does about each demand: ``(demand_id, sentence)``, complete each time (INV-J7).

    ``never`` are those that no group of this configuration can ever run.
    """

    reasons: tuple[tuple[str, str], ...]
    never: tuple[str, ...] = ()


# doors -> fleet, to the worker's path (:func:`iriscw.fleet.model.worker_path`)


@message
class WorkerDialled:
    """A worker asks to be registered.

    Answered with :class:`Accepted`, or refused with :class:`iriscw.fleet.model.WorkerRefused`. Ask it again
    whenever the worker connects anew.
    """

    worker_id: str
    incarnation: str
    capacity: Capacity
    attributes: Attributes
    address: str
    node: str = ""
    """The machine that it is on, as that machine's agent names it; empty: not said."""


@message
class Accepted:
    """The worker is registered as this."""

    info: WorkerInfo


@message
class WorkerSeen:
    """Contact with a worker: anything it sent. Drives liveness; conflate it."""

    worker_id: str
    incarnation: str


@message
class WorkerHungUp:
    """The worker's stream ended. It may dial again until its liveness runs out."""

    worker_id: str
    incarnation: str


@message
class WorkerExamined:
    """Somebody looked into the worker's pod, which runs without having registered, and found this."""

    worker_id: str
    incarnation: str
    finding: str


# fleet -> doors, to the worker's link


@message
class DialAgain:
    """The fleet does not know this worker (any more): ask :class:`WorkerDialled` for it again."""

    worker_id: str
    incarnation: str


# group -> whoever listens


@message
class PolicyFailed:
    """A group's policy raised, or gave no whole number: the default one decides. Published at most once a minute."""

    group: str
    error: str


@message
class RoutingFailed:
    """The routing policy raised, or gave what is no group of its view: the default one decides on that demand.

    Published by ``/fleet``, at most once a minute.
    """

    error: str


@message
class SliceChanged:
    """A slice entered another state, or another trouble. Published once for each, unless one follows another at once:
    then the last one is, with what was published before it.
    """

    row: SliceRow
    pool_uid: str
    """The pool that it has, or had last; empty: it never had one."""
    was: SliceState | None
    """What was published before; None: nothing, because the slice is new, or whoever looks after it began anew."""
    trouble_was: Trouble
    at: int
    """Wall-clock ns."""


# people -> fleet, to `/fleet`


@message
class DescribeFleet:
    """Answered with :class:`iriscw.fleet.model.FleetDescription`, from memory."""


@message
class ExplainDemand:
    """Answered with a tuple of :class:`iriscw.fleet.model.GroupDemand`: of these groups, as far as they are known."""

    groups: tuple[str, ...]


@message
class ReopenGroup:
    """Forget why a group is closed (invalid specification, quota, failures) and try again.

    Answered with None, or refused with :class:`iriscw.fleet.model.NoSuchGroup`.
    """

    group: str
