"""Property tests of a whole fleet, in ten lines: Hypothesis draws the faults, the simulated world judges.

::

    from hypothesis import given, settings
    from iriscw.testing.fleet import assert_holds, plans

    @given(plans(among=[MY_GROUP], kinds=["node dies", "controller crashes"]))
    @settings(max_examples=50, deadline=None)
    def test_my_group_survives(plan):
        assert_holds(plan)

A failure is shrunk, and says which invariant was broken, the plan as Python, what happened, and how to run it again.
``assert_holds(plan, policy=my_policy)`` runs the fleet under a policy of one's own (:mod:`iriscw.fleet.policy`), and
gives an :class:`Outcome`: what it cost and how long tasks waited, for assertions of one's own. :func:`shrink` makes a
plan small that Hypothesis did not draw, such as that of a seed.
"""

from __future__ import annotations

from iriscw_sims.holding import assert_holds
from iriscw_sims.outcome import Outcome
from iriscw_sims.shrinking import breaks_like, shrink
from iriscw_sims.strategies import plans

__all__ = ["Outcome", "assert_holds", "breaks_like", "plans", "shrink"]
