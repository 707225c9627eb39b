"""The simulated storage as Google over HTTP: what clients other than ours would say, and what they are told."""

import http.client
import json

import anyio
import anyio.to_thread
import pytest
from objects_world import BUCKET, KEY, made

from iriscw_sims.objects.content import Content
from iriscw_sims.objects.messages import PutObject, Request
from iriscw_sims.objects.refusals import CODES, refusal
from iriscw_sims.objects.rules import GOOGLE
from iriscw_sims.objects.serve.google import GOOGLES_FAULT_POINTS, GoogleServer
from iriscw_sims.objects.serve.google_answers import REASONS, refused

OBJECTS = f"/storage/v1/b/{BUCKET}/o"
UPLOADS = f"/upload/storage/v1/b/{BUCKET}/o"


@pytest.fixture
async def server():
    async with GoogleServer(made(GOOGLE), anonymous=KEY) as server:
        yield server


async def ask(server, method, path, body=b"", **headers):
    """Return status, headers and content of an answer, asked for by a client of the standard library."""

    def once():
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        found = answer.status, dict(answer.headers), answer.read()
        connection.close()
        return found

    return await anyio.to_thread.run_sync(once)


def put(server, key, body=b"x"):
    """Let somebody write."""
    return server.storage.handle(Request(BUCKET, PutObject(key, Content(body)), KEY), 0).result


async def test_objects(server) -> None:
    """Metadata as JSON, content with its generation, ranges, and a refusal with its reason."""
    head = put(server, "a/b", b"hello")
    status, _, body = await ask(server, "GET", f"{OBJECTS}/a%2Fb")
    told = json.loads(body)
    assert (status, told["name"], told["size"], told["generation"]) == (200, "a/b", "5", head.etag)
    status, headers, body = await ask(server, "GET", f"{OBJECTS}/a%2Fb?alt=media", range="bytes=1-2")
    assert (status, body, headers["Content-Range"], headers["X-Goog-Generation"]) == (
        206,
        b"el",
        "bytes 1-2/5",
        head.etag,
    )
    status, _, _ = await ask(server, "GET", f"{OBJECTS}/a%2Fb?alt=media&generation=7")
    assert status == 404
    status, _, body = await ask(server, "GET", f"{OBJECTS}/none")
    assert (status, json.loads(body)["error"]["errors"][0]["reason"]) == (404, "notFound")


async def test_conditions(server) -> None:
    """Zero is "there is none"; of an object that is not there, no generation matches."""
    body = b"--x\r\n\r\n%b\r\n--x\r\n\r\ncontent\r\n--x--\r\n" % json.dumps({"name": "k"}).encode()
    kind = {"Content_Type": "multipart/related; boundary=x"}
    path = f"{UPLOADS}?uploadType=multipart&ifGenerationMatch="
    assert (await ask(server, "POST", f"{path}7", body, **kind))[0] == 412
    assert (await ask(server, "POST", f"{path}0", body, **kind))[0] == 200
    assert (await ask(server, "POST", f"{path}0", body, **kind))[0] == 412
    assert server.storage.body(BUCKET, "k") == Content(b"content")
    assert (await ask(server, "DELETE", f"{OBJECTS}/k?ifGenerationMatch=7"))[0] == 412
    assert (await ask(server, "DELETE", f"{OBJECTS}/k"))[0] == 204
    assert (await ask(server, "DELETE", f"{OBJECTS}/k"))[0] == 404


async def test_listing(server) -> None:
    """From an offset, which is included; on by a token."""
    for key in ("a", "b/1", "b/2", "c"):
        put(server, key)
    told = json.loads((await ask(server, "GET", f"{OBJECTS}?startOffset=b/1&maxResults=2"))[2])
    assert [each["name"] for each in told["items"]] == ["b/1", "b/2"]
    token = told["nextPageToken"]
    told = json.loads((await ask(server, "GET", f"{OBJECTS}?startOffset=b/1&maxResults=2&pageToken={token}"))[2])
    assert [each["name"] for each in told["items"]] == ["c"]
    assert "nextPageToken" not in told


async def test_tokens(server) -> None:
    """Only for those who are known; one that is none is 401, and none at all, where nobody is let in without."""
    server.office.identities["refresh"] = KEY
    assert (await ask(server, "POST", "/token", b"refresh_token=other"))[0] == 400
    status, _, body = await ask(server, "POST", "/token", b"refresh_token=refresh")
    token = json.loads(body)["access_token"]
    assert status == 200
    assert (await ask(server, "GET", OBJECTS, authorization=f"Bearer {token}"))[0] == 200
    server.office.forget()
    assert (await ask(server, "GET", OBJECTS, authorization=f"Bearer {token}"))[0] == 401
    server._anonymous = ""
    assert (await ask(server, "GET", OBJECTS))[0] == 401


async def test_requests_that_are_none(server) -> None:
    """Are refused as requests."""
    for method, path, body in (
        ("POST", f"{UPLOADS}?uploadType=multipart", b"x"),
        ("POST", f"{UPLOADS}?uploadType=resumable", b"x"),
        ("PUT", f"{UPLOADS}?name=k&upload_id=1", b"x"),
    ):
        assert (await ask(server, method, path, body))[0] == 400
    for method, path in (("PATCH", f"{OBJECTS}/k"), ("GET", "/elsewhere"), ("PUT", UPLOADS), ("POST", OBJECTS)):
        assert (await ask(server, method, path))[0] == 501


def test_reasons() -> None:
    """Whatever the storage refuses has a status of Google's."""
    assert {*REASONS} <= {*CODES}
    for code in CODES:
        assert 400 <= refused(refusal(code)).status < 600
    assert all(0 < rate <= 250 for _, rate in GOOGLES_FAULT_POINTS)
