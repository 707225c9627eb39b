"""Writing objects to a storage service, whichever it is: data in parts, and a mark that tells a write from others.

Each write has a *mark* of its own in the object's metadata. When a write with a condition is refused, the object is
looked at: with our mark it is ours, and what was lost is the answer to an earlier try, or something on the way has sent
the request twice. An object without our mark means that the condition did not hold, if no try of ours is in doubt; else
nobody can say what happened, since ours may have been there and have been replaced.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import aclosing

import attrs

from iriscw._errors import OperationError
from iriscw.objects.drivers.failure import AttemptFailed
from iriscw.objects.drivers.limits import ServiceLimits
from iriscw.objects.ports import (
    Condition,
    Data,
    IfAbsent,
    IfMatch,
    ObjectChanged,
    ObjectExists,
    ObjectInfo,
    StoreFull,
    StoreUnreachable,
)

MARK = "iriscw-write"
"""In an object's metadata: which write it is of."""


@attrs.frozen
class Write:
    """One call of ``put``."""

    key: str
    name: str
    """The key in the bucket."""
    condition: Condition
    mark: str = attrs.field(factory=lambda: uuid.uuid4().hex)

    @property
    def metadata(self) -> dict[str, str]:
        """The mark, where it is kept."""
        return {MARK: self.mark}


async def pieces(data: Data | AsyncIterable[bytes], limits: ServiceLimits) -> AsyncGenerator[tuple[Data, bool]]:
    """Yield data in parts, and with each whether it is the last. There is always one.

    Raises:
        StoreFull: an object cannot have that many parts.
    """
    number, held = 1, bytearray()
    if isinstance(data, bytes | memoryview) and len(data) <= limits.size_of_part(1):
        yield data, True  # as it is: most are short
        return
    async for chunk in _chunks(data):
        rest = memoryview(chunk)
        while len(held) + len(rest) > (size := limits.size_of_part(number)):
            if number == limits.most_parts:
                raise StoreFull(f"an object has at most {limits.most_parts} parts, the last of {size} bytes")
            taken = size - len(held)
            held += rest[:taken]
            yield bytes(held), False
            held, rest, number = bytearray(), rest[taken:], number + 1
        held += rest
    yield bytes(held), True


async def _chunks(data: Data | AsyncIterable[bytes]) -> AsyncIterator[Data]:
    if isinstance(data, bytes | memoryview):
        yield data
        return
    async for chunk in data:
        yield chunk


async def write_object(
    write: Write,
    data: Data | AsyncIterable[bytes],
    limits: ServiceLimits,
    whole: Callable[[Data], Awaitable[ObjectInfo]],
    long: Callable[[Data, AsyncIterator[tuple[Data, bool]]], Awaitable[ObjectInfo]],
) -> ObjectInfo:
    """Write an object as a whole.

    Args:
        write: Which one.
        data: Its bytes.
        limits: Say how large a part is.
        whole: Writes what is no longer than a part, in one request.
        long: Writes what is longer: the first part and the others, each with whether it is the last.

    Raises:
        ObjectExists, ObjectChanged, StoreFull, StoreAccessDenied, StoreUnreachable: see ``ObjectStore.put``.
    """
    async with aclosing(pieces(data, limits)) as parts:
        first, is_last = await anext(parts)
        return await (whole(first) if is_last else long(first, parts))


def refusal(write: Write, failed: AttemptFailed, *, changed: bool, gone: bool = False) -> OperationError | None:
    """Return what to say of a write's condition; None: it was not that.

    Args:
        write: Which one.
        failed: Its last request.
        changed: Whether the service says that the condition does not hold.
        gone: Whether it says that there is no object.
    """
    said = f"{write.key!r}: {failed.failure.said}"
    if isinstance(write.condition, IfAbsent) and changed:
        return ObjectExists(said)
    if isinstance(write.condition, IfMatch) and (changed or gone):
        return ObjectChanged(said)
    return None


async def settled(
    write: Write,
    failed: AttemptFailed,
    refused: OperationError | None,
    ours: Callable[[], Awaitable[ObjectInfo | None]],
) -> ObjectInfo:
    """Find out what became of a write that was refused, or of which nobody knows.

    Args:
        write: Which one.
        failed: Its last request.
        refused: What to say if the condition did not hold; None: it is not known to be so.
        ours: Gives the object if it is the one that this call wrote; None if it is not, or if that cannot be found out.

    Raises:
        ObjectExists, ObjectChanged: the condition did not hold.
        StoreUnreachable: nobody can say.
    """
    found = await ours()
    if found is not None:
        return found
    if refused is not None and failed.failure.certain:
        raise refused from failed
    said = f"writing {write.key!r}: nobody can say whether it was written: {failed.failure.said}"
    raise StoreUnreachable(said) from failed
