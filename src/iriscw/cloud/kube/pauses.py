"""Pauses that grow and are never the same for two: so that a server that comes back is not run over at once."""

from __future__ import annotations

from random import Random

MOST_DOUBLINGS = 40
"""2**40 of anything is beyond every pause; it keeps a counter that runs for years from making big integers."""


def growing(failures: int, least: int, most: int, rng: Random) -> int:
    """Draw the pause after the ``failures``-th failure in a row (1 is the first), in the unit of ``least``.

    It is at least half, and at most all of ``least`` doubled with each failure, up to ``most``.
    """
    span = min(most, least << min(max(0, failures - 1), MOST_DOUBLINGS))
    return span - rng.randrange(span // 2 + 1)
