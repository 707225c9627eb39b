"""The door: who comes in, with how much, and what is said to those who do not."""

import asyncio
import json

import pytest
from serve_caller import APPLY, MAPS, MERGE, PODS, Caller, a_map, raw, say

from iriscw_sims.serve.server import SimServer
from iriscw_sims.serve.settings import Limits, ServeSettings
from waiting import until


@pytest.mark.parametrize(("token", "code"), [("", 401), ("wrong", 401), ("admin", 401)])
@pytest.mark.parametrize("path", ["/api", "/readyz", MAPS, "/openapi/v3", f"{MAPS}/c/log", "/nothing"])
async def test_nothing_is_said_without_the_token(server, path, token, code):
    """Not even whether there is anything."""
    async with Caller(server, token) as stranger:
        assert (await stranger.refused("GET", path))[0] == code
    assert server.statistics().door.refused == 1


async def test_the_token_may_be_in_the_path(server):
    """For clients that send no header without TLS; a wrong one there is wrong, whatever the header says."""
    token = server.token.reveal()
    async with Caller(server, "") as stranger:
        assert await stranger.done("GET", f"/t/{token}/version")
        assert (await stranger.refused("GET", f"/t/{token[:-1]}/version"))[0] == 401
        assert (await stranger.refused("GET", "/t/"))[0] == 401
    async with Caller(server) as caller:
        assert (await caller.refused("GET", "/t/wrong/version"))[0] == 401


async def test_requests_reach_the_store(caller):
    """Objects, lists, patches of every kind, health as text."""
    created = await caller.done("POST", MAPS, a_map(x="1"))
    assert created["metadata"]["uid"]
    assert (await caller.done("GET", MAPS))["items"][0]["data"] == {"x": "1"}
    await caller.done("PATCH", f"{MAPS}/c", {"data": {"y": "2"}}, content_type=MERGE)
    whole = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {z: '3'}\n"
    applied = await caller.done("PATCH", f"{MAPS}/c", data=whole, content_type=APPLY, fieldManager="me")
    assert applied["data"] == {"x": "1", "y": "2", "z": "3"}
    status, headers, text = await caller.ask("GET", "/readyz")
    assert (status, text) == (200, b"ok")
    assert headers["Content-Type"].startswith("text/plain")


async def test_one_may_speak_as_another(caller):
    """And may then what that one may; in ways that are not known here nobody may speak."""
    status, _, answer = await caller.ask("GET", MAPS, headers={"Impersonate-User": "bob"})
    assert status == 403
    assert 'User "bob" cannot list' in answer["message"]
    groups = {"Impersonate-User": "bob", "Impersonate-Group": "system:masters"}
    assert (await caller.refused("GET", MAPS, headers=groups))[0] == 400


async def test_answers_are_json(caller):
    """Also for who would rather have protobuf; who takes nothing else gets nothing."""
    first = {"Accept": "application/vnd.kubernetes.protobuf,application/json"}
    assert (await caller.ask("GET", MAPS, headers=first))[0] == 200
    for accept in ("application/vnd.kubernetes.protobuf", "text/html"):
        assert await caller.refused("GET", MAPS, headers={"Accept": accept}) == (406, "NotAcceptable")


async def test_warnings_cannot_split_headers(caller):
    """Whatever a field is called: what cannot be a header is none, and the object is made."""
    body = a_map() | {"evil\r\nX-Evil: 1": 1, "plain": 2}
    status, headers, _ = await caller.ask("POST", MAPS, body, fieldValidation="Warn")
    assert status == 201
    assert "X-Evil" not in headers
    assert any('unknown field \\"plain\\"' in each for each in headers.getall("Warning"))
    many = a_map("d") | {f"field{number}" + "x" * 200: 1 for number in range(100)}
    status, headers, _ = await caller.ask("POST", MAPS, many, fieldValidation="Warn")
    assert (status, sum(map(len, headers.getall("Warning"))) <= 4096) == (201, True)


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_may_not_be_huge(caller, chunked):
    """3 MiB are the limit, whether the sender says how much it is or not; below, the store decides."""

    async def pieces():
        for _ in range(50):
            yield b"x" * 100_000

    data = pieces() if chunked else b"x" * 5_000_000
    assert await caller.refused("POST", MAPS, data=data) == (413, "RequestEntityTooLarge")
    assert await caller.done("GET", "/version")
    status, _, _ = await caller.ask("POST", MAPS, a_map(x="y" * 2_000_000))
    assert status != 413


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Content-Encoding": "gzip"}, 415),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/json"}, 400),
    ],
)
async def test_bodies_that_cannot_be_read(caller, headers, code):
    """Encoded, of a strange type, or broken."""
    assert (await caller.refused("POST", MAPS, data=b"\x1f\x8b\x08", headers=headers))[0] == code


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/default/configmaps/../../../../etc/passwd",
        "/api/v1/namespaces/default/configmaps/%2e%2e",
        "//api/v1/pods",
        "/api//v1/pods",
        "/api/v1/namespaces/default%2fpods",
        "/api/v1/namespaces/default/configmaps/c;x=1",
        "/%61pi/v1/nothing",
        "/openapi/v3/../../etc/passwd",
        "/openapi/v3x",
        "/t",
    ],
)
async def test_paths_lead_nowhere_else(server, path):
    """No part of a path is taken for more than a name."""
    token = server.token.reveal()
    request = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    async with raw(server) as (reader, writer):
        writer.write(request.encode())
        answer = await reader.read()
    assert answer.split()[1] in (b"404", b"200"), answer
    if answer.split()[1] == b"200":
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["kind"] == "PodList"


@pytest.mark.parametrize(
    "request_line",
    [b"GET http://127.0.0.1/api HTTP/1.1", b"GET * HTTP/1.1", b"GET /api%0d%0aX:1 HTTP/1.1", b"GET /%ff HTTP/1.1"],
)
async def test_targets_that_are_none(server, request_line):
    """400, as a Status."""
    token = server.token.reveal().encode()
    line = await say(server, request_line + b"\r\nHost: x\r\nAuthorization: Bearer " + token + b"\r\n\r\n")
    assert line.split()[1] in (b"400", b"401"), line


@pytest.mark.parametrize(
    "text", [b"\0\0\0\0\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n"]
)
async def test_what_is_no_http(server, text, caller):
    """400, and the server goes on."""
    assert (await say(server, text)).split()[1:2] == [b"400"]
    assert await caller.done("GET", "/version")


async def test_what_is_no_http_is_not_repeated(server, caplog):
    """Its first line may hold the token."""
    token = server.token.reveal()
    async with raw(server) as (reader, writer):
        writer.write(f"GET /t/{token}/readyz HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert (await reader.readline()).split()[1] == b"200"
        writer.write(f"BREW /t/{token}/api HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert b" 400 " in await reader.read()
    assert "Error handling request" in caplog.text
    assert token not in caplog.text


@pytest.fixture
async def small():
    """A server that lends little."""
    limits = Limits(requests=2, connections=5, headers_s=0.3, body_s=0.3, write_s=0.3)
    async with SimServer(ServeSettings(limits=limits, controllers=False)) as server:
        yield server


async def test_slow_headers_are_not_waited_for(small):
    """A connection that says nothing, or too slowly, is closed."""
    async with raw(small) as (reader, writer), asyncio.timeout(5):
        for byte in b"GET /api HTTP/1.1\r\nX: 1\r\nY: 2\r\n":
            if reader.at_eof() or reader.exception():
                break
            writer.write(bytes((byte,)))
            await asyncio.sleep(0.02)
        else:
            pytest.fail("the connection is still open")
        assert small.statistics().connections == 0


async def test_slow_bodies_are_not_waited_for(small):
    """408, and the place is free again."""
    token = small.token.reveal()
    head = f"POST {MAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: 100\r\n\r\n{{"
    assert (await say(small, head.encode())).split()[1] == b"408"
    await until(lambda: not small.statistics().door.open_requests)


async def test_requests_at_the_same_time_are_counted(small):
    """One more than the limit is told to come back."""
    token = small.token.reveal()
    head = f"POST {MAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: 100\r\n\r\n"
    async with raw(small) as (_, one), raw(small) as (_, two), Caller(small) as caller:
        one.write(head.encode())
        two.write(head.encode())
        await until(lambda: small.statistics().door.open_requests == 2)
        status, headers, _ = await caller.ask("GET", MAPS)
        assert (status, headers["Retry-After"]) == (429, "1")
        await until(lambda: not small.statistics().door.open_requests)
        assert await caller.done("GET", MAPS)


async def test_streams_are_counted(monkeypatch):
    """One log more than the limit is told to come back."""
    monkeypatch.setattr("iriscw_sims.serve.scripted.TUNNEL_TIME", 0)
    settings = ServeSettings(limits=Limits(streams=1), controllers=False)
    async with SimServer(settings) as server, Caller(server) as caller:
        await caller.run()
        async with caller.session.get(f"{PODS}/p/log", params={"follow": "1"}) as answer:
            await answer.content.readline()
            assert await caller.refused("GET", f"{PODS}/p/log") == (429, "TooManyRequests")


async def test_connections_are_counted(small):
    """One more than the limit is closed at once; the others go on."""
    async with raw(small), raw(small), raw(small), raw(small), raw(small):
        await until(lambda: small.statistics().connections == 5)
        assert await say(small, b"") == b""
        assert small.statistics().connections == 5
    await until(lambda: small.statistics().connections == 0)


async def test_a_reader_of_a_long_list_has_to_read():
    """Who does not gives its place back."""
    async with SimServer(ServeSettings(limits=Limits(write_s=1.0), controllers=False)) as server:
        await _ask_and_never_read(server)


async def _ask_and_never_read(small):
    async with Caller(small) as caller:
        for number in range(30):
            await caller.done("POST", MAPS, a_map(f"c{number}", x="y" * 500_000))
        assert len((await caller.done("GET", MAPS))["items"]) == 30
    token = small.token.reveal()
    async with raw(small) as (_, writer):
        writer.transport.pause_reading()
        writer.write(f"GET {MAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
        await until(lambda: small.statistics().door.open_requests)
        await until(lambda: not small.statistics().door.open_requests)
        await until(lambda: not small.statistics().connections)


async def test_a_bug_is_told_and_kept_in_the_house(server, caller, monkeypatch, caplog):
    """500 as a Status without details; the log has them, and not the token."""

    def broken(*_):
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(server.store, "handle", broken)
    status, _, answer = await caller.ask("GET", f"/t/{server.token.reveal()}{MAPS}")
    assert (status, answer["reason"]) == (500, "InternalError")
    assert "secret" not in answer["message"]
    assert "secret detail" in caplog.text
    assert server.token.reveal() not in caplog.text
