"""Resumable uploads, as Google has them: one object in chunks that come in order, made when the last byte is there.

An upload makes one object at most: asked again when it is over, it answers with the object that it made. A chunk that
overlaps what is there adds what is new of it; one that would leave a gap adds nothing. Both are told how much there is.
Every chunk but the last ends at a multiple of 256 KiB. Uploads take no room before they are over.
"""

from __future__ import annotations

import hashlib

import attrs

from iriscw_sims.objects.content import EMPTY, Content
from iriscw_sims.objects.messages import BeginResumable, ForgetResumable, ObjectHead, ResumableChunk, ResumableHead
from iriscw_sims.objects.refusals import Refused
from iriscw_sims.objects.rules import KIB

MULTIPLE_BYTES = 256 * KIB


@attrs.define
class Resumable:
    """An upload."""

    head: ResumableHead
    asked: BeginResumable
    body: Content = EMPTY
    made: ObjectHead | None = None
    """The object, once it is there."""


class Resumables:
    """The resumable uploads of one bucket.

    Args:
        bucket: its name: ids differ between buckets.
    """

    def __init__(self, bucket: str) -> None:
        self._bucket = bucket
        self._begun = 0
        self._uploads: dict[str, Resumable] = {}

    def __len__(self) -> int:
        """Return how many are not over."""
        return sum(upload.made is None for upload in self._uploads.values())

    def begin(self, asked: BeginResumable) -> ResumableHead:
        """Begin an upload."""
        self._begun += 1
        name = b"%s resumable %d" % (self._bucket.encode(), self._begun)
        head = ResumableHead(hashlib.blake2b(name, digest_size=16).hexdigest(), 0)
        self._uploads[head.upload_id] = Resumable(head, asked)
        return head

    def find(self, asked: ResumableChunk | ForgetResumable) -> Resumable:
        """Return an upload.

        Raises:
            Refused: NoSuchUpload: it was never begun, not for this key, or was given up.
        """
        upload = self._uploads.get(asked.upload_id)
        if upload is None or upload.asked.key != asked.key:
            raise Refused("NoSuchUpload")
        return upload

    def take(self, upload: Resumable, asked: ResumableChunk) -> bool:
        """Add a chunk, and tell whether the upload has all that belongs to it.

        Raises:
            Refused: InvalidRequest: its length is none that a chunk may have, or there is more than the whole.
        """
        if asked.first is not None:
            end = asked.first + len(asked.body)
            if asked.total is None and end % MULTIPLE_BYTES:
                raise Refused("InvalidRequest", f"A chunk that is not the last ends at a multiple of {MULTIPLE_BYTES}")
            has = len(upload.body)
            if asked.first <= has < end:
                upload.body = Content.joined((upload.body, asked.body.part(has - asked.first, len(asked.body))))
                upload.head = attrs.evolve(upload.head, received=len(upload.body))
        if asked.total is not None and len(upload.body) > asked.total:
            raise Refused("InvalidRequest", "There is more than the whole")
        return asked.total == len(upload.body)

    def end(self, upload: Resumable, made: ObjectHead) -> None:
        """Remember what an upload has made."""
        upload.made = made
        upload.body = EMPTY

    def forget(self, upload: Resumable) -> None:
        """Give an upload up; one that is over stays so."""
        if upload.made is None:
            del self._uploads[upload.head.upload_id]
