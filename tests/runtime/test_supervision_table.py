"""Supervision, exhaustively: every way a child can end, against outcomes that are written down as data."""

import itertools

import pytest

from iriscw.runtime import vocabulary as v
from iriscw.runtime.behavior import Backoff, Behavior, ChildSpec, Restart, Shutdown, Strategy, Supervision
from iriscw.runtime.cell import ACTIVE, QUARANTINED
from iriscw.testing import SimSystem, checks

COMES_BACK = {
    (Restart.PERMANENT, "failed"): True,
    (Restart.PERMANENT, "ended"): True,
    (Restart.TRANSIENT, "failed"): True,
    (Restart.TRANSIENT, "ended"): False,
    (Restart.TEMPORARY, "failed"): False,
    (Restart.TEMPORARY, "ended"): False,
}
EXHAUSTED = {True: "quarantined", False: "escalated"}
"""What follows if it would come back but the budget is used up, by whether it is an entity."""

RESTARTED = {
    (Strategy.ONE_FOR_ONE, 0): (0,),
    (Strategy.ONE_FOR_ONE, 1): (1,),
    (Strategy.ONE_FOR_ONE, 2): (2,),
    (Strategy.ONE_FOR_ALL, 0): (0, 1, 2),
    (Strategy.ONE_FOR_ALL, 1): (0, 1, 2),
    (Strategy.ONE_FOR_ALL, 2): (0, 1, 2),
    (Strategy.REST_FOR_ONE, 0): (0, 1, 2),
    (Strategy.REST_FOR_ONE, 1): (1, 2),
    (Strategy.REST_FOR_ONE, 2): (2,),
}
"""Who is restarted, in start order, when the child at this position is."""

SIBLING = {0: 2, 1: 0, 2: 0}
"""Whose recovery is under way in the phase "recovering", by the position of the child."""

PHASES = ("running", "starting", "recovering", "stopping")
RESTARTS = 3


def outcome(restart, entity, how, left):
    """Look up what is to happen."""
    if not COMES_BACK[restart, how]:
        return "gone"
    return "restarted" if left else EXHAUSTED[entity]


@v.message
class End:
    """Fail or end."""

    how: str


class Case:
    """A supervisor of three, one of which ends."""

    def __init__(self, strategy, restart, entity, how, left, position, phase):
        self.strategy, self.restart, self.how, self.left = strategy, restart, how, left
        self.position, self.phase = position, phase
        self.started = []
        self.ends = ["", "", ""]
        children = tuple(
            ChildSpec(
                f"c{number}",
                self._child(number),
                restart=restart if number == position else Restart.PERMANENT,
                entity=entity and number == position,
                shutdown=Shutdown.STOP_AFTER_MAILBOX,
            )
            for number in range(3)
        )
        rules = Supervision(strategy, RESTARTS, 60 * v.SECOND, Backoff(100 * v.MILLISECOND, v.SECOND, jitter=0.0))
        supervisor = Behavior(initial=lambda: self.started.append("sup"), children=children, supervision=rules)
        if phase == "starting":
            self.ends[position] = how
        self.system = SimSystem(Behavior(supervision=Supervision(restarts=1_000)))
        checks.watch(self.system.simulation)
        if phase == "starting" and not left:
            # Its budget is used up by starts that fail: the last one is the one that is looked at.
            self.ends[position] = [*["failed"] * RESTARTS, how]
        self.system.spawn("sup", supervisor)

    def _child(self, number):
        def end(how):
            if how == "failed":
                raise RuntimeError("as planned")
            return (v.StopSelf(),) if how == "ended" else ()

        def resume(state, ctx):
            self.started.append(number)
            how, self.ends[number] = self.ends[number], ""
            if how and isinstance(how, list):
                how, self.ends[number] = how[0], how[1:]
            return end(how)

        return Behavior(resume=resume, on={End: lambda state, message, ctx: end(message.how)})

    def cell(self, number):
        """Return a child's cell."""
        return self.system.tree.cells.get(v.ActorPath(f"/sup/c{number}"))

    def use_up(self, times):
        """Fail the child some times, each of which it comes back from."""
        if COMES_BACK[self.restart, "failed"]:
            for _ in range(times):
                self.system.tell(f"/sup/c{self.position}", End("failed"))
                self.system.advance(2)

    def run(self):
        """Carry out the case and give what is seen: the outcome, and who was started again, in order."""
        system = self.system
        child = f"/sup/c{self.position}"
        if self.phase == "starting":
            system.advance(10)
            return self.look([])
        system.advance(1)
        if self.phase == "recovering":
            self.use_up(0 if self.left else RESTARTS - (self.strategy is not Strategy.ONE_FOR_ONE))
            before = self.incarnations()
            self.started.clear()
            system.tell(f"/sup/c{SIBLING[self.position]}", End("failed"))
            system.run_until_idle()
            cell = self.cell(self.position)
            if cell is None:
                assert self.restart is Restart.TEMPORARY, "only a temporary sibling goes with its group for good"
            elif cell.status == ACTIVE:
                system.tell(child, End(self.how))
            else:
                self.ends[self.position] = self.how
        else:
            self.use_up(0 if self.left else RESTARTS)
            before = self.incarnations()
            self.started.clear()
            system.tell(child, End(self.how))
            if self.phase == "stopping":
                system.tell("/sup/c0", End("failed"))
                system.simulation.dispatcher.lifecycle.stop(system.tree.cells["/sup"], v.StopReason.NORMAL)
        system.advance(20)
        return self.look(before)

    def incarnations(self):
        """Return the incarnation of each child."""
        return [cell.incarnation if (cell := self.cell(number)) else None for number in range(3)]

    def look(self, before):
        """Name what happened."""
        checks.settled(self.system)
        if "sup" in self.started[1 if self.phase == "starting" else 0 :]:
            return "escalated", self.started
        if "/sup" not in self.system.tree.cells:
            return "all gone", self.started
        cell = self.cell(self.position)
        now = self.incarnations()
        before = before or [0, 0, 0]
        changed = [number for number in range(3) if now[number] is not None and now[number] > before[number]]
        if cell is None:
            return "gone", changed
        return {ACTIVE: "restarted", QUARANTINED: "quarantined"}[cell.status], changed


def expected(strategy, restart, entity, how, left, position, phase):
    """Return what the tables say of a case."""
    if phase == "stopping":
        return "all gone", []
    what = outcome(restart, entity, how, left)
    again = set(RESTARTED[strategy, position]) if what == "restarted" else set()
    if phase == "recovering":
        again |= set(RESTARTED[strategy, SIBLING[position]])
    if phase == "starting" and not left and COMES_BACK[restart, "failed"]:
        again |= set(RESTARTED[strategy, position])
    if what == "gone":
        again.discard(position)
    if what == "quarantined" and phase != "starting":
        mine = position in RESTARTED[strategy, SIBLING[position]] and strategy is not Strategy.ONE_FOR_ONE
        if not (phase == "recovering" and mine):
            again.discard(position)
    return what, sorted(again)


@pytest.mark.parametrize("strategy", Strategy, ids=lambda strategy: strategy.value)
@pytest.mark.parametrize("phase", PHASES)
def test_every_case(strategy, phase):
    """What happens is what the tables say, for each child, budget, position and way to end."""
    wrong = []
    for words in itertools.product(Restart, (False, True), ("failed", "ended"), (True, False), range(3)):
        restart, entity, how, left, position = words
        case = (strategy, restart, entity, how, left, position, phase)
        if phase == "starting" and not left and not COMES_BACK[restart, "failed"]:
            continue  # it never comes back, so it has no budget to use up
        seen = Case(*case).run()
        told = expected(*case)
        right = seen[0] == "escalated" and seen[1][-4:] == ["sup", 0, 1, 2] if told[0] == "escalated" else seen == told
        if not right:
            wrong.append((restart.value, entity, how, left, position, seen, told))
    assert not wrong, "\n".join(map(str, wrong))
