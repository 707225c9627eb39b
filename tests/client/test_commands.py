"""A command beside a task, against a scripted controller: what is kept, passed on, and never begun twice."""

import pytest
from controller_double import Break

from iriscw._errors import InvalidArgument
from iriscw.client.commands import MAX_KEPT_BYTES
from iriscw.client.errors import CommandKilled, CommandNotStarted, InvalidJob
from iriscw.client.model import ExecOutput, ExecResult
from iriscw.proto.iriscw.v1 import ExecTaskReply, ExecTaskRequest, JobRef
from raised import that

END = ExecTaskReply(exit_code=0)


async def test_what_is_asked(client, controller):
    """The words as they are; which task only if one is named."""
    controller.commands = [END]
    job = await client.job("job-1")
    assert await job.exec(("a", "$b c")) == await job.exec(["x"], task=0, timeout_s=0.5) == ExecResult(0)
    ref = JobRef(job_id="job-1", job_uid="uid-1")
    assert controller.asked == [
        ExecTaskRequest(job=ref, argv=["a", "$b c"], timeout_ms=3_600_000),
        ExecTaskRequest(job=ref, argv=["x"], task_index=0, timeout_ms=500),
    ]


async def test_the_first_of_each_output_is_kept(client, controller):
    """And it is said that there was more."""
    piece = b"x" * 60_000
    controller.commands = [*[ExecTaskReply(stdout=piece)] * 20, ExecTaskReply(stderr=b"e"), ExecTaskReply(exit_code=3)]
    job = await client.job("job-1")
    found = await job.exec(["a"])
    assert (found.exit_code, found.stdout, found.stderr) == (3, b"x" * MAX_KEPT_BYTES, b"e")
    assert found.truncated


async def test_who_takes_pieces_is_given_all(client, controller):
    """Empty ones, too; nothing is kept then. What is raised there ends the call."""
    controller.commands = [ExecTaskReply(stdout=b""), ExecTaskReply(stderr=b""), ExecTaskReply(stderr=b"e"), END]
    job, pieces = await client.job("job-1"), []
    assert await job.exec(["a"], output=pieces.append) == ExecResult(0)
    assert pieces == [ExecOutput(b""), ExecOutput(b"", stderr=True), ExecOutput(b"e", stderr=True)]

    def full(_):
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        await job.exec(["a"], output=full)


@pytest.mark.parametrize("script", [[], [Break()], [ExecTaskReply(stdout=b"x"), Break()]])
async def test_a_command_whose_end_nobody_saw(client, controller, script):
    """Is an error, and is not begun again."""
    controller.commands = script
    job = await client.job("job-1")
    with pytest.raises(CommandKilled, check=that(comes_from="commands.run")):
        await job.exec(["a"])
    assert len(controller.asked) == 1


async def test_errors_arrive_as_what_they_are(client, controller):
    """Whatever the controller says."""
    controller.commands = [Break(CommandNotStarted("no such program"))]
    job = await client.job("job-1")
    with pytest.raises(CommandNotStarted, check=that(names="program")):
        await job.exec(["a"])


@pytest.mark.parametrize(
    ("argv", "more", "error"),
    [
        ([], {}, InvalidJob),
        ("ls -l", {}, InvalidJob),
        (["a\0"], {}, InvalidJob),
        (["a"], {"task": -1}, InvalidArgument),
        (["a"], {"timeout_s": 0}, InvalidArgument),
        (["a"], {"timeout_s": float("inf")}, InvalidArgument),
    ],
)
async def test_what_cannot_be_is_refused_here(client, controller, argv, more, error):
    """Before anything is asked."""
    job = await client.job("job-1")
    with pytest.raises(error):
        await job.exec(argv, **more)
    assert controller.asked == []
