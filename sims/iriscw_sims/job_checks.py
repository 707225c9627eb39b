"""What must always hold of jobs, judged by what really runs and what is really on the disk.

========  ============================================================================================
INV-J1    an acknowledged job is on the disk, and ends in one state, the right one
INV-J2    one process per task; an attempt that is called over has none, and gets none
INV-J3    what is committed is the sum over attempts, within capacity, and all comes back
INV-J4    a gang is placed together, and nothing of it is ordered before all of it is on the disk
INV-J5    failures and losses count against their own budgets, what never ran against neither
INV-J7    a task that waits has a reason
INV-J8    the last log line is stored before the task's end is shown as complete
INV-J10   a worker is called silent only after real silence; a stall of the controller is none
INV-J11   what is gone for certain is not waited for: an attempt without a pod is over soon
INV-R9    orders leave only when the attempt's placement is on the disk
========  ============================================================================================

Those of attempts that are suspended and resumed stand in :mod:`iriscw_sims.move_checks`, those of attempts that give
way to work of a higher band in :mod:`iriscw_sims.band_checks`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from iriscw.cloud.model import Attributes, Capacity
from iriscw.fleet.messages import WorkerLost
from iriscw.fleet.model import SLICE_ID, pod_name, slice_name, slice_of
from iriscw.fleet.pods import WorkerPlace
from iriscw.jobs.keeping.records import WentBack
from iriscw.jobs.messages import AttemptsOver, JobChanged, JobView, TaskChanged
from iriscw.jobs.model import JOB_TERMINAL, TASK_TERMINAL, Ending, JobSpec, JobState, Orders, TaskState
from iriscw.jobs.records import (
    AttemptEnded,
    AttemptPlaced,
    JobAccepted,
    JobEnded,
    JobFinished,
    JobForgotten,
    VerdictReached,
    load_spec,
)
from iriscw.jobs.scheduling.state import Scheduler
from iriscw.jobs.suspension.messages import SuspensionChanged
from iriscw.runtime.cell import Cell
from iriscw.runtime.vocabulary import SECOND

if TYPE_CHECKING:
    from iriscw_sims.attempts import SimAttempt
    from iriscw_sims.workers import SimWorker
    from iriscw_sims.world import World


EVENTS_KEPT = 10_000
"""Public events that a run keeps for whoever looks at it afterwards; beyond, it begins anew."""


HEARD: Final = frozenset({AttemptsOver, WorkerLost})
"""The messages that :meth:`JobChecks.delivered` has something to say about; it is not asked about others."""


@attrs.define(eq=False)
class Gathering:
    """One placement of a gang."""

    size: int
    """How many tasks had to be placed when it began."""
    placed: int = 0
    lost: str = ""
    """A member that ended before all were placed."""


@attrs.define
class TruthOfAttempt:
    """An attempt as the disk and the world have it."""

    job_id: str
    index: int
    worker_id: str
    incarnation: str
    gathering: Gathering | None = None
    """Of a gang's member: the placement that it is part of."""
    away: bool = False
    """Whether it has no worker by the disk: it is suspended."""
    over: bool = False
    """Whether the disk says that it ended."""
    log_bytes: int = 0
    ending: Ending | None = None
    """How the disk says that it ended."""


@attrs.define
class TruthOfTask:
    """A task's budgets, counted anew from the endings on the disk."""

    failures: int = 0
    preemptions: int = 0
    live: str = ""


@attrs.define
class TruthOfJob:
    """A job as the disk and the world have it."""

    spec: JobSpec
    tasks: dict[int, TruthOfTask] = attrs.field(factory=dict)
    verdict: JobState | None = None
    ended: JobState | None = None
    succeeded: dict[int, None] = attrs.field(factory=dict)
    """Tasks of which a process really ended well."""
    over_well: dict[int, None] = attrs.field(factory=dict)
    """Tasks of which the disk says so."""
    terminated: bool = False
    uids: list[str] = attrs.field(factory=list)
    """Of all its attempts."""


@attrs.define(eq=False)
class Process:
    """What really runs."""

    worker: SimWorker
    attempt: SimAttempt


class JobChecks:
    """The checks, fed with what happens."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.jobs: dict[str, TruthOfJob] = {}
        self.attempts: dict[str, TruthOfAttempt] = {}
        self.running: dict[str, Process] = {}
        """By uid."""
        self.running_of_task: dict[tuple[str, int], dict[str, None]] = {}
        """The same by job and index: one at most, or INV-J2 is broken."""
        self.running_on: dict[str, dict[str, Process]] = {}
        """The same by slice."""
        self.live_on: dict[str, dict[str, None]] = {}
        """The attempts that have not ended by the disk, by slice."""
        self.started: dict[str, None] = {}
        self.truth: dict[str, Ending] = {}
        """How processes, and attempts that never had one, really ended."""
        self.acknowledged: dict[str, None] = {}
        self.live: dict[str, TruthOfAttempt] = {}
        """The attempts that have not ended by the disk."""
        self.gone_since: dict[str, int] = {}
        """Since when the pod of such an attempt is gone."""
        self.last_end_on_slice: dict[str, int] = {}
        self.heard: dict[str, dict[str, int]] = {}
        """Attentive time of the last contact, by slice and pod name."""
        self.shown: dict[str, JobState] = {}
        self.events_seen = 0
        """How many of the system's public events were looked at."""

    def broken(self, invariant: str, what: str) -> None:
        """Note that an invariant does not hold."""
        self.world.violate(invariant, what)

    # What really runs

    def process_started(self, worker: SimWorker, attempt: SimAttempt) -> None:
        """The user's code of an attempt begins."""
        order = attempt.order
        known = self.attempts.get(order.uid)
        if known is None:
            self.broken("R9", f"{order.uid} starts and is not on the disk")
        elif known.over:
            self.broken("J2", f"{order.uid} starts, and the disk says that it ended")
        if order.uid in self.started:
            self.broken("J2", f"{order.uid} starts twice")
        self.started[order.uid] = None
        self.world.move_checks.started(order.uid)
        self._runs(worker, attempt)

    def _runs(self, worker: SimWorker, attempt: SimAttempt) -> None:
        """A process is there from now on: INV-J2 and J3, by what really runs."""
        order = attempt.order
        task = self.running_of_task.setdefault((order.job_id, order.index), {})
        for uid in task:
            self.broken("J2", f"{order.uid} runs while {uid} runs task {order.index} of {order.job_id}")
        task[order.uid] = None
        process = self.running[order.uid] = Process(worker, attempt)
        on_slice = self.running_on.setdefault(worker.slice_id, {})
        on_slice[order.uid] = process
        taken = Capacity()
        for each in on_slice.values():
            if each.worker is worker:
                taken = taken.plus(each.attempt.order.spec.demand)
        if not worker.capacity.fits(taken):
            self.broken("J3", f"{worker.worker_id} runs more than it has: {taken.lacking(worker.capacity)}")

    def process_frozen(self, attempt: SimAttempt) -> None:
        """Nothing of an attempt runs any more, and it has not ended."""
        self._runs_no_more(attempt)
        self.world.move_checks.frozen(attempt.order.uid)

    def process_thawed(self, worker: SimWorker, attempt: SimAttempt) -> None:
        """An attempt that was frozen runs again."""
        self.world.move_checks.thawed(worker, attempt.order.uid)
        self._runs(worker, attempt)

    def _runs_no_more(self, attempt: SimAttempt) -> None:
        order = attempt.order
        process = self.running.get(order.uid)
        if process is not None and process.attempt is attempt:
            del self.running[order.uid]
            _take_out(self.running_of_task, (order.job_id, order.index), order.uid)
            _take_out(self.running_on, process.worker.slice_id, order.uid)
        known = self.attempts.get(order.uid)
        if known is not None:
            known.log_bytes = max(known.log_bytes, attempt.log_bytes)

    def process_ended(self, attempt: SimAttempt, ending: Ending) -> None:
        """An attempt is really over."""
        order = attempt.order
        self._runs_no_more(attempt)
        self.truth[order.uid] = ending
        if ending is Ending.SUCCEEDED and order.job_id in self.jobs:
            self.jobs[order.job_id].succeeded[order.index] = None

    def live_on_slice(self, slice_id: str) -> list[str]:
        """Return the attempts that live on a slice, by the disk or in truth."""
        return [*self.live_on.get(slice_id, ()), *self.running_on_slice(slice_id)]

    def running_on_slice(self, slice_id: str) -> list[str]:
        """Return the attempts that really run on a slice."""
        return list(self.running_on.get(slice_id, ()))

    # What leaves the controller

    def ordered(self, worker: SimWorker, orders: Orders) -> None:
        """Orders leave the process: what they rest on must be on the disk."""
        for order in orders.run:
            known = self.attempts.get(order.uid)
            if known is None:
                self.broken("R9", f"{worker.worker_id} is told to run {order.uid}, whose placement is not on the disk")
            elif known.gathering is not None and known.gathering.placed < known.gathering.size:
                what = f"{known.gathering.placed} of {known.gathering.size} members are on the disk"
                self.broken("J4", f"{worker.worker_id} is told to run {order.uid} of {known.job_id}, and {what}")
        self.world.move_checks.ordered(worker, orders)
        for uid in orders.release:
            known = self.attempts.get(uid)
            if known is not None and not known.over and not self.world.move_checks.may_forget(worker, uid, known):
                self.broken("R9", f"{worker.worker_id} may forget {uid}, whose end is not on the disk")

    def events(self) -> None:
        """Look at what was published since the last look."""
        events = self.world.system.events
        while self.events_seen < len(events):
            event = events[self.events_seen]
            self.events_seen += 1
            if isinstance(event, JobChanged):
                self._job_shown(event)
            elif isinstance(event, TaskChanged) and event.state in TASK_TERMINAL:
                self._task_shown(event)
            elif isinstance(event, SuspensionChanged):
                self.world.move_checks.shown(event)
        if len(events) > EVENTS_KEPT:
            del events[:]
            self.events_seen = 0

    def _job_shown(self, event: JobChanged) -> None:
        last = self.shown.get(event.job_id)
        if last in JOB_TERMINAL and event.state is not last:
            self.broken("J1", f"{event.job_id} was shown as {last} and is shown as {event.state} now")
        self.shown[event.job_id] = event.state
        if event.state in JOB_TERMINAL and self.jobs[event.job_id].ended is not event.state:
            self.broken("R9", f"{event.job_id} is shown as {event.state}, and its end is not on the disk")

    def _task_shown(self, event: TaskChanged) -> None:
        known = self.attempts.get(event.uid)
        if known is None:
            return
        if not known.over:
            self.broken("R9", f"task {event.index} of {event.job_id} is shown as over; its end is not on the disk")
        stored = self.world.workers.logs.stored.get(event.uid, 0)
        if event.logs_complete and stored < known.log_bytes:
            self.broken("J8", f"{event.uid} is shown as over with {stored} of {known.log_bytes} log bytes stored")

    # What is on the disk

    def durable(self, path: str, record: Any) -> None:
        """A record reached the disk."""
        job_id = path.rpartition("/")[2]
        match record:
            case JobAccepted():
                self.jobs[record.job_id] = TruthOfJob(load_spec(record.spec))
                if record.replaces in self.jobs:
                    self.jobs[record.replaces].terminated = True
            case AttemptPlaced():
                self._placed(job_id, record)
            case AttemptEnded():
                self._ended(job_id, record)
            case VerdictReached(state=state):
                self.jobs[job_id].verdict = state
            case JobEnded(state=state):
                self._job_ended(job_id, state)
            case JobFinished(job_id=finished, state=state):
                if self.jobs[finished].ended is not state:
                    self.broken("J1", f"{finished} ended as {self.jobs[finished].ended} and is listed as {state}")
            case JobForgotten(job_id=forgotten):
                self._forgotten(forgotten)

    def _forgotten(self, job_id: str) -> None:
        """A job is listed no more: whatever still comes of it would be a mistake."""
        job = self.jobs.pop(job_id)
        if job.ended is None:
            self.broken("J1", f"{job_id} is forgotten and has not ended")
        self.acknowledged.pop(job_id, None)
        self.shown.pop(job_id, None)
        for uid in job.uids:
            del self.attempts[uid]
            self.started.pop(uid, None)
            self.truth.pop(uid, None)

    def _placed(self, job_id: str, record: AttemptPlaced) -> None:
        task = self.jobs[job_id].tasks.setdefault(record.index, TruthOfTask())
        if task.live:
            self.broken("J2", f"task {record.index} of {job_id} gets {record.uid} while {task.live} lives")
        task.live = record.uid
        attempt = TruthOfAttempt(job_id, record.index, record.worker_id, record.incarnation)
        if self.jobs[job_id].spec.group_by is not None:
            self._joins(job_id, record.uid, attempt)
        self.attempts[record.uid] = self.live[record.uid] = attempt
        self.jobs[job_id].uids.append(record.uid)
        self.live_on.setdefault(slice_of(record.worker_id), {})[record.uid] = None
        self.world.fleet_checks.placed(record.worker_id)

    def _joins(self, job_id: str, uid: str, attempt: TruthOfAttempt) -> None:
        """INV-J4: a gang is placed as a whole, on workers that share what it asks for."""
        job = self.jobs[job_id]
        by = str(job.spec.group_by)
        for task in job.tasks.values():
            other = self.attempts.get(task.live)
            if other is None:
                continue
            attempt.gathering = attempt.gathering or other.gathering
            if self._shared(by, other.worker_id) != self._shared(by, attempt.worker_id):
                self.broken("J4", f"{uid} of {job_id} is on {attempt.worker_id}, {task.live} on {other.worker_id}")
        gathering = attempt.gathering
        if gathering is None:
            gathering = attempt.gathering = Gathering(job.spec.replicas - len(job.over_well))
        elif gathering.placed >= gathering.size:
            self.broken("J4", f"{uid} of {job_id} joins a gang that was whole before")
        elif gathering.lost:
            self.broken("J4", f"{uid} of {job_id} joins a gang that lost {gathering.lost} before it was whole")
        gathering.placed += 1

    def _shared(self, attribute: str, worker_id: str) -> object:
        """Return a worker's value of the attribute that the members of a gang share; groups say all but its slice."""
        slice_id = slice_of(worker_id)
        if attribute == SLICE_ID:
            return slice_id
        unique = slice_id.rpartition("-")[2]
        (group,) = (each for each in self.world.plan.groups if slice_name(each.name, unique) == slice_id)
        return group.attributes.merged(Attributes({"group": group.name})).get(attribute)

    def _ended(self, job_id: str, record: AttemptEnded) -> None:
        job, known = self.jobs[job_id], self.attempts[record.uid]
        task = job.tasks[record.index]
        known.over, known.ending, task.live = True, record.end.ending, ""
        gathering = known.gathering
        if gathering is not None and gathering.placed < gathering.size:
            gathering.lost = gathering.lost or record.uid
        if record.then is TaskState.SUCCEEDED:
            job.over_well[record.index] = None
        del self.live[record.uid]
        if not known.away:
            self.leaves(record.uid, known)
        process = self.running.get(record.uid)
        if process is not None:
            self.broken("J2", f"{record.uid} is called over ({record.end.ending.value}) and still runs")
        task.failures += record.failure
        task.preemptions += record.preemption
        self._counted(job_id, job, task, record)

    def went_back(self, job_id: str, record: WentBack) -> None:
        """A life of an attempt is over, and counts as the end of the attempt would."""
        job = self.jobs[job_id]
        task = job.tasks[record.index]
        if task.live != record.uid:
            self.broken("J2", f"{record.uid} of {job_id} goes back, and {task.live} lives")
        task.failures += record.failure
        task.preemptions += record.preemption
        ended = AttemptEnded(
            index=record.index,
            uid=record.uid,
            end=record.end,
            then=TaskState.PENDING,
            wall_ns=record.wall_ns,
            failure=record.failure,
            preemption=record.preemption,
            unstarted=False,
            log_offset=record.log_offset,
            logs_due=False,
        )
        self._counted(job_id, job, task, ended)
        self.truth.pop(record.uid, None)
        known = self.attempts[record.uid]
        if record.end.ending is Ending.FAILED and record.log_offset < known.log_bytes:
            self.broken("J8", f"{record.uid} wrote {known.log_bytes} log bytes, and goes on at {record.log_offset}")
        known.log_bytes = record.log_offset  # what a life wrote that was lost with its worker is lost as well

    def leaves(self, uid: str, known: TruthOfAttempt) -> None:
        """By the disk an attempt is its worker's no more."""
        _take_out(self.live_on, slice_of(known.worker_id), uid)
        self.gone_since.pop(uid, None)

    def _counted(self, job_id: str, job: TruthOfJob, task: TruthOfTask, record: AttemptEnded) -> None:
        """INV-J5, from the truth alone."""
        what = f"task {record.index} of {job_id}, {record.uid}"
        truth, spec = self.truth.get(record.uid), job.spec
        if record.failure and record.preemption:
            self.broken("J5", f"{what} counts against both budgets")
        if (record.failure or record.preemption) and record.uid not in self.started:
            self.broken("J5", f"{what} never ran and counts against a budget")
        if record.failure and truth not in (Ending.FAILED, Ending.TIMED_OUT):
            self.broken("J5", f"{what} ended as {truth} and counts as a failure")
        if record.preemption and record.end.ending is truth and truth in (Ending.FAILED, Ending.TIMED_OUT):
            self.broken("J5", f"{what} ended as {truth} and counts as a loss")
        ran = record.uid in self.started and record.end.ending is truth and job.verdict is None
        if ran and truth in (Ending.FAILED, Ending.TIMED_OUT) and not record.failure:
            self.broken("J5", f"{what} ended as {truth} and does not count")
        if job.verdict is None:
            if record.failure:
                spent = task.failures > spec.max_retries_failure
                if spent != (record.then is TaskState.FAILED):
                    self.broken("J5", f"{what} is {record.then} after {task.failures} failures")
            if record.preemption:
                spent = task.preemptions > spec.max_retries_preemption
                if spent != (record.then in (TaskState.WORKER_FAILED, TaskState.PREEMPTED)):
                    self.broken("J5", f"{what} is {record.then} after {task.preemptions} losses")
        if record.then is TaskState.SUCCEEDED and record.index not in job.succeeded:
            self.broken("J1", f"{what} is called a success, and no process of it ended well")

    def _job_ended(self, job_id: str, state: JobState) -> None:
        job = self.jobs[job_id]
        if job.ended is not None:
            self.broken("J1", f"{job_id} ended as {job.ended} and again as {state}")
        job.ended = state
        live = [task.live for task in job.tasks.values() if task.live]
        if live:
            self.broken("J1", f"{job_id} ended while {live} live")
        spec = job.spec
        failed = sum(task.failures > spec.max_retries_failure for task in job.tasks.values())
        lost = sum(task.preemptions > spec.max_retries_preemption for task in job.tasks.values())
        right = {
            JobState.SUCCEEDED: len(job.succeeded) + spec.max_task_failures >= spec.replicas,
            JobState.FAILED: failed > spec.max_task_failures or (spec.group_by is not None and failed > 0),
            JobState.KILLED: job.terminated,
            JobState.WORKER_FAILED: lost > 0,
            JobState.UNSCHEDULABLE: spec.scheduling_timeout_ns > 0,
        }
        if not right.get(state, False):
            self.broken("J1", f"{job_id} ended as {state}: {failed} tasks failed, {lost} were lost, of {spec.replicas}")

    # What the client sees

    def acknowledge(self, job_id: str) -> None:
        """A submission was answered."""
        self.acknowledged[job_id] = None
        if job_id not in self.jobs:
            self.broken("J1", f"{job_id} was acknowledged and is not on the disk")

    def described(self, view: JobView) -> None:
        """Somebody asked how a job is."""
        pending = dict(view.counts).get(TaskState.PENDING, 0)
        if pending and view.state not in JOB_TERMINAL and not view.reason and not view.pending_reason:
            self.broken("J7", f"{view.job_id} has {pending} tasks that wait for no reason")

    def explained(self, view: JobView) -> None:
        """The same, when all has been quiet for long enough that the fleet has said what it does."""
        said = view.pending_reason
        known = "; " in said or "about to be placed" in said or "waits for the job" in said
        if said and not known and "no worker is connected" in said:
            self.broken("J7", f"{view.job_id} waits and is told only: {said}")

    # Liveness

    def gone(self) -> None:
        """INV-J11, once in a while: find attempts that are waited for although their pods are gone."""
        world = self.world
        if world.system.crashed:
            return
        for uid, each in self.live.items():
            pod = world.cloud.pods.get(pod_name(each.worker_id, each.incarnation))
            if each.away or (pod is not None and not pod.over):
                self.gone_since.pop(uid, None)
                continue
            since = max(self.gone_since.setdefault(uid, world.simulation.now), world.disturbed_until)
            waited = world.simulation.now - since
            if waited > world.pace.gone_bound:
                promised = slice_of(each.worker_id) in world.fleet_checks.promised
                what = f"{uid} of {each.job_id} lives by the disk, and {each.worker_id}-{each.incarnation} is gone"
                self.broken("J11", f"{what} for {waited // SECOND} s, its slice {'is not' if promised else 'is'}")

    def contact(self, worker: SimWorker) -> None:
        """Something of a worker reached the controller."""
        self.heard.setdefault(worker.slice_id, {})[worker.pod_name] = self.world.attentive

    def forget_slice(self, slice_id: str) -> None:
        """A slice is gone for so long that nobody speaks of it any more."""
        self.last_end_on_slice.pop(slice_id, None)
        self.heard.pop(slice_id, None)

    def delivered(self, cell: Cell, message: Any) -> None:
        """An actor is about to decide on a message."""
        if isinstance(message, AttemptsOver):
            for uid in message.uids:
                self._idle_from_now(uid)
        if isinstance(message, WorkerLost) and message.reason.startswith("no contact") and not message.fenced:
            pod = f"{message.worker_id}-{message.incarnation}"
            slice_id = slice_of(message.worker_id)
            silent = self.world.attentive - self.heard.get(slice_id, {}).get(pod, 0)
            group = self.world.fleet_checks.ever[slice_id]
            if silent < self.world.group(group).timing.liveness_timeout - SECOND:
                self.broken("J10", f"{pod} is given up ({message.reason}) and was heard {silent // SECOND} s ago")

    def _idle_from_now(self, uid: str) -> None:
        """Note the end of an attempt for the idle clock of its slice: as the scheduler hears it, not the disk."""
        known = self.attempts.get(uid)
        if known is None:
            return
        place = (known.worker_id, known.incarnation)
        if known.away:  # room may be held for it all the same, for a moment; if not, its slice has been idle since
            state = self.world.system.state("/jobs/scheduler")
            host = state.inventory.where.get(uid) if isinstance(state, Scheduler) else None
            if host is None:
                return
            place = (host.info.worker_id, host.info.incarnation)
        slice_id = slice_of(place[0])
        group = self.world.fleet_checks.ever.get(slice_id, "")
        believed = self.world.system.state(f"/fleet/{group}/{slice_id}/{place[0]}")
        present = isinstance(believed, WorkerPlace) and believed.incarnation == place[1]  # its pod may be gone, untold
        if present or "-".join(place) in self.world.workers.by_pod:
            # What an earlier incarnation ran does not touch the idle clock of the present one.
            self.last_end_on_slice[slice_id] = self.world.simulation.now

    # The scheduler

    def scheduler(self) -> int:
        """INV-J3: what is committed is the sum over attempts, and within capacity. Give of how many workers."""
        state = self.world.system.state("/jobs/scheduler")
        if not isinstance(state, Scheduler):
            return 0
        for host in state.inventory.hosts.values():
            whole, free = host.info.capacity, host.free
            cpu, memory, disk, gpus = whole.cpu_milli, whole.memory_bytes, whole.disk_bytes, whole.gpu_count
            for each in host.commitments.values():
                taken = each.demand
                cpu -= taken.cpu_milli
                memory -= taken.memory_bytes
                disk -= taken.disk_bytes
                gpus -= taken.gpu_count
            left = self.world.band_checks.free(state, host, Capacity(cpu, memory, disk, gpus))
            kept = (left.cpu_milli, left.memory_bytes, left.disk_bytes, left.gpu_count)
            same = (free.cpu_milli, free.memory_bytes, free.disk_bytes, free.gpu_count) == kept
            if cpu < 0 or memory < 0 or gpus < 0 or not same or free.gpu_class != whole.gpu_class:
                by_attempts = Capacity(cpu, memory, disk, gpus, whole.gpu_class)
                self.broken("J3", f"{host.info.worker_id} has {free} left, by its attempts {by_attempts}")
        self.world.move_checks.scheduler(state)
        self.world.band_checks.scheduler(state)
        return len(state.inventory.hosts)

    def committed(self) -> str:
        """Say what is still committed; empty if nothing is."""
        state = self.world.system.state("/jobs/scheduler")
        if not isinstance(state, Scheduler) or state.syncing:
            return "the scheduler has not started"
        held = [*state.inventory.where, *state.absent_of, *state.older]
        return f"still committed: {held}" if held else ""

    def unfinished(self) -> str:
        """Say which job has not ended; empty if all have."""
        waiting = [job_id for job_id, job in self.jobs.items() if job.ended is None]
        if waiting:
            return f"not ended: {waiting}"
        missing = [job_id for job_id in self.acknowledged if job_id not in self.jobs]
        if missing:
            return f"lost: {missing}"
        return f"processes are left: {list(self.running)}" if self.running else ""


def _take_out(index: dict[Any, dict[str, Any]], key: Any, uid: str) -> None:
    """Take a uid out of an index that holds no empty entries."""
    del index[key][uid]
    if not index[key]:
        del index[key]
