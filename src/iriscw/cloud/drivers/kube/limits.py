"""What one connection to an API server may cost: seconds, bytes, sockets."""

from __future__ import annotations

import attrs

from iriscw._errors import InvalidArgument


@attrs.frozen(kw_only=True)
class TransportLimits:
    """Deadlines and sizes of the transport. Reaching one is an ``ApiUnreachable`` that says which.

    Attributes:
        connect_s: Until a connection is made, TLS included. Go's dialer in client-go waits 30 s; a server that takes
            10 s to accept does not answer in time either.
        request_s: Until an answer is there, from the first byte sent to the last byte read; half a call's deadline, so
            that one that went silent is made again.
        open_s: Until the beginning of a watch is there. Servers send it at once, before the first event.
        silence_s: How long a watch may bring nothing. Servers send a bookmark about every minute; after two that did
            not come, nobody is there. It counts only while somebody waits to read.
        response_bytes: Of one answer: 5,000 nodes of 20 KiB, which a list in one piece can hold.
        line_bytes: Of one event of a watch: no object is larger than 3 MiB (the server's ``MaxRequestBodyBytes``),
            and JSON may write some characters in six.
        connections: Open at the same time, watches included; as many as client-go's ``MaxIdleConnsPerHost`` keeps (25)
            four times over. Who finds none free waits, within its deadline.
        streams: Of them, those for commands, logs and ports at the same time. The rest is kept for requests and
            watches, however many pods somebody looks into.

    Raises:
        InvalidArgument: one of them is not positive.
    """

    connect_s: float = 10.0
    request_s: float = 30.0
    open_s: float = 30.0
    silence_s: float = 150.0
    response_bytes: int = 128 * 2**20
    line_bytes: int = 8 * 2**20
    connections: int = 100
    streams: int = 64

    def __attrs_post_init__(self) -> None:
        for field in attrs.fields(type(self)):
            if getattr(self, field.name) <= 0:
                raise InvalidArgument(f"{field.name} must be positive, not {getattr(self, field.name)}")

    @property
    def stream_places(self) -> int:
        """How many streams there may be: one connection is left, if there is more than one."""
        return max(1, min(self.streams, self.connections - 1))
