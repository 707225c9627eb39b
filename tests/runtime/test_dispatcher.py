"""The dispatcher by itself, on a clock of the test's own: budgets, fairness, slow turns, inline asks, attention."""

from random import Random

import pytest
from puppet import Do, puppet

from iriscw._errors import AskInsideDecision
from iriscw.runtime import MILLISECOND, SECOND, Behavior, CancelTimer, ChildSpec, Continue, Reply, SetTimer, Spawn
from iriscw.runtime.dispatcher import (
    ATTENTION,
    CLOCK_STRIDE,
    CONTROL_QUOTA,
    SLOW_TURN,
    STEP_MESSAGES,
    STEP_TIME,
    THROUGHPUT,
    Dispatcher,
)
from iriscw.runtime.envelope import Slot
from iriscw.runtime.tree import Tree


class Clock:
    """Stands still but for the test, and for ``tick`` ns with each reading."""

    def __init__(self):
        self.ns = 1_000 * SECOND
        self.tick = 0

    def now(self):
        self.ns += self.tick
        return self.ns

    def wall(self):
        return self.ns + 5 * SECOND


class Edge:
    """An edge that notes events and starts nothing."""

    def __init__(self):
        self.events = []
        self.woken = 0

    def publish(self, event):
        self.events.append(event)

    def wake(self):
        self.woken += 1


class Rig:
    """A dispatcher with one tree."""

    def __init__(self, **options):
        self.clock = Clock()
        self.edge = Edge()
        self.dispatcher = Dispatcher(self.clock, **options)
        self.dispatcher.wake = self.edge.wake
        self.tree = Tree(self.dispatcher, self.edge, name="rig", seed="0", journal=None)
        self.dispatcher.trees.append(self.tree)
        self.root = self.dispatcher.lifecycle.plant(self.tree, ChildSpec("", puppet()))
        self.dispatcher.step()

    def spawn(self, name, behavior, **spec):
        """Start an actor."""
        return self.dispatcher.lifecycle.spawn(self.root, ChildSpec(name, behavior, **spec))

    def tell(self, cell, *messages):
        """Put messages into a mailbox."""
        self.tree.sent += len(messages)
        cell.box().extend(messages)
        if not cell.scheduled:
            self.dispatcher.schedule(cell)


def test_turns_are_fair():
    """A cell with a full mailbox takes THROUGHPUT messages, then the others have their turn."""
    rig = Rig()
    log = []
    many = rig.spawn("many", Behavior(decide=lambda state, told, ctx: log.append("many")))
    few = rig.spawn("few", Behavior(decide=lambda state, told, ctx: log.append("few")))
    rig.tell(many, *range(3 * THROUGHPUT))
    rig.tell(few, "x")
    rig.dispatcher.step()
    assert log.index("few") == THROUGHPUT
    assert len(log) == 3 * THROUGHPUT + 1


def test_a_step_is_bounded_in_messages():
    """A step takes its budget of messages, overrun by a turn at most; the rest waits for the next."""
    rig = Rig()
    log = []
    for number in range(20):
        cell = rig.spawn(str(number), Behavior(decide=lambda state, told, ctx: log.append(told)))
        rig.tell(cell, *range(2 * THROUGHPUT))
    taken = rig.dispatcher.step()
    assert taken == len(log)
    assert STEP_MESSAGES <= taken < STEP_MESSAGES + THROUGHPUT
    assert rig.dispatcher.busy
    while rig.dispatcher.busy:
        rig.dispatcher.step()
    assert len(log) == 40 * THROUGHPUT


def test_an_actor_that_feeds_itself_ends_its_step():
    """Telling oneself without end keeps nobody waiting: the step ends all the same."""
    rig = Rig()
    rig.tell(rig.spawn("busy", Behavior(decide=lambda state, told, ctx: (Continue(told),))), "on")
    assert rig.dispatcher.step() <= STEP_MESSAGES + THROUGHPUT
    assert rig.dispatcher.busy


def test_a_step_is_bounded_in_time():
    """Once STEP_TIME has passed no further turn begins; the clock is read every few messages."""
    rig = Rig()
    turns = []

    def decide(state, told, ctx):
        turns.append(told)
        rig.clock.ns += 1 * MILLISECOND

    for number in range(5 * CLOCK_STRIDE):
        rig.tell(rig.spawn(str(number), Behavior(decide=decide)), number)
    rig.dispatcher.step()
    assert STEP_TIME // MILLISECOND <= len(turns) <= STEP_TIME // MILLISECOND + CLOCK_STRIDE
    assert rig.tree.slow_turns == 0


def test_time_goes_on_within_a_step():
    """Within a step, later turns see later times; ``now`` never goes back, and stands still within a decision."""
    rig = Rig()
    rig.clock.tick = 1_000
    times = []
    for number in range(3 * CLOCK_STRIDE):
        look = Behavior(decide=lambda state, told, ctx: times.append(ctx.now) or times.append(ctx.now))
        rig.tell(rig.spawn(str(number), look), "x")
    rig.dispatcher.look_at_clock()
    rig.dispatcher.step()
    assert times[::2] == times[1::2] == sorted(times[::2])
    assert len(set(times)) >= 3


def test_slow_turns_are_counted_and_named():
    """A turn of SLOW_TURN or more counts; the slowest one's actor and length are kept."""
    rig = Rig()
    for name, lasts in (("quick", SLOW_TURN - 1), ("slowest", 3 * SLOW_TURN), ("slow", SLOW_TURN)):

        def decide(state, told, ctx, lasts=lasts):
            rig.clock.ns += lasts

        rig.tell(rig.spawn(name, Behavior(decide=decide)), "x")
        rig.dispatcher.step()
    seen = rig.tree.statistics()
    assert (seen.slow_turns, seen.slowest_actor, seen.slowest_turn_ns) == (2, "/slowest", 3 * SLOW_TURN)


def test_an_actor_that_is_slow_again_is_named_exactly():
    """After a slow turn every turn is timed, so that a slow actor among many quick ones is found."""
    rig = Rig()

    def slow(state, told, ctx):
        rig.clock.ns += told

    slow_cell = rig.spawn("slow", Behavior(decide=slow))
    rig.tell(slow_cell, SLOW_TURN)
    rig.dispatcher.step()
    for number in range(CLOCK_STRIDE // 2):
        rig.tell(rig.spawn(f"before{number}", puppet()), "x")
    rig.tell(slow_cell, 2 * SLOW_TURN)
    for number in range(CLOCK_STRIDE // 2):
        rig.tell(rig.spawn(f"after{number}", puppet()), "x")
    rig.dispatcher.step()
    rig.dispatcher.step()
    seen = rig.tree.statistics()
    assert (seen.slow_turns, seen.slowest_actor, seen.slowest_turn_ns) == (2, "/slow", 2 * SLOW_TURN)


def test_control_goes_first_by_quota():
    """Starting many actors is done in pieces: a quota per step, before and between the ordinary turns."""
    rig = Rig()
    log = []
    told = rig.spawn("told", Behavior(decide=lambda state, told, ctx: log.append(told)))
    started = []
    child = puppet(resume=lambda state, ctx: started.append(ctx.path) or ())
    rig.tell(rig.spawn("parent", puppet()), Do(tuple(Spawn(ChildSpec(str(n), child)) for n in range(CONTROL_QUOTA))))
    rig.dispatcher.step()
    rig.tell(told, "x")
    rig.dispatcher.step()
    assert log == ["x"]
    assert 0 < len(started) <= CONTROL_QUOTA
    while rig.dispatcher.busy:
        rig.dispatcher.step()
    assert len(started) == CONTROL_QUOTA


def test_no_step_in_a_step():
    """A decision cannot drive the dispatcher; afterwards the dispatcher is as usable as before."""
    rig = Rig()
    caught = []

    def decide(state, told, ctx):
        try:
            rig.dispatcher.step()
        except AskInsideDecision as error:
            caught.append(error)

    cell = rig.spawn("a", Behavior(decide=decide))
    rig.tell(cell, "x")
    rig.dispatcher.step()
    assert len(caught) == 1
    assert not rig.dispatcher.deciding


def test_work_wakes_the_driver_once():
    """The first message to an idle dispatcher wakes whoever drives it; the next ones need not."""
    rig = Rig()
    cell = rig.spawn("a", puppet())
    rig.dispatcher.idle = True
    rig.tell(cell, 1)
    rig.tell(cell, 2)
    rig.tell(rig.spawn("b", puppet()), 3)
    assert rig.edge.woken == 1


def test_orders_are_drawn():
    """With a random stream each cell may be first, and the orders are many; within a cell order is kept."""
    orders = []
    for seed in range(40):
        log = []
        rig = Rig(rng=Random(seed), throughput=1, virtual=True)
        for name in "abc":
            cell = rig.spawn(name, Behavior(decide=lambda state, told, ctx, log=log: log.append(told)))
            rig.tell(cell, f"{name}1", f"{name}2")
        while rig.dispatcher.busy:
            rig.dispatcher.step(1)
        assert all(log.index(f"{name}1") < log.index(f"{name}2") for name in "abc")
        orders.append("".join(log))
    assert {order[0] for order in orders} == set("abc")
    assert len(set(orders)) > 20


# Inline asks


def ask(rig, cell, told):
    """Ask as the host does; give the slot and whether it was answered inline."""
    slot = Slot(cell, told)
    return slot, rig.dispatcher.ask_now(slot)


def test_an_idle_system_answers_inline():
    """With nothing else to do a question is decided on at once, at the current time."""
    rig = Rig()
    cell = rig.spawn("a", Behavior(decide=lambda state, told, ctx: (Reply(ctx.now),)))
    rig.clock.ns += 7 * SECOND
    slot, inline = ask(rig, cell, "q")
    assert (inline, slot.done, slot.value) == (True, True, rig.clock.ns)
    assert not cell.scheduled


def test_who_asks_waits_for_its_turn():
    """A question never overtakes: with mail before it, or somebody else ready, it goes through the queue."""
    rig = Rig()
    a, b = rig.spawn("a", puppet()), rig.spawn("b", puppet())
    rig.tell(b, "x")
    assert ask(rig, a, Do((Reply(),)))[1] is False
    rig.dispatcher.step()
    rig.tell(a, "x")
    assert ask(rig, a, Do((Reply(),)))[1] is False
    rig.dispatcher.step()
    assert ask(rig, a, Do((Reply(),)))[1] is True


def test_inline_asks_share_the_budget():
    """After a step's worth of inline asks the dispatcher's driver has to have a turn."""
    rig = Rig()
    cell = rig.spawn("a", puppet())
    rig.dispatcher.look_at_clock()
    for _ in range(STEP_MESSAGES):
        assert ask(rig, cell, Do((Reply(),)))[1] is True
    assert ask(rig, cell, Do((Reply(),)))[1] is False
    rig.dispatcher.look_at_clock()
    assert ask(rig, cell, Do((Reply(),)))[1] is True


def test_what_an_inline_ask_starts_goes_on():
    """Messages that its decision sent to itself are ready afterwards."""
    rig = Rig()
    log = []
    cell = rig.spawn("a", puppet(log))
    ask(rig, cell, Do((Continue("on"), Reply())))
    assert rig.dispatcher.busy
    rig.dispatcher.step()
    assert log == ["on"]


# Clocks and timers


def test_attention_is_capped():
    """Per look the attentive clock advances by at most ATTENTION, the plain one by all that passed."""
    rig = Rig()
    before = (rig.dispatcher.now, rig.dispatcher.attentive)
    for passed in (SECOND // 2, 60 * SECOND):
        rig.clock.ns += passed
        rig.dispatcher.look_at_clock()
    assert rig.dispatcher.now - before[0] == 60 * SECOND + SECOND // 2
    assert rig.dispatcher.attentive - before[1] == ATTENTION + SECOND // 2


def test_when_to_wake():
    """The next due time is the earlier of both clocks' timers; an attentive one needs a look each ATTENTION."""
    rig = Rig()
    log = []
    cell = rig.spawn("a", puppet(log))
    rig.dispatcher.look_at_clock()
    assert rig.dispatcher.next_due is None
    rig.tell(cell, Do((SetTimer("t", 30 * SECOND, "plain"),)))
    rig.dispatcher.step()
    assert rig.dispatcher.next_due == rig.clock.ns + 30 * SECOND
    rig.tell(cell, Do((SetTimer("a", 20 * SECOND, "attentive", attentive=True),)))
    rig.dispatcher.step()
    assert rig.dispatcher.next_due == rig.clock.ns + ATTENTION
    for _ in range(20):
        rig.clock.ns += ATTENTION
        rig.dispatcher.look_at_clock()
        rig.dispatcher.step()
    assert log == ["attentive"]


def test_reading_the_attentive_clock_keeps_it_going():
    """Once a decision has read it there is a look each ATTENTION, so that sleeping is not taken for a stall."""
    rig = Rig()
    seen = []
    rig.tell(rig.spawn("a", Behavior(decide=lambda state, told, ctx: seen.append(ctx.attentive))), "x")
    rig.dispatcher.look_at_clock()
    rig.dispatcher.step()
    assert rig.dispatcher.next_due == rig.clock.ns + ATTENTION


def test_the_wall_follows_its_own_clock():
    """The wall clock is read with the other: it may jump, and decisions see it jump."""
    rig = Rig()
    walls = []
    cell = rig.spawn("a", Behavior(decide=lambda state, told, ctx: walls.append(ctx.wall)))
    rig.dispatcher.look_at_clock()
    rig.tell(cell, "x")
    rig.dispatcher.step()
    rig.clock.wall = lambda: 17
    rig.dispatcher.look_at_clock()
    rig.tell(cell, "x")
    rig.dispatcher.step()
    assert walls == [rig.clock.ns + 5 * SECOND, 17]


def test_a_cancelled_timer_does_not_fire():
    """The heap's entry of a cancelled timer is dropped when it comes up."""
    rig = Rig()
    log = []
    cell = rig.spawn("a", puppet(log))
    rig.tell(cell, Do((SetTimer("t", SECOND, "due"),)), Do((CancelTimer("t"),)))
    rig.dispatcher.step()
    rig.clock.ns += 2 * SECOND
    rig.dispatcher.look_at_clock()
    assert not rig.dispatcher.busy
    assert log == []
    assert len(rig.dispatcher.timers) == 0


@pytest.mark.parametrize("count", [1, 1_000])
def test_due_timers_come_in_order(count):
    """Timers that came due together are delivered by due time."""
    rig = Rig()
    log = []
    cell = rig.spawn("a", puppet(log))
    rig.tell(cell, Do(tuple(SetTimer(n, (count - n) * MILLISECOND, n) for n in range(count))))
    rig.dispatcher.step()
    rig.clock.ns += 2 * SECOND
    rig.dispatcher.look_at_clock()
    while rig.dispatcher.busy:
        rig.dispatcher.step()
    assert log == list(reversed(range(count)))
