"""The port to object storage on top of the simulated one, for tests of what uses the port.

It is a driver like one for a real service, and makes of S3's answers what the port promises: 404 with a code is
absence; a refused HEAD has no code, so that :meth:`SimObjectStore.stat` asks again with a GET before it calls an object
absent; 412 is a lost race; 403 is refusal; everything else, a missing answer, a missing bucket and an answer cut short
among them, is silence, and says nothing about what has happened. It never tries anything twice: retrying is its user's.

What is longer than a part is written in parts, which are uploaded one after the other and aborted when the data fail.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Protocol, TypeVar

import anyio
import anyio.lowlevel
import attrs

from iriscw._errors import InvalidArgument, OperationError
from iriscw.objects.ports import (
    CHUNK_BYTES,
    MAX_PAGE_OBJECTS,
    Condition,
    IfAbsent,
    IfMatch,
    InvalidRange,
    ObjectChanged,
    ObjectExists,
    ObjectInfo,
    ObjectNotFound,
    ObjectPage,
    StoreAccessDenied,
    StoreFull,
    StoreUnreachable,
    check_key,
)
from iriscw_sims.objects.content import EMPTY, Content
from iriscw_sims.objects.front import ObjectFront, Outcome
from iriscw_sims.objects.messages import (
    AbortMultipartUpload,
    Answer,
    ByteRange,
    CompleteMultipartUpload,
    CreateMultipartUpload,
    DeleteObject,
    GetObject,
    HeadObject,
    Listing,
    ListObjectsV2,
    ObjectHead,
    Operation,
    PartHead,
    PutObject,
    Request,
    UploadHead,
    UploadPart,
)
from iriscw_sims.objects.storage import ObjectStorage

R = TypeVar("R")

DEFAULT_PART_BYTES = 64 << 20
"""What CoreWeave's documentation advises for its cache: 50 MB or more."""

ABORT_TIMEOUT_S = 10.0
"""How long a write that failed tries to take its parts back. What stays costs room, and is never seen as an object."""


class Way(Protocol):
    """How a request comes to a storage, and its answer back."""

    async def ask(self, request: Request) -> Outcome:
        """Send a request and wait for what becomes of it."""


class Directly:
    """No network and no faults, but a turn of the event loop before and after each request.

    Args:
        storage: where requests land.
        now: gives the storage's time, ns.
    """

    def __init__(self, storage: ObjectStorage, now: Callable[[], int] = lambda: 0) -> None:
        self._storage = storage
        self._now = now

    async def ask(self, request: Request) -> Outcome:
        """Have a request answered."""
        await anyio.lowlevel.checkpoint()
        answer = self._storage.handle(request, self._now())
        await anyio.lowlevel.checkpoint()
        return Outcome(answer)


class Through:
    """Through a front with all its faults; on an event loop of the front's own time.

    Args:
        front: the way to the storage.
    """

    def __init__(self, front: ObjectFront) -> None:
        self._front = front

    async def ask(self, request: Request) -> Outcome:
        """Send a request; one who is cancelled while waiting abandons it."""
        heard = anyio.Event()
        outcomes: list[Outcome] = []

        def answered(outcome: Outcome) -> None:
            outcomes.append(outcome)
            heard.set()

        exchange = self._front.send(request, answered)
        try:
            await heard.wait()
        finally:
            exchange.abandon()
        return outcomes[0]


@attrs.frozen
class SimReading:
    """An object that is being read; see ``ObjectReading``."""

    info: ObjectInfo
    _body: Content
    _whole: bool

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Read the chunks that came; made-up content is rendered.

        Raises:
            StoreUnreachable: not all of them came.
        """
        for chunk in self._body.chunks(CHUNK_BYTES):
            await anyio.lowlevel.checkpoint()
            yield chunk
        if not self._whole:
            raise StoreUnreachable(f"reading {self.info.key!r} broke off after {len(self._body)} bytes")


class SimObjectStore:
    """One bucket as an :class:`~iriscw.objects.ports.ObjectStore`.

    Args:
        way: to the storage.
        bucket: its name.
        access_key: what signs the requests.
        part_bytes: what is longer is written in parts of this size.

    Raises:
        InvalidArgument: a part without bytes.
    """

    def __init__(self, way: Way, bucket: str, access_key: str, *, part_bytes: int = DEFAULT_PART_BYTES) -> None:
        if part_bytes < 1:
            raise InvalidArgument(f"a part has at least one byte, not {part_bytes}")
        self._way = way
        self._bucket = bucket
        self._access_key = access_key
        self._part_bytes = part_bytes

    async def put(
        self, key: str, data: bytes | Content | AsyncIterable[bytes], *, condition: Condition = None
    ) -> ObjectInfo:
        """Write an object as a whole; beside what the port takes, made-up content.

        Raises:
            ObjectExists, ObjectChanged, StoreFull: see the port.
            InvalidObjectKey, StoreAccessDenied, StoreUnreachable: see the port.
        """
        check_key(key)
        async with aclosing(_parts(data, self._part_bytes)) as parts:
            first = await anext(parts, EMPTY)
            second = await anext(parts, None) if len(first) == self._part_bytes else None
            if second is not None:
                return await self._put_parts(key, (first, second), parts, condition)
        operation = PutObject(key, first, _if_none_match(condition), _if_match(condition))
        return _info(await self._result(operation, ObjectHead, condition))

    async def _put_parts(
        self, key: str, begun: tuple[Content, ...], rest: AsyncIterator[Content], condition: Condition
    ) -> ObjectInfo:
        upload = await self._result(CreateMultipartUpload(key), UploadHead)
        tags: list[tuple[int, str]] = []
        try:
            for part in begun:
                tags.append(await self._upload(upload, len(tags) + 1, part))
            async for part in rest:
                tags.append(await self._upload(upload, len(tags) + 1, part))
        except BaseException:
            await self._abort(upload)
            raise
        return await self._complete(upload, tuple(tags), condition)

    async def _upload(self, upload: UploadHead, number: int, part: Content) -> tuple[int, str]:
        done = await self._result(UploadPart(upload.key, upload.upload_id, number, part), PartHead)
        return number, done.etag

    async def _complete(
        self, upload: UploadHead, tags: tuple[tuple[int, str], ...], condition: Condition
    ) -> ObjectInfo:
        match = _if_none_match(condition), _if_match(condition)
        operation = CompleteMultipartUpload(upload.key, upload.upload_id, tags, *match)
        try:
            return _info(await self._result(operation, ObjectHead, condition))
        except (ObjectExists, ObjectChanged, StoreAccessDenied):  # certainly not completed, and never will be
            await self._abort(upload)
            raise

    async def _abort(self, upload: UploadHead) -> None:
        """Take the parts back, as far as that can be had; what made the write fail is told, not this."""
        with anyio.move_on_after(ABORT_TIMEOUT_S, shield=True):
            await self._way.ask(self._request(AbortMultipartUpload(upload.key, upload.upload_id)))

    @asynccontextmanager
    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> AsyncIterator[SimReading]:
        """Read an object.

        Raises:
            ObjectNotFound, InvalidRange: see the port.
            InvalidObjectKey, StoreAccessDenied, StoreUnreachable: see the port.
        """
        check_key(key)
        if start < 0 or (end is not None and end < start):
            raise InvalidRange(f"{start} to {end} is not a range")
        if start == end:  # HTTP has no empty ranges
            yield await self._nothing_of(key, start)
            return
        span = ByteRange(start, None if end is None else end - 1) if start or end is not None else None
        outcome = await self._way.ask(self._request(GetObject(key, span)))
        if outcome.answer is not None and outcome.answer.code == "InvalidRange":
            yield await self._nothing_of(key, start)  # nor any that begin at the end
            return
        head = _result(GetObject(key), outcome, ObjectHead)
        assert outcome.answer is not None
        yield SimReading(_info(head), outcome.answer.body, outcome.whole)

    async def _nothing_of(self, key: str, start: int) -> SimReading:
        """Return the reading of no bytes at ``start``, which the object must have."""
        info = await self.stat(key)
        if start > info.size_bytes:
            raise InvalidRange(f"there is no byte {start} in {info.size_bytes} bytes")
        return SimReading(info, EMPTY, True)

    async def stat(self, key: str) -> ObjectInfo:
        """Return what is known of an object.

        Raises:
            ObjectNotFound: see the port.
            InvalidObjectKey, StoreAccessDenied, StoreUnreachable: see the port.
        """
        check_key(key)
        outcome = await self._way.ask(self._request(HeadObject(key)))
        if outcome.answer is not None and outcome.answer.status == 404:
            return _info(await self._result(GetObject(key, ByteRange(0, 0)), ObjectHead))
        return _info(_result(HeadObject(key), outcome, ObjectHead))

    async def list(self, prefix: str = "", *, after: str = "", limit: int = MAX_PAGE_OBJECTS) -> ObjectPage:
        """List objects in the order of their keys.

        Raises:
            StoreAccessDenied, StoreUnreachable: see the port.
            InvalidArgument: a limit that no page has.
        """
        if not 1 <= limit <= MAX_PAGE_OBJECTS:
            raise InvalidArgument(f"a page has 1 to {MAX_PAGE_OBJECTS} objects, not {limit}")
        page = await self._result(ListObjectsV2(prefix, start_after=after, max_keys=limit), Listing)
        objects = tuple(map(_info, page.objects))
        return ObjectPage(objects, objects[-1].key if page.next_token else None)

    async def delete(self, key: str, *, condition: IfMatch | None = None) -> None:
        """Delete an object.

        Raises:
            ObjectChanged: see the port.
            InvalidObjectKey, StoreAccessDenied, StoreUnreachable: see the port.
        """
        check_key(key)
        operation = DeleteObject(key, _if_match(condition))
        _done(operation, await self._way.ask(self._request(operation)), condition)

    async def aclose(self) -> None:
        """Do nothing: there is nothing to give back."""
        await anyio.lowlevel.checkpoint()

    def _request(self, operation: Operation) -> Request:
        return Request(self._bucket, operation, self._access_key)

    async def _result(self, operation: Operation, kind: type[R], condition: Condition = None) -> R:
        return _result(operation, await self._way.ask(self._request(operation)), kind, condition)


def _result(operation: Operation, outcome: Outcome, kind: type[R], condition: Condition = None) -> R:
    answer = _done(operation, outcome, condition)
    if not isinstance(answer.result, kind):
        raise StoreUnreachable(f"{type(operation).__name__} was answered with something else")
    return answer.result


def _done(operation: Operation, outcome: Outcome, condition: Condition) -> Answer:
    """Return the answer to what was done, or raise what the port has for it."""
    said = type(operation).__name__
    answer = outcome.answer
    if answer is None:
        raise StoreUnreachable(f"no answer to {said}")
    if answer.ok:
        return answer
    raise _refusal(f"{said}: {answer.status} {answer.code}", operation, answer, condition)


def _refusal(said: str, operation: Operation, answer: Answer, condition: Condition) -> OperationError:
    if isinstance(condition, IfAbsent) and answer.code == "PreconditionFailed":
        return ObjectExists(said)
    if isinstance(condition, IfMatch) and answer.code in ("PreconditionFailed", "NoSuchKey"):
        return ObjectChanged(said)
    if isinstance(operation, GetObject) and answer.code == "NoSuchKey":
        return ObjectNotFound(said)
    if answer.code == "QuotaExceeded":
        return StoreFull(said)
    if answer.status == 403:
        return StoreAccessDenied(said)
    return StoreUnreachable(said)


def _info(head: ObjectHead) -> ObjectInfo:
    return ObjectInfo(head.key, head.length, head.etag)


def _if_none_match(condition: Condition) -> str:
    return "*" if isinstance(condition, IfAbsent) else ""


def _if_match(condition: Condition) -> str:
    return condition.etag if isinstance(condition, IfMatch) else ""


async def _parts(data: bytes | Content | AsyncIterable[bytes], size: int) -> AsyncGenerator[Content]:
    """Yield data in parts of ``size`` bytes, but for the last; memory is one part and one chunk of the source."""
    if isinstance(data, bytes | Content):
        content = Content(data) if isinstance(data, bytes) else data
        for start in range(0, len(content), size):
            yield content.part(start, start + size)
        return
    held = bytearray()
    async for chunk in data:
        held += chunk
        while len(held) >= size:
            yield Content(bytes(held[:size]))
            del held[:size]
    if held:
        yield Content(bytes(held))
