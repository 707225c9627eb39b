"""Objects are written as a whole, read as they were written, and named by their versions."""

import attrs
import pytest
from hypothesis import given, strategies as st
from objects_world import BEGIN, BUCKET, SECOND, SMALL, asker, made

from iriscw_sims.objects.content import EMPTY, Content, Sized
from iriscw_sims.objects.messages import (
    ByteRange,
    CopyObject,
    DeleteObject,
    GetObject,
    HeadObject,
    LastBytes,
    ListObjectsV2,
    PutObject,
    RenameObject,
)
from iriscw_sims.objects.rules import AWS, Etags

DIGITS = Content(b"0123456789")


@pytest.fixture
def storage():
    """A storage with an empty bucket."""
    return made()


@pytest.fixture
def ask(storage):
    """What has an operation answered."""
    return asker(storage)


def test_an_object_is_read_as_it_was_written(ask):
    """Length, tag, time and metadata agree between all who tell them."""
    head = ask(PutObject("k", DIGITS, metadata=(("a", "b"),)), BEGIN + 7 * SECOND + 5).result
    assert (head.key, head.length, head.last_modified, head.metadata) == ("k", 10, BEGIN + 7 * SECOND, (("a", "b"),))
    assert head.etag == "781e5e245d69b566979b86e28d23f2c7"
    read = ask(GetObject("k"))
    assert (read.status, read.result, read.body, read.first) == (200, head, DIGITS, 0)
    assert ask(HeadObject("k")).result == head
    assert ask(ListObjectsV2()).result.objects == (head,)


@pytest.mark.parametrize(
    ("asked", "status", "first", "body"),
    [
        (ByteRange(0), 206, 0, b"0123456789"),
        (ByteRange(0, 0), 206, 0, b"0"),
        (ByteRange(3, 5), 206, 3, b"345"),
        (ByteRange(8, 99), 206, 8, b"89"),
        (ByteRange(9), 206, 9, b"9"),
        (ByteRange(10), 416, 0, b""),
        (ByteRange(10, 12), 416, 0, b""),
        (ByteRange(5, 3), 200, 0, b"0123456789"),
        (LastBytes(3), 206, 7, b"789"),
        (LastBytes(99), 206, 0, b"0123456789"),
        (LastBytes(0), 416, 0, b""),
    ],
)
def test_ranges(ask, asked, status, first, body):
    """As HTTP has them: both ends included, one that makes no sense is none, one without a byte is refused."""
    ask(PutObject("k", DIGITS))
    answer = ask(GetObject("k", asked))
    assert (answer.status, answer.first, answer.body) == (status, first, Content(body))
    assert answer.code == ("InvalidRange" if status == 416 else "")
    if status != 416:
        assert answer.result.length == 10


@pytest.mark.parametrize(("asked", "status"), [(ByteRange(0), 416), (ByteRange(0, 0), 416), (LastBytes(1), 200)])
def test_an_empty_object_has_no_ranges(ask, asked, status):
    """Only all of it can be read; its last bytes are all of it."""
    ask(PutObject("k"))
    assert ask(GetObject("k", asked)).status == status
    assert ask(GetObject("k")).body == EMPTY


@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 20))
def test_ranges_of_made_up_content(length, first, last):
    """They are the same stretch that a slice is."""
    ask = asker(made())
    content = Content(Sized(length, 5))
    ask(PutObject("k", content))
    answer = ask(GetObject("k", ByteRange(first, last)))
    if first <= last and first < length:
        assert answer.body == content.part(first, last + 1)
    else:
        assert answer.code == ("InvalidRange" if first <= last else "")


def test_tags_of_contents_and_of_writes(ask):
    """The usual tag says what is in it; the other kind says which write it was."""
    first = ask(PutObject("k", DIGITS)).result.etag
    assert ask(PutObject("k", DIGITS)).result.etag == first
    assert ask(PutObject("k", EMPTY)).result.etag != first
    other = asker(made(attrs.evolve(SMALL, etags=Etags.WRITE)))
    tags = [other(PutObject(key, DIGITS)).result.etag for key in ("k", "k", "l")]
    assert len({*tags}) == 3


def test_conditional_writes(ask):
    """Created once, replaced by who names the version, untouched otherwise."""
    first = ask(PutObject("k", Content(b"one"), if_none_match="*")).result
    assert ask(PutObject("k", Content(b"two"), if_none_match="*")).code == "PreconditionFailed"
    assert ask(PutObject("k", Content(b"two"), if_match="0" * 32)).code == "PreconditionFailed"
    assert ask(PutObject("l", Content(b"two"), if_match=first.etag)).code == "NoSuchKey"
    assert ask(HeadObject("k")).result == first
    assert ask(PutObject("k", Content(b"two"), if_match=first.etag)).ok
    assert ask(DeleteObject("k", if_match=first.etag)).code == "PreconditionFailed"
    assert ask(DeleteObject("k", if_match="*")).ok
    assert ask(DeleteObject("k", if_match="*")).code == "NoSuchKey"
    assert ask(DeleteObject("k")).status == 204


def test_conditional_reads(ask):
    """304 for who has it, 412 for who wants another."""
    tag = ask(PutObject("k", DIGITS)).result.etag
    for kind in (GetObject, HeadObject):
        assert ask(kind("k", if_none_match=tag)).status == 304
        assert ask(kind("k", if_match="other")).status == 412
        assert ask(kind("k", if_match=tag, if_none_match="other")).status == 200
    assert ask(GetObject("k", ByteRange(99), if_match="other")).status == 412
    assert ask(GetObject("k", if_none_match=tag)).body == EMPTY


def test_copies(ask):
    """A copy is a write of its own, under conditions on both sides."""
    tag = ask(PutObject("a", DIGITS, metadata=(("m", "1"),))).result.etag
    copied = ask(CopyObject("b", "a", if_none_match="*", source_if_match=tag), BEGIN + 60 * SECOND)
    assert (copied.result.etag, copied.result.last_modified) == (tag, BEGIN + 60 * SECOND)
    assert ask(GetObject("b")).body == DIGITS
    assert ask(HeadObject("b")).result.metadata == (("m", "1"),)
    assert ask(CopyObject("b", "a", if_none_match="*")).code == "PreconditionFailed"
    assert ask(CopyObject("c", "a", source_if_match="other")).code == "PreconditionFailed"
    assert ask(CopyObject("c", "nothing")).code == "NoSuchKey"
    assert ask(CopyObject("c", "nothing", source_if_match=tag)).code == "NoSuchKey"
    assert ask(CopyObject("a", "a")).code == "InvalidRequest"


def test_renames(storage, ask):
    """A version moves, with its tag and time, in one step; not every service can."""
    head = ask(PutObject("a", DIGITS)).result
    ask(PutObject("b", Content(b"xx")))
    assert ask(RenameObject("b", "a", if_none_match="*"), BEGIN).code == "PreconditionFailed"
    assert ask(RenameObject("c", "a", source_if_match="other"), BEGIN).code == "PreconditionFailed"
    assert ask(RenameObject("c", "nothing")).code == "NoSuchKey"
    assert ask(RenameObject("b", "a"), BEGIN + 60 * SECOND).ok
    assert ask(ListObjectsV2()).result.objects == (attrs.evolve(head, key="b"),)
    assert ask(GetObject("b")).body == DIGITS
    assert storage.stored_bytes == 10
    assert ask(RenameObject("b", "b")).ok
    assert ask(GetObject("b")).body == DIGITS
    assert asker(made(AWS))(RenameObject("b", "a")).code == "NotImplemented"


def test_limits(ask):
    """Keys, metadata and objects have a greatest size."""
    assert ask(PutObject("")).code == "InvalidArgument"
    assert ask(PutObject("é" * 512)).ok
    assert ask(PutObject("é" * 512 + "x")).code == "KeyTooLongError"
    assert ask(PutObject("k", metadata=(("a", "x" * 2048),))).code == "MetadataTooLarge"
    assert ask(PutObject("k", Content(Sized(SMALL.most_part_bytes, 1)))).ok
    assert ask(PutObject("k", Content(Sized(SMALL.most_part_bytes + 1, 1)))).code == "EntityTooLarge"


class Model:
    """What a bucket is: contents by key."""

    def __init__(self):
        self.bodies = {}

    def apply(self, operation):
        """Do an operation; give whether it may succeed."""
        match operation:
            case PutObject():
                if operation.if_none_match and operation.key in self.bodies:
                    return False
                self.bodies[operation.key] = operation.body
            case DeleteObject():
                self.bodies.pop(operation.key, None)
            case CopyObject() | RenameObject():
                if operation.source not in self.bodies or (
                    isinstance(operation, CopyObject) and operation.key == operation.source
                ):
                    return False
                self.bodies[operation.key] = self.bodies[operation.source]
                if isinstance(operation, RenameObject) and operation.key != operation.source:
                    del self.bodies[operation.source]
        return True


KEYS = st.sampled_from(["a", "b", "b/c", "é"])
BODIES = st.one_of(st.binary(max_size=4).map(Content), st.builds(Sized, st.integers(0, 9), st.just(1)).map(Content))
OPERATIONS = st.one_of(
    st.builds(PutObject, KEYS, BODIES, st.sampled_from(["", "*"])),
    st.builds(DeleteObject, KEYS),
    st.builds(CopyObject, KEYS, KEYS),
    st.builds(RenameObject, KEYS, KEYS),
)


@given(st.lists(OPERATIONS, max_size=25))
def test_a_bucket_is_a_table(operations):
    """After any history: what is there is what was written last, all listed, all counted."""
    storage, model = made(), Model()
    ask = asker(storage)
    for operation in operations:
        assert ask(operation).ok is model.apply(operation)
        assert storage.stored_bytes == sum(map(len, model.bodies.values()))
    assert storage.buckets[BUCKET].contents() == model.bodies
    assert [head.key for head in ask(ListObjectsV2()).result.objects] == sorted(model.bodies, key=str.encode)
    for key, body in model.bodies.items():
        assert ask(GetObject(key)).body == body
        assert storage.body(BUCKET, key) == body
