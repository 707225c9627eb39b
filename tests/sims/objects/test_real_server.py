"""The same random requests to the simulated storage and to a real S3 server: where both follow S3, they agree.

The server is ``moto_server``, from the path or named by ``IRISCW_MOTO_SERVER``; without one the tests are skipped.
:data:`DEVIATIONS` lists where it does not follow Amazon's documentation, and is checked too.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from random import Random

import attrs
import pytest
from objects_world import asker, made
from s3_caller import Caller

from iriscw_sims.objects.content import Content
from iriscw_sims.objects.messages import (
    AbortMultipartUpload,
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
    ListMultipartUploads,
    ListObjectsV2,
    ListParts,
    PutObject,
    UploadPart,
)
from iriscw_sims.objects.rules import AWS

SERVER = os.environ.get("IRISCW_MOTO_SERVER") or shutil.which("moto_server")
LEAST = 256
RULES = attrs.evolve(AWS, least_part_bytes=LEAST)

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not SERVER, reason="no moto_server is installed here")]


@pytest.fixture(scope="module")
def port():
    """The port of a server that runs for this module."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number = probe.getsockname()[1]
    environment = {**os.environ, "S3_UPLOAD_PART_MIN_SIZE": str(LEAST)}
    command = [SERVER, "-H", "127.0.0.1", "-p", str(number)]
    server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", number), 1):
                break
            assert server.poll() is None, "the server ended"
            assert time.monotonic() < deadline, "the server does not listen"
        yield number
    finally:
        server.terminate()
        server.wait(30)


class Both:
    """One bucket here and there; upload ids and tokens are each side's own."""

    def __init__(self, port, name):
        self.ours = asker(made(RULES, ()), name)
        self.theirs = Caller(port, name).ask
        self.uploads = []
        self.ask(CreateBucket())

    def ask(self, operation, theirs=None):
        """Return both answers, without what is each side's own."""
        ours, theirs = self.ours(operation), self.theirs(theirs or operation)
        return shown(ours), shown(theirs), ours.result, theirs.result

    def upload(self, number):
        """Return an upload's key and both of its ids."""
        return self.uploads[number % len(self.uploads)] if self.uploads else ("a", "none", "none")

    def pages(self, operation):
        """Return both sides' pages of a listing."""
        found = []
        for ask in (self.ours, self.theirs):
            pages, token = [], ""
            while True:
                page = ask(attrs.evolve(operation, continuation_token=token)).result
                tags = [(head.key, head.length, head.etag) for head in page.objects]
                pages.append((tags, page.common_prefixes))
                token = page.next_token
                if not token or len(pages) > 50:
                    break
            found.append(pages)
        return found


def shown(answer):
    """Return what must agree."""
    result = answer.result
    said = (answer.status, answer.code)
    if not answer.ok:
        return said
    body = answer.body.rendered()
    tag = getattr(result, "etag", "")
    if hasattr(result, "parts"):
        return (*said, [(part.number, part.length, part.etag) for part in result.parts])
    if hasattr(result, "uploads"):
        return (*said, sorted(upload.key for upload in result.uploads))
    if answer.first or body:
        return (*said, tag, body, answer.first, result.length, result.metadata)
    return (*said, tag)


KEYS = ("a", "a/b", "a/c", "a-b", "b/c/d", "é")


def draw(rng, both):
    """Draw an operation, and the same for the other side."""
    key, body = rng.choice(KEYS), Content(rng.choice((b"", b"x", b"one", bytes(range(64)) * 5)))
    head = both.ours(HeadObject(key)).result
    tag = rng.choice((head.etag if head else "0" * 32, "0" * 32))
    name, our_id, their_id = both.upload(rng.randrange(9))
    number = rng.randrange(1, 4)
    span = rng.choice(
        (None, ByteRange(rng.randrange(5)), ByteRange(1, rng.randrange(1, 9)), LastBytes(rng.randrange(1, 9)))
    )

    def of_upload(kind, **more):
        return [kind(name, upload_id, **more) for upload_id in (our_id, their_id)]

    metadata = rng.choice(((), (("made", "by"),)))
    return rng.choice(
        (
            [PutObject(key, body, metadata=metadata)],
            [PutObject(key, body, if_none_match="*")],
            [PutObject(key, body, if_match=tag)],
            [GetObject(key, span)],
            [GetObject(key, if_match=tag)],
            [GetObject(key, if_none_match=tag)],
            [HeadObject(key)],
            [HeadObject(key, if_match=tag)],
            [HeadObject(key, if_none_match=tag)],
            [DeleteObject(key)],
            [DeleteObject(key, if_match=tag)],
            [CopyObject(key, rng.choice(KEYS))],
            [HeadBucket()],
            [CreateMultipartUpload(key, metadata)],
            of_upload(UploadPart, number=number, body=body),
            of_upload(UploadPart, number=number, body=Content(bytes(range(256)))),
            of_upload(CompleteMultipartUpload, parts=drawn_parts(rng, both, name, our_id)),
            of_upload(CompleteMultipartUpload, parts=drawn_parts(rng, both, name, our_id), if_none_match="*"),
            of_upload(AbortMultipartUpload),
            of_upload(ListParts),
            [ListMultipartUploads()],
        )
    )


def drawn_parts(rng, both, key, upload_id):
    """Draw which parts are named: all that are there, most often."""
    there = both.ours(ListParts(key, upload_id)).result
    parts = [(part.number, part.etag) for part in there.parts] if there else [(1, "0" * 32)]
    if rng.random() < 0.2:
        parts.append((9, "0" * 32))
    return tuple(parts)


def agrees(operation, ours, theirs):
    """Tell whether two answers agree, but for the known deviations."""
    return ours == theirs or any(known(operation, ours, theirs) for known in DEVIATIONS.values())


def unknown_upload(_, ours, theirs):
    """Tell whether we said NoSuchUpload, and they fell over it."""
    return ours == (404, "NoSuchUpload") and theirs == (500, "")


def several_faults(operation, ours, theirs):
    """Tell whether both refused a completion, which can have several faults at once."""
    return isinstance(operation, CompleteMultipartUpload) and min(ours[0], theirs[0]) >= 400


DEVIATIONS = {
    "an upload that is not there is an internal error": unknown_upload,
    "of several faults another one is told": several_faults,  # Amazon's documentation gives no order
}
"""By description: where the server does otherwise than Amazon's documentation says, and we as that says."""


@pytest.mark.parametrize("seeds", [range(25)], ids=str)
def test_the_same_requests_have_the_same_answers(port, seeds):
    """Status, code, tag, body, range and listing, over random sequences."""
    differences = []
    for seed in seeds:
        rng, both = Random(seed), Both(port, f"bucket-{seed}")
        for step in range(60):
            drawn = draw(rng, both)
            ours, theirs, our_result, their_result = both.ask(drawn[0], drawn[-1])
            if isinstance(drawn[0], CreateMultipartUpload):
                both.uploads.append((drawn[0].key, our_result.upload_id, their_result.upload_id))
            elif isinstance(drawn[0], CompleteMultipartUpload | AbortMultipartUpload) and ours[0] < 300:
                both.uploads = [each for each in both.uploads if each[1] != drawn[0].upload_id]
            if not agrees(drawn[0], ours, theirs):
                differences.append(f"{seed}.{step} {drawn[0]}\n    ours   {ours}\n    theirs {theirs}")
                break
        for prefix, delimiter, limit in (("", "", 2), ("", "/", 2), ("a", "/", 1), ("a/", "/", 1000)):
            listing = ListObjectsV2(prefix, delimiter, max_keys=limit)
            ours, theirs = both.pages(listing)
            if ours != theirs and not differences:
                differences.append(f"{seed} {listing}\n    ours   {ours}\n    theirs {theirs}")
    assert not differences, "\n".join(differences)


def test_where_the_server_does_not_follow_s3(port):
    """Amazon's documentation says what we do; if the server learns it, the random requests can ask for it too."""
    both = Both(port, "bucket-of-deviations")
    both.ask(PutObject("k", Content(b"x")))
    both.ask(PutObject("l", Content(b"y")))
    for operation, our_status, their_status in (
        (CopyObject("k", "l", source_if_match="0" * 32), 412, 200),
        (CopyObject("k", "l", if_none_match="*"), 412, 200),
        (PutObject("k", if_none_match="*", if_match="0" * 32), 501, 412),
        (GetObject("k", ByteRange(3, 1)), 200, 416),
    ):
        ours, theirs, *_ = both.ask(operation)
        assert (ours[0], theirs[0]) == (our_status, their_status), operation


def test_a_completion_is_done_once(port):
    """Here the upload is gone then, as documented; the server says yes again while the object is still that one."""
    both = Both(port, "bucket-of-completions")
    *_, ours, theirs = both.ask(CreateMultipartUpload("k"))
    tag = both.ask(
        UploadPart("k", ours.upload_id, 1, Content(b"x")), UploadPart("k", theirs.upload_id, 1, Content(b"x"))
    )
    parts = ((1, tag[2].etag),)
    completions = [CompleteMultipartUpload("k", each.upload_id, parts) for each in (ours, theirs)]
    assert [answer[0] for answer in both.ask(*completions)[:2]] == [200, 200]
    assert [answer[:2] for answer in both.ask(*completions)[:2]] == [(404, "NoSuchUpload"), (200, "")]


def test_buckets(port):
    """Made and deleted alike."""
    both = Both(port, "bucket-of-its-own")
    both.ask(PutObject("k", Content(b"x")))
    for operation in (DeleteBucket(), DeleteObject("k"), DeleteBucket(), HeadBucket(), GetObject("k")):
        ours, theirs, *_ = both.ask(operation)
        assert ours == theirs
