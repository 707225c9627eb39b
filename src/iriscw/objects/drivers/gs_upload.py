"""Writing an object of Google's: in one request if it is short, in a resumable upload if it is long.

Theory of operation. A stream of unknown length is read until it is longer than a part; what ends before is written in
one request, whose body is metadata and content one behind the other. Anything longer is a *session*: its chunks go up
in order, the service says how much it has of them, and the one that ends it makes the object. A session makes one
object at most, however often its last chunk is sent; so a chunk whose answer was lost is never sent blindly again: the
session is asked how much it has, and answers with the object if it is over. Memory is one chunk and what is read of the
source. Who fails or is cancelled tells the service to forget the session; it forgets by itself after a week.

Conditions are numbers of generations: 0 is "there is none". A request that was refused for its condition after a doubt
is looked at (:mod:`iriscw.objects.drivers.writing`). What arrived is compared by its MD5: the service refuses another
content.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import re
import uuid
from collections.abc import AsyncIterable, AsyncIterator
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import anyio
import anyio.to_thread
import attrs

from iriscw.objects.drivers import writing
from iriscw.objects.drivers.failure import TEXT_LENGTH, AttemptFailed, TryFailure
from iriscw.objects.drivers.gs_connection import Ask, GsAnswer, GsConnection
from iriscw.objects.drivers.gs_failure import port_error
from iriscw.objects.drivers.writing import MARK, Write, refusal, settled
from iriscw.objects.ports import (
    Condition,
    Data,
    IfAbsent,
    IfMatch,
    ObjectChanged,
    ObjectInfo,
    StoreUnreachable,
)

UNFINISHED = 308
"""Of a resumable upload: it goes on."""

FORGOTTEN = (404, 410, 499)
"""Answers to the request to forget a session; 499 is the good one."""

FIELDS = "name,size,generation,metadata,md5Hash"
TYPE = "application/octet-stream"
HASHED_AT_ONCE_BYTES = 1 << 18
"""More is hashed in a thread: this much takes half a millisecond."""

_GENERATION = re.compile(r"[1-9][0-9]{0,18}")
_RECEIVED = re.compile(r"bytes=0-(\d+)")

log = logging.getLogger(__name__)


async def write_object(
    connection: GsConnection, key: str, name: str, data: Data | AsyncIterable[bytes], condition: Condition
) -> ObjectInfo:
    """Write an object as a whole.

    Raises:
        ObjectExists, ObjectChanged, StoreFull, StoreAccessDenied, StoreUnreachable: see ``ObjectStore.put``.
    """
    write = Write(key, name, condition)
    whole, long = partial(_write_whole, connection, write), _Session(connection, write).write
    return await writing.write_object(write, data, connection.limits, whole, long)


def conditions(key: str, condition: Condition) -> dict[str, str]:
    """Return a condition in Google's words.

    Raises:
        ObjectChanged: it is on what is not a generation: no object can have it, and 0 would mean another thing.
    """
    if isinstance(condition, IfAbsent):
        return {"ifGenerationMatch": "0"}
    if isinstance(condition, IfMatch):
        if not _GENERATION.fullmatch(condition.etag):
            raise ObjectChanged(f"{key!r}: {condition.etag!r} is not a generation of any object")
        return {"ifGenerationMatch": condition.etag}
    return {}


def info_of(key: str, told: Any) -> ObjectInfo:
    """Return what is known of an object from its metadata.

    Raises:
        StoreUnreachable: they are none.
    """
    try:
        generation, size = str(told["generation"]), int(told["size"])
    except (TypeError, LookupError, ValueError) as error:
        raise StoreUnreachable(f"{key!r}: the answer is not an object's metadata") from error
    if not _GENERATION.fullmatch(generation) or size < 0:
        raise StoreUnreachable(f"{key!r}: the answer is not an object's metadata")
    return ObjectInfo(key, size, generation)


def read_json(told: GsAnswer, what: str) -> Any:
    """Return an answer's content.

    Raises:
        StoreUnreachable: it is not JSON.
    """
    try:
        return json.loads(told.body)
    except ValueError as error:
        raise StoreUnreachable(f"{what}: the answer is not JSON: it begins {beginning(told)!r}") from error


def beginning(told: GsAnswer) -> str:
    """Return what an answer begins with, for whoever finds that it is not Google's."""
    return told.body[:TEXT_LENGTH].decode(errors="replace")


def _upload_path(connection: GsConnection) -> str:
    return f"/upload/storage/v1/b/{quote(connection.place.bucket, safe='')}/o"


def _metadata(write: Write, **more: str) -> bytes:
    # Not to be kept by caches: a public object would be read as it was up to an hour ago.
    said = {"name": write.name, "metadata": write.metadata, "cacheControl": "no-store", "contentType": TYPE, **more}
    return json.dumps(said).encode()


async def _write_whole(connection: GsConnection, write: Write, data: Data) -> ObjectInfo:
    boundary = f"iriscw-{uuid.uuid4().hex}"
    head = b"--%b\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n%b\r\n--%b\r\nContent-Type: %b\r\n\r\n"
    metadata = _metadata(write, md5Hash=await _digested(hashlib.md5(usedforsecurity=False), data))
    edge = boundary.encode()
    query = {"uploadType": "multipart", "fields": FIELDS, **conditions(write.key, write.condition)}
    ask = Ask(
        "POST",
        _upload_path(connection),
        query,
        {"Content-Type": f"multipart/related; boundary={boundary}"},
        (head % (edge, metadata, edge, TYPE.encode()), data, b"\r\n--%b--\r\n" % edge),
        repeat=write.condition is not None,
    )
    try:
        told = await connection.ask(ask)
    except AttemptFailed as failed:
        return await _settled(connection, write, failed)
    return info_of(write.key, read_json(told, f"writing {write.key!r}"))


@attrs.define
class _Session:
    """One resumable upload."""

    connection: GsConnection
    write_: Write = attrs.field(alias="write")
    query: dict[str, str] = attrs.Factory(dict)
    """What names the session; it is a secret: who knows it can write the object."""
    position: int = 0
    """How much the service has."""
    in_doubt: bool = False
    """Whether what makes the object was sent, and no answer came."""
    digest: Any = attrs.Factory(lambda: hashlib.md5(usedforsecurity=False))

    async def write(self, first: Data, rest: AsyncIterator[tuple[Data, bool]]) -> ObjectInfo:
        """Send the chunks, and give the object."""
        over = False
        try:
            await self._begin()
            told = await self._send(first, is_last=False)
            async for piece, is_last in rest:
                told = await self._send(piece, is_last=is_last)
            over = True
        except AttemptFailed as failed:
            info = await self._settled(failed)
            over = True
            return info
        finally:
            if not over and self.query:
                await self._forget()
        assert told is not None, "the last chunk ends with the object"
        info = info_of(self.write_.key, told)
        await self._check_digest(info, told)
        return info

    async def _check_digest(self, info: ObjectInfo, told: Any) -> None:
        """Take an object back that is not what was sent, if the service has not found that out itself."""
        md5 = base64.b64encode(self.digest.digest()).decode()
        if told.get("md5Hash", md5) == md5:
            return
        query = {"ifGenerationMatch": info.etag}
        await self.connection.ask(Ask("DELETE", self.connection.object_path(self.write_.name), query))
        raise StoreUnreachable(f"writing {info.key!r}: what arrived was not what was sent; it was deleted")

    async def _begin(self) -> None:
        said = conditions(self.write_.key, self.write_.condition)
        ask = Ask(
            "POST",
            _upload_path(self.connection),
            {"uploadType": "resumable", "fields": FIELDS, **said},
            {"Content-Type": "application/json; charset=UTF-8", "X-Upload-Content-Type": TYPE},
            (_metadata(self.write_),),
            reads=True,  # a session alone is nothing that anybody sees
        )
        told = await self.connection.ask(ask)
        self.query = _query_of(told.headers.get("Location", ""))
        if "upload_id" not in self.query:
            raise StoreUnreachable(f"writing {self.write_.key!r}: the answer names no upload")

    async def _send(self, piece: Data, *, is_last: bool) -> Any:
        """Send a chunk until the service has all of it, and give the object's metadata if it was the last one."""
        md5 = await _digested(self.digest, piece)
        begin, end = self.position, self.position + len(piece)
        headers = {"X-Goog-Hash": f"md5={md5}"} if is_last else {}
        stalled = 0
        while stalled < self.connection.limits.attempts:
            before = self.position
            try:
                told = await self._put(piece[self.position - begin :], end, headers, is_last=is_last)
            except AttemptFailed as failed:
                if not failed.failure.passing or stalled + 1 == self.connection.limits.attempts:
                    raise
                told = await self._ask_how_much(end if is_last else None)
            found = self._taken(told, begin, end, is_last=is_last)
            if found is not None or (self.position == end and not is_last):
                return found
            if self.position == before:
                stalled += 1
                await anyio.sleep(self.connection.pause(stalled))
            else:
                stalled = 0
        said = f"{self.write_.key!r}: the service takes no more than {self.position} bytes"
        raise AttemptFailed(TryFailure(said, certain=not self.in_doubt))

    async def _put(self, rest: Data, end: int, headers: dict[str, str], *, is_last: bool) -> GsAnswer:
        span = f"{self.position}-{end - 1}" if rest else "*"
        total = str(end) if is_last else "*"
        ask = self._ask("PUT", {"Content-Range": f"bytes {span}/{total}", **headers}, (rest,), repeat=False)
        try:
            return await self.connection.ask(ask)
        except AttemptFailed as failed:
            self.in_doubt = self.in_doubt or (is_last and not failed.failure.certain)
            raise

    async def _ask_how_much(self, total: int | None) -> GsAnswer:
        said = f"bytes */{'*' if total is None else total}"
        try:
            return await self.connection.ask(self._ask("PUT", {"Content-Range": said}, (), repeat=True))
        except AttemptFailed as failed:
            self.in_doubt = self.in_doubt or (total is not None and not failed.failure.certain)
            raise

    def _taken(self, told: GsAnswer, begin: int, end: int, *, is_last: bool) -> Any:
        """Learn from an answer how much the service has; give the object's metadata if it is over."""
        what = f"writing {self.write_.key!r}"
        if told.status != UNFINISHED:
            if not is_last:
                raise StoreUnreachable(f"{what}: the upload was over before its end")
            return read_json(told, what)
        found = _RECEIVED.fullmatch(told.headers.get("Range", ""))
        has = int(found[1]) + 1 if found is not None else 0
        if not begin <= has <= end:
            raise StoreUnreachable(f"{what}: the service has {has} bytes, and was sent {begin} to {end}")
        self.position = has
        return None

    async def _forget(self) -> None:
        """Give the session up, as far as that can be had; what made the write fail is told, not this."""
        with anyio.move_on_after(self.connection.limits.abort_s, shield=True) as scope:
            try:
                await self.connection.ask(self._ask("DELETE", {}, (), repeat=True, fine=FORGOTTEN))
            except (AttemptFailed, StoreUnreachable) as error:
                log.info("an upload of %r was not given up, and ends in a week: %s", self.write_.key, error)
        if scope.cancelled_caught:
            log.info("an upload of %r was not given up in time, and ends in a week", self.write_.key)

    def _ask(
        self, method: str, headers: dict[str, str], body: tuple[Data, ...], *, repeat: bool, fine: tuple[int, ...] = ()
    ) -> Ask:
        path = _upload_path(self.connection)
        return Ask(method, path, self.query, headers, body, fine=(UNFINISHED, *fine), repeat=repeat)

    async def _settled(self, failed: AttemptFailed) -> ObjectInfo:
        """Find out what became of the upload, with the doubt of all that was sent; see the other one."""
        failure = attrs.evolve(failed.failure, certain=failed.failure.certain and not self.in_doubt)
        if self.query and failure.status in FORGOTTEN and not self.in_doubt:
            said = f"writing {self.write_.key!r}: the service has forgotten the upload: {failure.said}"
            raise StoreUnreachable(said) from failed
        return await _settled(self.connection, self.write_, AttemptFailed(failure), lost=self.in_doubt)


def _query_of(location: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(location).query, keep_blank_values=True))


async def _settled(connection: GsConnection, write: Write, failed: AttemptFailed, *, lost: bool = False) -> ObjectInfo:
    """Find out what became of a write whose last request failed.

    Args:
        connection: To the store.
        write: Which one.
        failed: The request.
        lost: Whether the object may be there although nothing can be said of the condition.

    Raises:
        ObjectExists, ObjectChanged, StoreFull, StoreAccessDenied, StoreUnreachable: it was not done; the last one,
            too, if nobody can say.
    """
    failure = failed.failure
    refused = refusal(write, failed, changed=failure.status == 412)
    if refused is None and not lost:
        raise port_error(failure, f"writing {write.key!r}") from failed
    return await settled(write, failed, refused, lambda: _ours(connection, write))


async def _ours(connection: GsConnection, write: Write) -> ObjectInfo | None:
    """Return the object if it is the one that this call wrote; None if it is not, or if that cannot be found out."""
    try:
        told = await connection.ask(Ask("GET", connection.object_path(write.name), {"fields": FIELDS}, reads=True))
        found = read_json(told, f"asking for {write.key!r}")
        info = info_of(write.key, found)
    except (AttemptFailed, StoreUnreachable) as error:
        log.info("whether %r is what was written could not be found out: %s", write.key, error)
        return None
    metadata = found.get("metadata")
    return info if isinstance(metadata, dict) and metadata.get(MARK) == write.mark else None


async def _digested(digest: Any, data: Data) -> str:
    """Add bytes to a digest, and give it as Google writes it."""
    if len(data) <= HASHED_AT_ONCE_BYTES:
        digest.update(data)
    else:
        await anyio.to_thread.run_sync(digest.update, data)
    return base64.b64encode(digest.digest()).decode()
