"""The facts on disk of orders and agents: what was written by this version is read by every later one."""

import attrs
import pytest

from iriscw.agent.uplink.records import OrderReleased, OrderSettled, OrderTaken, OrderWithdrawn
from iriscw.journal.entries import Entry, EntryKind
from iriscw.journal.records import REGISTRY
from iriscw.nodes.model import AgentIdentity, FreezeOrder, ListOrder, MoveOrder, Order, OrderEnd, RemoveOrder, ThawOrder
from iriscw.nodes.records import AgentKnown, NodeForgotten, OrderCancelled, OrderEnded, OrderPlaced

IDENTITY = AgentIdentity("n1", "agent-1", 2, "boot-1")
FREEZE = Order(
    "ck-1", freeze=FreezeOrder(10, 20, "boot-1", "uid-1", "ram", True, False, True, (("a", "b"),), 30, True, "/w")
)
EARLIER = Order("ck-1", freeze=attrs.evolve(FREEZE.freeze, tcp_close=False, guard=""))
THAW = Order("th-1", thaw=ThawOrder("ck-1", force=True, new_numbers=True, gpus=(("GPU-1", "GPU-2"),)))
REMOVE = Order("rm-1", remove=RemoveOrder("ck-1", here_only=True))
MOVE = Order("mv-1", move=MoveOrder("ck-1", "repository", keep=True))
LIST = Order("ls-1", listing=ListOrder())
END = OrderEnd("ck-1", "copied", "", "note", 5, 6, 10, 1, "ram")

GOLDEN = [
    (
        AgentKnown(IDENTITY, 7),
        (
            '["nodes.agent_known",1,{"identity":{"agent_id":"agent-1","boot_id":"boot-1","node":"n1","starts":2},'
            '"wall_ns":7}]'
        ),
    ),
    (
        NodeForgotten("n1"),
        ('["nodes.node_forgotten",1,{"node":"n1"}]'),
    ),
    (
        OrderPlaced("key", "n1", "agent-1", FREEZE, 7),
        (
            '["nodes.order_placed",1,{"agent_id":"agent-1","key":"key","node":"n1","order":{"freeze":{"attempt_ui'
            'd":"uid-1","boot_id":"boot-1","carries_folder":false,"force":false,"guard":"/w","labels":[["a","b"]]'
            ',"leave_running":true,"pid":10,"pid_namespace":30,"start_ticks":20,"tcp_close":true,"tcp_established'
            '":true,"tier":"ram"},"listing":null,"move":null,"operation":"ck-1","remove":null,"thaw":null,"verify'
            '":null},"wall_ns":7}]'
        ),
    ),
    (
        OrderPlaced("key", "n1", "agent-1", THAW, 7),
        (
            '["nodes.order_placed",1,{"agent_id":"agent-1","key":"key","node":"n1","order":{"freeze":null,"listin'
            'g":null,"move":null,"operation":"th-1","remove":null,"thaw":{"checkpoint":"ck-1","force":true,"gpus"'
            ':[["GPU-1","GPU-2"]],"new_numbers":true,"repository":""},"verify":null},"wall_ns":7}]'
        ),
    ),
    (
        OrderPlaced("key", "n1", "agent-1", REMOVE, 7),
        (
            '["nodes.order_placed",1,{"agent_id":"agent-1","key":"key","node":"n1","order":{"freeze":null,"listin'
            'g":null,"move":null,"operation":"rm-1","remove":{"checkpoint":"ck-1","here_only":true},"thaw":null,'
            '"verify":null},"wall_ns":7}]'
        ),
    ),
    (
        OrderPlaced("key", "n1", "agent-1", MOVE, 7),
        (
            '["nodes.order_placed",1,{"agent_id":"agent-1","key":"key","node":"n1","order":{"freeze":null,"listin'
            'g":null,"move":{"checkpoint":"ck-1","keep":true,"repository":"","target":"repository"},"operation":"'
            'mv-1","remove":null,"thaw":null,"verify":null},"wall_ns":7}]'
        ),
    ),
    (
        OrderPlaced("key", "n1", "agent-1", LIST, 7),
        (
            '["nodes.order_placed",1,{"agent_id":"agent-1","key":"key","node":"n1","order":{"freeze":null,"listin'
            'g":{},"move":null,"operation":"ls-1","remove":null,"thaw":null,"verify":null},"wall_ns":7}]'
        ),
    ),
    (
        OrderCancelled("ck-1"),
        ('["nodes.order_cancelled",1,{"operation":"ck-1"}]'),
    ),
    (
        OrderEnded(END),
        (
            '["nodes.order_ended",1,{"end":{"kind":"","lasted_ms":5,"operation":"ck-1","outcome":"copied","pid":1'
            '0,"processes":1,"size_bytes":6,"text":"note","tier":"ram"}}]'
        ),
    ),
    (
        OrderTaken(REMOVE, 7),
        (
            '["agent.order_taken",1,{"order":{"freeze":null,"listing":null,"move":null,"operation":"rm-1","remove'
            '":{"checkpoint":"ck-1","here_only":true},"thaw":null,"verify":null},"wall_ns":7}]'
        ),
    ),
    (
        OrderWithdrawn("rm-1"),
        ('["agent.order_withdrawn",1,{"operation":"rm-1"}]'),
    ),
    (
        OrderSettled(END),
        (
            '["agent.order_settled",1,{"end":{"kind":"","lasted_ms":5,"operation":"ck-1","outcome":"copied","pid"'
            ':10,"processes":1,"size_bytes":6,"text":"note","tier":"ram"}}]'
        ),
    ),
    (
        OrderReleased("rm-1"),
        ('["agent.order_released",1,{"operation":"rm-1"}]'),
    ),
]


def test_an_earlier_version_had_no_guard():
    """An order to freeze that it wrote is read as one without."""
    text = (
        '["nodes.order_placed",1,{"agent_id":"agent-1","key":"key","node":"n1","order":{"freeze":{"attempt_uid":"uid-'
        '1","boot_id":"boot-1","force":false,"labels":[["a","b"]],"leave_running":true,"pid":10,"pid_namespace":30,"s'
        'tart_ticks":20,"tcp_established":true,"tier":"ram"},"operation":"ck-1","remove":null,"thaw":null},"wall_ns":'
        "7}]"
    )
    found = REGISTRY.decode(Entry(1, "/nodes/orders", EntryKind.RECORD, text))
    assert found == [OrderPlaced("key", "n1", "agent-1", EARLIER, 7)]


def test_an_earlier_version_knew_one_way_with_numbers():
    """An order to thaw that it wrote is read as one that brings the tree back with its numbers or not at all."""
    text = (
        '["agent.order_taken",1,{"order":{"freeze":null,"operation":"th-1","remove":null,"thaw":{"checkpoint":"ck-1","f'
        'orce":true}},"wall_ns":7}]'
    )
    found = REGISTRY.decode(Entry(1, "/controller/orders", EntryKind.RECORD, text))
    assert found == [OrderTaken(Order("th-1", thaw=ThawOrder("ck-1", force=True)), 7)]


def test_an_earlier_version_named_no_repository():
    """An order to move that it wrote is read as one to whichever repository the agent has."""
    text = (
        '["nodes.order_placed",1,{"agent_id":"agent-1","key":"key","node":"n1","order":{"move":{"checkpoint":"ck-1",'
        '"keep":true,"target":"repository"},"operation":"mv-1"},"wall_ns":7}]'
    )
    found = REGISTRY.decode(Entry(1, "/nodes/orders", EntryKind.RECORD, text))
    assert found == [OrderPlaced("key", "n1", "agent-1", MOVE, 7)]


def test_an_earlier_version_removed_in_the_repository_too():
    """And had no repository listed: its orders are read as they were meant."""
    text = (
        '["agent.order_taken",1,{"order":{"freeze":null,"move":null,"operation":"rm-1","remove":{"checkpoint":"ck-1"},'
        '"thaw":null,"verify":null},"wall_ns":7}]'
    )
    found = REGISTRY.decode(Entry(1, "/controller/orders", EntryKind.RECORD, text))
    assert found == [OrderTaken(Order("rm-1", remove=RemoveOrder("ck-1", here_only=False)), 7)]


@pytest.mark.parametrize(("record", "text"), GOLDEN)
def test_golden(record, text):
    """Each record is written as it always was, and read back as it is."""
    assert REGISTRY.encode(record) == text
    assert REGISTRY.decode(Entry(1, "/nodes/orders", EntryKind.RECORD, text)) == [record]
