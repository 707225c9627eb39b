"""How a group gets to the size that it should have: pure arithmetic over a census.

Theory of operation. How many slices there should be, ready and on their way, is said by the policy
(:mod:`iriscw.fleet.policy`). What is missing is requested. ``max_slices`` bounds everything that exists, with slices
on their way in and on their way out; only one whose deletion is stuck does not count, so that it blocks nobody
(INV-F7).

Too many slices shrink from two ends. Those not ready yet are given up once they have been too many for
``scale_down_delay`` (the least advanced first); those that no demand was routed to come before idle ones, the others
after them. Of those idle for that long exactly the longest idle is chosen (INV-F3). It is only *chosen* here: the
scheduler must agree that nothing runs there before it goes.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from iriscw.fleet.lifecycle import COMING
from iriscw.fleet.model import GroupConfig, SliceState, Trouble
from iriscw.fleet.signals import SliceReported


@attrs.define
class Census:
    """The slices of a group at one moment, counted once."""

    counted: int = 0
    """Bounded by ``max_slices``."""
    alive: int = 0
    """Ready or on their way: bounded from below by ``min_slices``."""
    ready: int = 0
    moving: int = 0
    """On their way, and not waiting for machines."""
    expected_at: int | None = None
    """When the first of these should be ready, in wall-clock ns; None where none is."""
    waiting: int = 0
    """In the cloud's queue for machines."""
    fresh: int = 0
    """Idle since they became ready, and that only just."""
    idle: list[tuple[int, str]] = attrs.field(factory=list)
    """Ready, idle and not fresh: (idle since, slice id), the longest idle first."""
    coming: list[tuple[int, int, str]] = attrs.field(factory=list)
    """On their way and without any worker: (progress, minus requested at, slice id), the least advanced and
    youngest first. One with workers may run attempts that a restart made us forget, and is left alone."""

    @property
    def absorbing(self) -> int:
        """Slices that will soon take demand."""
        return self.moving + self.waiting + self.fresh


def take_census(config: GroupConfig, reports: Iterable[tuple[str, SliceReported | None, bool]], now: int) -> Census:
    """Count the slices of a group: one pass.

    Args:
        config: of the group.
        reports: for each slice its last report, None if it has not reported yet (then it is on its way), and
            whether it is doomed: then it only counts as long as it is there.
        now: monotonic ns.
    """
    census = Census()
    for slice_id, report, doomed in reports:
        census.counted += report is None or not report.stuck
        if doomed:
            continue
        if report is None:
            census.alive += 1
            census.moving += 1
            continue
        state = report.row.state
        if state in COMING:
            census.alive += 1
            if report.row.trouble is Trouble.CAPACITY:
                census.waiting += 1
            else:
                census.moving += 1
                _expect(census, report.row.expected_at)
            if report.bare:
                census.coming.append((COMING.index(state), -report.row.requested_at, slice_id))
        elif state is SliceState.READY:
            _count_ready(census, config, slice_id, report, now)
    census.idle.sort()
    census.coming.sort()
    return census


def _expect(census: Census, expected_at: int | None) -> None:
    if expected_at is not None and (census.expected_at is None or expected_at < census.expected_at):
        census.expected_at = expected_at


def _count_ready(census: Census, config: GroupConfig, slice_id: str, report: SliceReported, now: int) -> None:
    assert report.ready_since is not None
    census.alive += 1
    census.ready += 1
    if report.idle_since is None:
        return
    unused = not report.used and now - report.ready_since < config.timing.scale_up_delay
    if unused:
        census.fresh += 1
    else:
        census.idle.append((report.idle_since, slice_id))


@attrs.frozen
class SizingPlan:
    """What should be done: at most one of ``request`` and the removals is not empty."""

    request: int = 0
    give_up: int = 0
    """How many of ``Census.coming`` nobody wants, from its front; they are given up once that has lasted."""
    surplus: int = 0
    """How many of ``Census.idle`` are too many, from its front."""


def plan(config: GroupConfig, census: Census, wanted: int, target: int) -> SizingPlan:
    """Say how far the group is from what it should be.

    Args:
        config: of the group.
        census: of its slices.
        wanted: slices that have demand routed to them, absorbing ones included.
        target: how many should be ready or on their way, at least ``min_slices``.
    """
    assert target >= config.min_slices
    if target > census.alive:
        return SizingPlan(request=min(target - census.alive, max(0, config.max_slices - census.counted)))
    spare, leftover = census.alive - target, max(0, census.absorbing - wanted)
    give_up = min(spare, leftover, len(census.coming))
    surplus = min(spare - give_up, len(census.idle))
    give_up += min(spare - give_up - surplus, len(census.coming) - give_up)
    assert census.alive - give_up - surplus >= config.min_slices
    return SizingPlan(give_up=give_up, surplus=surplus)
