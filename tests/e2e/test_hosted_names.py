"""Hosted actors found by name, and shared in pools, on a cluster of this machine."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import anyio
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for kill_cluster

from kill_cluster import ControllerProcess

import iriscw
from iriscw import ActorPool, Resources, blocking
from iriscw.errors import NoSuchName, PermissionDenied
from iriscw.jobs.model import JobState

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

SMALL = Resources(cpu=0.1, memory="64MiB")
PATIENCE_S = 60


class Node:
    """An actor that creates others, finds them by name, and ends them."""

    def __init__(self, label=""):
        self.label = label

    def who(self):
        return self.label, iriscw.context().job_id, iriscw.context().namespace

    def create(self, name, label):
        with blocking.connect() as client:
            return client.create_actor(Node, label, name=name, resources=SMALL)

    def ask(self, path):
        """Find an actor from a thread."""
        return blocking.BlockingResolver(iriscw.context().resolver).resolve(path, Node).who()

    async def ask_async(self, name):
        """Wait for an actor on the event loop."""
        found = await iriscw.context().resolver.resolve(name, wait=True, timeout_s=PATIENCE_S)
        return await found.who()

    def create_group(self):
        """Create two and end them, which leaves nobody to call."""
        with blocking.connect() as client:
            group = client.create_actor_group(Node, name="more", count=2, resources=SMALL)
            group.wait_ready()
            group.terminate("enough")
            return [client.job(each.job_id).wait().state for each in group]

    def names(self):
        return [each.name for each in blocking.BlockingResolver(iriscw.context().resolver).list()]

    def end(self, job_id):
        with blocking.connect() as client:
            job = client.job(job_id)
            job.terminate()
            return job.wait().state


class Worker:
    """A member of a pool; one that finds the file dies, once."""

    def work(self, number, file):
        try:
            Path(file).unlink()
        except FileNotFoundError:
            return number
        os.kill(os.getpid(), signal.SIGKILL)
        return time.sleep(PATIENCE_S)


async def test_tasks_find_each_other_by_name(cluster):
    """Each in its own tree, where two have the same names; what one has created it may end, and nothing else."""
    client = cluster.client
    with anyio.fail_after(PATIENCE_S):
        one = await client.create_actor(Node, "one", name="one", resources=SMALL, concurrency=2)
        two = await client.create_actor(Node, "two", name="two", resources=SMALL)
        waiting = one.ask_async.remote("child")
        child, other = await one.create("child", "a"), await two.create("child", "b")
        assert await waiting == ("a", child.job_id, one.job_id)
        assert await child.ask("/one") == await child.ask("one") == ("one", one.job_id, one.job_id)
        assert await two.ask("child") == ("b", other.job_id, two.job_id)
        assert await child.names() == ["one", "child"]
        assert await client.resolver.resolve("/two/child") == other
        for call, error in ((child.ask("/two/child"), PermissionDenied), (one.end(two.job_id), PermissionDenied)):
            with pytest.raises(error):
                await call
        with pytest.raises(PermissionDenied):
            await child.end(one.job_id)
        assert await one.end(child.job_id) is JobState.KILLED
        with pytest.raises(NoSuchName):
            await one.ask("child")
        assert await one.create_group() == [JobState.KILLED] * 2


async def test_a_pool_goes_on_when_a_member_is_killed(cluster, tmp_path):
    """What it had is given to another one, if that was asked for."""
    file = tmp_path / "once"
    file.touch()
    with anyio.fail_after(PATIENCE_S):
        group = await cluster.client.create_actor_group(Worker, name="pooled", count=2, resources=SMALL, max_restarts=1)
        pool = ActorPool(group, retries=1)
        assert [await pool.call(Worker.work, number, str(file)) for number in range(4)] == [0, 1, 2, 3]
        assert not file.exists()


async def test_names_outlive_the_controller(tmp_path):
    """One that was killed finds them again, and whoever waits for a name waits on."""
    controller = ControllerProcess(tmp_path)
    await controller.start()
    try:
        with anyio.fail_after(PATIENCE_S):
            async with controller.client() as client:
                first = await client.create_actor(Node, "a", name="first", resources=SMALL)
                assert (await first.who())[0] == "a"
                waiting = asyncio.create_task(client.resolver.resolve("second", Node, wait=True))
                await controller.kill()
                await controller.start()
                found = await client.resolver.resolve("first", Node)
                assert (found, await found.who()) == (first, await first.who())
                second = await client.create_actor(Node, "b", name="second", resources=SMALL)
                assert await waiting == second
    finally:
        with anyio.CancelScope(shield=True):
            await controller.kill()
            async with controller.taken_over():
                pass
