"""An agent that balances its tiers: real folders and journals, a repository in memory, no CRIU."""

import sys
from pathlib import Path

import anyio
import attrs
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for agent_world
sys.path.insert(0, str(Path(__file__).parents[1] / "checkpoint"))  # for moves

from agent_world import PATIENCE_S, StepWorld, agent_of, last, thaw_plan
from moves import Places

from iriscw.agent.balancing import MAX_STOPPED, Balancing, remembered
from iriscw.agent.local import Machine
from iriscw.agent.operation_views import Made, RunningOperation
from iriscw.agent.operations import Asked, OperationKind
from iriscw.checkpoint.drivers import carrier as carrier_module
from iriscw.checkpoint.drivers.policies import first_ledger
from iriscw.checkpoint.model import MovePlan
from iriscw.checkpoint.tiering.model import Proposal, Watermarks
from iriscw.checkpoint.tiering.policies import LeastRecentlyUsed
from iriscw.freeze.messages import OperationEnded
from iriscw.freeze.model import Outcome
from iriscw.objects.ports import StoreUnreachable
from waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("claims_of_ours")]

SIZE = 73_000
"""Of one checkpoint here, and a little more."""


@pytest.fixture
def places(tmp_path):
    """RAM with room for ten, and ten in it."""
    made = Places(tmp_path / "places")
    for number in range(10):
        made.put("ram", f"ck-{number}")
    return made


def balanced(tmp_path, places, policy=None, disk=1 << 30, **words):
    """Run an agent that balances these."""
    tiers = places.tiers(ram=10 * SIZE, disk=disk)
    chosen = Balancing(policy=policy or LeastRecentlyUsed(), **words)
    return agent_of(tmp_path, StepWorld(), folders=[*tiers.folders.values()], balancing=chosen)


async def stored(places):
    """Have the repository hold all of them."""
    folder = places.tiers().folders["ram"]
    for name in lying(places, "ram"):
        await places.repository.store(name, folder.images(name), folder.text(name), lambda progress: None)


def lying(places, tier):
    """Return what lies in a tier."""
    return sorted(each.artifact for each in places.tiers().folders[tier].listing())


def sample(agent, name, **labels):
    """Return what a metric says."""
    return agent._figures.registry.get_sample_value(f"iriscw_agent_tiering_{name}_total", labels) or 0


async def test_ram_is_kept_under_its_high_mark(tmp_path, places):
    """The agent starts, and moves the oldest ones to the disk, down to the low mark; metrics count it."""
    async with balanced(tmp_path, places) as (agent, _):
        await until(lambda: len(lying(places, "ram")) == 7 and not agent.board.running())
        assert lying(places, "disk") == ["ck-0", "ck-1", "ck-2"]
        assert sample(agent, "moves", reason="demote", outcome="moved") == 3
        assert sample(agent, "bytes", reason="demote") > 3 * 70_000
    assert places.debris() == []


async def test_what_lies_in_the_repository_is_dropped(tmp_path, places):
    """A drop copies nothing. A repository that cannot be read is no reason to drop anything."""
    await stored(places)
    places.repository.failing = {"listing": StoreUnreachable("no answer")}
    async with balanced(tmp_path, places, OnlyDrops()) as (agent, _):
        agent.machine.tiers.repository = places.repository
        agent.balancer.changed()
        await until(lambda: places.repository.asked.count("listing"))
        assert len(lying(places, "ram")) == 10
        places.repository.failing = {}
        agent.balancer.changed()
        await until(lambda: len(lying(places, "ram")) == 0 and not agent.board.running())
        assert sample(agent, "moves", reason="drop", outcome="moved") == 10
        assert len(places.repository.kept) == 10


class OnlyDrops(LeastRecentlyUsed):
    """Drops all that the repository has."""

    def balance(self, view):
        return [Proposal(each.artifact, "ram", "repository") for each in view.checkpoints if "repository" in each.tiers]


class Reckless(LeastRecentlyUsed):
    """Proposes what must not be."""

    def balance(self, view):
        return [Proposal("ck-1", "disk", "ram"), Proposal("ck-9", "ram", "cellar"), Proposal("ck-1", "ram", "ram")]


async def test_a_reckless_policy_moves_nothing(tmp_path, places):
    """It is refused by name, and counted."""
    async with balanced(tmp_path, places, Reckless()) as (agent, _):
        await until(lambda: sample(agent, "refused", why="pointless"))
        assert sample(agent, "refused", why="unknown") == 2
        assert len(lying(places, "ram")) == 10


class Raises(LeastRecentlyUsed):
    """Fails."""

    def balance(self, view):
        raise LookupError("no idea")


async def test_a_policy_that_fails_ends_no_agent(tmp_path, places):
    """It is counted, and the next event asks it again."""
    async with balanced(tmp_path, places, Raises()) as (agent, caller):
        await until(lambda: sample(agent, "failures") == 1)
        assert (await last(caller.move(MovePlan("", "ck-1", "disk")))).end.outcome is Outcome.MOVED
        await until(lambda: sample(agent, "failures") == 2)


async def test_a_move_that_somebody_asks_for_goes_first(tmp_path, places, monkeypatch):
    """Ours is stopped and undone while it copies, and begun again when that is over."""
    copies, copy = [], carrier_module.Carrier.copy
    began = anyio.Event()

    async def hang(self, effect):
        copies.append(effect.artifact)
        if len(copies) == 1:
            began.set()
            await anyio.sleep_forever()
        await copy(self, effect)

    monkeypatch.setattr(carrier_module.Carrier, "copy", hang)
    with anyio.fail_after(PATIENCE_S):
        async with balanced(tmp_path, places) as (agent, caller):
            await began.wait()
            assert (await last(caller.move(MovePlan("", "ck-0", "disk")))).end.outcome is Outcome.MOVED
            await until(lambda: len(lying(places, "ram")) == 7 and not agent.board.running())
            assert copies[:2] == ["ck-0", "ck-0"]
            assert sample(agent, "moves", reason="demote", outcome="stayed") == 1
            assert lying(places, "disk") == ["ck-0", "ck-1", "ck-2"]
    assert places.debris() == []


async def test_one_that_was_stopped_often_is_let_run(tmp_path, places, monkeypatch):
    """Else a busy machine would never be rid of anything. Nothing else of ours begins meanwhile."""
    began, copies, copy = anyio.Event(), [], carrier_module.Carrier.copy
    goes_on = anyio.Event()

    async def hang(self, effect):
        nonlocal began
        if effect.artifact == "ck-0":
            copies.append(effect.artifact)
            began.set()
            await goes_on.wait()
        await copy(self, effect)

    monkeypatch.setattr(carrier_module.Carrier, "copy", hang)
    with anyio.fail_after(PATIENCE_S):
        async with balanced(tmp_path, places) as (agent, caller):
            for _ in range(MAX_STOPPED + 1):
                await began.wait()
                began = anyio.Event()
                await last(caller.move(MovePlan("", "ck-9", "ram")))
                assert len(lying(places, "ram")) == 10
            assert copies == ["ck-0"] * (MAX_STOPPED + 1)
            goes_on.set()
            await until(lambda: len(lying(places, "ram")) == 7 and not agent.board.running())
            assert sample(agent, "moves", reason="demote", outcome="stayed") == MAX_STOPPED


async def test_what_is_being_moved_can_be_removed(tmp_path, places, monkeypatch):
    """The move is stopped first."""
    began = anyio.Event()

    async def hang(self, effect):
        began.set()
        await anyio.sleep_forever()

    with anyio.fail_after(PATIENCE_S):
        async with balanced(tmp_path, places) as (agent, caller):
            with monkeypatch.context() as patch:
                patch.setattr(carrier_module.Carrier, "copy", hang)
                agent.balancer.changed()
                await began.wait()
            await caller.remove("ck-0")
            assert "ck-0" not in lying(places, "ram")
            await until(lambda: len(lying(places, "ram")) == 7 and not agent.board.running())
    assert places.debris() == []


async def test_thaws_are_remembered(tmp_path, places):
    """What was thawed comes to RAM, and the next agent knows how often it was; a damaged file is forgotten."""
    places.put("disk", "ck-x")
    for number in range(4):
        places.tiers().folders["ram"].remove(f"ck-{number}")
    async with balanced(tmp_path, places) as (agent, _):
        asked = Asked("th-1", OperationKind.THAW, "x")
        end, made = OperationEnded("th-1", Outcome.THAWED, "", ""), Made("ck-x", "disk", 70_000, 1, 1)
        before = RunningOperation(asked, "ck-x", "disk", owed=False)
        agent.balancer.seen(before, attrs.evolve(before, end=end, made=made, over=True))
        await until(lambda: "ck-x" in lying(places, "ram") and not agent.board.running())
        assert sample(agent, "hits", tier="disk") == 1
        assert sample(agent, "moves", reason="promote", outcome="copied") == 1
    file = tmp_path / "state" / "agent" / "usage.json"
    assert remembered(file).usage["ck-x"].uses == 1
    file.write_bytes(b'{"usage": 3}')
    assert remembered(file) == first_ledger()
    assert remembered(tmp_path / "none") == first_ledger()


async def test_a_fetch_goes_where_the_policy_says(tmp_path, places):
    """Below the high mark of the fastest tier; without a policy where there is room."""
    async with balanced(tmp_path, places) as (agent, _):
        await until(lambda: len(lying(places, "ram")) == 7 and not agent.board.running())
        assert await agent.balancer.admit(SIZE) == "ram"
        assert await agent.balancer.admit(3 * SIZE) == "disk"
        agent.balancer.settings = None
        assert await agent.balancer.admit(2 * SIZE) == "ram"


async def test_what_is_fetched_for_a_thaw_was_in_the_repository(tmp_path, places, monkeypatch):
    """It counts as found there, and tells how fast that is."""

    async def pass_all(self, plan, found):
        """Shut no gate: what the simulated machine says of the tree is no matter."""

    monkeypatch.setattr(Machine, "check_gates", pass_all)
    places.put("disk", "ck-y")
    folder = places.tiers().folders["disk"]
    await places.repository.store("ck-y", folder.images("ck-y"), folder.text("ck-y"), lambda progress: None)
    folder.remove("ck-y")
    with anyio.fail_after(PATIENCE_S):
        async with balanced(tmp_path, places) as (agent, caller):
            agent.machine.tiers.repository = places.repository
            await last(caller.thaw(thaw_plan("ck-y")))
            assert "ck-y" in lying(places, "ram") + lying(places, "disk")
            assert sample(agent, "hits", tier="repository") == 1


async def test_a_fetch_has_room_made(tmp_path, places):
    """Where no tier has any: one that lies further down goes, and as many as it needs. Where none can go, none does."""
    await stored(places)
    places.put("disk", "ck-x")
    full = {"ram": Watermarks(0.8, 1), "disk": Watermarks(0.8, 1)}
    with anyio.fail_after(PATIENCE_S):
        async with balanced(tmp_path, places, disk=SIZE, marks=full) as (agent, _):
            assert (
                await agent.balancer.admit(2 * SIZE) == "ram"
            )  # without a repository nothing can go, and it is refused
            assert len(lying(places, "ram")) == 10
            agent.machine.tiers.repository = places.repository
            assert await agent.balancer.admit(2 * SIZE) == "ram"
            assert lying(places, "ram") == [f"ck-{number}" for number in range(2, 10)]
            assert await agent.balancer.admit(20 * SIZE) == "ram"
            assert len(lying(places, "ram")) == 8
    assert places.debris() == []
