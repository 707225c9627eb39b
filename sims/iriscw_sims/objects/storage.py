"""A simulated object storage service: requests in, answers out, synchronous and deterministic.

Theory of operation. :class:`ObjectStorage` is the service as a value: buckets, access keys and their limits.
:meth:`ObjectStorage.handle` judges the request as S3 does, in this order: how the bucket is addressed, who asks,
whether the bucket is there, and then the operation itself. What it answers is the truth at that moment, and the next
request sees it (strong read-after-write). Time is given; nothing else of the outside is read.

Faults are not here: :mod:`iriscw_sims.objects.front` puts a network and an unreliable server in front. Here is only
what the service does to its clients by its own rules: refusals, limits, and access keys that do not work yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from iriscw._errors import InvalidArgument
from iriscw_sims.objects.bucket import Bucket
from iriscw_sims.objects.content import Content
from iriscw_sims.objects.messages import (
    AbortMultipartUpload,
    Answer,
    BeginResumable,
    CompleteMultipartUpload,
    CopyObject,
    CreateBucket,
    CreateMultipartUpload,
    DeleteBucket,
    DeleteObject,
    ForgetResumable,
    GetObject,
    HeadBucket,
    HeadObject,
    ListMultipartUploads,
    ListObjectsV2,
    ListParts,
    PutObject,
    RenameObject,
    Request,
    ResumableChunk,
    StatObject,
    UploadPart,
)
from iriscw_sims.objects.refusals import Refused, told
from iriscw_sims.objects.rules import COREWEAVE, Rules

VERBS: dict[type, Callable[[Bucket, Any, int], Answer]] = {
    PutObject: Bucket.put,
    GetObject: Bucket.get,
    HeadObject: Bucket.head,
    DeleteObject: Bucket.delete,
    CopyObject: Bucket.copy,
    RenameObject: Bucket.rename,
    ListObjectsV2: Bucket.list,
    CreateMultipartUpload: Bucket.create_upload,
    UploadPart: Bucket.upload_part,
    CompleteMultipartUpload: Bucket.complete_upload,
    AbortMultipartUpload: Bucket.abort_upload,
    ListParts: Bucket.list_parts,
    ListMultipartUploads: Bucket.list_uploads,
    StatObject: Bucket.stat,
    BeginResumable: Bucket.begin_resumable,
    ResumableChunk: Bucket.resumable_chunk,
    ForgetResumable: Bucket.forget_resumable,
}
"""What is done for each operation inside a bucket."""


@attrs.define
class _Key:
    works_from: int
    denied_until: int = 0


class ObjectStorage:
    """One service with all its buckets.

    Args:
        rules: which service it is.
    """

    def __init__(self, rules: Rules = COREWEAVE) -> None:
        self.rules = rules
        self.buckets: dict[str, Bucket] = {}
        self.stored_bytes = 0
        """Of all objects and all parts of unfinished uploads."""
        self._keys: dict[str, _Key] = {}

    # Access keys

    def add_key(self, access_key: str, works_from: int = 0) -> None:
        """Make an access key that is denied before ``works_from``, ns: CoreWeave's take seconds to propagate.

        Raises:
            InvalidArgument: it is empty.
        """
        if not access_key:
            raise InvalidArgument("an access key cannot be empty")
        self._keys[access_key] = _Key(works_from)

    def deny_key(self, access_key: str, until: int) -> None:
        """Deny a key for a while, up to a time in ns; one that does not exist stays so."""
        if access_key in self._keys:
            self._keys[access_key].denied_until = until

    def remove_key(self, access_key: str) -> None:
        """Forget a key, if there is one."""
        self._keys.pop(access_key, None)

    # Requests

    def handle(self, request: Request, now: int) -> Answer:
        """Answer a request at a time, ns since 1970. All of it happens, or nothing."""
        try:
            return self._handle(request, now)
        except Refused as refused:
            return told(request.operation, refused.answer)

    def body(self, bucket: str, key: str) -> Content | None:
        """Return the truth about an object, None if it is not there: for checks, not for clients."""
        return self.buckets[bucket].body(key) if bucket in self.buckets else None

    def _handle(self, request: Request, now: int) -> Answer:
        if request.path_style and not self.rules.path_style:
            raise Refused("PathStyleRequestNotAllowed")
        self._admit(request.access_key, now)
        match request.operation:
            case CreateBucket():
                return self._create_bucket(request.bucket)
            case HeadBucket():
                self._find(request.bucket)
                return Answer(200)
            case DeleteBucket():
                return self._delete_bucket(request.bucket)
        return VERBS[type(request.operation)](self._find(request.bucket), request.operation, now)

    def _admit(self, access_key: str, now: int) -> None:
        if not access_key:
            raise Refused("AccessDenied")
        key = self._keys.get(access_key)
        if key is None:
            raise Refused("InvalidAccessKeyId")
        if now < max(key.works_from, key.denied_until):
            raise Refused("AccessDenied")

    def _find(self, name: str) -> Bucket:
        bucket = self.buckets.get(name)
        if bucket is None:
            raise Refused("NoSuchBucket")
        return bucket

    def _create_bucket(self, name: str) -> Answer:
        if not self.rules.allows_bucket(name):
            raise Refused("InvalidBucketName")
        if name in self.buckets:
            raise Refused("BucketAlreadyOwnedByYou")
        if len(self.buckets) >= self.rules.most_buckets:
            raise Refused("TooManyBuckets")
        self.buckets[name] = Bucket(name, self.rules, self._take)
        return Answer(200)

    def _delete_bucket(self, name: str) -> Answer:
        bucket = self._find(name)
        if len(bucket):
            raise Refused("BucketNotEmpty")
        bucket.uploads.end_all()
        del self.buckets[name]
        return Answer(204)

    def _take(self, more: int) -> None:
        """Take room for so many bytes more, or give back."""
        after = self.stored_bytes + more
        if more > 0 and 0 < self.rules.capacity_bytes < after:
            raise Refused("QuotaExceeded")
        self.stored_bytes = after
