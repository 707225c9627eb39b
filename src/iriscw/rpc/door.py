"""One port, two protocols: a connection's first bytes decide who answers it.

An HTTP/2 client starts with a fixed preface of 24 bytes, which no HTTP/1.1 request can begin with. Until the
preface is complete or the first byte differs, nothing is allocated for the connection but this object, and a
timer bounds how long that may take. Then the transport is handed to its real protocol together with the bytes
read so far.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

Admit = Callable[["FirstBytes"], bool]
Take = Callable[[asyncio.Transport, bytes], None]


class FirstBytes(asyncio.Protocol):
    """A connection that has not said yet what it speaks.

    Args:
        admit: asked once; False cuts the connection.
        http2: takes a connection that began with the preface, with its first bytes, and sets its protocol.
        http1: takes any other.
        lost: told when the connection ended before either took it.
        timeout_s: after which a connection that did not decide is cut.
    """

    def __init__(
        self, admit: Admit, *, http2: Take, http1: Take, lost: Callable[[FirstBytes], None], timeout_s: float
    ) -> None:
        self._admit = admit
        self._http2 = http2
        self._http1 = http1
        self._lost = lost
        self._timeout_s = timeout_s
        self._seen = b""
        self._timer: asyncio.TimerHandle | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the clock, or cut the connection if there are too many."""
        self.transport = cast("asyncio.Transport", transport)
        if self._admit(self):
            self._timer = asyncio.get_running_loop().call_later(self._timeout_s, self.transport.abort)
        else:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Decide as soon as the bytes allow it."""
        self._seen += data
        if self._seen.startswith(PREFACE):
            self._hand_over(self._http2)
        elif not PREFACE.startswith(self._seen):
            self._hand_over(self._http1)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection; what it began with does not matter."""
        if self._timer is not None:
            self._timer.cancel()
        self._lost(self)

    def _hand_over(self, take: Take) -> None:
        assert self.transport is not None
        if self.transport.is_closing():  # refused or timed out in this turn of the loop
            return
        if self._timer is not None:
            self._timer.cancel()
        self._lost(self)
        take(self.transport, self._seen)
