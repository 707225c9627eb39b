"""HTTP requests as operations: a table of what S3's clients send."""

import pytest

from iriscw_sims.objects.content import Content
from iriscw_sims.objects.messages import (
    AbortMultipartUpload,
    ByteRange,
    CompleteMultipartUpload,
    CopyObject,
    CreateBucket,
    CreateMultipartUpload,
    DeleteObject,
    GetObject,
    HeadBucket,
    LastBytes,
    ListObjectsV2,
    ListParts,
    PutObject,
    UploadPart,
)
from iriscw_sims.objects.refusals import Refused
from iriscw_sims.objects.serve.requests import HttpRequest, read_request

SIGNED = {
    "authorization": "AWS4-HMAC-SHA256 Credential=KEY/20260101/eu-1/s3/aws4_request, "
    f"SignedHeaders=host;x-amz-date, Signature={'0' * 64}"
}
LISTING = "list-type=2&prefix=a%2F&start-after=a%2Fb&max-keys=7"
PARTS = (
    b"<CompleteMultipartUpload><Part><ETag>&quot;aa&quot;</ETag><PartNumber>1</PartNumber></Part>"
    b'<Part><PartNumber>3</PartNumber><ETag>"bb"</ETag></Part></CompleteMultipartUpload>'
)


@pytest.mark.parametrize(
    ("method", "path", "query", "headers", "body", "operation"),
    [
        ("PUT", "/b", "", {}, b"", CreateBucket()),
        ("HEAD", "/b/", "", {}, b"", HeadBucket()),
        ("PUT", "/b/a%2Fb%20c", "", {"if-none-match": "*"}, b"x", PutObject("a/b c", Content(b"x"), "*")),
        ("PUT", "/b/k", "", {"if-match": '"e"'}, b"", PutObject("k", if_match="e")),
        ("PUT", "/b/k", "", {"x-amz-meta-a": "1"}, b"", PutObject("k", metadata=(("a", "1"),))),
        ("PUT", "/b/k", "", {"x-amz-copy-source": "/b/l%20m"}, b"", CopyObject("k", "l m")),
        ("GET", "/b/k", "", {"range": "bytes=3-7"}, b"", GetObject("k", ByteRange(3, 7))),
        ("GET", "/b/k", "", {"range": "bytes=3-"}, b"", GetObject("k", ByteRange(3))),
        ("GET", "/b/k", "", {"range": "bytes=-7"}, b"", GetObject("k", LastBytes(7))),
        ("GET", "/b/k", "", {"range": "bytes=-"}, b"", GetObject("k")),
        ("DELETE", "/b/k", "", {"if-match": '"e"'}, b"", DeleteObject("k", "e")),
        ("GET", "/b", LISTING, {}, b"", ListObjectsV2("a/", start_after="a/b", max_keys=7)),
        ("POST", "/b/k", "uploads", {}, b"", CreateMultipartUpload("k")),
        ("PUT", "/b/k", "uploadId=u&partNumber=2", {}, b"x", UploadPart("k", "u", 2, Content(b"x"))),
        ("POST", "/b/k", "uploadId=u", {}, PARTS, CompleteMultipartUpload("k", "u", ((1, "aa"), (3, "bb")))),
        ("DELETE", "/b/k", "uploadId=u", {}, b"", AbortMultipartUpload("k", "u")),
        ("GET", "/b/k", "uploadId=u", {}, b"", ListParts("k", "u")),
    ],
)  # fmt: skip
def test_requests(method, path, query, headers, body, operation) -> None:
    """By path and by host they are the same, but for the style."""
    for host, where, style in (("127.0.0.1", path, True), ("b.svc", path.removeprefix("/b") or "/", False)):
        http = HttpRequest(method, host, where, query, {**SIGNED, **headers}, body)
        request, region = read_request(http, "svc")
        assert (request.bucket, request.operation) == ("b", operation)
        assert (request.access_key, request.path_style, region) == ("KEY", style, "eu-1")


def test_without_a_signature() -> None:
    """There is no key; the storage decides what that means."""
    request, region = read_request(HttpRequest("GET", "h", "/b/k", "", {}), "svc")
    assert (request.access_key, region) == ("", "")


@pytest.mark.parametrize(
    ("method", "query", "body"),
    [("POST", "", b""), ("PUT", "uploadId=u&partNumber=x", b""), ("POST", "uploadId=u", b"<Part></Part>")],
)
def test_what_is_no_request(method, query, body) -> None:
    """Is refused, and is no bug."""
    with pytest.raises(Refused):
        read_request(HttpRequest(method, "h", "/b/k", query, SIGNED, body), "svc")
