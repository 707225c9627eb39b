"""Tasks give way to one of a higher priority on a real cluster: one is frozen with the real CRIU, one is killed."""

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
from iriscw.jobs.model import TaskState
from iriscw.resources import Resources

pytestmark = pytest.mark.slow

COUNTING = """
import os, time
number = 0
while not os.path.exists({gate!r}):
    number += 1
    os.write(1, b"%d\\n" % number)
    time.sleep(0.05)
"""


@pytest.fixture
async def world(tmp_path):
    """A controller with room for one worker of two CPUs, and the agent of its machine."""
    if why_not():
        pytest.skip(why_not())
    (tmp_path / "c").mkdir()
    made = World(tmp_path)
    local = {"workdir": str(tmp_path / "c"), "boot_delay": {"milliseconds": 0}, "node_cpu": "2", "node_memory": "1GiB"}
    try:
        async with controller_process(tmp_path / "c", nodes=1, platform={"local": local}) as made.controller:
            yield made
    finally:
        for agent in made.agents:
            await agent.kill()


async def test_one_is_frozen_and_one_is_killed_and_both_come_back(world):
    """Who was frozen counts on in the same attempt; who was killed begins anew, which counts."""
    gate = world.folder / "gate"
    program = Command([sys.executable, "-c", COUNTING.format(gate=str(gate))])
    half, whole = Resources(cpu=1, memory="64MiB"), Resources(cpu=2, memory="64MiB")
    with anyio.fail_after(PATIENCE_S):
        async with world.controller.client() as client:
            await world.agent(client)
            await until_node(client, "CONNECTED")
            wishes = {"resources": half, "priority": "batch"}
            frozen = await client.submit(program, name="frozen", preemption="freeze", **wishes)
            killed = await client.submit(program, name="killed", **wishes)
            assert [await first_line(job) for job in (frozen, killed)] == ["1", "1"]
            high = await client.submit(Command(["true"]), name="high", resources=whole, priority="production")
            assert (await high.wait()).state.value == "SUCCEEDED"
            while True:
                (task,), (other,) = await frozen.tasks(), await killed.tasks()
                moves = task.suspension is not None and task.suspension.phase
                if {task.state, other.state} == {TaskState.RUNNING} and not moves:
                    break
                await anyio.sleep(0.1)
            assert [task.preemptions, len(task.attempts)] == [0, 1]
            assert [other.preemptions, len(other.attempts)] == [1, 2]
            assert other.attempts[1].reason == "it gave way to high (production)"
            gate.touch()
            await frozen.wait()
            numbers = [int(str(line)) async for line in frozen.logs()]
            assert numbers == [*range(1, len(numbers) + 1)], "it counts on from where it was frozen"
