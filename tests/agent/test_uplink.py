"""An agent over the simulated machine, and a real controller: orders, and what becomes of them when either dies."""

import os
import sys
import zlib
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for agent_world
sys.path.insert(0, str(Path(__file__).parents[1] / "controller"))  # for controller_world

from agent_world import StepWorld, agent_of, freeze_plan, last
from controller_world import World

from iriscw._errors import InvalidArgument, NoSuchActor
from iriscw.agent.uplink.identity import next_life
from iriscw.agent.uplink.stream import Uplink
from iriscw.nodes.messages import AGENTS, CancelOrder, DescribeNode, DescribeOrder, PlaceOrder
from iriscw.nodes.model import FreezeOrder, NodeState, NodeView, Order, RemoveOrder, ThawOrder
from iriscw.rpc.address import Address
from iriscw.rpc.tokens import write_token_file
from raised import that

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("claims_of_ours")]

PATIENCE_S = 60
NODE = "n1"


class Hosted:
    """A controller over a cloud in memory, in a task of its own, as often as it is started."""

    def __init__(self, folder, tasks):
        self.world = World(folder)
        self._tasks = tasks
        self._address = None

    async def start(self):
        """Start it; return when it serves."""
        with anyio.fail_after(PATIENCE_S):
            while True:
                self._over, self._stopped = anyio.Event(), anyio.Event()
                await self._tasks.start(self._run)
                if self._address in (None, self.world.controller.address):
                    break
                await self.stop()  # somebody has its port for the moment
                await anyio.sleep(0.1)
        self._address = self.world.controller.address

    async def _run(self, task_status):
        async with self.world:
            task_status.started()
            await self._over.wait()
        self._stopped.set()

    async def stop(self):
        """End it."""
        self._over.set()
        await self._stopped.wait()

    @property
    def system(self):
        """Its actors."""
        return self.world.controller.system


@pytest.fixture
async def controller(tmp_path):
    """A controller that serves."""
    async with anyio.create_task_group() as tasks:
        made = Hosted(tmp_path / "controller", tasks)
        await made.start()
        yield made
        await made.stop()


@pytest.fixture
def machine(request, monkeypatch):
    """A machine with a boot of its own: claims count on the whole real machine, and tests run side by side."""
    monkeypatch.setattr("freeze_world.BOOT", f"boot-{os.getpid()}-{zlib.crc32(request.node.nodeid.encode()):x}")
    return StepWorld()


def uplink(folder, controller, node=NODE):
    """Say where the controller is."""
    token = folder / "token"
    write_token_file(token, controller.world.tokens.agent_token(node))
    return Uplink(Address.parse(str(controller.world.controller.address)), node, token)


@asynccontextmanager
async def serving(folder, machine, controller, **settings):
    """Run an agent that dials, until the controller knows all of it."""
    with anyio.fail_after(PATIENCE_S):
        async with agent_of(folder, machine, uplink=uplink(folder, controller), **settings) as (agent, caller):
            await until_state(controller, NodeState.CONNECTED)
            yield agent, caller


async def until_state(controller, state):
    """Wait until the node is so."""
    while (await view(controller)).state is not state:  # noqa: ASYNC110 - a mirror rings for nobody
        await anyio.sleep(0.01)


async def view(controller):
    """Return the node as its mirror has it."""
    try:
        return await controller.system.ask(AGENTS / NODE, DescribeNode(("checkpoint", "operation", "tier")))
    except NoSuchActor:
        return NodeView(NODE, NodeState.UNKNOWN, 0, None, None)


def frozen(machine, **words):
    """Order a copy of the machine's process."""
    root = machine.source[0]
    given = {"attempt_uid": "", "tier": "ram", "leave_running": True, **words}
    return Order("", freeze=FreezeOrder(root.pid, root.start_ticks, root.boot_id, **given))


async def place(controller, order, key="k"):
    """Place an order; give its id."""
    agent_id = (await view(controller)).identity.agent_id
    placed = await controller.system.ask("/nodes/orders", PlaceOrder(key, NODE, agent_id, order))
    return placed.order.operation


async def ended(controller, operation):
    """Wait for the end of an order."""
    while True:
        found = await controller.system.ask("/nodes/orders", DescribeOrder(operation))
        if found.end is not None:
            return found.end
        await anyio.sleep(0.01)


async def test_an_order_is_carried_out(tmp_path, machine, controller):
    """A copy is made under the order's id, and the agent forgets the order once the controller has its end."""
    async with serving(tmp_path, machine, controller) as (agent, _):
        operation = await place(controller, frozen(machine))
        end = await ended(controller, operation)
        assert (end.outcome, end.kind, end.tier) == ("copied", "", "ram")
        assert agent.board.view(operation).over


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"tier": "tape"}, "InvalidArgument"),
        ({"pid_namespace": 7}, "ProcessOutOfReach"),
        ({"attempt_uid": "no-such-attempt"}, "TargetGone"),
        ({"labels": (("", "x"),)}, "InvalidArgument"),
        ({"guard": "/nowhere"}, "GuardUnknown"),
    ],
)
async def test_what_cannot_be_begun(tmp_path, machine, controller, change, kind):
    """It is refused by name, and nothing is touched."""
    async with serving(tmp_path, machine, controller):
        end = await ended(controller, await place(controller, frozen(machine, **change)))
        assert (end.outcome, end.kind) == ("refused", kind)
        other = Order("", freeze=FreezeOrder(machine.source[0].pid, 1, "boot", "", "ram", leave_running=True))
        end = await ended(controller, await place(controller, other, "k2"))
        assert (end.outcome, end.kind) == ("refused", "TargetGone")
        end = await ended(controller, await place(controller, Order("", thaw=ThawOrder("../x")), "k3"))
        assert (end.outcome, end.kind) == ("refused", "InvalidArgument")
        end = await ended(controller, await place(controller, Order("", remove=RemoveOrder("ck-none")), "k4"))
        assert end.outcome == "removed"


async def test_the_agent_dies_in_the_middle(tmp_path, machine, controller):
    """The next one undoes it by the table, and says so; the order is not begun again."""
    machine.hold("lock")
    async with serving(tmp_path, machine, controller, stop_patience_s=0):
        operation = await place(controller, frozen(machine))
        await machine.arrived.wait()
    with anyio.fail_after(PATIENCE_S):
        await until_state(controller, NodeState.UNKNOWN)
    machine.let_go()
    async with serving(tmp_path, machine, controller):
        end = await ended(controller, operation)
        assert end.outcome == "undone"
        again = await place(controller, frozen(machine), "k2")
        assert (await ended(controller, again)).outcome == "copied"


async def test_the_controller_dies_in_the_middle(tmp_path, machine, controller):
    """The operation goes on, and what became of it reaches the next controller."""
    machine.hold("lock")
    async with serving(tmp_path, machine, controller) as (agent, _):
        operation = await place(controller, frozen(machine))
        await machine.arrived.wait()
        await controller.stop()
        await controller.start()
        machine.let_go()
        await agent.board.until_idle()
        assert (await ended(controller, operation)).outcome == "copied"


async def test_the_agent_dies_after_the_end_and_the_controller_was_away(tmp_path, machine, controller):
    """An end that nobody heard of is kept over the agent's death: the order is not begun a second time."""
    machine.hold("lock")
    async with serving(tmp_path, machine, controller, stop_patience_s=0) as (agent, _):
        operation = await place(controller, frozen(machine))
        await machine.arrived.wait()
        await controller.stop()
        machine.let_go()
        await agent.board.until_idle()
    await controller.start()
    async with serving(tmp_path, machine, controller) as (agent, _):
        assert (await ended(controller, operation)).outcome == "copied"
        assert not agent.board.shows(operation)


async def test_a_cancelled_order_is_undone(tmp_path, machine, controller):
    """As one that its caller leaves."""
    machine.hold("lock")
    async with serving(tmp_path, machine, controller):
        operation = await place(controller, frozen(machine))
        await machine.arrived.wait()
        await controller.system.ask("/nodes/orders", CancelOrder(operation))
        machine.let_go()
        assert (await ended(controller, operation)).outcome == "undone"


async def test_without_its_controller_an_agent_serves(tmp_path, machine, controller):
    """Local callers notice nothing; an agent with another's token is never let in."""
    given = uplink(tmp_path, controller)
    wrong = Uplink(given.address, "n2", given.token_file)
    with anyio.fail_after(PATIENCE_S):
        async with agent_of(tmp_path, machine, uplink=wrong) as (_, caller):
            found = await last(caller.freeze(freeze_plan(machine, leave_running=True)))
            assert found.end.outcome.value == "copied"
            assert (await view(controller)).state is NodeState.UNKNOWN
    assert controller.world.controller.statistics().agents_connected == 0


def test_an_agents_lives_are_counted(tmp_path):
    """The id stays with the state, the starts grow; a file that says something else is refused."""
    file = tmp_path / "identity.json"
    first, second = next_life(file, NODE), next_life(file, NODE)
    assert (first.agent_id, first.starts, second.starts) == (second.agent_id, 1, 2)
    file.write_text('{"agent_id": "../x", "starts": 1}')
    with pytest.raises(ValueError, check=that(comes_from="identity.next_life")):
        next_life(file, NODE)
    with pytest.raises(InvalidArgument):
        Uplink(Address.parse("127.0.0.1:1"), "no/node", file)
