"""Suspending and resuming by the clients' door: who may, what is refused, what a suspended task keeps from others."""

from types import SimpleNamespace

import anyio
import pytest
from controller_world import CLIENTS
from doors.test_agents import until_state
from test_moving import SUPERVISOR, agent_of, running, suspending

from iriscw._errors import ActorStopped, InvalidArgument, NoSuchActor
from iriscw.controller.doors.freezing import NodesDoor, _stays
from iriscw.controller.errors import JobUnavailable
from iriscw.jobs.errors import TaskNotRunning
from iriscw.jobs.messages import JobPage, ListJobs
from iriscw.jobs.model import Suspension
from iriscw.jobs.suspension.messages import FindSuspended, SuspensionView
from iriscw.nodes.errors import AgentAway, CheckpointNeeded, NoSuchNode, NoSuchOrder, TaskOutOfReach
from iriscw.nodes.messages import DescribeNode, DescribeOrder, FindOrder
from iriscw.nodes.model import CheckpointRow, MoveOrder, NodeState, Order, RemoveOrder, ThawOrder, VerifyOrder
from iriscw.proto.iriscw import v1
from iriscw.rpc.errors import PermissionDenied
from raised import that
from waiting import until

PATIENCE_S = 60
JOB = "job-aaaaaaaaaaaa"


def asked(job_id, key="s1", **fields):
    """Ask that a task be suspended."""
    ref = v1.JobRef(job_id=job_id)
    return v1.SuspendTaskRequest(job=ref, idempotency_key=key, **{"tier": "ram", **fields})


async def until_task(world, job_id, so):
    """Wait until the only task of a job is so, change by change."""
    ref = v1.JobRef(job_id=job_id)
    with anyio.fail_after(PATIENCE_S):
        async with world.client.server_stream(
            CLIENTS + "WatchJob", v1.WatchJobRequest(job=ref), v1.JobStatus
        ) as changes:
            async for _ in changes:
                page = await world.call("ListTasks", v1.ListTasksRequest(job=ref), v1.ListTasksResponse)
                if so(page.tasks[0]):
                    return


async def test_what_a_suspended_task_consists_of_is_left_alone(world):
    """Nobody restores or deletes its checkpoint, also before its node has told of that; asking twice is asking once."""
    async with running(world) as (worker, uid, effect), agent_of(world) as agent:
        job_id = effect.job_id
        await worker.observe(uid, v1.TaskState.RUNNING, process=SUPERVISOR)
        await until_task(world, job_id, lambda task: task.state is v1.TaskState.RUNNING)
        for _ in range(2):
            begun = await world.call("SuspendTask", asked(job_id), v1.TaskSuspension)
            assert (begun.attempt_uid, begun.phase) == (uid, v1.Suspension.SUSPENDING)
        await suspending(worker, uid)
        frozen = (await agent.order()).operation_id
        gone = {"suspension": v1.Suspension.SUSPENDED, "folder": "/w/a/attempts/u"}
        await worker.observe(uid, v1.TaskState.RUNNING, **gone)
        await agent.end(frozen, "frozen")
        await until_task(world, job_id, lambda task: task.suspension.phase is v1.Suspension.SUSPENDED)
        with pytest.raises(TaskNotRunning, check=that(names=(job_id, "SUSPENDED"))):
            await world.stream(
                "ExecTask", v1.ExecTaskRequest(job=v1.JobRef(job_id=job_id), argv=["x"]), v1.ExecTaskReply
            )
        about = {"idempotency_key": "d", "checkpoint_id": frozen, "node": "n1"}
        with pytest.raises(CheckpointNeeded, check=that(names=job_id)):
            await world.call("DeleteCheckpoint", v1.DeleteCheckpointRequest(**about), v1.OrderStatus)
        with pytest.raises(CheckpointNeeded, check=that(names=job_id)):
            await world.call("RestoreCheckpoint", v1.RestoreCheckpointRequest(**about), v1.OrderStatus)
        away = v1.MoveCheckpointRequest(**about, tier="repository")
        with pytest.raises(CheckpointNeeded, check=that(names=job_id)):
            await world.call("MoveCheckpoint", away, v1.OrderStatus)
        assert len(agent.begun) == 1
        away.keep = True
        await world.call("MoveCheckpoint", away, v1.OrderStatus)
        assert (await agent.order(1)).move.keep


HERE = CheckpointRow("ck-1", "ram", 1)


@pytest.mark.parametrize(
    ("order", "row", "stays"),
    [
        (Order("", move=MoveOrder("ck-1", "disk")), HERE, True),
        (Order("", move=MoveOrder("ck-1", "disk")), None, False),
        (Order("", move=MoveOrder("ck-1", "repository")), HERE, False),
        (Order("", move=MoveOrder("ck-1", "repository", keep=True)), HERE, True),
        (Order("", verify=VerifyOrder("ck-1")), None, True),
        (Order("", remove=RemoveOrder("ck-1")), HERE, False),
        (Order("", thaw=ThawOrder("ck-1")), HERE, False),
    ],
)
def test_what_leaves_a_suspended_task_its_checkpoint(order, row, stays):
    """It goes on from any tier of its node; to read it harms nobody."""
    assert _stays(order, row) is stays


@pytest.mark.parametrize("method", ["SuspendTask", "ResumeTask"])
async def test_a_task_neither_suspends_nor_resumes(world, method):
    """With its job's token: not even a task of its own job. It is for those who may do everything."""
    async with running(world) as (_, uid, effect):
        kind = v1.SuspendTaskRequest if method == "SuspendTask" else v1.ResumeTaskRequest
        request = kind(job=v1.JobRef(job_id=effect.job_id), idempotency_key="k")
        async with world.channel(world.tokens.job_token(effect.job_id, uid)) as channel:
            with pytest.raises(PermissionDenied):
                await channel.unary(CLIENTS + method, request, v1.TaskSuspension)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"key": ""}, that(names="idempotency")),
        ({"key": "k" * 129}, that(names="idempotency")),
        ({"tier": "tape"}, that(names="tier")),
        ({"labels": {"": "x"}}, that(names="label")),
        ({"labels": {f"l{number}": "" for number in range(63)}}, that(names="labels")),
        ({"task_index": 7}, that(names="7")),
    ],
)
async def test_what_is_asked_badly(world, fields, message):
    """It is refused by name, before anybody is told anything."""
    job = await world.submit()
    fields = {"tier": "ram", **fields}
    key = fields.pop("key", "k")
    with pytest.raises(InvalidArgument, check=message):
        await world.call("SuspendTask", asked(job.job_id, key, **fields), v1.TaskSuspension)


async def test_what_cannot_be_suspended_where_it_runs(world):
    """That is said at once: it waits, has no process, is out of reach, or its node's agent is not there."""
    job = await world.submit()
    with pytest.raises(TaskNotRunning):
        await world.call("SuspendTask", asked(job.job_id), v1.TaskSuspension)
    with pytest.raises(TaskNotRunning):
        await world.call(
            "ResumeTask", v1.ResumeTaskRequest(job=v1.JobRef(job_id=job.job_id), idempotency_key="r"), v1.TaskSuspension
        )
    async with world.worker(manual=True, node="n1") as worker:
        await until(lambda: worker.runs)
        (uid,) = worker.runs
        await worker.observe(uid, v1.TaskState.RUNNING)
        await refused_in_the_end(world, job.job_id, TaskOutOfReach)
        await worker.observe(uid, v1.TaskState.RUNNING, process=SUPERVISOR)
        said = await refused_in_the_end(world, job.job_id, NoSuchNode)
        assert "`iriscw agent token FILE`" in said
        assert "`iriscw agent serve --controller HOST:PORT --token-file FILE`" in said
        async with agent_of(world):
            pass
        await until_state(world, v1.NodeState.UNKNOWN)
        await refused_in_the_end(world, job.job_id, AgentAway)


async def refused_in_the_end(world, job_id, kind):
    """Ask until this comes of it, and give its text: what worker and agent say takes a while to be heard."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            with pytest.raises((TaskNotRunning, TaskOutOfReach, NoSuchNode, AgentAway)) as found:
                await world.call("SuspendTask", asked(job_id), v1.TaskSuspension)
            if found.type is kind:
                return str(found.value)
            await anyio.sleep(0.01)


class Absent:
    """A tree of which some part is just being started."""

    def __init__(self, error, *, forgotten):
        self.error, self.is_forgotten = error, forgotten

    async def forgotten(self, job_id):
        assert job_id == JOB
        return self.is_forgotten

    def admin(self):
        return None

    async def ask(self, path, message):
        match message:
            case FindOrder():
                return None
            case DescribeNode():
                row = CheckpointRow("ck-1", "ram", 1, labels=(("job", JOB), ("task", "0")))
                return SimpleNamespace(state=NodeState.CONNECTED, facts=(row,))
        assert path == f"/jobs/{JOB}", message
        raise self.error


@pytest.mark.parametrize("error", [NoSuchActor("not yet"), ActorStopped("put aside")])
async def test_a_checkpoint_whose_job_cannot_be_asked(error):
    """It may be all that there is of a suspended task: nobody touches it until the job can say."""
    door = NodesDoor(Absent(error, forgotten=False), None, None, None, None)
    with pytest.raises(JobUnavailable, check=that(names=JOB)):
        await door.delete_checkpoint(v1.DeleteCheckpointRequest(idempotency_key="k", checkpoint_id="ck-1", node="n1"))


class Forgetful(Absent):
    """A tree that has forgotten the order by which a suspended task was frozen, and knows its checkpoint by that."""

    def __init__(self, row):
        super().__init__(AssertionError("nobody else is asked"), forgotten=False)
        self.row = row

    async def ask(self, path, message):
        match message:
            case DescribeNode():
                return SimpleNamespace(state=NodeState.CONNECTED, facts=self.row)
            case DescribeOrder():
                raise NoSuchOrder("it is forgotten")
            case ListJobs(after=""):
                return JobPage((SimpleNamespace(job_id="job-bbbbbbbbbbbb"),), "next")
            case ListJobs(after="next"):
                return JobPage((SimpleNamespace(job_id=JOB),), "")
            case FindSuspended("ck-1"):
                return SuspensionView(0, "uid", Suspension.SUSPENDED) if path.endswith(JOB) else None
        return await super().ask(path, message)


@pytest.mark.parametrize("row", [(), (CheckpointRow("ck-1", "ram", 1, trouble="it cannot be read"),)])
async def test_a_checkpoint_of_which_no_labels_are_known(row):
    """Only the repository has it, or its node cannot read it, and the order is forgotten: all jobs are asked."""
    door = NodesDoor(Forgetful(row), None, None, None, None)
    with pytest.raises(CheckpointNeeded, check=that(names=JOB)):
        await door.delete_checkpoint(v1.DeleteCheckpointRequest(idempotency_key="k", checkpoint_id="ck-1", node="n1"))


async def test_which_jobs_are_forgotten(world):
    """The registry says so: of no job that it has, whether that has ended or not."""
    access = world.controller.features.parts["nodes"].moves._access
    job = await world.submit()
    assert not await access.forgotten(job.job_id)
    assert await access.forgotten(JOB)
