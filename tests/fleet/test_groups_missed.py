"""Which slices a group calls gone when the scheduler misses their workers, and whom it has look for the others."""

from iriscw.cloud.model import NodePool, Pod
from iriscw.fleet.groups import group as groups
from iriscw.fleet.messages import SliceGone, WorkersMissed
from iriscw.fleet.records import SliceRequested

MISSED = (("kept-0", "i1"), ("left-0", "i1"), ("gone-0", "i1"), ("gone-1", "i1"), ("kept-1", "i2"))


def answers(it, ctx):
    """Return what a group tells whom about the missed."""
    return [(each.to.name, each.message) for each in groups.workers_missed(it, MISSED, ctx)]


def test_only_what_is_certainly_gone_is_told(group, ctx, labels):
    """Nothing before the lists are complete; then no promised slice and none of which a pool is left (J2)."""
    it = group()
    groups.apply(it, SliceRequested("kept", 0))
    groups.resume(it, ctx)
    left = NodePool("left", "u", "1", labels("left"))
    groups.pools_listed(it, (left,), ctx)
    groups.pods_listed(it, (), ctx)
    assert answers(it, ctx) == []
    it.sight.takeover_over = True
    groups.try_open(it, ctx)
    assert answers(it, ctx) == [("scheduler", SliceGone("gone"))]
    groups.pool_removed(it, left, ctx)
    assert answers(it, ctx) == [("scheduler", SliceGone("left")), ("scheduler", SliceGone("gone"))]


def test_a_pod_that_is_left_keeps_its_slice_from_being_gone(group, ctx, labels):
    """Somebody may still run there, though the pool is gone and the slice is not promised (J2)."""
    it = group()
    groups.resume(it, ctx)
    it.sight.takeover_over = True
    pod = Pod("gone-0-i1", "u", "1", labels("gone", "gone-0", "i1"))
    groups.pools_listed(it, (), ctx)
    groups.pods_listed(it, (pod,), ctx)
    assert answers(it, ctx) == [("scheduler", SliceGone("kept")), ("scheduler", SliceGone("left"))]


def test_slices_that_live_are_asked(group, ctx):
    """A slice that was started says itself what became of its workers."""
    it = group()
    groups.apply(it, SliceRequested("kept", 0))
    groups.resume(it, ctx)
    it.sight.takeover_over = True
    groups.pools_listed(it, (), ctx)
    groups.pods_listed(it, (), ctx)
    groups.slice_started(it, "kept", ctx)
    assert ("kept", WorkersMissed((MISSED[0], MISSED[4]))) in answers(it, ctx)
