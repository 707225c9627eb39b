"""The HTTP/1.1 that probes, ``curl`` and metric scrapers need, and nothing else.

GET and HEAD, a table of exact paths, no request bodies, no compression, no chunks. Strict where leniency has
been an attack (RFC 9112): bare line feeds, folded or space-padded header names, two lengths, and a body
announced for a GET are answered with 400 and the end of the connection. Every read is bounded in bytes and in
time.

A route is a plain function: it cannot wait, so it cannot wait for the control loop either.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from email.utils import formatdate
from http import HTTPStatus

import anyio
import attrs

from iriscw.rpc.limits import RpcLimits
from iriscw.rpc.tokens import Principal, Role

log = logging.getLogger(__name__)

MAX_HEADERS = 64
"""Of one request; Apache's limit is 100, a probe sends 4."""

MAX_REQUESTS_PER_CONNECTION = 1000
"""After which the connection closes; nginx's limit. Balancers then spread their connections anew."""

TEXT = "text/plain; charset=utf-8"

_REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,16}) (\S{1,4096}) HTTP/1\.([01])")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e\x80-\xff]*?)[ \t]*")


@attrs.frozen
class HttpResponse:
    """What a route answers."""

    status: int
    content_type: str
    body: bytes


@attrs.frozen
class Route:
    """One path of a door's HTTP side.

    ``respond`` must not block: it runs in the event loop. ``public`` routes are answered without a token; the
    others want ``Authorization: Bearer <token>``. Those with ``figures`` are all that a token for metrics opens.
    """

    respond: Callable[[], HttpResponse]
    public: bool = False
    figures: bool = False


@attrs.frozen
class HttpRequest:
    """The head of a request; header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str] = attrs.field(repr=False)
    keep_alive: bool = True

    @property
    def token(self) -> str:
        """The bearer token; empty if there is none."""
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""


class BadRequest(Exception):
    """The request is answered with ``status`` and the connection closed."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def parse_head(head: bytes) -> HttpRequest:
    """Read a request's head, up to and with the empty line.

    Raises:
        BadRequest: it is not one that this door answers.
    """
    if not head.endswith(b"\r\n\r\n"):
        raise BadRequest(431, "the head is too long")
    line, *fields = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    match = _REQUEST_LINE.fullmatch(line)
    if match is None:
        raise BadRequest(400, "malformed request line")
    method, target, minor = match[1].decode(), match[2].decode("latin-1"), match[3]
    headers = _parse_fields(fields)
    if minor == b"1" and "host" not in headers:
        raise BadRequest(400, "the Host header is missing")
    if "transfer-encoding" in headers or headers.get("content-length", "0") != "0":
        raise BadRequest(413 if method in ("GET", "HEAD") else 405, "requests with a body are not accepted")
    if method not in ("GET", "HEAD"):
        raise BadRequest(405, "only GET and HEAD are answered")
    if not target.startswith("/"):
        raise BadRequest(400, "the target must be a path")
    wishes = {wish.strip().lower() for wish in headers.get("connection", "").split(",")}
    keep_alive = "close" not in wishes if minor == b"1" else "keep-alive" in wishes
    return HttpRequest(method, target.partition("?")[0], headers, keep_alive)


def _parse_fields(fields: list[bytes]) -> dict[str, str]:
    if len(fields) > MAX_HEADERS:
        raise BadRequest(431, f"more than {MAX_HEADERS} headers")
    headers: dict[str, str] = {}
    for field in fields:
        match = _HEADER.fullmatch(field)
        if match is None:
            raise BadRequest(400, "malformed header")
        name, value = match[1].decode().lower(), match[2].decode("latin-1")
        if name in headers and name in ("host", "content-length", "transfer-encoding", "authorization"):
            raise BadRequest(400, f"the header {name} came twice")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


class HttpSide:
    """Answers HTTP/1.1 connections from a table of routes.

    Args:
        routes: exact path to route.
        authenticate: says who holds a token.
        limits: see :class:`~iriscw.rpc.limits.RpcLimits`.
    """

    def __init__(
        self, routes: Mapping[str, Route], authenticate: Callable[[str], Principal | None], limits: RpcLimits
    ) -> None:
        self._routes = dict(routes)
        self._authenticate = authenticate
        self._limits = limits

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, trusted: bool) -> None:
        """Answer one connection until either side ends it. ``trusted`` peers (the unix socket) need no
        token.
        """
        try:
            head = await self._timely_head(reader)
            for left in reversed(range(MAX_REQUESTS_PER_CONNECTION)):
                if not head or not await self._answer(head, writer, trusted=trusted, last=not left):
                    return
                first = await self._first_byte(reader)
                head = first and first + await self._timely_head(reader)
        except ConnectionError:
            log.debug("an HTTP/1.1 client went away")
        finally:
            writer.close()

    async def _first_byte(self, reader: asyncio.StreamReader) -> bytes:
        with anyio.move_on_after(self._limits.http_idle_timeout_s):
            return await reader.read(1)
        return b""

    async def _timely_head(self, reader: asyncio.StreamReader) -> bytes:
        with anyio.move_on_after(self._limits.first_bytes_timeout_s):
            return await self._read_head(reader)
        return b""

    async def _read_head(self, reader: asyncio.StreamReader) -> bytes:
        """Read up to the empty line; empty if the peer ended the connection first, one zero if the head is
        too long.
        """
        try:
            return await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return b""
        except asyncio.LimitOverrunError:
            return b"\0"  # no head that parse_head takes

    async def _answer(self, head: bytes, writer: asyncio.StreamWriter, *, trusted: bool, last: bool) -> bool:
        """Write the answer to one request; whether the connection goes on."""
        body_wanted, keep_alive = True, False
        try:
            request = parse_head(head)
            body_wanted, keep_alive = request.method != "HEAD", request.keep_alive and not last
            response = self._respond(request, trusted=trusted)
        except BadRequest as error:
            response = _plain(error.status, str(error))
        writer.write(_encode(response, body_wanted=body_wanted, keep_alive=keep_alive))
        with anyio.move_on_after(self._limits.first_bytes_timeout_s) as scope:
            await writer.drain()
        if scope.cancelled_caught:
            writer.transport.abort()
        return keep_alive and not scope.cancelled_caught

    def _respond(self, request: HttpRequest, *, trusted: bool) -> HttpResponse:
        route = self._routes.get(request.path)
        if route is None:
            return _plain(404, "nothing is served here over HTTP/1.1")
        if not (route.public or trusted):
            principal = self._authenticate(request.token)
            if principal is None:
                return _plain(401, "a bearer token is needed")
            if principal.role is Role.METRICS and not route.figures:
                return _plain(403, "this token is for metrics")
        try:
            return route.respond()
        except Exception:
            log.exception("the route %s failed", request.path)
            return _plain(500, "internal error")


def _plain(status: int, text: str) -> HttpResponse:
    return HttpResponse(status, TEXT, text.encode() + b"\n")


def _encode(response: HttpResponse, *, body_wanted: bool, keep_alive: bool) -> bytes:
    lines = [
        f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}",
        f"Date: {formatdate(usegmt=True)}",
        f"Content-Type: {response.content_type}",
        f"Content-Length: {len(response.body)}",
        f"Connection: {'keep-alive' if keep_alive else 'close'}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
    ]
    if response.status == HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: GET, HEAD")
    if response.status == HTTPStatus.UNAUTHORIZED:
        lines.append("WWW-Authenticate: Bearer")
    head = "\r\n".join(lines) + "\r\n\r\n"
    return head.encode("latin-1") + (response.body if body_wanted else b"")
