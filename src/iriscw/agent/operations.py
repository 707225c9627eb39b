"""Decisions of ``/operations``: which operations run, one durable actor below for each of them. Pure.

::

    asked for -> CLAIMING -> RUNNING -> CLEANING -> gone
    owed by an earlier life -> CLAIMING (again and again, until the target is free)
    ended in an earlier life ---------> CLEANING

What is promised stands in the records of the operations themselves (:mod:`iriscw.freeze.records`), and nothing of it
here: an agent that begins reads off its journal what an earlier one owes. Were this actor to fail, no child of it
would be known any more, so that ends the agent as a whole; the next one takes up all that is owed.

The target is claimed on the whole machine before the actor of an operation exists, and given back after it is gone:
neither a command without a daemon nor another agent works on it meanwhile.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping

import attrs

from iriscw._errors import InvalidArgument
from iriscw.agent.errors import AgentStopping, OperationUnknown, TooManyOperations
from iriscw.agent.order import Order
from iriscw.freeze.messages import CancelOperation
from iriscw.runtime.behavior import ChildSpec
from iriscw.runtime.vocabulary import (
    SECOND,
    ActorPath,
    ChildFailed,
    Command,
    Completed,
    Context,
    Decision,
    DecisionFunction,
    Emit,
    Failed,
    Forget,
    Outcome as Returned,
    Refuse,
    Reply,
    ReplyTo,
    Run,
    SetTimer,
    Spawn,
    StopChild,
    Tell,
    Terminated,
    Watch,
    message,
)

OPERATIONS = ActorPath("/operations")

CLAIM_AGAIN_NS = 1 * SECOND
"""Between two attempts to claim what an owed operation needs and somebody else works on."""


class OperationKind(enum.Enum):
    """What an operation is."""

    FREEZE = "freeze"
    THAW = "thaw"
    MOVE = "move"


@attrs.frozen
class Asked:
    """An operation: its id, what it is, and the name of what must be nobody else's meanwhile."""

    operation: str
    kind: OperationKind
    target: str


# What it is told


@message
class BeginOperation:
    """Begin an operation. Answered with None once its actor has it."""

    asked: Asked
    order: Order


@message
class StopOperation:
    """Give an operation up. Answered with None; whoever waits sees how it ends."""

    operation: str
    text: str


@message
class GiveUpAll:
    """Give all operations up, and begin nothing any more."""

    text: str


@message
class OperationOver:
    """The actor of an operation owes nothing any more."""

    operation: str


@message
class ClaimAgain:
    """It is time to try to claim an owed operation's target again."""

    operation: str


# What it asks for, and what it tells the world


@message
class Claim:
    """Take the target of an operation, for as long as it runs."""

    asked: Asked


@message
class CleanUp:
    """Look at what an operation made, remove what it left beside that, and give its target back."""

    operation: str


@message
class OperationClosed:
    """Nothing of an operation is left to do. Published."""

    operation: str


@message
class OperationAside:
    """The actor of an operation was put aside. Published."""

    operation: str
    text: str


class OperationStage(enum.Enum):
    """How far an operation is, as this actor sees it."""

    CLAIMING = "claiming"
    RUNNING = "running"
    CLEANING = "cleaning"
    ASIDE = "aside"


@attrs.frozen
class OperationEntry:
    """One operation. ``order`` is None where an earlier life began it."""

    asked: Asked
    order: Order | None = None
    asker: ReplyTo | None = None
    stage: OperationStage = OperationStage.CLAIMING
    stopped: str = ""


@attrs.frozen
class Operations:
    """All of them, in the order in which they came."""

    limit: int
    entries: Mapping[str, OperationEntry] = attrs.field(factory=dict)
    closing: str = ""

    def with_entry(self, entry: OperationEntry) -> Operations:
        """Return the state with this one in it."""
        return attrs.evolve(self, entries={**self.entries, entry.asked.operation: entry})

    def without(self, operation: str) -> Operations:
        """Return the state without it."""
        return attrs.evolve(self, entries={name: each for name, each in self.entries.items() if name != operation})


def taken_up(limit: int, owed: Iterable[Asked], over: Iterable[Asked]) -> Operations:
    """Return the state that an agent begins with: what an earlier one owed, and what it had not cleaned up."""
    entries = [OperationEntry(asked) for asked in owed]
    entries += [OperationEntry(asked, stage=OperationStage.CLEANING) for asked in over]
    return Operations(limit, {entry.asked.operation: entry for entry in entries})


class OperationsDecisions:
    """The decisions, for one way to make an operation's actor.

    Args:
        child: gives the child spec of an operation.
    """

    def __init__(self, child: Callable[[Asked], ChildSpec]) -> None:
        self.child = child

    def rules(self) -> dict[type, DecisionFunction]:
        """Return the decision for each message."""
        return {
            BeginOperation: self.begin,
            StopOperation: self.stop,
            GiveUpAll: self.stop_all,
            OperationOver: self.over,
            ClaimAgain: self.claim_again,
            Completed: self.completed,
            Failed: self.failed,
            Terminated: self.terminated,
            ChildFailed: self.child_failed,
        }

    def resume(self, state: Operations, ctx: Context) -> Iterator[Command]:
        """Take up what an earlier life left."""
        for entry in state.entries.values():
            yield _clean_up(entry) if entry.stage is OperationStage.CLEANING else _claim(entry)

    def begin(self, state: Operations, message: BeginOperation, ctx: Context) -> Returned:
        """Claim its target, if there is room for one more."""
        refusal = _refusal(state, message.asked)
        if refusal is not None:
            closed = (
                () if message.asked.operation in state.entries else (Emit(OperationClosed(message.asked.operation)),)
            )
            return (Refuse(refusal), *closed)  # whoever asked may have left, and shows it still
        entry = OperationEntry(message.asked, message.order, ctx.reply_to)
        return Decision(state.with_entry(entry), (_claim(entry),))

    def stop(self, state: Operations, message: StopOperation, ctx: Context) -> Returned:
        """Have it undo what it did; one that only claims so far never begins."""
        entry = state.entries.get(message.operation)
        answer: tuple[Command, ...] = () if ctx.reply_to is None else (Reply(),)
        if entry is None:
            unknown = OperationUnknown(f"operation {message.operation[:80]!r} does not run here")
            return (Refuse(unknown),) if ctx.reply_to is not None else None
        stopped, commands = _stop(entry, message.text)
        return Decision(state.with_entry(stopped), (*commands, *answer))

    def stop_all(self, state: Operations, message: GiveUpAll, ctx: Context) -> Returned:
        """Have all of them undo what they did."""
        after = attrs.evolve(state, closing=message.text)
        commands: list[Command] = []
        for entry in state.entries.values():
            stopped, more = _stop(entry, message.text)
            after = after.with_entry(stopped)
            commands += more
        return Decision(after, tuple(commands))

    def over(self, state: Operations, message: OperationOver, ctx: Context) -> Returned:
        """Its actor may go."""
        entry = state.entries.get(message.operation)
        if entry is None or entry.stage is not OperationStage.RUNNING:
            return None
        name = message.operation
        commands = (StopChild(name), Watch(OPERATIONS / name))
        return Decision(state.with_entry(attrs.evolve(entry, stage=OperationStage.CLEANING)), commands)

    def terminated(self, state: Operations, message: Terminated, ctx: Context) -> Returned:
        """Its actor is gone: what it left goes too."""
        entry = state.entries.get(message.path.name)
        if entry is None or entry.stage is not OperationStage.CLEANING:
            return None
        return (_clean_up(entry),)

    def claim_again(self, state: Operations, message: ClaimAgain, ctx: Context) -> Returned:
        """Try again."""
        entry = state.entries.get(message.operation)
        return None if entry is None or entry.stage is not OperationStage.CLAIMING else (_claim(entry),)

    def completed(self, state: Operations, message: Completed, ctx: Context) -> Returned:
        """Go on with it, or let it go."""
        match message.effect:
            case Claim(asked=asked) if asked.operation in state.entries:
                return self._claimed(state, state.entries[asked.operation])
            case CleanUp(operation=operation):
                return _gone(state, operation)
        return None

    def failed(self, state: Operations, message: Failed, ctx: Context) -> Returned:
        """Refuse what was asked for; wait with what is owed; a failure to clean up changes nothing (INV-C15)."""
        match message.effect:
            case Claim(asked=asked) if asked.operation in state.entries:
                entry = state.entries[asked.operation]
                if entry.order is None:
                    return (SetTimer(("claim", asked.operation), CLAIM_AGAIN_NS, ClaimAgain(asked.operation)),)
                commands = (*_refused(entry, message.error), Emit(OperationClosed(asked.operation)))
                return Decision(state.without(asked.operation), commands)
            case CleanUp(operation=operation):
                return _gone(state, operation)
        return None

    def child_failed(self, state: Operations, message: ChildFailed, ctx: Context) -> Returned:
        """Say that one is put aside. Its target stays claimed: nobody knows what state it is in."""
        entry = state.entries.get(message.path.name)
        if entry is None or not message.quarantined:
            return None
        text = f"{type(message.error).__name__}: {message.error}"
        aside = Emit(OperationAside(entry.asked.operation, text))
        return Decision(state.with_entry(attrs.evolve(entry, stage=OperationStage.ASIDE)), (aside,))

    def _claimed(self, state: Operations, entry: OperationEntry) -> Returned:
        name = entry.asked.operation
        if entry.order is not None and entry.stopped:
            after = state.with_entry(attrs.evolve(entry, stage=OperationStage.CLEANING))
            refused = _refused(entry, AgentStopping(f"operation {name} was not begun: {entry.stopped}"))
            return Decision(after, (*refused, _clean_up(entry)))
        commands: list[Command] = [Spawn(self.child(entry.asked))]
        if entry.order is not None:
            commands.append(Tell(OPERATIONS / name, entry.order))
        elif entry.stopped:
            commands.append(Tell(OPERATIONS / name, CancelOperation(entry.stopped)))  # undone, where it may still be
        if entry.asker is not None:
            commands.append(Reply(to=entry.asker))
        return Decision(
            state.with_entry(attrs.evolve(entry, stage=OperationStage.RUNNING, asker=None)), tuple(commands)
        )


def _refusal(state: Operations, asked: Asked) -> Exception | None:
    if state.closing:
        return AgentStopping(f"the agent begins nothing any more: {state.closing}")
    if asked.operation in state.entries:
        return InvalidArgument(f"there is an operation {asked.operation} already")
    at_work = sum(_at_work(entry) for entry in state.entries.values())
    if at_work >= state.limit:
        return TooManyOperations(f"{at_work} operations run, and the agent runs no more at once")
    return None


def _at_work(entry: OperationEntry) -> bool:
    """Whether it takes one of the places that there are: not while it is put aside, or waits for a target."""
    return entry.stage in (OperationStage.RUNNING, OperationStage.CLEANING) or (
        entry.stage is OperationStage.CLAIMING and entry.order is not None
    )


def _refused(entry: OperationEntry, error: Exception) -> tuple[Command, ...]:
    return () if entry.asker is None else (Refuse(error, to=entry.asker),)


def _claim(entry: OperationEntry) -> Run:
    return Run(("claim", entry.asked.operation), Claim(entry.asked))


def _clean_up(entry: OperationEntry) -> Run:
    return Run(("clean", entry.asked.operation), CleanUp(entry.asked.operation))


def _stop(entry: OperationEntry, text: str) -> tuple[OperationEntry, tuple[Command, ...]]:
    match entry.stage:
        case OperationStage.CLAIMING:
            return attrs.evolve(entry, stopped=text), ()
        case OperationStage.RUNNING if not entry.stopped:  # once: callers cannot fill its mailbox
            return attrs.evolve(entry, stopped=text), (Tell(OPERATIONS / entry.asked.operation, CancelOperation(text)),)
    return entry, ()


def _gone(state: Operations, operation: str) -> Decision:
    commands = (Forget(operation), Emit(OperationClosed(operation)))
    return Decision(state.without(operation), commands)
