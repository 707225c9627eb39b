"""What an actor of the reference does: it checks that what comes may come here and now, and does what the plan says."""

from collections import deque

from kernel_words import Act, Fact, Planned

from iriscw.runtime import vocabulary as v


class Acting:
    """The part of the oracle that decides in the actors' place, and looks at all that they are given."""

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
            records = ()  # what it forgets is asked of the journal before it is found to be bad
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
        self.give_back(life)

    def give_back(self, life, *, just_now=True):
        """Have what an incarnation put aside wait again, in front.

        While its actor waits for the disk a host's question does not: where that stands when there is room again
        depends on how far the actor has come by then. If it was not ``just_now`` nobody knows whether it was so.
        """
        node = life.node
        if life.over:
            life.stash = [number for number in life.stash if number not in self.notes]
            node.returned = deque(number for number in node.returned if number not in self.notes)
        cell = self.tree.cells.get(node.path)
        if not just_now or (cell is not None and cell.parked is not None):
            node.passing |= {number: None for number in life.stash if number in self.asked}
        node.returned.extendleft(number for number in reversed(life.stash) if number not in node.passing)
        life.stash = []

    def _accept(self, life, message, ctx):
        """R1, R2, R6: this message was not seen before, nor was one that its sender sent later."""
        node, number = life.node, message.number
        status = self.seen.get(number)
        if number in self.retry:
            self.retry.discard(number)
        elif status == "stashed":
            if number in node.passing:
                del node.passing[number]
                return
            cell = self.tree.cells[node.path]
            if message.sender_path == "host-question" and cell.parked is not None and number in node.returned:
                node.returned.remove(number)  # a host's question goes past what waits for the disk
                return
            while node.returned and node.returned[0] != number and self._nobody_waits(node.returned[0]):
                node.returned.popleft()  # it is not delivered any more
            if not node.returned or node.returned.popleft() != number:
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

    def _nobody_waits(self, number):
        """Whether this is a request whose asker has begun anew, is gone, or has been answered or asked again since."""
        life, key = self.askers.get(number, (None, None))
        if life is None:
            return False
        path = life.node.path
        cell = self.tree.cells.get(path)
        there = cell is not None and self.nodes[path] is life.node and cell.incarnation == life.incarnation
        return not there or life.requests.get(key) != number

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
