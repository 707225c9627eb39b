"""Which slices a group calls gone when the scheduler misses them."""

from iriscw.cloud.model import NodePool
from iriscw.fleet import groups
from iriscw.fleet.messages import SliceGone
from iriscw.fleet.records import SliceRequested


def test_only_what_is_certainly_gone_is_told(group, ctx, labels):
    """Nothing before the lists are complete; then no promised slice and none of which a pool is left (J2)."""
    it = group()
    groups.apply(it, SliceRequested("kept", 0))
    groups.resume(it, ctx)
    missed = ("kept", "left", "gone")
    left = NodePool("left", "u", "1", labels("left"))
    groups.pools_listed(it, (left,), ctx)
    groups.pods_listed(it, (), ctx)
    assert groups.slices_missed(it, missed, ctx) == []
    it.sight.takeover_over = True
    groups.try_open(it, ctx)
    assert [each.message for each in groups.slices_missed(it, missed, ctx)] == [SliceGone("gone")]
    groups.pool_removed(it, left, ctx)
    assert [each.message for each in groups.slices_missed(it, missed, ctx)] == [SliceGone("left"), SliceGone("gone")]
