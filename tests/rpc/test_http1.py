"""HTTP/1.1: strict heads, bounded reads, and answers that clients understand."""

import asyncio

import anyio
import pytest
from hypothesis import given, strategies as st
from rpc_world import authenticate, knock

from iriscw.rpc.http1 import BadRequest, HttpResponse, Route, parse_head
from iriscw.rpc.limits import RpcLimits
from iriscw.rpc.server import RpcServer

GOOD = b"GET /health?x=1 HTTP/1.1\r\nHost: x\r\nX-A: 1\r\nx-a: 2\r\n\r\n"


def fail() -> HttpResponse:
    """A route with a bug."""
    raise ZeroDivisionError("secret")


ROUTES = {
    "/health": Route(lambda: HttpResponse(200, "text/plain", b"ok\n"), public=True),
    "/bug": Route(fail, public=True),
}


def test_head() -> None:
    """Names are case-insensitive, repeated headers are joined, the query is not part of the path."""
    request = parse_head(GOOD)
    assert (request.method, request.path, request.keep_alive) == ("GET", "/health", True)
    assert request.headers["x-a"] == "1, 2"


@pytest.mark.parametrize(
    ("version", "connection", "keeps"),
    [(b"1", b"", True), (b"1", b"Close", False), (b"0", b"", False), (b"0", b"keep-alive", True)],
)
def test_keep_alive(version: bytes, connection: bytes, keeps: bool) -> None:
    """1.1 keeps the connection unless told otherwise, 1.0 the reverse."""
    head = b"GET / HTTP/1." + version + b"\r\nHost: x\r\nConnection: " + connection + b"\r\n\r\n"
    assert parse_head(head).keep_alive is keeps


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_token(scheme: str) -> None:
    """The bearer token, and no other scheme's credentials."""
    head = f"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: {scheme} abc\r\n\r\n".encode()
    assert parse_head(head).token == "abc"
    assert parse_head(head.replace(scheme.encode(), b"Basic")).token == ""


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 400),  # no host
        (b"GET / HTTP/2.0\r\nHost: x\r\n\r\n", 400),
        (b"GET  / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /\r\n\r\n", 400),
        (b"GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400),  # a space before the colon
        (b"GET / HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\nX: y\r\n\r\n", 400),  # a bare line feed
        (b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: a\0b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n", 405),
        (b"DELETE / HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 64 + b"\r\n", 431),
        (b"\0", 431),
    ],
)
def test_refused_heads(head: bytes, status: int) -> None:
    """What has been an attack, or is not answered here, is refused with its status."""
    with pytest.raises(BadRequest) as caught:
        parse_head(head)
    assert caught.value.status == status


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    """Whatever comes is a request or a refusal."""
    try:
        request = parse_head(data + b"\r\n\r\n")
    except BadRequest as refusal:
        status = refusal.status
    else:
        status = 200 if request.path.startswith("/") else 0
    assert status in (200, 400, 405, 413, 431)


async def answers(data: bytes, limits: RpcLimits | None = None) -> bytes:
    """Everything a fresh server says to ``data`` until it ends the connection."""
    async with RpcServer([], authenticate=authenticate, routes=ROUTES, limits=limits) as server:
        with anyio.fail_after(10):
            return await knock(await server.listen_tcp("127.0.0.1", 0), data)


async def test_pipelined() -> None:
    """Requests that came at once are answered in order; the last one closes."""
    last = GOOD.replace(b"Host", b"Connection: close\r\nHost")
    said = await answers(GOOD + b"HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n" + last)
    assert said.count(b"HTTP/1.1 200 OK") == 3
    assert said.count(b"\r\n\r\nok\n") == 2  # HEAD has the length and no body
    assert said.count(b"Content-Length: 3\r\n") == 3
    assert said.count(b"Connection: keep-alive") == 2


async def test_bug_in_a_route(caplog: pytest.LogCaptureFixture) -> None:
    """A route that fails is a 500 without the error's text, which is logged; the connection goes on."""
    said = await answers(GOOD.replace(b"/health", b"/bug") + GOOD.replace(b"Host", b"Connection: close\r\nHost"))
    assert said.startswith(b"HTTP/1.1 500 ")
    assert b"secret" not in said
    assert b"ok\n" in said
    assert "ZeroDivisionError: secret" in caplog.text


async def test_long_head() -> None:
    """A head over the limit is refused without being read to its end."""
    said = await answers(b"GET / HTTP/1.1\r\nX: " + b"a" * 40_000)
    assert said.startswith(b"HTTP/1.1 431 ")


async def test_idle_connection_is_closed() -> None:
    """A connection is not kept for ever between requests, nor in the middle of the next one."""
    limits = RpcLimits(http_idle_timeout_s=0.1, first_bytes_timeout_s=0.1)
    assert (await answers(GOOD, limits)).count(b"HTTP/1.1 200 OK") == 1
    assert (await answers(GOOD + b"GET /he", limits)).count(b"HTTP/1.1 200 OK") == 1


async def test_slow_head_over_two_writes() -> None:
    """A head may come in pieces."""
    async with RpcServer([], authenticate=authenticate, routes=ROUTES) as server:
        address = await server.listen_tcp("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(address.host, address.port)
        for piece in (GOOD[:1], GOOD[1:20], GOOD[20:]):
            writer.write(piece)
            await anyio.sleep(0.01)
        assert (await reader.readline()) == b"HTTP/1.1 200 OK\r\n"
        writer.close()
