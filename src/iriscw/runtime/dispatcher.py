"""The dispatcher: the only place where decisions are called.

Theory of operation. Cells with something to do stand in one run queue. A *step* takes cells from it, one *turn* each:
up to ``throughput`` messages, one decision each, its commands carried out at once. A step ends when its budget of
messages or of time is spent, so that the host's event loop gets its turn. What the runtime itself consumes (starting,
stopping, restarting) is done in small pieces on a queue of its own that goes first, a quota of pieces per step. What is
not a plain message is handed to :mod:`iriscw.runtime.delivery`.

The dispatcher never sleeps and never awaits. Who drives it gives it the time: a task on an event loop
(:mod:`iriscw.runtime.edge`), or a simulation that jumps from timer to timer (:mod:`iriscw.testing`). With a random
stream it draws the next cell from all that are ready instead of taking the oldest: every order of messages that the
delivery rules allow can then be met, and the same seed meets the same one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from iriscw._errors import AskInsideDecision, AskTimeout, as_failure
from iriscw.runtime.cell import ACTIVE, DRAINING, Cell
from iriscw.runtime.context import DispatcherContext
from iriscw.runtime.delivery import park, question, unwrap
from iriscw.runtime.envelope import Envelope, EnvelopeKind, Slot
from iriscw.runtime.interpreter import Unavailable, carry_out, send
from iriscw.runtime.lifecycle import Lifecycle
from iriscw.runtime.timers import Entry, TimerQueue
from iriscw.runtime.tree import Tree
from iriscw.runtime.vocabulary import KEEP, MILLISECOND, SECOND, Decision, Tell

THROUGHPUT = 64
"""Messages of one turn: Akka's dispatchers take 5, ractor has no bound; 64 hides the cost of changing cells."""

STEP_MESSAGES = 512
"""Messages of one step, overrun by one turn at most; a step of cheap decisions takes about 1 ms."""

STEP_TIME = 4 * MILLISECOND
"""Real time of one step, checked between turns."""

CONTROL_QUOTA = 256
"""Pieces of control work per step: starting or stopping a thousand actors takes several steps."""

SLOW_TURN = 50 * MILLISECOND
"""A turn that takes longer is counted and named: it made everybody wait."""

CLOCK_STRIDE = 16
"""Messages between two readings of the clock within a step: reading it each turn would cost a tenth of the speed."""

BRISK = STEP_TIME // CLOCK_STRIDE
"""If the turns between two readings took longer, the next is read at once, so that a step keeps its time."""

WATCHED_MESSAGES = 4096
"""After a slow turn, messages for which every turn is timed: an actor that is slow again is named exactly."""

ATTENTION = SECOND
"""What a stall of this process counts as at most on the attentive clock."""


class Clock(Protocol):
    """Where the dispatcher reads the time."""

    def now(self) -> int:
        """The monotonic clock, ns."""

    def wall(self) -> int:
        """The wall clock, ns since 1970."""


def _nobody_to_wake() -> None:
    """Do nothing: whoever drives the dispatcher looks for work by itself."""


def lone_tell(commands: tuple[Any, ...]) -> bool:
    """Whether these commands are one ``Tell``, about which there is nothing to check."""
    return type(commands) is tuple and len(commands) == 1 and type(commands[0]) is Tell


class Dispatcher:
    """Runs the cells of one or more trees."""

    __slots__ = (
        "_counts",
        "_looked",
        "_wall_ahead",
        "_watched",
        "attends",
        "attentive",
        "attentive_timers",
        "clock",
        "context",
        "control",
        "deciding",
        "idle",
        "inline_budget",
        "lifecycle",
        "now",
        "ready",
        "rng",
        "steps",
        "throughput",
        "timers",
        "trees",
        "virtual",
        "wake",
    )

    def __init__(
        self, clock: Clock, *, rng: Random | None = None, throughput: int = THROUGHPUT, virtual: bool = False
    ) -> None:
        self.clock = clock
        self.rng = rng
        self.throughput = throughput
        self.virtual = virtual
        self.ready: deque[Cell] = deque()
        self.control: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self.timers = TimerQueue()
        self.attentive_timers = TimerQueue()
        self.trees: list[Tree] = []
        self.now = clock.now()
        self.attentive = 0
        self.attends = False
        """Whether a decision has read the attentive clock, so that idle time has to be told from a stall."""
        self._looked = self.now
        self._wall_ahead = clock.wall() - self.now
        self.context = DispatcherContext(self)
        self.lifecycle = Lifecycle(self)
        self.deciding = False
        self.idle = True
        """Whether nobody is about to call :meth:`step`, so that new work has to wake the driver."""
        self.wake: Callable[[], None] = _nobody_to_wake
        self.inline_budget = STEP_MESSAGES
        self.steps = 0
        self._counts = tuple(range(1, taken + 1) for taken in range(max(throughput, THROUGHPUT) + 1))
        self._watched = 0
        """Messages of the next step whose turns are all timed."""

    # What there is to do

    @property
    def busy(self) -> bool:
        """Whether a step would do something now."""
        return bool(self.ready or self.control) or any(tree.journal_changed for tree in self.trees)

    @property
    def next_due(self) -> int | None:
        """When the next timer is due on the dispatcher's clock, ns; None without one."""
        heap, attentive_heap = self.timers.heap, self.attentive_timers.heap
        due = heap[0][0] if heap else None
        attentive = attentive_heap[0][0] if attentive_heap else None
        if self.virtual:
            # Both clocks advance alike, so what is due first on either is due first.
            if attentive is None:
                return due
            at = self.now + attentive - self.attentive if attentive > self.attentive else self.now
            return at if due is None or at < due else due
        if attentive is None and not self.attends:
            return due
        wait = ATTENTION if attentive is None else max(0, attentive - self.attentive)
        # The attentive clock advances by ATTENTION a turn at most, so there have to be turns.
        wait = min(wait, ATTENTION)
        return self.now + wait if due is None else min(due, self.now + wait)

    @property
    def wall(self) -> int:
        """The wall clock of the current turn, ns since 1970."""
        return self.now + self._wall_ahead

    def schedule(self, cell: Cell) -> None:
        """Let a cell with something to do have its turn."""
        if cell.status == ACTIVE or cell.status == DRAINING:
            cell.scheduled = True
            self.ready.append(cell)
            if self.idle:
                self.idle = False
                self.wake()

    def look_at_clock(self) -> None:
        """Read the clock, once per turn of the host's loop, and make due timers ready."""
        now = self.clock.now()
        passed = now - self._looked
        self.attentive += passed if self.virtual or passed < ATTENTION else ATTENTION
        self.now = self._looked = now
        self._wall_ahead = self.clock.wall() - now
        self.inline_budget = STEP_MESSAGES
        heap = self.timers.heap
        if heap and heap[0][0] <= now:
            self._fire(self.timers, now)
        heap = self.attentive_timers.heap
        if heap and heap[0][0] <= self.attentive:
            self._fire(self.attentive_timers, self.attentive)

    def stall(self, lasted: int) -> None:
        """Take note that the process stood still for ``lasted`` ns, on virtual time."""
        self._looked += max(0, lasted - ATTENTION)

    def _fire(self, queue: TimerQueue, now: int) -> None:
        while (entry := queue.pop(now)) is not None:
            _, _, target, key, generation = entry
            if type(target) is not Cell:
                self.control.append((target, key))
                continue
            name, message = key
            if target.timers is None or target.timers.get(name) != generation or target.tree.crashed:
                queue.stale = max(0, queue.stale - 1)
                continue
            target.tree.answer(target, Envelope(EnvelopeKind.TIMER, message, name, generation, target.incarnation))

    def timer_cancelled(self) -> None:
        """Count a cancelled timer, so that cancelled ones do not pile up."""
        self.timers.cancelled(self._current_timer)
        self.attentive_timers.cancelled(self._current_timer)

    @staticmethod
    def _current_timer(entry: Entry) -> bool:
        target = entry[2]
        if type(target) is not Cell:
            return True
        return target.timers is not None and target.timers.get(entry[3][0]) == entry[4]

    def request_expired(self, tree: Tree, slot: Slot) -> None:
        """Fail a request whose deadline passed."""
        if not slot.done and not slot.abandoned and not tree.crashed:
            tree.fill(slot, None, AskTimeout("no answer before the request's deadline"), 0)

    # Running

    def step(self, messages: int = STEP_MESSAGES, until: Slot | None = None) -> int:
        """Run until the budget is spent, nothing is ready, or ``until`` is filled; give the number of messages."""
        if self.deciding:
            raise AskInsideDecision("a decision cannot drive the dispatcher")
        self.deciding = True
        self.steps += 1
        if not self.virtual:
            # The host may step after a long sleep: timers count from here, not from when it fell asleep.
            self.now = self.clock.now()
        try:
            traced = False
            for tree in self.trees:
                if tree.journal_changed:
                    tree.release()
                if tree.trace is not None:
                    traced = True
            quota = self._control(CONTROL_QUOTA) if self.control else CONTROL_QUOTA
            return self._turns(messages, until, quota, traced=traced)
        finally:
            self.deciding = False

    def _control(self, quota: int) -> int:
        control = self.control
        while quota > 0 and control:
            act, args = control.popleft()
            act(*args)
            quota -= 1
        return quota

    def _turns(self, messages: int, until: Slot | None, quota: int, *, traced: bool) -> int:
        """Return ready cells their turns: the hottest loop; outcomes that make up most of all are dealt with here."""
        ready, control, context, rng = self.ready, self.control, self.context, self.rng
        cell, counts, throughput = None, self._counts, self.throughput
        timed = not self.virtual
        began = self._read_clock() if timed else 0
        spent, next_reading = 0, 0 if timed else messages + throughput
        while ready and spent < messages:
            if rng is not None and len(ready) > 1:
                ready.rotate(-rng.randrange(len(ready)))
            cell = ready.popleft()
            status, tree = cell.status, cell.tree
            if status != ACTIVE and status != DRAINING:
                continue  # it was stopped or restarted meanwhile; what waits in its mailbox is seen to there
            mailbox = cell.mailbox
            if traced or cell.parked is not None:
                spent += self._careful_turn(cell)
            elif mailbox:
                taken, rules, context.cell = 0, cell.rules, cell
                waiting = len(mailbox)
                most = waiting if waiting < throughput else throughput  # noqa: FURB136 - a call of min is slower
                for taken in counts[most]:  # noqa: B007 - it counts
                    received = mailbox.popleft()
                    rule = rules[type(received)]
                    if rule is None:
                        unwrap(self, cell, received)
                        if not self._goes_on(cell, status):
                            break
                        continue
                    try:
                        outcome = rule(cell.state, received, context)
                        if outcome is None:
                            continue
                        if type(outcome) is tuple and len(outcome) == 1 and type(outcome[0]) is Tell:
                            send(tree, cell, outcome[0])
                        elif (
                            type(outcome) is Decision
                            and rules.plain
                            and not outcome.records
                            and (not outcome.commands or lone_tell(outcome.commands))
                        ):
                            if outcome.state is not KEEP:
                                cell.state = outcome.state
                            if not outcome.commands:
                                continue
                            send(tree, cell, outcome.commands[0])  # type: ignore[arg-type]  # seen to be a Tell
                        else:
                            carry_out(tree, cell, outcome, received)
                            if cell.status != status:
                                break
                        if not mailbox:
                            break
                    except Unavailable:
                        park(cell, received)
                        break
                    except BaseException as error:
                        self.lifecycle.failed(cell, received, as_failure(error))
                        break
                tree.delivered += taken
                spent += taken
            if cell.status == ACTIVE or cell.status == DRAINING:
                if cell.mailbox:
                    ready.append(cell)
                else:
                    cell.scheduled = False
                    if cell.status == DRAINING:
                        self.lifecycle.drained(cell)
            if until is not None and (until.done or until.held):
                break
            if control and quota > 0:
                quota = self._control(quota)
            if spent >= next_reading:
                took = self._time_turns(cell)
                next_reading = spent + (CLOCK_STRIDE if took < BRISK and self._watched <= spent else 1)
                if self.now - began >= STEP_TIME:
                    break
        if timed and cell is not None:
            self._time_turns(cell)
            self._watched = max(0, self._watched - spent)
        return spent

    def control_step(self) -> bool:
        """Do one piece of control work, if there is one."""
        if not self.control:
            return False
        self.deciding = True
        try:
            act, args = self.control.popleft()
            act(*args)
        finally:
            self.deciding = False
        return True

    @staticmethod
    def _goes_on(cell: Cell, status: int) -> bool:
        """Whether the cell may take the next message of its turn: nothing stopped, parked or emptied it."""
        return cell.status == status and cell.parked is None and bool(cell.mailbox)

    def _read_clock(self) -> int:
        self.now = now = self.clock.now()
        return now

    def _time_turns(self, cell: Cell) -> int:
        """Read the clock; if the turns since the last reading were slow, count it and name the last one's actor."""
        before = self.now
        now = self._read_clock()
        took = now - before
        if took >= SLOW_TURN:
            tree = cell.tree
            tree.slow_turns += 1
            if took > tree.slowest_turn:
                tree.slowest_turn = took
                tree.slowest_actor = cell.path
            self._watched = WATCHED_MESSAGES
        return took

    def _careful_turn(self, cell: Cell) -> int:
        """Take messages one by one, looking at everything: the cell is parked, or somebody traces."""
        tree = cell.tree
        status = cell.status
        self.context.cell = cell
        taken = 0
        while cell.mailbox and taken < self.throughput and cell.status == status:
            message = cell.mailbox.popleft()
            taken += 1
            tree.delivered += 1
            if tree.trace is not None:
                tree.trace(cell, message)
            rule = cell.rules[type(message)]
            if rule is None:
                unwrap(self, cell, message)
            elif cell.parked is not None:
                park(cell, message)
            else:
                try:
                    outcome = rule(cell.state, message, self.context)
                    if outcome is not None:
                        carry_out(tree, cell, outcome, message)
                except Unavailable:
                    park(cell, message)
                except BaseException as error:
                    self.lifecycle.failed(cell, message, as_failure(error))
        return taken

    def ask_now(self, slot: Slot) -> bool:
        """Deliver a host's question at once if its actor is idle and so is everybody else; tells whether it was.

        This is what the run queue would do next, without the queue.
        """
        cell: Cell = slot.cell
        tree = cell.tree
        if (
            self.ready
            or self.control
            or cell.status != ACTIVE
            or cell.mailbox
            or cell.scheduled
            or cell.parked is not None
            or tree.journal_changed
            or tree.trace is not None
            or self.inline_budget <= 0
        ):
            return False
        self.inline_budget -= 1
        self.now = self.clock.now()
        self.deciding = True
        cell.scheduled = True
        self.context.cell = cell
        tree.sent += 1
        tree.delivered += 1
        try:
            question(self, cell, slot)
        finally:
            self.deciding = False
        if cell.status == ACTIVE:
            if cell.mailbox:
                self.ready.append(cell)
            else:
                cell.scheduled = False
        elif cell.status == DRAINING and not cell.mailbox:
            self.control.append((self.lifecycle.drained, (cell,)))
        return True


__all__ = ["ATTENTION", "STEP_MESSAGES", "THROUGHPUT", "Clock", "Dispatcher"]
