"""``kill -9`` of the controller at random moments of a running workload, again and again on the same state.

Every job that was acknowledged ends in its one right state with the right values, no task ever ran twice at a time,
and when the last controller has gone no process is left.
"""

import contextlib
import os
import random
import sys
import time
from pathlib import Path

import anyio
import attrs
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for kill_cluster

from kill_cluster import PATIENCE_S, SMALL, controller_process

from iriscw.cli.demo.leftovers import processes_in
from iriscw.client.submission import Command
from iriscw.jobs.model import JobState

LONGEST_MOMENT_S = 1.5
"""Kills fall between the first instant of serving and here: starts, submissions, dispatch, ends, scale-up."""

ALONE = """
exec 9>"$0.$IRIS_JOB_ID.$IRIS_TASK_INDEX" || exit 9
flock -n 9 || { echo "$IRIS_TASK_ID" >> "$0.overlaps"; exit 9; }
sleep "$1"
exit "$2"
"""
"""Holds a lock of its task while it runs: two attempts of one task at a time would meet."""


def cube(number):
    """Something with a value."""
    return number**3


@attrs.frozen
class Promise:
    """A job that was acknowledged, and how it must end."""

    job_id: str
    state: JobState
    replicas: int
    value: int | None = None


class Workload:
    """Submits jobs of four kinds, and knows how each must end."""

    def __init__(self, client, folder, rng):
        self.client = client
        self.marks = folder / "marks"
        self.rng = rng
        self.promises = []

    def overlaps(self):
        """Tasks that ran twice at a time."""
        return list(self.marks.parent.glob(f"{self.marks.name}.overlaps"))

    async def wave(self, number):
        """Submit one job of each kind; each call is repeated by the client until somebody answers."""
        for kind in self.rng.sample([self.value, self.success, self.failure, self.stopped], 4):
            await kind(number)

    async def value(self, number):
        """A callable."""
        job = await self.client.submit(cube, number, name=f"value-{number}", resources=SMALL)
        self.promises.append(Promise(job.id, JobState.SUCCEEDED, 1, number**3))

    async def success(self, number):
        """A command with replicas."""
        await self.command(f"success-{number}", JobState.SUCCEEDED, "0", replicas=3)

    async def failure(self, number):
        """A command that fails."""
        await self.command(f"failure-{number}", JobState.FAILED, "7")

    async def stopped(self, number):
        """A command that would go on for ever, and is stopped."""
        job = await self.command(f"stopped-{number}", JobState.KILLED, "0", seconds="1000")
        await job.terminate()

    async def command(self, name, state, code, *, replicas=1, seconds="0.3"):
        """Submit a command."""
        command = Command(["sh", "-c", ALONE, str(self.marks), seconds, code])
        job = await self.client.submit(command, name=name, replicas=replicas, resources=SMALL)
        self.promises.append(Promise(job.id, state, replicas))
        return job


async def check(client, promise):
    """The job is as was promised, and nothing of it is counted against the user."""
    job = await client.job(promise.job_id)
    with anyio.move_on_after(PATIENCE_S):
        await job.wait()
    assert (await job.status()).state is promise.state, (await job.status(), await job.tasks())
    tasks = await job.tasks()
    assert [task.state.name for task in tasks] == [promise.state.name] * promise.replicas
    if promise.state is JobState.SUCCEEDED:
        assert [(task.failures, task.attempts[0].exit_code) for task in tasks] == [(0, 0)] * promise.replicas
    if promise.state is JobState.FAILED:
        assert [task.attempts[0].exit_code for task in tasks] == [7]
    if promise.value is not None:
        assert await job.result() == [promise.value]


def attempts_in(folder):
    """The processes of attempts below a folder, by their environment: jobs have ended, so none may be left."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            environment = (path / "environ").read_bytes()
            if b"IRIS_ATTEMPT_UID=" in environment and os.fsencode(folder) in environment:
                found.append(int(path.name))
    return found


async def kill_again_and_again(folder, *, kills, seed):
    """Kill, start again, and check everything in the end."""
    rng = random.Random(seed)
    async with controller_process(folder) as controller, controller.client() as client:
        workload = Workload(client, folder, rng)
        for number in range(kills):
            with anyio.fail_after(PATIENCE_S):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(workload.wave, number)
                    await anyio.sleep(rng.uniform(0, LONGEST_MOMENT_S))  # the random moment
                    await controller.kill()
                    await controller.start()
        for promise in workload.promises:
            await check(client, promise)
        with anyio.fail_after(PATIENCE_S):
            while attempts_in(folder):  # noqa: ASYNC110 - other processes' processes: there is nothing to wait for
                await anyio.sleep(0.1)
        known = {job.id for job in await client.jobs()}
        assert known == {promise.job_id for promise in workload.promises}
        assert len(known) == 4 * kills
    assert workload.overlaps() == []
    assert processes_in(folder) == []
    problems = [line for line in controller.lines if '"level": "error"' in line or "Traceback" in line]
    assert problems == []


def cube_after(gate, number):
    """A value that comes when there is a file."""
    while not os.path.exists(gate):  # noqa: PTH110 - travels without this module's imports of pathlib
        time.sleep(0.02)
    return number**3


@pytest.mark.slow
async def test_values_that_came_while_nobody_listened(tmp_path):
    """Tasks that end while there is no controller: the next one gets their values, each whole."""
    async with controller_process(tmp_path) as controller, controller.client() as client:
        jobs = [
            await client.submit(cube_after, str(tmp_path / "gate"), number, name=f"gated-{number}", resources=SMALL)
            for number in range(6)
        ]
        with anyio.fail_after(PATIENCE_S):
            for job in jobs:
                async for status in job.watch():
                    if status.state is JobState.RUNNING:
                        break
            await controller.kill()
            await anyio.Path(tmp_path / "gate").touch()
            while attempts_in(tmp_path):  # noqa: ASYNC110 - other processes' processes
                await anyio.sleep(0.05)
            await controller.start()
            assert [await job.result() for job in jobs] == [[number**3] for number in range(6)]


@pytest.mark.slow
async def test_a_controller_that_is_killed_loses_nothing(tmp_path):
    """Two kills at random moments."""
    await kill_again_and_again(tmp_path, kills=2, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", [2])
async def test_ten_kills_lose_nothing(tmp_path, seed):
    """Ten kills at random moments."""
    await kill_again_and_again(tmp_path, kills=10, seed=seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 110))
async def test_two_hundred_kills_lose_nothing(tmp_path, seed):
    """Twenty kills with each of ten seeds."""
    await kill_again_and_again(tmp_path, kills=20, seed=seed)
