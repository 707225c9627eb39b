"""What the actors of jobs accept, and what they tell each other.

Paths: ``/jobs`` (registry), ``/jobs/scheduler``, ``/jobs/links`` with ``/jobs/links/<worker_id>``,
``/jobs/<job_id>``.

The life of a task, in messages::

    door --SubmitJob--> /jobs --JobIntroduced--> scheduler --Placed--> job --RunAttempts--> link ==Orders==> worker
    worker ==Observed==> link --AttemptsObserved--> job --AttemptsOver--> scheduler, --ReleaseAttempts--> link
    job --JobDone--> /jobs

Nothing here is lost for good: every plain-state actor (scheduler, links) asks for all it needs when it starts.

* A new scheduler tells ``/jobs`` :class:`SchedulerAwake` and is told :class:`JobsKnown`; it asks each of these jobs
  with :class:`ReportJob` and opens for placement when all have answered with :class:`JobReport`. The question is a
  barrier: whatever the scheduler had told the job before has been decided on when the report is made.
* A new link tells the scheduler :class:`LinkStarted`; the scheduler tells it :class:`LinkExpects` whose jobs have
  attempts on its worker and asks these with :class:`LinkNeedsDesired`; each answers the link with :class:`DesiredOn`.
* A new job that has records tells the scheduler :class:`JobAwake` and is asked for a report.
"""

from __future__ import annotations

from typing import Any

from iriscw.cloud.model import Capacity
from iriscw.jobs.keeping.messages import CopiesView
from iriscw.jobs.model import Attempt, Band, Ending, Existing, JobSpec, JobState, Observation, RunOrder, TaskState
from iriscw.jobs.suspension.messages import SuspendedAttempt, SuspensionView
from iriscw.runtime.vocabulary import ActorPath, message

MAX_PAGE = 1000
"""Rows of one page of a listing. Kubernetes clients page by 500."""

# Doors -> /jobs, asked


@message
class SubmitJob:
    """Have a job run. Answered with :class:`Submitted` once the job is promised.

    ``key`` makes the call repeatable: the same key and specification give the same job. Refused with ``JobExists``,
    ``KeyReused``, ``TooManyJobs``, ``TooManyTasks`` or ``InvalidArgument``.
    """

    spec: JobSpec
    key: str
    existing: Existing = Existing.ERROR


@message
class Submitted:
    """The job that a submission gave. ``fresh`` is False if it was there before (same key, or ``existing="keep"``)."""

    job_id: str
    uid: str
    fresh: bool


@message
class TerminateJob:
    """Stop a job. Asked of ``/jobs``, which answers None (also for a job that has ended) or refuses with ``NoSuchJob``.

    ``/jobs`` tells the job itself the same.
    """

    job_id: str
    reason: str = "terminated by its user"


@message
class ListJobs:
    """Give a page of jobs, latest first, those after ``after`` (a job id; empty: from the start)."""

    after: str = ""
    limit: int = 100
    states: tuple[JobState, ...] = ()
    name: str = ""
    namespace: str = ""


@message
class JobTally:
    """What a listing shows of a job's tasks.

    Args:
        counts: each state that occurs, in the order of the states.
        failures: failed attempts.
        preemptions: attempts lost to the infrastructure.
        started_wall_ns: when the user's code was first known to run; 0 if it never did.
        reason: why the job is not further, as far as the job itself knows; empty if there is nothing to say.
        suspended: tasks that are on no worker, as their state lies in a checkpoint.
    """

    counts: tuple[tuple[TaskState, int], ...] = ()
    failures: int = 0
    preemptions: int = 0
    started_wall_ns: int = 0
    reason: str = ""
    suspended: int = 0


@message
class JobRow:
    """A job in a listing. What its tasks are up to is as the job told it last, a second ago at most."""

    job_id: str
    uid: str
    name: str
    state: JobState
    reason: str
    replicas: int
    submitted_wall_ns: int
    ended_wall_ns: int
    tally: JobTally
    demand: Capacity = Capacity()
    """Of each task."""
    band: Band = Band.INTERACTIVE
    parent_job_id: str = ""
    namespace: str = ""


@message
class JobPage:
    """The answer to :class:`ListJobs`. ``next`` goes into the next question; empty: this was the last page."""

    rows: tuple[JobRow, ...]
    next: str


# Doors -> /jobs/<job_id>, asked


@message
class DescribeJob:
    """Give a :class:`JobView`."""


@message
class JobView:
    """All that is known of a job as a whole; ``counts``, ``suspended``: as in :class:`JobTally`.

    ``fault`` is what the failed task of lowest index said in more than one line.
    """

    job_id: str
    uid: str
    spec: JobSpec
    state: JobState
    reason: str
    counts: tuple[tuple[TaskState, int], ...]
    failures: int
    preemptions: int
    pending_reason: str
    submitted_wall_ns: int
    ended_wall_ns: int
    started_wall_ns: int = 0
    fault: str = ""
    suspended: int = 0


@message
class ListTasks:
    """Give a page of tasks by index, from ``start``."""

    start: int = 0
    limit: int = 100


@message
class TaskRow:
    """A task, with its latest attempt as users see it; None: it never had one. ``worker_id`` is empty where no worker
    has that attempt.

    ``suspension`` is None of a live attempt that nobody ever asked to suspend, and of one that is over; ``copies`` is
    None of one of which no copy was begun, and of one that is over.

    ``attempt_reason`` says why the latest attempt ended so, or what it waits for while it lives.

    ``earlier`` are the attempts before that, newest first: ``MAX_ATTEMPTS_SHOWN - 1`` of a task and
    ``MAX_EARLIER_ATTEMPTS`` of a job at most.
    """

    index: int
    state: TaskState
    failures: int = 0
    preemptions: int = 0
    worker_id: str = ""
    reason: str = ""
    logs_complete: bool = False
    attempt: Attempt | None = None
    attempt_reason: str = ""
    earlier: tuple[Attempt, ...] = ()
    suspension: SuspensionView | None = None
    copies: CopiesView | None = None

    @property
    def uid(self) -> str:
        """Of the latest attempt; empty: there was none."""
        return "" if self.attempt is None else self.attempt.uid

    @property
    def ending(self) -> Ending | None:
        """How the latest attempt ended, as far as it is to be shown."""
        return None if self.attempt is None else self.attempt.ending


@message
class TaskPage:
    """The answer to :class:`ListTasks`. ``next`` is the next ``start``, or -1 after the last page."""

    rows: tuple[TaskRow, ...]
    next: int
    pending_reason: str


# Published (Emit): what WatchJob streams


@message
class JobChanged:
    """A job is in another state. Of a new one ``name`` and ``namespace`` are told."""

    job_id: str
    state: JobState
    reason: str
    wall_ns: int
    name: str = ""
    namespace: str = ""


@message
class TaskChanged:
    """A task is in another state. A terminal state is published when its last log line is stored, not before.

    How it ended is asked for: it is in the answer to :class:`ListTasks`.
    """

    job_id: str
    index: int
    state: TaskState
    uid: str
    worker_id: str
    log_offset: int
    logs_complete: bool
    wall_ns: int


# /jobs <-> jobs


@message
class JobAdvanced:
    """A job's state or its tasks' changed; for listings. Changes of tasks alone are told at most once a second."""

    job_id: str
    state: JobState
    tally: JobTally | None = None


@message
class JobDone:
    """A job is in its terminal state. Told again by each new incarnation of a finished job."""

    job_id: str
    state: JobState
    reason: str
    wall_ns: int
    tally: JobTally | None = None


# /jobs <-> /jobs/scheduler


@message
class SchedulerAwake:
    """The scheduler is new and knows no job."""


@message
class JobsKnown:
    """The jobs that have not ended, in the order of submission. The answer to :class:`SchedulerAwake`."""

    job_ids: tuple[str, ...]


@message
class JobIntroduced:
    """A job was accepted; all its tasks are pending."""

    job_id: str
    order: int
    spec: JobSpec


@message
class JobAbsent:
    """A job does not answer until further notice (it is quarantined): place nothing for it."""

    job_id: str


# /jobs/scheduler <-> jobs


@message
class JobAwake:
    """A job's actor was started again."""

    job_id: str


@message
class ReportJob:
    """Answer with a :class:`JobReport` of the same ``token``."""

    token: int


@message
class LiveAttempt:
    """An attempt that takes room on a worker; ``leaves``: it is on its way to hold none."""

    uid: str
    index: int
    worker_id: str
    incarnation: str
    placed_wall_ns: int = 0
    leaves: bool = False


@message
class JobReport:
    """All that the scheduler needs of a job; replaces what it knew. ``pending`` holds ranges ``(first, end)``.

    What lives may come in parts, in order; with ``more`` another one follows. ``pending`` is in the last one.
    ``suspended`` are live attempts without a worker that wait for one.
    """

    job_id: str
    token: int
    order: int
    spec: JobSpec
    open: bool
    pending: tuple[tuple[int, int], ...]
    live: tuple[LiveAttempt, ...]
    more: bool = False
    suspended: tuple[SuspendedAttempt, ...] = ()


@message
class Placement:
    """A worker for a task. The uid becomes the attempt's; the room is already taken under it."""

    index: int
    uid: str
    worker_id: str
    incarnation: str


@message
class Placed:
    """Workers for some of a job's tasks. What the job cannot use comes back as :class:`AttemptsOver`.

    A gang is placed as a whole: in one message, or in ``part`` 0, 1, 2, ..., of which the last has no ``more``.
    """

    placements: tuple[Placement, ...]
    part: int = 0
    more: bool = False


@message
class Refusal:
    """A worker incarnation did not start an attempt, and says why."""

    worker_id: str
    incarnation: str
    reason: str


@message
class AttemptsOver:
    """These attempts hold no room any more. The tasks ``pending`` wait for a worker again, after a rest of ``rest_ns``.

    ``began`` are those of them whose code ran; ``refused`` is the last refusal among them.
    """

    job_id: str
    uids: tuple[str, ...]
    pending: tuple[tuple[int, int], ...] = ()
    rest_ns: int = 0
    began: tuple[str, ...] = ()
    refused: Refusal | None = None


@message
class Rested:
    """Tasks of a job, ``first`` and those that rest with it, have rested."""

    job_id: str
    first: int


@message
class JobWithdrawn:
    """Place nothing more for this job."""

    job_id: str


@message
class AttemptsLost:
    """A worker incarnation is lost: with ``fenced`` its processes are known to be gone."""

    worker_id: str
    incarnation: str
    fenced: bool
    reason: str


@message
class NeverPlaced:
    """Told to a job: no worker will ever take its tasks, and why."""

    reason: str


@message
class SchedulerFigures:
    """Asked of the scheduler: answered with a frozen ``SchedulerStatistics``.

    ``workers``: whose own figures are wanted, too. A fleet has thousands, and figures are asked for every few seconds.
    """

    workers: tuple[str, ...] = ()


# Links


@message
class LinkWanted:
    """Told to ``/jobs/links``: have a link to this incarnation."""

    worker_id: str
    incarnation: str


@message
class LinkUnwanted:
    """Told to ``/jobs/links``: this incarnation is gone for good."""

    worker_id: str
    incarnation: str


@message
class AnnounceLink:
    """Tell the scheduler that you are there."""


@message
class LinkStarted:
    """A link waits to be told what its worker should run."""

    worker_id: str
    incarnation: str


@message
class LinkSynced:
    """A link knows all that its worker should run: attempts may be placed there."""

    worker_id: str
    incarnation: str


@message
class LinkGone:
    """A link was given up until an operator revives it: place nothing on its worker."""

    worker_id: str
    incarnation: str


@message
class LinksAwake:
    """Told to the scheduler: ``/jobs/links`` is new and has no link."""


@message
class LinkExpects:
    """These jobs will each tell you what they have on your worker."""

    incarnation: str
    job_ids: tuple[str, ...]


@message
class LinkNeedsDesired:
    """Told to a job: tell this worker's link all that you have there, with :class:`DesiredOn`."""

    worker_id: str
    incarnation: str


@message
class Desired:
    """What a job wants of one attempt. ``stop`` is None while it should run; with ``suspend`` it may be frozen.

    With ``withdraw`` it is not to come back there: the grant of its order is to be taken back.
    """

    order: RunOrder
    started: bool
    stop: Ending | None
    suspend: bool = False
    withdraw: bool = False


@message
class DesiredOn:
    """All attempts of one job on one worker; replaces what the link knew of that job."""

    job_id: str
    incarnation: str
    attempts: tuple[Desired, ...]


@message
class RunAttempts:
    """Have these attempts run on the worker."""

    incarnation: str
    orders: tuple[RunOrder, ...]


@message
class StopAttempts:
    """Have these attempts stopped."""

    incarnation: str
    uids: tuple[str, ...]
    ending: Ending


@message
class ReleaseAttempts:
    """The ends of these attempts are recorded: they may be forgotten."""

    incarnation: str
    uids: tuple[str, ...]


@message
class AttemptsObserved:
    """What a worker sees of attempts of one job: of each the latest, at most once per message."""

    worker_id: str
    incarnation: str
    observations: tuple[Observation, ...]


# To oneself


@message
class Settle:
    """Look at what the last records made of the job; ``before`` is the state it was shown in until then."""

    before: JobState


@message
class StopRest:
    """Go on stopping: of ``uids`` those from ``first`` that still live."""

    uids: tuple[str, ...]
    first: int
    ending: Ending


@message
class StartRest:
    """Go on ordering the members of a whole gang to run: of ``uids`` those from ``first`` that still live."""

    uids: tuple[str, ...]
    first: int


@message
class Disband:
    """Go on taking back the members of a gang that does not become whole."""


@message
class ReportRest:
    """Go on reporting under ``token``: of ``uids`` those from ``first`` that still live."""

    token: int
    uids: tuple[str, ...]
    first: int


@message
class ResumeRest:
    """Go on with what a new incarnation owes, from ``first``: ``places``, behind these the logs ``due`` of tasks."""

    places: tuple[tuple[str, str], ...]
    due: tuple[int, ...]
    first: int


@message
class GoneRest:
    """Go on taking out the workers of slices that are gone."""


@message
class LinkRest:
    """Go on having links again, and telling them whom to hear."""


@message
class Pass:
    """Go on placing."""


@message
class EndChildren:
    """A job is over: go on ending those that end with it, of ``job_ids`` those from ``first``."""

    parent: str
    job_ids: tuple[str, ...]
    first: int = 0


@message
class Sweep:
    """Forget the oldest finished jobs beyond the limit."""


@message
class Due:
    """A timer's time has come. ``what`` is its key."""

    what: str
    worker_id: str = ""
    incarnation: str = ""


@message
class Resend:
    """Tell this again: the mailbox was full."""

    to: ActorPath
    message: Any


@message
class SchedulerStatistics:
    """Figures of the scheduler.

    ``committed`` holds worker id and what live attempts take there, for those workers that were asked for and are
    known; ``attempts`` how many these are. ``returning`` counts suspended attempts that wait for a worker,
    ``preempted`` those that were ever asked to give way to work of a higher band.
    """

    syncing: bool
    workers: int
    placeable_workers: int
    jobs: int
    pending_tasks: int
    live_attempts: int
    placements: int
    passes: int
    committed: tuple[tuple[str, Capacity], ...]
    attempts: tuple[tuple[str, int], ...]
    returning: int = 0
    preempted: int = 0
