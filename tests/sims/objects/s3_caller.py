"""Operations on a real S3 server over HTTP, and its answers as the simulated storage would give them."""

import http.client
import re
import urllib.parse
from xml.etree import ElementTree

from iriscw_sims.objects.content import EMPTY, Content
from iriscw_sims.objects.messages import (
    AbortMultipartUpload,
    Answer,
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
    Listing,
    ListMultipartUploads,
    ListObjectsV2,
    ListParts,
    ObjectHead,
    PartHead,
    PartsPage,
    PutObject,
    UploadHead,
    UploadPart,
    UploadsPage,
)

SIGNED = "AWS4-HMAC-SHA256 Credential=any/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=any"
METHODS = {
    **dict.fromkeys((PutObject, UploadPart, CopyObject, CreateBucket), "PUT"),
    **dict.fromkeys((GetObject, ListObjectsV2, ListParts, ListMultipartUploads), "GET"),
    **dict.fromkeys((HeadObject, HeadBucket), "HEAD"),
    **dict.fromkeys((DeleteObject, AbortMultipartUpload, DeleteBucket), "DELETE"),
    **dict.fromkeys((CreateMultipartUpload, CompleteMultipartUpload), "POST"),
}
HEADERS = {"if_match": "If-Match", "if_none_match": "If-None-Match", "source_if_match": "x-amz-copy-source-if-match"}


class Caller:
    """Asks one server about one bucket, by path."""

    def __init__(self, port, bucket):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self.bucket = bucket

    def ask(self, operation):
        """Return a server's answer."""
        path = "/" + self.bucket + ("/" + urllib.parse.quote(key) if (key := getattr(operation, "key", "")) else "")
        query = urllib.parse.urlencode({name: value for name, value in query_of(operation).items() if value != ""})
        headers = {"Authorization": SIGNED, **headers_of(operation, self.bucket)}
        body = body_of(operation)
        self.connection.request(METHODS[type(operation)], f"{path}?{query}" if query else path, body, headers)
        response = self.connection.getresponse()
        return parsed(operation, response.status, dict(response.headers), response.read())


def query_of(operation):
    """Return a request's query."""
    match operation:
        case ListObjectsV2():
            return {
                "list-type": "2",
                "prefix": operation.prefix,
                "delimiter": operation.delimiter,
                "start-after": operation.start_after,
                "continuation-token": operation.continuation_token,
                "max-keys": operation.max_keys,
            }
        case CreateMultipartUpload():
            return {"uploads": " "}
        case UploadPart():
            return {"uploadId": operation.upload_id, "partNumber": operation.number}
        case CompleteMultipartUpload() | AbortMultipartUpload():
            return {"uploadId": operation.upload_id}
        case ListParts():
            return {"uploadId": operation.upload_id, "max-parts": operation.max_parts}
        case ListMultipartUploads():
            return {"uploads": " ", "prefix": operation.prefix}
    return {}


def headers_of(operation, bucket):
    """Return a request's own headers."""
    found = {}
    for name, header in HEADERS.items():
        value = getattr(operation, name, "")
        if value:
            found[header] = value if value == "*" else f'"{value}"'
    match operation:
        case GetObject(range=ByteRange(first, last)):
            found["Range"] = f"bytes={first}-{'' if last is None else last}"
        case GetObject(range=LastBytes(count)):
            found["Range"] = f"bytes=-{count}"
        case CopyObject():
            found["x-amz-copy-source"] = urllib.parse.quote(f"/{bucket}/{operation.source}")
    return found | {f"x-amz-meta-{name}": value for name, value in getattr(operation, "metadata", ())}


def body_of(operation):
    """Return a request's body."""
    if isinstance(operation, CompleteMultipartUpload):
        parts = "".join(
            f'<Part><PartNumber>{number}</PartNumber><ETag>"{tag}"</ETag></Part>' for number, tag in operation.parts
        )
        return f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
    return getattr(operation, "body", EMPTY).rendered() or None


def tag_of(text):
    """Return an entity tag without its quotes."""
    return (text or "").strip('"')


def parsed(operation, status, headers, body):
    """Return an answer as a value; times are left out."""
    xml = None
    if body.lstrip().startswith(b"<?xml") or body.lstrip().startswith(b"<Error"):
        text = re.sub(r' xmlns="[^"]*"', "", body.decode().strip())
        xml = ElementTree.fromstring(text)
        if xml.tag == "Error":
            return Answer(status, code=xml.findtext("Code"))
    if status >= 300:
        return Answer(status)
    match operation:
        case GetObject() | HeadObject():
            return read(operation, status, headers, body)
        case PutObject():
            return Answer(status, ObjectHead(operation.key, len(operation.body), tag_of(headers["ETag"]), 0))
        case UploadPart():
            return Answer(status, PartHead(operation.number, len(operation.body), tag_of(headers["ETag"]), 0))
        case CopyObject() | CompleteMultipartUpload():
            return Answer(status, ObjectHead(operation.key, 0, tag_of(xml.findtext("ETag")), 0))
        case CreateMultipartUpload():
            return Answer(status, UploadHead(operation.key, xml.findtext("UploadId"), 0))
        case ListObjectsV2():
            return Answer(status, listing(xml))
        case ListParts():
            parts = tuple(
                PartHead(int(each.findtext("PartNumber")), int(each.findtext("Size")), tag_of(each.findtext("ETag")), 0)
                for each in xml.findall("Part")
            )
            return Answer(status, PartsPage(parts))
        case ListMultipartUploads():
            uploads = [UploadHead(each.findtext("Key"), each.findtext("UploadId"), 0) for each in xml.findall("Upload")]
            return Answer(status, UploadsPage(tuple(uploads)))
    return Answer(status)


def read(operation, status, headers, body):
    """Return the answer to a reading."""
    headers = {name.lower(): value for name, value in headers.items()}
    span = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", headers.get("content-range", ""))
    length = int(span[2]) if span else int(headers["content-length"])
    metadata = tuple(
        (name.removeprefix("x-amz-meta-"), value)
        for name, value in sorted(headers.items())
        if name.startswith("x-amz-meta-")
    )
    head = ObjectHead(operation.key, length, tag_of(headers["etag"]), 0, metadata)
    return Answer(status, head, Content(body), int(span[1]) if span else 0)


def listing(xml):
    """Return a page."""
    objects = tuple(
        ObjectHead(each.findtext("Key"), int(each.findtext("Size")), tag_of(each.findtext("ETag")), 0)
        for each in xml.findall("Contents")
    )
    prefixes = tuple(each.findtext("Prefix") for each in xml.findall("CommonPrefixes"))
    return Listing(objects, prefixes, xml.findtext("NextContinuationToken") or "")
