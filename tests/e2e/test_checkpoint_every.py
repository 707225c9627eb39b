"""A task of which checkpoints are made while it runs begins from the newest when it is tried again: the real CRIU."""

import os
import signal
import sys
from pathlib import Path

import anyio
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for test_node_agents
sys.path.insert(0, str(Path(__file__).parents[1] / "agent"))  # for real_trees

from kill_cluster import controller_process
from real_trees import why_not
from test_node_agents import PATIENCE_S, World, first_line, until_node

from iriscw.client.submission import Command
from iriscw.jobs.model import MIN_CHECKPOINT_EVERY_NS, TaskState
from iriscw.processes.status import read_identity
from iriscw.resources import Resources

pytestmark = pytest.mark.slow

COUNTING = """
import os, time
number = 0
while not os.path.exists({gate!r}):
    number += 1
    with open("counted", "a") as file:
        file.write(f"{{number}}\\n")
    os.write(1, b"%d\\n" % number)
    time.sleep(0.05)
"""


@pytest.fixture
async def world(tmp_path):
    """A controller, and the agent of its machine."""
    if why_not():
        pytest.skip(why_not())
    (tmp_path / "c").mkdir()
    made = World(tmp_path)
    local = {"workdir": str(tmp_path / "c"), "boot_delay": {"milliseconds": 0}, "node_cpu": "2", "node_memory": "1GiB"}
    try:
        async with controller_process(tmp_path / "c", platform={"local": local}) as made.controller:
            yield made
    finally:
        for agent in made.agents:
            await agent.kill()


async def test_a_task_that_is_killed_goes_on_from_its_checkpoint(world):
    """It is the same attempt, its files are those of the checkpoint, its log has both lives, and nothing is left."""
    gate = world.folder / "gate"
    program = Command([sys.executable, "-c", COUNTING.format(gate=str(gate))])
    with anyio.fail_after(PATIENCE_S):
        async with world.controller.client() as client:
            await world.agent(client)
            await until_node(client, "CONNECTED")
            job = await client.submit(
                program,
                name="counts",
                resources=Resources(cpu="250m", memory="64MiB"),
                checkpoint_every=MIN_CHECKPOINT_EVERY_NS / 1e9,
                retry_from_checkpoint=True,
                max_retries_failure=1,
            )
            assert await first_line(job) == "1"
            while not await client.checkpoints(labels={"job": job.id}):  # noqa: ASYNC110
                await anyio.sleep(0.1)
            (task,) = await job.tasks()
            (before,) = task.attempts
            (folder,) = (world.controller.state_dir / "cache").glob(f"*/*/attempts/{before.uid}")
            os.kill(read_identity(folder)[1].pid, signal.SIGKILL)
            while (await job.status()).failures == 0:  # noqa: ASYNC110
                await anyio.sleep(0.1)
            while True:
                (task,) = await job.tasks()
                if task.state is TaskState.RUNNING and not (task.suspension and task.suspension.phase):
                    break
                await anyio.sleep(0.1)
            assert [each.uid for each in task.attempts] == [before.uid]
            gate.touch()
            await job.wait()
            lines = [str(line) async for line in job.logs()]
            numbers = [int(line) for line in lines if line.isdigit()]
            (again,) = [at for at in range(1, len(numbers)) if numbers[at] <= numbers[at - 1]]
            assert numbers[again] > 1
            assert numbers == [*range(1, numbers[again - 1] + 1), *range(numbers[again], numbers[-1] + 1)]
            while await client.checkpoints(labels={"job": job.id}):  # noqa: ASYNC110
                await anyio.sleep(0.1)
