"""Every bound of a door and of a channel, in one value.

A limit is either per message, per connection or per process; reaching one is a named error for an
authenticated caller and a closed connection for a stranger.
"""

from __future__ import annotations

from typing import Any

import attrs
from attrs import validators

MIB = 1 << 20

MAX_PROGRESS_CHARS = 200
"""Of what a task says about how far it is: a line of a terminal."""

MAX_PROGRESS_MILLI = 1000 << 53
"""Of what a task counts, in thousandths: 2**53 is the largest exact number in any language."""

MAX_RESULT_BYTES = 18 * MIB
"""One attempt's result as it travels and is stored, in chunks: 16 MiB of pickle (``iriscw.task.result``), the frame
around it, and its summary, whose two texts take at most 1.5 MiB of JSON. Worker and controller hold to the same."""

_positive: Any = validators.gt(0)  # for int and float fields alike


@attrs.frozen(kw_only=True)
class RpcLimits:
    """The bounds of one :class:`~iriscw.rpc.server.RpcServer` or :class:`~iriscw.rpc.client.RpcChannel`.

    Sizes are bytes, times seconds. Both sides of a connection should use the same ``max_message_bytes``.
    """

    max_message_bytes: int = attrs.field(default=16 * MIB, validator=_positive)
    """One message, either way. gRPC's own default is 4 MiB; a snapshot of a fleet of thousands needs some
    more. Checkpoints do not travel here."""

    max_message_parts: int = attrs.field(default=1_000_000, validator=_positive)
    """Fields and messages within one message that is received (:mod:`iriscw.rpc.anatomy`), some 3 us each. A page of
    1000 tasks with 16 attempts each has 300,000. What a server takes of each method is less: its rules."""

    max_unfinished_bytes: int = attrs.field(default=64 * MIB, validator=_positive)
    """Of messages that have begun to arrive on one connection of a server and are not whole yet, beside what HTTP/2's
    window holds (Envoy buffers 1 MiB of a connection; a message of ours alone may take 16). One message of
    ``max_message_bytes`` is always allowed."""

    max_server_unfinished_bytes: int = attrs.field(default=512 * MIB, validator=_positive)
    """The same of all connections together. A connection gets no more than it leaves free
    (:mod:`iriscw.rpc.unfinished`): one alone half of it (gRPC has ``ResourceQuota``; its default: none)."""

    assured_unfinished_bytes: int = attrs.field(default=MIB, validator=_positive)
    """What each connection may hold of them whatever the others do: four chunks of 256 KiB."""

    max_head_bytes: int = attrs.field(default=16 << 10, validator=_positive)
    """The head of an HTTP/1.1 request, or an HTTP/2 header list. gRPC's hard limit is 16 KiB, nginx's 4 x 8
    KiB."""

    max_connections: int = attrs.field(default=16_384, validator=_positive)
    """Open connections of one server. A worker holds one, a probe one for milliseconds; fleets have 5,000 workers."""

    connections_per_turn: int = attrs.field(default=4, validator=_positive)
    """HTTP/2 connections that a server begins in one turn of the loop, at some 0.3 ms each; more wait, unread."""

    accepts_per_turn: int = attrs.field(default=32, validator=_positive)
    """Connections that a TCP door takes from the kernel in one turn of the loop (asyncio: the whole backlog)."""

    max_streams: int = attrs.field(default=4096, validator=_positive)
    """Calls in flight on one connection. The default of HTTP/2 servers is 100, at which call 101 waits in
    silence."""

    max_stranger_refusals: int = attrs.field(default=64, validator=_positive)
    """Calls with a wrong token after which a connection that never had a right one is closed."""

    max_write_buffer_bytes: int = attrs.field(default=64 * MIB, validator=_positive)
    """Bytes waiting for a peer that does not read. Messages wait for room far below; only answers to floods
    of control frames (CVE-2019-9512) get here."""

    max_stranger_write_buffer_bytes: int = attrs.field(default=MIB, validator=_positive)
    """The same before a peer's first authenticated call."""

    first_bytes_timeout_s: float = attrs.field(default=10.0, validator=_positive)
    """From the connection to the end of the HTTP/2 preface, or of an HTTP/1.1 head (nginx: 60 s, Go:
    none)."""

    first_call_timeout_s: float = attrs.field(default=30.0, validator=_positive)
    """From the HTTP/2 preface to the first call with a right token; a connection without one is closed."""

    tls_handshake_timeout_s: float = attrs.field(default=10.0, validator=_positive)
    """From the connection to the end of the TLS handshake (asyncio's default: 60 s)."""

    http_idle_timeout_s: float = attrs.field(default=75.0, validator=_positive)
    """Between two requests of one HTTP/1.1 connection (nginx: 75 s)."""

    keepalive_interval_s: float = attrs.field(default=20.0, validator=_positive)
    """Between two HTTP/2 pings (the least that gRPC's servers tolerate by default is 10 s with calls
    open)."""

    keepalive_timeout_s: float = attrs.field(default=20.0, validator=_positive)
    """From a ping without an answer to the end of the connection (gRPC: 20 s). A peer that hangs is noticed
    within the sum of the two."""

    connect_timeout_s: float = attrs.field(default=10.0, validator=_positive)
    """Name resolution, TCP and TLS handshakes of a channel."""

    unary_timeout_s: float = attrs.field(default=60.0, validator=_positive)
    """The deadline of a unary call that names none, on either side."""

    stream_timeout_s: float = attrs.field(default=3600.0, validator=_positive)
    """The deadline of a streaming call that names none, on either side. A session that lives longer says so,
    or starts again."""
