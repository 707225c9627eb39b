"""An agent and its controller: orders and facts, over walks in which streams break and both of them die."""

import random
import sys
from pathlib import Path

import attrs
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for nodes_walk

from nodes_walk import IDENTITY, NODE, Ctx, Walk

from iriscw._errors import ActorRestarted, ActorStopped, AskTimeout, JournalUnavailable, OutcomeUnknown
from iriscw.agent.uplink import ledger
from iriscw.agent.uplink.ledger import OrderLedger
from iriscw.agent.uplink.messages import ORDERS as LEDGER, SESSION, BeginOrder, Now, Past, TakeOrders
from iriscw.agent.uplink.records import OrderTaken, OrderWithdrawn
from iriscw.nodes import mirror, orders
from iriscw.nodes.messages import AGENTS, ORDERS, AgentReplaced, CancelOrder, OrderOver, OrdersWanted, PlaceOrder
from iriscw.nodes.model import (
    CHECKPOINT,
    Abilities,
    AgentReport,
    AgentUp,
    CheckpointRow,
    FreezeOrder,
    NodeState,
    Order,
    OrderEnd,
    Orders,
    RemoveOrder,
    key_of,
    size_of,
)
from iriscw.nodes.orders import OrderBook
from iriscw.runtime.vocabulary import Arrived, Closed, Failed, Reply, Run, SetTimer

FREEZE = Order("", freeze=FreezeOrder(10, 20, "boot-1", "uid", "ram", leave_running=True))
REMOVE = Order("", remove=RemoveOrder("ck-1"))

WORDS = {
    "fact": 6,
    "gone": 2,
    "order": 5,
    "remove": 2,
    "cancel": 2,
    "cut": 3,
    "agent": 2,
    "controller": 2,
    "end": 4,
    "settle": 4,
    "connect": 10,
    "timers": 5,
    "run": 30,
}
"""What a step may be, and how often."""


def steps(seed, count=150):
    """Draw a walk."""
    rng = random.Random(seed)
    words = rng.choices(list(WORDS), list(WORDS.values()), k=rng.randint(1, count))
    return [(word, rng.randrange(1000)) for word in words]


def act(walk, word, number):
    """Take one step."""
    match word:
        case "fact":
            row = CheckpointRow(f"ck-{number % 40}", "ram", number)
            walk.facts[key_of(row)] = row
            walk.tell(SESSION, Now(row))
        case "gone":
            walk.facts.pop((CHECKPOINT, f"ck-{number % 40}", "ram"), None)
            walk.tell(SESSION, Past((CHECKPOINT, f"ck-{number % 40}", "ram")))
        case "order" | "remove":
            order = FREEZE if word == "order" else REMOVE
            walk.tell(ORDERS, PlaceOrder(f"key-{number}", NODE, "agent-1", order))
        case "cancel":
            for operation in list(walk.book.open)[:1]:
                walk.tell(ORDERS, CancelOrder(operation))
        case "cut":
            walk.cut()
        case "agent":
            walk.start_agent()
        case "controller":
            walk.start_controller()
        case "end":
            for operation in list(walk.running)[:1]:
                walk.end(operation)
        case "settle":
            for operation in list(walk.over)[:1]:
                walk.settle(operation)
        case "connect":
            walk.connect()
        case "timers":
            due, walk.timers = walk.timers, {}
            for (path, key), message in due.items():
                if key != "beat":
                    walk.tell(path, message)
        case _:
            for _ in range(number % 12):
                walk.step()
                walk.forget_settled()


def built(state, records, module):
    """Return what records, or the snapshot that is made of them, make of an empty state."""
    for record in records:
        module.evolve(state, record)
    return state


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(150))
def test_all_is_said_and_done_once(seed):
    """Whatever broke: in the end the controller knows what the agent does, and each order ended and was begun once.
    Both can be built again from their journals at any point.
    """
    walk = Walk(seed)
    for word, number in steps(seed):
        act(walk, word, number)
        assert all(count == 1 for operation, count in walk.begun.items() if operation.startswith("ck")), walk.begun
    for state, records, module, empty in (
        (walk.book, walk.book_records, orders, OrderBook),
        (walk.taken, walk.taken_records, ledger, OrderLedger),
    ):
        for each in (records, list(module.compact(state))):
            assert built(empty(), each, module) == state
    walk.rest()
    assert walk.mirror.state is NodeState.CONNECTED
    assert walk.said() == walk.known() == walk.facts
    assert walk.book.open == {}
    assert walk.taken.taken == {}
    promised = [each.value.order.operation for each in walk.answers if isinstance(each, Reply) and each.value]
    assert all(walk.book.ended[operation].view.end is not None for operation in promised)


@pytest.mark.parametrize("facts", [0, 1, 31, 32, 33, 200])
def test_a_stream_begins_from_the_top(facts):
    """However many there are, all are said in reports of 32 at most, one at a time, and only then the node is known."""
    walk = Walk()
    for number in range(facts):
        act(walk, "fact", number)
        row = CheckpointRow(f"ck-x{number}", "ram", number)
        walk.facts[key_of(row)] = row
        walk.tell(SESSION, Now(row))
    while walk.step():
        pass
    walk.connect()
    states = []
    while walk.step():
        states.append((walk.mirror.state, len(walk.mirror.facts)))
    known = len(walk.facts)
    assert walk.session.sequence == max(1, -(-known // 32))
    assert walk.mirror.state is NodeState.CONNECTED
    assert {count for state, count in states if state is not NodeState.CONNECTED} <= {0}
    assert states[-1] == (NodeState.CONNECTED, known)


def test_a_stream_that_ends_makes_nothing_gone():
    """What was known is known, since then only as it was (INV-C11); what a whole new stream does not say is gone."""
    walk = Walk()
    act(walk, "fact", 1)
    walk.rest()
    walk.cut()
    while walk.step():
        pass
    assert walk.mirror.state is NodeState.UNKNOWN
    assert walk.said() == walk.facts
    walk.facts.clear()
    walk.start_agent()
    walk.rest()
    assert (walk.mirror.state, walk.said()) == (NodeState.CONNECTED, {})


def test_a_cancellation_while_the_agent_is_away():
    """It reaches the agent with the next stream: what runs is undone, and what was not begun never is."""
    walk = Walk()
    act(walk, "order", 1)
    walk.connect()
    while walk.step():
        pass
    (first,) = walk.running
    walk.cut()
    act(walk, "order", 2)
    while walk.step():
        pass
    (second,) = [each for each in walk.book.open if each != first]
    for operation in (first, second):
        walk.tell(ORDERS, CancelOrder(operation))
    while walk.step():
        pass
    assert walk.over == {}
    act(walk, "timers", 0)  # it dials again
    while walk.step():
        walk.connect()
    assert list(walk.over) == [first]
    walk.rest()
    ends = {operation: placed.view.end for operation, placed in walk.book.ended.items()}
    assert (ends[first].outcome, ends[second].outcome, ends[second].kind) == ("undone", "refused", "OrderCancelled")
    assert second not in walk.begun


@pytest.mark.parametrize("order", [FREEZE, REMOVE])
def test_a_withdrawal_on_the_disk_holds_for_the_next_life(order):
    """What was taken and withdrawn before it was begun is not begun by a later agent, and ends as refused."""
    walk = Walk()
    walk.tell(ORDERS, PlaceOrder("k", NODE, "agent-1", order))
    while walk.step():
        pass
    (placed,) = walk.book.open.values()
    operation = placed.view.order.operation
    walk.taken_records = [OrderTaken(placed.view.order, 0), OrderWithdrawn(operation)]
    walk.start_agent()
    walk.rest()
    end = walk.book.ended[operation].view.end
    assert (end.outcome, end.kind, walk.begun) == ("refused", "OrderCancelled", {})


def test_a_withdrawal_before_it_is_begun_again():
    """An order that waits for the journal, and is withdrawn meanwhile, is only looked for."""
    walk = Walk()
    order = attrs.evolve(FREEZE, operation="ck-1")
    context = Ctx(walk, LEDGER)
    state = OrderLedger({"ck-1": ledger.Taken(order)})
    (timer,) = ledger.failed(state, Failed("begin", BeginOrder(order), JournalUnavailable("full")), context)
    withdrawn = ledger.take(state, TakeOrders(Orders(cancel=("ck-1",))), context)
    for record in withdrawn.records:
        ledger.evolve(state, record)
    (again,) = ledger.begin_again(state, timer.message, context)
    assert again == Run(("begin", "ck-1"), BeginOrder(order, withdrawn=True))


@pytest.mark.parametrize("withdrawn", [False, True])
@pytest.mark.parametrize("error", [OutcomeUnknown, AskTimeout, ActorRestarted, ActorStopped])
def test_what_may_have_been_begun_is_not_settled(error, withdrawn):
    """It is looked for again, and no end is written down."""
    order = attrs.evolve(FREEZE, operation="ck-1")
    state = OrderLedger({"ck-1": ledger.Taken(order, withdrawn)})
    effect = BeginOrder(order)
    assert ledger.failed(state, Failed("begin", effect, error("x")), Ctx(Walk(), LEDGER)) == (
        SetTimer(("begin", "ck-1"), ledger.AGAIN, effect),
    )


@pytest.mark.parametrize(("name", "limit"), [("MAX_SAID_BYTES", 40 * 1024), ("MAX_FACTS_KEPT", 40)])
def test_streams_that_break_off_do_not_add_up(monkeypatch, name, limit):
    """What was said before is let go, the oldest first, and counted, once it is more than is kept of a node."""
    monkeypatch.setattr(mirror, name, limit)
    state = mirror.Mirror(NODE)
    context = Ctx(Walk(), AGENTS / NODE)
    for stream in range(4):
        mirror.arrived(state, Arrived("stream", AgentUp(IDENTITY, Abilities())), context)
        rows = tuple(CheckpointRow(f"ck-{stream}-{number}", "ram", 1) for number in range(30))
        mirror.arrived(state, Arrived("stream", AgentReport(1, complete=False, facts=rows)), context)
        mirror.closed(state, Closed("stream", None), context)
        assert len(state.facts) <= mirror.MAX_FACTS_KEPT
        assert sum(map(size_of, state.facts.values())) <= mirror.MAX_SAID_BYTES
        assert {key_of(row) for row in rows} <= set(state.facts)
    assert state.omitted > 0


def test_another_agent_of_the_node():
    """What only the earlier one knows of is unknown, and is never begun by the other."""
    walk = Walk()
    act(walk, "order", 1)
    while walk.step():
        pass
    walk.tell(ORDERS, AgentReplaced(NODE, "agent-2"))
    while walk.step():
        pass
    (placed,) = walk.book.ended.values()
    assert (placed.view.end.outcome, placed.view.end.kind) == ("unknown", "AgentReplaced")
    walk.tell(ORDERS, OrdersWanted(NODE, "agent-2"))
    walk.rest()
    assert walk.begun == {}


def test_only_the_agent_that_has_an_order_may_end_it():
    """What another one says of it changes nothing."""
    walk = Walk()
    act(walk, "order", 1)
    while walk.step():
        pass
    (operation,) = walk.book.open
    for node, agent in ((NODE, "agent-2"), ("n2", "agent-1")):
        walk.tell(ORDERS, OrderOver(node, agent, OrderEnd(operation, "copied")))
    walk.inbox = [each for each in walk.inbox if each[0] == ORDERS]
    walk.step()
    walk.step()
    assert list(walk.book.open) == [operation]


def test_keys_and_limits(monkeypatch):
    """A key gives the same order again and no other; one too many is refused by name, and the oldest end forgotten."""
    walk = Walk()
    monkeypatch.setattr(orders, "MAX_OPEN_ORDERS", 2)
    monkeypatch.setattr(orders, "MAX_ENDED_ORDERS", 1)
    for key, order in (("a", FREEZE), ("a", FREEZE), ("a", REMOVE), ("b", FREEZE), ("c", FREEZE)):
        walk.tell(ORDERS, PlaceOrder(key, NODE, "agent-1", order))
    while walk.step():
        pass
    first, again, reused, second, refused = walk.answers
    assert first.value == again.value
    assert first.value.order.operation != second.value.order.operation
    assert (type(reused.error).__name__, type(refused.error).__name__) == ("OrderKeyReused", "TooManyOrders")
    walk.rest()
    assert len(walk.book.ended) == 1
    assert list(walk.book.keys.values()) == list(walk.book.ended)
