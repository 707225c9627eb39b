"""Calls that wait for the controller: repeated as long as may be, and their user knows for what."""

import logging

import pytest
from controller_double import Break, job_of

from iriscw.client.calls import CALL_TIMEOUT_S, PATIENCE_S, Reasons
from iriscw.client.submission import Command
from iriscw.errors import JournalFull, OutcomePending
from iriscw.jobs.model import JobState
from iriscw.proto.iriscw.v1 import JobState as Wire
from iriscw.rpc.errors import RpcCancelled, RpcDeadline, RpcUnavailable

DONE = job_of(Wire.SUCCEEDED, version=3)


@pytest.fixture
def told(caplog):
    """Give what the user was told so far."""
    caplog.set_level(logging.WARNING, "iriscw.client")
    return lambda: [each.getMessage() for each in caplog.records if each.name == "iriscw.client"]


async def test_a_submission_says_what_it_waits_for(client, controller, told):
    """A refusal that is tried again is told once, by name and with the controller's words; there is one job."""
    controller.fail_submits = 3
    await client.submit(Command(["true"]), name="n")
    assert len(controller.submitted) == 1
    assert told() == [
        f"iriscw: SubmitJob has to wait: JournalFull: {controller.refusal}; trying again for up to {CALL_TIMEOUT_S:g} s"
    ]


async def test_each_call_tells_anew(client, controller, told):
    """The next call that has to wait says so again: the one before may be long ago."""
    for number in (1, 2):
        controller.fail_submits = len(controller.keys) + 1
        await client.submit(Command(["true"]), name="n")
        assert len(told()) == number


async def test_a_stream_waits_and_says_so(client, controller, told):
    """A watch goes on over a full disk as over a restart; only the disk is worth a word."""
    pending = Break(OutcomePending("/jobs/job-1 answered, but the disk of /j is full"))
    controller.statuses = [job_of(Wire.PENDING), Break(), pending, DONE]
    job = await client.job("job-1")
    assert (await job.wait()).state is JobState.SUCCEEDED
    assert told() == [
        f"iriscw: WatchJob has to wait: OutcomePending: {pending.error}; trying again for up to {PATIENCE_S:g} s"
    ]


def test_each_reason_once(told):
    """Two reasons are two lines, however often they come; a broken connection is none."""
    reasons = Reasons("GetJob", 60.0)
    errors = (RpcUnavailable, JournalFull, RpcDeadline, OutcomePending, JournalFull, RpcCancelled, OutcomePending)
    for error in errors:
        reasons.tell(error("text"))
    assert [line.split(": ")[2] for line in told()] == ["JournalFull", "OutcomePending"]


def test_a_reason_commands_no_terminal(told):
    """Control characters in the controller's words arrive as escapes, on one line."""
    Reasons("GetJob", 60.0).tell(JournalFull("\x1b[2Jfull\nof it"))
    [line] = told()
    assert line.isprintable()
    assert r"\x1b[2Jfull\nof it" in line
