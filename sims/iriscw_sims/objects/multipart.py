"""Multipart uploads: an object in parts that may come in any order, and appears as a whole when it is completed.

An upload lives until it is completed or aborted; CoreWeave never forgets one, and its parts take room. A part that is
written again replaces the earlier one. Only when the parts are named at the end are their sizes judged: all but the
last must have the least size. Several uploads to one key do not know of each other; the last one completed wins.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable

import attrs

from iriscw_sims.objects.content import Content
from iriscw_sims.objects.messages import (
    AbortMultipartUpload,
    CompleteMultipartUpload,
    CreateMultipartUpload,
    ListMultipartUploads,
    ListParts,
    PartHead,
    PartsPage,
    UploadHead,
    UploadPart,
    UploadsPage,
)
from iriscw_sims.objects.refusals import Refused
from iriscw_sims.objects.rules import MAX_KEYS, Rules


@attrs.frozen
class Part:
    """A part with its content."""

    head: PartHead
    body: Content


@attrs.define
class Upload:
    """An upload that is neither completed nor aborted."""

    head: UploadHead
    asked: CreateMultipartUpload
    parts: dict[int, Part] = attrs.Factory(dict)


@attrs.frozen
class Assembled:
    """What a completed upload makes."""

    body: Content
    etag: str


class Uploads:
    """The uploads of one bucket.

    Args:
        bucket: its name: ids differ between buckets.
        rules: the service's.
        room: told how many bytes are about to come or go; may refuse.
    """

    def __init__(self, bucket: str, rules: Rules, room: Callable[[int], None]) -> None:
        self._bucket = bucket
        self._rules = rules
        self._room = room
        self._begun = 0
        self._uploads: dict[str, Upload] = {}

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._uploads)

    def create(self, asked: CreateMultipartUpload, now: int) -> UploadHead:
        """Begin an upload."""
        self._begun += 1
        name = b"%s upload %d" % (self._bucket.encode(), self._begun)
        upload_id = hashlib.blake2b(name, digest_size=16).hexdigest()
        head = UploadHead(asked.key, upload_id, now)
        self._uploads[upload_id] = Upload(head, asked)
        return head

    def find(self, key: str, upload_id: str) -> Upload:
        """Return an upload.

        Raises:
            Refused: NoSuchUpload: it was never begun, not for this key, or is over.
        """
        upload = self._uploads.get(upload_id)
        if upload is None or upload.head.key != key:
            raise Refused("NoSuchUpload")
        return upload

    def put_part(self, asked: UploadPart, now: int) -> PartHead:
        """Write a part.

        Raises:
            Refused: NoSuchUpload, InvalidArgument, EntityTooLarge, QuotaExceeded.
        """
        upload = self.find(asked.key, asked.upload_id)
        most = self._rules.most_parts
        if not 1 <= asked.number <= most:
            raise Refused("InvalidArgument", f"Part number must be an integer between 1 and {most}, inclusive")
        if len(asked.body) > self._rules.most_part_bytes:
            raise Refused("EntityTooLarge")
        old = upload.parts.get(asked.number)
        self._room(len(asked.body) - (len(old.body) if old else 0))
        head = PartHead(asked.number, len(asked.body), asked.body.digest.hex(), now)
        upload.parts[asked.number] = Part(head, asked.body)
        return head

    def assemble(self, asked: CompleteMultipartUpload) -> Assembled:
        """Return what a completion makes; the upload is as before.

        Raises:
            Refused: NoSuchUpload, MalformedXML, InvalidPartOrder, InvalidPart, EntityTooSmall, EntityTooLarge.
        """
        upload = self.find(asked.key, asked.upload_id)
        if not 1 <= len(asked.parts) <= self._rules.most_parts:
            raise Refused("MalformedXML")
        numbers = [number for number, _ in asked.parts]
        if any(later <= earlier for earlier, later in itertools.pairwise(numbers)):
            raise Refused("InvalidPartOrder")
        chosen = []
        for number, etag in asked.parts:
            part = upload.parts.get(number)
            if part is None or part.head.etag != etag:
                raise Refused("InvalidPart")
            chosen.append(part)
        if any(len(part.body) < self._rules.least_part_bytes for part in chosen[:-1]):
            raise Refused("EntityTooSmall")
        body = Content.joined(part.body for part in chosen)
        if len(body) > self._rules.most_object_bytes:
            raise Refused("EntityTooLarge")
        digests = b"".join(part.body.digest for part in chosen)
        etag = hashlib.md5(digests, usedforsecurity=False).hexdigest()
        return Assembled(body, f"{etag}-{len(chosen)}")

    def end(self, key: str, upload_id: str) -> None:
        """Forget an upload with its parts.

        Raises:
            Refused: NoSuchUpload.
        """
        upload = self.find(key, upload_id)
        del self._uploads[upload_id]
        self._room(-sum(len(part.body) for part in upload.parts.values()))

    def end_all(self) -> None:
        """Forget them all: the bucket goes."""
        for head in [upload.head for upload in self._uploads.values()]:
            self.end(head.key, head.upload_id)

    def abort(self, asked: AbortMultipartUpload) -> None:
        """Give an upload up.

        Raises:
            Refused: NoSuchUpload.
        """
        self.end(asked.key, asked.upload_id)

    def list_parts(self, asked: ListParts) -> PartsPage:
        """Return a page of an upload's parts.

        Raises:
            Refused: NoSuchUpload, InvalidArgument.
        """
        upload = self.find(asked.key, asked.upload_id)
        limit = _limit(asked.max_parts)
        numbers = sorted(number for number in upload.parts if number > asked.part_number_marker)
        page = tuple(upload.parts[number].head for number in numbers[:limit])
        return PartsPage(page, page[-1].number if page and len(numbers) > limit else 0)

    def list_uploads(self, asked: ListMultipartUploads) -> UploadsPage:
        """Return a page of the uploads, by key and then in the order in which they were begun.

        Raises:
            Refused: InvalidArgument.
        """
        limit = _limit(asked.max_uploads)
        found = [head for each in self._uploads.values() if (head := each.head).key.startswith(asked.prefix)]
        found.sort(key=lambda head: head.key.encode())  # stable: among equals, as begun
        if asked.key_marker:
            found = found[_behind(found, asked.key_marker, asked.upload_id_marker) :]
        page = tuple(found[:limit])
        return UploadsPage(page, (page[-1].key, page[-1].upload_id) if page and len(found) > limit else None)


def _behind(found: list[UploadHead], key: str, upload_id: str) -> int:
    """Return where the uploads behind a marker begin; one without an id is behind all of its key's."""
    for number, head in enumerate(found):
        if head.key.encode() > key.encode():
            return number
        if upload_id and (head.key, head.upload_id) == (key, upload_id):
            return number + 1
    return len(found)


def _limit(asked: int) -> int:
    if asked < 0:
        raise Refused("InvalidArgument", "A number of results cannot be negative")
    return min(asked, MAX_KEYS)
