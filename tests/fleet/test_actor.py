"""The fleet tree on the real dispatcher, before a scripted cloud: lives of slices from demand to nothing left."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import HealthCheck, given, strategies as st

from iriscw.cloud.effects import CreateNodePool, CreatePod, DeleteNodePool
from iriscw.cloud.model import (
    LABEL_CLUSTER,
    LABEL_ROLE,
    Condition,
    InvalidSpec,
    NoCapacity,
    NodePool,
    QuotaExceeded,
    Throttled,
    Unavailable,
)
from iriscw.fleet.messages import ActivityChanged, ReopenGroup, SchedulerStarted, WorkerDialled
from iriscw.fleet.model import Availability, NoSuchGroup, SliceState, Trouble, WorkerRefused
from profiles import examples


def calls(it, kind):
    return [call for call in it.cloud.calls if type(call) is kind]


def only(it):
    (row,) = it.describe().slices
    return row


# The whole life


def test_demand_makes_a_slice_ready(world, demand):
    """From zero: demand makes a pool, its nodes a pod, its worker a ready slice that the scheduler hears of."""
    it = world()
    it.advance(1)
    assert it.states() == []
    it.tell(demand(1))
    it.until(lambda: it.states() == ["ready"])
    (info,) = it.scheduler.ready.values()
    assert info.attributes.get("slice-id") == only(it).slice_id
    assert len(calls(it, CreateNodePool)) == 1
    assert len(calls(it, CreatePod)) == 1


def test_idle_slice_goes_and_leaves_nothing(world, demand):
    """Without demand the idle slice is cordoned, drained and deleted: no pool, pod or promise is left."""
    it = world()
    it.tell(demand(1))
    it.until(lambda: it.states() == ["ready"])
    it.tell(demand(0))
    it.until(lambda: it.states() == [])
    assert it.cloud.pools == {}
    assert it.cloud.pods == {}
    assert it.promises() == {}
    assert len(it.scheduler.cordons) == 1
    assert it.scheduler.ready == {}
    assert len(calls(it, DeleteNodePool)) == 1


def test_no_pool_before_the_journal_has_it(world, demand):
    """While the disk stalls, no pool is asked for; it is as soon as the disk goes on (INV-F1)."""
    it = world()
    it.advance(1)
    it.system.sync_ns = None
    it.tell(demand(1))
    it.advance(30)
    assert len(it.promises()) == 1
    assert calls(it, CreateNodePool) == []
    it.system.sync_ns = lambda rng: 1000
    it.until(lambda: it.states() == ["ready"])
    assert len(calls(it, CreateNodePool)) == 1


def test_multi_node_slice_is_ready_as_a_whole(world, demand):
    """No worker of a slice is shown to the scheduler before all are registered (INV-F6)."""
    it = world(num_vms=3)
    it.cloud.workers_dial = False
    it.tell(demand(3, gang=3))
    it.until(lambda: len(it.cloud.pods) == 3)
    it.advance(5)
    first, second, third = sorted(it.cloud.pods)
    it.cloud.dial(first)
    it.cloud.dial(second)
    it.advance(1)
    assert it.scheduler.ready == {}
    assert "2 of 3 workers" in only(it).reason
    it.cloud.dial(third)
    it.advance(1)
    assert len(it.scheduler.ready) == 3


# Bounds


def test_min_slices_without_demand(world):
    """min_slices are there without any demand, and stay (INV-F4)."""
    it = world(min_slices=2)
    it.until(lambda: it.states() == ["ready", "ready"])
    it.advance(200)
    assert it.states() == ["ready", "ready"]


def test_max_slices_is_never_exceeded(world, demand):
    """However much is asked for, no more pools than max_slices exist (INV-F4)."""
    it = world(max_slices=2)
    it.tell(demand(50))
    for _ in range(60):
        it.advance(2)
        assert len(it.cloud.pools) <= 2
        it.fill()
        it.tell(demand(50))
    assert it.states() == ["ready", "ready"]
    assert "max_slices" in it.scheduler.routed["job"]


def test_buffer_is_kept_beyond_demand(world, demand):
    """buffer_slices are kept idle beyond what demand needs."""
    it = world(buffer_slices=1)
    it.until(lambda: it.states() == ["ready"])
    it.advance(100)
    assert it.states() == ["ready"]


def test_longest_idle_goes_and_busy_stays(world, demand):
    """Of several slices exactly the longest idle one goes; the busy one stays for ever (INV-F3)."""
    it = world(min_slices=2, max_slices=3)
    it.until(lambda: it.states() == ["ready", "ready"])
    it.fill()
    it.tell(demand(1))
    it.until(lambda: it.states() == ["ready"] * 3)
    first, second, third = sorted(it.scheduler.ready.values(), key=lambda info: info.worker_id)
    it.fill()
    it.advance(100)
    assert it.states() == ["ready"] * 3
    it.tell(ActivityChanged(second.worker_id, second.incarnation, 0))
    it.advance(3)
    it.tell(ActivityChanged(third.worker_id, third.incarnation, 0))
    it.until(lambda: len(it.states()) == 2)
    left = {row.slice_id for row in it.describe().slices}
    assert left == {first.slice_id, third.slice_id}


def test_cordon_with_live_attempts_is_lifted(world, demand):
    """A slice on which the scheduler still has something running is not removed (INV-F3)."""
    it = world()
    it.tell(demand(1))
    it.until(lambda: it.states() == ["ready"])
    it.scheduler.live = 2
    it.tell(demand(0))
    it.until(lambda: bool(it.scheduler.uncordons))
    it.advance(100)
    assert it.states() == ["ready"]
    assert calls(it, DeleteNodePool) == []


def test_unanswered_cordon_is_withdrawn(world, demand):
    """A scheduler that does not answer keeps the slice."""
    it = world()
    it.tell(demand(1))
    it.until(lambda: it.states() == ["ready"])
    it.scheduler.live = -1
    it.tell(demand(0))
    it.advance(120)
    assert it.states() == ["ready"]
    assert it.scheduler.uncordons


def test_unwanted_slice_on_its_way_is_given_up(world, demand):
    """A slice that nobody wants any more is given up before it has booted."""
    it = world()
    it.cloud.boot_s = 100
    it.tell(demand(1))
    it.advance(5)
    assert it.states() == ["booting"]
    it.tell(demand(0))
    it.until(lambda: it.states() == [])
    assert it.cloud.pools == {}
    assert it.scheduler.ready == {}


# Trouble, told apart


def test_quota_is_given_up_and_tried_again_later(world, demand):
    """Quota exceeded: the pool is given up, the group closed with a reason, and it tries again (INV-F5)."""
    it = world()
    it.cloud.conditions = (Condition("Quota", "False", "NotSet", "quota limit is 0 for instance type h100"),)
    it.tell(demand(1))
    it.until(lambda: it.describe().groups[0].availability is Availability.QUOTA_EXCEEDED)
    assert "quota limit is 0" in it.scheduler.routed["job"]
    it.until(lambda: it.cloud.pools == {})
    it.cloud.conditions = ()
    it.until(lambda: it.states() == ["ready"])


def test_capacity_keeps_its_place_in_the_queue(world, demand):
    """No capacity: the pool waits beyond every timeout, no second one is asked for, and it boots in the end."""
    it = world()
    it.cloud.conditions = (Condition("Capacity", "False", "QueuedAwaitingCapacity"),)
    it.tell(demand(3))
    it.until(lambda: it.describe().groups[0].availability is Availability.NO_CAPACITY)
    started = len(it.cloud.pools)
    it.advance(1000)
    assert len(calls(it, CreateNodePool)) == started
    assert only_states(it) == {SliceState.BOOTING}
    assert {row.trouble for row in it.describe().slices} == {Trouble.CAPACITY}
    for name in list(it.cloud.pools):
        it.cloud.change_pool(name, conditions=())
        it.cloud.boot(name)
    it.until(lambda: set(it.states()) == {"ready"})


def only_states(it):
    return {row.state for row in it.describe().slices}


def test_no_capacity_from_the_call_is_repeated(world, demand):
    """A create that is refused for capacity is repeated by the same slice until it goes through."""
    it = world()
    it.cloud.errors[CreateNodePool] = [NoCapacity("zone is full")] * 3
    it.tell(demand(1))
    it.until(lambda: it.states() == ["ready"])
    assert len({call.spec.name for call in calls(it, CreateNodePool)}) == 1
    assert len(calls(it, CreateNodePool)) == 4


@pytest.mark.parametrize("how", ["condition", "error"])
def test_invalid_spec_closes_the_group_until_people_act(world, demand, how):
    """An invalid specification is asked for once, then the group stays closed until an operator reopens it."""
    it = world()
    if how == "condition":
        it.cloud.conditions = (Condition("Validated", "False", "Invalid", "no such instance type"),)
    else:
        it.cloud.errors[CreateNodePool] = [InvalidSpec("no such instance type")]
    it.tell(demand(1))
    it.until(lambda: it.describe().groups[0].availability is Availability.INVALID)
    it.advance(2000)
    assert len(calls(it, CreateNodePool)) == 1
    assert it.states() == []
    assert "no such instance type" in it.scheduler.routed["job"]
    it.cloud.conditions = ()
    assert it.system.ask("/fleet", ReopenGroup("gpu")) is None
    it.until(lambda: it.states() == ["ready"])


def test_slow_boot_is_reported_then_replaced(world, demand):
    """A boot beyond its timeout is shown as slow first, and replaced then."""
    it = world()
    it.cloud.boot_s = 10_000
    it.tell(demand(1))
    it.advance(60)
    assert only(it).trouble is Trouble.SLOW_BOOT
    first = only(it).slice_id
    it.cloud.boot_s = 10
    it.until(lambda: it.states() == ["ready"], 600)
    assert only(it).slice_id != first
    assert first not in it.cloud.pools


@pytest.mark.parametrize("error", [Unavailable("timeout"), Throttled(retry_after=3_000_000_000), KeyError("bug")])
def test_passing_api_errors_conclude_nothing(world, demand, error):
    """Calls that fail for the moment are repeated until they go through; only a pod that may come late is not named
    again.
    """
    it = world()
    it.cloud.errors = {CreateNodePool: [error] * 2, CreatePod: [error] * 2, DeleteNodePool: [error] * 2}
    it.tell(demand(1))
    it.until(lambda: it.states() == ["ready"])
    assert len({call.spec.name for call in calls(it, CreateNodePool)}) == 1
    assert len({call.spec.name for call in calls(it, CreatePod)}) == (1 if isinstance(error, Throttled) else 3)
    it.tell(demand(0))
    it.until(lambda: it.states() == [])
    assert it.cloud.pools == {}


def test_second_group_takes_over_when_quota_is_used_up(world, demand, group_config):
    """Demand falls through to the next group while the first has no quota."""
    it = world(group_config("a-first", priority=1), group_config("b-second", priority=2))
    it.cloud.errors[CreateNodePool] = [QuotaExceeded("no quota for gd-8xh100")]
    it.tell(demand(1))
    it.until(lambda: it.states() == ["ready"])
    assert only(it).group == "b-second"


# Workers


def test_worker_with_less_than_promised_is_refused_by_name(world, demand, big):
    """A worker that has less than its group promises is refused, and says what is short (F6)."""
    it = world()
    it.cloud.capacity = attrs.evolve(big, gpu_count=7)
    it.tell(demand(1))
    it.until(lambda: bool(it.cloud.dialled))
    it.advance(1)
    (slot,) = it.cloud.dialled.values()
    assert isinstance(slot.error, WorkerRefused)
    assert "gpu 7 < 8" in str(slot.error)
    assert not slot.error.fenced
    assert "gpu 7 < 8" in only(it).reason
    assert it.scheduler.ready == {}


def test_wrong_incarnation_is_fenced(world, demand, big):
    """Who dials with another incarnation is fenced off, from whatever address."""
    it = world()
    it.tell(demand(1))
    it.until(lambda: it.states() == ["ready"])
    (info,) = it.scheduler.ready.values()
    dial = WorkerDialled(info.worker_id, "elsewhere", big, info.attributes, info.address)
    with pytest.raises(WorkerRefused) as refused:
        it.system.ask(f"/fleet/gpu/{info.slice_id}/{info.worker_id}", dial)
    assert refused.value.fenced
    assert it.states() == ["ready"]


def test_silent_worker_is_lost_then_fenced_then_replaced(world, demand):
    """Silence is a loss at once, fenced only when the pod is gone; then a new incarnation follows (J10)."""
    it = world()
    it.tell(demand(1))
    it.until(lambda: it.states() == ["ready"])
    it.fill()
    (old,) = it.scheduler.ready.values()
    it.cloud.workers_dial = False
    it.until(lambda: bool(it.scheduler.lost))
    it.cloud.workers_dial = True
    it.until(lambda: it.states() == ["ready"])
    losses = [loss for loss in it.scheduler.lost if loss.incarnation == old.incarnation]
    assert [loss.fenced for loss in losses] == [False, True]
    (new,) = it.scheduler.ready.values()
    assert new.worker_id == old.worker_id
    assert new.incarnation != old.incarnation


def test_stall_of_the_controller_loses_nobody(world, demand):
    """A controller that stood still for minutes takes no worker for dead (J10)."""
    it = world()
    it.tell(demand(1))
    it.until(lambda: it.states() == ["ready"])
    it.fill()
    it.system.simulation.stall(300)
    it.advance(60)
    assert it.states() == ["ready"]
    assert it.scheduler.lost == []


def test_pod_that_ended_is_replaced_and_fenced(world, demand):
    """A pod that ended is fenced at once, and followed by another incarnation."""
    it = world()
    it.tell(demand(1))
    it.until(lambda: it.states() == ["ready"])
    (name,) = it.cloud.pods
    it.cloud.end_pod(name)
    it.advance(0.1)
    assert it.scheduler.lost[-1].fenced
    assert "OOMKilled" in it.scheduler.lost[-1].reason
    it.until(lambda: it.states() == ["ready"])
    assert name not in it.cloud.pods


def test_failing_workers_condemn_the_slice(world, demand):
    """A place whose pods fail again and again condemns its slice, which is replaced."""
    it = world()
    it.cloud.workers_dial = False
    it.tell(demand(1))
    it.until(lambda: bool(it.cloud.pods))
    first = only(it).slice_id
    while first in it.promises() and not it.promises()[first].doomed:
        for name, pod in list(it.cloud.pods.items()):
            if not pod.phase.over:
                it.cloud.end_pod(name, "CrashLoop")
        it.advance(1)
    assert "CrashLoop" in it.promises()[first].doomed
    it.cloud.workers_dial = True
    it.until(lambda: it.states() == ["ready"], 600)


def test_pool_removed_from_outside_is_replaced(world, demand):
    """A pool that vanishes takes its slice with it; demand gets another one."""
    it = world(min_slices=1)
    it.until(lambda: it.states() == ["ready"])
    first = only(it).slice_id
    it.cloud.drop_pool(first)
    for name in list(it.cloud.pods):
        it.cloud.drop_pod(name)
    it.until(lambda: it.states() == ["ready"] and only(it).slice_id != first, 600)
    assert len(it.cloud.pools) == 1


# The end


def test_stuck_deletion_is_reported_and_blocks_nothing(world, demand):
    """A deletion that hangs is reported, repeated, and no longer counts against max_slices (INV-F7)."""
    it = world(max_slices=1)
    it.tell(demand(1))
    it.until(lambda: it.states() == ["ready"])
    it.cloud.hang = True
    it.tell(demand(0))
    it.until(lambda: any(row.trouble is Trouble.STUCK_DELETION for row in it.describe().slices), 600)
    (stuck,) = [row for row in it.describe().slices if row.trouble is Trouble.STUCK_DELETION]
    assert "more than" in stuck.reason
    it.cloud.hang = False
    before = len(calls(it, DeleteNodePool))
    it.cloud.hang = True
    it.tell(demand(1))
    it.until(lambda: "ready" in it.states(), 600)
    it.fill()
    it.advance(200)
    assert len(calls(it, DeleteNodePool)) > before
    it.cloud.hang = False
    it.until(lambda: it.states() == ["ready"], 2000)
    assert len(it.cloud.pools) == 1


def test_foreign_pools_are_never_touched(world, labels):
    """Pools of another installation, without our label, or of the controller stay (INV-F2)."""
    it = world()
    foreign = [
        NodePool("other-cluster", "u1", "1", labels("other-cluster", **{LABEL_CLUSTER: "someone"})),
        NodePool("not-managed", "u2", "1", {"app": "x"}),
        NodePool("controller", "u3", "1", labels("controller", **{LABEL_ROLE: "controller"})),
    ]
    it.cloud.pools.update({pool.name: pool for pool in foreign})
    it.crash()
    it.advance(500)
    assert calls(it, DeleteNodePool) == []
    assert len(it.cloud.pools) == 3


@pytest.mark.parametrize("group", ["gpu", "no-such-group"])
def test_orphan_pools_are_reclaimed(world, labels, group):
    """A pool under our labels that belongs to no slice is deleted, even if its group is not configured."""
    it = world()
    stray = NodePool("iris-old", "u1", "1", {**labels("iris-old"), "iris-scale-group": group})
    it.cloud.pools["iris-old"] = stray
    it.crash()
    it.until(lambda: it.cloud.pools == {})
    it.advance(5)
    assert it.describe().groups[0].orphans == ()


def test_create_without_an_answer_leaks_nothing(world, demand):
    """A create that landed and was never answered becomes the slice's pool by what the watch shows."""
    it = world()
    it.cloud.silent[CreateNodePool] = 1
    it.tell(demand(1))
    it.until(lambda: it.states() == ["ready"])
    assert len(it.cloud.pools) == 1


# Restarts


@pytest.mark.parametrize("after_s", [0, 0.003, 1, 10, 21, 22.5, 24, 28])
def test_crash_of_the_controller_adopts_or_deletes(world, demand, after_s):
    """After a crash at any stage the slice is adopted: one pool, one pod, no worker lost (INV-F2)."""
    it = world()
    it.tell(demand(1))
    it.advance(after_s)
    it.crash()
    it.advance(1)
    it.tell(demand(1))
    it.until(lambda: "ready" in it.states())
    it.tell(demand(0))
    it.tell(ActivityChanged("x-0", "y", 1))
    it.advance(5)
    assert set(it.cloud.pools) == set(it.promises())
    assert len(it.cloud.pods) == len(it.cloud.pools) == 1


def test_crash_while_draining_goes_on_with_the_end(world, demand):
    """A slice that was doomed before a crash is removed after it, and never created again."""
    it = world()
    it.tell(demand(1))
    it.until(lambda: it.states() == ["ready"])
    it.tell(demand(0))
    it.until(lambda: any(promise.doomed for promise in it.promises().values()))
    it.advance(0.1)
    created = len(calls(it, CreateNodePool))
    it.crash()
    it.until(lambda: it.promises() == {} and it.cloud.pools == {})
    assert len(calls(it, CreateNodePool)) == created


def test_takeover_waits_for_the_earlier_controller(world, demand):
    """Nothing is created or reclaimed before the earlier controller's requests have landed (INV-F8)."""
    it = world(takeover_s=60)
    it.tell(demand(1))
    it.advance(55)
    assert calls(it, CreateNodePool) == []
    it.until(lambda: it.states() == ["ready"])


def test_new_scheduler_is_told_of_all_workers(world):
    """A scheduler that began anew hears of each ready worker again."""
    it = world(min_slices=2)
    it.until(lambda: it.states() == ["ready", "ready"])
    it.scheduler.ready.clear()
    it.tell(SchedulerStarted())
    assert len(it.scheduler.ready) == 2


def test_lost_watch_is_opened_again(world, demand):
    """A watch that ends is opened again, and what happened meanwhile is not missed."""
    it = world()
    it.advance(1)
    for watch in it.cloud.watches.values():
        watch.fail(Unavailable("connection reset"))
    it.system.run_until_idle()
    assert "connection reset" in it.describe().watch_error
    it.tell(demand(1))
    it.until(lambda: it.states() == ["ready"])
    assert it.describe().watch_error == ""


def test_unknown_group_cannot_be_reopened(world):
    """Reopening a group that does not exist is refused by name."""
    it = world()
    with pytest.raises(NoSuchGroup):
        it.system.ask("/fleet", ReopenGroup("nobody"))


# Chance


@examples(30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), seed=st.integers(0, 1000))
def test_any_weather_ends_with_nothing_left(world, demand, data, seed):
    """Demand, crashes, silent creates and lost pools in any order: the bounds hold, and all is gone in the end."""
    it = world(max_slices=3, num_vms=data.draw(st.integers(1, 2)), seed=seed)
    for _ in range(data.draw(st.integers(1, 8))):
        match data.draw(st.sampled_from(["demand", "crash", "silent", "drop", "end", "fail", "poison", "wait"])):
            case "demand":
                it.tell(demand(data.draw(st.integers(0, 5))))
            case "crash":
                it.crash()
            case "silent":
                it.cloud.silent[CreateNodePool] = 1
                it.cloud.silent[CreatePod] = 1
            case "fail":
                it.cloud.errors = {kind: [Unavailable("?")] for kind in (CreateNodePool, CreatePod, DeleteNodePool)}
            case "poison":
                it.poison(data.draw(st.integers(0, 9)))
            case "drop":
                for name in list(it.cloud.pools)[:1]:
                    it.cloud.drop_pool(name)
            case "end":
                for name in list(it.cloud.pods)[:1]:
                    it.cloud.end_pod(name)
        for _ in range(data.draw(st.integers(1, 6))):
            it.advance(data.draw(st.sampled_from([0.001, 1, 7, 30])))
            assert len([pool for pool in it.cloud.pools.values() if not pool.deleting]) <= 3
            promises = it.promises()
            assert promises is None or set(it.cloud.pools) <= set(promises), "INV-F1"
            for name in it.scheduler.ready:
                assert it.is_whole(name.rpartition("-")[0]), "INV-F6"
    it.tell(demand(0))
    it.until(lambda: it.cloud.pools == {} and it.cloud.pods == {} and it.promises() == {}, 5000)
    assert it.scheduler.ready == {}


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_restarted_actor_goes_on(world, demand, depth):
    """Whichever actor fails, the slice is ready again, with the same pool and the same pod (INV-R7)."""
    it = world()
    it.tell(demand(1))
    it.until(lambda: it.states() == ["ready"])
    it.fill()
    (path,) = [path for path in it.paths() if path.count("/") == depth]
    pods = set(it.cloud.pods)
    it.poison_path(path)
    it.until(lambda: it.states() == ["ready"])
    it.advance(30)
    assert it.states() == ["ready"]
    assert set(it.cloud.pods) == pods
    assert len(it.scheduler.ready) == 1
