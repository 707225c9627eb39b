"""The reference that the kernel is compared with: actors that do as their messages say, and an oracle that remembers.

Every message carries a *plan*: what its receiver is to do. So a random program is a random plan, and the oracle knows
from the plans alone what was sent, asked for and promised. It keeps the obvious: who may be alive, which answers each
incarnation is owed, the order in which a sender sent, and the journal sequence that each piece of news rests on, which
travels inside the messages themselves. It has no mailboxes, no queues and no scheduling: those are the kernel's.
"""

from collections import deque
from typing import Any

import attrs

from iriscw.errors import InvalidDecision, JournalUnavailable, OutcomePending, RestartsExhausted
from iriscw.journal.records import record
from iriscw.runtime import vocabulary as v
from iriscw.runtime.behavior import Backoff, Behavior, ChildSpec, Restart, Shutdown, Strategy, Supervision
from iriscw.runtime.tree import FailureReport
from iriscw.testing import SimSystem

FAMILY = 1_000_000
"""A restart budget that no run exhausts."""


class Planned(Exception):
    """What a decision raises when its plan says so; ``token`` and ``mark`` are those of the message."""

    def __init__(self, token, mark):
        super().__init__(token)
        self.token = token
        self.mark = mark


@v.message
class Act:
    """Do what ``plan`` says. ``mark`` is the last journal sequence that this message rests on."""

    number: int
    sender: int
    sender_path: str
    mark: int
    plan: tuple


@v.message
class Tick:
    """A timer's message."""

    token: int


@v.message
class Work:
    """An effect, a session, an item or an event, by the token of whoever asked."""

    token: int
    mark: int
    number: int = 0


@v.message
class Value:
    """An answer to the question with this token."""

    token: int
    mark: int


@record("test.kernel_fact")
@v.message
class Fact:
    """What a durable actor records; a poisonous one cannot be applied."""

    number: int
    poison: bool = False


@attrs.frozen
class Kind:
    """What sort of actor to start."""

    restart: Restart = Restart.PERMANENT
    entity: bool = False
    strategy: Strategy = Strategy.ONE_FOR_ONE
    durable: bool = False
    capacity: int = 8
    shutdown: Shutdown = Shutdown.STOP
    restarts: int = FAMILY
    period_s: int = 10
    delay_ms: int = 0
    failing_starts: int = 0
    resumes: bool = False

    def _repr_pretty_(self, printer, cycle):
        """Show in a falsifying example only what was chosen."""
        chosen = [field.name for field in attrs.fields(Kind) if getattr(self, field.name) != field.default]
        printer.text(f"Kind({', '.join(f'{name}={getattr(self, name)}' for name in chosen)})")


@attrs.define(eq=False)
class Node:
    """What the oracle knows of an actor: where it belongs and whether it ought to be there."""

    uid: int
    path: v.ActorPath
    parent: Any
    kind: Kind
    mark: int = 0
    status: str = "alive"
    children: dict = attrs.field(factory=dict)
    times: list = attrs.field(factory=list)
    group_times: list = attrs.field(factory=list)
    failing: int = 0
    life: Any = None
    returned: deque = attrs.field(factory=deque)
    forgot: bool = False


@attrs.define(eq=False)
class Life:
    """One incarnation: what it waits for, and what it knows."""

    node: Node
    incarnation: int
    mark: int
    over: bool = False
    timers: dict = attrs.field(factory=dict)
    works: dict = attrs.field(factory=dict)
    requests: dict = attrs.field(factory=dict)
    watches: dict = attrs.field(factory=dict)
    stash: list = attrs.field(factory=list)
    kept: list = attrs.field(factory=list)
    gone: set = attrs.field(factory=set)
    items: dict = attrs.field(factory=dict)


class Bag:
    """A durable actor's state: the facts it was told, in order."""

    def __init__(self):
        self.facts = []


def evolve(state, fact):
    """Apply a fact."""
    if fact.poison:
        state.facts.append(-1)
        raise ValueError("poison")
    state.facts.append(fact.number)


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


class World:
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
        """Give a number no one had."""
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

    # Actors

    def _new_root(self):
        self.seen = {}
        self.retry = set()
        self.order = {}
        self.questions = {}
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
                self.failed(node)
                error = Planned(0, 0)
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
        """Give the incarnation that decides; a new one knows what its start and its facts rest on."""
        life = node.life
        if life is None or life.incarnation != ctx.incarnation:
            if life is not None:
                if ctx.incarnation < life.incarnation:
                    self.wrong(f"{node.path}: incarnation {ctx.incarnation} decides after {life.incarnation}")
                life.over = True
                node.returned.extendleft(reversed(life.stash))
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
        """Give the facts that the records of ``path`` say."""
        found = []
        for _, at, number in self.log:
            if number is None:
                if at == path or path.startswith(f"{at}/") or at == "/":
                    found = []
            elif at == path:
                found.append(number)
        return found

    # Supervision, as said in one paragraph of the docs

    def failed(self, node, *, raised=True):
        """Say who is alive after ``node`` failed or ended."""
        if node.status != "alive":
            return
        parent, kind = node.parent, node.kind
        if parent is None:
            self.lost = True
            return
        if kind.restart is Restart.TEMPORARY or (kind.restart is Restart.TRANSIENT and not raised):
            self.gone(node)
            return
        rules = parent.kind
        group = rules.strategy is not Strategy.ONE_FOR_ONE
        times = parent.group_times if group else node.times
        now = self.simulation.dispatcher.now
        budget = FAMILY if parent.parent is None else rules.restarts
        if sum(at > now - rules.period_s * v.SECOND for at in times) >= budget:
            if kind.entity:
                self.empty(node)
                node.status = "quarantined"
            else:
                if not raised:
                    self.exhaustions_due.append(node.path)
                self.failed(parent)
            return
        times.append(now)
        siblings = [child for child in parent.children.values() if child.status == "alive"]
        if rules.strategy is Strategy.ONE_FOR_ONE:
            siblings = [node]
        elif rules.strategy is Strategy.REST_FOR_ONE:
            siblings = siblings[siblings.index(node) :]
        for each in siblings:
            if each is not node and each.kind.restart is Restart.TEMPORARY:
                self.gone(each)
            else:
                self.empty(each)

    def empty(self, node):
        """End all below a node, which itself starts anew: a supervisor comes back with a fresh budget."""
        for child in list(node.children.values()):
            self.gone(child)
        node.group_times.clear()

    def gone(self, node):
        """End a node and all below it."""
        self.empty(node)
        node.status = "gone"
        if node.parent is not None and node.parent.children.get(node.path.name) is node:
            del node.parent.children[node.path.name]

    def reported(self, report):
        """R4: each exception of a decision reaches the listeners, in order."""
        error = report.error
        while type(error) is not Planned and error.__cause__ is not None:
            error = error.__cause__
        if type(error) is not Planned:
            if type(error) is RestartsExhausted and error is report.error:
                self._exhausted(report)
            elif type(error) not in (InvalidDecision, ValueError, RestartsExhausted):
                self.wrong(f"nobody planned {report.error!r} of {report.path}")
            return
        if type(report.error) is Planned:
            if error not in self.failures_due:
                self.wrong(f"{report.path} was reported twice for {error!r}")
            else:
                self.failures_due.remove(error)

    def _exhausted(self, report):
        """An actor that ended itself once too often fails its parent, though nothing raised."""
        ended = next((path for path in self.exhaustions_due if str(report.error) == f"{path} ended too often"), None)
        if ended is None or ended.parent != report.path:
            self.wrong(f"nobody planned {report.error!r} of {report.path}")
        else:
            self.exhaustions_due.remove(ended)

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

    # Deciding

    def decide(self, node, state, message, ctx):
        """Look at what comes, and do what it says."""
        self.fresh = []
        life = self.life(node, state, ctx)
        if type(message) is Act:
            return self.act(life, message, ctx)
        look = getattr(self, f"_saw_{type(message).__name__.lower()}")
        look(life, message, ctx)
        self.ended_marks[node.path] = life.mark
        return None

    def _saw_tick(self, life, message, ctx):
        self._owed(life.timers, message.token, "timer", life)

    def _owed(self, table, token, what, life, key=None):
        keys = [each for each, wanted in table.items() if wanted == token]
        if not keys:
            self.wrong(f"{life.node.path}: {what} {token} is not owed to incarnation {life.incarnation}")
        for each in keys:
            del table[each]

    def _saw_completed(self, life, message, ctx):
        self._owed(life.works, message.effect.token, "effect", life)

    def _saw_failed(self, life, message, ctx):
        self._owed(life.works, message.effect.token, "effect", life)

    def _saw_arrived(self, life, message, ctx):
        item = message.item
        if life.works.get(message.key) != item.token:
            self.wrong(f"{life.node.path}: item of session {item.token}, open is {life.works.get(message.key)}")
        if item.number <= life.items.get(item.token, 0):
            self.wrong(f"{life.node.path}: item {item.number} after {life.items[item.token]}")
        life.items[item.token] = item.number

    def _saw_closed(self, life, message, ctx):
        self._owed({} if message.key not in life.works else life.works, life.works.get(message.key), "end", life)

    def _saw_feedrefused(self, life, message, ctx):
        pass

    def _saw_replied(self, life, message, ctx):
        life.mark = max(life.mark, message.value.mark)
        self._owed(life.requests, message.value.token, "answer", life)

    def _saw_requestfailed(self, life, message, ctx):
        error = message.error
        if type(error) is Planned:
            life.mark = max(life.mark, error.mark)
        token = error.token if type(error) is Planned else life.requests.get(message.key)
        self._owed(life.requests, token, "answer", life)

    def _saw_undelivered(self, life, message, ctx):
        act = message.message
        if act.sender != life.node.uid or act.number in self.seen:
            self.wrong(f"{life.node.path}: {act.number} came back, of {act.sender}, seen {act.number in self.seen}")
        self.seen[act.number] = "undelivered"

    def _saw_terminated(self, life, message, ctx):
        path = message.path
        life.mark = max(life.mark, self.ended_marks.get(path, 0))
        watched = life.watches.pop(path, None)
        if watched is None and path.parent != life.node.path:
            self.wrong(f"{life.node.path}: not watching {path}")
        if watched is not None and message.reason is not v.StopReason.ABSENT:
            life.gone.add(watched)

    def act(self, life, message, ctx):
        """Carry out a plan, having checked that this message may be seen here and now."""
        node = life.node
        self._accept(life, message, ctx)
        verbs = [verb[0] for verb in message.plan]
        if "stash" in verbs and self.seen.get(message.number) != "stashed":
            self.seen[message.number] = "stashed"
            life.stash.append(message.number)
            return (v.Stash(),)
        life.mark = max(life.mark, message.mark)
        self.ended_marks[node.path] = life.mark
        records = tuple(Fact(self.next()) for verb in verbs if verb == "record" and node.kind.durable)
        if "poison" in verbs and node.kind.durable:
            records += (Fact(self.next(), True),)
        forgets = "forget" in verbs
        if "fail" in verbs and node.parent is not None:
            return self._raise(life, message)
        if "bad" in verbs and node.parent is not None:
            records, forgets = (), False
        ready = self.system.journal.status.name == "READY"
        if (records or forgets) and not ready:
            if ctx.reply_to is None or message.sender_path != "host-question":
                self.retry.add(message.number)
            return v.Decision(records=records, commands=(v.Forget(),) if forgets else ())
        self.seen[message.number] = "done"
        if "poison" in verbs and records:
            self._end(life)
            self.failed(node)
            return v.Decision(records=records)
        return self._carry_out(life, message, ctx, records)

    def _raise(self, life, message):
        self.seen[message.number] = "done"
        self._end(life)
        self.failed(life.node)
        error = Planned(message.number, life.mark)
        self.failures_due.append(error)
        raise error

    def _end(self, life):
        life.over = True
        life.node.returned.extendleft(reversed(life.stash))
        life.stash = []

    def _accept(self, life, message, ctx):
        """R1, R2, R6: this message was not seen before, nor was one that its sender sent later."""
        node, number = life.node, message.number
        status = self.seen.get(number)
        if number in self.retry:
            self.retry.discard(number)
        elif status == "stashed":
            cell = self.tree.cells[node.path]
            if message.sender_path == "host-question" and cell.parked is not None and number in node.returned:
                node.returned.remove(number)  # a host's question goes past what waits for the disk
            elif not node.returned or node.returned.popleft() != number:
                self.wrong(f"{node.path}: {number} leaves the stash out of turn")
            return
        elif status is not None:
            self.wrong(f"{node.path}: {number} again, it was {status} already")
        if message.sender in life.gone:
            self.wrong(f"{node.path}: {number} after the end of its sender")
        if status != "stashed":
            key = (message.sender_path, node.path)
            if self.order.get(key, 0) > number:
                self.wrong(f"{node.path}: {number} of {message.sender_path} after {self.order[key]}")
            if not (self._will_park(message, node)):
                self.order[key] = max(number, self.order.get(key, 0))

    def _will_park(self, message, node):
        verbs = [verb[0] for verb in message.plan]
        writes = "forget" in verbs or (node.kind.durable and ("record" in verbs or "poison" in verbs))
        return writes and self.system.journal.status.name != "READY"

    def _carry_out(self, life, message, ctx, records):
        node = life.node
        sequence = self.system.journal.appended
        for fact in records:
            sequence += 1
            self.log.append((sequence, node.path, fact.number))
            life.mark = sequence
        commands = []
        later = []
        bad = "bad" in [verb[0] for verb in message.plan] and node.parent is not None
        before = (self.serial, dict(self.nodes))
        undo = _Undo(life) if bad else None
        for verb, *words in message.plan:
            add = getattr(self, f"_do_{verb}", None)
            if add is not None:
                add(life, message, ctx, commands, later, *words)
        if bad:
            assert undo is not None
            undo.restore(self, before)
            self._end(life)
            self.failed(node)
            return (*commands, v.SetTimer("bad", -1, None))
        for update in later:
            update()
        self.ended_marks[node.path] = life.mark
        if not commands and not records:
            return None
        return v.Decision(commands=tuple(commands), records=records) if records else tuple(commands)

    # Verbs: each adds a command and what it promises

    def message(self, node, mark, plan, *, path=None):
        """Give a message to send."""
        return Act(self.next(), node.uid, path or node.path, mark, plan)

    def _do_tell(self, life, message, ctx, commands, later, to, plan):
        commands.append(v.Tell(v.ActorPath(to), self.message(life.node, life.mark, plan)))

    def _do_latest(self, life, message, ctx, commands, later, to, key, plan):
        commands.append(v.Tell(v.ActorPath(to), self.message(life.node, life.mark, plan), conflate=key))

    def _do_continue(self, life, message, ctx, commands, later, plan):
        commands.append(v.Continue(self.message(life.node, life.mark, plan)))

    def _do_request(self, life, message, ctx, commands, later, to, key, ms, plan):
        act = self.message(life.node, life.mark, plan)
        commands.append(v.Request(v.ActorPath(to), act, key, ms * v.MILLISECOND))
        later.append(lambda: life.requests.update({key: act.number}))

    def _do_reply(self, life, message, ctx, commands, later):
        if ctx.reply_to is not None:
            commands.append(v.Reply(Value(message.number, life.mark)))

    def _do_refuse(self, life, message, ctx, commands, later):
        if ctx.reply_to is not None:
            commands.append(v.Refuse(Planned(message.number, life.mark)))

    def _do_keep(self, life, message, ctx, commands, later):
        if ctx.reply_to is not None:
            later.append(lambda to=ctx.reply_to: life.kept.append((to, message.number)))

    def _do_answer(self, life, message, ctx, commands, later):
        for to, token in life.kept[:1]:
            commands.append(v.Reply(Value(token, life.mark), to))
            later.append(lambda: life.kept.pop(0))

    def _do_unstash(self, life, message, ctx, commands, later):
        commands.append(v.Unstash())

        def back():
            life.node.returned.extendleft(reversed(life.stash))
            life.stash = []

        later.append(back)

    def _do_spawn(self, life, message, ctx, commands, later, name, kind):
        node = life.node
        group = node.parent is not None and node.parent.kind.strategy is not Strategy.ONE_FOR_ONE
        path = node.path / name
        planned = any(type(each) is v.Spawn and each.spec.name == name for each in commands)
        if group or planned or path in self.tree.cells or path.count("/") > 2 or not self._free(path, kind):
            return
        commands.append(v.Spawn(self._spec(node, name, kind, life.mark)))

    def _free(self, path, kind):
        """A path whose records are of a durable actor stays one: the model does not mix them."""
        return kind.durable or not self.facts(path)

    def _do_stop(self, life, message, ctx, commands, later, name):
        commands.append(v.StopChild(name))
        child = life.node.children.get(name)
        if child is not None:
            later.append(lambda: self.gone(child))

    def _do_revive(self, life, message, ctx, commands, later, name):
        commands.append(v.ReviveChild(name))

        def revive():
            child = life.node.children.get(name)
            cell = self.tree.cells.get(life.node.path / name)
            if child is not None and child.status == "quarantined" and cell is not None and cell.status == 5:
                child.status = "alive"
                child.times.clear()

        later.append(revive)

    def _do_stopself(self, life, message, ctx, commands, later):
        if life.node.parent is None or any(type(each) is v.StopSelf for each in commands):
            return
        commands.append(v.StopSelf())

        def stop():
            self.failed(life.node, raised=False)
            if life.node.kind.restart is Restart.PERMANENT and life.node.status == "alive":
                self._end(life)

        later.append(stop)

    def _do_watch(self, life, message, ctx, commands, later, path):
        commands.append(v.Watch(v.ActorPath(path)))
        target = self.nodes.get(path)
        later.append(lambda: life.watches.update({path: target.uid if target else 0}))

    def _do_unwatch(self, life, message, ctx, commands, later, path):
        commands.append(v.Unwatch(v.ActorPath(path)))
        later.append(lambda: life.watches.pop(path, None))

    def _do_timer(self, life, message, ctx, commands, later, key, ms):
        token = self.next()
        commands.append(v.SetTimer(key, ms * v.MILLISECOND, Tick(token), attentive=bool(ms % 2)))
        later.append(lambda: life.timers.update({key: token}))

    def _do_untimer(self, life, message, ctx, commands, later, key):
        commands.append(v.CancelTimer(key))
        later.append(lambda: life.timers.pop(key, None))

    def _work(self, life, later, key):
        work = Work(self.next(), life.mark)

        def note():
            life.works[key] = work.token
            self.works[work.token] = life

        self.fresh.append(work.token)
        later.append(note)
        return work

    def _do_run(self, life, message, ctx, commands, later, key):
        commands.append(v.Run(key, self._work(life, later, key)))

    def _do_open(self, life, message, ctx, commands, later, key):
        commands.append(v.Open(key, self._work(life, later, key), inbound=2, outbound=2))

    def _do_cancel(self, life, message, ctx, commands, later, key):
        commands.append(v.Cancel(key))
        later.append(lambda: life.works.pop(key, None))

    def _do_feed(self, life, message, ctx, commands, later, key):
        commands.append(v.Feed(key, Work(life.works.get(key, 0), life.mark, self.next())))

    def _do_emit(self, life, message, ctx, commands, later):
        commands.append(v.Emit(Work(0, life.mark)))

    def _do_forget(self, life, message, ctx, commands, later):
        commands.append(v.Forget())
        sequence = self.system.journal.appended + 1 + sum(type(each) is v.Forget for each in commands[:-1])
        sequence += sum(verb[0] == "record" for verb in message.plan) if life.node.kind.durable else 0
        life.mark = sequence

        def forget():
            self.log.append((sequence, life.node.path, None))
            for path, node in self.nodes.items():
                if path == life.node.path or path.startswith(f"{life.node.path}/") or life.node.parent is None:
                    node.forgot = True

        later.append(forget)

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


class _Undo:
    """What a decision that cannot be carried out must leave as it was."""

    def __init__(self, life):
        self.mark = life.mark
        self.children = dict(life.node.children)
        self.life = life

    def restore(self, world, before):
        """Take back what the verbs noted at once."""
        world.nodes = before[1]
        self.life.mark = self.mark
        self.life.node.children = self.children


async def _nothing(effect):
    """Do nothing: simulated effects are carried out by the world."""


async def _nothing_at_all(session, port):
    """Do nothing: simulated sessions are carried out by the world."""


__all__ = ["FAMILY", "Kind", "Work", "World"]
