"""What the two actors of the stream to the controller accept, and what they tell.

Paths: ``/controller/orders`` (durable: what was ordered), ``/controller/session`` (plain: the stream).
"""

from __future__ import annotations

from iriscw.nodes.model import Fact, FactKey, Order, OrderEnd, Orders
from iriscw.runtime.vocabulary import ROOT, message

CONTROLLER = ROOT / "controller"
ORDERS = CONTROLLER / "orders"
SESSION = CONTROLLER / "session"

# To /controller/session


@message
class Present:
    """These are all facts of a kind that hold: others of that kind hold no more."""

    kind: str
    facts: tuple[Fact, ...]
    omitted: int = 0
    unread: tuple[str, ...] = ()
    """Tiers that could not be looked at: what was there holds on (INV-C11)."""


@message
class Now:
    """This fact holds, beside others of its kind."""

    fact: Fact


@message
class Past:
    """The fact under this key holds no more."""

    key: FactKey


# To /controller/orders


@message
class TakeOrders:
    """The controller says what to do."""

    orders: Orders


@message
class Resync:
    """Tell the session all ends."""


@message
class SettleOperation:
    """An operation is over. Answered with None once it is on disk, if it was an order; else at once."""

    end: OrderEnd


@message
class Due:
    """A timer's time has come."""

    what: str


# What is asked of the agent


@message
class BeginOrder:
    """Begin an order, unless its operation runs already. Gives its :class:`OrderEnd` if it is over with that."""

    order: Order
    withdrawn: bool = False
    """Only look whether it was begun: if it was not, it never is, and that is what became of it."""


@message
class StopOrder:
    """Have an order's operation undone."""

    operation: str


# Published


@message
class SessionAwake:
    """The session is new, and knows nothing: tell it what there is."""


@message
class OrdersFull:
    """The agent takes no more orders until some are released."""

    count: int
