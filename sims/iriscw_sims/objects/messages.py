"""What goes into the simulated object storage and what comes out of it: S3's operations as plain values.

The names are S3's. An empty condition is none; entity tags are without their quotes. ``if_none_match`` of a write
knows only ``*``: write if there is no such object.
"""

from __future__ import annotations

from typing import TypeAlias

import attrs

from iriscw_sims.objects.content import EMPTY, Content

Metadata: TypeAlias = tuple[tuple[str, str], ...]
"""An object's own metadata (``x-amz-meta-``), pairs of name and value."""


@attrs.frozen
class ByteRange:
    """From ``first`` to ``last``, both included, as in HTTP; without ``last``, to the end."""

    first: int
    last: int | None = None


@attrs.frozen
class LastBytes:
    """So many bytes at the end."""

    count: int


# Operations on objects


@attrs.frozen
class PutObject:
    """Write an object in one go."""

    key: str
    body: Content = EMPTY
    if_none_match: str = ""
    if_match: str = ""
    metadata: Metadata = ()


@attrs.frozen
class GetObject:
    """Read an object, or a range of it."""

    key: str
    range: ByteRange | LastBytes | None = None
    if_match: str = ""
    if_none_match: str = ""


@attrs.frozen
class HeadObject:
    """Ask for all but the content. A refusal has no body and so no code, only its status."""

    key: str
    if_match: str = ""
    if_none_match: str = ""


@attrs.frozen
class DeleteObject:
    """Delete an object; without a condition, one that is not there is deleted too."""

    key: str
    if_match: str = ""


@attrs.frozen
class CopyObject:
    """Write the content and the metadata of ``source`` to ``key``, in the same bucket."""

    key: str
    source: str
    if_none_match: str = ""
    if_match: str = ""
    source_if_match: str = ""


@attrs.frozen
class RenameObject:
    """Give an object another key in one step; it stays the same version."""

    key: str
    source: str
    if_none_match: str = ""
    if_match: str = ""
    source_if_match: str = ""


@attrs.frozen
class ListObjectsV2:
    """List objects in the order of their keys' bytes, rolled up at the ``delimiter``."""

    prefix: str = ""
    delimiter: str = ""
    start_after: str = ""
    continuation_token: str = ""
    max_keys: int = 1000
    start_at: str = ""
    """Google's: where the listing begins, included."""


@attrs.frozen
class StatObject:
    """Ask for all but the content, as Google does: a refusal says why."""

    key: str


# Multipart uploads


@attrs.frozen
class CreateMultipartUpload:
    """Begin to write an object in parts."""

    key: str
    metadata: Metadata = ()


@attrs.frozen
class UploadPart:
    """Write a part, or write it again."""

    key: str
    upload_id: str
    number: int
    body: Content = EMPTY


@attrs.frozen
class CompleteMultipartUpload:
    """Make the object out of ``parts``: pairs of number and entity tag, in rising order."""

    key: str
    upload_id: str
    parts: tuple[tuple[int, str], ...]
    if_none_match: str = ""
    if_match: str = ""


@attrs.frozen
class AbortMultipartUpload:
    """Give an upload up, with all its parts."""

    key: str
    upload_id: str


@attrs.frozen
class ListParts:
    """List the parts of an upload with numbers above the marker."""

    key: str
    upload_id: str
    part_number_marker: int = 0
    max_parts: int = 1000


@attrs.frozen
class ListMultipartUploads:
    """List the uploads that were neither completed nor aborted, by key and age."""

    prefix: str = ""
    key_marker: str = ""
    upload_id_marker: str = ""
    max_uploads: int = 1000


# Resumable uploads, which are Google's


@attrs.frozen
class BeginResumable:
    """Begin to write an object in chunks; the condition is judged now, and when it ends."""

    key: str
    if_none_match: str = ""
    if_match: str = ""
    metadata: Metadata = ()


@attrs.frozen
class ResumableChunk:
    """Write a chunk; or, without ``first``, ask how much there is."""

    key: str
    upload_id: str
    first: int | None = None
    """Where the chunk begins."""
    body: Content = EMPTY
    total: int | None = None
    """How long the object is, if that is known: when all of it is there, it appears."""
    md5: str = ""
    """Of the whole object, in hexadecimal; the one that ends the upload may say it."""


@attrs.frozen
class ForgetResumable:
    """Give an upload up."""

    key: str
    upload_id: str


# Buckets


@attrs.frozen
class CreateBucket:
    """Make the bucket of the request."""


@attrs.frozen
class HeadBucket:
    """Ask whether the bucket of the request is there."""


@attrs.frozen
class DeleteBucket:
    """Delete the bucket of the request, which must be empty."""


Operation: TypeAlias = (
    PutObject
    | GetObject
    | HeadObject
    | DeleteObject
    | CopyObject
    | RenameObject
    | ListObjectsV2
    | CreateMultipartUpload
    | UploadPart
    | CompleteMultipartUpload
    | AbortMultipartUpload
    | StatObject
    | BeginResumable
    | ResumableChunk
    | ForgetResumable
    | ListParts
    | ListMultipartUploads
    | CreateBucket
    | HeadBucket
    | DeleteBucket
)

READS = (GetObject, HeadObject, StatObject, ListObjectsV2, ListParts, ListMultipartUploads, HeadBucket)
"""Operations that change nothing."""


@attrs.frozen
class Request:
    """One request, signed with ``access_key``; ``""`` is not signed at all."""

    bucket: str
    operation: Operation
    access_key: str = ""
    path_style: bool = False

    @property
    def body(self) -> Content:
        """What is sent behind the request's head."""
        operation = self.operation
        return operation.body if isinstance(operation, PutObject | UploadPart | ResumableChunk) else EMPTY

    @property
    def conditional(self) -> bool:
        """Whether it is a write with a condition."""
        operation = self.operation
        return not isinstance(operation, READS) and bool(
            getattr(operation, "if_match", "") or getattr(operation, "if_none_match", "")
        )


# Answers


@attrs.frozen
class ObjectHead:
    """What is known of an object without reading it."""

    key: str
    length: int
    etag: str
    last_modified: int
    """ns since 1970, cut to the second as S3 tells it."""
    metadata: Metadata = ()
    md5: str = ""
    """In hexadecimal; told only where it is not the tag."""


@attrs.frozen
class Listing:
    """A page of a listing. ``next_token`` is empty on the last."""

    objects: tuple[ObjectHead, ...]
    common_prefixes: tuple[str, ...]
    next_token: str = ""


@attrs.frozen
class PartHead:
    """What is known of a part."""

    number: int
    length: int
    etag: str
    last_modified: int


@attrs.frozen
class UploadHead:
    """What is known of an upload."""

    key: str
    upload_id: str
    initiated: int


@attrs.frozen
class PartsPage:
    """Parts of an upload; ``next_marker`` is 0 on the last page."""

    parts: tuple[PartHead, ...]
    next_marker: int = 0


@attrs.frozen
class UploadsPage:
    """Uploads of a bucket; ``next_markers`` are key and id, None on the last page."""

    uploads: tuple[UploadHead, ...]
    next_markers: tuple[str, str] | None = None


@attrs.frozen
class ResumableHead:
    """What is known of a resumable upload."""

    upload_id: str
    received: int
    """Bytes."""


Result: TypeAlias = ObjectHead | Listing | PartHead | UploadHead | PartsPage | UploadsPage | ResumableHead | None


@attrs.frozen
class Answer:
    """One answer. A refusal has a ``code``, unless it answers a HEAD."""

    status: int
    result: Result = None
    body: Content = EMPTY
    first: int = 0
    """Where in the object the body begins."""
    code: str = ""
    message: str = ""

    @property
    def ok(self) -> bool:
        """Whether it was done. A multipart upload can fail under status 200."""
        return self.status < 300 and not self.code
