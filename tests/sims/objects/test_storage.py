"""The service: who may ask, how buckets are addressed and named, and what has no room."""

import attrs
import pytest
from objects_world import BEGIN, BUCKET, KEY, SECOND, SMALL, asker, made

from iriscw._errors import InvalidArgument
from iriscw_sims.objects.content import Content, Sized
from iriscw_sims.objects.messages import (
    Answer,
    CreateBucket,
    CreateMultipartUpload,
    DeleteBucket,
    DeleteObject,
    GetObject,
    HeadBucket,
    HeadObject,
    PutObject,
    Request,
    UploadPart,
)
from iriscw_sims.objects.rules import AWS, COREWEAVE
from iriscw_sims.objects.storage import VERBS, ObjectStorage


def test_paths_are_refused_where_only_hosts_count():
    """CoreWeave takes virtual-hosted requests only; that is judged before anything else."""
    asked = Request(BUCKET, GetObject("k"), "nobody", path_style=True)
    assert made().handle(asked, BEGIN).code == "PathStyleRequestNotAllowed"
    assert made(AWS).handle(attrs.evolve(asked, access_key=KEY), BEGIN).code == "NoSuchKey"


def test_keys_are_denied_until_they_have_propagated():
    """A new key is AccessDenied for a while, not InvalidAccessKeyId: a client must wait and not give up."""
    storage = made()
    asked = Request(BUCKET, PutObject("k"), "new")
    assert storage.handle(asked, BEGIN).code == "InvalidAccessKeyId"
    storage.add_key("new", BEGIN + 5 * SECOND)
    assert storage.handle(asked, BEGIN + 5 * SECOND - 1).code == "AccessDenied"
    assert storage.handle(asked, BEGIN + 5 * SECOND).ok
    storage.deny_key("new", BEGIN + 9 * SECOND)
    assert storage.handle(asked, BEGIN + 8 * SECOND).code == "AccessDenied"
    assert storage.handle(asked, BEGIN + 9 * SECOND).ok
    storage.remove_key("new")
    storage.deny_key("new", BEGIN)
    assert storage.handle(asked, BEGIN + 9 * SECOND).code == "InvalidAccessKeyId"
    assert storage.handle(Request(BUCKET, PutObject("k")), BEGIN).code == "AccessDenied"
    with pytest.raises(InvalidArgument):
        storage.add_key("")


def test_refusals_leave_everything_as_it_was():
    """Who is denied changes nothing, and learns nothing of what is there."""
    storage = made()
    storage.add_key("late", BEGIN + SECOND)
    codes = {
        storage.handle(Request(bucket, operation, "late"), BEGIN).code
        for bucket in (BUCKET, "nowhere")
        for operation in (PutObject("k", Content(b"x")), GetObject("k"), DeleteObject("k"), CreateBucket())
    }
    assert codes == {"AccessDenied"}
    assert storage.stored_bytes == 0


def test_buckets():
    """Made once, under a name that is allowed; deleted only when empty, with what was never completed."""
    storage = made()
    new = asker(storage, "new-one")
    assert new(HeadBucket()) == Answer(404)
    assert new(GetObject("k")).code == "NoSuchBucket"
    assert new(DeleteBucket()).code == "NoSuchBucket"
    assert new(CreateBucket()).ok
    assert new(CreateBucket()).code == "BucketAlreadyOwnedByYou"
    assert new(HeadBucket()).ok
    new(PutObject("k"))
    assert new(DeleteBucket()).code == "BucketNotEmpty"
    new(DeleteObject("k"))
    upload = new(CreateMultipartUpload("k")).result
    new(UploadPart("k", upload.upload_id, 1, Content(b"part")))
    assert storage.stored_bytes == 4
    assert new(DeleteBucket()).status == 204
    assert storage.stored_bytes == 0
    assert asker(storage, "cw-mine")(CreateBucket()).code == "InvalidBucketName"


def test_buckets_are_apart():
    """The same key in two buckets is two objects."""
    storage = made(buckets=(BUCKET, "other"))
    asker(storage)(PutObject("k", Content(b"x")))
    assert asker(storage, "other")(GetObject("k")).code == "NoSuchKey"
    assert storage.body("other", "k") is None
    assert storage.body("nowhere", "k") is None


def test_there_is_an_end_to_buckets_and_bytes():
    """Limits have names of their own; what was refused left nothing, and deleting makes room."""
    storage = made(attrs.evolve(SMALL, most_buckets=1, capacity_bytes=10))
    assert asker(storage, "other")(CreateBucket()).code == "TooManyBuckets"
    ask = asker(storage)
    assert ask(PutObject("a", Content(Sized(6, 1)))).ok
    assert ask(PutObject("b", Content(Sized(5, 1)))).code == "QuotaExceeded"
    assert ask(GetObject("b")).code == "NoSuchKey"
    assert ask(PutObject("a", Content(Sized(10, 1)))).ok
    ask(DeleteObject("a"))
    assert ask(PutObject("b", Content(Sized(5, 1)))).ok


def test_a_refused_head_tells_its_status_only():
    """A missing key and a missing bucket look the same to it."""
    storage = made()
    assert asker(storage)(HeadObject("k")) == Answer(404)
    assert asker(storage, "nowhere")(HeadObject("k")) == Answer(404)


def test_a_checkpoint_of_100_gb_is_nothing():
    """In 50 MB parts, as CoreWeave advises."""
    storage = ObjectStorage(COREWEAVE)
    storage.add_key(KEY)
    ask = asker(storage)
    ask(CreateBucket())
    size, part = 100 << 30, 50 << 20
    whole = Content(Sized(size, 1))
    upload = ask(CreateMultipartUpload("c")).result.upload_id
    for number, start in enumerate(range(0, size, part), 1):
        assert ask(UploadPart("c", upload, number, whole.part(start, start + part))).ok
    assert storage.stored_bytes == size


def test_every_operation_has_its_verb():
    """Those on buckets are the service's own."""
    from iriscw_sims.objects import messages

    operations = {*messages.Operation.__args__} - {CreateBucket, HeadBucket, DeleteBucket}
    assert {*VERBS} == operations
