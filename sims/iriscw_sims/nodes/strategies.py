"""Hypothesis draws plans of nodes, and shrinks those that fail: as :mod:`iriscw_sims.strategies` does for fleets."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from iriscw.runtime.vocabulary import MILLISECOND, SECOND
from iriscw_sims.nodes.swarm import FAULTS, ORDERS, RATES, TIERS, MachinePlan, NodesPlan, OrderPlan, WorkloadPlan
from iriscw_sims.strategies import faults, rates

SAFETY_S = 30
"""The time of faults of every plan that is drawn, seconds."""

MAX_WORKLOADS = 3
MAX_ORDERS = 12


@st.composite
def workloads(draw: st.DrawFn) -> WorkloadPlan:
    """Draw a workload of up to five processes."""
    processes = draw(st.integers(1, 5))
    return WorkloadPlan(
        processes=processes,
        cuda=tuple(sorted(draw(st.sets(st.integers(0, processes - 1), max_size=processes)))),
        memory_mib=draw(st.sampled_from((64, 10, 400))),
        device_mib=draw(st.sampled_from((100, 1024))),
        threads=draw(st.sampled_from((0, 2))),
        connections=draw(st.sampled_from((0, 0, 1))),
        hook=draw(st.booleans()),
        supervised=draw(st.booleans()),
    )


@st.composite
def orders(draw: st.DrawFn, count: int) -> OrderPlan:
    """Draw what a user asks of one of so many workloads."""
    return OrderPlan(
        at=draw(st.integers(0, SAFETY_S - 1)) * SECOND,
        kind=draw(st.sampled_from(ORDERS)),
        workload=draw(st.integers(0, count - 1)),
        tier=draw(st.sampled_from(TIERS)),
        leave_running=draw(st.booleans()),
        force=draw(st.booleans()),
        twice=draw(st.booleans()),
        cancel_after=draw(st.sampled_from((0, 0, 200))) * MILLISECOND,
        lazy=draw(st.booleans()),
        grant=draw(st.sampled_from((True, True, False))),
    )


@st.composite
def plans(
    draw: st.DrawFn,
    *,
    among: Sequence[WorkloadPlan] = (),
    kinds: Sequence[str] = FAULTS,
    chances: Sequence[tuple[str, int]] = RATES,
    max_orders: int = MAX_ORDERS,
) -> NodesPlan:
    """Draw a plan of one node: what :func:`~iriscw_sims.nodes.holding.assert_holds` takes.

    Args:
        draw: given by Hypothesis.
        among: the workloads on it. Default: one to three are drawn.
        kinds: the kinds of faults that may happen, of :data:`~iriscw_sims.nodes.swarm.FAULTS`.
        chances: the chances that may come true, with their highest rates, of :data:`~iriscw_sims.nodes.swarm.RATES`.
        max_orders: how much users ask for at most.
    """
    seed = draw(st.integers(0, 0xFFFF))
    trees = tuple(among) or tuple(draw(st.lists(workloads(), min_size=1, max_size=MAX_WORKLOADS)))
    asked = draw(st.lists(orders(len(trees)), min_size=1, max_size=max_orders))
    return NodesPlan(
        seed=seed,
        machines=(MachinePlan(),),
        workloads=trees,
        orders=tuple(sorted(asked, key=lambda order: (order.at, order.workload, order.kind))),
        faults=draw(faults(kinds, SAFETY_S)),
        rates=draw(rates(chances)),
        safety=SAFETY_S * SECOND,
    )
