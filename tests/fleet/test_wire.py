"""Slices and scale groups on the wire."""

import attrs

from iriscw.client.model import AmountStatus, PoolDemand, PoolPassed
from iriscw.client.wire import pool_status as read_pool, slice_status as read_slice
from iriscw.cloud.model import Capacity
from iriscw.fleet import wire
from iriscw.fleet.model import (
    Availability,
    GroupConfig,
    GroupDemand,
    GroupRow,
    RoutedDemand,
    SliceRow,
    SliceState,
    Trouble,
)
from iriscw.runtime.vocabulary import MILLISECOND


def test_tables_are_complete() -> None:
    """Every state has a word on the wire."""
    assert wire._SLICE_STATES.keys() == set(SliceState)
    assert wire._AVAILABILITIES.keys() == set(Availability)


def test_a_slice_says_when_it_should_be_ready() -> None:
    """To clients as well, as far as that is known."""
    row = SliceRow("s", "g", SliceState.BOOTING, Trouble.NONE, "", 1, 1, expected_at=7 * MILLISECOND)
    assert read_slice(wire.slice_status(row, [])).expected_at_ms == 7
    assert read_slice(wire.slice_status(attrs.evolve(row, expected_at=None), [])).expected_at_ms == 0


def test_demand_and_quota_of_a_group_are_sent() -> None:
    """As they are; a group of which nothing was decided yet has none."""
    row = GroupRow("g", Availability.QUOTA_EXCEEDED, "", 1, 1, 1, 0, 4, 0, quota_used_up_by="h")
    config = GroupConfig("g", Capacity(1000, 1), quota_pool="q")
    routed = RoutedDemand("d", Capacity(500, 1), 3, 2, "so", (("h", "full"),), 7 * MILLISECOND)
    demand = GroupDemand("g", 2, 5, (routed,))
    read = read_pool(wire.pool_status(row, config, (), demand, {"d": ("job-1",), "e": ("job-2",)}))
    assert (read.quota_pool, read.quota_used_up_by, read.routed_tasks, read.demand_count) == ("q", "h", 2, 5)
    assert read.demand == (
        PoolDemand("d", AmountStatus(500, 1), 3, 2, "so", (PoolPassed("h", "full"),), 7, ("job-1",)),
    )
    assert read_pool(wire.pool_status(row, config, ())).demand == ()
