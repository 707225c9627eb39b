"""Multipart uploads: nothing is seen before the end, and then all of it."""

import hashlib

import attrs
import pytest
from hypothesis import given, strategies as st
from objects_world import BUCKET, SMALL, asker, made

from iriscw_sims.objects.content import Content, Sized
from iriscw_sims.objects.messages import (
    AbortMultipartUpload,
    CompleteMultipartUpload,
    CreateMultipartUpload,
    DeleteObject,
    GetObject,
    HeadObject,
    ListMultipartUploads,
    ListParts,
    PutObject,
    UploadPart,
)
from iriscw_sims.objects.rules import Etags

LEAST = SMALL.least_part_bytes
WHOLE = Content(bytes(range(256)) * (LEAST // 256))


class Upload:
    """One upload, in few words."""

    def __init__(self, key="k", rules=SMALL, **options):
        self.storage = made(rules)
        self.ask = asker(self.storage)
        self.key = key
        self.id = self.ask(CreateMultipartUpload(key, **options)).result.upload_id
        self.tags = {}

    def part(self, number, body=WHOLE):
        """Write a part."""
        answer = self.ask(UploadPart(self.key, self.id, number, body))
        if answer.ok:
            self.tags[number] = answer.result.etag
        return answer

    def complete(self, *numbers, **options):
        """Complete it with some of its parts, all of them if none are named."""
        parts = tuple((number, self.tags[number]) for number in numbers or sorted(self.tags))
        return self.ask(CompleteMultipartUpload(self.key, self.id, parts, **options))

    def read(self):
        """Read the object."""
        return self.ask(GetObject(self.key))


@given(st.permutations([1, 2, 5, 10_000]), st.integers(0, LEAST + 5))
def test_the_object_is_its_parts_in_order(order, last):
    """In whatever order they came; only the last may be small, even empty."""
    upload = Upload(metadata=(("made", "by"),))
    bodies = {number: Content(Sized(LEAST + number % 7, number)) for number in order}
    bodies[10_000] = Content(Sized(last, 0))
    for number in order:
        assert upload.part(number, bodies[number]).ok
    assert upload.read().code == "NoSuchKey"
    assert upload.complete().ok
    answer = upload.read()
    assert answer.body == Content.joined(bodies[number] for number in sorted(bodies))
    assert answer.result.metadata == (("made", "by"),)


def test_the_tag_is_of_the_parts():
    """The MD5 of the parts' MD5s, and their number; with tags of writes it is none of a content."""
    upload = Upload()
    upload.part(1)
    upload.part(2, Content(b"rest"))
    digests = b"".join(hashlib.md5(body.rendered()).digest() for body in (WHOLE, Content(b"rest")))
    assert upload.complete().result.etag == f"{hashlib.md5(digests).hexdigest()}-2"
    other = Upload(rules=attrs.evolve(SMALL, etags=Etags.WRITE))
    other.part(1)
    assert "-" not in other.complete().result.etag


def test_parts_that_are_left_out_and_replaced():
    """Only named parts count, each as it was written last."""
    upload = Upload()
    for number, body in ((1, WHOLE), (2, WHOLE), (3, Content(b"three")), (3, Content(b"third"))):
        upload.part(number, body)
    old = hashlib.md5(b"three").hexdigest()
    named = ((1, upload.tags[1]), (3, old))
    assert upload.ask(CompleteMultipartUpload("k", upload.id, named)).code == "InvalidPart"
    assert upload.complete(1, 3).ok
    assert upload.read().body == Content.joined([WHOLE, Content(b"third")])


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ((), "MalformedXML"),
        (((2, "tag"), (1, "tag")), "InvalidPartOrder"),
        (((1, "tag"), (1, "tag")), "InvalidPartOrder"),
        (((1, "tag"),), "InvalidPart"),
        (((7, "tag"),), "InvalidPart"),
    ],
)
def test_completions_that_make_no_sense(parts, code):
    """They are refused by name, and the upload is as it was."""
    upload = Upload()
    upload.part(1)
    assert upload.ask(CompleteMultipartUpload("k", upload.id, parts)).code == code
    assert upload.complete().ok


def test_sizes_and_numbers():
    """Small parts in the middle, numbers out of range, parts and objects that are too big."""
    rules = attrs.evolve(SMALL, most_part_bytes=2 * LEAST, most_object_bytes=3 * LEAST)
    upload = Upload(rules=rules)
    for number in (0, 10_001, -1):
        assert upload.part(number).code == "InvalidArgument"
    assert upload.part(1, Content(Sized(2 * LEAST + 1, 0))).code == "EntityTooLarge"
    upload.part(1, WHOLE.part(0, LEAST - 1))
    upload.part(2)
    assert upload.complete().code == "EntityTooSmall"
    for number in (1, 2):
        upload.part(number, Content(Sized(2 * LEAST, number)))
    assert upload.complete().code == "EntityTooLarge"
    assert upload.complete(2).ok


def test_an_end_is_an_end():
    """What was completed or aborted is gone, with its id; an id is good for its own key only."""
    upload = Upload()
    upload.part(1)
    assert upload.ask(AbortMultipartUpload("other", upload.id)).code == "NoSuchUpload"
    assert upload.complete().ok
    assert upload.complete().code == "NoSuchUpload"
    assert upload.part(1).code == "NoSuchUpload"
    assert upload.ask(AbortMultipartUpload("k", upload.id)).code == "NoSuchUpload"
    assert upload.ask(ListParts("k", upload.id)).code == "NoSuchUpload"
    again = Upload()
    assert again.ask(AbortMultipartUpload("k", again.id)).status == 204
    assert again.complete().code == "NoSuchUpload"
    assert again.read().code == "NoSuchKey"


def test_conditions_hold_at_the_end():
    """The condition is judged when the upload is completed, not when it was begun; a refused one can go on."""
    upload = Upload()
    upload.part(1)
    upload.ask(PutObject("k", Content(b"first")))
    assert upload.complete(if_none_match="*").code == "PreconditionFailed"
    assert upload.read().body == Content(b"first")
    tag = upload.ask(HeadObject("k")).result.etag
    assert upload.complete(if_match="other").code == "PreconditionFailed"
    upload.ask(DeleteObject("k"))
    assert upload.complete(if_match=tag).code == "NoSuchKey"
    assert upload.complete(if_none_match="*").ok


def test_parts_take_room_until_the_end():
    """An upload that nobody ends costs room for ever; its end gives back what is not in the object."""
    upload = Upload(rules=attrs.evolve(SMALL, capacity_bytes=3 * LEAST))
    upload.part(1)
    upload.part(2)
    upload.part(2)
    assert upload.storage.stored_bytes == 2 * LEAST
    upload.part(3)
    assert upload.part(4).code == "QuotaExceeded"
    assert upload.ask(PutObject("x", Content(b"x"))).code == "QuotaExceeded"
    assert upload.complete(1).ok
    assert upload.storage.stored_bytes == LEAST
    other = Upload()
    other.part(1)
    other.ask(AbortMultipartUpload("k", other.id))
    assert other.storage.stored_bytes == 0


def test_listing_parts():
    """By number, in pages."""
    upload = Upload()
    for number in (3, 1, 7):
        upload.part(number, Content(b"x" * number))
    page = upload.ask(ListParts("k", upload.id, max_parts=2)).result
    assert [(head.number, head.length) for head in page.parts] == [(1, 1), (3, 3)]
    page = upload.ask(ListParts("k", upload.id, page.next_marker)).result
    assert ([head.number for head in page.parts], page.next_marker) == ([7], 0)
    assert upload.ask(ListParts("k", upload.id, max_parts=-1)).code == "InvalidArgument"


@given(st.integers(1, 5), st.sampled_from(["", "a", "a/"]))
def test_listing_uploads(limit, prefix):
    """By key and age, in pages that join; an upload is in it until its end."""
    ask = asker(made())
    keys = ["b", "a/2", "a/1", "a", "a", "é", "a/1"]
    begun = [ask(CreateMultipartUpload(key), number).result for number, key in enumerate(keys)]
    ask(AbortMultipartUpload("a", begun[3].upload_id))
    begun.pop(3)
    expected = sorted((head for head in begun if head.key.startswith(prefix)), key=lambda head: head.key.encode())
    found, marker = [], ("", "")
    while marker is not None:
        page = ask(ListMultipartUploads(prefix, *marker, limit)).result
        found += page.uploads
        marker = page.next_markers
    assert found == expected
    rest = ask(ListMultipartUploads(prefix, "a/1")).result.uploads
    assert [head.key for head in rest] == [head.key for head in expected if head.key.encode() > b"a/1"]


def test_ids_are_never_given_twice():
    """Also in other buckets."""
    storage = made(buckets=(BUCKET, "other"))
    ids = [asker(storage, bucket)(CreateMultipartUpload("k")).result.upload_id for bucket in (BUCKET, "other") * 3]
    assert len({*ids}) == 6
