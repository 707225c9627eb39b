"""Test a tiering policy of your own: replay a trace by it, in virtual time, and compare what came of it."""

from __future__ import annotations

from iriscw.checkpoint.tiering.model import TieringPolicy
from iriscw_sims.tiering.replay import Replayed, replay
from iriscw_sims.tiering.traces import TRACES

__all__ = ["TRACE_NAMES", "Replayed", "replayed"]

TRACE_NAMES = tuple(each.__name__ for each in TRACES)
"""The traces that there are: see docs/tiers.md."""


def replayed(policy: TieringPolicy, *, trace: str = "zipf", seed: int = 1, requests: int = 300) -> Replayed:
    """Replay a trace by a policy: the same each time.

    Args:
        policy: it is asked as an agent asks it, behind the same guard.
        trace: one of :data:`TRACE_NAMES`.
        seed: of the trace.
        requests: how many; about a second for each 150.

    Raises:
        AssertionError: the policy raised, or gave what is no proposal.
        KeyError: there is no such trace.
    """
    make = {each.__name__: each for each in TRACES}[trace]
    return replay(make(seed, requests), policy)
