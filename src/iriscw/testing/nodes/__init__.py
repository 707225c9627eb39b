"""Property tests of nodes that freeze and thaw: Hypothesis draws the faults, the simulated world judges.

::

    from hypothesis import given, settings
    from iriscw.testing.nodes import assert_holds, plans

    @given(plans(among=[MY_WORKLOAD], kinds=["agent killed", "power cut"]))
    @settings(max_examples=50, deadline=None)
    def test_my_workload_is_never_lost(plan):
        assert_holds(plan)

A failure is shrunk, and says which invariant was broken, the plan as Python, what happened, and how to run it again.
:func:`shrink` makes a plan small that Hypothesis did not draw, such as that of a seed.
"""

from __future__ import annotations

from iriscw_sims.nodes.holding import assert_holds
from iriscw_sims.nodes.shrinking import breaks_like, shrink
from iriscw_sims.nodes.strategies import plans
from iriscw_sims.nodes.swarm import MachinePlan, NodesPlan, OrderPlan, WorkloadPlan, draw_nodes_plan

__all__ = [
    "MachinePlan",
    "NodesPlan",
    "OrderPlan",
    "WorkloadPlan",
    "assert_holds",
    "breaks_like",
    "draw_nodes_plan",
    "plans",
    "shrink",
]
