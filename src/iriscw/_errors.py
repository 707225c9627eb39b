"""Errors that say whose fault it is.

Every error of iriscw is one of three kinds, and the kind tells the reader what to do:

* :class:`UsageError`: the caller asked for something that cannot be. Change the call.
* :class:`OperationError`: the world said no (a full disk, no quota, a dead process). ``retryable`` says whether the
  same call may succeed later.
* :class:`InternalError`: iriscw broke one of its own rules. Report it.

The three kinds are abstract: code raises one of the named errors below them, so that callers can tell them apart.
"""

from __future__ import annotations

from typing import ClassVar


class IriscwError(Exception):
    """The base of every error that iriscw raises on purpose."""

    _abstract: ClassVar[bool] = True

    def __init_subclass__(cls, *, abstract: bool = False) -> None:
        cls._abstract = abstract

    def __init__(self, *args: object) -> None:
        if type(self)._abstract:
            raise TypeError(f"{type(self).__name__} is abstract: raise one of the errors below it")
        super().__init__(*args)


class UsageError(IriscwError, abstract=True):
    """The caller's mistake: the same call can never succeed."""


class OperationError(IriscwError, abstract=True):
    """The world's refusal: nothing is wrong with the call."""

    retryable: ClassVar[bool] = False
    """Whether the same call may succeed later, without a change."""


class InternalError(IriscwError, abstract=True):
    """A rule of iriscw was broken by iriscw itself."""


# The actor runtime. They stand here, not in `runtime`, so that pure rooms can name them.


class InvalidArgument(UsageError, ValueError):
    """A value that no call accepts: out of range, of the wrong type, or contradicting another one."""


class NoSuchActor(UsageError, LookupError):
    """No actor has this path, and none ever had it as far as the runtime remembers."""


class AskInsideDecision(UsageError):
    """A decision tried to ask. Inside the tree a request is a command and its answer a message."""


class TellInsideDecision(UsageError):
    """Something told an actor while a decision was running (a trace hook, a finaliser, a logging filter).

    A decision's only way out is what it returns; anything else would make the order of messages depend on
    garbage collection.
    """


class WrongTask(UsageError):
    """An actor system's block was left by another task than the one that entered it.

    Its actors have been stopped in order. The task that entered still has to leave the block.
    """


class InvalidDecision(UsageError):
    """A decision returned what no decision may return; none of its commands was carried out."""


class UnhandledMessage(UsageError):
    """An actor was sent a message its behavior has no rule for."""


class MailboxFull(OperationError):
    """The actor has as many messages waiting as its mailbox holds."""

    retryable = True


class ActorStopped(OperationError):
    """The actor stopped before it answered."""


class ActorRestarted(OperationError):
    """The actor was restarted before it answered, and the question went with the old incarnation."""

    retryable = True


class AskTimeout(OperationError, TimeoutError):
    """No answer came before the deadline, and nothing the question caused was waiting for the disk."""

    retryable = True


class OutcomeUnknown(OperationError, TimeoutError):
    """The deadline passed while the answer waited for the disk: what was asked may have happened."""


class OutcomePending(OutcomeUnknown):
    """There is an answer, and the disk is too full for the records it rests on. The text says which disk.

    What was asked happens once there is room, unless the process ends before. Ask again what changes nothing, or what
    carries an idempotency key.
    """

    retryable = True


class SystemClosed(OperationError):
    """The actor system takes no more messages: it is stopping, or has stopped."""


class RestartsExhausted(OperationError):
    """An actor failed more often than its supervisor's restart intensity allows."""


class StrayExit(OperationError):
    """Code of an actor ended with what is no ``Exception``; ``__cause__`` has it.

    That is a ``CancelledError`` that is not of its own cancellation (somebody else's future was cancelled),
    ``SystemExit``, or what a library derives from ``BaseException``. It is a failure of that actor like any other.
    """


def as_failure(raised: BaseException) -> Exception:
    """Return what somebody's code raised as a failure of that code, for a place that goes on without it.

    Raises:
        KeyboardInterrupt: ``raised`` is one: a person's word to the whole process.
    """
    if isinstance(raised, Exception):
        return raised
    if isinstance(raised, KeyboardInterrupt):
        raise raised
    failure = StrayExit(f"{type(raised).__name__}: {raised}" if str(raised) else type(raised).__name__)
    failure.__cause__ = raised
    return failure


def is_stray(raised: BaseException) -> bool:
    """Whether this is a cancellation of asyncio's although nobody cancelled the task in which it came up.

    Clients do that: a look-up that several share ends with a future that its first waiter cancelled, a pool is closed
    behind who waits for it. For who called them it is a request that failed.
    """
    import asyncio

    if not isinstance(raised, asyncio.CancelledError):
        return False
    task = asyncio.current_task()
    return task is not None and not task.cancelling()


class JournalUnavailable(OperationError):
    """The journal takes no more records for now: its disk is slow or full. Reading goes on.

    What was refused with this error did not happen, and never will.
    """

    retryable = True


class JournalFull(JournalUnavailable):
    """The disk of the journal is full. The text says which, and how much is free. It goes on once there is room."""


class JournalLost(OperationError):
    """A write to the journal failed in a way after which nothing on disk can be trusted; the process must end."""


class JournalCorrupt(OperationError):
    """The journal's records do not form one unbroken chain. The error names the first record that does not fit."""


class JournalLocked(OperationError):
    """Another process writes this journal."""

    retryable = True


class DispatcherBug(InternalError):
    """The dispatcher met a state that its own rules exclude."""
