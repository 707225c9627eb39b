"""`/fleet`: what is ours, what groups share, what is passed on."""

from __future__ import annotations

import attrs
import pytest

from iriscw.cloud.model import LABEL_CLUSTER, LABEL_MANAGED, LABEL_ROLE, NodePool, Relisted, Removed, Upserted
from iriscw.fleet import root
from iriscw.fleet.messages import MAX_DEMAND_ENTRIES, DemandChanged, DemandEntry, DemandRouted, WorkersMissed
from iriscw.fleet.model import Availability, FleetConfig, slice_name
from iriscw.fleet.signals import Evaluate, GroupReported, Takeover
from iriscw.runtime.vocabulary import SECOND, Arrived, Tell


@pytest.fixture
def fleet(group_config):
    def make(*groups):
        return root.Fleet(FleetConfig("test", groups or (group_config(),), takeover_delay=0))

    return make


@pytest.mark.parametrize("change", [{LABEL_CLUSTER: "other"}, {LABEL_MANAGED: "no"}, {LABEL_ROLE: "controller"}])
def test_what_is_not_ours_goes_nowhere(fleet, ctx, labels, change):
    """Pools of others and of the controller are neither passed on nor taken for orphans (INV-F2)."""
    it = fleet()
    it.takeover_over = True
    for group in ("gpu", "nobody"):
        foreign = NodePool("p", "u", "1", {**labels("p"), "iris-scale-group": group, **change})
        for item in (Upserted(foreign), Removed(foreign)):
            assert root.arrived(it, Arrived(root.POOLS, item), ctx) is None
        (listed,) = root.arrived(it, Arrived(root.POOLS, Relisted((foreign,))), ctx)
        assert listed.message.pools == ()
    assert it.orphans.names == ()


def test_one_quota_closes_all_groups_that_share_it(fleet, group_config):
    """A group whose quota pool is used up by another one offers nothing, and says whose it is."""
    it = fleet(group_config("a", quota_pool="h100"), group_config("b", quota_pool="h100"), group_config("c"))
    for group in it.config.groups:
        state = Availability.QUOTA_EXCEEDED if group.name == "a" else Availability.AVAILABLE
        it.reports[group.name] = GroupReported(root.empty_row(group, ""), state, 0, 0, 3)
    offered = {offer.config.name: offer for offer in root.offers(it)}
    assert offered["b"].availability is Availability.QUOTA_EXCEEDED
    assert offered["b"].room == 0
    assert "'a'" in offered["b"].reason
    assert offered["c"].room == 3


def test_what_a_group_waits_for_that_only_starts(group_config, ctx):
    """First for the lists, then for the end of what an earlier controller asked for: ``iriscw pools`` tells which."""
    it = root.Fleet(FleetConfig("test", (group_config("a"),), takeover_delay=90 * SECOND))
    before = root.starting(it)
    for key in (root.POOLS, root.PODS):
        root.arrived(it, Arrived(key, Relisted(())), ctx)
    listed = root.starting(it)
    root.takeover(it, Takeover(), ctx)
    assert len({before, listed, root.starting(it)}) == 3
    assert "90 s" in listed
    assert "api_timeout" in listed


def test_what_a_group_says_of_boots_reaches_who_waits(fleet, group_config):
    """When the first slice should be ready, and how long boots take."""
    it = fleet(group_config("a"))
    row = attrs.evolve(root.empty_row(it.config.groups[0], ""), boot_estimate=7)
    it.reports["a"] = GroupReported(row, Availability.AVAILABLE, 1, 0, 3, expected_at=99)
    (offered,) = root.offers(it)
    assert (offered.expected_at, offered.boot_estimate) == (99, 7)


def test_demand_beyond_the_limit_is_told_so(fleet, ctx, big):
    """More kinds of demand than are routed at once each get a sentence (INV-J7)."""
    it = fleet()
    entries = tuple(DemandEntry(f"d{index}", big, (), 1, 1, 0) for index in range(MAX_DEMAND_ENTRIES + 2))
    root.demand_changed(it, DemandChanged(entries), ctx)
    commands = root.route_demand(it, Evaluate(), ctx)
    (routed,) = [c.message for c in commands if isinstance(c, Tell) and isinstance(c.message, DemandRouted)]
    assert len(routed.reasons) == len(entries)
    assert "more than 1000 kinds" in dict(routed.reasons)[f"d{MAX_DEMAND_ENTRIES + 1}"]


def test_missed_workers_go_to_the_one_group_that_can_have_named_them(fleet, group_config, ctx):
    """A group whose name begins with another one's is not taken for it; unknown groups are not asked."""
    it = fleet(group_config("gpu"), group_config("gpu-a"))
    places = tuple((f"{slice_name(group, 'abc')}-0", "i1") for group in ("gpu", "gpu-a", "other"))
    told = root.workers_missed(it, WorkersMissed(places), ctx)
    assert [(each.to.name, each.message.places) for each in told] == [("gpu", places[:1]), ("gpu-a", places[1:2])]
