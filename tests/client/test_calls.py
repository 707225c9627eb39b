"""Calls that wait for the controller: repeated as long as may be, and their user knows for what."""

import logging
import socket
import subprocess
import sys

import anyio
import pytest
from controller_double import TOKEN, Break, job_of

from iriscw._errors import JournalFull, OutcomePending
from iriscw.client import contact
from iriscw.client.calls import CALL_TIMEOUT_S, PATIENCE_S, MethodCalls, RetryReasons
from iriscw.client.client import connect
from iriscw.client.contact import Keeper
from iriscw.client.submission import Command
from iriscw.jobs.model import JobState
from iriscw.processes.identity import identify
from iriscw.proto.iriscw.v1 import (
    GetJobRequest,
    JobRef,
    JobState as Wire,
    JobStatus,
    PutBundleRequest,
    PutBundleResponse,
)
from iriscw.rpc.client import RpcChannel
from iriscw.rpc.errors import RpcCancelled, RpcDeadline, RpcUnavailable
from iriscw.rpc.limits import RpcLimits
from raised import that

DONE = job_of(Wire.SUCCEEDED, version=3)


@pytest.fixture
def told(caplog):
    """Return what the user was told so far."""
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
    reasons = RetryReasons("GetJob", 60.0)
    errors = (RpcUnavailable, JournalFull, RpcDeadline, OutcomePending, JournalFull, RpcCancelled, OutcomePending)
    for error in errors:
        reasons.tell(error("text"))
    assert [line.split(": ")[2] for line in told()] == ["JournalFull", "OutcomePending"]


def test_a_reason_commands_no_terminal(told):
    """Control characters in the controller's words arrive as escapes, on one line."""
    RetryReasons("GetJob", 60.0).tell(JournalFull("\x1b[2Jfull\nof it"))
    [line] = told()
    assert line.isprintable()
    assert r"\x1b[2Jfull\nof it" in line


def dead():
    """Return a keeper that has ended."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        owner = identify(process.pid)
        process.communicate(b"\n")
    return Keeper(owner, f"process {owner.pid} is gone")


@pytest.mark.parametrize("call", ["ask", "stream", "send"])
async def test_nobody_waits_for_a_dead_cluster(call):
    """Every kind of call ends with the first failure once the process that kept the cluster up is gone."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"

    async def nothing():
        yield PutBundleRequest(data=b"x")

    async def make(calls):
        if call == "ask":
            await calls.ask("GetJob", GetJobRequest(), JobStatus)
        elif call == "stream":
            _ = [each async for each in calls.watch(JobRef(job_id="j"))]
        else:
            await calls.send("PutBundle", nothing, PutBundleRequest, PutBundleResponse, timeout_s=5)

    keeper = dead()
    async with RpcChannel(address) as channel:
        with (
            pytest.raises(RpcUnavailable, check=that(comes_from="contact.Contact.lost", names=keeper.process.pid)),
            anyio.fail_after(10),
        ):
            await make(MethodCalls(channel, keeper=keeper))


@pytest.mark.parametrize("call", ["ask", "stream"])
async def test_a_refused_call_is_no_answer(free_tcp_port, monkeypatch, call):
    """The next call of the same client ends as early: nobody was there in between."""
    monkeypatch.setattr("iriscw.client.calls.CALL_TIMEOUT_S", 100_000.0)  # longer than the test may take
    async with RpcChannel(f"127.0.0.1:{free_tcp_port}") as channel:
        calls = MethodCalls(channel, patience_s=100_000.0, refused_s=0.02)
        for _ in range(2):
            if call == "ask":
                made = calls.ask("GetJob", GetJobRequest(), JobStatus)
            else:
                made = anext(calls.watch(JobRef(job_id="j")))
            with anyio.fail_after(30), pytest.raises(RpcUnavailable):
                await made


async def test_a_controller_that_is_away_is_told(door, controller, told, monkeypatch):
    """A controller that goes is told of by its address, once until it answers again."""
    monkeypatch.setattr(contact, "QUIET_S", 0.0)
    controller.statuses = [job_of(Wire.PENDING), *(Break() for _ in range(4)), DONE]
    async with connect(str(door.address), TOKEN) as client:
        job = await client.job("job-1")
        assert (await job.wait()).state is JobState.SUCCEEDED
    assert 2 <= len(told()) <= 8
    assert {line.partition(" (")[0] for line in told()} == {
        f"iriscw: cannot reach {door.address}",
        f"iriscw: {door.address} answers again",
    }


class Hears(logging.Handler):
    """Ends a scope with the first line."""

    def __init__(self, scope):
        super().__init__()
        self.scope = scope

    def emit(self, record):
        self.scope.cancel()


@pytest.mark.parametrize("hang_s", [0.0, 3600.0])
async def test_a_controller_that_hangs_is_told(told, monkeypatch, hang_s):
    """One that takes connections and says nothing, as a stopped process does, is told of once a moment has passed."""
    monkeypatch.setattr(contact, "HANG_S", hang_s)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        async with RpcChannel(address) as channel:
            with anyio.move_on_after(10 if hang_s == 0 else 0.1) as scope:
                logging.getLogger("iriscw.client").addHandler(heard := Hears(scope))
                try:
                    await MethodCalls(channel).ask("GetJob", GetJobRequest(), JobStatus)
                finally:
                    logging.getLogger("iriscw.client").removeHandler(heard)
    assert told() == ([f"iriscw: cannot reach {address} (no answer); trying for 60 s"] if hang_s == 0 else [])


async def test_a_stream_of_a_controller_that_hangs_is_told(told):
    """It has no answer to wait for, as a call has: keepalive finds it out, is told of at once, and ends it by name."""
    limits = RpcLimits(keepalive_interval_s=0.02, keepalive_timeout_s=0.02)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        async with RpcChannel(address, limits=limits) as channel:
            with anyio.fail_after(60), pytest.raises(RpcUnavailable, check=that(names="keepalive")):
                await anext(MethodCalls(channel, patience_s=0.2).watch(JobRef(job_id="job-1")))
    assert told() == [f"iriscw: cannot reach {address} (no answer); trying for 0.2 s"]


async def test_an_answer_ends_the_waiting(told, monkeypatch):
    """A refusal is one, and so is what another call is told; the reason that was met is told of one that is away."""
    monkeypatch.setattr(contact, "HANG_S", 0.0)
    met = RpcUnavailable("no connection")
    met.__cause__ = ConnectionRefusedError(111, "Connect call failed")
    there = contact.Contact("h:1")
    with there.awaited(60):
        there.lost(JournalFull("full"), 60)
        await anyio.sleep(0.01)
    with there.awaited(60):
        with there.awaited(60):
            pass
        await anyio.sleep(0.01)
    assert told() == []
    with there.awaited(60):
        monkeypatch.setattr(contact, "HANG_S", 3600.0)
        there.lost(met, 60)
        await anyio.sleep(0.01)
    assert told() == [
        "iriscw: cannot reach h:1 (connection refused); trying for 60 s",
        "iriscw: h:1 answers again",
    ]
