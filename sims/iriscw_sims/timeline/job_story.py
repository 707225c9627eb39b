"""What the records of jobs say, told to a recorder.

Theory of operation. The disk is the truth about jobs, so the lanes of jobs and tasks follow records as they become
durable, not what actors are about to write. A task waits, then has an attempt that is assigned, builds and runs; what
becomes of the attempt is the outcome of its last span, and the task waits again or is over.
"""

from __future__ import annotations

from typing import Any

import attrs

from iriscw.fleet.model import slice_of
from iriscw.jobs.messages import SubmitJob, TerminateJob
from iriscw.jobs.model import JOB_TERMINAL, TASK_TERMINAL, Ending, JobState, TaskState
from iriscw.jobs.records import (
    AttemptAdvanced,
    AttemptEnded,
    AttemptOverran,
    AttemptPlaced,
    JobAccepted,
    JobEnded,
    JobShown,
    LogsSettled,
    VerdictReached,
    WorkerReturned,
    WorkerSuspected,
)
from iriscw_sims.timeline.model import WAITING, Level, Tone
from iriscw_sims.timeline.recorder import Recorder

MAX_TASK_LANES = 256
"""Tasks of one job that have a lane before they are placed: as many rows as anybody scrolls through."""

_ENDINGS = {
    Ending.SUCCEEDED: "its process ended well",
    Ending.FAILED: "its process ended with an error",
    Ending.TIMED_OUT: "it ran longer than its job allows",
    Ending.WORKER_LOST: "its worker is gone",
    Ending.MISSING: "its worker is there and knows nothing of it",
    Ending.PREEMPTED: "it gave way to work of a higher band",
    Ending.REFUSED: "its worker could not start it",
    Ending.KILLED: "its job was stopped",
    Ending.GANG_STOPPED: "another member of its gang ended",
}
"""Why an attempt ended, where its record has no sentence of its own."""

_TONES = {Ending.SUCCEEDED: Tone.GOOD, Ending.KILLED: Tone.PLAIN, Ending.GANG_STOPPED: Tone.PLAIN}


@attrs.define
class _Attempt:
    """A live attempt, as its events are to name it."""

    label: str
    worker: str


class JobStory:
    """The jobs' part of a timeline."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._live: dict[str, _Attempt] = {}
        """By uid."""
        self._tasks: dict[str, dict[str, None]] = {}
        """The task lanes of each job that has not ended."""
        self.delivered = {SubmitJob: self._submitted, TerminateJob: self._terminated}
        """By the class of a message: what takes it, with the time."""
        self.durable = {
            JobAccepted: self._accepted,
            JobShown: self._shown,
            VerdictReached: self._verdict,
            JobEnded: self._ended,
            AttemptPlaced: self._placed,
            AttemptAdvanced: self._advanced,
            AttemptOverran: self._overran,
            AttemptEnded: self._attempt_ended,
            LogsSettled: self._logs,
            WorkerSuspected: self._suspected,
            WorkerReturned: self._returned,
        }
        """By the class of a record: what takes it, with the time and the path it was written under."""

    # Users

    def _submitted(self, at: int, message: Any) -> None:
        what = f"submits {message.spec.name}, {message.spec.replicas} tasks"
        self._recorder.event(at, f"user/{message.key}", what, "its user wants it", level=Level.DETAIL)

    def _terminated(self, at: int, message: Any) -> None:
        subject = f"job/{message.job_id}"
        if self._recorder.state(subject):
            self._recorder.event(at, subject, "is to stop", message.reason, level=Level.DETAIL)

    # Jobs

    def _accepted(self, at: int, path: str, record: Any) -> None:
        subject, spec = f"job/{record.job_id}", record.spec
        self._recorder.lane(subject, title=spec.name)
        gang = ", a gang" if spec.group_by is not None else ""
        why = f"submitted with {record.key}" + (f", in place of {record.replaces}" if record.replaces else "")
        what = f"accepted: {spec.name}, {spec.replicas} tasks{gang}"
        self._recorder.event(at, subject, what, why, about=(f"user/{record.key}",))
        self._recorder.enter(at, subject, _written(JobState.PENDING.value), why)
        self._tasks[record.job_id] = {}
        for index in range(min(spec.replicas, MAX_TASK_LANES)):
            self._recorder.enter(at, self._task(record.job_id, index), WAITING, "no worker was chosen for it yet")

    def _task(self, job_id: str, index: int) -> str:
        lane = f"task/{job_id}/{index}"
        self._recorder.lane(lane, f"job/{job_id}")
        if job_id in self._tasks:
            self._tasks[job_id][lane] = None
        return lane

    def _shown(self, at: int, path: str, record: Any) -> None:
        subject, state = f"job/{record.job_id}", _written(record.state.value)
        if record.state in JOB_TERMINAL or not self._recorder.state(subject):
            return
        if self._recorder.enter(at, subject, state, "its furthest task is"):
            self._recorder.event(at, subject, state, "its furthest task is", level=Level.DETAIL)

    def _verdict(self, at: int, path: str, record: Any) -> None:
        job_id = path.rpartition("/")[2]
        subject, state = f"job/{job_id}", _written(record.state.value)
        why = record.reason or "so its tasks say"
        self._recorder.event(at, subject, f"will end as {state}", why)
        if record.state is not JobState.SUCCEEDED:
            self._recorder.enter(at, subject, "stopping", why)
        tone = Tone.PLAIN if record.state is JobState.KILLED else Tone.BAD
        for lane in self._tasks.get(job_id, {}):
            if self._recorder.state(lane) == WAITING:
                self._recorder.leave(at, lane, why, outcome=_written(record.waiting.value), tone=tone)

    def _ended(self, at: int, path: str, record: Any) -> None:
        job_id = path.rpartition("/")[2]
        subject, state = f"job/{job_id}", _written(record.state.value)
        why = record.reason or "all of its tasks have"
        tone = {JobState.SUCCEEDED: Tone.GOOD, JobState.KILLED: Tone.PLAIN}.get(record.state, Tone.BAD)
        self._recorder.leave(at, subject, why, outcome=state, tone=tone)
        self._recorder.event(at, subject, state, why, tone=tone)
        for lane in self._tasks.pop(job_id, {}):
            self._recorder.leave(at, lane, f"its job is {state}")

    # Attempts

    def _placed(self, at: int, path: str, record: Any) -> None:
        job_id = path.rpartition("/")[2]
        lane, worker = self._task(job_id, record.index), f"worker/{record.worker_id}"
        label = f"attempt {record.number} ({record.uid})"
        why = f"the scheduler chose {record.worker_id}"
        self._live[record.uid] = _Attempt(label, worker)
        self._recorder.enter(at, lane, _written(TaskState.ASSIGNED.value), why, label=label)
        about = (worker, f"slice/{slice_of(record.worker_id)}")
        self._recorder.event(at, lane, f"{label} assigned", why, about=about)

    def _advanced(self, at: int, path: str, record: Any) -> None:
        lane, attempt = self._task(path.rpartition("/")[2], record.index), self._attempt(record.uid)
        state = _written(record.state.value)
        why = f"{attempt.worker.partition('/')[2]} says so"
        self._recorder.enter(at, lane, state, why, label=attempt.label)
        self._recorder.event(at, lane, f"{attempt.label} {state}", why, about=(attempt.worker,))

    def _overran(self, at: int, path: str, record: Any) -> None:
        lane, attempt = self._task(path.rpartition("/")[2], record.index), self._attempt(record.uid)
        why = "it ran longer than its job allows"
        self._recorder.event(at, lane, f"{attempt.label} is to stop", why, about=(attempt.worker,), tone=Tone.BAD)

    def _attempt_ended(self, at: int, path: str, record: Any) -> None:
        job_id = path.rpartition("/")[2]
        lane, attempt = self._task(job_id, record.index), self._live.pop(record.uid, _Attempt(record.uid, ""))
        outcome = _written(record.end.ending.value)
        why = record.end.reason or _ENDINGS.get(record.end.ending, outcome)
        counts = [name for name in ("failure", "preemption", "unstarted") if getattr(record, name)]
        counted = f" (counts as {counts[0]})" if counts else ""
        tone = _TONES.get(record.end.ending, Tone.BAD)
        self._recorder.leave(at, lane, why, outcome=outcome, tone=tone)
        about = (attempt.worker,) if attempt.worker else ()
        self._recorder.event(at, lane, f"{attempt.label} {outcome}{counted}", why, tone=tone, about=about)
        if record.then not in TASK_TERMINAL:
            self._recorder.enter(at, lane, WAITING, f"its last attempt: {why}")
        elif _written(record.then.value) != outcome:
            self._recorder.event(at, lane, f"task {_written(record.then.value)}", why, tone=tone)

    def _attempt(self, uid: str) -> _Attempt:
        return self._live.get(uid, _Attempt(uid, ""))

    def _logs(self, at: int, path: str, record: Any) -> None:
        lane = self._task(path.rpartition("/")[2], record.index)
        what = "all of its log is stored" if record.complete else "the end of its log is lost"
        self._recorder.event(at, lane, what, "the log store says so", level=Level.DETAIL)

    # Workers, as a job sees them

    def _suspected(self, at: int, path: str, record: Any) -> None:
        worker = f"worker/{record.worker_id}"
        about = (f"job/{path.rpartition('/')[2]}", f"slice/{slice_of(record.worker_id)}")
        self._recorder.event(at, worker, "out of reach", record.reason, tone=Tone.BAD, about=about)

    def _returned(self, at: int, path: str, record: Any) -> None:
        about = (f"job/{path.rpartition('/')[2]}", f"slice/{slice_of(record.worker_id)}")
        why = "it is back with its attempts, or none of them lives"
        self._recorder.event(at, f"worker/{record.worker_id}", "no longer out of reach", why, about=about)


def _written(state: str) -> str:
    return state.lower().replace("_", " ")
