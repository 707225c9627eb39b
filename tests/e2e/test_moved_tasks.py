"""A job's task is suspended and goes on elsewhere: controller, workers and agent as processes, with the real CRIU."""

import json
import sys
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for test_node_agents
sys.path.insert(0, str(Path(__file__).parents[1] / "agent"))  # for real_trees
sys.path.insert(0, str(Path(__file__).parents[1] / "freeze" / "drivers" / "criu"))  # for number_taker

from kill_cluster import controller_process
from number_taker import taken
from real_trees import why_not
from test_node_agents import PATIENCE_S, World, command, first_line, until_node

from iriscw.client.client import Client
from iriscw.client.errors import CommandKilled, TaskNotRunning
from iriscw.jobs.model import JobState, TaskState
from iriscw.nodes.errors import CheckpointNeeded
from iriscw.processes.status import read_identity
from iriscw.resources import Resources

pytestmark = pytest.mark.slow

SMALL = Resources(cpu="250m", memory="64MiB")
SCALE_DOWN_MS = 500


@pytest.fixture
async def world(tmp_path):
    """A controller whose idle slices go away at once, and the agent of its machine."""
    if why_not():
        pytest.skip(why_not())
    (tmp_path / "c").mkdir()
    made = World(tmp_path)
    local = {"workdir": str(tmp_path / "c"), "boot_delay": {"milliseconds": 0}, "node_cpu": "2", "node_memory": "1GiB"}
    platform = {"local": local, "autoscaler": {"scale_down_delay": {"milliseconds": SCALE_DOWN_MS}}}
    try:
        async with controller_process(tmp_path / "c", platform=platform) as made.controller:
            yield made
    finally:
        for agent in made.agents:
            await agent.kill()


def counting(gate):
    """Return a callable, by its value, that counts and calls its controller over one client until a file is there."""

    def count():
        import os

        import anyio

        import iriscw

        async def main():
            first, number = iriscw.context(), 0
            async with iriscw.connect() as client:
                job = await client.job(first.job_id)
                while not os.path.exists(gate):  # noqa: ASYNC240, PTH110
                    number += 1
                    os.write(1, b"%d\n" % number)
                    assert not (await job.status()).is_over  # its first calls may come before its worker's word
                    await anyio.sleep(0.01)
            last = iriscw.context()
            return number, (first.attempt_uid, last.attempt_uid), (first.worker_id, last.worker_id)

        return anyio.run(main)

    return count


async def until(condition):
    """Wait for what has no event."""
    while not await condition():  # noqa: ASYNC110
        await anyio.sleep(0.05)


async def submit(client: Client, folder):
    """Submit a job of one task; give it once it counts, and the file that ends it."""
    gate = folder / "gate"
    job = await client.submit(counting(str(gate)), name="counts", resources=SMALL)
    assert await first_line(job) == "1"
    return job, gate


async def only_task(job):
    """Return the one task of a job."""
    (task,) = await job.tasks()
    return task


def lives(world):
    """Return the workers of which there is a life's folder."""
    return {each.parent.parent.name for each in (world.controller.state_dir / "cache").glob("*/*/attempts")}


def number_of(world, uid):
    """Return the process number of an attempt's supervisor, as its folder names it."""
    (folder,) = (world.controller.state_dir / "cache").glob(f"*/*/attempts/{uid}")
    return read_identity(folder)[0].pid


async def test_it_goes_on_with_another_slice(world):
    """Its slice goes away meanwhile. Same uid; log, result and calls go on; the context names the new worker."""
    with anyio.fail_after(PATIENCE_S):
        async with world.controller.client() as client:
            await world.agent(client)
            await until_node(client, "CONNECTED")
            job, gate = await submit(client, world.folder)
            before = await only_task(job)
            old_slices = {each.slice_id for each in await client.slices()}
            seen = []
            suspended = await client.suspend(job, tier="disk", labels={"a": "b"}, seen=seen.append)
            assert [*dict.fromkeys(each.phase for each in seen)] in (["SUSPENDING", "SUSPENDED"], ["SUSPENDED"])
            assert seen[-1] == suspended
            found = await only_task(job)
            assert (found.state, found.suspension) == (TaskState.RUNNING, suspended)
            (checkpoint,) = await client.checkpoints(labels={"job": job.id, "a": "b"})
            assert (checkpoint.id, checkpoint.node) == (suspended.checkpoint, suspended.node)
            with pytest.raises(CheckpointNeeded):
                await client.restore(checkpoint)
            with pytest.raises(CheckpointNeeded):
                await checkpoint.delete()

            async def gone():
                return not old_slices & {each.slice_id for each in await client.slices()}

            await until(gone)
            assert before.worker_id in lives(world)  # it holds what the images name
            await client.resume(job)
            after = await only_task(job)
            assert after.suspension is None or not after.suspension.phase
            assert after.attempts[0].uid == before.attempts[0].uid
            assert after.worker_id != before.worker_id
            gate.touch()
            ((number, uids, workers),) = await job.result()
            assert uids == (before.attempts[0].uid,) * 2
            assert workers == (before.worker_id, after.worker_id)
            assert [str(line) async for line in job.logs()] == [str(each) for each in range(1, number + 1)]
            status = await job.status()
            assert (status.failures, status.preemptions) == (0, 0)

            async def tidy():
                left = before.worker_id in lives(world)
                return not left and not await client.checkpoints(labels={"job": job.id})

            await until(tidy)


async def test_the_controller_is_killed_in_between(world):
    """It continues by the commands that people type, though others have its numbers; a stop leaves nothing of it."""
    with anyio.fail_after(2 * PATIENCE_S):
        async with world.controller.client() as client:
            token = world.controller.state_dir / "secrets" / "admin-token"
            await world.agent(client)
            await until_node(client, "CONNECTED")
            job, _ = await submit(client, world.folder)
            uid = (await only_task(job)).attempts[0].uid
            number = number_of(world, uid)
            code, out, said = await command(client, token, "checkpoint", job.id, "--tier", "disk", "-o", "json")
            assert code == 0, said
            done = json.loads(out)
            assert (done["outcome"], done["attempt"]) == ("suspended", uid)
            with taken(number):
                address = world.controller.address
                await world.controller.kill()
                await world.controller.start()
                if world.controller.address != address:
                    pytest.skip("somebody else took the controller's port meanwhile")
                code, out, said = await command(client, token, "job", job.id)
                assert f"suspended ({done['checkpoint']}" in " ".join(out.split()), out
                await until_node(client, "CONNECTED")
                code, out, said = await command(client, token, "resume", job.id, "-o", "json")
                assert code == 0, said
                assert (json.loads(out)["outcome"], json.loads(out)["attempt"]) == ("running", uid)
                assert (await client.resume(job)).phase == ""  # it runs: nothing to do
                assert number_of(world, uid) != number
                await client.suspend(job, tier="disk")
                await job.terminate()
                assert (await job.wait()).state is JobState.KILLED

            async def nothing_left():
                folders = [*(world.controller.state_dir / "cache").glob(f"*/*/attempts/{uid}")]
                return not folders and not await client.checkpoints(labels={"job": job.id})

            await until(nothing_left)


async def test_commands_beside_it(world):
    """One that runs ends when the task is frozen; none runs while it is; and one does where it goes on."""
    with anyio.fail_after(PATIENCE_S):
        async with world.controller.client() as client:
            await world.agent(client)
            await until_node(client, "CONNECTED")
            job, gate = await submit(client, world.folder)
            before = (await job.exec(["printenv", "IRIS_ATTEMPT_UID"])).stdout
            begun = anyio.Event()
            async with anyio.create_task_group() as tasks:

                async def beside():
                    with pytest.raises(CommandKilled):
                        await job.exec(["sh", "-c", "echo there; exec sleep 600"], output=lambda _: begun.set())

                tasks.start_soon(beside)
                await begun.wait()
                await client.suspend(job, tier="disk")
            for task in (None, 0):
                with pytest.raises(TaskNotRunning):
                    await job.exec(["true"], task=task)
            await client.resume(job)
            assert (await job.exec(["printenv", "IRIS_ATTEMPT_UID"])).stdout == before
            gate.touch()
            await job.result()
