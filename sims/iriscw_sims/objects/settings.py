"""How long everything takes between a client and the object storage: frozen values, with two presets.

:data:`FAITHFUL` has the delays and bandwidths of a node beside its storage; :data:`QUICK` has them small and narrow, so
that short simulations see bodies overlap and patience end.
"""

from __future__ import annotations

import attrs

from iriscw.runtime.vocabulary import MILLISECOND, SECOND
from iriscw_sims.coreweave.settings import Span, seconds
from iriscw_sims.objects.rules import GIB, KIB


@attrs.frozen(kw_only=True)
class FrontSettings:
    """Delays and bandwidths. Spans are drawn anew each time; bandwidths are in bytes/s."""

    latency: Span
    """One way, with the server's own time."""
    latency_slow: Span
    """Added to that now and then."""
    patience: int
    """ns after which a sender to whom nothing comes gives up."""
    landing_late: Span
    """From the end of the sender's patience to the landing."""
    up_bytes_per_s: int
    down_bytes_per_s: int
    stream_bytes_per_s: int
    """Of one body: why big objects move in parts."""
    propagation: Span
    """Until a new access key works."""
    denial: Span
    """For how long a key that worked is denied."""
    requests_per_s: int = 0
    """What the server takes before it throttles; 0: no limit."""
    burst: int = 1
    """How many requests may come at once, where there is a limit."""


FAITHFUL = FrontSettings(
    latency=Span(2 * MILLISECOND, 60 * MILLISECOND, 500 * MILLISECOND),
    latency_slow=seconds(1, 20),
    patience=60 * SECOND,  # botocore's read timeout
    landing_late=seconds(0, 60),
    up_bytes_per_s=2 * GIB,
    down_bytes_per_s=4 * GIB,
    stream_bytes_per_s=GIB // 4,
    propagation=seconds(1, 30, tail=60),  # CoreWeave's Terraform provider polls for a minute
    denial=seconds(1, 60),
)
"""A node beside its storage."""

QUICK = FrontSettings(
    latency=Span(MILLISECOND, 100 * MILLISECOND),
    latency_slow=seconds(1, 3),
    patience=5 * SECOND,
    landing_late=seconds(0, 10),
    up_bytes_per_s=512 * KIB,
    down_bytes_per_s=512 * KIB,
    stream_bytes_per_s=128 * KIB,
    propagation=seconds(1, 5),
    denial=seconds(1, 5),
)
"""Small, slow and impatient."""
