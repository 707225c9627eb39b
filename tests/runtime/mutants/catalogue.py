"""Planted bugs of the kernel."""

from anchors import Mutant


def _bug(name, *edits):
    return Mutant(name, edits)


TREE, DISPATCHER, LIFECYCLE = "runtime/tree.py", "runtime/dispatcher.py", "runtime/lifecycle.py"
DELIVERY, INTERPRETER, SUPERVISION = "runtime/delivery.py", "runtime/interpreter.py", "runtime/supervision.py"

MUTANTS = (
    _bug(
        "terminated-overtakes-last-messages",
        (
            TREE,
            "Tree.answer",
            "mailbox.append(envelope)",
            "(mailbox.appendleft if envelope.kind == EnvelopeKind.WATCH else mailbox.append)(envelope)",
        ),
    ),
    _bug(
        "timer-generation-not-checked-at-delivery",
        (DELIVERY, "_stale", "kind == EnvelopeKind.NOTE", "kind == EnvelopeKind.NOTE or kind == EnvelopeKind.TIMER"),
    ),
    _bug(
        "effect-result-of-an-old-incarnation-delivered",
        (
            DELIVERY,
            "_stale",
            ("if envelope.incarnation != cell.incarnation:\n    return True"),
            ("if envelope.incarnation != cell.incarnation:\n    return kind != EnvelopeKind.EFFECT"),
        ),
    ),
    _bug(
        "reserved-slot-not-given-back",
        (DELIVERY, "unwrap", "cell.reserved -= 1", ""),
    ),
    _bug(
        "children-stopped-in-start-order",
        (LIFECYCLE, "Lifecycle.continue_stop", "-1", "0"),
        (LIFECYCLE, "Lifecycle.continue_stop", "chain.children.pop()", "chain.children.pop(0)"),
    ),
    _bug(
        "restart-window-by-count",
        (SUPERVISION, "judge", "times and times[0] <= now - supervision.period", "len(times) > supervision.restarts"),
    ),
    _bug(
        "failing-message-retried",
        (
            DISPATCHER,
            "Dispatcher._careful_turn",
            "self.lifecycle.failed(cell, message, as_failure(error))",
            ("cell.box().append(message)\nself.lifecycle.failed(cell, message, as_failure(error))"),
        ),
    ),
    _bug(
        "commands-applied-before-the-check",
        (
            INTERPRETER,
            "carry_out",
            "check_all(tree, cell, commands)",
            (
                "if type(commands[0]) is not StopSelf:\n"
                "    COMMANDS[type(commands[0])][1](tree, cell, commands[0], item)\n"
                "check_all(tree, cell, commands)\n"
                "commands = commands[1:]"
            ),
        ),
    ),
    _bug(
        "reply-leaves-before-the-commit",
        (TREE, "Tree.fill", "rests_on <= self.durable", "True"),
    ),
    _bug(
        "news-of-an-end-leaves-early",
        (TREE, "Tree.news", "0 if self.journal is None else self.journal.appended", "0"),
    ),
    _bug(
        "message-mark-not-carried",
        (
            INTERPRETER,
            "send",
            "command.conflate is not None or cell.rests_on > tree.durable",
            "command.conflate is not None",
        ),
    ),
    _bug(
        "conflation-keeps-the-old-place",
        (
            INTERPRETER,
            "supersede",
            ("queue.remove(older)\ntree.conflated += 1\nbreak"),
            ("queue[queue.index(older)] = item\ntree.conflated += 1\ntarget.conflated[item.key] = item\nreturn True"),
        ),
        (
            INTERPRETER,
            "_marked",
            ("if target is not None and target.status <= WAITING:\n    supersede(tree, target, item)"),
            ("if target is not None and target.status <= WAITING and supersede(tree, target, item):\n    return None"),
        ),
        (
            INTERPRETER,
            "send",
            "item = _marked(tree, cell, command, target)",
            ("item = _marked(tree, cell, command, target)\nif item is None:\n    tree.sent += 1\n    return"),
        ),
    ),
    _bug(
        "parked-messages-lost",
        (TREE, "Tree.unpark", "cell.box().extendleft(reversed(parked))", "cell.box()"),
    ),
    _bug(
        "budget-shared-across-children",
        (LIFECYCLE, "Lifecycle._judge", "supervision.strategy is Strategy.ONE_FOR_ONE", "False"),
    ),
    _bug(
        "second-effect-of-a-key-starts-at-once",
        (TREE, "Tree.begin", "slot in self.running", "False"),
    ),
    _bug(
        "quarantine-escalates",
        (SUPERVISION, "judge", "AfterExit.QUARANTINE if spec.entity else AfterExit.ESCALATE", "AfterExit.ESCALATE"),
    ),
    _bug(
        "deferred-slot-not-failed-on-restart",
        (LIFECYCLE, "Lifecycle._abandon", "(slots or {}).values()", "()"),
    ),
    _bug(
        "unstash-reverses-the-order",
        (INTERPRETER, "unstash", "cell.box().extendleft(reversed(back))", "cell.box().extendleft(back)"),
    ),
    _bug(
        "force-stop-leaks-children",
        (
            LIFECYCLE,
            "Lifecycle.force_stop",
            ("child.status = STOPPING\nself.force_stop(child, child.incarnation)"),
            "self._cancel_operations(child)",
        ),
    ),
    _bug(
        "watch-survives-a-restart",
        (
            LIFECYCLE,
            "Lifecycle._abandon",
            (
                "for path in cell.watching or ():\n"
                "    target = tree.cells.get(path)\n"
                "    if target is not None and target.watchers is not None:\n"
                "        target.watchers.pop(cell.path, None)\n"
                "cell.watching = None"
            ),
            (
                "for path in cell.watching or ():\n"
                "    target = tree.cells.get(path)\n"
                "    if target is not None and target.watchers is not None:\n"
                "        pass"
            ),
        ),
        (
            DELIVERY,
            "_stale",
            "envelope.incarnation != cell.incarnation",
            "envelope.incarnation != cell.incarnation and kind != EnvelopeKind.WATCH",
        ),
    ),
    _bug(
        "event-not-gated",
        (
            INTERPRETER,
            "_emit",
            "tree.let_out(cell.rests_on, tree.publish, command.event)",
            "tree.publish(command.event)",
        ),
    ),
    _bug(
        "effect-starts-before-the-commit",
        (INTERPRETER, "_operate", "tree.let_out(cell.rests_on, tree.begin, operation)", "tree.begin(operation)"),
    ),
    _bug(
        "fed-item-not-gated",
        (
            INTERPRETER,
            "_feed",
            "tree.let_out(cell.rests_on, tree.feed, operation, command.item)",
            "tree.feed(operation, command.item)",
        ),
    ),
    _bug(
        "half-applied-record-kept",
        (INTERPRETER, "record", "tree.dispatcher.lifecycle.unload(cell)", ""),
    ),
    _bug(
        "commands-after-stopself-reach-the-next-incarnation",
        (INTERPRETER, "carry_out", "ends = True", "tree.dispatcher.lifecycle.ended(cell)"),
    ),
    _bug(
        "mailbox-bound-not-checked",
        (INTERPRETER, "send", "len(mailbox) >= target.capacity and target.full", "False"),
    ),
    _bug(
        "resume-only-at-the-first-start",
        (LIFECYCLE, "Lifecycle.finish_start", "resume is not None", "resume is not None and cell.incarnation == 0"),
    ),
    _bug(
        "watermark-ignored-on-release",
        (TREE, "Tree.release", "self._held and self._held[0][0] <= self.durable", "self._held"),
    ),
    _bug(
        "rest-for-one-restarts-one",
        (SUPERVISION, "affected", "names[names.index(failed):]", "[failed]"),
    ),
    _bug(
        "cancel-behind-the-gate-does-not-annihilate",
        (TREE, "Tree.begin", ("if not operation.wanted:\n    operation.phase = OperationPhase.ENDED\n    return"), ""),
    ),
    _bug(
        "who-waits-for-a-full-disk-is-not-told",
        (TREE, "Tree.release", ("if self.full:\n    self._dismiss_askers()"), ""),
    ),
    _bug(
        "what-is-decided-is-said-to-be-refused",
        (TREE, "Tree.fill", "self._pending(slot)", "self.refusal()"),
    ),
    _bug(
        "what-is-refused-is-said-to-be-on-its-way",
        (INTERPRETER, "unavailable", "tree.refusal()", "tree._pending(slot)"),
    ),
    _bug(
        "records-written-to-a-full-disk",
        (INTERPRETER, "record", ("if journal.status.name != 'READY':\n    raise unavailable(tree)"), ""),
    ),
    _bug(
        "group-budget-survives-its-supervisor",
        (LIFECYCLE, "Lifecycle._suspend", "cell.recovery = cell.group_failures = None", "cell.recovery = None"),
    ),
    _bug(
        "the-children-of-the-dead-use-up-the-budget-of-the-living",
        (LIFECYCLE, "Lifecycle._is_over", "supervisor.over or supervisor.status >= STOPPING", "False"),
    ),
    _bug(
        "a-start-that-a-child-has-failed-goes-on",
        (
            LIFECYCLE,
            "Lifecycle.finish_start",
            "cell.status != WAITING or cell.incarnation != incarnation or cell.over or cell.tree.crashed",
            "cell.status != WAITING or cell.incarnation != incarnation or cell.tree.crashed",
        ),
    ),
    _bug(
        "a-restart-covers-the-namesake-of-who-was-stopped",
        (LIFECYCLE, "Lifecycle._recover", "one.birth", "one.path"),
        (LIFECYCLE, "Lifecycle._recover", "child.birth", "child.path"),
    ),
)
