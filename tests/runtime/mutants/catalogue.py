"""Planted bugs: exact source text and what to put in its place.

A text that is not found exactly once is an error, not a pass: when the kernel changes, so does this list.
"""

import attrs


@attrs.frozen
class Mutant:
    """One bug: replacements as (module below iriscw, old text, new text)."""

    name: str
    edits: tuple


def _bug(name, *edits):
    return Mutant(name, edits)


TREE, DISPATCHER, LIFECYCLE = "runtime/tree.py", "runtime/dispatcher.py", "runtime/lifecycle.py"
DELIVERY, INTERPRETER, SUPERVISION = "runtime/delivery.py", "runtime/interpreter.py", "runtime/supervision.py"

MUTANTS = (
    _bug(
        "terminated-overtakes-last-messages",
        (
            TREE,
            "        mailbox.append(envelope)\n",
            "        (mailbox.appendleft if envelope.kind == Kind.WATCH else mailbox.append)(envelope)\n",
        ),
    ),
    _bug(
        "timer-generation-not-checked-at-delivery",
        (DELIVERY, "    if kind == Kind.NOTE:\n", "    if kind == Kind.NOTE or kind == Kind.TIMER:\n"),
    ),
    _bug(
        "effect-result-of-an-old-incarnation-delivered",
        (
            DELIVERY,
            "    if envelope.incarnation != cell.incarnation:\n        return True\n",
            "    if envelope.incarnation != cell.incarnation:\n        return kind != Kind.EFFECT\n",
        ),
    ),
    _bug(
        "reserved-slot-not-given-back",
        (
            DELIVERY,
            "        cell.reserved -= 1\n        tree.answers_delivered += 1\n",
            "        tree.answers_delivered += 1\n",
        ),
    ),
    _bug(
        "children-stopped-in-start-order",
        (LIFECYCLE, "            child = chain.children[-1]\n", "            child = chain.children[0]\n"),
        (LIFECYCLE, "                chain.children.pop()\n", "                chain.children.pop(0)\n"),
    ),
    _bug(
        "restart-window-by-count",
        (
            SUPERVISION,
            "    while times and times[0] <= now - supervision.period:\n",
            "    while len(times) > supervision.restarts:\n",
        ),
    ),
    _bug(
        "failing-message-retried",
        (
            DISPATCHER,
            (
                "                except Exception as error:\n"
                "                    self.lifecycle.failed(cell, message, error)\n"
            ),
            (
                "                except Exception as error:\n                    cell.box().append(message)\n"
                "                    self.lifecycle.failed(cell, message, error)\n"
            ),
        ),
    ),
    _bug(
        "commands-applied-before-the-check",
        (
            INTERPRETER,
            "        check_all(tree, cell, commands)\n    if records",
            (
                "        if type(commands[0]) is not StopSelf:\n"
                "            COMMANDS[type(commands[0])][1](tree, cell, commands[0], item)\n"
                "        check_all(tree, cell, commands)\n        commands = commands[1:]\n    if records"
            ),
        ),
    ),
    _bug(
        "reply-leaves-before-the-commit",
        (
            TREE,
            "            if rests_on <= self.durable:\n                slot.fill",
            "            if True:\n                slot.fill",
        ),
    ),
    _bug(
        "news-of-an-end-leaves-early",
        (TREE, "        return 0 if self.journal is None else self.journal.appended\n", "        return 0\n"),
    ),
    _bug(
        "message-mark-not-carried",
        (
            INTERPRETER,
            "    if command.conflate is not None or cell.rests_on > tree.durable:\n",
            "    if command.conflate is not None:\n",
        ),
    ),
    _bug(
        "conflation-keeps-the-old-place",
        (
            INTERPRETER,
            "                queue.remove(older)\n                tree.conflated += 1\n                break\n",
            (
                "                queue[queue.index(older)] = item\n                tree.conflated += 1\n"
                "                target.conflated[item.key] = item\n                return True\n"
            ),
        ),
        (
            INTERPRETER,
            "    if target is not None and target.status <= WAITING:\n        supersede(tree, target, item)\n",
            (
                "    if target is not None and target.status <= WAITING and supersede(tree, target, item):\n"
                "        return None\n"
            ),
        ),
        (
            INTERPRETER,
            "        item = _marked(tree, cell, command, target)\n",
            (
                "        item = _marked(tree, cell, command, target)\n        if item is None:\n"
                "            tree.sent += 1\n            return\n"
            ),
        ),
    ),
    _bug(
        "parked-messages-lost",
        (TREE, "        cell.box().extendleft(reversed(parked))\n", "        cell.box()\n"),
    ),
    _bug(
        "budget-shared-across-children",
        (LIFECYCLE, "        if supervision.strategy is Strategy.ONE_FOR_ONE:\n", "        if False:\n"),
    ),
    _bug(
        "second-effect-of-a-key-starts-at-once",
        (TREE, "        if slot in self.running:\n", "        if False:\n"),
    ),
    _bug(
        "quarantine-escalates",
        (SUPERVISION, "Verdict.QUARANTINE if spec.entity else Verdict.ESCALATE", "Verdict.ESCALATE"),
    ),
    _bug(
        "deferred-slot-not-failed-on-restart",
        (LIFECYCLE, "        for slot in (slots or {}).values():\n", "        for slot in ():\n"),
    ),
    _bug(
        "unstash-reverses-the-order",
        (
            INTERPRETER,
            "        cell.box().extendleft(reversed(back))\n",
            "        cell.box().extendleft(back)\n",
        ),
    ),
    _bug(
        "force-stop-leaks-children",
        (
            LIFECYCLE,
            "                child.status = STOPPING\n                self.force_stop(child, child.incarnation)\n",
            "                self._cancel_operations(child)\n",
        ),
    ),
    _bug(
        "watch-survives-a-restart",
        (
            LIFECYCLE,
            "                target.watchers.pop(cell.path, None)\n        cell.watching = None\n",
            "                pass\n",
        ),
        (
            DELIVERY,
            "    if envelope.incarnation != cell.incarnation:\n",
            "    if envelope.incarnation != cell.incarnation and kind != Kind.WATCH:\n",
        ),
    ),
    _bug(
        "event-not-gated",
        (
            INTERPRETER,
            "    tree.let_out(cell.rests_on, tree.publish, command.event)\n",
            "    tree.publish(command.event)\n",
        ),
    ),
    _bug(
        "effect-starts-before-the-commit",
        (INTERPRETER, "    tree.let_out(cell.rests_on, tree.begin, operation)\n", "    tree.begin(operation)\n"),
    ),
    _bug(
        "fed-item-not-gated",
        (
            INTERPRETER,
            "    tree.let_out(cell.rests_on, tree.feed, operation, command.item)\n",
            "    tree.feed(operation, command.item)\n",
        ),
    ),
    _bug(
        "half-applied-record-kept",
        (INTERPRETER, "        tree.dispatcher.lifecycle.unload(cell)\n        raise\n", "        raise\n"),
    ),
    _bug(
        "commands-after-stopself-reach-the-next-incarnation",
        (
            INTERPRETER,
            "            ends = True  #",
            "            tree.dispatcher.lifecycle.ended(cell)  #",
        ),
    ),
    _bug(
        "mailbox-bound-not-checked",
        (INTERPRETER, "    elif len(mailbox) >= target.capacity and target.full:\n", "    elif False:\n"),
    ),
    _bug(
        "resume-only-at-the-first-start",
        (
            LIFECYCLE,
            "        if resume is not None:\n",
            "        if resume is not None and cell.incarnation == 0:\n",
        ),
    ),
    _bug(
        "watermark-ignored-on-release",
        (TREE, "        while self._held and self._held[0][0] <= self.durable:\n", "        while self._held:\n"),
    ),
    _bug(
        "rest-for-one-restarts-one",
        (SUPERVISION, "    return names[names.index(failed) :]\n", "    return [failed]\n"),
    ),
    _bug(
        "cancel-behind-the-gate-does-not-annihilate",
        (TREE, "        if not operation.wanted:\n            operation.phase = Phase.ENDED\n            return\n", ""),
    ),
    _bug(
        "who-waits-for-a-full-disk-is-not-told",
        (TREE, "        if self.full:\n            self._dismiss_askers()\n", ""),
    ),
    _bug(
        "what-is-decided-is-said-to-be-refused",
        (
            TREE,
            "                slot.fill(None, self._pending(slot))\n            else:",
            "                slot.fill(None, self.refusal())\n            else:",
        ),
    ),
    _bug(
        "what-is-refused-is-said-to-be-on-its-way",
        (
            INTERPRETER,
            "        tree.fill(slot, None, tree.refusal(), 0)\n",
            "        tree.fill(slot, None, tree._pending(slot), 0)\n",
        ),
    ),
    _bug(
        "records-written-to-a-full-disk",
        (
            INTERPRETER,
            '    if journal.status.name != "READY":\n        raise unavailable(tree)\n    try:\n',
            "    try:\n",
        ),
    ),
    _bug(
        "group-budget-survives-its-supervisor",
        (LIFECYCLE, "        cell.recovery = cell.group_failures = None\n", "        cell.recovery = None\n"),
    ),
    _bug(
        "the-children-of-the-dead-use-up-the-budget-of-the-living",
        (LIFECYCLE, "        return supervisor.over or supervisor.status >= STOPPING\n", "        return False\n"),
    ),
    _bug(
        "a-start-that-a-child-has-failed-goes-on",
        (
            LIFECYCLE,
            "        if cell.status != WAITING or cell.incarnation != incarnation or cell.over or cell.tree.crashed:\n",
            "        if cell.status != WAITING or cell.incarnation != incarnation or cell.tree.crashed:\n",
        ),
    ),
    _bug(
        "a-restart-covers-the-namesake-of-who-was-stopped",
        (
            LIFECYCLE,
            "both = dict.fromkeys(one.birth for one in (*older.cells, *cells))\n",
            "both = dict.fromkeys(one.path for one in (*older.cells, *cells))\n",
        ),
        (LIFECYCLE, "if child.birth in both and", "if child.path in both and"),
    ),
)
