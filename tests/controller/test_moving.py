"""How attempts are frozen and thawed for their jobs: a real controller, a worker and an agent that are none."""

from contextlib import asynccontextmanager

import anyio
import attrs
import pytest
from doors.test_agents import dialled, hello, report, until_state

from iriscw.controller.errors import CheckpointKept
from iriscw.jobs.errors import SuspensionRefused
from iriscw.jobs.suspension.effects import (
    CheckpointStored,
    DropCheckpoint,
    FreezeAttempt,
    Frozen,
    StoreCheckpoint,
    ThawAttempt,
    Thawed,
)
from iriscw.jobs.suspension.messages import FollowRepositories
from iriscw.jobs.suspension.moves import Move, freeze_key, thaw_key
from iriscw.proto.iriscw import v1
from raised import that
from waiting import until

PATIENCE_S = 60
SUPERVISOR = v1.ProcessRef(pid=70, start_ticks=7, boot_id="boot", pid_namespace=9)


class Agent:
    """What an agent is told, and what it says."""

    def __init__(self, call):
        self.call, self.said, self.told, self.begun = call, 0, [], []
        self.released, self.cancelled = [], []

    async def serve(self):
        """Take what comes, until cancelled."""
        while (message := await self.call.receive()) is not None:
            if message.orders is not None:
                self.begun += message.orders.begin
                self.cancelled += message.orders.cancel
                self.released += message.orders.release

    async def order(self, number=0):
        """Wait for an order; give it."""
        await until(lambda: len(self.begun) > number)
        return self.begun[number]

    async def end(self, operation, outcome, kind="", text=""):
        """Say what became of an operation, and wait until the controller has that on disk."""
        self.said += 1
        end = v1.OperationEnd(outcome=outcome, kind=kind, text=text)
        await self.call.send(report(self.said, orders=[v1.OrderEnd(operation_id=operation, end=end)]))
        await until(lambda: operation in self.released)


@asynccontextmanager
async def agent_of(world, node="n1", repository=""):
    """An agent that has said everything."""
    said = hello(node, f"agent-{node}", repository=repository)
    async with dialled(world, said, world.tokens.agent_token(node)) as (call, first):
        assert first.welcome is not None
        agent = Agent(call)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(agent.serve)
            agent.said = 1
            await call.send(report(1))
            await until_state(world, v1.NodeState.CONNECTED, node)
            yield agent
            tasks.cancel_scope.cancel()


GPUS = ("GPU-1", "GPU-2")


@asynccontextmanager
async def running(world, node="n1"):
    """A worker on a node with an attempt that runs; give both and the words of a freeze."""
    job = await world.submit()
    async with world.worker(manual=True, node=node) as worker:
        await until(lambda: worker.runs)
        (uid,) = worker.runs
        yield (
            worker,
            uid,
            FreezeAttempt("s1", uid, job.job_id, 0, worker.worker_id, worker.incarnation, "ram", False, (), GPUS),
        )


async def suspending(worker, uid, **changes):
    """Have the worker say that the attempt may be frozen."""
    said = {"supervisor": SUPERVISOR, "folder": "/w/a/attempts/u", **changes}
    await worker.observe(uid, v1.TaskState.RUNNING, suspension=v1.Suspension.SUSPENDING, **said)


def moves_of(world):
    """Return what carries out what jobs want of agents."""
    return world.controller.features.parts["nodes"].moves


async def done(moves, name, effect):
    """Carry an effect out, within a bound."""
    with anyio.fail_after(PATIENCE_S):
        return await getattr(moves, name)(effect)


async def test_a_freeze(world):
    """It waits for the worker's word and for the agent; the supervisor is frozen, guarded, with connections given up.

    The same key is the same order, in another life of the controller, too.
    """
    async with running(world) as (worker, uid, effect), anyio.create_task_group() as tasks:
        found = []

        async def freeze():
            found.append(await done(moves_of(world), "freeze", effect))

        async with agent_of(world) as agent:
            tasks.start_soon(freeze)
            await suspending(worker, uid)
            order = await agent.order()
            asked = order.freeze
            assert (asked.request.pid, asked.request.start_ticks, asked.boot_id) == (70, 7, "boot")
            assert (asked.pid_namespace, asked.attempt_uid, asked.request.guard) == (9, uid, "/w/a/attempts/u")
            assert (asked.request.tcp_close, asked.request.leave_running) == (True, False)
            assert asked.request.labels == {"job": effect.job_id, "task": "0", "gpus": "GPU-1,GPU-2"}
            await agent.end(order.operation_id, "frozen")
            await until(lambda: found)
            assert (found[0].outcome, found[0].checkpoint, found[0].node) == (Frozen.FROZEN, order.operation_id, "n1")
            assert await done(moves_of(world), "freeze", effect) == found[0]
            assert len(agent.begun) == 1
    assert world.controller.statistics().moves == {("freeze", "frozen"): 2}
    await world.restart()
    assert await done(moves_of(world), "freeze", effect) == found[0]


@pytest.mark.parametrize(
    ("outcome", "told"),
    [("undone", Frozen.UNDONE), ("refused", Frozen.UNDONE), ("lost", Frozen.UNKNOWN), ("left", Frozen.UNKNOWN)],
)
async def test_a_freeze_that_came_to_nothing(world, outcome, told):
    """Whether it runs on, or nobody can say, and why."""
    async with running(world) as (worker, uid, effect), agent_of(world) as agent:
        await suspending(worker, uid)
        async with anyio.create_task_group() as tasks:

            async def answer():
                await agent.end((await agent.order()).operation_id, outcome, "TargetGone", "it is not there")

            tasks.start_soon(answer)
            found = await done(moves_of(world), "freeze", effect)
        assert (found.outcome, found.checkpoint, found.reason) == (told, "", "TargetGone: it is not there")


async def test_an_agent_that_is_away_is_waited_for(world):
    """One that was never there is not: that is refused, and nothing is ordered."""
    async with running(world) as (worker, uid, effect):
        await suspending(worker, uid)
        with pytest.raises(SuspensionRefused, check=that(names="n1")):
            await done(moves_of(world), "freeze", effect)
        async with agent_of(world):
            pass
        await until_state(world, v1.NodeState.UNKNOWN)
        async with anyio.create_task_group() as tasks:
            found = []

            async def freeze():
                found.append(await done(moves_of(world), "freeze", effect))

            tasks.start_soon(freeze)
            async with agent_of(world) as agent:
                await agent.end((await agent.order()).operation_id, "undone")
                await until(lambda: found)


@pytest.mark.parametrize("changes", [{"supervisor": None}, {"folder": ""}])
async def test_a_worker_that_names_nothing_to_freeze(world, changes):
    """It is refused by name."""
    async with running(world) as (worker, uid, effect), agent_of(world):
        await suspending(worker, uid, **changes)
        with pytest.raises(SuspensionRefused, check=that(comes_from="moving.Moves._begin_freeze")):
            await done(moves_of(world), "freeze", effect)


@pytest.mark.parametrize(
    ("outcome", "kind", "told"),
    [
        ("thawed", "", Thawed.THAWED),
        ("failed", "CriuFailed", Thawed.UNDONE),
        ("failed", "GateRefused", Thawed.REFUSED),
        ("refused", "RightsMissing", Thawed.REFUSED),
        ("undone", "NoRoom", Thawed.REFUSED),
        ("refused", "MoveUndone", Thawed.REFUSED),
        ("refused", "ArtifactUnknown", Thawed.DAMAGED),
        ("failed", "ArtifactRefused", Thawed.UNDONE),
        ("unknown", "GateRefused", Thawed.UNKNOWN),
    ],
)
async def test_a_thaw(world, outcome, kind, told):
    """It is ordered of the node that has the checkpoint, once for each key. What that machine lacks is told apart."""
    async with agent_of(world) as agent, anyio.create_task_group() as tasks:

        async def answer():
            order = await agent.order()
            assert order.thaw.checkpoint_id == "ck-1"
            assert order.thaw.gpus == {"GPU-1": "GPU-2"}
            await agent.end(order.operation_id, outcome, kind=kind, text="so it is")

        tasks.start_soon(answer)
        effect = ThawAttempt("t1", "u", "ck-1", "n1", (("GPU-1", "GPU-2"),))
        found = await done(moves_of(world), "thaw", effect)
        said = f"{kind}: so it is"
        assert (found.outcome, found.reason) == (told, "" if told is Thawed.THAWED else said)
        assert await done(moves_of(world), "thaw", effect) == found
        assert len(agent.begun) == 1


async def test_what_is_dropped_is_removed(world):
    """Also where its job never learned what became of the freeze: that is ended first."""
    async with running(world) as (worker, uid, effect), agent_of(world) as agent:
        await suspending(worker, uid)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(done, moves_of(world), "freeze", effect)
            frozen = (await agent.order()).operation_id
            tasks.cancel_scope.cancel()
        assert agent.cancelled == []  # whoever stops waiting ends nothing
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(done, moves_of(world), "drop", DropCheckpoint("s1"))
            await until(lambda: agent.cancelled == [frozen])
            await agent.end(frozen, "frozen")  # it was past that
            removal = await agent.order(1)
            assert removal.remove.checkpoint_id == frozen
            await agent.end(removal.operation_id, "removed")
        await done(moves_of(world), "drop", DropCheckpoint("s1", frozen, "n1"))
        assert len(agent.begun) == 2


async def test_what_is_being_thawed_is_not_removed_yet(world):
    """An attempt runs before its thaw is over, which has its checkpoint until then: each try is waited for."""
    move = Move(number=2, tries=1)
    thaw = ThawAttempt(thaw_key("u", move), "u", "ck-1", "n1")
    async with agent_of(world) as agent, anyio.create_task_group() as tasks:
        tasks.start_soon(done, moves_of(world), "thaw", thaw)
        order = await agent.order()
        tasks.start_soon(
            done,
            moves_of(world),
            "drop",
            DropCheckpoint(freeze_key("u", move), "ck-1", "n1"),
        )
        tasks.start_soon(done, moves_of(world), "drop", DropCheckpoint("other", "ck-2", "n1"))
        other = await agent.order(1)
        assert other.remove.checkpoint_id == "ck-2", "who asked first waits"
        await agent.end(other.operation_id, "removed")
        await agent.end(order.operation_id, "thawed")
        removal = await agent.order(2)
        assert removal.remove.checkpoint_id == "ck-1"
        await agent.end(removal.operation_id, "removed")


URL = "s3://checkpoints"


async def test_what_is_stored_is_removed_by_any_that_has_the_repository(world):
    """It is moved there and leaves nothing; whoever was asked to bring it back may have a copy, and removes it."""
    async with agent_of(world, "n1", repository=URL) as agent, agent_of(world, "n2", repository=URL) as other:
        async with anyio.create_task_group() as tasks:
            found = []

            async def store():
                found.append(await done(moves_of(world), "store", StoreCheckpoint("store-u-1", "u", "ck-1", "n1")))

            tasks.start_soon(store)
            order = await agent.order()
            assert (order.move.checkpoint_id, order.move.tier, order.move.keep) == ("ck-1", "repository", False)
            await agent.end(order.operation_id, "moved")
            await until(lambda: found)
            assert found == [CheckpointStored(URL, found[0].reason)]
            tasks.start_soon(
                done, moves_of(world), "drop", DropCheckpoint("suspend-u-1", "ck-1", "n1", 0, URL, ("n2",))
            )
            removal = await other.order()
            assert removal.remove.checkpoint_id == "ck-1"
            await other.end(removal.operation_id, "removed")
        assert len(agent.begun) == 1
    async with agent_of(world, "n2", repository=URL) as other, anyio.create_task_group() as tasks:
        tasks.start_soon(done, moves_of(world), "drop", DropCheckpoint("suspend-v-1", "ck-2", "n1", 0, URL))
        removal = await other.order()
        assert removal.remove.checkpoint_id == "ck-2"
        await other.end(removal.operation_id, "removed")


async def test_an_agent_that_has_another_repository_by_now(world):
    """It is stored where it was ordered to be: that stands in the order, and an agent that has another one refuses."""
    found = []
    async with anyio.create_task_group() as tasks:
        async with agent_of(world, "n1", repository=URL) as agent:

            async def store():
                found.append(await done(moves_of(world), "store", StoreCheckpoint("store-u-1", "u", "ck-1", "n1")))

            tasks.start_soon(store)
            order = await agent.order()
            operation = order.operation_id
            assert order.move.repository == URL
        await until_state(world, v1.NodeState.UNKNOWN)
        async with agent_of(world, "n1", repository=f"{URL}/other") as agent:
            await agent.order()
            await agent.end(operation, "moved")
            await until(lambda: found)
    assert found[0].repository == URL


async def test_one_node_that_is_gone_keeps_no_other_from_removing(world):
    """What cannot be removed there is told once the others have removed theirs."""
    async with agent_of(world, "n2", repository=URL) as other, anyio.create_task_group() as tasks:
        dropped = DropCheckpoint("suspend-u-1", "ck-1", "n1", 0, URL, ("n9", "n2"))

        async def drop():
            with pytest.raises(CheckpointKept, check=that(names="n9")):
                await moves_of(world).drop(dropped)

        tasks.start_soon(drop)
        removal = await other.order()
        assert removal.remove.checkpoint_id == "ck-1"
        await other.end(removal.operation_id, "removed")


@pytest.mark.parametrize(("outcome", "kind"), [("stayed", "NoRoom"), ("refused", "NoRepository"), ("unknown", "Lost")])
async def test_what_is_not_stored_says_why(world, outcome, kind):
    """It lies where it was."""
    async with agent_of(world) as agent, anyio.create_task_group() as tasks:
        found = []

        async def store():
            found.append(await done(moves_of(world), "store", StoreCheckpoint("store-u-1", "u", "ck-1", "n1")))

        tasks.start_soon(store)
        await agent.end((await agent.order()).operation_id, outcome, kind, "no")
        await until(lambda: found)
        assert found == [CheckpointStored("", f"{kind}: no")]


async def test_what_is_to_be_stored_is_frozen_only_where_it_can_be(world):
    """Its folder is carried, and its agent has a repository; else it runs on."""
    async with running(world) as (worker, uid, plain):
        effect = attrs.evolve(plain, carries_folder=True, tier="")
        async with agent_of(world) as agent:
            await suspending(worker, uid)
            with pytest.raises(SuspensionRefused, check=that(names="--repository")):
                await done(moves_of(world), "freeze", effect)
        async with agent_of(world, repository=URL) as agent, anyio.create_task_group() as tasks:
            tasks.start_soon(done, moves_of(world), "freeze", effect)
            order = await agent.order()
            assert order.freeze.request.carries_folder
            await agent.end(order.operation_id, "undone", "NoRoom", "full")


async def test_who_has_which_repository_is_told_as_agents_come_and_go(world):
    """All of it each time, and only when it changes."""
    told = []

    class Port:
        async def send(self, item):
            told.append(dict(item.nodes))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(moves_of(world).follow, FollowRepositories(), Port())
        await until(lambda: told == [{}])
        async with agent_of(world, "n1", repository=URL), agent_of(world, "n2"):
            await until(lambda: told[1:] == [{"n1": URL}])
        await until(lambda: told[2:] == [{}])
        tasks.cancel_scope.cancel()


async def test_what_was_undone_leaves_nothing_to_drop(world):
    """Nor does what was never ordered. What an agent does not remove is an error by name."""
    async with agent_of(world) as agent:
        await done(moves_of(world), "drop", DropCheckpoint("never"))
        assert agent.begun == []
        async with anyio.create_task_group() as tasks:

            async def answer():
                await agent.end((await agent.order()).operation_id, "refused", "ArtifactBusy", "it is used")

            tasks.start_soon(answer)
            with pytest.raises(CheckpointKept, check=that(names="ArtifactBusy")):
                await done(moves_of(world), "drop", DropCheckpoint("s2", "ck-2", "n1"))
