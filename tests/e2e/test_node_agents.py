"""The agent of a machine and a controller, as processes, with the real CRIU: a task is copied while its job goes on.

Agents of one user share the tier "ram", and tests run side by side: these write to "disk", and look for what is theirs.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for kill_cluster
sys.path.insert(0, str(Path(__file__).parents[1] / "agent"))  # for real_trees

from kill_cluster import controller_process
from real_trees import why_not

from iriscw.cli.outcome import REFUSED
from iriscw.client.errors import OrderFailed
from iriscw.client.submission import Command
from iriscw.jobs.errors import TaskEnded
from iriscw.jobs.model import JobState
from iriscw.resources import Resources

pytestmark = pytest.mark.slow

SMALL = Resources(cpu="250m", memory="64MiB")
PATIENCE_S = 300
NODE = socket.gethostname()

COUNTING = """
import sys, time, pathlib
end, number = pathlib.Path(sys.argv[1]), 0
print("up", flush=True)
while not end.exists():
    number += 1
    time.sleep(0.005)
print("counted", flush=True)
"""


@pytest.fixture
def criu():
    """Skip where nothing can be frozen, and say why."""
    if why_not():
        pytest.skip(why_not())


async def first_line(job):
    """Wait for what the job writes first."""
    async with aclosing(job.logs(follow=True)) as lines:
        return str(await anext(lines))


class AgentProcess:
    """``iriscw agent serve`` with a controller, as often as it is started."""

    def __init__(self, folder, token, node=NODE, environment=None):
        self.folder, self.node, self.environment = folder, node, environment or {}
        self.folder.mkdir()
        self.token = folder / "token"
        self.token.write_text(token)
        self.process = None

    def command(self, address):
        """Return the command line."""
        code = "import sys, iriscw.cli; sys.exit(iriscw.cli.main())"
        where = ("--socket", str(self.folder / "s" / "a.sock"), "--state-dir", str(self.folder / "state"))
        who = ("--controller", str(address), "--node", self.node, "--token-file", str(self.token))
        return [sys.executable, "-c", code, "agent", "serve", *where, *who, "--lock-patience", f"{PATIENCE_S}s"]

    async def start(self, address):
        """Start it; return when it listens."""
        with (self.folder / "err").open("a+") as err:
            self.process = subprocess.Popen(  # noqa: ASYNC220 - returns at once
                self.command(address),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=err,
                env={**os.environ, **self.environment},
            )

    def said(self):
        """Return what it said."""
        return (self.folder / "err").read_text()

    async def kill(self, number=signal.SIGKILL):
        """Kill it, or tell it to end."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
            await anyio.to_thread.run_sync(self.process.wait, PATIENCE_S)


class World:
    """A controller and the agent of its machine."""

    def __init__(self, folder):
        self.folder = folder
        self.controller = None
        self.agents = []

    async def agent(self, client, name="agent", node=NODE):
        """Start an agent with the right token."""
        made = AgentProcess(self.folder / name, (await client.agent_token(node)).reveal(), node)
        self.agents.append(made)
        await made.start(client.address)
        return made


@pytest.fixture
async def world(tmp_path):
    """Give it, and end it."""
    (tmp_path / "c").mkdir()
    made = World(tmp_path)
    try:
        async with controller_process(tmp_path / "c") as made.controller:
            yield made
    finally:
        for agent in made.agents:
            await agent.kill()


async def until_node(client, state, node=NODE):
    """Wait until the controller says so of a node."""
    while True:
        for each in await client.nodes():
            if each.node == node and each.state == state:
                return each
        await anyio.sleep(0.05)


async def counting(client, folder):
    """Submit a job that goes on until a file is there; give it once it runs."""
    end = folder / "end"
    argv = [sys.executable, "-c", COUNTING, str(end)]
    job = await client.submit(Command(argv), name="counts", resources=SMALL)
    assert await first_line(job) == "up"
    return job, end


async def test_a_copy_of_a_job(world, criu):
    """It is made while the job goes on, which knows nothing of it; it is listed with its node, and removed."""
    with anyio.fail_after(PATIENCE_S):
        async with world.controller.client() as client:
            await world.agent(client)
            await until_node(client, "CONNECTED")
            job, end = await counting(client, world.folder)
            seen = []
            made = await client.checkpoint(job, keep_running=True, tier="disk", labels={"a": "b"}, seen=seen.append)
            assert (made.node, made.tier, made.unknown_since_ms) == (NODE, "disk", 0)
            assert made.labels == {"a": "b", "job": job.id, "task": "0"}
            assert (made.size_bytes > 0, made.processes) == (True, 1)
            assert seen[-1].outcome == "copied"
            assert [each.id for each in await client.checkpoints(labels={"job": job.id})] == [made.id]
            assert (await job.tasks())[0].attempts[1:] == ()
            end.touch()
            assert (await job.wait()).state is JobState.SUCCEEDED
            assert [str(line) async for line in job.logs()] == ["up", "counted"]
            with pytest.raises(TaskEnded):
                await client.checkpoint(job, keep_running=True)
            with pytest.raises(OrderFailed) as caught:
                await client.restore(made)
            assert caught.value.kind == "GateRefused"  # its files went with the attempt
            await made.delete()
            assert await client.checkpoints(labels={"job": job.id}) == []
            with pytest.raises(OrderFailed) as caught:
                await client.restore(made)
            assert caught.value.kind == "ArtifactUnknown"


async def test_both_are_killed_in_between(world, criu):
    """An order that was placed is carried out once, whichever of the two dies meanwhile."""
    with anyio.fail_after(2 * PATIENCE_S):
        async with world.controller.client() as client:
            agent = await world.agent(client)
            await until_node(client, "CONNECTED")
            job, end = await counting(client, world.folder)
            order = {}

            async def copy(task_status=anyio.TASK_STATUS_IGNORED):
                begun = anyio.Event()

                def seen(status):
                    order["last"] = status
                    if not begun.is_set():
                        begun.set()
                        task_status.started()

                order["made"] = await client.checkpoint(job, keep_running=True, tier="disk", seen=seen)

            async with anyio.create_task_group() as tasks:
                await tasks.start(copy)
                await agent.kill()
                await world.controller.kill()
                address = world.controller.address
                await world.controller.start()
                taken = world.controller.address != address
                if taken:
                    tasks.cancel_scope.cancel()
                await until_node(client, "UNKNOWN")
                await agent.start(client.address)
            if taken:
                pytest.skip("somebody else took the controller's port meanwhile")
            checkpoint = order["made"].id
            assert order["last"].operation == checkpoint
            assert [each.id for each in await client.checkpoints(labels={"job": job.id})] == [checkpoint]
            assert [str(line) async for line in job.logs()] == ["up"]
            end.touch()
            assert (await job.wait()).state is JobState.SUCCEEDED
            assert (await job.tasks())[0].attempts[1:] == ()


async def test_a_lost_agent(world):
    """Its node is not heard of, and nothing of it is said to be gone, until somebody has it forgotten."""
    token = world.controller.state_dir / "secrets" / "admin-token"
    with anyio.fail_after(PATIENCE_S):
        async with world.controller.client() as client:
            agent = await world.agent(client)
            before = await until_node(client, "CONNECTED")
            await agent.kill()
            after = await until_node(client, "UNKNOWN")
            assert (after.agent_id, after.criu) == (before.agent_id, before.criu)
            assert after.since_ms >= before.since_ms
            await agent.start(client.address)
            assert (await until_node(client, "CONNECTED")).agent_id == before.agent_id
            code, _, err = await command(client, token, "nodes", "forget", NODE)
            assert (code, "NodeConnected" in err) == (REFUSED, True), err
            await agent.kill()
            await until_node(client, "UNKNOWN")
            code, out, _ = await command(client, token, "nodes", "forget", NODE)
            assert (code, out) == (0, f"{NODE} is forgotten\n")
            assert await client.nodes() == []
            await agent.start(client.address)
            assert (await until_node(client, "CONNECTED")).agent_id == before.agent_id


async def command(client, token, *arguments):
    """Run the command line to its end, as an admin; give its exit code and what it said."""
    code = "import sys, iriscw.cli; sys.exit(iriscw.cli.main())"
    given = [*arguments, "--address", client.address, "--token-file", str(token)]
    done = await anyio.run_process([sys.executable, "-c", code, *given], check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


async def test_the_commands(world, criu):
    """`agent token`, `checkpoint JOB`, `checkpoints --cluster`, `nodes`: what people type."""
    with anyio.fail_after(2 * PATIENCE_S):
        async with world.controller.client() as client:
            token = world.controller.state_dir / "secrets" / "admin-token"
            place = world.folder / "agent-token"
            code, _, said = await command(client, token, "agent", "token", str(place), "--node", NODE)
            assert (code, place.stat().st_mode & 0o777) == (0, 0o600), said
            agent = await world.agent(client)
            assert agent.token.read_text().strip() == place.read_text().strip()
            await until_node(client, "CONNECTED")
            job, end = await counting(client, world.folder)
            words = ("checkpoint", job.id, "--leave-running", "--tier", "disk", "-o", "json")
            code, out, said = await command(client, token, *words)
            assert code == 0, said
            done = json.loads(out)
            assert (done["outcome"], done["processes"], done["tier"]) == ("copied", 1, f"disk of {NODE}")
            assert "writes the images" in said
            listing = ("checkpoints", "--cluster", "-o", "json", "--label", f"job={job.id}")
            code, out, said = await command(client, token, *listing)
            assert [(each["id"], each["node"]) for each in json.loads(out)] == [(done["checkpoint"], NODE)], said
            code, out, _ = await command(client, token, "nodes", "-o", "json")
            assert [(each["node"], each["state"]) for each in json.loads(out)] == [(NODE, "CONNECTED")]
            removing = (*listing, "--remove", done["checkpoint"])
            assert json.loads((await command(client, token, *removing))[1]) == []
            await agent.kill()
            await until_node(client, "UNKNOWN")
            _, out, said = await command(client, token, *listing)
            assert (json.loads(out), NODE in said) == ([], True)
            end.touch()
            await job.wait()
