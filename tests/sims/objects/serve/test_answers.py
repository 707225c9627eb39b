"""Answers in HTTP: what a body's end alone could tell is in the headers."""

from iriscw_sims.objects.content import Content
from iriscw_sims.objects.messages import (
    Answer,
    ByteRange,
    CompleteMultipartUpload,
    GetObject,
    HeadObject,
    Listing,
    ListObjectsV2,
    ObjectHead,
    Request,
)
from iriscw_sims.objects.refusals import refusal, told
from iriscw_sims.objects.serve.answers import elsewhere, to_http

HEAD = ObjectHead("a<b>&c d", 10, "e", 0, (("made", "by"),))


def text(answer):
    """Return a body as text."""
    return answer.body.rendered().decode()


def test_a_body_that_was_cut_keeps_its_length() -> None:
    """The whole's, or that of the range."""
    whole = to_http(Request("b", GetObject("k")), Answer(200, HEAD, Content(b"012")))
    assert (whole.headers["Content-Length"], whole.length, len(whole.body)) == ("10", 10, 3)
    part = to_http(Request("b", GetObject("k", ByteRange(2, 99))), Answer(206, HEAD, Content(b"2"), 2))
    assert part.headers["Content-Range"] == "bytes 2-9/10"
    assert (part.headers["Content-Length"], part.length) == ("8", 8)


def test_a_head_has_headers_only() -> None:
    """Length and metadata of what is not sent; a refusal has no code."""
    answer = to_http(Request("b", HeadObject("k")), Answer(200, HEAD))
    assert (answer.headers["Content-Length"], answer.headers["x-amz-meta-made"], answer.length) == ("10", "by", 0)
    no = to_http(Request("b", HeadObject("k")), told(HeadObject("k"), refusal("NoSuchKey")))
    assert (no.status, len(no.body)) == (404, 0)


def test_names_are_escaped() -> None:
    """In XML; and quoted as in URLs, if that was asked for."""
    request, answer = Request("b", ListObjectsV2()), Answer(200, Listing((HEAD,), ("p/",), "next"))
    assert "<Key>a&lt;b&gt;&amp;c d</Key>" in text(to_http(request, answer))
    quoted = text(to_http(request, answer, quoted=True))
    assert "<Key>a%3Cb%3E%26c%20d</Key>" in quoted
    assert "<IsTruncated>true</IsTruncated>" in quoted


def test_a_completion_that_fails_under_200() -> None:
    """Says so in its body alone."""
    answer = Answer(200, code="InternalError", message="m")
    told_so = to_http(Request("b", CompleteMultipartUpload("k", "u", ())), answer)
    assert told_so.status == 200
    assert "<Code>InternalError</Code>" in text(told_so)


def test_another_region() -> None:
    """Is named in a header, and in the body of what has one."""
    assert elsewhere(Request("b", HeadObject("k")), "eu-1").headers["x-amz-bucket-region"] == "eu-1"
    assert "<Region>eu-1</Region>" in text(elsewhere(Request("b", GetObject("k")), "eu-1"))
