"""An agent and its controller as decisions only: their actors, a stream between them that breaks, deaths of either.

Nothing is real but the decisions. What lies in the journals survives a death; so do the operations of the machine:
their records are there until what became of them is settled, as in the agent.
"""

import random

from iriscw.agent.uplink import ledger, session
from iriscw.agent.uplink.ledger import OrderLedger
from iriscw.agent.uplink.messages import ORDERS as LEDGER, SESSION, BeginOrder, SettleOperation, StopOrder
from iriscw.agent.uplink.session import Session
from iriscw.dialling.messages import Welcomed
from iriscw.nodes import mirror, orders
from iriscw.nodes.messages import AGENTS, ORDERS
from iriscw.nodes.mirror import Mirror
from iriscw.nodes.model import ORDER, Abilities, AgentIdentity, AgentUp, OrderEnd
from iriscw.nodes.orders import OrderBook
from iriscw.runtime.vocabulary import (
    Arrived,
    Close,
    Closed,
    Completed,
    Decision,
    Emit,
    Feed,
    FeedRefused,
    Open,
    Refuse,
    Reply,
    ReplyTo,
    Run,
    SetTimer,
    Tell,
)

NODE = "n1"
IDENTITY = AgentIdentity(NODE, "agent-1", 1, "boot-1")


class Ctx:
    """What decisions look at."""

    def __init__(self, walk, path):
        self.path, self.rng = path, walk.rng
        self.now = self.attentive = self.wall = walk.now
        self.reply_to = ReplyTo(1)
        self._walk = walk

    def new_id(self, prefix=""):
        """Return an id."""
        self._walk.ids += 1
        return f"{prefix}{self._walk.ids:012d}"


class Walk:
    """Both sides, and the machine."""

    def __init__(self, seed=0):
        self.rng = random.Random(seed)
        self.now, self.ids, self.steps = 0, 0, 0
        self.book, self.taken = OrderBook(), OrderLedger()
        self.book_records, self.taken_records = [], []
        self.begun, self.running, self.over = {}, {}, {}
        self.facts = {}
        self.inbox, self.answers = [], []
        self.timers = {}
        self.waiting = {}
        """Open sessions: the agent's dialling, and the mirror's waiting."""
        self.connected = False
        self.start_controller()
        self.start_agent()

    # Lives

    def start_controller(self):
        """Begin a life of the controller: the journal's records, and a new mirror."""
        self.drop("controller")
        self.book = OrderBook()
        for record in self.book_records:
            orders.evolve(self.book, record)
        self.mirror = Mirror(NODE)
        self.do(AGENTS / NODE, mirror.resume(self.mirror, Ctx(self, AGENTS / NODE)))

    def start_agent(self):
        """Begin a life of the agent: the journal's records, a new session, and the operations that were left."""
        self.drop("agent")
        self.taken = OrderLedger()
        for record in self.taken_records:
            ledger.evolve(self.taken, record)
        self.session = Session()
        self.session.facts = dict(self.facts)
        self.do(SESSION, session.resume(self.session, Ctx(self, SESSION)))
        self.do(LEDGER, ledger.resume(self.taken, Ctx(self, LEDGER)))

    def drop(self, side):
        """Forget what a dead side had not written down."""
        ours = (AGENTS / NODE, ORDERS) if side == "controller" else (SESSION, LEDGER)
        self.inbox = [each for each in self.inbox if each[0] not in ours]
        self.timers = {key: message for key, message in self.timers.items() if key[0] not in ours}
        self.waiting.pop(side, None)
        self.cut()

    def cut(self):
        """Break the stream: both sides hear of it, if they live."""
        if self.connected:
            self.connected = False
            # what was on its way is lost, after an unknown prefix
            carried = [place for place, each in enumerate(self.inbox) if isinstance(each[1], Arrived)]
            lost = set(carried[self.rng.randint(0, len(carried)) :])
            self.inbox = [each for place, each in enumerate(self.inbox) if place not in lost]
            for side, path in (("controller", AGENTS / NODE), ("agent", SESSION)):
                if self.waiting.get(side):
                    self.waiting[side] = False
                    self.inbox.append((path, Closed("stream", None)))

    def connect(self):
        """Let the agent in, if it dials and the mirror waits."""
        if not self.connected and self.waiting.get("agent") and self.waiting.get("controller"):
            self.connected = True
            self.inbox.append((AGENTS / NODE, Arrived("stream", AgentUp(IDENTITY, Abilities()))))
            self.inbox.append((SESSION, Arrived("stream", Welcomed("s", 10**10))))

    # Decisions

    def tell(self, path, message):
        """Have a message wait."""
        self.inbox.append((path, message))

    def step(self):
        """Decide on one message: any sender's next one; give whether there was one."""
        if not self.inbox:
            return False
        self.steps += 1
        assert self.steps < 20_000, "it never comes to rest"
        first = {}
        for place, (path, _) in enumerate(self.inbox):
            first.setdefault(path, place)
        path, message = self.inbox.pop(self.rng.choice(list(first.values())))
        state, rules, evolve, records = self._actor(path)
        decided = rules[type(message)](state, message, Ctx(self, path))
        commands = decided.commands if isinstance(decided, Decision) else decided or ()
        for record in decided.records if isinstance(decided, Decision) else ():
            evolve(state, record)
            records.append(record)
        self.do(path, commands)
        return True

    def _actor(self, path):
        if path == ORDERS:
            return self.book, orders.rules(), orders.evolve, self.book_records
        if path == LEDGER:
            return self.taken, ledger.rules(), ledger.evolve, self.taken_records
        if path == SESSION:
            return self.session, session.rules(), None, None
        return self.mirror, mirror.rules(), None, None

    def do(self, path, commands):
        """Carry commands out."""
        side = "agent" if path in (SESSION, LEDGER) else "controller"
        for command in commands:
            match command:
                case Tell(to=to, message=message):
                    self.tell(to, message)
                case Open():
                    self.waiting[side] = True
                case Close():
                    self.waiting[side] = False
                    self.cut()
                case Feed(item=item):
                    self._feed(path, item)
                case SetTimer(key=key, message=message):
                    self.timers[path, key] = message
                case Run(key=key, effect=BeginOrder() as effect):
                    self.tell(path, Completed(key, effect, self._begin(effect)))
                case Run(key=key, effect=StopOrder() as effect):
                    if effect.operation in self.running:
                        self.end(effect.operation, "undone")
                    self.tell(path, Completed(key, effect, None))
                case Reply() | Refuse():
                    self.answers.append(command)
                case Emit():
                    pass
                case _:
                    self.timers.pop((path, getattr(command, "key", None)), None)

    def _feed(self, path, item):
        if not self.connected:
            self.tell(path, FeedRefused("stream", item))
        elif path == SESSION:
            if type(item).__name__ != "Heartbeat":
                self.tell(AGENTS / NODE, Arrived("stream", item))
        else:
            self.tell(SESSION, Arrived("stream", item))

    # The machine

    def _begin(self, effect):
        order, operation = effect.order, effect.order.operation
        if operation in self.running or operation in self.over:
            return None
        if effect.withdrawn:
            return OrderEnd(operation, "refused", "OrderCancelled")
        self.begun[operation] = self.begun.get(operation, 0) + 1
        if order.remove is not None:
            return OrderEnd(operation, "removed")
        self.running[operation] = order
        return None

    def end(self, operation, outcome="copied"):
        """Let an operation end: its records stay until what became of it is settled."""
        del self.running[operation]
        self.over[operation] = OrderEnd(operation, outcome)

    def settle(self, operation):
        """Settle an operation that is over; its records go when that is on the disk."""
        self.tell(LEDGER, SettleOperation(self.over[operation]))

    def forget_settled(self):
        """Drop the records of operations that are settled."""
        for operation in list(self.over):
            known = self.taken.taken.get(operation)
            if known is None or known.end is not None:
                del self.over[operation]

    def rest(self):
        """Heal, and go on until nothing happens any more."""
        for _ in range(200):
            self.now += 10**11
            self.connect()
            while self.step():
                self.forget_settled()
                self.connect()
            for operation in list(self.running):
                self.end(operation)
            for operation in self.over:
                self.settle(operation)
            due, self.timers = self.timers, {}
            for (path, key), message in due.items():
                if key != "beat":
                    self.tell(path, message)
            if not self.inbox and self.connected and not self.over:
                return
        raise AssertionError("it never comes to rest")

    def said(self):
        """Return what the controller knows of the node."""
        return {key: fact for key, fact in self.mirror.facts.items() if key[0] != ORDER}

    def known(self):
        """Return what the agent knows."""
        return {key: fact for key, fact in self.session.facts.items() if key[0] != ORDER}
