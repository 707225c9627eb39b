"""The port to object storage: named, immutable pieces of bytes, as S3 has them.

An object is written as a whole and appears at once; a reader never sees a part. Every object has an *etag*
that tells contents apart, and writes can be conditional on it: that is all the concurrency control there is.
Two writes of the same content may have the same etag: S3's is a digest of the content unless keys of a key
service encrypt it. Who has to tell writes apart puts into the content what no other write has.

Absence, refusal and silence are different errors (INV-C11): only :class:`ObjectNotFound` says that an object
is not there. A driver that cannot tell must raise one of the others.

Keys are relative paths with ``/`` between their parts, such as ``bundles/<sha256>.zip``; ``check_key`` says
which are allowed. Listing is in the order of the keys' UTF-8 bytes.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias

import attrs

from iriscw._errors import OperationError, UsageError

CHUNK_BYTES = 1 << 20
"""The largest chunk that a reading yields; it bounds memory in flight."""

MAX_KEY_BYTES = 1024
"""S3's limit."""

MAX_KEY_PART_BYTES = 255
"""The limit of a file name on Linux: a key must fit every driver."""

MAX_PAGE_OBJECTS = 1000
"""S3's limit for one page of a listing."""


class InvalidObjectKey(UsageError, ValueError):
    """The key is empty, too long, not relative, or has a part that no driver takes."""


class InvalidRange(UsageError, ValueError):
    """The range begins after the object's end, or ends before it begins."""


class ObjectKeyConflict(UsageError):
    """One object's key is a folder of another's (``a`` and ``a/b``), which this driver cannot hold together."""


class ObjectNotFound(OperationError, LookupError):
    """There is certainly no object with this key."""


class ObjectExists(OperationError):
    """The write was for a new object only, and there is one already; it was not touched."""


class ObjectChanged(OperationError):
    """The object's content is not what was named, or it is gone; nothing was written or deleted."""


class StoreAccessDenied(OperationError):
    """The store refused: credentials, permissions, or a link where no link is followed. Says nothing of
    absence.
    """


class StoreUnreachable(OperationError):
    """No answer, or a broken one: network, an unmounted disk, an I/O error. Says nothing of absence.

    A write may have happened.
    """

    retryable = True


class StoreFull(OperationError):
    """The store has no room for the object; nothing of it is left."""

    retryable = True


@attrs.frozen
class ObjectInfo:
    """What a store knows of an object."""

    key: str
    size_bytes: int
    etag: str
    """Opaque; two of one key that are equal stand for the same content, written once or more often."""


@attrs.frozen
class ObjectPage:
    """A part of a listing. ``next_after`` continues it; None means that this was the last."""

    objects: tuple[ObjectInfo, ...]
    next_after: str | None


@attrs.frozen
class IfAbsent:
    """Write only if there is no such object."""


@attrs.frozen
class IfMatch:
    """Write or delete only while the content has this etag, whoever wrote it."""

    etag: str


Condition: TypeAlias = "IfAbsent | IfMatch | None"

Data: TypeAlias = "bytes | memoryview"
"""Bytes of one piece. What a view shows is not changed before the call that got it returns."""


class ObjectReading(Protocol):
    """An object that is being read: chunks of at most ``CHUNK_BYTES``, in order, all of one version."""

    @property
    def info(self) -> ObjectInfo:
        """Which version is read. ``size_bytes`` is the whole object's, whatever the range."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Read the chunks, once.

        Raises:
            StoreUnreachable: reading broke off, or the object was cut short meanwhile.
        """


class ObjectStore(Protocol):
    """Where objects are kept. Every method may raise the store's three troubles:

    Raises:
        InvalidObjectKey: see ``check_key``; nothing was asked of the store.
        StoreAccessDenied: the store refused.
        StoreUnreachable: the store did not answer.
    """

    async def put(self, key: str, data: Data | AsyncIterable[bytes], *, condition: Condition = None) -> ObjectInfo:
        """Write an object as a whole; it is durable when this returns.

        What ``data`` raises comes through, and nothing of the object is left. A cancellation comes through,
        too; once ``data`` was read to its end it may come too late: then the object is there as a whole, or
        not at all. Parts that a store could not be told to remove take room and are never seen.

        Raises:
            ObjectExists: with ``IfAbsent``, there is one.
            ObjectChanged: with ``IfMatch``, the present content is another one.
            ObjectKeyConflict: see there.
            StoreFull: no room.
        """

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> AbstractAsyncContextManager[ObjectReading]:
        """Read the bytes from ``start`` up to, not including, ``end``; an ``end`` beyond the object is its
        end.

        Raises:
            ObjectNotFound: there is no such object.
            InvalidRange: ``start`` is beyond the object's end, or ``end`` before ``start``.
        """

    async def stat(self, key: str) -> ObjectInfo:
        """Return what is known of an object.

        Raises:
            ObjectNotFound: there is no such object.
        """

    async def list(self, prefix: str = "", *, after: str = "", limit: int = MAX_PAGE_OBJECTS) -> ObjectPage:
        """List objects whose keys begin with ``prefix`` and come after ``after``; at most ``limit``, 1 to
        1000.

        An object that exists all the while a listing goes on is in it exactly once.
        """

    async def delete(self, key: str, *, condition: IfMatch | None = None) -> None:
        """Delete an object; without a condition, one that is not there is no error, as in S3.

        Raises:
            ObjectChanged: with ``IfMatch``, the present content is another one.
        """

    async def aclose(self) -> None:
        """Give back what the store holds open. It is not used afterwards; closing twice is fine."""


def check_key(key: str) -> tuple[str, ...]:
    """Return the parts of a key that every driver takes.

    Raises:
        InvalidObjectKey: it is empty, absolute or too long, holds a control character or a surrogate, or has
        a
            part that is empty, ``.``, ``..``, longer than 255 bytes or begins with ``.iriscw-``.
    """
    try:
        encoded = key.encode()
    except UnicodeEncodeError as error:
        raise InvalidObjectKey(f"the key {key!r} is not text") from error
    if not 0 < len(encoded) <= MAX_KEY_BYTES:
        raise InvalidObjectKey(f"a key has 1 to {MAX_KEY_BYTES} bytes, not {len(encoded)}")
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in key):
        raise InvalidObjectKey(f"the key {key!r} holds a control character")
    parts = tuple(key.split("/"))
    for part in parts:
        if part in {"", ".", ".."} or part.startswith(".iriscw-") or len(part.encode()) > MAX_KEY_PART_BYTES:
            raise InvalidObjectKey(f"the key {key!r} has the part {part!r}, which no driver takes")
    return parts
