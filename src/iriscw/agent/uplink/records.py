"""The facts that an agent keeps of what its controller ordered, until the controller has what became of it."""

from __future__ import annotations

from iriscw.journal.records import record
from iriscw.nodes.model import Order, OrderEnd
from iriscw.runtime.vocabulary import message


@record("agent.order_taken")
@message
class OrderTaken:
    """The controller ordered it. Nothing of it is begun before this is on disk."""

    order: Order
    wall_ns: int


@record("agent.order_withdrawn")
@message
class OrderWithdrawn:
    """It is to be undone, where that can still be."""

    operation: str


@record("agent.order_settled")
@message
class OrderSettled:
    """What became of it. The records of its operation go only after this is on disk."""

    end: OrderEnd


@record("agent.order_released")
@message
class OrderReleased:
    """The controller knows what became of it."""

    operation: str
