"""Carrying out what a decision returned: all of it, or nothing.

First every command is checked, then the records are applied and given to the journal, then the state is set, then the
commands are carried out; nothing after the check can fail for a reason that the decision could have known. A mailbox
that is full is no such reason: the message comes back to its sender as ``Undelivered``, and the rest goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

from iriscw._errors import ActorStopped, InvalidDecision, JournalLost, MailboxFull, as_failure
from iriscw.runtime.behavior import Behavior, ChildSpec
from iriscw.runtime.cell import QUARANTINED, WAITING, Cell
from iriscw.runtime.envelope import Envelope, EnvelopeKind, Slot
from iriscw.runtime.operations import Operation
from iriscw.runtime.tree import Tree
from iriscw.runtime.vocabulary import (
    KEEP,
    Cancel,
    CancelTimer,
    Close,
    Continue,
    Decision,
    Emit,
    Feed,
    FeedRefused,
    Forget,
    Open,
    Outcome,
    Refuse,
    Reply,
    ReplyTo,
    Request,
    ReviveChild,
    Run,
    SetTimer,
    Spawn,
    Stash,
    StopChild,
    StopReason,
    StopSelf,
    Tell,
    Terminated,
    Undelivered,
    Unstash,
    Unwatch,
    Watch,
)

MAX_COMMANDS = 100_000
"""Commands of one decision. More is a loop without an end; long work goes on with ``Continue``."""

MAX_SESSION_ITEMS = 1_000_000
"""The largest bound a session may ask for."""

STASHED = "/stash"
"""Marks in ``seen`` that the message is stashed already; no child has such a name."""

Check: TypeAlias = Callable[[Tree, Cell, Any, dict[str, Any]], None]
Apply: TypeAlias = Callable[[Tree, Cell, Any, Any], None]


class Unavailable(Exception):
    """The journal takes no records for now. Made by :func:`unavailable`."""


def unavailable(tree: Tree) -> Unavailable:
    """Return what a decision that needs records raises now. A host that asked for it is told the reason, by name.

    Whoever catches it puts the message aside; only here is it known that nothing of the decision was carried out.
    """
    slot = tree.dispatcher.context.slot
    if slot is not None and slot.asker is None:
        tree.fill(slot, None, tree.refusal(), 0)
    return Unavailable()


# Checks: each raises InvalidDecision.


def _check_name(value: Any) -> None:
    """Refuse what cannot name anything: found out only when it is looked up, it would fail half a decision."""
    try:
        {value: None}  # noqa: B018 - a dict asks what a look-up will ask
    except TypeError:
        raise InvalidDecision(f"a {type(value).__name__} cannot be a key or a path: it is not hashable") from None


def _check_tell(tree: Tree, cell: Cell, command: Tell, seen: dict[str, Any]) -> None:
    _check_name(command.to)
    _check_name(command.conflate)


def _check_key(tree: Tree, cell: Cell, command: CancelTimer | Cancel | Feed | Close, seen: dict[str, Any]) -> None:
    _check_name(command.key)


def _check_child(tree: Tree, cell: Cell, command: StopChild | ReviveChild, seen: dict[str, Any]) -> None:
    _check_name(command.name)


def _check_path(tree: Tree, cell: Cell, command: Watch | Unwatch, seen: dict[str, Any]) -> None:
    _check_name(command.path)


def _check_spawn(tree: Tree, cell: Cell, command: Spawn, seen: dict[str, Any]) -> None:
    spec: Any = command.spec
    if not isinstance(spec, ChildSpec):
        raise InvalidDecision(f"Spawn needs a ChildSpec, not {type(spec).__name__}")
    name: Any = spec.name
    if not isinstance(name, str) or type(spec.shutdown_budget) is not int or type(spec.behavior) is not Behavior:
        raise InvalidDecision("a child has a str as its name, a whole number of ns as its budget, and a Behavior")
    if not name or "/" in name:
        raise InvalidDecision(f"a child's name is non-empty and holds no '/': {name!r}")
    if name in seen or (cell.children is not None and name in cell.children):
        raise InvalidDecision(f"{cell.path} has a child called {name!r}")
    if spec.capacity < 1:
        raise InvalidDecision(f"a mailbox holds at least one message, not {spec.capacity}")
    if spec.behavior.durable and tree.journal is None:
        raise InvalidDecision(f"{cell.path}/{name} is durable, but the system has no journal")
    seen[name] = True


def _check_timer(tree: Tree, cell: Cell, command: SetTimer, seen: dict[str, Any]) -> None:
    _check_name(command.key)
    if type(command.delay) is not int or command.delay < 0:
        raise InvalidDecision(f"a timer's delay is a whole number of ns, not {command.delay!r}")


def _check_request(tree: Tree, cell: Cell, command: Request, seen: dict[str, Any]) -> None:
    _check_name(command.to)
    _check_name(command.key)
    if type(command.timeout) is not int or command.timeout <= 0:
        raise InvalidDecision(f"a request's timeout is a positive number of ns, not {command.timeout!r}")


def _check_run(tree: Tree, cell: Cell, command: Run, seen: dict[str, Any]) -> None:
    _check_name(command.key)
    if type(command.effect) not in cell.behavior.effects:
        raise InvalidDecision(f"{cell.path} has no function for the effect {type(command.effect).__name__}")


def _check_open(tree: Tree, cell: Cell, command: Open, seen: dict[str, Any]) -> None:
    _check_name(command.key)
    if type(command.session) not in cell.behavior.sessions:
        raise InvalidDecision(f"{cell.path} has no function for the session {type(command.session).__name__}")
    if not (0 < command.inbound <= MAX_SESSION_ITEMS and 0 < command.outbound <= MAX_SESSION_ITEMS):
        raise InvalidDecision("a session's bounds are positive")


def _check_forget(tree: Tree, cell: Cell, command: Forget, seen: dict[str, Any]) -> None:
    if tree.journal is None:
        raise InvalidDecision("there is no journal to forget from")
    if tree.journal.status.name != "READY":
        raise unavailable(tree)


def _check_reply(tree: Tree, cell: Cell, command: Reply | Refuse, seen: dict[str, Any]) -> None:
    if command.to is None:
        if tree.dispatcher.context.slot is None:
            raise InvalidDecision("nobody waits for an answer to this message")
    elif type(command.to) is not ReplyTo:
        raise InvalidDecision(f"an answer goes to what ctx.reply_to gave, not to a {type(command.to).__name__}")
    if type(command) is Refuse and not isinstance(command.error, Exception):
        raise InvalidDecision("Refuse needs an exception")


def _check_stash(tree: Tree, cell: Cell, command: Stash, seen: dict[str, Any]) -> None:
    if STASHED in seen:
        raise InvalidDecision("a message is stashed once")
    seen[STASHED] = True


def _no_check(tree: Tree, cell: Cell, command: Any, seen: dict[str, Any]) -> None:
    return None


# Carrying out.


def send(tree: Tree, cell: Cell, command: Tell) -> None:
    """Send a message of ``cell``, with the mark of what the cell rests on."""
    # A lone Tell was not checked: what is not hashable has to raise before anything is counted.
    target = tree.cells.get(command.to)
    item = command.message
    if command.conflate is not None or cell.rests_on > tree.durable:
        item = _marked(tree, cell, command, target)
    tree.sent += 1
    if target is None or target.status > WAITING:
        tree.dead += 1
        return
    mailbox = target.mailbox
    if mailbox is None:
        mailbox = target.mailbox = deque()
    elif len(mailbox) >= target.capacity and target.full:
        tree.undelivered += 1
        if command.conflate is not None and target.conflated is not None:
            target.conflated.pop((cell.path, command.conflate), None)
        tree.note(cell, Undelivered(target.path, command.message))
        return
    mailbox.append(item)
    if not target.scheduled:
        # A cell that must not run counts as scheduled, and a step is under way, so nobody has to be woken.
        target.scheduled = True
        tree.dispatcher.ready.append(target)


def _marked(tree: Tree, cell: Cell, command: Tell, target: Cell | None) -> Envelope:
    """Wrap a message that rests on a record that is not durable yet, or that replaces an earlier one."""
    rests_on = cell.rests_on if cell.rests_on > tree.durable else 0
    if command.conflate is None:
        return Envelope(EnvelopeKind.PLAIN, command.message, None, None, 0, rests_on)
    key = (cell.path, command.conflate)
    {key: None}  # noqa: B018 - see _check_name
    item = Envelope(EnvelopeKind.PLAIN, command.message, key, None, 0, rests_on)
    if target is not None and target.status <= WAITING:
        supersede(tree, target, item)
    return item


def supersede(tree: Tree, target: Cell, item: Envelope) -> None:
    """Take out the message that ``item`` replaces; ``item`` itself goes to the end, so that order is kept."""
    if target.conflated is None:
        target.conflated = {}
    older = target.conflated.pop(item.key, None)
    if older is not None:
        for queue in (target.mailbox, target.parked):
            if queue is not None and older in queue:
                queue.remove(older)
                tree.conflated += 1
                break
    target.conflated[item.key] = item


def _tell(tree: Tree, cell: Cell, command: Tell, item: Any) -> None:
    send(tree, cell, command)


def _request(tree: Tree, cell: Cell, command: Request, item: Any) -> None:
    slot = Slot(cell, command.message)
    slot.asker = cell
    slot.key = command.key
    slot.rests_on = cell.rests_on if cell.rests_on > tree.durable else 0
    if cell.requests is None:
        cell.requests = {}
    older = cell.requests.get(command.key)
    if older is not None:
        tree.give_up(older)
    cell.requests[command.key] = slot
    dispatcher = tree.dispatcher
    dispatcher.timers.add(dispatcher.now + command.timeout, dispatcher.request_expired, (tree, slot), 0)
    tree.sent += 1
    target = tree.cells.get(command.to)
    if target is None or target.status > WAITING:
        tree.dead += 1
        tree.fill(slot, None, ActorStopped(f"there is no actor at {command.to}"), tree.news)
        return
    if target.full:
        tree.undelivered += 1
        error = MailboxFull(f"{command.to} has {target.spec.capacity} messages waiting")
        tree.fill(slot, None, error, cell.rests_on)
        return
    slot.cell = target
    target.box().append(slot)
    if not target.scheduled:
        dispatcher.schedule(target)


def _slot_for(tree: Tree, cell: Cell, command: Reply | Refuse) -> Slot | None:
    if command.to is None:
        return tree.dispatcher.context.slot
    current = tree.dispatcher.context.slot
    if current is not None and current.id == command.to.slot:
        return current
    return None if cell.slots is None else cell.slots.get(command.to.slot)


def _reply(tree: Tree, cell: Cell, command: Reply, item: Any) -> None:
    slot = _slot_for(tree, cell, command)
    if slot is not None:
        tree.fill(slot, command.value, None, cell.rests_on)


def _refuse(tree: Tree, cell: Cell, command: Refuse, item: Any) -> None:
    slot = _slot_for(tree, cell, command)
    if slot is not None:
        tree.fill(slot, None, command.error, cell.rests_on)


def _continue(tree: Tree, cell: Cell, command: Continue, item: Any) -> None:
    tree.note(cell, command.message)


def _stash(tree: Tree, cell: Cell, command: Stash, item: Any) -> None:
    if cell.stash is None:
        cell.stash = deque()
    if type(item) is Envelope and item.kind >= EnvelopeKind.NOTE:
        # The answer was checked when it was delivered and its slot is given back; what is left is a note.
        tree.answers_delivered -= 1
        cell.stashed_answers += 1
        item = Envelope(EnvelopeKind.NOTE, item.message, incarnation=cell.incarnation, rests_on=item.rests_on)
    else:
        tree.delivered -= 1
    cell.stash.append(item)
    cell.set_room()
    tree.dispatcher.context.stashed = True


def _unstash(tree: Tree, cell: Cell, command: Unstash, item: Any) -> None:
    unstash(cell)


def unstash(cell: Cell) -> None:
    """Put what is stashed back in front of the mailbox; the answers among it take reserved slots again.

    While the journal holds what came later, it goes in front of that instead; but hosts' questions do not wait.
    """
    if cell.stash:
        cell.reserved += cell.stashed_answers
        cell.stashed_answers = 0
        back = cell.stash
        if cell.parked is not None:
            cell.parked.extendleft(item for item in reversed(back) if not _reads(item))
            back = deque(item for item in back if _reads(item))
        cell.box().extendleft(reversed(back))
        cell.stash = None
        cell.set_room()


def _reads(item: Any) -> bool:
    return type(item) is Slot and item.asker is None


def _spawn(tree: Tree, cell: Cell, command: Spawn, item: Any) -> None:
    tree.dispatcher.lifecycle.spawn(cell, command.spec)


def _stop_child(tree: Tree, cell: Cell, command: StopChild, item: Any) -> None:
    child = None if cell.children is None else cell.children.get(command.name)
    if child is not None:
        tree.dispatcher.lifecycle.stop(child, StopReason.NORMAL)


def _last(tree: Tree, cell: Cell, command: Any, item: Any) -> None:
    """Do nothing yet: see :func:`carry_out`."""


def _revive_child(tree: Tree, cell: Cell, command: ReviveChild, item: Any) -> None:
    child = None if cell.children is None else cell.children.get(command.name)
    if child is not None and child.status == QUARANTINED:
        tree.dispatcher.lifecycle.revive(child)


def _forget(tree: Tree, cell: Cell, command: Forget, item: Any) -> None:
    path = cell.path if command.child is None else cell.path / command.child
    assert tree.journal is not None
    cell.rests_on = tree.journal.forget(path)


def _watch(tree: Tree, cell: Cell, command: Watch, item: Any) -> None:
    generation = tree.serial()
    if cell.watching is None:
        cell.watching = {}
    cell.watching[command.path] = generation
    target = tree.cells.get(command.path)
    if target is None or target.status >= QUARANTINED:
        reason = StopReason.ABSENT if target is None else StopReason.QUARANTINED
        absence = Terminated(command.path, reason)
        tree.answer(cell, Envelope(EnvelopeKind.WATCH, absence, command.path, generation, cell.incarnation, tree.news))
        return
    if target.watchers is None:
        target.watchers = {}
    target.watchers[cell.path] = generation


def _unwatch(tree: Tree, cell: Cell, command: Unwatch, item: Any) -> None:
    if cell.watching is not None and cell.watching.pop(command.path, None) is not None:
        target = tree.cells.get(command.path)
        if target is not None and target.watchers is not None:
            target.watchers.pop(cell.path, None)


def _set_timer(tree: Tree, cell: Cell, command: SetTimer, item: Any) -> None:
    dispatcher = tree.dispatcher
    generation = tree.serial()
    if cell.timers is None:
        cell.timers = {}
    if command.key in cell.timers:
        dispatcher.timer_cancelled()
    cell.timers[command.key] = generation
    tree.timers_set += 1
    if command.attentive:
        due = dispatcher.attentive + command.delay
        dispatcher.attentive_timers.add(due, cell, (command.key, command.message), generation)
    else:
        due = dispatcher.now + command.delay
        dispatcher.timers.add(due, cell, (command.key, command.message), generation)


def _cancel_timer(tree: Tree, cell: Cell, command: CancelTimer, item: Any) -> None:
    if cell.timers is not None and cell.timers.pop(command.key, None) is not None:
        tree.dispatcher.timer_cancelled()


def _operate(tree: Tree, cell: Cell, operation: Operation) -> None:
    if cell.operations is None:
        cell.operations = {}
    older = cell.operations.get(operation.key)
    if older is not None:
        tree.withdraw(older)
    cell.operations[operation.key] = operation
    tree.let_out(cell.rests_on, tree.begin, operation)


def _run(tree: Tree, cell: Cell, command: Run, item: Any) -> None:
    function = cell.behavior.effects[type(command.effect)]
    _operate(tree, cell, Operation(tree.serial(), cell, command.key, command.effect, function, 0, 0))


def _open(tree: Tree, cell: Cell, command: Open, item: Any) -> None:
    function = cell.behavior.sessions[type(command.session)]
    _operate(
        tree,
        cell,
        Operation(tree.serial(), cell, command.key, command.session, function, command.inbound, command.outbound),
    )


def _cancel(tree: Tree, cell: Cell, command: Cancel | Close, item: Any) -> None:
    operation = None if cell.operations is None else cell.operations.pop(command.key, None)
    if operation is not None:
        tree.withdraw(operation)


def _feed(tree: Tree, cell: Cell, command: Feed, item: Any) -> None:
    operation = None if cell.operations is None else cell.operations.get(command.key)
    if operation is None or not operation.session or operation.promised >= operation.outbound:
        tree.note(cell, FeedRefused(command.key, command.item))
        return
    operation.promised += 1
    tree.let_out(cell.rests_on, tree.feed, operation, command.item)


def _emit(tree: Tree, cell: Cell, command: Emit, item: Any) -> None:
    tree.let_out(cell.rests_on, tree.publish, command.event)


COMMANDS: dict[type, tuple[Check, Apply]] = {
    Tell: (_check_tell, _tell),
    Request: (_check_request, _request),
    Reply: (_check_reply, _reply),
    Refuse: (_check_reply, _refuse),
    Continue: (_no_check, _continue),
    Stash: (_check_stash, _stash),
    Unstash: (_no_check, _unstash),
    Spawn: (_check_spawn, _spawn),
    StopChild: (_check_child, _stop_child),
    ReviveChild: (_check_child, _revive_child),
    StopSelf: (_no_check, _last),
    Forget: (_check_forget, _forget),
    Watch: (_check_path, _watch),
    Unwatch: (_check_path, _unwatch),
    SetTimer: (_check_timer, _set_timer),
    CancelTimer: (_check_key, _cancel_timer),
    Run: (_check_run, _run),
    Cancel: (_check_key, _cancel),
    Open: (_check_open, _open),
    Feed: (_check_key, _feed),
    Close: (_check_key, _cancel),
    Emit: (_no_check, _emit),
}


def record(tree: Tree, cell: Cell, records: tuple[Any, ...]) -> None:
    """Apply records to the cell's state and give them to the journal.

    They are applied first: a record that ``evolve`` cannot apply must never be written, or no replay would get past it.
    """
    evolve = cell.behavior.evolve
    journal = tree.journal
    if evolve is None or journal is None:
        raise InvalidDecision(f"{cell.path} is not durable and cannot record facts")
    if journal.status.name != "READY":
        raise unavailable(tree)
    try:
        for fact in records:
            evolve(cell.state, fact)
        cell.rests_on = journal.append(cell.path, records)
        cell.records_since_snapshot += len(records)
    except JournalLost as error:
        tree.lose(error)
        raise
    except BaseException:
        tree.dispatcher.lifecycle.unload(cell)
        raise
    if cell.records_since_snapshot >= cell.behavior.snapshot_every:
        _snapshot(tree, cell)


def _snapshot(tree: Tree, cell: Cell) -> None:
    """Have a snapshot replace the actor's records. The decision stands without it: its records are written."""
    compact = cell.behavior.compact
    journal = tree.journal
    if compact is None or journal is None or journal.status.name != "READY":
        return  # with the next record that the journal takes
    cell.records_since_snapshot = 0
    try:
        cell.rests_on = journal.snapshot(cell.path, tuple(compact(cell.state)))
    except JournalLost as error:
        tree.lose(error)
        raise
    except BaseException as error:
        tree.dispatcher.lifecycle.no_snapshot(cell, as_failure(error))


def carry_out(tree: Tree, cell: Cell, outcome: Outcome, item: Any) -> None:
    """Do what a decision of ``cell`` on ``item`` returned."""
    kind = type(outcome)
    records: tuple[Any, ...] = ()
    state: Any = KEEP
    commands: Any
    if kind is tuple:
        commands = outcome
    elif kind is Decision:
        decision: Any = outcome
        commands = decision.commands
        records = decision.records
        state = decision.state
        if type(commands) is not tuple:
            raise InvalidDecision("a decision's commands are a tuple")
    else:
        raise InvalidDecision(f"a decision returns None, a tuple of commands or a Decision, not {kind.__name__}")
    # A lone Tell, the most common outcome by far, has nothing that could be wrong.
    lone = len(commands) == 1 and type(commands[0]) is Tell
    if commands and not lone:
        check_all(tree, cell, commands)
    if records:
        if state is not KEEP:
            raise InvalidDecision("a decision returns a state or records, never both")
        record(tree, cell, tuple(records))
    elif state is not KEEP:
        if cell.spec.behavior.evolve is not None:
            raise InvalidDecision(f"{cell.path} is durable: only records change its state")
        cell.state = state
    if lone:
        send(tree, cell, commands[0])
        return
    ends = False
    for command in commands:
        if type(command) is StopSelf:
            ends = True  # after all the others: what they ask for ends with this incarnation
        else:
            COMMANDS[type(command)][1](tree, cell, command, item)
    if ends:
        tree.dispatcher.lifecycle.ended(cell)


def check_all(tree: Tree, cell: Cell, commands: tuple[Any, ...]) -> None:
    """Check every command, so that the first is carried out only when the last can be."""
    if len(commands) > MAX_COMMANDS:
        raise InvalidDecision(f"a decision returned {len(commands)} commands; the limit is {MAX_COMMANDS}")
    seen: dict[str, Any] = {}
    for command in commands:
        entry = COMMANDS.get(type(command))
        if entry is None:
            raise InvalidDecision(f"{type(command).__name__} is not a command")
        entry[0](tree, cell, command, seen)
