"""A controller that does what its fields say, and notes what it was asked."""

import hashlib

import anyio

from iriscw._errors import JournalFull
from iriscw.jobs.errors import JobExists, NoSuchJob
from iriscw.proto.iriscw.v1 import (
    Amount,
    AttemptStatus,
    AttributeValue,
    ClusterStatus,
    ControllerServiceBase,
    Fault,
    JobCount,
    JobState,
    JobStatus,
    ListJobsResponse,
    ListPoolsResponse,
    ListSlicesResponse,
    ListTasksResponse,
    LogBatch,
    PoolAvailability,
    PoolStatus,
    PriorityBand,
    ProcessExit,
    ResultPart,
    ResultRef,
    SliceCount,
    SliceState,
    SliceStatus,
    SubmitJobResponse,
    Suspension,
    TaskCount,
    TaskState,
    TaskStatus,
    TaskSuspension,
    TerminateJobResponse,
    WorkerStatus,
)
from iriscw.rpc.context import call_context
from iriscw.rpc.errors import RpcUnavailable
from iriscw.rpc.tokens import ClusterTokens, Secret
from iriscw.task.result import encode_value

TOKEN = "admin-token"
TokensOfDouble = ClusterTokens(Secret("cluster-secret"), admins=[Secret(TOKEN)]).authenticate


def job_of(state=JobState.RUNNING, *, number=1, version=1, **more):
    """Return the status of a job as the wire has it."""
    fields = {
        "job_id": f"job-{number}",
        "job_uid": f"uid-{number}",
        "name": f"name-{number}",
        "num_tasks": 2,
        "tasks": [TaskCount(state=TaskState.RUNNING, count=2)],
        "priority": PriorityBand.BATCH,
        "resources": Amount(cpu_milli=500, memory_bytes=1024),
        "submitted_at_ms": 5,
    }
    return JobStatus(state=state, version=version, **{**fields, **more})


def failed_task(index, text):
    """Return the status of a task whose one attempt failed with ``text``."""
    attempt = AttemptStatus(
        attempt_uid=f"a{index}",
        state=TaskState.FAILED,
        worker_id="w1",
        exit=ProcessExit(code=1),
        fault=Fault(kind="ValueError", text=text),
        log_end_offset=3,
    )
    return TaskStatus(task_id=f"job-1/{index}", task_index=index, state=TaskState.FAILED, attempts=[attempt])


def parts_of(index, value, size=7):
    """Return a value's parts of ``size`` bytes."""
    data = encode_value(value)
    ref = ResultRef(size_bytes=len(data), sha256=hashlib.sha256(data).digest())
    return [
        ResultPart(task_index=index, offset=at, data=data[at : at + size], result=ref)
        for at in range(0, len(data), size)
    ]


class Break:
    """In a script: the stream breaks here, once."""

    def __init__(self, error=None):
        self.done = False
        self.error = error or RpcUnavailable("the controller restarts")


class ControllerDouble(ControllerServiceBase):
    """The scripts are lists of what streams give, in order."""

    def __init__(self):
        self.submitted = []
        self.keys = []
        self.by_key = {}
        self.fail_submits = 0
        self.refusal = "the disk of /j is full"
        self.job = job_of()
        self.statuses = []
        self.logs = []
        self.log_requests = []
        self.parts = []
        self.endpoints = []
        self.tasks = []
        self.later = []
        """The only task, as each look at it finds it."""
        self.asked = []
        self.terminated = []
        self.commands = []
        """What a command says; who breaks off is asked once only."""
        self.page = 2
        self.all_jobs = [job_of(number=number) for number in range(5)]
        self.slices = []

    async def submit_job(self, message):
        key = call_context().idempotency_key
        self.keys.append((key, message.idempotency_key))
        if message.name == "taken":
            raise JobExists("a job called 'taken' has not ended")
        if key not in self.by_key:
            self.submitted.append(message)
            self.by_key[key] = SubmitJobResponse(job_id="job-1", job_uid="uid-1", created=True)
        if len(self.keys) <= self.fail_submits:
            raise JournalFull(self.refusal)
        return self.by_key[key]

    async def get_job(self, message):
        if message.job.job_id == self.job.job_id:
            return self.job
        raise NoSuchJob(f"there is no job {message.job.job_id!r}")

    async def list_jobs(self, message):
        start = int(message.page_token or 0)
        rows = self.all_jobs[start : start + self.page]
        more = start + self.page < len(self.all_jobs)
        return ListJobsResponse(jobs=rows, next_page_token=str(start + self.page) if more else "")

    async def suspend_task(self, message):
        return self._begun(message, Suspension.SUSPENDING)

    async def resume_task(self, message):
        return self._begun(message, Suspension.RESUMING)

    def _begun(self, message, phase):
        self.asked.append(message)
        return TaskSuspension(attempt_uid="a0", phase=phase)

    async def list_tasks(self, message):
        if self.later:
            self.tasks = [self.later.pop(0)]
        wanted = [task for task in self.tasks if not message.states or task.state in message.states]
        return ListTasksResponse(tasks=wanted)

    async def terminate_job(self, message):
        self.terminated.append((message.job.job_id, message.reason, call_context().idempotency_key))
        self.job = job_of(JobState.KILLED, version=9)
        return TerminateJobResponse(state=JobState.RUNNING)

    async def watch_job(self, message):
        async for status in self._script(self.statuses):
            yield status
        if not self.statuses or self.statuses[-1].state is JobState.RUNNING:
            await anyio.sleep_forever()

    async def watch_endpoints(self, message):
        self.asked.append(message)
        while self.endpoints:  # what was told before a break is not told again
            update = self.endpoints.pop(0)
            if isinstance(update, Break):
                raise update.error
            yield update
        if message.follow:
            await anyio.sleep_forever()

    async def fetch_logs(self, message):
        self.log_requests.append(message)
        seen = {cursor.attempt_uid: cursor.offset for cursor in message.cursors}
        async for batch in self._script(self.logs):
            skip = max(0, seen.get(batch.attempt_uid, 0) - batch.offset)
            if skip < len(batch.data) or batch.at_end:
                yield LogBatch(
                    task_index=batch.task_index,
                    attempt_uid=batch.attempt_uid,
                    offset=batch.offset + min(skip, len(batch.data)),
                    data=batch.data[skip:],
                    at_end=batch.at_end,
                )

    async def exec_task(self, message):
        self.asked.append(message)
        async for reply in self._script(self.commands):
            yield reply

    async def get_results(self, message):
        async for part in self._script(self.parts):
            yield part

    async def _script(self, items):
        for item in items:
            if isinstance(item, Break):
                if not item.done:
                    item.done = True
                    raise item.error
                continue
            yield item

    async def list_slices(self, message):
        worker = WorkerStatus(
            worker_id="s1-0",
            connected=True,
            capacity=Amount(cpu_milli=2000),
            attributes={"python": AttributeValue(text="3.11"), "rank": AttributeValue(number=3)},
        )
        return ListSlicesResponse(
            slices=[SliceStatus(slice_id="s1", scale_group="g", state=SliceState.READY, workers=[worker])]
        )

    async def list_pools(self, message):
        pool = PoolStatus(
            scale_group="g",
            availability=PoolAvailability.AT_MAX_SLICES,
            max_slices=3,
            slices=[SliceCount(state=SliceState.READY, count=1)],
        )
        return ListPoolsResponse(pools=[pool])

    async def get_cluster_status(self, message):
        return ClusterStatus(
            name="double", platform="local", jobs=[JobCount(state=JobState.RUNNING, count=2)], slices=1
        )
