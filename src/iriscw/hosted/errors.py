"""What callers of hosted actors can be told."""

from __future__ import annotations

from iriscw._errors import InvalidArgument, OperationError, UsageError


class NotHosted(UsageError):
    """The job hosts no actor: that takes one task with a port ``actor``."""


class NoSuchName(OperationError, LookupError):
    """No hosted actor has this name now: none was created, or it is over."""


class InvalidActor(InvalidArgument):
    """What was given cannot be a hosted actor; the text says why."""


class NoSuchMethod(UsageError, AttributeError):
    """The actor has no public method of this name."""


class StreamMismatch(UsageError):
    """A method that yields was called for one value, or a stream was asked for of a method that gives one value."""


class ActorOver(OperationError):
    """The job of the actor is over: no call will ever reach it. The text has the reason, such as its traceback."""


class NoActorLeft(OperationError):
    """All actors of a pool are over: nobody is left who could be called. The text says why the last one is."""


class CallLost(OperationError):
    """The connection to the actor broke after a call was sent: it may have run, or not. It is not sent again.

    A call with a key was sent again until its deadline.
    """


class CallKeyReused(UsageError):
    """The key is that of a call of another method of this actor."""


class AnswerNotKept(OperationError):
    """The call with this key ran before, and what came of it was too much to keep. It was not run again."""


class CallFailed(OperationError):
    """The method raised what cannot be raised here: it could not be pickled, or would end this process.

    Attributes:
        error_type: the name of its class.
    """

    def __init__(self, text: str, *, error_type: str = "") -> None:
        super().__init__(text)
        self.error_type = error_type


class CallTooLarge(UsageError):
    """A call or a reply has more than 256 MiB: pass the name of a file or an object instead."""


class SnapshotTooLarge(UsageError):
    """A snapshot has more than 64 MiB: keep what is large in a file or an object, and its name in the snapshot."""


class SnapshotMismatch(OperationError):
    """What was sent, or has come, is not the snapshot that it was said to be: its size or SHA-256 is another one."""


class CallRefused(OperationError):
    """Who answers is not the actor, or does not take the caller for one who may call it."""


class PythonDiffers(CallRefused):
    """The actor runs another version of Python: what one pickles the other may not read."""


class RemoteTraceback(Exception):
    """The traceback of an error in the actor's process, as text: the cause of the error that is raised here."""

    def __str__(self) -> str:
        """Begin on a line of its own, as tracebacks do."""
        return "\n" + super().__str__()
