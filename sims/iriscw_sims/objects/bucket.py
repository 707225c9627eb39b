"""One bucket: objects by key, each written as a whole, read back as it was written, from the next request on.

Every operation is a method that takes the request's value and the time, does all of it or nothing, and returns an
answer or raises :class:`~iriscw_sims.objects.refusals.Refused`. There is no versioning: a write replaces.
"""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Callable

import attrs

from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.objects.conditions import check_match, check_read, check_write
from iriscw_sims.objects.content import Content
from iriscw_sims.objects.listing import list_objects
from iriscw_sims.objects.messages import (
    AbortMultipartUpload,
    Answer,
    BeginResumable,
    ByteRange,
    CompleteMultipartUpload,
    CopyObject,
    CreateMultipartUpload,
    DeleteObject,
    ForgetResumable,
    GetObject,
    HeadObject,
    LastBytes,
    ListMultipartUploads,
    ListObjectsV2,
    ListParts,
    Metadata,
    ObjectHead,
    PutObject,
    RenameObject,
    ResumableChunk,
    StatObject,
    UploadPart,
)
from iriscw_sims.objects.multipart import Uploads
from iriscw_sims.objects.refusals import Refused
from iriscw_sims.objects.resumable import Resumables
from iriscw_sims.objects.rules import MAX_KEY_BYTES, MAX_METADATA_BYTES, Etags, Rules

FIRST_GENERATION = 1_700_000_000_000_000
"""Google's are microseconds since 1970, mostly."""


class Bucket:
    """A bucket and its unfinished uploads.

    Args:
        name: its name.
        rules: the service's.
        room: told how many bytes are about to come or go; may refuse.
    """

    def __init__(self, name: str, rules: Rules, room: Callable[[int], None]) -> None:
        self.name = name
        self.uploads = Uploads(name, rules, room)
        self.resumables = Resumables(name)
        self._rules = rules
        self._room = room
        self._writes = 0
        self._heads: dict[str, ObjectHead] = {}
        self._bodies: dict[str, Content] = {}
        self._order: list[bytes] = []
        """All keys in UTF-8, sorted."""

    def __len__(self) -> int:
        """Return how many objects there are."""
        return len(self._heads)

    def contents(self) -> dict[str, Content]:
        """Return all objects by key, in order: for checks, not for clients."""
        return {key: self._bodies[key] for key in (each.decode() for each in self._order)}

    def body(self, key: str) -> Content | None:
        """Return an object's content, None if it is not there: for checks, not for clients."""
        return self._bodies.get(key)

    # Writes

    def put(self, asked: PutObject, now: int) -> Answer:
        """Write an object in one go."""
        _check_key(asked.key)
        _check_metadata(asked.metadata)
        if len(asked.body) > self._rules.most_part_bytes:
            raise Refused("EntityTooLarge")
        check_write(self._heads.get(asked.key), asked.if_none_match, asked.if_match)
        head = self._write(asked.key, asked.body, asked.body.digest.hex(), asked.metadata, now)
        return Answer(200, head)

    def copy(self, asked: CopyObject, now: int) -> Answer:
        """Write an object's content under another key."""
        _check_key(asked.key)
        source = self._heads.get(asked.source)
        check_match(source, asked.source_if_match)
        if source is None:
            raise Refused("NoSuchKey")
        if asked.key == asked.source:
            raise Refused("InvalidRequest", "This copy request is illegal: it copies an object to itself")
        if source.length > self._rules.most_part_bytes:
            raise Refused("InvalidRequest", "The specified copy source is larger than the maximum allowable size")
        check_write(self._heads.get(asked.key), asked.if_none_match, asked.if_match)
        body = self._bodies[asked.source]
        return Answer(200, self._write(asked.key, body, body.digest.hex(), source.metadata, now))

    def rename(self, asked: RenameObject, _now: int) -> Answer:
        """Move an object to another key; it keeps its tag and its time."""
        if not self._rules.renames:
            raise Refused("NotImplemented")
        _check_key(asked.key)
        source = self._heads.get(asked.source)
        check_match(source, asked.source_if_match)
        if source is None:
            raise Refused("NoSuchKey")
        check_write(self._heads.get(asked.key), asked.if_none_match, asked.if_match)
        if asked.key != asked.source:
            if asked.key in self._heads:
                self._remove(asked.key)
            body = self._drop(asked.source)
            self._keep(attrs.evolve(source, key=asked.key), body)
        return Answer(200)

    def delete(self, asked: DeleteObject, _now: int) -> Answer:
        """Delete an object, if it is there."""
        _check_key(asked.key)
        check_match(self._heads.get(asked.key), asked.if_match)
        if asked.key in self._heads:
            self._remove(asked.key)
        elif not self._rules.deletes_nothing:
            raise Refused("NoSuchKey")
        return Answer(204)

    # Reads

    def get(self, asked: GetObject, _now: int) -> Answer:
        """Read an object or a range of it."""
        head = self._find(asked.key)
        check_read(head, asked.if_match, asked.if_none_match)
        body = self._bodies[asked.key]
        span = _span(asked.range, head.length)
        if span is None:
            return Answer(200, head, body)
        return Answer(206, head, body.part(*span), span[0])

    def head(self, asked: HeadObject, _now: int) -> Answer:
        """Return what is known of an object."""
        head = self._find(asked.key)
        check_read(head, asked.if_match, asked.if_none_match)
        return Answer(200, head)

    def stat(self, asked: StatObject, _now: int) -> Answer:
        """Return what is known of an object."""
        return Answer(200, self._find(asked.key))

    def list(self, asked: ListObjectsV2, _now: int) -> Answer:
        """Return a page of the listing."""
        return Answer(200, list_objects(self._heads, self._order, asked))

    # Multipart uploads

    def create_upload(self, asked: CreateMultipartUpload, now: int) -> Answer:
        """Begin an upload."""
        _check_key(asked.key)
        _check_metadata(asked.metadata)
        return Answer(200, self.uploads.create(asked, now))

    def upload_part(self, asked: UploadPart, now: int) -> Answer:
        """Write a part."""
        return Answer(200, self.uploads.put_part(asked, now))

    def complete_upload(self, asked: CompleteMultipartUpload, now: int) -> Answer:
        """Make the object."""
        made = self.uploads.assemble(asked)
        check_write(self._heads.get(asked.key), asked.if_none_match, asked.if_match)
        metadata = self.uploads.find(asked.key, asked.upload_id).asked.metadata
        self.uploads.end(asked.key, asked.upload_id)  # first, so that no room is needed for parts and object at once
        return Answer(200, self._write(asked.key, made.body, made.etag, metadata, now))

    def abort_upload(self, asked: AbortMultipartUpload, _now: int) -> Answer:
        """Return an upload up."""
        self.uploads.abort(asked)
        return Answer(204)

    def list_parts(self, asked: ListParts, _now: int) -> Answer:
        """Return a page of an upload's parts."""
        return Answer(200, self.uploads.list_parts(asked))

    def list_uploads(self, asked: ListMultipartUploads, _now: int) -> Answer:
        """Return a page of the uploads."""
        return Answer(200, self.uploads.list_uploads(asked))

    # Resumable uploads

    def begin_resumable(self, asked: BeginResumable, _now: int) -> Answer:
        """Begin an upload."""
        _check_key(asked.key)
        _check_metadata(asked.metadata)
        check_write(self._heads.get(asked.key), asked.if_none_match, asked.if_match)
        return Answer(200, self.resumables.begin(asked))

    def resumable_chunk(self, asked: ResumableChunk, now: int) -> Answer:
        """Write a chunk, and make the object if it was the last."""
        upload = self.resumables.find(asked)
        if upload.made is not None:
            return Answer(200, upload.made)
        if not self.resumables.take(upload, asked):
            return Answer(308, upload.head)
        begun, body = upload.asked, upload.body
        try:
            _check_digest(asked, body)
            check_write(self._heads.get(asked.key), begun.if_none_match, begun.if_match)
            made = self._write(asked.key, body, "", begun.metadata, now)
        except Refused:
            self.resumables.forget(upload)
            raise
        self.resumables.end(upload, made)
        return Answer(200, made)

    def forget_resumable(self, asked: ForgetResumable, _now: int) -> Answer:
        """Return an upload up."""
        self.resumables.forget(self.resumables.find(asked))
        return Answer(204)

    # What is kept

    def _find(self, key: str) -> ObjectHead:
        head = self._heads.get(key)
        if head is None:
            raise Refused("NoSuchKey")
        return head

    def _write(self, key: str, body: Content, etag: str, metadata: Metadata, now: int) -> ObjectHead:
        old = self._heads.get(key)
        self._room(len(body) - (old.length if old else 0))
        self._writes += 1
        if self._rules.etags is Etags.WRITE:
            name = b"%s write %d" % (self.name.encode(), self._writes)
            etag = hashlib.blake2b(name, digest_size=16).hexdigest()
        md5 = ""
        if self._rules.etags is Etags.GENERATION:
            etag, md5 = str(FIRST_GENERATION + self._writes), body.digest.hex()
        head = ObjectHead(key, len(body), etag, now - now % SECOND, metadata, md5)
        self._keep(head, body)
        return head

    def _keep(self, head: ObjectHead, body: Content) -> None:
        if head.key not in self._heads:
            bisect.insort(self._order, head.key.encode())
        self._heads[head.key] = head
        self._bodies[head.key] = body

    def _drop(self, key: str) -> Content:
        del self._heads[key]
        del self._order[bisect.bisect_left(self._order, key.encode())]
        return self._bodies.pop(key)

    def _remove(self, key: str) -> None:
        self._room(-len(self._drop(key)))


def _span(asked: ByteRange | LastBytes | None, length: int) -> tuple[int, int] | None:
    """Return where a range begins and ends; None if the whole object is meant."""
    if asked is None or (isinstance(asked, ByteRange) and asked.last is not None and asked.last < asked.first):
        return None  # RFC 9110: a range that makes no sense is not a range
    if isinstance(asked, LastBytes):
        if not asked.count:
            raise Refused("InvalidRange")
        return (max(0, length - asked.count), length) if length else None  # S3 answers 200 for an empty object
    if asked.first >= length:
        raise Refused("InvalidRange")
    return asked.first, length if asked.last is None else min(asked.last + 1, length)


def _check_digest(asked: ResumableChunk, body: Content) -> None:
    if asked.md5 and asked.md5 != body.digest.hex():
        raise Refused("BadDigest")


def _check_key(key: str) -> None:
    if not key:
        raise Refused("InvalidArgument", "A key cannot be empty")
    if len(key.encode()) > MAX_KEY_BYTES:
        raise Refused("KeyTooLongError")


def _check_metadata(metadata: Metadata) -> None:
    if sum(len(name.encode()) + len(value.encode()) for name, value in metadata) > MAX_METADATA_BYTES:
        raise Refused("MetadataTooLarge")
