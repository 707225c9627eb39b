"""How long, how often and how much at once: what requests to a storage service may cost."""

from __future__ import annotations

import attrs

MIB = 1 << 20


@attrs.frozen
class ServiceLimits:
    """Limits that all services' drivers have. The defaults are for use; tests have others."""

    connect_s: float = 10.0
    silence_s: float = 30.0
    """Without a byte, after which a connection counts as broken; also, all that a request without a body may take."""
    slowest_bytes_per_s: int = MIB
    """A body that is sent more slowly than this is given up."""
    attempts: int = 5
    """In all, of what may be repeated."""
    first_pause_s: float = 0.1
    most_pause_s: float = 5.0
    """Between attempts: drawn up to a bound that doubles from the first to this."""
    requests: int = 32
    """At once. CoreWeave advises about 300 for a whole node."""
    readings: int = 32
    """Open at once: each has a connection of its own until it ends."""
    place_s: float = 60.0
    """How long to wait for one of these."""
    keepalive_s: float = 4.0
    """For which an idle connection is kept: less than any server does, so that none is used while it closes."""
    part_bytes: int = 16 * MIB
    """Of a part of an object, and what is written in one go."""
    most_parts: int = 10_000
    """Of an object."""
    abort_s: float = 10.0
    """How long a write that failed tries to take its parts back."""

    def attempt_s(self, size_bytes: int) -> float:
        """Return what one attempt with a body of this size may take, in s."""
        return self.silence_s + size_bytes / self.slowest_bytes_per_s

    def size_of_part(self, number: int) -> int:
        """Return the size of a part, in bytes; the first has number 1."""
        return self.part_bytes
