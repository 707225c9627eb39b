"""Opening websockets, and what is said instead: a refusal comes with its body, and a redirect is not followed.

aiohttp's ``ws_connect`` tells nothing of a refusal but its code, and follows redirects, with the token. Its traces are
the way to do otherwise: one sees each answer before it is thrown away. So websockets have a session of their own, over
the connections of the other one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import TypeAlias

import aiohttp
import attrs

from iriscw._version import __version__
from iriscw.cloud.drivers.kube.access import ClusterAccess
from iriscw.cloud.drivers.kube.limits import TransportLimits
from iriscw.cloud.drivers.kube.streams import CLOSE_S, MESSAGE_BYTES
from iriscw.cloud.kube.messages import ApiResponse, ApiUnreachable

Reader: TypeAlias = Callable[[aiohttp.ClientResponse], Awaitable[ApiResponse]]
"""Reads an answer, within its limits."""


@attrs.define
class _Refusal:
    """Where the answer to an upgrade is kept, if it is a refusal."""

    read: Reader
    answer: ApiResponse | None = None


_KEPT: ContextVar[_Refusal | None] = ContextVar("_KEPT", default=None)


def refusal_kept() -> aiohttp.TraceConfig:
    """Return the trace that keeps refusals and stops redirects."""

    async def ended(_session: object, _context: object, told: aiohttp.TraceRequestEndParams) -> None:
        kept = _KEPT.get()
        if kept is not None and told.response.status != 101:
            kept.answer = await kept.read(told.response)

    async def redirected(_session: object, _context: object, told: aiohttp.TraceRequestRedirectParams) -> None:
        raise ApiUnreachable(f"the server sends us elsewhere: it answered {told.response.status}")

    trace = aiohttp.TraceConfig()
    trace.on_request_end.append(ended)
    trace.on_request_redirect.append(redirected)
    return trace


@attrs.frozen
class Upgrades:
    """Opens websockets.

    Args:
        session: A session with the trace of :func:`refusal_kept`.
        access: The way to the server.
    """

    session: aiohttp.ClientSession
    access: ClusterAccess

    async def open(
        self, url: str, headers: Mapping[str, str], protocols: Sequence[str], read: Reader
    ) -> aiohttp.ClientWebSocketResponse[bool] | ApiResponse:
        """Open a websocket, or give the answer that refuses it.

        Args:
            url: Where.
            headers: What the request says beside what websockets want.
            protocols: Which subprotocols are understood, the best first.
            read: Reads a refusal.

        Raises:
            ApiUnreachable: the answer is neither, or sends us elsewhere.
        """
        refusal = _Refusal(read)
        token = _KEPT.set(refusal)
        try:
            return await self.session.ws_connect(
                url,
                protocols=protocols,
                headers=headers,
                proxy=self.access.proxy,
                server_hostname=self.access.tls_name,
                autoping=False,  # aiohttp would answer pings only while somebody reads, and take a slow reader for dead
                max_msg_size=MESSAGE_BYTES,
                timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_S),
            )
        except aiohttp.WSServerHandshakeError:
            if refusal.answer is None:
                raise ApiUnreachable("the server opened something that is not a websocket") from None
            return refusal.answer
        finally:
            _KEPT.reset(token)


def new_session(
    connector: aiohttp.BaseConnector, limits: TransportLimits, traces: Sequence[aiohttp.TraceConfig] = ()
) -> aiohttp.ClientSession:
    """Return a session over shared connections; it keeps no cookies, decodes nothing, and repeats nothing."""
    session = aiohttp.ClientSession(
        connector=connector,
        connector_owner=False,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=limits.connect_s),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,  # nothing compressed is asked for; what is sent all the same is no JSON
        headers={"User-Agent": f"iriscw/{__version__}"},
        trace_configs=[*traces],
    )
    session._retry_connection = False  # aiohttp would repeat what is idempotent; the driver counts its attempts itself
    return session
