"""Commands beside tasks by the clients' door: who may, what is refused, and what is taken out of standard error."""

import logging
from contextlib import asynccontextmanager

import anyio
import attrs
import pytest
from controller_world import CLIENTS, Drivers
from hypothesis import given, strategies as st
from test_moving import running

from iriscw._errors import InvalidArgument
from iriscw.cloud.model import ExecEnd, ExecOutput, Forbidden, Gone, InvalidSpec, Unavailable
from iriscw.controller.doors import commands
from iriscw.controller.doors.commands import Notes
from iriscw.jobs.errors import CommandKilled, CommandNotStarted, TaskNotRunning, TooManyCommands
from iriscw.nodes.errors import TaskOutOfReach
from iriscw.processes import entering
from iriscw.proto.iriscw import v1
from iriscw.rpc.errors import PermissionDenied
from iriscw.rpc.tokens import Role
from waiting import until

MARK = b"\x1emark:"


@attrs.define
class Scripted:
    """The way into a pod; says what it was told to, of which an error breaks it."""

    said: list = attrs.field(factory=list)
    asked: list = attrs.field(factory=list)
    interpreter = ("python9",)

    async def stream(self, argv):
        self.asked.append(argv)
        mark = argv[argv.index("-c") + 2].encode()
        for each in self.said:
            if isinstance(each, Exception):
                raise each
            if each is None:
                await anyio.sleep_forever()
            yield attrs.evolve(each, data=each.data.replace(MARK, mark)) if isinstance(each, ExecOutput) else each


@pytest.fixture
def way(monkeypatch):
    """The way into every pod of the world."""
    made = Scripted()
    monkeypatch.setattr(Drivers, "connection", lambda *_: made)
    return made


@asynccontextmanager
async def task(world):
    """A task that runs; gives its job and its attempt."""
    async with running(world) as (worker, uid, effect):
        await worker.observe(uid, v1.TaskState.RUNNING)
        ref = v1.JobRef(job_id=effect.job_id)
        async with world.client.server_stream(
            CLIENTS + "WatchJob", v1.WatchJobRequest(job=ref), v1.JobStatus
        ) as changes:
            async for _ in changes:
                page = await world.call("ListTasks", v1.ListTasksRequest(job=ref), v1.ListTasksResponse)
                if page.tasks[0].state is v1.TaskState.RUNNING:
                    break
        yield effect.job_id, uid


async def run(world, job_id, *argv, **more):
    """Run a command beside a task; give all that is answered."""
    request = v1.ExecTaskRequest(job=v1.JobRef(job_id=job_id), argv=[*argv], **more)
    return await world.stream("ExecTask", request, v1.ExecTaskReply)


async def test_what_is_said_arrives(world, way, caplog):
    """Each output by itself, then the code; the log says who ran what, without the words behind the program."""
    caplog.set_level(logging.INFO, "iriscw.controller.doors.commands")
    way.said = [ExecOutput(b"out"), ExecOutput(b"err", stderr=True), ExecEnd(0)]
    async with task(world) as (job_id, uid):
        assert await run(world, job_id, "nvidia-smi", "s3cret") == [
            v1.ExecTaskReply(stdout=b"out"),
            v1.ExecTaskReply(stderr=b"err"),
            v1.ExecTaskReply(exit_code=0),
        ]
    ((*words, mark, whose, program, _),) = way.asked
    assert words[:4] == ["python9", "-I", "-S", "-c"]
    assert (whose, program, mark[0]) == (uid, "nvidia-smi", "\x1e")
    assert "nvidia-smi" in caplog.text
    assert Role.ADMIN.value in caplog.text
    assert "s3cret" not in caplog.text
    assert world.controller.statistics().commands == commands.CommandStatistics(0, 1, 0)


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ([ExecOutput(MARK + b"refused No such file", stderr=True), ExecEnd(125)], CommandNotStarted),
        ([ExecOutput(b"x" + MARK + b"ended ", stderr=True), ExecEnd(125)], CommandKilled),
        ([ExecOutput(MARK + b"absent ", stderr=True), ExecEnd(125)], TaskNotRunning),
        ([Gone("no pod")], TaskNotRunning),
        ([InvalidSpec("no interpreter")], TaskOutOfReach),
        ([ExecOutput(b"x"), Unavailable("it broke")], CommandKilled),
        ([Forbidden("no right")], TaskOutOfReach),
    ],
)
async def test_what_goes_wrong_has_a_name(world, way, said, error):
    """Whoever says it: what runs beside the attempt, or the platform."""
    way.said = said
    async with task(world) as (job_id, _):
        with pytest.raises(error):
            await run(world, job_id, "x")
    assert world.controller.statistics().commands == commands.CommandStatistics(0, 0, 1)


async def test_a_time_that_is_over_ends_the_way(world, way):
    """And so the command."""
    way.said = [None]
    async with task(world) as (job_id, _):
        with anyio.fail_after(20), pytest.raises(CommandKilled):
            await run(world, job_id, "x", timeout_ms=50)


@pytest.mark.parametrize(
    "fields", [{"argv": []}, {"argv": [""]}, {"argv": ["a\0"]}, {"timeout_ms": -1}, {"timeout_ms": 86_400_001}]
)
async def test_what_nobody_can_run_is_refused(world, way, fields):
    """Before anything is asked of the platform."""
    async with task(world) as (job_id, _):
        request = v1.ExecTaskRequest(job=v1.JobRef(job_id=job_id), **{"argv": ["x"], **fields})
        with pytest.raises(InvalidArgument):
            await world.stream("ExecTask", request, v1.ExecTaskReply)
    assert not way.asked


async def test_tasks_that_do_not_run(world, way):
    """One that waits, the first of those; one that is not there."""
    job_id = (await world.submit()).job_id  # its worker never comes
    for index in (None, 0):
        with pytest.raises(TaskNotRunning):
            await run(world, job_id, "x", task_index=index)
    with pytest.raises(InvalidArgument):
        await run(world, job_id, "x", task_index=1)
    assert not way.asked


async def test_a_task_runs_no_commands(world, way):
    """With its job's token: not even beside itself."""
    async with task(world) as (job_id, uid):
        request = v1.ExecTaskRequest(job=v1.JobRef(job_id=job_id), argv=["x"])
        async with world.channel(world.tokens.job_token(job_id, uid)) as channel:
            with pytest.raises(PermissionDenied):
                async with channel.server_stream(CLIENTS + "ExecTask", request, v1.ExecTaskReply) as replies:
                    await anext(replies)
    assert not way.asked


async def test_so_many_at_once(world, way, monkeypatch):
    """One more is refused, and may come later."""
    monkeypatch.setattr(commands, "MAX_COMMANDS", 1)
    way.said = [ExecOutput(b"x"), None]
    async with task(world) as (job_id, _):
        request = v1.ExecTaskRequest(job=v1.JobRef(job_id=job_id), argv=["x"])
        async with world.client.server_stream(CLIENTS + "ExecTask", request, v1.ExecTaskReply) as replies:
            await anext(replies)
            with pytest.raises(TooManyCommands):
                await run(world, job_id, "x")
        await until(lambda: world.controller.statistics().commands.running == 0)
        way.said = [ExecEnd(3)]
        assert await run(world, job_id, "x") == [v1.ExecTaskReply(exit_code=3)]


@given(st.lists(st.sampled_from([b"a", MARK[:1], MARK[:3], MARK[3:], MARK])), st.booleans())
def test_only_what_follows_the_mark_is_taken_out(pieces, noted):
    """However it is cut into pieces: all that stands before the mark arrives, and nothing of the rest."""
    whole = b"".join(pieces)
    notes = Notes(MARK)
    passed = b"".join(map(notes.take, [*pieces, *([MARK + b"ended soon"] if noted else [])]))
    held, kind, reason = notes.finish()
    before, found, _ = whole.partition(MARK)
    assert passed + held == before
    if noted and not found:
        assert (kind, reason, held) == (entering.ENDED, "soon", b"")
    if not found and not noted:
        assert kind == ""
