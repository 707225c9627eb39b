"""HTTP requests as the operations of the simulated storage: what Google's JSON interface says, read.

Conditions are numbers of generations, which are the storage's tags; 0 is "there is none". Of the parts of an upload in
one request, metadata and content, the digest that the first one says is checked against the second.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote

from iriscw_sims.objects.conditions import ANY
from iriscw_sims.objects.content import EMPTY, Content
from iriscw_sims.objects.messages import (
    BeginResumable,
    ByteRange,
    DeleteObject,
    ForgetResumable,
    GetObject,
    HeadBucket,
    ListObjectsV2,
    Metadata,
    Operation,
    PutObject,
    Request,
    ResumableChunk,
    StatObject,
)
from iriscw_sims.objects.refusals import Refused
from iriscw_sims.objects.serve.requests import HttpRequest

_PLACE = re.compile(r"(/upload)?/storage/v1/b/([^/]+)(/o(/([^/]+))?)?")
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")
_CONTENT_RANGE = re.compile(r"bytes (\*|(\d+)-(\d+))/(\*|\d+)")
_BOUNDARY = re.compile(r'multipart/related; boundary="?([^";]+)"?')


def read_request(http: HttpRequest, access_key: str) -> Request:
    """Return what a request asks for.

    Raises:
        Refused: it is not a request of Google's, or its body is not what it says.
    """
    found = _PLACE.fullmatch(http.path)
    if found is None:
        raise Refused("NotImplemented")
    bucket, name = unquote(found[2]), unquote(found[5] or "")
    query = dict(parse_qsl(http.query, keep_blank_values=True))
    if found[1]:
        operation = _upload(http, query)
    elif name:
        operation = _of_object(http, name, query)
    else:
        operation = _in_bucket(http, query, listed=bool(found[3]))
    return Request(bucket, operation, access_key)


def _in_bucket(http: HttpRequest, query: Mapping[str, str], *, listed: bool) -> Operation:
    if http.method != "GET":
        raise Refused("NotImplemented")
    if not listed:
        return HeadBucket()
    return ListObjectsV2(
        query.get("prefix", ""),
        query.get("delimiter", ""),
        continuation_token=query.get("pageToken", ""),
        max_keys=int(query.get("maxResults", "1000")),
        start_at=query.get("startOffset", ""),
    )


def _of_object(http: HttpRequest, name: str, query: Mapping[str, str]) -> Operation:
    match http.method:
        case "GET" if query.get("alt") == "media":
            span = _RANGE.fullmatch(http.header("range"))
            wanted = ByteRange(int(span[1]), int(span[2]) if span[2] else None) if span is not None else None
            return GetObject(name, wanted, query.get("generation", ""))
        case "GET":
            return StatObject(name)
        case "DELETE":
            return DeleteObject(name, query.get("ifGenerationMatch", ""))
    raise Refused("NotImplemented")


def _upload(http: HttpRequest, query: Mapping[str, str]) -> Operation:
    if upload_id := query.get("upload_id", ""):
        return _of_session(http, query.get("name", ""), upload_id)
    if http.method != "POST":
        raise Refused("NotImplemented")
    generation = query.get("ifGenerationMatch", "")
    if_none_match, if_match = (ANY, "") if generation == "0" else ("", generation)
    if query.get("uploadType") == "resumable":
        said = _json(http.body)
        return BeginResumable(str(said.get("name", "")), if_none_match, if_match, _metadata(said))
    said, content = _related(http)
    digest = base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()
    if said.get("md5Hash", digest) != digest:
        raise Refused("BadDigest")
    body = Content(content) if content else EMPTY
    return PutObject(str(said.get("name", "")), body, if_none_match, if_match, _metadata(said))


def _of_session(http: HttpRequest, name: str, upload_id: str) -> Operation:
    if http.method == "DELETE":
        return ForgetResumable(name, upload_id)
    found = _CONTENT_RANGE.fullmatch(http.header("content-range"))
    if http.method != "PUT" or found is None:
        raise Refused("InvalidRequest", "An upload needs a Content-Range")
    total = None if found[4] == "*" else int(found[4])
    if found[2] is None:
        return ResumableChunk(name, upload_id, total=total)
    if int(found[3]) + 1 - int(found[2]) != len(http.body):
        raise Refused("InvalidRequest", "The body is not as long as its range")
    md5 = ""
    if http.header("x-goog-hash"):
        try:
            md5 = base64.b64decode(http.header("x-goog-hash").removeprefix("md5="), validate=True).hex()
        except binascii.Error as error:
            raise Refused("InvalidRequest", "X-Goog-Hash is none") from error
    return ResumableChunk(name, upload_id, int(found[2]), Content(http.body), total, md5)


def _related(http: HttpRequest) -> tuple[dict[str, Any], bytes]:
    """Return metadata and content of a body that has both."""
    boundary = _BOUNDARY.fullmatch(http.header("content-type"))
    edge = b"--" + boundary[1].encode() if boundary is not None else b""
    if not edge or not http.body.startswith(edge + b"\r\n") or not http.body.rstrip().endswith(edge + b"--"):
        raise Refused("InvalidRequest", "Multipart body has no parts")
    inner = http.body[len(edge) + 2 : http.body.rindex(b"\r\n" + edge + b"--")]
    first, _, second = inner.partition(b"\r\n" + edge + b"\r\n")
    return _json(_behind_headers(first)), _behind_headers(second)


def _behind_headers(part: bytes) -> bytes:
    return (b"\r\n" + part).partition(b"\r\n\r\n")[2]


def _json(body: bytes) -> dict[str, Any]:
    try:
        said = json.loads(body)
    except ValueError as error:
        raise Refused("InvalidRequest", "Parse Error") from error
    if not isinstance(said, dict):
        raise Refused("InvalidRequest", "Parse Error")
    return said


def _metadata(said: Mapping[str, Any]) -> Metadata:
    return tuple(sorted((str(name), str(value)) for name, value in said.get("metadata", {}).items()))
