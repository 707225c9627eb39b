"""Decisions of ``/jobs``: which jobs there are.

A job exists from the moment its ``jobs.accepted`` is recorded; the answer to its submitter leaves when that
is on disk, so an acknowledged job is never lost (INV-J1). The whole specification is in that record, and the
job's own actor is started from it: there is no moment at which one of the two knows a job and the other does
not.

A name belongs, in its namespace (:mod:`iriscw.jobs.naming.messages`), to the latest job that was submitted under it, as
long as that has not ended.
``existing="recreate"`` has the holder stopped; the successor is accepted at once and told to the scheduler
when the holder has ended, so that the two never run side by side. An idempotency key belongs to its job for
as long as the job is listed.

What the tasks of each job are up to is told by the job itself, a second late at most, and noted beside the
records: a listing asks nobody, and a job of 100,000 tasks costs it what one of a single task does. Notes are not
journaled, because each job tells them again when it starts.

A job that is submitted by a task ends with the job of that task, its parent, unless it is detached: when the parent is
over, however it ended, its children are told to end, and they tell theirs. Whether they have heard is looked at again
with every start. What is not detached is only taken while its parent is not over.

Finished jobs stay listed, with their actors, up to ``finished`` of them; then the oldest is stopped and its
records are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs

from iriscw._errors import InvalidArgument
from iriscw.jobs.errors import JobExists, KeyReused, NoSuchJob, ParentOver, TooManyJobs, TooManyTasks
from iriscw.jobs.messages import (
    MAX_PAGE,
    EndChildren,
    JobAbsent,
    JobAdvanced,
    JobChanged,
    JobDone,
    JobIntroduced,
    JobPage,
    JobRow,
    JobsKnown,
    JobTally,
    ListJobs,
    SchedulerAwake,
    SubmitJob,
    Submitted,
    Sweep,
    TerminateJob,
)
from iriscw.jobs.model import (
    JOB_TERMINAL,
    Existing,
    JobSpec,
    JobState,
    TaskState,
    canonical_spec,
    check_spec,
    job_uid,
    spec_fingerprint,
)
from iriscw.jobs.naming.messages import FindNames, FindNamespace
from iriscw.jobs.naming.namespace import find_names, holder, place_of
from iriscw.jobs.records import (
    JobAccepted,
    JobFinished,
    JobForgotten,
    JobsCounted,
    JobShown,
    JobSuperseded,
    load_spec,
    store_spec,
)
from iriscw.runtime.behavior import ChildSpec
from iriscw.runtime.vocabulary import (
    SECOND,
    ActorPath,
    Command,
    Context,
    Continue,
    Decision,
    DecisionFunction,
    Emit,
    Forget,
    Outcome,
    Refuse,
    Replied,
    Reply,
    ReplyTo,
    Request,
    RequestFailed,
    SetTimer,
    Spawn,
    StopChild,
    StopReason,
    Tell,
    Terminated,
    Undelivered,
    Watch,
)

MAX_KEY_LENGTH = 128
"""Characters of an idempotency key: Stripe takes 255, a UUID has 36."""

TERMINATE_TIMEOUT = 30 * SECOND
"""How long ``/jobs`` waits for a job to take note of its termination."""

AGAIN = 1 * SECOND
"""How long ``/jobs`` waits before it tells a full mailbox again."""

SWEEP_BATCH = 32
"""Finished jobs that are forgotten in one go."""

END_BATCH = 256
"""Children that are told to end in one go."""

SPEC_OVERHEAD_BYTES = 1024
"""What a specification takes on disk beside its environment, roughly."""


@attrs.frozen
class RegistryLimits:
    """How much one controller takes.

    Args:
        jobs: that have not ended. Each is an actor; Slurm's default is 10,000.
        tasks: of the jobs that have not ended.
        finished: jobs that stay listed.
        specs_bytes: all specifications together; within one snapshot of the journal (64 MiB).
    """

    jobs: int = 10_000
    tasks: int = 1_000_000
    finished: int = 1_000
    specs_bytes: int = 48 * 1024 * 1024


def _unlisted(entry: RegisteredJob, _: attrs.Attribute[Any], value: Any) -> Any:
    entry.row = None
    return value


@attrs.define(on_setattr=_unlisted)
class RegisteredJob:
    """A job as the registry knows it."""

    job_id: str
    order: int
    key: str
    spec: JobSpec
    submitted_wall_ns: int
    state: JobState = JobState.PENDING
    reason: str = ""
    ended_wall_ns: int = 0
    superseded: bool = False
    root: str = ""
    """The job at the top of its parents: itself if it has none."""
    after: str = ""
    """The job that must have ended before this one is placed; empty if none."""
    tally: JobTally | None = attrs.field(default=None, eq=False)
    """A note: what the job told of its tasks last; None if nothing yet."""
    row: JobRow | None = attrs.field(default=None, eq=False, repr=False, on_setattr=attrs.setters.NO_OP)
    """A note: as it was listed last; None once anything of it has changed. Most of a listing is as it was."""

    @property
    def ended(self) -> bool:
        """Whether it is in its terminal state."""
        return self.state in JOB_TERMINAL

    @property
    def place(self) -> str:
        """Where its name stands among all names."""
        return place_of("" if self.root == self.job_id else self.root, self.spec.name)

    @property
    def size_bytes(self) -> int:
        """Roughly what its specification takes on disk."""
        pairs = self.spec.environment
        return SPEC_OVERHEAD_BYTES + sum(len(name) + len(value) for name, value in pairs)


@attrs.define
class JobRegistry:
    """All jobs that are listed, in the order of submission."""

    entries: dict[str, RegisteredJob] = attrs.field(factory=dict)
    names: dict[str, str] = attrs.field(factory=dict)
    """The job that holds each place of a name: the latest that has not ended."""
    called: dict[str, dict[str, None]] = attrs.field(factory=dict)
    """By name, the jobs that have or had it, in the order of submission."""
    within: dict[str, dict[str, None]] = attrs.field(factory=dict)
    """By namespace, the jobs in it, in that order; those without a parent are at the top, too."""
    keys: dict[str, str] = attrs.field(factory=dict)
    finished: dict[str, None] = attrs.field(factory=dict)
    """Finished jobs, in the order in which they ended."""
    children: dict[str, dict[str, None]] = attrs.field(factory=dict)
    """By parent, the jobs that end with it and have not ended."""
    orders: int = 0
    live_tasks: int = 0
    specs_bytes: int = 0

    @property
    def live_jobs(self) -> int:
        """How many jobs have not ended."""
        return len(self.entries) - len(self.finished)


def evolve(registry: JobRegistry, record: Any) -> None:
    """Apply a record, in place."""
    _EVOLVE[type(record)](registry, record)


def _accepted(registry: JobRegistry, record: JobAccepted) -> None:
    spec = load_spec(record.spec)
    entry = RegisteredJob(record.job_id, record.order, record.key, spec, record.wall_ns)
    entry.root = record.root or _root(registry, spec, record.job_id)
    if _bound(spec):
        registry.children.setdefault(spec.parent_job_id, {})[record.job_id] = None
    if record.replaces in registry.entries:
        older = registry.entries[record.replaces]
        older.superseded = True
        entry.after = "" if older.ended else record.replaces
    registry.entries[record.job_id] = entry
    registry.names[entry.place] = record.job_id
    for index, key in _indexed(registry, entry):
        index.setdefault(key, {})[record.job_id] = None
    registry.keys[record.key] = record.job_id
    registry.orders = max(registry.orders, record.order + 1)
    registry.live_tasks += spec.replicas
    registry.specs_bytes += entry.size_bytes


def _shown(registry: JobRegistry, record: JobShown) -> None:
    registry.entries[record.job_id].state = record.state


def _finished(registry: JobRegistry, record: JobFinished) -> None:
    entry = registry.entries[record.job_id]
    entry.state = record.state
    entry.reason = record.reason
    entry.ended_wall_ns = record.wall_ns
    registry.finished[record.job_id] = None
    registry.live_tasks -= entry.spec.replicas
    siblings = registry.children.get(entry.spec.parent_job_id)
    if siblings is not None:
        siblings.pop(record.job_id, None)
        if not siblings:
            del registry.children[entry.spec.parent_job_id]
    successor = _successor(registry, entry)
    if successor is not None:
        successor.after = entry.after
    if registry.names.get(entry.place) == entry.job_id:
        del registry.names[entry.place]
        if entry.after:
            # It ended before the one it replaces, which holds the name again until it has stopped.
            registry.names[registry.entries[entry.after].place] = entry.after
    entry.after = ""


def _forgotten(registry: JobRegistry, record: JobForgotten) -> None:
    entry = registry.entries.pop(record.job_id)
    registry.finished.pop(record.job_id)
    registry.specs_bytes -= entry.size_bytes
    for index, key in _indexed(registry, entry):
        del index[key][record.job_id]
        if not index[key]:
            del index[key]
    if registry.keys.get(entry.key) == record.job_id:
        del registry.keys[entry.key]


def _indexed(registry: JobRegistry, entry: RegisteredJob) -> Iterator[tuple[dict[str, dict[str, None]], str]]:
    """Yield where a job is found without a look at all of them, and under what."""
    yield registry.called, entry.spec.name
    yield registry.within, entry.root
    if entry.root == entry.job_id:
        yield registry.within, ""


def _superseded(registry: JobRegistry, record: JobSuperseded) -> None:
    registry.entries[record.job_id].superseded = True


def _counted(registry: JobRegistry, record: JobsCounted) -> None:
    registry.orders = record.orders


_EVOLVE: dict[type, Callable[[JobRegistry, Any], None]] = {
    JobAccepted: _accepted,
    JobShown: _shown,
    JobFinished: _finished,
    JobForgotten: _forgotten,
    JobSuperseded: _superseded,
    JobsCounted: _counted,
}


def compact(registry: JobRegistry) -> Iterable[Any]:
    """Yield records from which :func:`evolve` builds an equal registry."""
    for entry in registry.entries.values():
        spec = store_spec(entry.spec)
        behind = _behind(registry, entry)
        yield JobAccepted(entry.job_id, entry.order, entry.key, spec, entry.submitted_wall_ns, behind, entry.root)
        if entry.superseded:
            yield JobSuperseded(entry.job_id)
        if not entry.ended and entry.state is not JobState.PENDING:
            yield JobShown(entry.job_id, entry.state)
    for job_id in registry.finished:
        entry = registry.entries[job_id]
        yield JobFinished(job_id, entry.state, entry.reason, entry.ended_wall_ns)
    yield JobsCounted(registry.orders)


def _behind(registry: JobRegistry, entry: RegisteredJob) -> str:
    """Return the job whose place ``entry`` took, for a snapshot: the one it took it of at first may be forgotten.

    One that has ended is behind the job that now holds its name, if that is older, so that its end, which follows in
    the snapshot, gives the name back.
    """
    if not entry.ended:
        return entry.after
    now = registry.entries.get(registry.names.get(entry.place, ""))
    return now.job_id if now is not None and now.order < entry.order else ""


def _bound(spec: JobSpec) -> bool:
    """Whether a job ends with its parent."""
    return bool(spec.parent_job_id) and not spec.detached


def _root(registry: JobRegistry, spec: JobSpec, job_id: str) -> str:
    """Return the job at the top of a job's parents, as far as they are known."""
    if not spec.parent_job_id:
        return job_id
    parent = registry.entries.get(spec.parent_job_id)
    return spec.parent_job_id if parent is None else parent.root


def _holder(registry: JobRegistry, spec: JobSpec) -> RegisteredJob | None:
    """Return the job that has a submission's name where that would have it."""
    namespace = _root(registry, spec, "")
    found = holder(registry.entries, registry.names, namespace, spec.name)
    return None if found is None else registry.entries[found.job_id]


def _is_over(registry: JobRegistry, job_id: str) -> bool:
    """Whether a job has ended. One that is not known has ended and was forgotten."""
    entry = registry.entries.get(job_id)
    return entry is None or entry.ended


def _check_parent(registry: JobRegistry, spec: JobSpec) -> None:
    """Refuse a job that would have to end at once."""
    if _bound(spec) and _is_over(registry, spec.parent_job_id):
        raise ParentOver(f"{spec.parent_job_id} is over; detached=True lets a job outlive its parent")


def _check_replaced(registry: JobRegistry, spec: JobSpec, named: RegisteredJob) -> None:
    """Refuse what would end a job that the submitter's task may not end: its own, one above it or beside it."""
    parent, above = spec.parent_job_id, named.spec.parent_job_id
    while parent != above:
        entry = registry.entries.get(above)
        if entry is None:
            text = f"{named.job_id} is called {spec.name!r}, does not descend from {parent}, and is not ended for it"
            raise JobExists(text)
        above = entry.spec.parent_job_id


def _successor(registry: JobRegistry, entry: RegisteredJob) -> RegisteredJob | None:
    """Return the job that waits for the end of ``entry``."""
    if not entry.superseded:
        return None
    waiting = [other for other in registry.entries.values() if other.after == entry.job_id]
    return waiting[0] if waiting else None


class JobRegistryDecisions:
    """The decisions, for one way to make a job's actor and one set of limits.

    Args:
        child: gives the child spec of a job's actor.
        limits: how much is taken.
    """

    def __init__(self, child: Callable[[RegisteredJob], ChildSpec], limits: RegistryLimits) -> None:
        self.child = child
        self.limits = limits

    def rules(self) -> dict[type, DecisionFunction]:
        """Return the decision for each message."""
        return {
            SubmitJob: self.submit,
            TerminateJob: self.terminate,
            ListJobs: self.list_jobs,
            FindNames: self.find_names,
            FindNamespace: self.find_namespace,
            JobAdvanced: self.advanced,
            JobDone: self.done,
            SchedulerAwake: self.scheduler_awake,
            Terminated: self.terminated,
            Sweep: self.sweep,
            EndChildren: self.end_children,
            Replied: self.terminate_noted,
            RequestFailed: self.terminate_failed,
            Undelivered: self.undelivered,
        }

    def resume(self, registry: JobRegistry, ctx: Context) -> Iterator[Command]:
        """Start the jobs, and go on with what was promised about them."""
        for entry in registry.entries.values():
            yield Spawn(self.child(entry))
            if entry.superseded and not entry.ended:
                yield _supersede(ctx, entry.job_id)
        yield from _orphans(registry)
        yield Continue(Sweep())

    # Submission

    def submit(self, registry: JobRegistry, message: SubmitJob, ctx: Context) -> Outcome:
        """Promise a job, or name the one that is there, or refuse."""
        if ctx.reply_to is None:
            return None
        spec = canonical_spec(message.spec)
        named = _holder(registry, spec)
        try:
            known = self._known(registry, message, spec, named)
            if known is not None:
                return (Reply(Submitted(known.job_id, job_uid(known.job_id), fresh=False)),)
            _check_parent(registry, spec)
            self._check_room(registry, spec)
        except (InvalidArgument, JobExists, KeyReused, ParentOver, TooManyJobs, TooManyTasks) as error:
            return (Refuse(error),)
        return self._accept(registry, message, spec, named, ctx)

    def _known(
        self, registry: JobRegistry, message: SubmitJob, spec: JobSpec, named: RegisteredJob | None
    ) -> RegisteredJob | None:
        if not 1 <= len(message.key) <= MAX_KEY_LENGTH:
            raise InvalidArgument(f"an idempotency key has 1 to {MAX_KEY_LENGTH} characters")
        check_spec(spec)
        same = registry.entries.get(registry.keys.get(message.key, ""))
        if same is not None:
            if spec_fingerprint(same.spec) != spec_fingerprint(spec):
                raise KeyReused(f"the key was used for {same.job_id}, whose specification differs")
            return same
        if named is None:
            return None
        if message.existing is Existing.RECREATE:
            _check_replaced(registry, spec, named)
            return None
        if message.existing is Existing.KEEP:
            return named
        raise JobExists(f"{named.job_id} is called {spec.name!r} and has not ended")

    def _check_room(self, registry: JobRegistry, spec: JobSpec) -> None:
        limits = self.limits
        if registry.live_jobs >= limits.jobs:
            raise TooManyJobs(f"{registry.live_jobs} jobs have not ended; at most {limits.jobs} are taken")
        if registry.live_tasks + spec.replicas > limits.tasks:
            raise TooManyTasks(
                f"{registry.live_tasks} tasks have not ended; with {spec.replicas} more they are above {limits.tasks}"
            )
        if registry.specs_bytes >= limits.specs_bytes:
            raise TooManyJobs(f"specifications take {registry.specs_bytes} bytes: at most {limits.specs_bytes}")

    def _accept(
        self, registry: JobRegistry, message: SubmitJob, spec: JobSpec, named: RegisteredJob | None, ctx: Context
    ) -> Outcome:
        job_id = ctx.new_id("job-")
        order = registry.orders
        replaces = "" if named is None else named.job_id
        root = _root(registry, spec, job_id)
        record = JobAccepted(job_id, order, message.key, store_spec(spec), ctx.wall, replaces, root)
        commands: list[Command] = [
            Spawn(self.child(RegisteredJob(job_id, order, message.key, spec, ctx.wall, root=root))),
            Reply(Submitted(job_id, job_uid(job_id), fresh=True)),
            Emit(JobChanged(job_id, JobState.PENDING, "", ctx.wall, spec.name, root)),
        ]
        if named is None:
            commands.append(Tell(_scheduler(ctx), JobIntroduced(job_id, order, spec)))
        else:
            commands.append(_supersede(ctx, replaces))
        return Decision(records=(record,), commands=tuple(commands))

    # The lives of jobs

    def advanced(self, registry: JobRegistry, message: JobAdvanced, ctx: Context) -> Outcome:
        """Keep a job's state for listings, and note what its tasks are up to."""
        entry = registry.entries.get(message.job_id)
        if entry is None or entry.ended:
            return None
        entry.tally = message.tally or entry.tally
        if entry.state is message.state or message.state in JOB_TERMINAL:
            return None
        return Decision(records=(JobShown(message.job_id, message.state),))

    def done(self, registry: JobRegistry, message: JobDone, ctx: Context) -> Outcome:
        """Keep a job's end; have its successor placed and its children ended; forget the oldest."""
        entry = registry.entries.get(message.job_id)
        if entry is None:
            return None
        entry.tally = message.tally or entry.tally
        if entry.ended:
            return None
        commands: list[Command] = []
        successor = _successor(registry, entry)
        if successor is not None and not entry.after:
            introduced = JobIntroduced(successor.job_id, successor.order, successor.spec)
            commands.append(Tell(_scheduler(ctx), introduced))
        if message.job_id in registry.children:
            commands.append(_end_children(registry, message.job_id))
        if len(registry.finished) >= self.limits.finished:
            commands.append(Continue(Sweep()))
        record = JobFinished(message.job_id, message.state, message.reason, message.wall_ns)
        return Decision(records=(record,), commands=tuple(commands))

    def end_children(self, registry: JobRegistry, message: EndChildren, ctx: Context) -> Outcome:
        """Have some jobs ended whose parent is over."""
        parent = registry.entries.get(message.parent)
        how = "ended" if parent is None else f"ended as {parent.state.value}"
        end = message.first + END_BATCH
        live = registry.children.get(message.parent, {})
        commands: list[Command] = [
            Tell(ctx.path / job_id, TerminateJob(job_id, f"its parent {message.parent} {how}"))
            for job_id in message.job_ids[message.first : end]
            if job_id in live
        ]
        if end < len(message.job_ids):
            commands.append(Continue(EndChildren(message.parent, message.job_ids, end)))
        return tuple(commands)

    def sweep(self, registry: JobRegistry, message: Sweep, ctx: Context) -> Outcome:
        """Stop the oldest finished jobs beyond the limit; :class:`Terminated` follows, whatever their state."""
        surplus = len(registry.finished) - self.limits.finished
        commands: list[Command] = []
        for job_id in list(registry.finished)[: max(0, min(surplus, SWEEP_BATCH))]:
            commands += (StopChild(job_id), Watch(ctx.path / job_id))
        return tuple(commands)

    def terminated(self, registry: JobRegistry, message: Terminated, ctx: Context) -> Outcome:
        """A job's actor is gone: forgotten, or put aside for an operator."""
        job_id = message.path.name
        if job_id not in registry.entries:
            return None
        if message.reason is StopReason.QUARANTINED:
            return (Tell(_scheduler(ctx), JobAbsent(job_id)),)
        if job_id not in registry.finished:
            return None
        more = len(registry.finished) - 1 > self.limits.finished
        again = (Continue(Sweep()),) if more else ()
        return Decision(records=(JobForgotten(job_id),), commands=(Forget(job_id), *again))

    # Requests

    def terminate(self, registry: JobRegistry, message: TerminateJob, ctx: Context) -> Outcome:
        """Pass it to the job, whose answer is the answer: then the job will never forget it."""
        slot = ctx.reply_to
        if slot is None:
            return None
        if message.job_id not in registry.entries:
            return (Refuse(NoSuchJob(f"there is no job {message.job_id!r}")),)
        ctx.await_journal()  # the job would put it aside while the disk is full, and nobody would be told why
        key = ("terminate", slot.slot)
        return (Request(ctx.path / message.job_id, message, key, TERMINATE_TIMEOUT),)

    def terminate_noted(self, registry: JobRegistry, message: Replied, ctx: Context) -> Outcome:
        """Pass the job's answer on."""
        return (Reply(message.value, to=_slot(message.key)),)

    def terminate_failed(self, registry: JobRegistry, message: RequestFailed, ctx: Context) -> Outcome:
        """Pass the job's failure to answer on."""
        return (Refuse(message.error, to=_slot(message.key)),)

    def list_jobs(self, registry: JobRegistry, message: ListJobs, ctx: Context) -> Outcome:
        """Return a page of jobs, latest first."""
        if ctx.reply_to is None:
            return None
        bound = registry.orders
        if message.after:
            last = registry.entries.get(message.after)
            if last is None:
                return (Refuse(NoSuchJob(f"there is no job {message.after!r} to list after")),)
            bound = last.order
        limit = min(max(message.limit, 1), MAX_PAGE)
        rows: list[JobRow] = []
        among = registry.called.get(message.name, {}) if message.name else registry.entries
        for job_id in reversed(among):
            entry = registry.entries[job_id]
            if entry.order >= bound or not _matches(entry, message):
                continue
            if len(rows) == limit:
                return (Reply(JobPage(tuple(rows), rows[-1].job_id)),)
            if entry.row is None:
                entry.row = _row(entry)
            rows.append(entry.row)
        return (Reply(JobPage(tuple(rows), "")),)

    def find_names(self, registry: JobRegistry, message: FindNames, ctx: Context) -> Outcome:
        """Say which jobs have names in a namespace."""
        if ctx.reply_to is None:
            return None
        return (Reply(find_names(registry.entries, registry.names, registry.within, message)),)

    def find_namespace(self, registry: JobRegistry, message: FindNamespace, ctx: Context) -> Outcome:
        """Say in which namespace a job is."""
        entry = registry.entries.get(message.job_id)
        return None if ctx.reply_to is None else (Reply("" if entry is None else entry.root),)

    def scheduler_awake(self, registry: JobRegistry, message: SchedulerAwake, ctx: Context) -> Outcome:
        """Tell a new scheduler which jobs may need it; remind those that should stop."""
        live = [entry for entry in registry.entries.values() if not entry.ended]
        known = tuple(entry.job_id for entry in live if not entry.after)
        reminders = [_supersede(ctx, entry.job_id) for entry in live if entry.superseded]
        return (Tell(_scheduler(ctx), JobsKnown(known)), *reminders, *_orphans(registry))

    def undelivered(self, registry: JobRegistry, message: Undelivered, ctx: Context) -> Outcome:
        """A mailbox was full: tell again in a while."""
        return (SetTimer("again", AGAIN, SchedulerAwake()),)


def _scheduler(ctx: Context) -> ActorPath:
    return ctx.path / "scheduler"


def _slot(key: Any) -> ReplyTo:
    return ReplyTo(key[1])


def _supersede(ctx: Context, job_id: str) -> Tell:
    return Tell(ctx.path / job_id, TerminateJob(job_id, "replaced by a new submission of the same name"))


def _end_children(registry: JobRegistry, parent: str) -> Command:
    return Continue(EndChildren(parent, tuple(registry.children[parent])))


def _orphans(registry: JobRegistry) -> Iterator[Command]:
    """Have jobs ended whose parent is over: they may not have heard."""
    for parent in registry.children:
        if _is_over(registry, parent):
            yield _end_children(registry, parent)


def _matches(entry: RegisteredJob, question: ListJobs) -> bool:
    return (not question.states or entry.state in question.states) and (
        not question.namespace or entry.root == question.namespace
    )


def _row(entry: RegisteredJob) -> JobRow:
    tally = entry.tally
    if tally is None:  # it has nothing to tell yet
        untouched = entry.state is JobState.PENDING
        tally = JobTally(((TaskState.PENDING, entry.spec.replicas),) if untouched else ())
    reason = entry.reason if entry.ended else tally.reason
    if not entry.ended and entry.after:
        reason = f"waits for {entry.after}, which it replaces, to end"
    return JobRow(
        entry.job_id,
        job_uid(entry.job_id),
        entry.spec.name,
        entry.state,
        reason,
        entry.spec.replicas,
        entry.submitted_wall_ns,
        entry.ended_wall_ns,
        tally,
        entry.spec.demand,
        entry.spec.band,
        entry.spec.parent_job_id,
        entry.root,
    )
