"""Requests know what they carry."""

import pytest

from iriscw_sims.objects.content import EMPTY, Content
from iriscw_sims.objects.messages import (
    Answer,
    CompleteMultipartUpload,
    CopyObject,
    DeleteObject,
    GetObject,
    PutObject,
    Request,
    UploadPart,
)

BODY = Content(b"x")


@pytest.mark.parametrize(
    ("operation", "body", "conditional"),
    [
        (PutObject("k", BODY), BODY, False),
        (PutObject("k", BODY, if_none_match="*"), BODY, True),
        (UploadPart("k", "id", 1, BODY), BODY, False),
        (GetObject("k", if_match="tag"), EMPTY, False),
        (DeleteObject("k"), EMPTY, False),
        (DeleteObject("k", if_match="tag"), EMPTY, True),
        (CopyObject("k", "l", if_none_match="*"), EMPTY, True),
        (CompleteMultipartUpload("k", "id", (), if_match="tag"), EMPTY, True),
    ],
)
def test_bodies_and_conditions(operation, body, conditional):
    """What has to be moved, and what can meet a conflict."""
    request = Request("b", operation)
    assert (request.body, request.conditional) == (body, conditional)


def test_a_code_under_200_is_a_failure():
    """As completions of multipart uploads can have it."""
    assert Answer(200).ok
    assert not Answer(200, code="InternalError").ok
    assert not Answer(304).ok
