"""Hosted actors on a cluster of this machine: each is a job, and its process is another one."""

import os
import pickle
import signal
import sys
from pathlib import Path

import anyio
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for kill_cluster

from kill_cluster import ControllerProcess

import iriscw
from iriscw import Resources
from iriscw.client.actor_states import ControllerStates
from iriscw.client.actors import ActorHandle
from iriscw.client.hosted import ActorId, HostedCalls
from iriscw.errors import ActorOver, CallLost, InvalidActor, NoSuchMethod, NotHosted, PermissionDenied
from raised import that

pytestmark = pytest.mark.anyio

SMALL = Resources(cpu=0.1, memory="64MiB")
PATIENCE_S = 60


class Account:
    """What is hosted."""

    def __init__(self, amount):
        if amount < 0:
            raise ValueError("no money")
        self.amount = amount

    def add(self, more):
        self.amount += more
        return self.amount

    def who(self):
        return os.getpid(), iriscw.context().job_id

    def move(self, other, amount):
        """Call another actor from a thread."""
        self.amount -= amount
        return other.add.remote(amount).result()

    async def move_async(self, other, amount):
        """Call another actor from the event loop."""
        self.amount -= amount
        return await other.add(amount)

    def die(self):
        os.kill(os.getpid(), signal.SIGKILL)


class Ledger:
    """What begins again where its last snapshot was."""

    def __init__(self):
        self.entries = []

    def add(self, entry):
        self.entries.append(entry)
        return len(self.entries)

    def rows(self):
        yield from self.entries

    def die(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def snapshot(self):
        return self.entries

    def restore(self, state):
        self.entries = state


async def test_actors_call_each_other(cluster):
    """By handles that are passed on, from threads and loops, though each is in a job of its own."""
    client = cluster.client
    with anyio.fail_after(PATIENCE_S):
        one = await client.create_actor(Account, 10, name="one", resources=SMALL)
        group = await client.create_actor_group(Account, 0, name="more", count=2, resources=SMALL)
        two, three = await group.wait_ready()
        assert [each.name for each in group] == ["more-0", "more-1"]
        assert await two.move(one, 5) == 15
        assert await three.move_async(one, 1) == 16
        assert await one.method(Account.add)(1) == 17
        pid, job = await one.who()
        assert pid != os.getpid()
        assert job == one.job_id
        with pytest.raises(NoSuchMethod, check=that(names="add")):
            one.ad(1)


@pytest.mark.slow
async def test_one_that_fails_is_made_anew(cluster):
    """As often as was said: a call under way is lost, later ones wait for the next process; then it is over."""
    client = cluster.client
    with anyio.fail_after(PATIENCE_S):
        handle = await client.create_actor(Account, 1, name="mortal", resources=SMALL, max_restarts=1)
        assert await handle.add(1) == 2
        with pytest.raises(CallLost):
            await handle.die()
        assert await handle.add(2) == 3
        await handle.die.tell()
        job = await client.job(handle.job_id)
        assert (await job.wait()).state is iriscw.JobState.FAILED
        with pytest.raises(ActorOver):
            await handle.add(0)


@pytest.mark.slow
async def test_one_begins_again_where_its_snapshot_was(cluster):
    """What was called after it is lost, but not what has a key; nothing is left of a job that is forgotten."""
    client = cluster.client
    with anyio.fail_after(PATIENCE_S):
        handle = await client.create_actor(
            Ledger, name="ledger", resources=SMALL, max_restarts=1, snapshot_every=0, concurrency=1
        )
        assert await handle.add.with_key("one")("one") == 1
        while cluster.statistics().actor_states.kept < 1:  # noqa: ASYNC110 - no event tells of it
            await anyio.sleep(0.01)
        with pytest.raises(CallLost):
            await handle.die()
        assert await handle.add.with_key("one")("one") == 1
        assert await handle.add("two") == 2
        assert [each async for each in handle.rows.stream()] == ["one", "two"]
        assert cluster.statistics().actor_states.given == 1
        job = await client.job(handle.job_id)
        with pytest.raises(PermissionDenied):
            await ControllerStates(client.method_calls).load()
        await job.terminate("done")


@pytest.mark.slow
async def test_one_that_cannot_be_made_says_why(cluster):
    """To its callers, in the words of its error."""
    client = cluster.client
    with anyio.fail_after(PATIENCE_S):
        handle = await client.create_actor(Account, -1, name="poor", resources=SMALL)
        with pytest.raises(ActorOver, check=that(names="ValueError")):
            await handle.add(1)


@pytest.mark.slow
async def test_who_may_call(cluster):
    """A job that hosts no actor, a capability of another one, and a handle of one that is over are refused."""
    client = cluster.client
    with anyio.fail_after(PATIENCE_S):
        one = await client.create_actor(Account, 1, name="guarded", resources=SMALL)
        other = await client.create_actor(Account, 1, name="open", resources=SMALL)
        plain = await client.submit(os.getpid, name="plain", resources=SMALL)
        home = client.hosted_calls
        forged = ActorId(one.job_id, one._ref.job_uid, one.name, other._ref.capability)
        for ref, error in ((forged, PermissionDenied), (ActorId(plain.id, plain.uid, "plain"), NotHosted)):
            with pytest.raises(error):
                await ActorHandle(ref, ["add"], HostedCalls(await home.opened()), None).add(1)
        with pytest.raises(InvalidActor):
            await client.create_actor(Account(1), name="object", resources=SMALL)


@pytest.mark.slow
async def test_calls_go_on_without_the_controller(tmp_path):
    """Who is connected needs it no more; after its restart an actor is found where it was."""
    controller = ControllerProcess(tmp_path)
    await controller.start()
    try:
        with anyio.fail_after(PATIENCE_S):
            async with controller.client() as client:
                handle = await client.create_actor(Account, 1, name="steady", resources=SMALL)
                assert await handle.add(1) == 2
                await controller.kill()
                assert await handle.add(1) == 3
                passed_on = pickle.dumps(handle)
                await controller.start()
            async with controller.client() as client:
                found = pickle.loads(passed_on)
                again = ActorHandle(found._ref, found._methods, client.hosted_calls, None)
                assert await again.add(1) == 4
    finally:
        with anyio.CancelScope(shield=True):
            await controller.kill()
            async with controller.taken_over():
                pass
