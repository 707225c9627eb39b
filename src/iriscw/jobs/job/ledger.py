"""What one job remembers: its tasks and attempts, as its records made them.

:class:`JobLedger` is the state of the actor ``/jobs/<job_id>``. Only :func:`evolve` changes it, record by
record, in place and in constant time whatever the number of tasks; decisions read it. A task that was never
placed has no object: 100,000 replicas cost nothing until something happens to them.

Kept beside the tasks, so that no decision has to search: counts of tasks by state, live attempts by uid and
by worker, tasks that wait again (oldest first), attempts under a timeout (oldest first), tasks whose last log
line is still due, attempts that were followed by another one (oldest first), live attempts without a worker (they are
suspended), what their checkpoints have left to be removed.

Of those only the newest are kept: ``MAX_ATTEMPTS_SHOWN`` of a task, the latest included, and
``MAX_EARLIER_ATTEMPTS`` of the job. What they said beyond a sentence is bounded for the job as a whole.

``told``, ``telling``, ``requeued``, ``unjudged``, ``rest_ns``, ``reached``, ``ranks`` and ``heard`` are notes, not
facts: what others were told last is told again after a restart, as workers tell where attempts are reached and again of
ends that nobody has taken; a rest is cut short by it, and
what the scheduler said last is only a courtesy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from iriscw.jobs.keeping.copies import (
    CHANGES as COPY_CHANGES,
    Copies,
    Home,
    after as copies_after,
    copies_kept,
    copy_key,
    dropped,
    keep_copies,
    left_of,
    outdated,
)
from iriscw.jobs.keeping.records import (
    CheckpointPassedOver,
    CopiesKept,
    CopyFailed,
    CopyMade,
    WentBack,
)
from iriscw.jobs.lifecycle import LOST, shown_state
from iriscw.jobs.messages import JobTally
from iriscw.jobs.model import (
    MAX_ATTEMPTS_SHOWN,
    MAX_EARLIER_ATTEMPTS,
    TASK_LIVE,
    Assembly,
    Attempt,
    Ending,
    GangPlace,
    JobSpec,
    JobState,
    Observation,
    TaskState,
)
from iriscw.jobs.records import (
    AttemptAdvanced,
    AttemptEnded,
    AttemptEquipped,
    AttemptKept,
    AttemptOverran,
    AttemptPlaced,
    GangAssembly,
    GangMet,
    JobBegan,
    JobEnded,
    LogsSettled,
    TaskKept,
    VerdictReached,
    WorkerReturned,
    WorkerSuspected,
)
from iriscw.jobs.suspension.effects import DropCheckpoint
from iriscw.jobs.suspension.model import Stage
from iriscw.jobs.suspension.moves import CHANGES, Move, after, drop_of, keep, kept, went_back
from iriscw.jobs.suspension.records import (
    AttemptDeserted,
    AttemptResumed,
    AttemptResuming,
    AttemptSuspended,
    AttemptUnplaced,
    CheckpointDropped,
    CheckpointDue,
    SuspensionKept,
    SuspensionUndone,
)

Place = tuple[str, str]
"""A worker id and an incarnation."""


@attrs.define
class Task:
    """What is known of one task that was placed at least once."""

    state: TaskState = TaskState.PENDING
    since_wall_ns: int = 0
    """When it was last placed or began to wait."""
    failures: int = 0
    preemptions: int = 0
    unstarted: int = 0
    attempt: Attempt | None = None
    """The latest."""
    earlier: tuple[Attempt, ...] = ()
    """Those before it that are kept, oldest first."""
    logs_due: bool = False
    logs_lost: bool = False


@attrs.define
class JobLedger:
    """All that one job remembers."""

    job_id: str
    order: int
    spec: JobSpec
    submitted_wall_ns: int
    namespace: str = attrs.field(default="", eq=False)
    """The job at the top of its parents, as the registry has it: no record of its own says so."""
    tasks: dict[int, Task] = attrs.field(factory=dict)
    counts: dict[TaskState, int] = attrs.field(factory=dict)
    live: dict[str, int] = attrs.field(factory=dict)
    """The index of the task, by the uid of its live attempt, if that has a worker."""
    away: dict[str, int] = attrs.field(factory=dict)
    """Likewise, of live attempts that have no worker."""
    places: dict[Place, dict[str, int]] = attrs.field(factory=dict)
    """Those that have one, by worker."""
    waiting: dict[int, None] = attrs.field(factory=dict)
    """Tasks that wait again, the one that waits longest first."""
    timed: dict[str, int] = attrs.field(factory=dict)
    """When running attempts under a timeout started, less what they were suspended, the first first."""
    due: dict[int, str] = attrs.field(factory=dict)
    """The uid of the ended attempt whose last log line is due, by task."""
    suspects: dict[Place, str] = attrs.field(factory=dict)
    """Workers out of reach that have attempts of this job, and why."""
    earlier: dict[str, int] = attrs.field(factory=dict)
    """The index of the task, by the uid of an attempt that was followed by another one."""
    moves: dict[str, Move] = attrs.field(factory=dict)
    """What is known of the suspensions of live attempts, by uid."""
    drops: dict[str, DropCheckpoint] = attrs.field(factory=dict)
    """What suspensions and copies have left to be removed, by their keys."""
    copies: dict[str, Copies] = attrs.field(factory=dict)
    """What is known of the checkpoints that are made of live attempts while they run, by uid."""
    faults_chars: int = 0
    """Of all attempts that are kept."""
    culprit: int | None = None
    """The lowest index of a FAILED task."""
    started_wall_ns: int = 0
    """When the user's code was first known to run; 0 if never."""
    failures: int = 0
    preemptions: int = 0
    assembly: Assembly = Assembly.NONE
    """Of a gang: whether it is being placed, part by part."""
    verdict: VerdictReached | None = None
    ended: JobEnded | None = None
    met: GangMet | None = None
    """Of a gang: where its leader is reached, or was; of its latest attempt, if the uid is that."""
    reached: dict[str, tuple[str, tuple[tuple[str, int], ...]]] = attrs.field(factory=dict, eq=False)
    """Host and ports of live attempts, by uid, as their workers said."""
    ranks: dict[int, GangPlace] | None = attrs.field(default=None, eq=False)
    """Of a gang: where its members stand, by index, so that it is not found out for each of them."""
    told: JobTally | None = attrs.field(default=None, eq=False)
    """What the registry was told last."""
    telling: bool = attrs.field(default=False, eq=False)
    """Whether a timer runs at which it is told what has changed by then."""
    requeued: bool = attrs.field(default=False, eq=False)
    """Of a gang: whether the scheduler was told that it waits, since a member lived last."""
    unjudged: dict[str, Observation] = attrs.field(factory=dict, eq=False)
    """Of a gang: how live members say that they ended, by uid, until it is known why. Their workers keep it, too."""
    rest_ns: int = attrs.field(default=0, eq=False)
    """Of a gang: how long it rests before it waits again, because members did not begin."""
    homes: dict[str, Home] = attrs.field(factory=dict, eq=False)
    """Where the files of live attempts are, by uid, as their workers said; only where checkpoints are made of them."""
    heard: str = attrs.field(default="", eq=False)
    """Why tasks wait, as the scheduler said when somebody last asked; empty if nobody has since one was placed."""

    def __attrs_post_init__(self) -> None:
        self.counts.setdefault(TaskState.PENDING, self.spec.replicas)

    @property
    def gang(self) -> bool:
        """Whether its tasks run together or not at all."""
        return self.spec.group_by is not None

    @property
    def fresh(self) -> bool:
        """Whether nothing has happened to it."""
        return not self.tasks and self.verdict is None and self.ended is None

    @property
    def open(self) -> bool:
        """Whether its tasks may still be placed."""
        return self.verdict is None and self.ended is None

    @property
    def untouched(self) -> int:
        """How many tasks were never placed."""
        return self.spec.replicas - len(self.tasks)

    @property
    def broken(self) -> bool:
        """Whether it is a gang that was whole and lost a member while others live."""
        if not self.gang or not self.live or self.assembly is not Assembly.NONE:
            return False
        return len(self.live) + self.counts.get(TaskState.SUCCEEDED, 0) < self.spec.replicas

    def state_of(self, index: int) -> TaskState:
        """Return the state of a task."""
        task = self.tasks.get(index)
        state = TaskState.PENDING if task is None else task.state
        if state is TaskState.PENDING and self.verdict is not None:
            return self.verdict.waiting
        return state

    def shown(self) -> JobState:
        """Return the job's state as users see it."""
        return self.ended.state if self.ended is not None else shown_state(self.spec, self.counts)

    def pending_ranges(self) -> tuple[tuple[int, int], ...]:
        """Return the tasks that wait, as ranges ``(first, end)``: first those that never ran, by index.

        Those that wait again follow, the one that waits longest first; neighbours that follow each other are one range.
        """
        if not self.open:
            return ()
        ranges = []
        first = 0
        for index in sorted(self.tasks):
            if index > first:
                ranges.append((first, index))
            first = index + 1
        if first < self.spec.replicas:
            ranges.append((first, self.spec.replicas))
        again: list[tuple[int, int]] = []
        for index in self.waiting:
            if again and again[-1][1] == index:
                again[-1] = (again[-1][0], index + 1)
            else:
                again.append((index, index + 1))
        return (*ranges, *again)

    def visible_counts(self) -> tuple[tuple[TaskState, int], ...]:
        """Return the counts as users see them: a task whose logs are due still shows what its attempt was."""
        counts = dict(self.counts)
        for index in self.due:
            task = self.tasks[index]
            assert task.attempt is not None
            counts[task.state] -= 1
            counts[task.attempt.state] = counts.get(task.attempt.state, 0) + 1
        return tuple((state, counts[state]) for state in TaskState if counts.get(state))

    def move(self, before: TaskState, after: TaskState, number: int = 1) -> None:
        """Count ``number`` tasks under another state."""
        self.counts[before] -= number
        self.counts[after] = self.counts.get(after, 0) + number

    def holder(self, index: int) -> Attempt | None:
        """Return the live attempt of a task; None if it has none."""
        task = self.tasks.get(index)
        attempt = None if task is None else task.attempt
        return attempt if attempt is not None and attempt.live else None


def evolve(ledger: JobLedger, record: Any) -> None:
    """Apply a record, in place."""
    _EVOLVE[type(record)](ledger, record)


def _placed(ledger: JobLedger, record: AttemptPlaced) -> None:
    task = ledger.tasks.setdefault(record.index, Task())
    ledger.move(task.state, TaskState.ASSIGNED)
    task.state = TaskState.ASSIGNED
    task.since_wall_ns = record.wall_ns
    if task.attempt is not None:
        _is_followed(ledger, record.index, task, task.attempt)
    task.attempt = Attempt(
        record.uid, record.number, record.worker_id, record.incarnation, TaskState.ASSIGNED, record.wall_ns
    )
    ledger.waiting.pop(record.index, None)
    ledger.ranks = None
    _lives(ledger, record.index, task.attempt)


def _is_followed(ledger: JobLedger, index: int, task: Task, attempt: Attempt) -> None:
    """Keep an attempt that another one follows; forget the oldest beyond the limits."""
    task.earlier = (*task.earlier, attempt)
    ledger.earlier[attempt.uid] = index
    if len(task.earlier) >= MAX_ATTEMPTS_SHOWN:
        _forget_earliest(ledger, task)
    if len(ledger.earlier) > MAX_EARLIER_ATTEMPTS:
        _forget_earliest(ledger, ledger.tasks[next(iter(ledger.earlier.values()))])


def _forget_earliest(ledger: JobLedger, task: Task) -> None:
    forgotten, *rest = task.earlier
    task.earlier = tuple(rest)
    del ledger.earlier[forgotten.uid]
    ledger.faults_chars -= len(forgotten.details)


def _lives(ledger: JobLedger, index: int, attempt: Attempt) -> None:
    ledger.live[attempt.uid] = index
    ledger.requeued = False
    ledger.places.setdefault((attempt.worker_id, attempt.incarnation), {})[attempt.uid] = index


def _advanced(ledger: JobLedger, record: AttemptAdvanced) -> None:
    task = ledger.tasks[record.index]
    attempt = task.attempt
    assert attempt is not None
    assert attempt.uid == record.uid
    ledger.move(task.state, record.state)
    task.state = attempt.state = record.state
    if record.state is TaskState.RUNNING:
        _runs(ledger, attempt, record.wall_ns)
        if ledger.spec.timeout_ns:
            ledger.timed[record.uid] = record.wall_ns


def _runs(ledger: JobLedger, attempt: Attempt, wall_ns: int) -> None:
    attempt.started_wall_ns = wall_ns
    ledger.started_wall_ns = ledger.started_wall_ns or wall_ns


def _equipped(ledger: JobLedger, record: AttemptEquipped) -> None:
    task = ledger.tasks[record.index]
    for attempt in (*task.earlier, *(() if task.attempt is None else (task.attempt,))):
        if attempt.uid == record.uid:
            attempt.gpus = record.gpus


def _overran(ledger: JobLedger, record: AttemptOverran) -> None:
    attempt = ledger.tasks[record.index].attempt
    assert attempt is not None
    attempt.overran = True
    ledger.timed.pop(record.uid, None)


def _ended(ledger: JobLedger, record: AttemptEnded) -> None:
    task = ledger.tasks[record.index]
    attempt = task.attempt
    assert attempt is not None
    assert attempt.uid == record.uid
    ledger.move(task.state, record.then)
    task.state = record.then
    task.since_wall_ns = record.wall_ns
    task.failures += record.failure
    task.preemptions += record.preemption
    task.unstarted += record.unstarted
    task.logs_due = record.logs_due
    task.logs_lost = record.end.ending in LOST
    ledger.failures += record.failure
    ledger.preemptions += record.preemption
    attempt.end = record.end
    attempt.ended_wall_ns = record.wall_ns
    attempt.log_offset = record.log_offset
    ledger.faults_chars += len(record.end.details)
    if not attempt.started_wall_ns and (record.end.ending is Ending.SUCCEEDED or record.failure or record.preemption):
        _runs(ledger, attempt, record.wall_ns)  # too short to be seen running
    _blame(ledger, record.index, record.then)
    _is_over(ledger, attempt)
    if record.then is TaskState.PENDING:
        ledger.waiting[record.index] = None
    if record.logs_due:
        ledger.due[record.index] = record.uid


def _blame(ledger: JobLedger, index: int, state: TaskState) -> None:
    if state is TaskState.FAILED:
        ledger.culprit = index if ledger.culprit is None else min(index, ledger.culprit)


def _is_over(ledger: JobLedger, attempt: Attempt) -> None:
    if attempt.uid in ledger.away:
        del ledger.away[attempt.uid]
    else:
        _leaves(ledger, attempt)
    _is_to_drop(ledger, attempt.uid)
    ledger.moves.pop(attempt.uid, None)
    copies = ledger.copies.pop(attempt.uid, None)
    if copies is not None:
        for drop in left_of(attempt.uid, copies):
            ledger.drops[drop.key] = drop
    if ledger.assembly is Assembly.DISBANDING and not ledger.live:
        ledger.assembly = Assembly.NONE


def _leaves(ledger: JobLedger, attempt: Attempt) -> None:
    """Its worker does not have it any more."""
    del ledger.live[attempt.uid]
    ledger.reached.pop(attempt.uid, None)
    ledger.homes.pop(attempt.uid, None)
    place = (attempt.worker_id, attempt.incarnation)
    del ledger.places[place][attempt.uid]
    if not ledger.places[place]:
        del ledger.places[place]
    ledger.timed.pop(attempt.uid, None)
    ledger.unjudged.pop(attempt.uid, None)


def _is_to_drop(ledger: JobLedger, uid: str) -> None:
    drop = drop_of(uid, ledger.moves.get(uid))
    if drop is not None:
        ledger.drops[drop.key] = drop


def _moves(ledger: JobLedger, record: Any) -> None:
    """Apply what is known of an attempt's suspensions; have it with the worker that has it then, or with none."""
    attempt = ledger.tasks[record.index].attempt
    assert attempt is not None
    assert attempt.uid == record.uid
    match record:
        case AttemptDeserted() | AttemptSuspended() | AttemptUnplaced() if record.uid in ledger.live:
            _leaves(ledger, attempt)
            ledger.away[record.uid] = record.index
        case AttemptResuming(worker_id=worker_id, incarnation=incarnation):
            del ledger.away[record.uid]
            attempt.worker_id, attempt.incarnation = worker_id, incarnation
            _lives(ledger, record.index, attempt)
        case AttemptResumed() | SuspensionUndone(drop=True):
            _is_to_drop(ledger, record.uid)
    ledger.moves[record.uid] = after(ledger.moves.get(record.uid), (record,))
    if isinstance(record, AttemptResumed) and ledger.spec.timeout_ns and not attempt.overran:
        ledger.timed[record.uid] = _counted_from(ledger, attempt)
        ledger.timed = dict(sorted(ledger.timed.items(), key=lambda item: (item[1], ledger.live[item[0]])))


def _copies(ledger: JobLedger, record: Any) -> None:
    """Apply what is known of an attempt's copies; those that are kept no more are to be removed."""
    uid, keep = record.uid, ledger.spec.keep_checkpoints
    before = ledger.copies.get(uid)
    match record:
        case CopyFailed(drop=True) if before is not None:
            drop = DropCheckpoint(copy_key(uid, before.number))
            ledger.drops[drop.key] = drop
        case CheckpointPassedOver(number=number) if before is not None:
            for each in before.kept:
                if each.number == number:
                    drop = dropped(uid, each)
                    ledger.drops[drop.key] = drop
        case WentBack():
            _goes_back(ledger, record)
    ledger.copies[uid] = copies_after(before, record, keep)
    if isinstance(record, CopyMade) and before is not None:
        for each in outdated(before, keep):
            drop = dropped(uid, each)
            ledger.drops[drop.key] = drop


def _goes_back(ledger: JobLedger, record: WentBack) -> None:
    """Count the life that is over, and have the attempt without a worker."""
    task = ledger.tasks[record.index]
    attempt = task.attempt
    assert attempt is not None
    task.failures += record.failure
    task.preemptions += record.preemption
    ledger.failures += record.failure
    ledger.preemptions += record.preemption
    _is_to_drop(ledger, record.uid)
    if record.uid in ledger.live:
        _leaves(ledger, attempt)
        ledger.away[record.uid] = record.index
    kept = next(each for each in ledger.copies[record.uid].kept if each.number == record.number)
    ledger.moves[record.uid] = went_back(ledger.moves.get(record.uid), kept, record)


def _copies_kept(ledger: JobLedger, record: CopiesKept) -> None:
    attempt = ledger.tasks[record.index].attempt
    assert attempt is not None
    ledger.copies[attempt.uid] = copies_kept(record)


def _counted_from(ledger: JobLedger, attempt: Attempt) -> int:
    """Return when an attempt began to run, on the wall clock, as if it had never been suspended."""
    move = ledger.moves.get(attempt.uid)
    return attempt.started_wall_ns + (0 if move is None else move.paused_ns)


def _dropped(ledger: JobLedger, record: CheckpointDropped) -> None:
    ledger.drops.pop(record.key, None)


def _move_kept(ledger: JobLedger, record: SuspensionKept) -> None:
    task = ledger.tasks[record.index]
    attempt = task.attempt
    assert attempt is not None
    move = ledger.moves[attempt.uid] = kept(record)
    if move.away:
        _leaves(ledger, attempt)
        ledger.away[attempt.uid] = record.index
    elif move.stage is Stage.RESUMING:
        ledger.timed.pop(attempt.uid, None)
    elif attempt.uid in ledger.timed:
        ledger.timed[attempt.uid] = _counted_from(ledger, attempt)


def _keep_drop(drop: DropCheckpoint) -> CheckpointDue:
    return CheckpointDue(
        drop.key, drop.checkpoint, drop.node, drop.returns, drop.repository, drop.tried, drop.stores_failed
    )


def _drop_kept(ledger: JobLedger, record: CheckpointDue) -> None:
    ledger.drops[record.key] = DropCheckpoint(
        record.key,
        record.checkpoint,
        record.node,
        record.returns,
        record.repository,
        record.tried,
        record.stores_failed,
    )


def _settled(ledger: JobLedger, record: LogsSettled) -> None:
    task = ledger.tasks[record.index]
    task.logs_due = False
    task.logs_lost = not record.complete
    ledger.due.pop(record.index, None)


def _suspected(ledger: JobLedger, record: WorkerSuspected) -> None:
    ledger.suspects[record.worker_id, record.incarnation] = record.reason


def _returned(ledger: JobLedger, record: WorkerReturned) -> None:
    ledger.suspects.pop((record.worker_id, record.incarnation), None)


def _verdict(ledger: JobLedger, record: VerdictReached) -> None:
    ledger.verdict = record
    ledger.move(TaskState.PENDING, record.waiting, ledger.counts[TaskState.PENDING])
    ledger.waiting.clear()


def _assembly(ledger: JobLedger, record: GangAssembly) -> None:
    ledger.assembly = record.assembly


def _met(ledger: JobLedger, record: GangMet) -> None:
    ledger.met = record


def _job_ended(ledger: JobLedger, record: JobEnded) -> None:
    ledger.ended = record


def _kept(ledger: JobLedger, record: TaskKept) -> None:
    task = Task(
        record.state,
        record.since_wall_ns,
        record.failures,
        record.preemptions,
        record.unstarted,
        logs_due=record.logs_due,
        logs_lost=record.logs_lost,
    )
    ledger.tasks[record.index] = task
    ledger.move(TaskState.PENDING, record.state)
    ledger.failures += record.failures
    ledger.preemptions += record.preemptions
    attempt = task.attempt = _kept_attempt(record)
    ledger.faults_chars += len(attempt.details)
    _blame(ledger, record.index, record.state)
    if attempt.live:
        _lives(ledger, record.index, attempt)
        if attempt.started_wall_ns and ledger.spec.timeout_ns and not attempt.overran:
            ledger.timed[attempt.uid] = attempt.started_wall_ns
    elif record.state is TaskState.PENDING:
        ledger.waiting[record.index] = None
    if record.logs_due:
        ledger.due[record.index] = attempt.uid


def _kept_attempt(record: TaskKept | AttemptKept) -> Attempt:
    return Attempt(**{name: getattr(record, name) for name in _ATTEMPT_FIELDS}, state=record.attempt_state)


def _earlier_kept(ledger: JobLedger, record: AttemptKept) -> None:
    task, attempt = ledger.tasks[record.index], _kept_attempt(record)
    task.earlier = (*task.earlier, attempt)
    ledger.earlier[record.uid] = record.index
    ledger.faults_chars += len(attempt.details)


def _began(ledger: JobLedger, record: JobBegan) -> None:
    ledger.started_wall_ns = record.wall_ns


_ATTEMPT_FIELDS = tuple(field.name for field in attrs.fields(Attempt) if field.name not in ("state", "gpus"))

_EVOLVE: dict[type, Any] = {
    AttemptPlaced: _placed,
    AttemptAdvanced: _advanced,
    AttemptEquipped: _equipped,
    AttemptOverran: _overran,
    AttemptEnded: _ended,
    LogsSettled: _settled,
    WorkerSuspected: _suspected,
    WorkerReturned: _returned,
    VerdictReached: _verdict,
    GangAssembly: _assembly,
    GangMet: _met,
    JobEnded: _job_ended,
    TaskKept: _kept,
    AttemptKept: _earlier_kept,
    JobBegan: _began,
    CheckpointDropped: _dropped,
    CheckpointDue: _drop_kept,
    SuspensionKept: _move_kept,
    CopiesKept: _copies_kept,
    **dict.fromkeys(COPY_CHANGES, _copies),
    **dict.fromkeys(CHANGES, _moves),
}


def compact(ledger: JobLedger) -> Iterable[Any]:
    """Yield records from which :func:`evolve` builds an equal ledger.

    Tasks come in the order in which their state began, so that what is kept oldest first comes out so again: of those
    that began at one moment, too, as the tasks of a worker that was lost wait again.
    """
    if ledger.started_wall_ns:
        yield JobBegan(ledger.started_wall_ns)
    timed = {ledger.live[uid]: position for position, uid in enumerate(ledger.timed)}
    others = (index for index in ledger.tasks if index not in ledger.waiting)
    for index in (*sorted(others, key=lambda index: _age(ledger, index, timed)), *ledger.waiting):
        task = ledger.tasks[index]
        yield _keep((index, task))
        if task.attempt is not None and task.attempt.gpus:
            yield AttemptEquipped(index, task.attempt.uid, task.attempt.gpus)
        move = None if task.attempt is None else ledger.moves.get(task.attempt.uid)
        if move is not None:
            yield keep(index, move)
        copies = None if task.attempt is None else ledger.copies.get(task.attempt.uid)
        if copies is not None:
            yield keep_copies(index, copies)
    for drop in ledger.drops.values():
        yield _keep_drop(drop)
    for uid, index in ledger.earlier.items():
        earlier = next(each for each in ledger.tasks[index].earlier if each.uid == uid)
        yield _keep_earlier(index, earlier)
        if earlier.gpus:
            yield AttemptEquipped(index, uid, earlier.gpus)
    for (worker_id, incarnation), reason in ledger.suspects.items():
        yield WorkerSuspected(worker_id, incarnation, reason, 0)
    if ledger.assembly is not Assembly.NONE:
        yield GangAssembly(ledger.assembly)
    if ledger.met is not None:
        yield ledger.met
    if ledger.verdict is not None:
        yield ledger.verdict
    if ledger.ended is not None:
        yield ledger.ended


def _age(ledger: JobLedger, index: int, timed: Mapping[int, int]) -> tuple[int, int]:
    task = ledger.tasks[index]
    attempt = task.attempt
    running = task.state in TASK_LIVE and attempt is not None and attempt.started_wall_ns
    return (
        _counted_from(ledger, attempt) if running and attempt is not None else task.since_wall_ns,
        timed.get(index, index),
    )


def _keep(item: tuple[int, Task]) -> TaskKept:
    index, task = item
    attempt = task.attempt
    assert attempt is not None
    return TaskKept(
        index=index,
        state=task.state,
        since_wall_ns=task.since_wall_ns,
        failures=task.failures,
        preemptions=task.preemptions,
        unstarted=task.unstarted,
        logs_due=task.logs_due,
        logs_lost=task.logs_lost,
        attempt_state=attempt.state,
        **{name: getattr(attempt, name) for name in _ATTEMPT_FIELDS},
    )


def _keep_earlier(index: int, attempt: Attempt) -> AttemptKept:
    return AttemptKept(index=index, attempt_state=attempt.state, **{n: getattr(attempt, n) for n in _ATTEMPT_FIELDS})


def live_attempts(ledger: JobLedger) -> Iterator[tuple[int, Attempt]]:
    """Yield each live attempt that has a worker, with the index of its task."""
    for index in ledger.live.values():
        attempt = ledger.tasks[index].attempt
        assert attempt is not None
        yield index, attempt
