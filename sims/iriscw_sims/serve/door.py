"""The door of a served simulation: who comes in, with how much, and which room it leads to.

Theory of operation. Every request passes the same steps, and none is taken for one that was refused before: a token,
which also health checks need; a target and the name of the user; a place among those that are served at the same time;
a body within its limits. Then the path decides: a log, a command, a watch, a document of OpenAPI, or the store.

The token comes in the header (``Authorization: Bearer``) or, without TLS, as the beginning of the path: kubectl and all
that is made of client-go send no header with a secret over plain HTTP, whatever their kubeconfig says, but they keep a
path that belongs to their server's address. Nothing here writes a target to a log before that part is taken off.

A wrong token is 401, as none is: clients get themselves a new one for that. (CoreWeave's front says 403.) Whoever holds
the token is ``admin`` and may speak as another user (``kubectl --as``), so that roles can be tried out.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
from aiohttp import web

from iriscw.rpc.tokens import Secret
from iriscw_sims.kube.discovery import HEALTH
from iriscw_sims.kube.messages import Request, Response
from iriscw_sims.kube.paths import Route, route
from iriscw_sims.kube.refusals import (
    Refused,
    bad_request,
    internal,
    no_such_resource,
    status_failure,
    too_many_requests,
)
from iriscw_sims.serve import openapi, portforward
from iriscw_sims.serve.answers import send
from iriscw_sims.serve.live import Live
from iriscw_sims.serve.podexec import check_upgrade, read_command, run_command
from iriscw_sims.serve.podlogs import read_options, send_log
from iriscw_sims.serve.pods import find
from iriscw_sims.serve.ports import Conversation
from iriscw_sims.serve.requests import parse_body, read_body, read_target
from iriscw_sims.serve.settings import Limits
from iriscw_sims.serve.streams import PodDials, PodPorts, PodStreams
from iriscw_sims.serve.watching import stream_watch

_log = logging.getLogger(__name__)

ADMIN = "admin"
TOKEN_PREFIX = "/t/"  # noqa: S105 - no password
"""How a path begins whose next part is the token."""

IMPERSONATE = "Impersonate-"
INSIDE = ("log", "exec", "attach", "portforward")
"""What is asked of the inside of a pod."""

READABLE = ("*/*", "application/*", "application/json")
"""Media types of which a caller has to accept one: all answers are JSON."""


@attrs.frozen
class DoorStatistics:
    """What a door has let in."""

    requests: int
    """Since the start, refused ones too."""
    refused: int
    """Of them, without a token or with a wrong one."""
    open_requests: int
    open_watches: int
    open_streams: int


class Door:
    """Answers the requests of one server.

    Args:
        live: What is served.
        token: What callers have to show.
        streams: Who knows the inside of containers.
        limits: What callers may cost.
    """

    def __init__(self, live: Live, token: Secret, streams: PodStreams, limits: Limits) -> None:
        self._live = live
        self._token = token
        self._streams = streams
        self._limits = limits
        self._open: Counter[str] = Counter()
        self._requests = 0
        self._refused = 0

    def statistics(self) -> DoorStatistics:
        """Return figures of now."""
        counts = (self._open[name] for name in ("requests", "watches", "streams"))
        return DoorStatistics(self._requests, self._refused, *counts)

    async def answer(self, http: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        self._requests += 1
        try:
            return await self._answer(http)
        except Refused as refused:
            response = refused.response()
        except ConnectionError:
            return web.Response()  # the caller is gone, or was cut off: this reaches nobody
        except Exception:  # noqa: BLE001 - a caller is told that there is a bug, and the log which
            _log.exception("a bug: a request (%s) could not be answered", http.method)
            said = "Internal Server Error: the simulated API server could not answer; its log says why"
            response = internal(said, "InternalError").response()
        return await send(http, response, self._limits.write_s)

    async def _answer(self, http: web.BaseRequest) -> web.StreamResponse:
        path, query = read_target(self._admitted(http))
        accept = http.headers.get("Accept", "") or "application/json"
        content_type = http.headers.get("Content-Type", "")
        request = Request(http.method, path, query, None, content_type, _user(http), accept)
        found = route(path)
        if found is not None and found.subresource in INSIDE and found.plural == "pods" and not found.group:
            async with self._place("streams", self._limits.streams):
                return await self._stream(http, request, found)
        _check_accept(accept)
        if http.method == "GET" and found is not None and request.flag("watch"):
            async with self._place("watches", self._limits.watches):
                return await self._watch(http, request)
        async with self._place("requests", self._limits.requests):
            response = await self._plain(http, request)
            if path in HEALTH and response.code == 200:
                return web.Response(text="ok")
            return await send(http, response, self._limits.write_s)

    def _admitted(self, http: web.BaseRequest) -> str:
        """Return the target of a request that has the token, without it.

        Raises:
            Refused: 401, there is none, or another one.
        """
        target = http.raw_path
        scheme, _, shown = http.headers.get("Authorization", "").partition(" ")
        tokens = [shown.strip()] if scheme.lower() == "bearer" and shown.strip() else []
        if target.startswith(TOKEN_PREFIX):
            in_path, slash, rest = target.removeprefix(TOKEN_PREFIX).partition("/")
            tokens.append(in_path)
            target = slash + rest
        if tokens and all(map(self._token.matches, tokens)):
            return target
        self._refused += 1
        raise Refused(status_failure(401, "Unauthorized", "Unauthorized"))

    @asynccontextmanager
    async def _place(self, what: str, limit: int) -> AsyncIterator[None]:
        """Take a place among those that are served at the same time.

        Raises:
            Refused: 429, all are taken.
        """
        if self._open[what] >= limit:
            raise too_many_requests(f"too many {what} at the same time: the limit is {limit}", 1)
        self._open[what] += 1
        try:
            yield
        finally:
            self._open[what] -= 1

    async def _plain(self, http: web.BaseRequest, request: Request) -> Response:
        if http.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise Refused(status_failure(415, "UnsupportedMediaType", "bodies are taken as they are, not encoded"))
        if http.body_exists:
            chunks = http.content.iter_any()
            data = await read_body(chunks, http.content_length, self._limits)
            body, content_type = await parse_body(data, request.content_type, self._limits)
            request = attrs.evolve(request, body=body, content_type=content_type)
        if request.path.startswith(openapi.ROOT) and request.method == "GET":
            document = openapi.document(request.path.rstrip("/"), self._live.store.kinds)
            if document is None:
                raise no_such_resource()
            return Response(200, document)
        return self._live.handle(request)

    async def _watch(self, http: web.BaseRequest, request: Request) -> web.StreamResponse:
        opened = self._live.watch(request)
        if isinstance(opened, Response):
            return await send(http, opened, self._limits.write_s)
        return await stream_watch(http, self._live, request, opened, self._limits.write_s)

    async def _stream(self, http: web.BaseRequest, request: Request, found: Route) -> web.StreamResponse:
        if found.subresource == "log":
            if http.method != "GET":
                raise Refused(status_failure(405, "MethodNotAllowed", "a log can only be read"))
            options = read_options(request, self._live.timeline.catch_up())
            place, pod = find(self._live, self._streams, request, found, "get")
            return await send_log(http, place, pod, options, self._limits.write_s)
        if found.subresource == "portforward":
            return await self._forward(http, request, found)
        place, pod = find(self._live, self._streams, request, found, "create")
        if found.subresource != "exec":
            said = f"{found.subresource} is not simulated: nothing runs in simulated containers"
            raise Refused(status_failure(501, "NotImplemented", said))
        command = read_command(request, place, pod)
        check_upgrade(http)
        return await run_command(http, self._streams, request, command, self._live.now, self._limits.write_s)

    async def _forward(self, http: web.BaseRequest, request: Request, found: Route) -> web.StreamResponse:
        _, pod = find(self._live, self._streams, request, found, "create", whole=True)
        inside = self._streams
        if isinstance(inside, PodDials):
            ports = portforward.read_ports(request, pod)
            spoken = portforward.check_upgrade(http, ports)
            dialled = await inside.dial(pod, ports[0]) if ports else None
            return await portforward.carry(http, pod, ports, spoken, dialled, self._limits.write_s)
        if not isinstance(inside, PodPorts):
            raise Refused(status_failure(501, "NotImplemented", "portforward is not served for these containers"))
        ports = portforward.read_ports(request, pod)
        spoken = portforward.check_upgrade(http, ports)

        def connect(port: int) -> Conversation | None:
            return inside.connect(pod, port, self._live.now)

        return await portforward.forward(http, pod, ports, spoken, connect, self._limits.write_s)


def _user(http: web.BaseRequest) -> str:
    """Return as whom a caller speaks.

    Raises:
        Refused: 400, it speaks as somebody in a way that is not known here.
    """
    named = [name for name in http.headers if name.lower().startswith(IMPERSONATE.lower())]
    if any(name.lower() != "impersonate-user" for name in named):
        raise bad_request("only Impersonate-User is understood here; groups follow from the user")
    return http.headers.get("Impersonate-User", ADMIN) if named else ADMIN


def _check_accept(accept: str) -> None:
    """Refuse who takes no JSON.

    Raises:
        Refused: 406.
    """
    kinds = [each.partition(";")[0].strip().lower() for each in accept.split(",")]
    if not any(kind in READABLE for kind in kinds):
        said = f"only the following media types are accepted: {', '.join(READABLE)}"
        raise Refused(status_failure(406, "NotAcceptable", said))
