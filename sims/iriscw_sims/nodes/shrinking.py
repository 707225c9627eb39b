"""Smaller plans of nodes that still fail: see :mod:`iriscw_sims.shrinking`, of which this is the second user."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs

from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.nodes.swarm import NodesPlan, OrderPlan, WorkloadPlan
from iriscw_sims.nodes.world import NodesWorld
from iriscw_sims.shrinking import LUCK, MAX_RUNS, Search, each_plainer, fewer, invariant_of, plainer_fault, plainer_rate
from iriscw_sims.world import Run

LEAST_SAFETY = 5 * SECOND


def run_plan(plan: NodesPlan) -> Run:
    """Run a plan with its own seed."""
    return NodesWorld(plan.seed, plan).run()


def breaks_like(run: Run) -> Callable[[NodesPlan], bool]:
    """Return a test for :func:`shrink`: whether a plan breaks the invariant that was broken first in ``run``."""
    wanted = invariant_of(run.violations[0])

    def broken(plan: NodesPlan) -> bool:
        violations = run_plan(plan).violations
        return bool(violations) and invariant_of(violations[0]) == wanted

    return broken


def shrink(
    plan: NodesPlan, broken: Callable[[NodesPlan], bool], *, max_runs: int = MAX_RUNS, luck: int = LUCK
) -> NodesPlan:
    """Return the simplest plan found that is still broken.

    Args:
        plan: a plan that is broken.
        broken: whether a plan is: runs it, most often. :func:`breaks_like` makes one of a run.
        max_runs: how often it is asked at most.
        luck: with how many seeds each simpler plan is tried.
    """
    search = Search(plan, broken, max_runs, luck)
    before = None
    while before != search.best and search.left > 0:
        before = search.best
        fewer(search, "faults")
        fewer(search, "rates")
        fewer(search, "orders", least=1)
        _fewer_workloads(search)
        for field, simpler in _PLAINER:
            for index in range(len(getattr(search.best, field))):
                each_plainer(search, field, index, simpler)
        last = max([each.at for each in (*search.best.faults, *search.best.orders)], default=0)
        if last + LEAST_SAFETY < search.best.safety:
            search.keep(attrs.evolve(search.best, safety=(last + LEAST_SAFETY) // SECOND * SECOND + SECOND))
    assert isinstance(search.best, NodesPlan)
    return search.best


def _fewer_workloads(search: Search) -> None:
    """Take out the workloads that no order is about."""
    plan = search.best
    for number in reversed(range(len(plan.workloads))):
        plan = search.best
        if len(plan.workloads) == 1 or any(order.workload == number for order in plan.orders):
            continue
        orders = tuple(
            attrs.evolve(order, workload=order.workload - (order.workload > number)) for order in plan.orders
        )
        workloads = plan.workloads[:number] + plan.workloads[number + 1 :]
        search.keep(attrs.evolve(plan, workloads=workloads, orders=orders))


def _plainer_order(order: OrderPlan) -> Iterator[OrderPlan]:
    simple: tuple[dict[str, Any], ...] = (
        {"twice": False},
        {"cancel_after": 0},
        {"force": False},
        {"leave_running": False},
        {"secret": False},
        {"lazy": False},
        {"grant": True},
        {"at": max(SECOND, order.at // SECOND * SECOND)},
    )
    for changes in simple:
        yield attrs.evolve(order, **changes)


def _plainer_workload(workload: WorkloadPlan) -> Iterator[WorkloadPlan]:
    simple: tuple[dict[str, Any], ...] = (
        {"processes": 1, "cuda": tuple(each for each in workload.cuda if each < 1)},
        {"cuda": ()},
        {"cuda": workload.cuda[:1]},
        {"threads": 0},
        {"connections": 0},
        {"hook": False},
        {"supervised": False},
    )
    for changes in simple:
        yield attrs.evolve(workload, **changes)


_PLAINER: tuple[tuple[str, Callable[[Any], Iterator[Any]]], ...] = (
    ("faults", plainer_fault),
    ("rates", plainer_rate),
    ("orders", _plainer_order),
    ("workloads", _plainer_workload),
)
