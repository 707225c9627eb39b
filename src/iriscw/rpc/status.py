"""Errors to gRPC statuses and back.

On the wire an error is a status, a text and, in the trailing metadata, the name of its class
(``iriscw-error``). The receiving side raises the class of that name if it has one, so that ``except
NoSuchJob`` works across processes; clients in other languages have the status.

What leaves a process: the text of a :class:`UsageError` or :class:`OperationError`, which is written for
callers, and of anything else the name of its class and no more.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs
from grpclib.const import Status

from iriscw._errors import InternalError, IriscwError, OperationError, UsageError
from iriscw.rpc.errors import (
    MessageTooLarge,
    PermissionDenied,
    RemoteFailure,
    RemoteRefusal,
    RpcCancelled,
    RpcDeadline,
    RpcUnavailable,
    TooManyUnfinishedBytes,
    Unauthenticated,
    VersionMismatch,
)

ERROR_KEY = "iriscw-error"
"""Trailing metadata: the class of the error. One of iriscw's is called by its name, one of another
package with its module before that.
"""

MAX_TEXT_CHARS = 1024
"""Of an error's text on the wire. Percent encoding may triple it; gRPC peers accept 8 KiB of trailers."""

# The first row whose class fits wins: the named before the general.
_STATUS_OF: tuple[tuple[type[BaseException], Status], ...] = (
    (Unauthenticated, Status.UNAUTHENTICATED),
    (PermissionDenied, Status.PERMISSION_DENIED),
    (VersionMismatch, Status.FAILED_PRECONDITION),
    (MessageTooLarge, Status.RESOURCE_EXHAUSTED),
    (TooManyUnfinishedBytes, Status.RESOURCE_EXHAUSTED),
    (RpcCancelled, Status.CANCELLED),
)

# What a status means when no class of ours is named: the peer is not ours, or a proxy answered.
_CLASS_OF: dict[Status, type[IriscwError]] = {
    Status.CANCELLED: RpcCancelled,
    Status.DEADLINE_EXCEEDED: RpcDeadline,
    Status.PERMISSION_DENIED: PermissionDenied,
    Status.RESOURCE_EXHAUSTED: MessageTooLarge,
    Status.UNAUTHENTICATED: Unauthenticated,
    Status.UNAVAILABLE: RpcUnavailable,
    Status.UNIMPLEMENTED: VersionMismatch,
    Status.UNKNOWN: RemoteFailure,
    Status.INTERNAL: RemoteFailure,
    Status.DATA_LOSS: RemoteFailure,
}


@attrs.frozen
class WireError:
    """An error as it crosses the wire."""

    status: Status
    text: str
    name: str = ""

    @property
    def metadata(self) -> dict[str, str]:
        """The trailing metadata that carries the name."""
        return {ERROR_KEY: self.name} if self.name else {}


def to_wire(error: BaseException) -> WireError:
    """Return the status, text and name under which ``error`` leaves the process."""
    name = type(error).__name__
    if isinstance(error, UsageError | OperationError):
        return WireError(_status(error), str(error)[:MAX_TEXT_CHARS] or name, _name_of(type(error)))
    if isinstance(error, InternalError):
        return WireError(Status.INTERNAL, name, _name_of(type(error)))
    return WireError(Status.INTERNAL, name)


def _name_of(cls: type[BaseException]) -> str:
    """Return how the wire calls a class. Trailers are ASCII: a class with another name goes without it."""
    ours = cls.__module__.split(".", 1)[0] == "iriscw"
    name = cls.__name__ if ours else f"{cls.__module__}.{cls.__qualname__}"
    return name if name.isascii() else ""


def _status(error: IriscwError) -> Status:
    for cls, status in _STATUS_OF:
        if isinstance(error, cls):
            return status
    match error:
        case UsageError():
            return Status.NOT_FOUND if isinstance(error, LookupError) else Status.INVALID_ARGUMENT
        case OperationError():
            if isinstance(error, TimeoutError):
                return Status.DEADLINE_EXCEEDED
            return Status.UNAVAILABLE if error.retryable else Status.FAILED_PRECONDITION
        case _:
            return Status.INTERNAL


def from_wire(status: Status, text: str | None, name: str = "") -> IriscwError:
    """Return the error that a peer's status stands for.

    Args:
        status: any but OK.
        text: the peer's message.
        name: the class name from the trailing metadata, if there was one.
    """
    cls = _named(name) if name else None
    if cls is not None:
        try:
            return cls(text or name)
        except TypeError:  # a class that is built from other things than one text
            return _unnamed(status, f"{name}: {text}")
    return _unnamed(status, f"{name}: {text}" if name and name != text else text or status.name)


def _unnamed(status: Status, text: str) -> IriscwError:
    return _CLASS_OF.get(status, RemoteRefusal)(text)


def _named(name: str) -> type[IriscwError] | None:
    """Find an error by its name on the wire, among the classes that this process has: nothing is imported for it."""
    for cls in _descendants(IriscwError):
        if not cls._abstract and _name_of(cls) == name:
            return cls
    return None


def _descendants(cls: type[IriscwError]) -> Iterator[type[IriscwError]]:
    for child in cls.__subclasses__():
        yield child
        yield from _descendants(child)
