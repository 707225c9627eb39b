"""Whatever users do and whatever breaks: once all is repaired, everything settles, and the truth is what is shown."""

from random import Random

import pytest
from cloud_world import PODS, SECOND, World
from hypothesis import given, strategies as st

from iriscw_sims.coreweave.crd import POOLS
from iriscw_sims.coreweave.fault_points import NAMES
from iriscw_sims.coreweave.settings import FAITHFUL, QUICK
from profiles import examples

POOL = st.sampled_from(("p", "q"))
POD = st.sampled_from(("a", "b", "c", "d"))
PICK = st.integers(0, 1000)

ACTION = st.one_of(
    st.tuples(st.just("create pool"), POOL, st.integers(0, 4)),
    st.tuples(st.just("create pool"), POOL, st.integers(1, 2)),
    st.tuples(st.just("scale pool"), POOL, st.integers(0, 4)),
    st.tuples(st.just("delete pool"), POOL),
    st.tuples(st.just("strip pool"), POOL),
    st.tuples(st.just("create pod"), POD, POOL, st.sampled_from(("Never", "Always", "OnFailure")), st.booleans()),
    st.tuples(st.just("delete pod"), POD, st.sampled_from((None, 0, 1, 30))),
    st.tuples(st.just("exit"), PICK, st.sampled_from((0, 1))),
    st.tuples(st.just("node"), st.sampled_from(("kill_node", "interrupt", "cordon", "triage")), PICK),
    st.tuples(st.just("lose node"), PICK, st.integers(1, 60)),
    st.tuples(st.just("delete node"), PICK),
    st.tuples(st.just("evict"), PICK),
    st.tuples(st.just("fill"), PICK, st.integers(1, 60), st.booleans()),
    st.tuples(st.just("exhaust"), PICK),
    st.tuples(st.just("unready"), PICK, st.integers(1, 60)),
    st.tuples(st.just("clock"), PICK, st.integers(-600, 600)),
    st.tuples(st.just("lose"), st.sampled_from(("lose_machines", "lose_pods", "lose_everything"))),
    st.tuples(st.just("lose pool"), POOL),
    st.tuples(st.just("wait"), st.integers(0, 40)),
    st.tuples(st.just("wait"), st.integers(0, 3)),
)


def drawn(rng):
    """Draw an action without Hypothesis, most often that time passes."""
    pool, pod, pick = rng.choice("pq"), rng.choice("abcd"), rng.randrange(1000)
    owned = rng.random() < 0.5
    return rng.choice(
        (
            ("create pool", pool, rng.randrange(5)),
            ("create pool", pool, 2),
            ("scale pool", pool, rng.randrange(5)),
            ("delete pool", pool),
            ("strip pool", pool),
            ("create pod", pod, pool, rng.choice(("Never", "Always", "OnFailure")), owned),
            ("create pod", pod, pool, "Always", owned),
            ("create pod", pod, pool, "Never", owned),
            ("delete pod", pod, rng.choice((None, 0, 1, 30))),
            ("exit", pick, rng.randrange(2)),
            ("node", rng.choice(("kill_node", "interrupt", "cordon", "triage")), pick),
            ("lose node", pick, rng.randrange(1, 60)),
            ("delete node", pick),
            ("evict", pick),
            ("fill", pick, rng.randrange(1, 60), rng.random() < 0.5),
            ("exhaust", pick),
            ("unready", pick, rng.randrange(1, 60)),
            ("clock", pick, rng.randrange(-600, 601)),
            ("lose", rng.choice(("lose_machines", "lose_pods", "lose_everything"))),
            ("lose pool", pool),
            *[("wait", rng.randrange(20))] * 9,
        )
    )


RATES = st.dictionaries(st.sampled_from(NAMES), st.sampled_from((100, 300, 900)), max_size=12)


def picked(things, pick):
    """Return one of some things, None if there are none."""
    things = [*things]
    return things[pick % len(things)] if things else None


def act(world, action, pace=1):
    """Do one thing; refusals are part of life."""
    kind, *args = action
    cloud = world.cloud
    match kind:
        case "create pool":
            if world.pool(args[0]) is None:
                world.make_pool(args[0], args[1], lifecycle={"scaleDownStrategy": "PreferIdle"}, computeClass="spot")
        case "scale pool":
            if world.pool(args[0]) is not None:
                world.patch(f"{POOLS}/{args[0]}", {"spec": {"targetNodes": args[1]}})
        case "delete pool":
            world.ask("DELETE", f"{POOLS}/{args[0]}")
        case "strip pool":
            if world.pool(args[0]) is not None:
                world.patch(f"{POOLS}/{args[0]}", {"metadata": {"finalizers": None}})
        case "create pod":
            name, pool, policy, owned = args
            if world.pod(name) is None:
                found = world.pool(pool)
                owner = {"name": pool, "uid": found["metadata"]["uid"]} if owned and found else None
                world.make_pod(name, pool, policy, owner=owner)
        case "delete pod":
            body = None if args[1] is None else {"gracePeriodSeconds": args[1]}
            world.ask("DELETE", f"{PODS}/{args[0]}", body)
        case "exit":
            uid = picked(world.alive, args[0])
            if uid is not None:
                world.exit(uid, args[1])
        case "node":
            getattr(cloud, args[0])(picked(cloud.nodes.machines, args[1]) or "nobody")
        case "lose node":
            cloud.lose_node_for(picked(cloud.nodes.machines, args[0]) or "nobody", args[1] * pace * SECOND)
        case "delete node":
            name = picked(cloud.nodes.machines, args[0])
            if name is not None:
                world.do("DELETE", f"/api/v1/nodes/{name}")
        case "evict":
            cloud.evict(picked(world.alive, args[0]) or "nobody")
        case "fill":
            cloud.fill(picked(cloud.nodes.machines, args[0]) or "nobody", args[1] * pace * SECOND, memory=args[2])
        case "exhaust":
            cloud.exhaust(picked(world.alive, args[0]) or "nobody")
        case "unready":
            cloud.unready(picked(cloud.nodes.machines, args[0]) or "nobody", args[1] * pace * SECOND)
        case "clock":
            cloud.jump_clock(picked(cloud.nodes.machines, args[0]) or "nobody", args[1] * SECOND)
            cloud.jump_own_clock(args[1] * SECOND)
        case "lose":
            getattr(cloud, args[0])()
        case "lose pool":
            cloud.lose_pool(args[0])
        case "wait":
            world.run(args[0] * pace)


def check_truth(world):
    """Check what holds at every moment."""
    cloud = world.cloud
    assert [*world.alive] == [*cloud.kubelets.running]
    for guest in cloud.kubelets.running.values():
        assert guest.machine.powered
        assert guest.uid in guest.machine.guests
    for machine in cloud.nodes.machines.values():
        held = [guest for guest in machine.guests.values() if guest.holds]
        assert machine.holding == len(held)
        for name, whole in machine.shape.amounts.items():
            assert machine.free[name] == whole - sum(guest.wanted.get(name, 0) for guest in held) >= 0


def check_settled(world):
    """Check what holds once all is repaired and time has passed."""
    pools = {pool["metadata"]["name"]: pool for pool in world.items(POOLS)}
    for name, pool in pools.items():
        assert not pool["metadata"].get("deletionTimestamp")
        assert world.whole(name)
        assert len(world.nodes(name)) == pool["spec"]["targetNodes"]
        assert (pool["status"]["inProgress"], pool["status"]["queuedNodes"]) == (0, 0)
    nodes = {node["metadata"]["name"]: node for node in world.items("/api/v1/nodes")}
    assert {node["metadata"]["labels"]["compute.coreweave.com/node-pool"] for node in nodes.values()} <= {*pools}
    assert [*nodes] == sorted(world.cloud.nodes.machines)
    for pod in world.items(PODS):
        uid, phase = pod["metadata"]["uid"], pod["status"]["phase"]
        assert not pod["metadata"].get("deletionTimestamp")
        assert (phase == "Running") == (uid in world.alive)
        if phase == "Pending":
            assert pod["status"]["conditions"][0]["reason"] == "Unschedulable"
        else:
            assert pod["spec"]["nodeName"] in nodes
    assert {*world.alive} <= {pod["metadata"]["uid"] for pod in world.items(PODS)}
    for uid, starts in world.starts.items():
        assert starts == world.ends.get(uid, 0) + (uid in world.alive)
    assert world.items("/api/v1/events") == []
    assert not world._queue
    assert world.cloud.site._waiting == {}


def check_history(actions, rates, seed, preset=QUICK):
    """Let things happen, repair everything, and check that it settles; faithful worlds get more time for each step."""
    world = World(seed, preset, rates)
    pace = 60 if preset is FAITHFUL else 1
    for action in actions:
        act(world, action, pace)
        check_truth(world)
    world.rates = {}
    world.cloud.heal()
    world.run(3 * 3600 * pace)
    check_truth(world)
    check_settled(world)


@given(actions=st.lists(ACTION, max_size=40), rates=RATES, seed=st.integers(0, 3))
@examples(60)
def test_everything_settles(actions, rates, seed):
    """After any history: pools are at their targets, nothing is left over, and what runs is what is shown to run."""
    check_history(actions, rates, seed)


@pytest.mark.slow
@pytest.mark.parametrize("preset", [QUICK, FAITHFUL], ids=["quick", "faithful"])
@given(actions=st.lists(ACTION, min_size=20, max_size=120), rates=RATES, seed=st.integers(0, 1000))
@examples(100)
def test_everything_settles_after_long_histories(preset, actions, rates, seed):
    """The same, for longer, and at either speed."""
    check_history(actions, rates, seed, preset)


@pytest.mark.soak
@pytest.mark.parametrize("preset", [QUICK, FAITHFUL], ids=["quick", "faithful"])
def test_everything_settles_after_many_histories(preset):
    """The same, for actions drawn evenly, in which the fleet lives longer between two losses."""
    for seed in range(500):
        rng = Random(seed)
        rates = {name: rng.choice((50, 100, 300, 900)) for name in NAMES if rng.random() < 0.2}
        actions = [drawn(rng) for _ in range(rng.randrange(1, 80))]
        check_history(actions, rates, seed, preset)
