"""Answers of the simulated storage as HTTP: status, headers and a body, as Google's JSON interface has them."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote

from iriscw_sims.objects.content import Content
from iriscw_sims.objects.messages import (
    Answer,
    BeginResumable,
    ForgetResumable,
    GetObject,
    Listing,
    ObjectHead,
    PutObject,
    Request,
    ResumableChunk,
    ResumableHead,
)
from iriscw_sims.objects.refusals import refusal
from iriscw_sims.objects.serve.answers import HttpAnswer
from iriscw_sims.objects.serve.requests import HttpRequest

REASONS: dict[str, tuple[int, str]] = {
    "AccessDenied": (403, "forbidden"),
    "BadDigest": (400, "invalid"),
    "EntityTooLarge": (413, "uploadTooLarge"),
    "InternalError": (500, "backendError"),
    "InvalidAccessKeyId": (401, "authError"),
    "InvalidRange": (416, "requestedRangeNotSatisfiable"),
    "NoSuchBucket": (404, "notFound"),
    "NoSuchKey": (404, "notFound"),
    "NoSuchUpload": (404, "notFound"),
    "NotImplemented": (501, "notImplemented"),
    "PreconditionFailed": (412, "conditionNotMet"),
    "QuotaExceeded": (403, "quotaExceeded"),
    "ServiceUnavailable": (503, "backendError"),
    "SlowDown": (429, "rateLimitExceeded"),
}
"""Google's status and reason by the storage's code; others are 400, ``invalid``."""

CLIENT_CLOSED = 499
"""Google's answer to who gives an upload up."""


def to_http(request: Request, answer: Answer, asked: HttpRequest) -> HttpAnswer:
    """Say an answer to a request in HTTP."""
    operation, head = request.operation, answer.result
    if answer.code or (answer.status >= 300 and answer.status != 308):
        return _refusal(request, answer)
    if isinstance(operation, GetObject) and isinstance(head, ObjectHead):
        return _content(answer, operation, head)
    if isinstance(operation, ForgetResumable):
        return HttpAnswer(CLIENT_CLOSED, {"Content-Length": "0"})
    if isinstance(operation, BeginResumable) and isinstance(head, ResumableHead):
        name = quote(operation.key, safe="")
        where = f"/upload/storage/v1/b/{request.bucket}/o?uploadType=resumable&name={name}&upload_id={head.upload_id}"
        return HttpAnswer(200, {"Location": f"https://{asked.host}{where}", "Content-Length": "0"})
    match head:
        case ObjectHead():
            return _json(200, _resource(request.bucket, head))
        case ResumableHead():
            there = {"Range": f"bytes=0-{head.received - 1}"} if head.received else {}
            return HttpAnswer(308, {**there, "Content-Length": "0"})
        case Listing():
            items = {"items": [_resource(request.bucket, each) for each in head.objects]} if head.objects else {}
            more = {"nextPageToken": head.next_token} if head.next_token else {}
            return _json(200, {"kind": "storage#objects", **items, **more})
    return HttpAnswer(answer.status, {} if answer.status == 204 else {"Content-Length": "0"})


def refused(answer: Answer) -> HttpAnswer:
    """Say no to what could not be read."""
    return _error(answer.code, answer.message)


def _refusal(request: Request, answer: Answer) -> HttpAnswer:
    operation, code = request.operation, answer.code
    if code == "NoSuchKey" and isinstance(operation, PutObject | ResumableChunk | BeginResumable):
        code = "PreconditionFailed"  # of an object that is not there, no generation matches
    if code == "PreconditionFailed" and isinstance(operation, GetObject):
        code = "NoSuchKey"  # that generation is not there
    if code == "AccessDenied" and not request.access_key:
        code = "InvalidAccessKeyId"
    if isinstance(operation, GetObject):  # no JSON where content was asked for
        body = Content((answer.message or refusal(code).message).encode())
        headers = {"Content-Type": "text/html; charset=UTF-8", "Content-Length": str(len(body))}
        return HttpAnswer(REASONS.get(code, (400, ""))[0], headers, body, len(body))
    return _error(code, answer.message)


def _error(code: str, message: str) -> HttpAnswer:
    status, reason = REASONS.get(code, (400, "invalid"))
    told = {"code": status, "message": message, "errors": [{"message": message, "domain": "global", "reason": reason}]}
    return _json(status, {"error": told})


def _content(answer: Answer, operation: GetObject, head: ObjectHead) -> HttpAnswer:
    behind = head.length
    if operation.range is not None and (last := getattr(operation.range, "last", None)) is not None:
        behind = min(last + 1, head.length)
    length = behind - answer.first
    headers = {
        "Accept-Ranges": "bytes",
        "Content-Length": str(length),
        "Content-Type": "application/octet-stream",
        "X-Goog-Generation": head.etag,
        "X-Goog-Stored-Content-Encoding": "identity",
        "X-Goog-Stored-Content-Length": str(head.length),
    }
    if answer.status == 206:
        headers["Content-Range"] = f"bytes {answer.first}-{behind - 1}/{head.length}"
    return HttpAnswer(answer.status, headers, answer.body, length)


def _resource(bucket: str, head: ObjectHead) -> dict[str, Any]:
    return {
        "kind": "storage#object",
        "bucket": bucket,
        "name": head.key,
        "size": str(head.length),
        "generation": head.etag,
        "metageneration": "1",
        "md5Hash": base64.b64encode(bytes.fromhex(head.md5)).decode(),
        **({"metadata": dict(head.metadata)} if head.metadata else {}),
    }


def _json(status: int, told: dict[str, Any]) -> HttpAnswer:
    body = Content(json.dumps(told).encode())
    headers = {"Content-Type": "application/json; charset=UTF-8", "Content-Length": str(len(body))}
    return HttpAnswer(status, headers, body, len(body))
