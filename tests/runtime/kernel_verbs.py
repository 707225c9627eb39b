"""The verbs of a plan: each adds a command to a decision, and notes what the kernel owes for it."""

from kernel_words import Act, Planned, Tick, Value, Work

from iriscw.runtime import vocabulary as v
from iriscw.runtime.behavior import Restart, Strategy


class Verbs:
    """The part of the oracle that turns plans into commands. ``later`` is done if the decision can be carried out."""

    def message(self, node, mark, plan, *, path=None):
        """Give a message to send."""
        return Act(self.next(), node.uid, path or node.path, mark, plan)

    def _do_tell(self, life, message, ctx, commands, later, to, plan):
        commands.append(v.Tell(v.ActorPath(to), self.message(life.node, life.mark, plan)))

    def _do_latest(self, life, message, ctx, commands, later, to, key, plan):
        commands.append(v.Tell(v.ActorPath(to), self.message(life.node, life.mark, plan), conflate=key))

    def _do_continue(self, life, message, ctx, commands, later, plan):
        act = self.message(life.node, life.mark, plan)
        self.notes.add(act.number)
        commands.append(v.Continue(act))

    def _do_request(self, life, message, ctx, commands, later, to, key, ms, plan):
        act = self.message(life.node, life.mark, plan)
        commands.append(v.Request(v.ActorPath(to), act, key, ms * v.MILLISECOND))

        def wait():
            life.requests[key] = act.number
            self.askers[act.number] = (life, key)

        later.append(wait)

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
        answered = sum(type(each) is v.Reply and each.to is not None for each in commands)
        for to, token in life.kept[answered : answered + 1]:  # each answer of a plan is to the next question
            commands.append(v.Reply(Value(token, life.mark), to))
            later.append(lambda: life.kept.pop(0))

    def _do_unstash(self, life, message, ctx, commands, later):
        commands.append(v.Unstash())

        later.append(lambda: self.give_back(life))

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
        if child is None:
            return

        def stop():
            for path in self.nodes:
                if path == child.path or path.startswith(f"{child.path}/"):
                    self.ended_marks[path] = max(self.ended_marks.get(path, 0), life.mark)
            self.gone(child)

        later.append(stop)

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
