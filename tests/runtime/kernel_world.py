"""The reference that the kernel is compared with: actors that do as their messages say, and an oracle that remembers.

Every message carries a *plan*: what its receiver is to do. So a random program is a random plan, and the oracle knows
from the plans alone what was sent, asked for and promised. It keeps the obvious: who may be alive, which answers each
incarnation is owed, the order in which a sender sent, and the journal sequence that each piece of news rests on, which
travels inside the messages themselves. It has no mailboxes, no queues and no scheduling: those are the kernel's.

Its words are in ``kernel_words``, who ought to be alive in ``kernel_family``, what an actor looks at and does in
``kernel_acting`` and ``kernel_verbs``. Here they are put together with the kernel, and compared with it.
"""

from collections import deque
from typing import Any

from kernel_acting import Acting
from kernel_family import Family
from kernel_verbs import Verbs
from kernel_words import FAMILY, Act, Bag, Kind, Life, Node, Planned, Value, Work, evolve

from iriscw._errors import JournalUnavailable, OutcomePending
from iriscw.runtime import vocabulary as v
from iriscw.runtime.behavior import Backoff, Behavior, ChildSpec, Strategy, Supervision
from iriscw.runtime.envelope import Envelope, EnvelopeKind
from iriscw.runtime.tree import FailureReport
from iriscw.testing import SimSystem


class ModelSystem(SimSystem):
    """A system whose way out is watched by the oracle, at the very moment something leaves."""

    world: Any = None

    def start(self, operation):
        """Check an effect or session that starts."""
        self.world.starts(self, operation)
        super().start(operation)

    def fed(self, operation):
        """Check an item that leaves."""
        self.world.leaves("fed item", operation.outbox[-1].mark)
        super().fed(operation)

    def publish(self, event):
        """Check an event that leaves."""
        if type(event) is FailureReport:
            self.world.reported(event)
        else:
            self.world.leaves("event", event.mark)
        super().publish(event)


class World(Family, Acting, Verbs):
    """The oracle. What it finds wrong is kept in ``violations``: an exception would only restart an actor."""

    def __init__(self, *, seed=0, careful=True, sync_ns=None, bound_bytes=2_000):
        self.violations = []
        self.serial = 0
        self.log = []
        """What the journal was given: (sequence, path, number), None for a forget."""
        self.root = None
        self.lost = False
        self.failures_due = deque()
        self.exhaustions_due = deque()
        self.orphans = []
        """What the process before the last crash had on the wire."""
        options = {} if sync_ns is None else {"sync_ns": (lambda rng: rng.randrange(sync_ns))}
        if sync_ns == 0:
            options = {"sync_ns": None}
        ModelSystem.world = self
        self._new_root()
        self.system = ModelSystem(self._behavior(self.root), seed=seed, bound_bytes=bound_bytes, **options)
        self.careful = careful
        self._tune()
        self.simulation.checkers.append(self.check)

    def _tune(self):
        if not self.careful:
            self.system.tree.trace = None
            self.simulation.dispatcher.throughput = 5

    @property
    def simulation(self):
        """The simulation under test."""
        return self.system.simulation

    @property
    def tree(self):
        """The tree of the present boot."""
        return self.system.tree

    def next(self):
        """Return a number no one had."""
        self.serial += 1
        return self.serial

    def wrong(self, text):
        """Keep a violation."""
        self.violations.append(text)

    def check(self):
        """Raise what was found wrong, and look at the answers that have reached the host."""
        for slot, token in list(self.questions.items()):
            if slot.done:
                del self.questions[slot]
                self.answered(slot, token)
        if self.tree.full and not self.tree.journal_changed:
            waiting = [token for slot, token in self.questions.items() if slot.held]
            if waiting:
                self.wrong(f"the disk is full, and nobody told who asked {waiting}")
        assert not self.violations, self.violations

    def latest(self):
        """Of what replaces its like only the latest waits, apart from what its receiver has put aside once."""
        for path, cell in self.tree.cells.items():
            waiting = [
                item.key
                for queue in (cell.parked, cell.mailbox)
                for item in queue or ()
                if type(item) is Envelope and item.key is not None and item.kind == EnvelopeKind.PLAIN
                if self.seen.get(item.message.number) != "stashed"
            ]
            if len(waiting) > len({*waiting}):
                self.wrong(f"{path} has more than the latest waiting: {waiting}")

    # Actors

    def _new_root(self):
        self.seen = {}
        self.retry = set()
        self.order = {}
        self.questions = {}
        self.asked = set()
        """What the host has asked."""
        self.notes = set()
        """What actors sent to themselves: only the incarnation that did sees it."""
        self.askers = {}
        """Of each request who asked, and under which key."""
        self.unanswered = {}
        self.nodes = {}
        self.works = {}
        self.fresh = []
        self.ended_marks = {}
        kind = Kind(strategy=Strategy.ONE_FOR_ONE)
        self.root = Node(self.next(), v.ROOT, None, kind)
        self.nodes[v.ROOT] = self.root

    def _behavior(self, node):
        kind = node.kind

        def initial():
            if node.failing:
                node.failing -= 1
                error = Planned(0, 0, node)
                self.failures_due.append(error)
                raise error
            return Bag()

        def decide(state, message, ctx):
            return self.decide(node, state, message, ctx)

        def resume(state, ctx):
            self.life(node, state, ctx)
            return ()

        return Behavior(
            initial=initial,
            decide=decide,
            resume=resume if kind.resumes else None,
            evolve=evolve if kind.durable else None,
            effects={Work: _nothing},
            sessions={Work: _nothing_at_all},
            supervision=Supervision(
                strategy=kind.strategy,
                restarts=FAMILY if node.parent is None else kind.restarts,
                period=kind.period_s * v.SECOND,
                backoff=Backoff(initial=kind.delay_ms * v.MILLISECOND, maximum=v.SECOND),
            ),
        )

    def _spec(self, parent, name, kind, mark):
        node = Node(self.next(), parent.path / name, parent, kind, mark, failing=kind.failing_starts)
        parent.children[name] = node
        self.nodes[node.path] = node
        if parent.status != "alive":
            node.status = "gone"
        return ChildSpec(
            name,
            self._behavior(node),
            restart=kind.restart,
            entity=kind.entity,
            capacity=kind.capacity,
            shutdown=kind.shutdown,
        )

    def life(self, node, state, ctx):
        """Return the incarnation that decides; a new one knows what its start and its facts rest on."""
        life = node.life
        if life is None or life.incarnation != ctx.incarnation:
            if life is not None:
                if ctx.incarnation < life.incarnation:
                    self.wrong(f"{node.path}: incarnation {ctx.incarnation} decides after {life.incarnation}")
                life.over = True
                self.give_back(life, just_now=False)
            mark = max([node.mark, *(seq for seq, path, _ in self.log if path == node.path)])
            life = node.life = Life(node, ctx.incarnation, mark)
        if life.over:
            self.wrong(f"{node.path}: incarnation {life.incarnation} decides after its end")
        if node.kind.durable and not node.forgot and state.facts != self.facts(node.path):
            self.wrong(f"{node.path}: state {state.facts}, records {self.facts(node.path)}")
        if node.parent is not None:
            self.ended_marks[node.path] = life.mark
        return life

    def facts(self, path):
        """Return the facts that the records of ``path`` say."""
        found = []
        for _, at, number in self.log:
            if number is None:
                if at == path or path.startswith(f"{at}/") or at == "/":
                    found = []
            elif at == path:
                found.append(number)
        return found

    # What leaves

    def leaves(self, what, mark):
        """R9: what leaves rests on durable records only."""
        if mark > self.system.disk.last:
            self.wrong(f"{what} leaves at {self.system.disk.last} durable and rests on {mark}")

    def starts(self, system, operation):
        """R6, R9: an operation starts once, wanted, alone, and after what it rests on."""
        work = operation.effect
        self.leaves("operation", work.mark)
        life = self.works.pop(work.token, None)
        fresh = work.token in self.fresh  # asked for by the decision that is being carried out right now
        if life is None or not (fresh or life.works.get(operation.key) == work.token):
            self.wrong(f"operation {work.token} of {operation.path} starts, and nobody wants it")
        others = [each.operation for each in system.pending.values() if each.operation.slot == operation.slot]
        if others:
            self.wrong(f"{operation.path} {operation.key} runs twice")

    def answered(self, slot, token):
        """R3, R9, R10: the host got one answer, the right one, and not too early; what was refused did not happen."""
        decided = self.seen.get(token) == "done"
        if isinstance(slot.error, JournalUnavailable) and decided:
            self.wrong(f"question {token} was refused, and what it asked for was done")
        if isinstance(slot.error, OutcomePending) and not decided:
            self.wrong(f"the outcome of question {token} is said to be on its way, and nobody decided on it")
        if type(slot.value) is Value or type(slot.error) is Planned:
            answer = slot.error or slot.value
            self.leaves("reply", answer.mark)
            if answer.token != token:
                self.wrong(f"question {token} got the answer to {answer.token}")
        elif slot.error is None:
            self.wrong(f"question {token} got {slot.value!r}")

    # The host's side, and the world's

    def host(self, path, plan):
        """Tell."""
        self.system.tell(path, Act(self.next(), 0, "host", 0, plan))

    def ask(self, path, plan):
        """Ask, if there is anybody; the answer is looked at when it comes."""
        if path in self.tree.cells:
            act = Act(self.next(), 0, "host-question", 0, plan)
            slot = self.system.question(path, act)
            self.questions[slot] = act.number
            self.asked.add(act.number)

    def crash(self, keep):
        """Crash with ``keep`` of the records that were not durable, and boot again."""
        system = self.system
        self.orphans = list(system.pending.values())
        if not system.crashed:
            waiting = system.journal.appended - system.journal.durable
            system.crash(min(keep, waiting))
        self.log = [entry for entry in self.log if entry[0] <= system.disk.last]
        self.failures_due.clear()
        self.exhaustions_due.clear()
        self.lost = False
        self._new_root()
        system.restart(self._behavior(self.root))
        self._tune()

    def settle(self):
        """Heal the world, let everything end, and compare who is there with who ought to be."""
        system = self.system
        if system.tree.fatal is not None:
            return
        system.journal.resume()
        system.journal.free()
        for _ in range(200):
            system.run_until_idle()
            system.journal.commit()
            for each in list(system.pending.values()):
                each.complete()
            system.advance(5)
            if not system.pending and system.journal.pending_commits() == 0:
                break
        system.advance(60)
        system.run_until_idle()
        if system.tree.fatal is None:
            self.compare()

    def compare(self):
        """Say what is missing at rest."""
        cells = self.tree.cells
        there = {path: cell for path, cell in cells.items() if cell.status == 0}
        for path, node in self.nodes.items():
            if node.status == "alive" and path not in there:
                self.wrong(f"{path} ought to be alive, it is {cells.get(path)}")
            if node.status == "quarantined" and (path not in cells or cells[path].status != 5):
                self.wrong(f"{path} ought to be quarantined, it is {cells.get(path)}")
        for path, cell in cells.items():
            node = self.nodes[path]
            if node.status == "gone":
                self.wrong(f"{path} ought to be gone, it is {cell}")
            life = node.life
            if life is not None and cell.status == 0 and life.incarnation == cell.incarnation:
                for what in ("timers", "works", "requests"):
                    if getattr(life, what):
                        self.wrong(f"{path} never got its {what}: {getattr(life, what)}")
                absent = [each for each in life.watches if each not in cells]
                if absent:
                    self.wrong(f"{path} was never told of the end of {absent}")
        if self.failures_due or self.exhaustions_due:
            self.wrong(f"failures that nobody was told of: {self.failures_due}, {self.exhaustions_due}")
        self.check()


async def _nothing(effect):
    """Do nothing: simulated effects are carried out by the world."""


async def _nothing_at_all(session, port):
    """Do nothing: simulated sessions are carried out by the world."""


__all__ = ["FAMILY", "Kind", "Work", "World"]
