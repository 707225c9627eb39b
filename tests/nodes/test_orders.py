"""Orders: what ends them beside their agents' word. Walks are in test_agent_and_controller.py."""

from iriscw.nodes import orders
from iriscw.nodes.messages import AbandonOrders, CountOrders, DescribeOrder, PlaceOrder
from iriscw.nodes.model import UNKNOWN, Order, RemoveOrder
from iriscw.nodes.orders import OrderBook
from iriscw.runtime.vocabulary import Decision, Emit, Reply
from iriscw.testing.contexts import FakeContext


class Book:
    """The decisions about orders, with their state."""

    def __init__(self):
        self.state, self.ctx = OrderBook(), FakeContext(wall=0)

    def __call__(self, message):
        """Decide, apply the records, and give the commands."""
        decided = orders.rules()[type(message)](self.state, message, self.ctx)
        if isinstance(decided, Decision):
            for record in decided.records:
                orders.evolve(self.state, record)
            return decided.commands
        return decided or ()

    def place(self, node, key):
        """Place an order; give its id."""
        *_, reply = self(PlaceOrder(key, node, "a1", Order("", remove=RemoveOrder("ck-1"))))
        return reply.value.order.operation

    def asked(self, message):
        """Return what is replied."""
        return self(message)[-1].value


def test_its_orders_end_as_lost_and_no_others():
    """By name, once; whoever waits for one is told."""
    book = Book()
    first, second, other = (book.place(node, key) for node, key in (("n1", "a"), ("n1", "b"), ("n2", "c")))
    assert book.asked(CountOrders()) == 3
    commands = book(AbandonOrders("n1"))
    assert commands[-1] == Reply(2)
    assert [each.event.operation for each in commands if isinstance(each, Emit)] == [first, second]
    for each in (first, second):
        end = book.asked(DescribeOrder(each)).end
        assert (end.outcome, end.kind) == (UNKNOWN, "NodeForgotten")
        assert "n1" in end.text
    assert book.asked(DescribeOrder(other)).end is None
    assert (book.asked(CountOrders()), book.asked(AbandonOrders("n1"))) == (1, 0)
    rebuilt = OrderBook()
    for record in orders.compact(book.state):
        orders.evolve(rebuilt, record)
    assert rebuilt == book.state
