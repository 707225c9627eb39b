"""A job's task is suspended on one node and goes on on another: two agents with one repository, and the real CRIU.

The nodes are two names on this machine: each has an agent with a state folder and a tier "ram" of its own, and workers
that say its name. The second one has a mount namespace of its own, in which the kernel names another boot: so gates see
another machine. It has a network of its own, too, of which the first one knows nothing. What the first node has of the
task is removed before it goes on: its agent and its folders.
"""

import asyncio
import shutil
import socket
import subprocess
import sys
import uuid
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for test_node_agents
sys.path.insert(0, str(Path(__file__).parents[1] / "agent"))  # for real_trees

from kill_cluster import ControllerProcess, write_config
from real_trees import why_not
from test_moved_tasks import only_task, submit, until
from test_node_agents import PATIENCE_S, AgentProcess, until_node

from iriscw.freeze.drivers.namespace.entering import CLONE_NEWNET, within

pytestmark = [pytest.mark.slow, pytest.mark.anyio]


@asynccontextmanager
async def reached(address, holder):
    """Lead what is dialled at an address here to the same address in the network of a process."""
    host, _, port = address.rpartition(":")

    def dialled():
        with Path(f"/proc/{holder.pid}/ns/net").open() as network:
            # A socket stays in the network in which it was made.
            return within([(network.fileno(), CLONE_NEWNET)], lambda: socket.create_connection((host, int(port))))

    async def relay(reader, writer):
        other_reader, other_writer = await asyncio.open_connection(sock=dialled())
        await asyncio.gather(pump(reader, other_writer), pump(other_reader, writer), return_exceptions=True)

    async def pump(source, sink):
        try:
            while data := await source.read(1 << 16):
                sink.write(data)
                await sink.drain()
        finally:
            sink.close()

    async with await asyncio.start_server(relay, host, int(port)):
        yield


class Nodes:
    """A controller whose new workers are all on one node, and an agent for each node."""

    def __init__(self, folder):
        self.folder = folder
        self.agents = []
        self.inside = []
        (folder / "c").mkdir()
        self.controller = ControllerProcess(folder / "c", **self.on("n1"))

    def on(self, node):
        """Return the configuration that puts new workers on a node."""
        local = {
            "workdir": str(self.folder / "c"),
            "boot_delay": {"milliseconds": 0},
            "node_cpu": "2",
            "node_memory": "1GiB",
        }
        return {
            "platform": {"local": local, "autoscaler": {"scale_down_delay": {"milliseconds": 500}}},
            "defaults": {"bootstrap": {"env_vars": {"IRISCW_NODE": node}}},
        }

    async def restart_on(self, node, holder):
        """Have a new controller, in the namespaces of a process, put new workers there; agents come there, too."""
        await self.controller.kill()
        write_config(self.controller.folder, **self.on(node))
        self.inside = ["nsenter", f"--target={holder.pid}", "--mount", "--net", "--"]
        command = self.controller.command()
        self.controller.command = lambda: [*self.inside, *command]
        await self.controller.start()

    async def agent(self, client, node):
        """Start the agent of a node."""
        environment = {
            "IRISCW_RAM_DIR": str(self.folder / f"{node}-ram"),
            "IRISCW_REPOSITORY": f"file://{self.folder / 'kept'}",
        }
        token = (await client.agent_token(node)).reveal()
        made = AgentProcess(self.folder / node, token, node, environment)
        command = made.command(client.address)
        made.command = lambda address: [*self.inside, *command]
        self.agents.append(made)
        await made.start(client.address)
        await until_node(client, "CONNECTED", node)
        return made

    async def aclose(self):
        """Leave nothing of it."""
        with anyio.CancelScope(shield=True):
            for agent in self.agents:
                await agent.kill()
            await self.controller.kill()
            async with self.controller.taken_over():
                pass


@pytest.fixture
def holder(tmp_path):
    """A process with a network and mounts of its own, where the kernel says that it was started another time."""
    other = tmp_path / "boot_id"
    other.write_text(f"{uuid.uuid4()}\n")
    code = f"mount --bind {other} /proc/sys/kernel/random/boot_id && ip link set lo up && echo ready && exec sleep 1000"
    argv = ["unshare", "--net", "--mount", "--propagation", "private", "sh", "-c", code]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as made:
        assert made.stdout.readline() == "ready\n"
        yield made
        made.kill()


@pytest.fixture
async def nodes(tmp_path):
    """Give them, and end them."""
    if why_not():
        pytest.skip(why_not())
    (tmp_path / "kept").mkdir()
    made = Nodes(tmp_path)
    await made.controller.start()
    try:
        yield made
    finally:
        await made.aclose()


async def test_it_goes_on_on_another_node(nodes, holder):
    """Same attempt; its log and its result are whole; nothing is left of its checkpoint."""
    with anyio.fail_after(PATIENCE_S):
        async with nodes.controller.client() as client:
            first = await nodes.agent(client, "n1")
            job, gate = await submit(client, nodes.folder)
            before = await only_task(job)
            suspended = await client.suspend(job, tier="repository")

            async def gone():
                return not await client.slices()

            await until(gone)
        await first.kill()
        for folder in (nodes.folder / "n1", nodes.folder / "n1-ram"):
            shutil.rmtree(folder)
        (attempt,) = (nodes.controller.state_dir / "cache").glob(f"*/*/attempts/{before.attempts[0].uid}")
        shutil.rmtree(attempt)
        await nodes.restart_on("n2", holder)
        async with reached(nodes.controller.address, holder), nodes.controller.client() as client:
            await nodes.agent(client, "n2")
            job = await client.job(job.id)
            await client.resume(job)
            after = await only_task(job)
            assert [each.uid for each in after.attempts] == [each.uid for each in before.attempts]
            assert after.worker_id != before.worker_id
            gate.touch()
            ((number, uids, workers),) = await job.result()
            assert uids == (before.attempts[0].uid,) * 2
            assert workers == (before.worker_id, after.worker_id)
            assert [str(line) async for line in job.logs()] == [str(each) for each in range(1, number + 1)]
            status = await job.status()
            assert (status.failures, status.preemptions) == (0, 0)

            async def tidy():
                held = [each for each in await client.checkpoints() if each.id == suspended.checkpoint]
                return not held and not [*(nodes.folder / "kept" / "heads").glob("*")]

            await until(tidy)
