"""`wait`: what scripts are told of the end of jobs."""

import json

import anyio
import anyio.lowlevel
import attrs
import pytest

from iriscw.cli import wait as module
from iriscw.client.errors import NoSuchJob, WaitTimeout
from iriscw.client.model import AttemptStatus, JobState, JobStatus, TaskState, TaskStatus
from iriscw.rpc.errors import RpcUnavailable

ATTEMPT = AttemptStatus("u", 0, TaskState.FAILED, "w", exit_code=7)


class Job:
    """Ends after so many turns of the event loop, well or not, or raises then."""

    def __init__(self, job_id, state, turns=1, num_tasks=1, reason="", error=None):
        self.id = self.name = job_id
        self.seen = JobStatus(job_id, "u", job_id, JobState.RUNNING, 1, num_tasks, {TaskState.RUNNING: num_tasks})
        self.end = attrs.evolve(self.seen, state=state, reason=reason)
        self.turns = turns
        self.error = error
        self.waits = 0

    async def wait(self, timeout=None):
        self.waits += 1
        for _ in range(self.turns):
            await anyio.lowlevel.checkpoint()
        if self.error is not None:
            raise self.error
        return self.end

    async def tasks(self):
        return [TaskStatus(f"{self.id}/0", 0, TaskState.FAILED, attempts=(ATTEMPT,))]


class Late(Job):
    """Never ends."""

    def __init__(self, job_id):
        super().__init__(job_id, JobState.RUNNING)

    async def wait(self, timeout=None):
        assert timeout is not None
        raise WaitTimeout(f"job {self.id} is RUNNING after {timeout:g} s")


@pytest.fixture
def wait(iriscw, monkeypatch):
    """Run `wait` where there are these jobs."""

    def run(jobs, *arguments):
        class Client:
            async def job(self, name):
                for job in jobs:
                    if job.id == name:
                        return job
                raise NoSuchJob(f"there is no job {name!r}")

            async def jobs(self):
                return []

        def with_client(address, token_file, function):
            return anyio.run(function, Client())

        monkeypatch.setattr(module, "with_client", with_client)
        return iriscw("wait", *arguments)

    return run


FAILED = {"state": JobState.FAILED, "reason": "it exited with 7"}


def test_one_job_ends_with_its_programs_code(wait):
    """As `submit -f` does: the program's own, 1 where none failed by itself or there were several tasks, 0 if well."""
    assert wait([Job("a", JobState.SUCCEEDED)], "a") == (0, "a SUCCEEDED\n", "")
    assert wait([Job("a", **FAILED)], "a") == (7, "a FAILED\n", "a: it exited with 7\n")
    assert wait([Job("a", num_tasks=2, **FAILED)], "a")[0] == 1
    assert wait([Job("a", JobState.KILLED)], "a") == (1, "a KILLED\n", "")


def test_several_jobs(wait):
    """They are told as they end, and one that did not end well makes it 1; one that is named twice is one."""
    jobs = [Job("a", JobState.SUCCEEDED, turns=5), Job("b", JobState.SUCCEEDED)]
    assert wait(jobs, "a", "b", "a") == (0, "b SUCCEEDED\na SUCCEEDED\n", "")
    assert [job.waits for job in jobs] == [1, 1]
    jobs = [Job("a", turns=5, **FAILED), Job("b", JobState.SUCCEEDED)]
    assert wait(jobs, "a", "b")[:2] == (1, "b SUCCEEDED\na FAILED\n")


def test_programs_are_given_a_list(wait):
    """Of every field, in the order in which the jobs were named, also of one."""
    jobs = [Job("a", turns=5, **FAILED), Job("b", JobState.SUCCEEDED)]
    code, out, err = wait(jobs, "a", "b", "-o", "json")
    assert (code, err) == (1, "a: it exited with 7\n")
    assert [(each["job_id"], each["state"]) for each in json.loads(out)] == [("a", "FAILED"), ("b", "SUCCEEDED")]
    code, out, _ = wait(jobs[1:], "b", "-o", "json")
    assert (code, len(json.loads(out))) == (0, 1)


def test_the_time_is_over(wait):
    """All that have not ended are named, those that have are told, and it may be tried again."""
    code, out, err = wait([Late("a"), Job("b", JobState.SUCCEEDED), Late("c")], "a", "b", "c", "--timeout", "5s")
    assert (code, out) == (3, "b SUCCEEDED\n")
    assert err == "iriscw: WaitTimeout: job a is RUNNING after 5 s; job c is RUNNING after 5 s\n"


def test_what_has_ended_needs_no_time(wait):
    """To look is enough."""
    job = Job("a", JobState.SUCCEEDED)
    job.seen = job.end
    assert wait([job], "a", "--timeout", "0s") == (0, "a SUCCEEDED\n", "")
    assert job.waits == 0


def test_the_controller_is_lost(wait):
    """For several jobs at once: that is one error, and nobody's bug."""
    jobs = [Job(name, JobState.FAILED, error=RpcUnavailable("gone")) for name in "ab"]
    code, out, err = wait(jobs, "a", "b")
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert "RpcUnavailable: gone" in err


def test_a_job_that_is_not_there(wait):
    """It is known before anything is waited for."""
    job = Job("a", JobState.SUCCEEDED)
    code, out, err = wait([job], "a", "nope")
    assert (code, out, job.waits) == (2, "", 0)
    assert "there is no job 'nope'" in err
