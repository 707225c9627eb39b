"""Resumable uploads: what is taken, what is told, and what they make."""

import pytest
from hypothesis import given, strategies as st
from objects_world import BUCKET, KEY, made

from iriscw_sims.objects.content import Content, Sized
from iriscw_sims.objects.messages import (
    BeginResumable,
    DeleteObject,
    ForgetResumable,
    PutObject,
    Request,
    ResumableChunk,
    StatObject,
)
from iriscw_sims.objects.resumable import MULTIPLE_BYTES
from iriscw_sims.objects.rules import GOOGLE

WHOLE = Content(Sized(3 * MULTIPLE_BYTES + 7, 1))


@pytest.fixture
def ask():
    storage = made(GOOGLE)
    return lambda operation: storage.handle(Request(BUCKET, operation, KEY), 0)


def chunk(upload, first, end, total=None, **said):
    return ResumableChunk("k", upload, first, WHOLE.part(first, end), total, **said)


def begun(ask, **said):
    return ask(BeginResumable("k", **said)).result.upload_id


def test_chunks_make_an_object_once(ask):
    """Asked again, the upload tells what it has made, whoever has written since."""
    upload = begun(ask, metadata=(("a", "b"),))
    first = ask(chunk(upload, 0, MULTIPLE_BYTES))
    assert (first.status, first.result.received) == (308, MULTIPLE_BYTES)
    last = ask(chunk(upload, MULTIPLE_BYTES, len(WHOLE), len(WHOLE)))
    assert (last.status, last.result.length, last.result.metadata) == (200, len(WHOLE), (("a", "b"),))
    newer = ask(PutObject("k", Content(b"x"))).result
    assert int(newer.etag) > int(last.result.etag)
    assert ask(ResumableChunk("k", upload, total=len(WHOLE))).result == last.result
    assert ask(StatObject("k")).result == newer


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4)), max_size=12))
def test_any_order_of_chunks(drawn):
    """What overlaps adds what is new, what leaves a gap adds nothing; how much there is, is always told."""
    storage = made(GOOGLE)

    def ask(operation):
        return storage.handle(Request(BUCKET, operation, KEY), 0)

    upload, received = begun(ask), 0
    for start, count in drawn:
        first, end = start * MULTIPLE_BYTES, min(start + count, 3) * MULTIPLE_BYTES
        if first >= end:
            continue
        received = max(received, end) if first <= received else received
        answer = ask(chunk(upload, first, end))
        assert (answer.status, answer.result.received) == (308, received)
    assert ask(chunk(upload, received, len(WHOLE), len(WHOLE))).ok
    assert storage.body(BUCKET, "k") == WHOLE


def test_lengths(ask):
    """Only the last chunk ends anywhere."""
    upload = begun(ask)
    assert ask(chunk(upload, 0, 100)).code == "InvalidRequest"
    assert ask(chunk(upload, 0, MULTIPLE_BYTES)).status == 308
    assert ask(ResumableChunk("k", upload, total=5)).code == "InvalidRequest"


def test_conditions_are_judged_twice(ask):
    """When it begins, and when it ends; an upload that is refused is over."""
    upload = begun(ask, if_none_match="*")
    ask(PutObject("k"))
    assert ask(BeginResumable("k", if_none_match="*")).code == "PreconditionFailed"
    assert ask(chunk(upload, 0, len(WHOLE), len(WHOLE))).code == "PreconditionFailed"
    assert ask(ResumableChunk("k", upload)).code == "NoSuchUpload"


def test_a_digest_that_is_wrong(ask):
    """Makes nothing."""
    upload = begun(ask)
    assert ask(chunk(upload, 0, len(WHOLE), len(WHOLE), md5="00")).code == "BadDigest"
    assert ask(StatObject("k")).code == "NoSuchKey"


def test_what_is_given_up(ask):
    """Is forgotten; what was made stays."""
    upload = begun(ask)
    assert ask(ForgetResumable("k", upload)).ok
    assert ask(ForgetResumable("k", upload)).code == "NoSuchUpload"
    upload = begun(ask)
    ask(chunk(upload, 0, len(WHOLE), len(WHOLE)))
    assert ask(ForgetResumable("k", upload)).ok
    assert ask(StatObject("k")).ok


def test_google_deletes_only_what_is_there(ask):
    """Where S3 says that it is done."""
    assert ask(DeleteObject("k")).code == "NoSuchKey"
    assert made().handle(Request(BUCKET, DeleteObject("k"), KEY), 0).ok
