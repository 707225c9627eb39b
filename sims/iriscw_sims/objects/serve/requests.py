"""HTTP requests as the operations of the simulated storage: what S3's REST interface says, read.

The bucket stands in the path, or in the host's name below the served domain. A request is signed if it has an
``Authorization`` header of the form of signature version 4; of the signature itself nothing is checked but that it is
there, since the simulated storage knows no secrets. What is checked are the digests of the body.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, unquote

import attrs

from iriscw_sims.objects.content import EMPTY, Content
from iriscw_sims.objects.messages import (
    AbortMultipartUpload,
    ByteRange,
    CompleteMultipartUpload,
    CopyObject,
    CreateBucket,
    CreateMultipartUpload,
    DeleteBucket,
    DeleteObject,
    GetObject,
    HeadBucket,
    HeadObject,
    LastBytes,
    ListMultipartUploads,
    ListObjectsV2,
    ListParts,
    Metadata,
    Operation,
    PutObject,
    Request,
    UploadPart,
)
from iriscw_sims.objects.refusals import Refused

META = "x-amz-meta-"
UNSIGNED = "UNSIGNED-PAYLOAD"

LOCKED = "Content-MD5 OR x-amz-checksum- HTTP header is required for Put Object requests with Object Lock parameters"

_SIGNATURE = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/\s]+)/\d{8}/([a-z0-9-]+)/s3/aws4_request, "
    r"SignedHeaders=[a-z0-9;-]+, Signature=[0-9A-Za-z]+"
)
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_PART = re.compile(r"<Part>(.*?)</Part>", re.DOTALL)
_NUMBER = re.compile(r"<PartNumber>(\d+)</PartNumber>")
_TAG = re.compile(r"<ETag>(.*?)</ETag>")


@attrs.frozen
class HttpRequest:
    """One request as it came, names of headers in small letters."""

    method: str
    host: str
    """Without the port."""
    path: str
    """As it was sent, quoted."""
    query: str
    headers: Mapping[str, str]
    body: bytes = b""

    def header(self, name: str) -> str:
        """Return a header, or nothing."""
        return self.headers.get(name, "")


def read_request(http: HttpRequest, domain: str, *, locks: bool = False) -> tuple[Request, str]:
    """Return what a request asks for, and the region that it was signed for.

    Args:
        http: The request.
        domain: Below which hosts' names begin with a bucket.
        locks: Whether a body needs a digest beside the one that is signed.

    Raises:
        Refused: it is not signed, or not a request of S3's; or its body is not what its headers say.
    """
    bucket, key, path_style = _place(http, domain)
    signature = _SIGNATURE.fullmatch(http.header("authorization"))
    if http.header("authorization") and signature is None:
        raise Refused("InvalidArgument", "Unsupported Authorization Type")
    _check_body(http, signed=signature is not None)
    if locks and http.method == "PUT" and key and not http.header("content-md5"):
        raise Refused("InvalidRequest", LOCKED)
    query = dict(parse_qsl(http.query, keep_blank_values=True))
    operation = _in_bucket(http, query) if not key else _of_object(http, key, query)
    access_key, region = (signature[1], signature[2]) if signature else ("", "")
    return Request(bucket, operation, access_key, path_style), region


def _place(http: HttpRequest, domain: str) -> tuple[str, str, bool]:
    """Return bucket, key, and whether the bucket was in the path."""
    path = unquote(http.path).removeprefix("/")
    if http.host.endswith("." + domain):
        return http.host.removesuffix("." + domain), path, False
    bucket, _, key = path.partition("/")
    return bucket, key, True


def _check_body(http: HttpRequest, *, signed: bool) -> None:
    told = http.header("x-amz-content-sha256")
    if signed and told not in {"", UNSIGNED} and told != hashlib.sha256(http.body).hexdigest():
        raise Refused("XAmzContentSHA256Mismatch")
    digest = http.header("content-md5")
    if digest and digest != base64.b64encode(hashlib.md5(http.body, usedforsecurity=False).digest()).decode():
        raise Refused("BadDigest")


def _in_bucket(http: HttpRequest, query: Mapping[str, str]) -> Operation:
    match http.method:
        case "PUT":
            return CreateBucket()
        case "HEAD":
            return HeadBucket()
        case "DELETE":
            return DeleteBucket()
        case "GET" if "uploads" in query:
            return ListMultipartUploads(
                query.get("prefix", ""),
                query.get("key-marker", ""),
                query.get("upload-id-marker", ""),
                _number(query, "max-uploads", 1000),
            )
        case "GET" if query.get("list-type") == "2":
            return ListObjectsV2(
                query.get("prefix", ""),
                query.get("delimiter", ""),
                query.get("start-after", ""),
                query.get("continuation-token", ""),
                _number(query, "max-keys", 1000),
            )
    raise Refused("NotImplemented")


def _of_object(http: HttpRequest, key: str, query: Mapping[str, str]) -> Operation:
    return (_of_upload if {"uploads", "uploadId"} & {*query} else _whole)(http, key, query)


def _whole(http: HttpRequest, key: str, _query: Mapping[str, str]) -> Operation:
    if_match, if_none_match = _tag(http.header("if-match")), _tag(http.header("if-none-match"))
    match http.method:
        case "PUT" if "x-amz-copy-source" in http.headers:
            source = unquote(http.header("x-amz-copy-source")).removeprefix("/").partition("/")[2]
            return CopyObject(key, source, if_none_match, if_match, _tag(http.header("x-amz-copy-source-if-match")))
        case "PUT":
            return PutObject(key, Content(http.body) if http.body else EMPTY, if_none_match, if_match, _metadata(http))
        case "GET":
            return GetObject(key, _range(http.header("range")), if_match, if_none_match)
        case "HEAD":
            return HeadObject(key, if_match, if_none_match)
        case "DELETE":
            return DeleteObject(key, if_match)
    raise Refused("NotImplemented")


def _of_upload(http: HttpRequest, key: str, query: Mapping[str, str]) -> Operation:
    upload_id = query.get("uploadId", "")
    match http.method:
        case "POST" if not upload_id:
            return CreateMultipartUpload(key, _metadata(http))
        case "PUT" if upload_id:
            return UploadPart(key, upload_id, _number(query, "partNumber", 0), Content(http.body))
        case "POST":
            if_match, if_none_match = _tag(http.header("if-match")), _tag(http.header("if-none-match"))
            return CompleteMultipartUpload(key, upload_id, _parts(http.body), if_none_match, if_match)
        case "DELETE" if upload_id:
            return AbortMultipartUpload(key, upload_id)
        case "GET" if upload_id:
            marker, most = _number(query, "part-number-marker", 0), _number(query, "max-parts", 1000)
            return ListParts(key, upload_id, marker, most)
    raise Refused("NotImplemented")


def _parts(body: bytes) -> tuple[tuple[int, str], ...]:
    found = []
    for part in _PART.findall(body.decode(errors="replace")):
        number, tag = _NUMBER.search(part), _TAG.search(part)
        if number is None or tag is None:
            raise Refused("MalformedXML")
        found.append((int(number[1]), _tag(html.unescape(tag[1]))))
    return tuple(found)


def _range(said: str) -> ByteRange | LastBytes | None:
    found = _RANGE.fullmatch(said)
    if found is None or found.groups() == ("", ""):
        return None
    first, last = found.groups()
    return ByteRange(int(first), int(last) if last else None) if first else LastBytes(int(last))


def _metadata(http: HttpRequest) -> Metadata:
    return tuple(sorted((name[len(META) :], value) for name, value in http.headers.items() if name.startswith(META)))


def _tag(said: str) -> str:
    return said.strip('"')


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    said = query.get(name, "")
    if not said:
        return default
    if not (said.isascii() and said.isdigit()) or len(said) > 9:
        raise Refused("InvalidArgument", f"{name} is not a number")
    return int(said)
