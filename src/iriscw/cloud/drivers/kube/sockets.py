"""Sockets that notice when their peer is gone, and that are all closed in the end.

A TLS connection that is given up says goodbye and waits for the answer, half a minute if need be; nobody knows of it
meanwhile. So the sockets are remembered, weakly, and whoever closes the way to a cluster ends those that are left.
"""

from __future__ import annotations

import contextlib
import socket
import weakref
from typing import Any

import anyio

KEEPALIVE_IDLE_S, KEEPALIVE_INTERVAL_S, KEEPALIVE_PROBES = 20, 10, 3
"""TCP asks after 20 s without a word, and takes the third missing answer for the end: after 50 s. client-go asks every
30 s."""

UNACKNOWLEDGED_MS = 30_000
"""How long TCP sends the same bytes again before it gives the connection up; its own default is 15 minutes."""

OPTIONS = (
    ("TCP_KEEPIDLE", KEEPALIVE_IDLE_S),
    ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_S),
    ("TCP_KEEPCNT", KEEPALIVE_PROBES),
    ("TCP_USER_TIMEOUT", UNACKNOWLEDGED_MS),
)
"""Linux has all of them, others some."""

END_S = 1.0
"""Seconds that the event loop has to close what was shut down: it takes one turn or two."""


class Sockets:
    """Makes the sockets of one connection pool."""

    def __init__(self) -> None:
        self._made: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    @property
    def open(self) -> int:
        """How many are open now."""
        return sum(each.fileno() >= 0 for each in self._made)

    def make(self, address: Any) -> socket.socket:
        """Make one, for an entry of ``getaddrinfo``."""
        family, kind, protocol, *_ = address
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in OPTIONS:
            if hasattr(socket, option):
                made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        self._made.add(made)
        return made

    async def end(self) -> None:
        """Shut down those that are still open, and wait until their owners have noticed."""
        for each in list(self._made):
            if each.fileno() >= 0:
                with contextlib.suppress(OSError):  # it was not connected yet, or is not any more
                    each.shutdown(socket.SHUT_RDWR)
        with anyio.move_on_after(END_S):
            while self.open:  # noqa: ASYNC110 - the event loop tells nobody that it closed one
                await anyio.sleep(0.001)
