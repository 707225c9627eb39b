"""The transport against servers of ill will: an answer or ``ApiUnreachable``, and nothing left open."""

import asyncio
import contextlib
import gc
import json
import logging
import socket
import ssl
import tracemalloc
from contextlib import aclosing, asynccontextmanager

import anyio
import attrs
import pytest
import trustme
from drivers_world import LIMITS, LIST, WATCH, pod, pods
from hypothesis import given, strategies as st
from raw_server import TOKEN, serving

from iriscw.cloud.drivers.kube.access import ClusterAccess, trusting
from iriscw.cloud.drivers.kube.api import open_api, url_of
from iriscw.cloud.drivers.kube.credentials import Fixed
from iriscw.cloud.kube.messages import APPLY_PATCH, ApiRequest, ApiUnreachable
from iriscw.runtime.vocabulary import SECOND
from profiles import examples
from raised import that
from waiting import until

MIB = 2**20


@asynccontextmanager
async def talking(script, **limits):
    """A server with a script, and the port to it."""
    async with serving(script) as server, open_api(server.access, attrs.evolve(LIMITS, **limits)) as api:
        yield server, api


async def drained(api):
    """Take all that a watch brings."""
    async with aclosing(api.watch(WATCH)) as events:
        return [event async for event in events]


async def unreachable(api, request=LIST):
    """Return what a request or watch fails with; nothing else may come of it."""
    with pytest.raises(ApiUnreachable) as failed:
        await (drained(api) if request is WATCH else api.request(request))
    assert TOKEN not in f"{failed.value!r}"
    shown = failed.value
    while shown is not None:
        assert not type(shown).__module__.startswith("aiohttp"), "its errors hold URLs and headers"
        shown = shown.__cause__ or (None if shown.__suppress_context__ else shown.__context__)
    return str(failed.value)


# Answers


async def test_a_request_as_the_server_sees_it():
    """Path, query, body, content type, token; no compression is asked for."""

    async def script(peer):
        await peer.answer(201, {"a": "ü"})

    async with talking(script) as (server, api):
        query = (("fieldManager", "iriscw"), ("labelSelector", "a=b,c!=d"), ("continue", "x+/=&%"))
        answer = await api.request(ApiRequest("PATCH", "/apis/x/y", query, {"z": ["ü", None]}, APPLY_PATCH))
        await api.request(LIST)
    assert (answer.code, answer.body, answer.retry_after) == (201, {"a": "ü"}, None)
    asked, listed = server.asked
    assert (asked.method, asked.path) == ("PATCH", "/apis/x/y")
    assert asked.query == {name: [value] for name, value in query}
    assert json.loads(asked.body) == {"z": ["ü", None]}
    assert asked.headers["content-type"] == APPLY_PATCH
    assert asked.headers["authorization"].lower() == f"bearer {TOKEN}".lower()
    assert asked.headers["accept-encoding"] == "identity"
    assert asked.headers["user-agent"].startswith("iriscw/")
    assert "content-type" not in listed.headers
    assert server.connections == 1


async def test_a_404_of_somebody_elses():
    """It is no word on whether an object exists; an API server says what is not there."""
    bodies = [b"<html>no such page</html>", b"", b'{"kind": "Status", "code": 404}']

    async def script(peer):
        await peer.answer(404, bodies.pop(0))

    async with talking(script) as (_, api):
        for _ in range(2):
            with pytest.raises(ApiUnreachable, check=that(comes_from="api.KubernetesApi.request")):
                await api.request(LIST)
        assert (await api.request(LIST)).code == 404


async def test_a_403_about_an_object_renews_no_token():
    """Only a denial of rights may be the token's fault."""
    texts = [
        'pods "w" is forbidden: failed quota: must specify limits.cpu',
        'pods is forbidden: User "x" cannot list pods',
    ]
    renewed = []

    async def script(peer):
        await peer.answer(403, json.dumps({"kind": "Status", "message": texts.pop(0)}).encode())

    async with talking(script) as (_, api):
        object.__setattr__(api._access, "credentials", Watched(renewed))
        await api.request(LIST)
        assert renewed == []
        await api.request(LIST)
        assert renewed == ["refused"]


class Watched:
    """Credentials that note that they were refused."""

    def __init__(self, renewed):
        self.renewed = renewed

    async def header(self):
        return None

    def refused(self):
        self.renewed.append("refused")


@pytest.mark.parametrize("code", [200, 204, 301, 307, 400, 401, 403, 409, 410, 418, 422, 429, 500, 502, 503, 504])
async def test_every_code_is_an_answer(code):
    """Also with a proxy's HTML. A redirect is not followed: it would carry the token elsewhere."""

    async def script(peer):
        page = b"" if code == 204 else b"<html>from the proxy</html>"
        await peer.answer(code, page, Retry_After="3", Location="/elsewhere")

    async with talking(script) as (server, api):
        answer = await api.request(LIST)
        assert (answer.code, answer.retry_after) == (code, 3 * SECOND)
        assert answer.body == (None if code == 204 else "<html>from the proxy</html>")
        assert len(server.asked) == 1
        assert api.statistics().refusals == (code >= 400)
        assert api.statistics().throttled == (code == 429)


async def test_compressed_answers_nobody_asked_for_are_text():
    """They are not unpacked: a kilobyte would be a gigabyte."""

    async def script(peer):
        await peer.answer(200, b"\x1f\x8b\x08garbage", Content_Encoding="gzip")

    async with talking(script) as (_server, api):
        assert isinstance((await api.request(LIST)).body, str)


# No answers


async def test_nobody_listens():
    """The operating system's words, and no URL."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    access = ClusterAccess(f"http://127.0.0.1:{port}/t/{TOKEN}", Fixed())
    async with open_api(access, LIMITS) as api:
        assert await unreachable(api) == "no connection: Connection refused"
        assert await unreachable(api, WATCH) == "no connection: Connection refused"
        assert TOKEN not in repr(api)
        assert api.statistics().unreachable == 2


BAD_ANSWERS = {
    "nothing": b"",
    "garbage": b"\x00\xff\x13garbage\r\n\r\n",
    "no status": b"HTTP/1.1 lots OK\r\n\r\n",
    "tls": b"\x15\x03\x01\x00\x02\x02\x46",
    "a header without an end": b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000,
    "headers without an end": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 50_000,
    "a body that is too short": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}",
    "a length that is none": b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n{}",
    "chunks that are none": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n{}\r\n",
    "a chunk that breaks off": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{}",
    "chunks without an end": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
}


@pytest.mark.parametrize("request_", [LIST, WATCH], ids=["request", "watch"])
@pytest.mark.parametrize("what", BAD_ANSWERS)
async def test_what_is_not_http(what, request_):
    """Each is asked for once, and is no answer."""

    async def script(peer):
        await peer.raw(BAD_ANSWERS[what])
        peer.writer.close()
        await asyncio.sleep(0)

    async with talking(script) as (server, api):
        await unreachable(api, request_)
        await server.gone()
        assert len(server.asked) == 1
        assert api.statistics().unreachable == 1
        assert api.statistics().open_watches == 0


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "POST"])
async def test_nothing_is_repeated(method):
    """Not even on a connection that was used before, where the library would: the driver counts its attempts."""

    async def script(peer):
        if len(server.asked) == 1:
            await peer.answer(200, {})
        else:
            peer.cut()

    async with talking(script) as (server, api):
        await api.request(LIST)
        await unreachable(api, ApiRequest(method, "/x", body={"a": 1}))
        assert len(server.asked) == 2


HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@examples(20)  # silence takes a second
@given(st.sampled_from([b"", HEAD, HEAD + b"5\r\n"]), st.lists(st.binary(max_size=200), max_size=4), st.booleans())
async def test_any_bytes(head, pieces, watches):
    """Whatever a peer says, it is an answer, events and their end, or no answer."""

    async def script(peer):
        for piece in (head, *pieces):
            await peer.raw(piece)
            await asyncio.sleep(0)
        peer.writer.close()

    async with talking(script, request_s=1, open_s=1, silence_s=1) as (server, api):
        with contextlib.suppress(ApiUnreachable):
            await (drained(api) if watches else api.request(LIST))
        assert len(server.asked) == 1
        assert api.statistics().open_watches == 0


async def test_closed():
    """Who comes after the end is told so, by the contract's error."""

    async def script(peer):
        await peer.answer(200, {})

    async with talking(script) as (_server, api):
        await api.request(LIST)
    assert await unreachable(api) == "the way to the cluster was closed"
    assert await unreachable(api, WATCH) == "the way to the cluster was closed"


async def test_half_open():
    """A server that takes the request and says nothing is waited for until the deadline, and not longer."""

    async def script(peer):
        await peer.reader.read()

    async with talking(script, request_s=0.1, open_s=0.1) as (server, api):
        assert await unreachable(api) == "an answer did not come within 0.1 s"
        assert await unreachable(api, WATCH) == "the beginning of a watch did not come within 0.1 s"
        await server.gone()


async def test_a_slow_drip_is_no_answer():
    """Each byte comes in time; the answer does not."""

    async def script(peer):
        await peer.begin()
        while True:
            await peer.chunk(b" ")
            await asyncio.sleep(0.01)

    async with talking(script, request_s=0.3) as (server, api):
        assert "did not come" in await unreachable(api)
        await server.gone()


async def test_a_reader_that_does_not_read():
    """A request that the server does not take in ends with its deadline."""

    async def script(peer):
        await asyncio.sleep(60)

    async with talking(script, request_s=0.2) as (_server, api):
        with anyio.fail_after(5):
            await unreachable(api, ApiRequest("POST", "/x", body=["x" * MIB] * 16))


async def test_no_free_connection():
    """Who finds none waits, within the deadline."""

    async def script(peer):
        await peer.begin()
        await peer.event("ADDED", {})
        await peer.reader.read()

    async with talking(script, connections=1, request_s=0.1) as (server, api), aclosing(api.watch(WATCH)) as events:
        await anext(events)
        assert "did not come" in await unreachable(api)
        assert server.connections == 1


# Sizes


@pytest.mark.parametrize("announced", [True, False])
async def test_an_answer_that_is_too_long(announced):
    """It is not read: announced or not."""
    sent = 0

    async def script(peer):
        nonlocal sent
        if announced:
            await peer.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        else:
            await peer.begin()
        while True:
            await (peer.raw if announced else peer.chunk)(b" " * 65536)
            sent += 65536

    async with talking(script, response_bytes=MIB) as (server, api):
        assert await unreachable(api) == f"the answer is longer than {MIB} bytes"
        await server.gone()
        assert api.statistics().received_bytes < 2 * MIB
        assert sent < 32 * MIB


async def test_a_line_of_300_mb():
    """Memory is bounded by the limit of a line, whatever comes."""
    piece = b"x" * (256 * 1024)

    async def script(peer):
        await peer.begin()
        for _ in range(1200):
            await peer.chunk(piece)

    tracemalloc.start()
    try:
        async with talking(script) as (server, api):
            assert await unreachable(api, WATCH) == f"a line is longer than {LIMITS.line_bytes} bytes"
            await server.gone()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * LIMITS.line_bytes


# Watches


async def test_a_watch():
    """Events come as they are sent, and the end is an end."""

    async def script(peer):
        await peer.begin()
        await peer.event("ADDED", {"n": 1})
        await peer.chunk(b'{"type": "MODI')
        await peer.chunk(b'FIED", "object": {"n": "\xc3')
        await peer.chunk(b'\xbc"}}\n\n{"type": "DELETED", "object": {}}\n')
        await peer.end()

    async with talking(script) as (_server, api):
        assert await drained(api) == [
            {"type": "ADDED", "object": {"n": 1}},
            {"type": "MODIFIED", "object": {"n": "ü"}},
            {"type": "DELETED", "object": {}},
        ]
        assert api.statistics().events == 3


async def test_an_event_is_there_as_soon_as_it_was_sent():
    """Nothing is held back until more comes."""
    go_on = asyncio.Event()

    async def script(peer):
        await peer.begin()
        await peer.event("ADDED", {})
        await go_on.wait()
        await peer.event("DELETED", {})
        await peer.reader.read()

    async with talking(script) as (server, api):
        async with aclosing(api.watch(WATCH)) as events:
            assert (await anext(events))["type"] == "ADDED"
            go_on.set()
            assert (await anext(events))["type"] == "DELETED"
            assert api.statistics().open_watches == 1
        await server.gone()


@pytest.mark.parametrize(
    "ending",
    [b"0\r\n\r\n", b""],
    ids=["said to be over", "cut"],
)
async def test_a_watch_that_breaks_within_an_event(ending):
    """What came before was told; the half is not."""

    async def script(peer):
        await peer.begin()
        await peer.event("ADDED", {})
        await peer.chunk(b'{"type": "MODIFIED"')
        await peer.raw(ending)
        peer.writer.close()

    async with talking(script) as (_server, api):
        events = api.watch(WATCH)
        assert (await anext(events))["type"] == "ADDED"
        with pytest.raises(ApiUnreachable):
            await anext(events)


@pytest.mark.parametrize("line", [b"<html>\n", b"17\n", b"\xff\xfe\n", b'"ERROR"\n', b"[" * 100_000 + b"\n"])
async def test_a_watch_of_garbage(line):
    """Is broken, not an event."""

    async def script(peer):
        await peer.begin()
        await peer.chunk(line)
        await peer.reader.read()

    async with talking(script) as (server, api):
        assert await unreachable(api, WATCH) == "a watch told something that is not an event"
        await server.gone()


async def test_a_watch_that_goes_silent():
    """It is given up when not even bookmarks come."""

    async def script(peer):
        await peer.begin()
        await peer.event("BOOKMARK", {})
        await peer.reader.read()

    async with talking(script, silence_s=0.1) as (server, api):
        assert await unreachable(api, WATCH) == "anything on a watch did not come within 0.1 s"
        await server.gone()


@pytest.mark.parametrize(("code", "body"), [(410, {"reason": "Expired", "code": 410}), (429, None), (502, b"<html>")])
async def test_a_refused_watch(code, body):
    """One event says so, in the form that servers use once a stream has begun."""

    async def script(peer):
        await peer.answer(code, b"" if body is None else body, Retry_After="2")

    async with talking(script) as (server, api):
        (event,) = await drained(api)
        assert event["type"] == "ERROR"
        assert event["object"]["code"] == code
        assert event["object"]["details"]["retryAfterSeconds"] == 2
        assert server.connections == 1


async def test_a_slow_reader_stops_the_server():
    """What is read ahead is bounded: the server is held up instead, and goes on when the reader does."""
    sent = 0

    async def script(peer):
        nonlocal sent
        await peer.begin()
        while sent < 20_000:
            await peer.event("MODIFIED", pod(1, sent, padding="x" * 10_000))
            sent += 1

    async with talking(script) as (_server, api), aclosing(api.watch(WATCH)) as events:
        await anext(events)
        before = -1
        while sent > before:
            before = sent
            await asyncio.sleep(0.2)
        assert sent < 3000
        for _ in range(sent + 100):
            await anext(events)
        assert sent > before


async def test_cancelled_anywhere():
    """A request and a watch that are cancelled at any moment leave no connection and no task."""
    before = len(asyncio.all_tasks())

    async def script(peer):
        await asyncio.sleep(0.002)
        if not peer.asked.watches:
            await peer.answer(200, pods(*(pod(number, number) for number in range(200))))
            return
        await peer.begin()
        for number in range(100):
            await peer.event("ADDED", pod(number, number))
            await asyncio.sleep(0.0005)

    async with talking(script) as (server, api):
        for request in (LIST, WATCH):
            for step in range(25):
                with anyio.move_on_after(step * 0.0008):
                    await (drained(api) if request is WATCH else api.request(request))
        assert api.statistics().open_watches == 0
        answer = await api.request(LIST)
        assert len(answer.body["items"]) == 200
    await server.gone()
    assert len(asyncio.all_tasks()) == before
    gc.collect()  # an unclosed session or connection would warn now


# Trust and secrets


@pytest.fixture(scope="module")
def authority():
    """Somebody to trust."""
    return trustme.CA()


async def test_tls_is_verified(authority):
    """A certificate of another authority, or for another name, is refused before the token is sent."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    seen = []

    async def talk(reader, writer):
        try:
            seen.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        except (OSError, EOFError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=context)
    async with listening:
        url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        ours, others = authority.cert_pem.bytes(), trustme.CA().cert_pem.bytes()
        for tls, name in ((trusting(others), None), (trusting(None), None), (trusting(ours), "another.name")):
            async with open_api(ClusterAccess(url, Fixed(), tls, tls_name=name), LIMITS) as api:
                assert "certificate is not accepted" in await unreachable(api)
        assert not seen
        async with open_api(ClusterAccess(url, Fixed(), trusting(ours)), LIMITS) as api:
            assert (await api.request(LIST)).code == 200
        async with open_api(ClusterAccess(url.replace("https", "http"), Fixed()), LIMITS) as api:
            await unreachable(api)


async def test_tls_is_hung_up_at_once(authority):
    """A peer that hangs is not waited for, neither when a watch is left nor when the way to the cluster is closed."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    silent = asyncio.Event()

    async def talk(reader, writer):
        asked = await reader.readuntil(b"\r\n\r\n")
        if b"watch" in asked:
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + b'{"type": "ADDED"}\n' * 100_000)
        writer.transport.pause_reading()
        await silent.wait()
        writer.transport.abort()

    listening = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=context)
    async with listening:
        url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        access = ClusterAccess(url, Fixed(), trusting(authority.cert_pem.bytes()))
        async with open_api(access, attrs.evolve(LIMITS, request_s=0.5)) as api:
            async with aclosing(api.watch(WATCH)) as events:
                await anext(events)
                assert api.statistics().open_sockets == 1
            await until(lambda: not api.statistics().open_sockets)
            await unreachable(api)
            abandoned = api.watch(WATCH)
            await anext(abandoned)
            began = asyncio.get_running_loop().time()
        assert api.statistics().open_sockets == 0
        assert asyncio.get_running_loop().time() - began < 5
        await abandoned.aclose()
        silent.set()


async def test_secrets_stay_in(caplog):
    """No log line, repr or error has the token, whatever goes wrong."""
    caplog.set_level(logging.DEBUG)

    async def script(peer):
        answers = [b"HTTP/1.1 999999 x\r\n\r\n", b"", b"HTTP/1.1 407 No\r\nContent-Length: 2\r\n\r\nx", b"\x00"]
        await peer.raw(answers[len(server.asked) % len(answers)])
        peer.cut()

    async with serving(script) as server:
        access = attrs.evolve(
            server.access, url=f"{server.access.url}/t/{TOKEN}", proxy=f"http://u:{TOKEN}@127.0.0.1:1"
        )
        direct = attrs.evolve(access, proxy=None)
        for way in (access, direct):
            async with open_api(way, LIMITS) as api:
                for request in (LIST, WATCH) * 4:
                    await unreachable(api, request)
                assert TOKEN not in f"{way!r} {api!r} {api.statistics()!r}"
    assert TOKEN not in caplog.text


def test_where_a_request_goes():
    """Paths and queries are quoted; the server's own path stays in front."""
    request = ApiRequest("GET", "/api/v1/x y", (("a", "b&c=d"), ("a", "ü")))
    assert url_of("https://h:1/prefix", request) == "https://h:1/prefix/api/v1/x%20y?a=b%26c%3Dd&a=%C3%BC"
    assert url_of("https://h", ApiRequest("GET", "/x")) == "https://h/x"
