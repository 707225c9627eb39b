"""Answers of the simulated storage as HTTP: status, headers and a body, as S3's REST interface has them."""

from __future__ import annotations

import datetime
from email.utils import formatdate
from urllib.parse import quote
from xml.sax.saxutils import escape

import attrs

from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.objects.content import EMPTY, Content
from iriscw_sims.objects.messages import (
    Answer,
    ByteRange,
    CompleteMultipartUpload,
    CopyObject,
    GetObject,
    HeadObject,
    LastBytes,
    Listing,
    ListObjectsV2,
    ObjectHead,
    Operation,
    PartHead,
    PartsPage,
    Request,
    UploadHead,
    UploadsPage,
)
from iriscw_sims.objects.serve.requests import META

_HEADER = '<?xml version="1.0" encoding="UTF-8"?>\n'


@attrs.frozen
class HttpAnswer:
    """One answer, ready to be sent."""

    status: int
    headers: dict[str, str]
    body: Content = EMPTY
    length: int = 0
    """What the body should have, in bytes: more than it has, where the connection breaks."""


def to_http(request: Request, answer: Answer, *, quoted: bool = False) -> HttpAnswer:
    """Say an answer to a request in HTTP; in listings, with keys quoted as in URLs if that was asked for."""
    operation, head = request.operation, answer.result
    if answer.code or answer.status >= 300:
        return _refusal(request, answer)
    if isinstance(operation, GetObject | HeadObject) and isinstance(head, ObjectHead):
        return _object(operation, answer, head)
    if isinstance(operation, CopyObject) and isinstance(head, ObjectHead):
        tags = {"ETag": f'"{head.etag}"', "LastModified": _time(head.last_modified)}
        return _xml(200, _element("CopyObjectResult", _elements(tags)))
    if isinstance(operation, CompleteMultipartUpload) and isinstance(head, ObjectHead):
        tags = {"Bucket": request.bucket, "Key": head.key, "ETag": f'"{head.etag}"'}
        return _xml(200, _element("CompleteMultipartUploadResult", _elements(tags)))
    match head:
        case ObjectHead() | PartHead():
            return HttpAnswer(answer.status, {"ETag": f'"{head.etag}"', "Content-Length": "0"})
        case UploadHead():
            tags = {"Bucket": request.bucket, "Key": head.key, "UploadId": head.upload_id}
            return _xml(200, _element("InitiateMultipartUploadResult", _elements(tags)))
        case Listing():
            return _xml(200, _listing(request.bucket, operation, head, quoted=quoted))
        case PartsPage():
            return _xml(200, _element("ListPartsResult", "".join(map(_part, head.parts))))
        case UploadsPage():
            return _xml(200, _element("ListMultipartUploadsResult", "".join(map(_upload, head.uploads))))
    return HttpAnswer(answer.status, {} if answer.status == 204 else {"Content-Length": "0"})


def _object(operation: GetObject | HeadObject, answer: Answer, head: ObjectHead) -> HttpAnswer:
    headers = {
        "Accept-Ranges": "bytes",
        "ETag": f'"{head.etag}"',
        "Last-Modified": formatdate(head.last_modified // SECOND, usegmt=True),
        **{META + name: value for name, value in head.metadata},
    }
    length = head.length
    if answer.status == 206 and isinstance(operation, GetObject):
        behind = _behind(operation.range, answer.first, head.length)
        length = behind - answer.first
        headers["Content-Range"] = f"bytes {answer.first}-{behind - 1}/{head.length}"
    headers["Content-Length"] = str(length)
    if isinstance(operation, HeadObject):
        return HttpAnswer(answer.status, headers)
    return HttpAnswer(answer.status, headers, answer.body, length)


def _behind(asked: ByteRange | LastBytes | None, first: int, length: int) -> int:
    """Return where a range ends, which the body does not tell if it was cut short."""
    if isinstance(asked, ByteRange) and asked.last is not None:
        return min(asked.last + 1, length)
    return length


def _refusal(request: Request, answer: Answer) -> HttpAnswer:
    if not answer.code:  # HEAD, or 304
        return HttpAnswer(answer.status, {"Content-Length": "0"})
    tags = {"Code": answer.code, "Message": answer.message, "BucketName": request.bucket}
    return _xml(answer.status, _element("Error", _elements(tags)))


def refused(answer: Answer) -> HttpAnswer:
    """Say no to what could not be read."""
    return _xml(answer.status, _element("Error", _elements({"Code": answer.code, "Message": answer.message})))


def elsewhere(request: Request, region: str) -> HttpAnswer:
    """Say that the bucket is in another region."""
    if isinstance(request.operation, HeadObject):
        return HttpAnswer(400, {"x-amz-bucket-region": region, "Content-Length": "0"})
    message = f"the region is wrong; expecting '{region}'"
    told = _element("Error", _elements({"Code": "AuthorizationHeaderMalformed", "Message": message, "Region": region}))
    answer = _xml(400, told)
    return attrs.evolve(answer, headers={**answer.headers, "x-amz-bucket-region": region})


def _listing(bucket: str, operation: Operation, page: Listing, *, quoted: bool) -> str:
    assert isinstance(operation, ListObjectsV2)
    shown = quote if quoted else str
    tags = {
        "Name": bucket,
        "Prefix": shown(operation.prefix),
        "MaxKeys": str(operation.max_keys),
        "KeyCount": str(len(page.objects) + len(page.common_prefixes)),
        **({"EncodingType": "url"} if quoted else {}),
        "IsTruncated": "true" if page.next_token else "false",
        **({"NextContinuationToken": page.next_token} if page.next_token else {}),
    }
    prefixes = (_element("CommonPrefixes", _elements({"Prefix": shown(each)})) for each in page.common_prefixes)
    return _element(
        "ListBucketResult",
        _elements(tags) + "".join(_entry(head, shown(head.key)) for head in page.objects) + "".join(prefixes),
    )


def _entry(head: ObjectHead, key: str) -> str:
    tags = {
        "Key": key,
        "LastModified": _time(head.last_modified),
        "ETag": f'"{head.etag}"',
        "Size": str(head.length),
        "StorageClass": "STANDARD",
    }
    return _element("Contents", _elements(tags))


def _part(head: PartHead) -> str:
    tags = {"PartNumber": str(head.number), "ETag": f'"{head.etag}"', "Size": str(head.length)}
    return _element("Part", _elements(tags))


def _upload(head: UploadHead) -> str:
    tags = {"Key": head.key, "UploadId": head.upload_id, "Initiated": _time(head.initiated)}
    return _element("Upload", _elements(tags))


def _time(moment: int) -> str:
    return f"{datetime.datetime.fromtimestamp(moment // SECOND, datetime.UTC):%Y-%m-%dT%H:%M:%S}.000Z"


def _element(name: str, inner: str) -> str:
    return f"<{name}>{inner}</{name}>"


def _elements(tags: dict[str, str]) -> str:
    return "".join(_element(name, escape(value)) for name, value in tags.items())


def _xml(status: int, text: str) -> HttpAnswer:
    body = Content((_HEADER + text).encode())
    headers = {"Content-Type": "application/xml", "Content-Length": str(len(body))}
    return HttpAnswer(status, headers, body, len(body))
