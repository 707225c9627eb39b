"""The simulated storage over HTTP: it says what the storage says, and its faults are those of the front."""

import base64
import hashlib
import http.client
from random import Random

import anyio
import anyio.to_thread
import attrs
import pytest
import test_real_server as real
from objects_world import BUCKET, KEY, SMALL, made
from s3_caller import SIGNED, Caller

from iriscw._errors import InvalidArgument
from iriscw_sims.objects.content import Content
from iriscw_sims.objects.messages import (
    AbortMultipartUpload,
    CompleteMultipartUpload,
    CreateMultipartUpload,
    GetObject,
    HeadObject,
    ListObjectsV2,
    PutObject,
    Request,
)
from iriscw_sims.objects.rules import AWS
from iriscw_sims.objects.serve.server import S3Server
from iriscw_sims.objects.serve.surroundings import HostSurroundings
from iriscw_sims.objects.storage import ObjectStorage

in_thread = anyio.to_thread.run_sync
PATHS = attrs.evolve(AWS, least_part_bytes=SMALL.least_part_bytes)


def opened(rules=PATHS):
    """Return a server of a storage with a bucket and the caller's key."""
    storage = made(rules)
    storage.add_key("any")
    return S3Server(storage, HostSurroundings())


def same_answers(port, seed):
    """Play random requests, there and here; give the first difference, or nothing."""
    rng, both = Random(seed), real.Both(port, f"bucket-{seed}")
    for _ in range(60):
        drawn = real.draw(rng, both)
        ours, theirs, our_result, their_result = both.ask(drawn[0], drawn[-1])
        if isinstance(drawn[0], CreateMultipartUpload):
            both.uploads.append((drawn[0].key, our_result.upload_id, their_result.upload_id))
        elif isinstance(drawn[0], CompleteMultipartUpload | AbortMultipartUpload) and ours[0] < 300:
            both.uploads = [each for each in both.uploads if each[1] != drawn[0].upload_id]
        if ours != theirs:
            return f"{drawn[0]}\n    ours   {ours}\n    theirs {theirs}"
    for prefix, delimiter, limit in (("", "", 2), ("", "/", 2), ("a", "/", 1), ("a/", "/", 1000)):
        ours, theirs = both.pages(ListObjectsV2(prefix, delimiter, max_keys=limit))
        if ours != theirs:
            return f"{prefix} {delimiter} {limit}\n    ours   {ours}\n    theirs {theirs}"
    both.theirs.__self__.connection.close()
    return None


@pytest.mark.parametrize("seeds", [range(6)], ids=str)
async def test_http_changes_nothing(seeds) -> None:
    """The same random requests, with HTTP between and without, have the same answers."""
    storage = ObjectStorage(real.RULES)
    storage.add_key("any")
    async with S3Server(storage) as server:
        for seed in seeds:
            assert await in_thread(same_answers, server.port, seed) is None


def ask(port, operation):
    """Return the answer to an operation."""
    caller = Caller(port, BUCKET)
    try:
        return caller.ask(operation)
    finally:
        caller.connection.close()


def told(port, method, path, headers=(), body=b""):
    """Return status and body of the answer to a request as it is."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, body, {"Authorization": SIGNED, **dict(headers)})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("method", "path", "headers", "code"),
    [
        ("PUT", f"/{BUCKET}/k", {"x-amz-content-sha256": "0" * 64}, "XAmzContentSHA256Mismatch"),
        ("PUT", f"/{BUCKET}/k", {"Content-MD5": "AAAA"}, "BadDigest"),
        ("PUT", f"/{BUCKET}/k", {"Authorization": "Basic x"}, "InvalidArgument"),
        ("PATCH", f"/{BUCKET}/k", {}, "NotImplemented"),
        ("GET", f"/{BUCKET}?acl", {}, "NotImplemented"),
        ("GET", f"/{BUCKET}?list-type=2&max-keys=many", {}, "InvalidArgument"),
        ("POST", f"/{BUCKET}/k?uploadId=x", {}, "NoSuchUpload"),
        ("GET", f"/{BUCKET}/none", {}, "NoSuchKey"),
    ],
)
async def test_requests_that_are_refused(method, path, headers, code) -> None:
    """Have S3's codes, and change nothing."""
    async with opened() as server:
        status, body = await in_thread(told, server.port, method, path, headers, b"x")
        assert status >= 400
        assert f"<Code>{code}</Code>" in body
        assert not server.storage.buckets[BUCKET].contents()


async def test_a_bucket_that_locks_objects() -> None:
    """A write needs a digest beside the signed one; reads need none."""
    storage = made(PATHS)
    storage.add_key("any")
    async with S3Server(storage, HostSurroundings(), locks=True) as server:
        status, body = await in_thread(told, server.port, "PUT", f"/{BUCKET}/k", {}, b"x")
        assert (status, "Content-MD5" in body) == (400, True)
        digest = {"Content-MD5": base64.b64encode(hashlib.md5(b"x", usedforsecurity=False).digest()).decode()}
        assert (await in_thread(told, server.port, "PUT", f"/{BUCKET}/k", digest, b"x"))[0] == 200
        assert (await in_thread(told, server.port, "GET", f"/{BUCKET}/k"))[0] == 200


async def test_the_bucket_in_the_host() -> None:
    """CoreWeave's way; there it may not be in the path."""
    async with opened(SMALL) as server:
        host = {"Host": f"{BUCKET}.cwobject.com"}
        assert (await in_thread(told, server.port, "PUT", "/a%20b", host, b"x"))[0] == 200
        assert [*server.storage.buckets[BUCKET].contents()] == ["a b"]
        status, body = await in_thread(told, server.port, "PUT", f"/{BUCKET}/k")
        assert (status, "PathStyleRequestNotAllowed" in body) == (400, True)


@pytest.mark.parametrize("point", ["object request lost", "object reply lost"])
async def test_a_lost_exchange_is_a_broken_connection(point) -> None:
    """And whether the write has happened is the front's doing."""
    async with opened() as server:
        server.surroundings.script(point, True)
        with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
            await in_thread(ask, server.port, PutObject("k", Content(b"x")))
        assert (point == "object reply lost") == bool(server.storage.buckets[BUCKET].contents())


async def test_a_torn_answer_says_how_long_it_should_be() -> None:
    """So that the reader notices."""
    async with opened() as server:
        server.storage.handle(Request(BUCKET, PutObject("k", Content(b"x" * 100_000)), KEY), 0)
        server.surroundings.script("object download torn", True)
        with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
            await in_thread(ask, server.port, GetObject("k"))


async def test_another_region() -> None:
    """Is told with the right one, as Amazon does."""
    storage = made(PATHS)
    storage.add_key("any")
    async with S3Server(storage, region="eu-real-1") as server:
        status, body = await in_thread(told, server.port, "GET", f"/{BUCKET}/k")
        assert (status, "<Region>eu-real-1</Region>" in body) == (400, True)
        assert (await in_thread(ask, server.port, HeadObject("k"))).status == 400
        assert len(server.served) == 2


def test_not_entered() -> None:
    """There is no port yet."""
    with pytest.raises(InvalidArgument):
        _ = opened().port
