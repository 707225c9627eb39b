"""What the agent does with an order that was withdrawn, and which checkpoints it tells of."""

from types import SimpleNamespace

import pytest

from iriscw.agent.uplink import facts
from iriscw.agent.uplink.binding import ControllerLink
from iriscw.agent.uplink.messages import BeginOrder
from iriscw.checkpoint.model import ListedArtifact
from iriscw.freeze.model import Numbers, ThawPlan
from iriscw.nodes.model import AgentIdentity, Order, RemoveOrder, ThawOrder, size_of

pytestmark = pytest.mark.anyio

REMOVE = Order("rm-1", remove=RemoveOrder("ck-1"))
THAW = Order("th-1", thaw=ThawOrder("ck-1"))


def listed(artifact):
    """Return an artifact that cannot be read."""
    return ListedArtifact(artifact, "ram", 7, None, "it is damaged")


class Machine:
    """An agent with one tier, that notes what it is told to do."""

    def __init__(self, held=(), unread=(), shown=()):
        self.board = SimpleNamespace(shows=lambda operation: operation in shown)
        self.machine = SimpleNamespace(tiers=SimpleNamespace(repository=None))
        self.done = []
        self._looked = ([listed(each) for each in held], unread)

    async def look(self):
        """Return the artifacts."""
        return self._looked

    async def begin(self, order):
        """Begin a thaw."""
        self.done.append(order)

    async def remove(self, artifact, *, here_only):
        """Remove one."""
        self.done.append(artifact)


async def begun(machine, effect):
    """Return what becomes of an effect."""
    link = ControllerLink(machine, None, AgentIdentity("n1", "agent-1", 1, "boot"), lambda _: None)
    link.attach(None)
    (orders,) = link.child().behavior.children
    return await orders.behavior.effects[BeginOrder](effect)


@pytest.mark.parametrize(
    ("order", "machine", "outcome"),
    [
        (THAW, Machine(), "refused"),
        (REMOVE, Machine(held=["ck-1"], unread=("disk",)), "refused"),
        (REMOVE, Machine(held=["ck-2"]), "removed"),
        (REMOVE, Machine(unread=("disk",)), "unknown"),
    ],
)
async def test_a_withdrawn_order_is_not_begun(order, machine, outcome):
    """It ends as cancelled; a removal that an earlier life did is said to be one, if that can be seen."""
    end = await begun(machine, BeginOrder(order, withdrawn=True))
    assert (end.operation, end.outcome, machine.done) == (order.operation, outcome, [])
    assert end.kind == ("" if outcome == "removed" else "OrderCancelled")


async def test_a_thaw_brings_what_was_on_gpus_to_others():
    """The map is of all that the attempt had: on some of them nothing may have been."""
    order = ThawOrder("ck-1", new_numbers=True, gpus=(("GPU-1", "GPU-2"),))
    plan = ControllerLink._thaw_plan("th-1", order)
    assert plan == ThawPlan("th-1", "ck-1", order.gpus, numbers=Numbers.AUTO, unused_gpus=True)


async def test_a_withdrawn_order_that_is_shown():
    """It was begun: it is stopped by whoever asked, and ends as its operation does."""
    machine = Machine(shown=["th-1"])
    assert await begun(machine, BeginOrder(THAW, withdrawn=True)) is None
    assert machine.done == []


@pytest.mark.parametrize("order", [THAW, REMOVE])
async def test_an_order_that_holds_is_begun(order):
    """Once."""
    machine = Machine(held=["ck-1"])
    await begun(machine, BeginOrder(order))
    assert len(machine.done) == 1


def test_checkpoints_that_take_too_much_are_counted(monkeypatch):
    """An agent stays below what the controller keeps of it."""
    found = [listed(f"ck-{number}") for number in range(5)]
    rows, omitted = facts.checkpoint_rows(found)
    assert (len(rows), omitted) == (5, 0)
    monkeypatch.setattr(facts, "MAX_CHECKPOINT_BYTES", 3 * size_of(rows[0]))
    assert facts.checkpoint_rows(found) == (rows[:3], 2)
