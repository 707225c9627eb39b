"""Smaller plans that still fail: what is left of a failing seed once everything is gone that does not matter.

Theory of operation. :func:`shrink` tries simpler plans, one change at a time, and keeps each that is still broken:

1. whole parts first: all faults, all rates, half of them, ever smaller pieces (Zeller's delta debugging), in the order
   faults, rates, jobs, groups that no job needs;
2. then what is left is made plain: picks and rates become 0 or half, jobs one task without conditions, groups one
   machine, moments full seconds, the time of faults no longer than its last fault.

A plan without one of its faults is another run from that fault on: requests, pods and attempts draw other fates. So
each simpler plan is tried with its own seed and some others (``luck``); what counts is that the plan *can* break it.
Every trial is a run of a tenth of a second; ``max_runs`` bounds them, and the best plan so far is the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from iriscw.fleet.model import GroupConfig
from iriscw.fleet.policy import Policy, RoutingPolicy
from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.swarm import Plan, PlannedJob
from iriscw_sims.world import Run, World

MAX_RUNS = 600
"""About a minute."""

LUCK = 3
"""Seeds per simpler plan: the plan's own, and others."""

LEAST_SAFETY = 30 * SECOND
"""A plan's time of faults is not made shorter than this."""


def run_plan(plan: Plan, policy: Policy | None = None, routing: RoutingPolicy | None = None) -> Run:
    """Run a plan with its own seed."""
    return World(plan.seed, plan, policy=policy, routing=routing).run()


def invariant_of(violation: str) -> str:
    """Return the name of the invariant that a violation is about: ``INV-J2``."""
    return violation.partition(":")[0]


def breaks_like(run: Run, policy: Policy | None = None, routing: RoutingPolicy | None = None) -> Callable[[Plan], bool]:
    """Return a test for :func:`shrink`: whether a plan breaks the invariant that was broken first in ``run``.

    ``policy`` is what decided there on how many slices a group should have, and ``routing`` on which groups demand
    might go to; None: the one that is built in.
    """
    wanted = invariant_of(run.violations[0])

    def broken(plan: Plan) -> bool:
        violations = run_plan(plan, policy, routing).violations
        return bool(violations) and invariant_of(violations[0]) == wanted

    return broken


@attrs.define
class Search:
    """The best plan so far, and how often may still be tried."""

    best: Any
    broken: Callable[[Any], bool]
    left: int
    luck: int

    def keep(self, plan: Any) -> bool:
        """Try a simpler plan; keep it if it is still broken."""
        if plan == self.best:
            return False
        for turn in range(self.luck):
            if self.left <= 0:
                return False
            self.left -= 1
            seed = self.best.seed if turn == 0 else turn - 1
            candidate = attrs.evolve(plan, seed=seed)
            if self.broken(candidate):
                self.best = candidate
                return True
        return False


def shrink(plan: Plan, broken: Callable[[Plan], bool], *, max_runs: int = MAX_RUNS, luck: int = LUCK) -> Plan:
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
        fewer(search, "jobs", least=1)
        _fewer_groups(search)
        _plainer(search)
    assert isinstance(search.best, Plan)
    return search.best


def fewer(search: Search, field: str, least: int = 0) -> None:
    """Take pieces out of one of the plan's lists: halves first, single elements at last."""
    size = len(getattr(search.best, field))
    while size >= 1:
        start = 0
        while start < len(getattr(search.best, field)) and search.left > 0:
            kept: Sequence[Any] = getattr(search.best, field)
            fewer = tuple(kept[:start]) + tuple(kept[start + size :])
            changes: dict[str, Any] = {field: fewer}
            if len(fewer) < least or not search.keep(attrs.evolve(search.best, **changes)):
                start += size
        size = size // 2


def _fewer_groups(search: Search) -> None:
    """Take groups out that no job needs."""
    for group in search.best.groups:
        others = tuple(each for each in search.best.groups if each.name != group.name)
        smaller = attrs.evolve(search.best, groups=others)
        if others and feasible(smaller):
            search.keep(smaller)


def feasible(plan: Plan) -> bool:
    """Tell whether each job can be run by some group: else its end proves nothing."""
    return all(any(_runs_on(job, group) for group in plan.groups) for job in plan.jobs)


def _runs_on(job: PlannedJob, group: GroupConfig) -> bool:
    spec = job.spec
    if not all(constraint.satisfied(group.attributes) for constraint in spec.constraints):
        return False
    times = group.per_worker.times(spec.demand)
    return times >= 1 and (spec.group_by is None or times * group.num_vms >= spec.replicas)


# Plainer values


def _plainer(search: Search) -> None:
    plan = search.best
    search.keep(attrs.evolve(plan, takeover_delay=0))
    for index in range(len(search.best.faults)):
        each_plainer(search, "faults", index, plainer_fault)
    for index in range(len(search.best.rates)):
        each_plainer(search, "rates", index, plainer_rate)
    for index in range(len(search.best.jobs)):
        each_plainer(search, "jobs", index, _plainer_job)
    for index in range(len(search.best.groups)):
        each_plainer(search, "groups", index, _plainer_group)
    last = max((fault.at for fault in search.best.faults), default=0)
    last = max([last, *(job.at for job in search.best.jobs)])
    for safety in (LEAST_SAFETY, last + LEAST_SAFETY):
        if last < safety < search.best.safety:
            search.keep(attrs.evolve(search.best, safety=_whole(safety)))


def each_plainer(search: Search, field: str, index: int, simpler: Callable[[Any], Iterator[Any]]) -> None:
    """Try what is simpler than one element; begin anew with what was kept."""
    again = True
    while again and search.left > 0:
        again = False
        values = list(getattr(search.best, field))
        for candidate in simpler(values[index]):
            changes: dict[str, Any] = {field: (*values[:index], candidate, *values[index + 1 :])}
            smaller = attrs.evolve(search.best, **changes)
            possible = not isinstance(smaller, Plan) or feasible(smaller)
            if candidate != values[index] and possible and search.keep(smaller):
                again = True
                break


def _whole(moment: int) -> int:
    """Return the full second before a moment, or after it if it is the first."""
    return max(SECOND, moment // SECOND * SECOND)


def plainer_fault(fault: Any) -> Iterator[Any]:
    for pick in (0, fault.pick & 0xFF, fault.pick & ~0xFF & 0xFFFF):
        if pick < fault.pick:
            yield attrs.evolve(fault, pick=pick)
    yield attrs.evolve(fault, at=_whole(fault.at))


def plainer_rate(rate: tuple[str, int]) -> Iterator[tuple[str, int]]:
    name, often = rate
    if often > 1:
        yield name, often // 2


def _plainer_job(job: PlannedJob) -> Iterator[PlannedJob]:
    spec = job.spec
    simple: tuple[dict[str, Any], ...] = (
        {"replicas": 1},
        {"replicas": max(1, spec.replicas // 2)},
        {"constraints": ()},
        {"group_by": None},
        {"timeout_ns": 0},
        {"scheduling_timeout_ns": 0},
        {"max_retries_failure": 0},
        {"max_retries_preemption": 100},
        {"max_task_failures": 0},
    )
    for changes in simple:
        yield attrs.evolve(job, spec=attrs.evolve(spec, **changes))
    if job.terminate_after is not None:
        yield attrs.evolve(job, terminate_after=None)
    yield attrs.evolve(job, at=0)
    yield attrs.evolve(job, at=_whole(job.at))


def _plainer_group(group: GroupConfig) -> Iterator[GroupConfig]:
    simple: tuple[dict[str, Any], ...] = (
        {"buffer_slices": 0},
        {"min_slices": 0},
        {"max_slices": max(1, group.min_slices)},
        {"num_vms": 1},
        {"quota_pool": ""},
    )
    for changes in simple:
        if any(getattr(group, name) != value for name, value in changes.items()):
            yield attrs.evolve(group, **changes)
