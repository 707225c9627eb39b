"""The node agent over a simulated machine: its door is a real unix socket, its journal a real one."""

import json
import os
import sys
import zlib
from pathlib import Path

import anyio
import anyio.lowlevel
import attrs
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for agent_world
sys.path.insert(0, str(Path(__file__).parents[1] / "checkpoint"))  # for artifacts

from agent_world import PATIENCE_S, StepWorld, agent_of, freeze_plan, last, machine_of, thaw_plan
from artifacts import FROZEN, fill

from iriscw._errors import InvalidArgument, OutcomeUnknown, RestartsExhausted
from iriscw.agent.claims import TargetBusy, claim, frozen_by_us
from iriscw.agent.daemon import Agent
from iriscw.agent.errors import (
    AgentRunning,
    OperationUnknown,
    TooManyOperations,
    UnsafeSocketFolder,
    UnsafeStateFolder,
)
from iriscw.checkpoint.drivers.store import Folders, default_reading
from iriscw.cli.outcome import alone
from iriscw.client.client import connect
from iriscw.files import make_private_folder
from iriscw.freeze.model import ArtifactUnknown, CudaRefused, CudaState, Outcome, TargetGone, UnsafeRequest
from raised import that

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("claims_of_ours")]


@pytest.fixture
def world(request, monkeypatch):
    """A machine with a boot of its own: claims count on the whole real machine, and tests run side by side."""
    monkeypatch.setattr("freeze_world.BOOT", f"boot-{os.getpid()}-{zlib.crc32(request.node.nodeid.encode()):x}")
    return StepWorld()


async def test_a_tree_goes_and_comes_back(tmp_path, world):
    """Each step is told, the last view has the outcome, and nothing is left to do after it."""
    with anyio.fail_after(PATIENCE_S):
        async with agent_of(tmp_path, world) as (agent, caller):
            view = await last(caller.freeze(freeze_plan(world)))
            assert view.end.outcome is Outcome.FROZEN
            assert [step.phase for step in view.steps] == [
                *("looking", "reserving", "locking", "checkpointing", "dumping", "sealing", "publishing", "ending"),
            ]
            assert not world.living()
            assert await caller.operations() == []
            view = await last(caller.thaw(thaw_plan(view.artifact)))
            assert view.end.outcome is Outcome.THAWED
            assert len(world.living()) == 3
            assert (await last(caller.watch(view.asked.operation))).end == view.end
            assert agent.board.running() == []


async def test_a_caller_who_leaves(tmp_path, world):
    """What he began is undone: the tree runs on and nothing is kept; what was begun detached goes on."""
    with anyio.fail_after(PATIENCE_S):
        async with agent_of(tmp_path, world) as (agent, caller):
            await begun_and_left(world, caller, "seal")
            await agent.board.until_idle()
            assert [process.cuda for process in world.living()] == [CudaState.RUNNING, None, CudaState.RUNNING]
            assert world.artifacts == {}
            await begun_and_left(world, caller, "seal", detached=True)
            world.let_go()
            await agent.board.until_idle()
            assert not world.living()
            assert len(world.artifacts) == 1


async def begun_and_left(world, caller, method, **words):
    """Begin a freeze, and leave when it comes to this call."""
    world.hold(method)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(last, caller.freeze(freeze_plan(world), **words))
        await world.arrived.wait()
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("method", ["tree", "lock", "dump", "publish"])
async def test_an_interrupted_caller(tmp_path, world, method):
    """Whoever is cancelled while he follows what he began goes only when it is undone."""
    with anyio.fail_after(PATIENCE_S):
        async with agent_of(tmp_path, world) as (agent, caller):
            views = []
            told = anyio.Event()

            def see(view):
                views.append(view)
                told.set()

            world.hold(method)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(caller.run, caller.freeze(freeze_plan(world)), see)
                await world.arrived.wait()
                await told.wait()
                world.held_at = ""
                tasks.cancel_scope.cancel()
            assert agent.board.running() == []
            assert views[-1].end.outcome is Outcome.UNDONE
            assert views[-1].end.kind == "Cancelled"
            assert len(world.living()) == 3
            assert world.artifacts == {}


async def test_another_caller_watches_and_cancels(tmp_path, world):
    """An operation is known by its id to every caller; its own one sees that it was undone."""
    with anyio.fail_after(PATIENCE_S):
        async with agent_of(tmp_path, world) as (_, caller):
            ends = []

            async def freeze():
                ends.append(await last(caller.freeze(freeze_plan(world))))

            world.hold("dump")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(freeze)
                await world.arrived.wait()
                (running,) = await caller.operations()
                assert running.phase == "dumping"
                world.held_at = ""
                over = await caller.cancel(running.asked.operation)
                assert over.end.outcome is Outcome.UNDONE
            assert ends[0].end == over.end
            with pytest.raises(OperationUnknown):
                await caller.cancel("ck-none")
            with pytest.raises(OperationUnknown):
                await last(caller.watch("ck-none"))


async def test_no_more_than_so_many_at_once(tmp_path, world):
    """One too many is refused by name, and begun when there is room again."""
    with anyio.fail_after(PATIENCE_S):
        async with agent_of(tmp_path, world, max_operations=1) as (agent, caller):
            world.hold("tree")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(last, caller.freeze(freeze_plan(world, leave_running=True)))
                await world.arrived.wait()
                with pytest.raises(TooManyOperations):
                    await last(caller.thaw(thaw_plan("ck-1")))
                world.let_go()
            assert agent.board.running() == []
            view = await last(caller.freeze(freeze_plan(world, leave_running=True)))
            assert view.end.outcome is Outcome.COPIED


async def test_a_tier_that_is_not_ours_alone_is_refused_at_once(tmp_path, world):
    """No operation is begun that would try for long to undo in there what it never did."""
    tier = Folders("ram", tmp_path / "ram", 1 << 30)
    tier.root.mkdir(mode=0o755)
    with anyio.fail_after(PATIENCE_S):
        async with agent_of(tmp_path, world, folders=(tier,)) as (agent, caller):
            for views in (caller.freeze(freeze_plan(world)), caller.thaw(thaw_plan("ck-1"))):
                with pytest.raises(UnsafeRequest, check=that(names="0700")):
                    await last(views)
            assert agent.board.running() == []
            assert len(world.living()) == 3


async def test_one_whose_beginning_is_not_known(tmp_path, world, monkeypatch):
    """A slow disk is waited for; where it is not known whether it began, it is shown until it is over."""
    with anyio.fail_after(PATIENCE_S):
        async with agent_of(tmp_path, world) as (agent, caller):
            waited = []

            really = agent._system.ask

            async def ask(path, message, timeout_s=5.0):
                if path != "/operations":
                    return await really(path, message, timeout_s)
                waited.append(timeout_s)
                agent._system.tell(path, message)
                await world.arrived.wait()
                raise OutcomeUnknown("a disk hangs")

            monkeypatch.setattr(agent._system, "ask", ask)
            world.hold("lock")
            with pytest.raises(OutcomeUnknown):
                await last(caller.freeze(freeze_plan(world)))
            (view,) = agent.board.running()
            world.let_go()
            await agent.board.until_idle()
            assert agent.board.view(view.asked.operation).end.outcome is Outcome.UNDONE
            assert waited[0] > 3600


async def test_one_that_is_shown_no_more(tmp_path, world):
    """What it left is removed all the same, and its target is free."""
    disk = Folders("disk", tmp_path / "disk", 1 << 30)
    with anyio.fail_after(PATIENCE_S):
        async with agent_of(tmp_path, world, folders=[disk]) as (agent, caller):
            await begun_and_left(world, caller, "lock", detached=True)
            (view,) = agent.board.running()
            work = disk.root / "work" / view.asked.operation
            make_private_folder(work)
            agent.board.refused(view.asked.operation)
            world.let_go()
            while view.asked.operation in agent._claims:
                await anyio.lowlevel.checkpoint()
            assert not work.exists()


async def test_one_at_a_time_for_each_target(tmp_path, world):
    """A process that somebody else freezes is refused, and can be frozen as soon as he has done."""
    with anyio.fail_after(PATIENCE_S):
        async with agent_of(tmp_path, world) as (agent, caller):
            with claim(frozen_by_us(world.source[0])), pytest.raises(TargetBusy):
                await last(caller.freeze(freeze_plan(world)))
            assert agent.board.running() == []
            for _ in range(3):  # over means that the target is free again
                assert (await last(caller.freeze(freeze_plan(world, leave_running=True)))).end.kind == ""


async def test_what_cannot_be_frozen(tmp_path, world):
    """A process that is none, or another one by now, is refused before anything is begun; errors have their names."""
    with anyio.fail_after(PATIENCE_S):
        async with agent_of(tmp_path, world) as (_, caller):
            root = world.source[0]
            world.faults = {("lock", 1): CudaRefused("no", 801)}
            for wrong in (attrs.evolve(root, pid=4), attrs.evolve(root, start_ticks=root.start_ticks + 1)):
                with pytest.raises(TargetGone):
                    await last(caller.freeze(attrs.evolve(freeze_plan(world), root=wrong)))
            view = await last(caller.freeze(freeze_plan(world)))
            assert (view.end.outcome, view.end.kind) == (Outcome.UNDONE, "CudaRefused")


@pytest.mark.parametrize("method", ["tree", "lock", "dump", "seal", "publish"])
async def test_what_an_agent_left_is_taken_up(tmp_path, world, method):
    """An agent that ends without undoing leaves it to the next one, which undoes it without being asked."""
    with anyio.fail_after(PATIENCE_S):
        world.hold(method)
        async with agent_of(tmp_path, world, stop_patience_s=0) as (agent, caller):
            await begun_and_left(world, caller, method, detached=True)
            (left,) = agent.board.running()
        world.crash(1)
        world.held_at = ""
        async with agent_of(tmp_path, world) as (agent, caller):
            view = await last(caller.watch(left.asked.operation))
            assert view.owed
            assert (view.end.outcome, view.end.kind) == (Outcome.UNDONE, "Interrupted")
            assert len(world.living()) == 3
            assert world.artifacts == {}
            await agent.board.until_idle()
        async with agent_of(tmp_path, world) as (agent, caller):  # nothing is owed any more
            assert await caller.operations() == []
            with pytest.raises(OperationUnknown):
                await last(caller.watch(left.asked.operation))


async def test_an_agent_that_ends_undoes(tmp_path, world):
    """When it is told to end in order nothing is left to the next one."""
    with anyio.fail_after(PATIENCE_S):
        async with agent_of(tmp_path, world, stop_patience_s=PATIENCE_S) as (_, caller):
            await begun_and_left(world, caller, "dump", detached=True)
            world.held_at = ""
        assert [process.cuda for process in world.living()] == [CudaState.RUNNING, None, CudaState.RUNNING]
        assert world.artifacts == {}


async def test_a_second_agent(tmp_path, world):
    """It is refused by name: one journal has one writer."""
    async with agent_of(tmp_path, world) as (agent, _):
        settings = attrs.evolve(agent.settings, socket=tmp_path / "t" / "agent.sock", lock_patience_s=0)
        with pytest.raises(AgentRunning):
            async with Agent(settings, machine_of(world)):
                pass


async def test_who_may_come_in(tmp_path, world):
    """The socket has mode 0600, in a folder of mode 0700; one that others may enter is refused."""
    async with agent_of(tmp_path, world) as (agent, _):
        path = agent.settings.socket
        assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert not path.exists()
    path.parent.chmod(0o755)
    with pytest.raises(UnsafeSocketFolder):
        async with agent_of(tmp_path, world):
            pass


@pytest.mark.parametrize(("below", "mode"), [(".", 0o777), (".", 0o770), ("agent", 0o755), ("agent", 0o770)])
async def test_a_state_that_others_could_write(tmp_path, world, below, mode):
    """It is refused before a byte of its journal is read: hooks in it are programs, which the agent would run."""
    make_private_folder(tmp_path / "state" / "agent")
    (tmp_path / "state" / below).chmod(mode)
    with pytest.raises(UnsafeStateFolder):
        async with agent_of(tmp_path, world):
            pass
    assert not (tmp_path / "state" / "agent" / "journal").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
@pytest.mark.parametrize("below", [".", "agent"])
async def test_a_state_of_a_stranger(tmp_path, world, below):
    """Its owner could change what is in it, whatever its mode."""
    make_private_folder(tmp_path / "state" / "agent")
    os.chown(tmp_path / "state" / below, 12345, 12345)
    with pytest.raises(UnsafeStateFolder):
        async with agent_of(tmp_path, world):
            pass


async def test_metrics(tmp_path, world):
    """On the same socket: phases by tier, outcomes, what runs and what is owed."""
    with anyio.fail_after(PATIENCE_S):
        async with agent_of(tmp_path, world, folders=[Folders("ram", tmp_path / "ram", 5 << 20)]) as (agent, caller):
            make_private_folder(tmp_path / "ram")
            await last(caller.freeze(freeze_plan(world)))
            with pytest.raises(TargetGone):
                await last(caller.freeze(freeze_plan(world)))
            text = await got(agent.settings.socket, "/metrics")
            assert 'iriscw_agent_phase_seconds_count{operation="freeze",phase="dumping",tier="ram"} 1.0' in text
            assert 'iriscw_agent_phase_seconds_count{operation="freeze",phase="ending",tier="ram"} 1.0' in text
            assert 'iriscw_agent_operations_ended_total{operation="freeze",outcome="frozen",tier="ram"} 1.0' in text
            assert 'iriscw_agent_operations{operation="freeze"} 0.0' in text
            assert "iriscw_agent_operations_owed 0.0" in text
            assert 'iriscw_agent_tier_budget_bytes{tier="ram"} 5.24288e+06' in text
            assert '"operations": 0' in await got(agent.settings.socket, "/health")


async def test_its_actors_are_shown(tmp_path, world):
    """On the same socket, to whoever may freeze."""
    with anyio.fail_after(PATIENCE_S):
        async with agent_of(tmp_path, world) as (agent, _), connect(f"unix:{agent.settings.socket}") as client:
            actors = await client.actors()
    assert [each.path for each in actors][:2] == ["/", "/controller"]
    assert dict.fromkeys(each.state for each in actors) == {"ACTIVE": None}


async def test_a_tier_that_cannot_be_measured(tmp_path, world, monkeypatch, caplog):
    """Whatever lies in it: that is logged, and the agent goes on."""
    disk = Folders("disk", tmp_path / "disk", 1 << 30)
    make_private_folder(disk.root / "reserved")
    (disk.root / "reserved" / "ck-9").touch()
    with anyio.fail_after(PATIENCE_S):
        async with agent_of(tmp_path, world, folders=[disk]) as (_, caller):
            view = await last(caller.freeze(freeze_plan(world)))
            assert view.end.outcome is Outcome.FROZEN
            assert "the tiers cannot be measured: UnsafeRequest" in caplog.text

    async def fault(agent):
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr(Agent, "use", fault)
    with anyio.fail_after(PATIENCE_S):
        async with agent_of(tmp_path, world, folders=[disk]) as (_, caller):
            await last(caller.thaw(thaw_plan(view.artifact)))
            assert "the tiers cannot be measured: ZeroDivisionError: a fault of ours" in caplog.text
            assert await caller.operations() == []


async def test_a_tier_that_is_none(tmp_path, world):
    """It is refused before anything is begun, and leaves no metric behind: callers could name any number of them."""
    with anyio.fail_after(PATIENCE_S):
        async with agent_of(tmp_path, world) as (agent, caller):
            with pytest.raises(InvalidArgument, check=that(names="tape")):
                await last(caller.freeze(attrs.evolve(freeze_plan(world), tier="tape")))
            assert world.log == []
            assert "tape" not in await got(agent.settings.socket, "/metrics")


async def test_metrics_of_a_thaw(tmp_path, world):
    """Its phases are those of the tier that its checkpoint lies in."""
    disk = Folders("disk", tmp_path / "disk", 1 << 30)
    with anyio.fail_after(PATIENCE_S):
        async with agent_of(tmp_path, world, folders=[disk]) as (agent, caller):
            kept(disk, "ck-1")
            await last(caller.thaw(thaw_plan("ck-1")))  # which the simulated machine never made
            text = await got(agent.settings.socket, "/metrics")
            assert 'iriscw_agent_phase_seconds_count{operation="thaw",phase="opening",tier="disk"} 1.0' in text
            assert 'iriscw_agent_operations_ended_total{operation="thaw",outcome="failed",tier="disk"} 1.0' in text


async def got(path, route):
    """GET a route of the HTTP side of a socket."""
    async with await anyio.connect_unix(path) as stream:
        await stream.send(f"GET {route} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n".encode())
        data = b"".join([part async for part in stream])
    head, _, body = data.partition(b"\r\n\r\n")
    assert b" 200 " in head.splitlines()[0], head
    return body.decode()


async def test_the_checkpoints_of_the_machine(tmp_path, world):
    """They are listed with all that a manifest says, chosen by label, and removed."""
    disk = Folders("disk", tmp_path / "disk", 1 << 30)
    with anyio.fail_after(PATIENCE_S):
        async with agent_of(tmp_path, world, folders=[disk]) as (_, caller):
            kept(disk, "ck-1", ("model", "a"))
            kept(disk, "ck-2", ("model", "b"))
            assert [each.checkpoint_id for each in await caller.checkpoints()] == ["ck-1", "ck-2"]
            (found,) = await caller.checkpoints((("model", "b"),))
            assert (found.checkpoint_id, found.tier, found.pid) == ("ck-2", "disk", 100)
            document = json.loads(found.document_json)
            assert document["manifest"]["frozen"]["tasks"][0]["identity"]["pid"] == 100
            assert "files" not in document["manifest"]
            await caller.remove("ck-1")
            assert [each.checkpoint_id for each in await caller.checkpoints()] == ["ck-2"]
            with pytest.raises(ArtifactUnknown):
                await caller.remove("ck-1")
            can = await caller.capabilities()
            assert (can.node, can.criu_version, can.cuda_available) == ("node-1", "4.2", True)
            assert [(each.name, each.checkpoints) for each in can.tiers] == [("ram", 0), ("disk", 1)]


def kept(place, name, *labels):
    """Put a checkpoint into a tier."""
    fill(place.reserve(name, 1 << 20), large=False)
    place.seal(name, FROZEN, labels, default_reading(lambda count: None), lambda size: None)
    place.publish(name)
    place.unpin(name, name)


async def test_a_fault_above_all_operations(tmp_path, world):
    """It ends the agent, whose next life takes up what ran: an agent that has lost count of them is none."""
    with anyio.fail_after(PATIENCE_S):
        world.hold("dump")
        with pytest.raises(ExceptionGroup) as caught:
            await until_it_fails(tmp_path, world)
        assert isinstance(alone(caught.value), RestartsExhausted)
        world.crash(1)
        world.held_at = ""
        async with agent_of(tmp_path, world) as (agent, _):
            await agent.board.until_idle()
            assert [process.cuda for process in world.living()] == [CudaState.RUNNING, None, CudaState.RUNNING]
            assert world.artifacts == {}


async def until_it_fails(tmp_path, world):
    """Run an agent whose ``/operations`` gets a message that it has no rule for, while an operation runs."""
    async with agent_of(tmp_path, world) as (agent, caller):
        await begun_and_left(world, caller, "dump", detached=True)
        agent._tell(OperationUnknown("no message of its own"))
        await anyio.sleep_forever()
