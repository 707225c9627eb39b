"""The whole of the simulated cloud: its faults, its truth, and that the same seed is the same history."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
from cloud_world import PODS, SECOND, World

from iriscw_sims.coreweave.coreweave import CoreWeave, Statistics
from iriscw_sims.coreweave.crd import POOLS
from iriscw_sims.coreweave.fault_points import FAULT_POINTS, NAMES
from iriscw_sims.coreweave.pools import FINALIZER
from iriscw_sims.coreweave.settings import FAITHFUL

RATES = dict(FAULT_POINTS)


def busy(seed=0, pools=3, settings=None):
    """Return a world with running pods and all faults."""
    world = World(seed, rates=RATES) if settings is None else World(seed, settings, RATES)
    for number in range(pools):
        world.make_pool(f"p{number}", 2)
        for index in range(2):
            world.make_pod(f"a{number}-{index}", f"p{number}", policy="Always")
    return world


def history(seed):
    """Return a hash of all that happened in a busy world, and was written."""
    world = busy(seed)
    for _ in range(6):
        world.run(60)
        names = [node["metadata"]["name"] for node in world.items("/api/v1/nodes")]
        if names:
            world.cloud.kill_node(names[0])
            world.cloud.lose_node_for(names[-1], 20 * SECOND)
    world.cloud.heal()
    world.run(300)
    state = [item for collection in world.store.collections for item in collection.objects.values()]
    return hashlib.sha256(repr((world.trace, state, world.store.revision)).encode()).hexdigest()


def test_nothing_happens_while_nothing_is_to_do(pooled):
    """No timer, no write, however long."""
    pooled.running_pod()
    revision, waiting = pooled.store.revision, len(pooled._queue)
    pooled.run(86_400)
    assert pooled.store.revision == revision
    assert len(pooled._queue) == waiting == 0


def test_the_same_seed_is_the_same_history():
    """And another seed another."""
    assert history(1) == history(1) != history(2)


@pytest.mark.slow
def test_history_does_not_depend_on_the_process(repository):
    """Two processes with different hash seeds see the same."""
    program = "import test_coreweave; print(test_coreweave.history(3))"
    found = []
    for hash_seed in ("1", "2"):
        folder = Path(__file__).parent
        paths = os.pathsep.join([str(folder), str(repository / "sims"), str(repository / "src")])
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": paths}
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
        found.append(done.stdout)
    assert found[0] == found[1]
    assert found[0].strip() == history(3)


def test_every_fault_point_is_asked_for():
    """Among some worlds, and no other name is."""
    asked = {}
    for seed in range(12):
        world = busy(seed)
        world.make_pool("spot", 2, computeClass="spot")
        probed = {"name": "c", "image": "registry.test/i:1", "livenessProbe": {"exec": {"command": ["true"]}}}
        world.make_pod("probed", "spot", containers=[probed], policy="Always")
        limited = {"name": "c", "image": "registry.test/i:1", "resources": {"limits": {"ephemeral-storage": "1Gi"}}}
        world.make_pod("limited", "spot", containers=[limited], policy="Always")
        world.run(600)
        asked |= world.asked
    assert sorted(asked) == sorted(NAMES)


def test_a_chance_without_a_name_is_a_bug(world):
    """Of the simulation."""
    with pytest.raises(AssertionError):
        world.cloud.site.chance("no such thing", "pool/p")


def test_statistics_count(pooled):
    """Pools, nodes, pods, and which of them run or wait."""
    pooled.running_pod("a")
    pooled.make_pod("b", cpu="1000")
    pooled.run(10)
    assert pooled.cloud.statistics() == Statistics(pools=1, nodes=2, pods=2, running=1, waiting=1)


def test_a_pool_is_whole_when_all_its_nodes_are_ready(world):
    """And not when one of them is lost, or there is no such pool."""
    world.make_pool(nodes=2)
    assert not world.cloud.is_whole("p")
    world.until(lambda: world.cloud.is_whole("p"))
    assert len(world.ready_pools) == 2
    world.cloud.kill_node(world.nodes()[0]["metadata"]["name"])
    world.run(6)
    assert not world.cloud.is_whole("p")
    assert not world.cloud.is_whole("q")
    assert world.cloud.pool("p").ready_nodes < 2
    assert world.cloud.pool("q") is None


def test_exec_is_refused_on_a_new_node():
    """For the half minute that its tunnel takes, and while it is cut off."""
    world = World(settings=FAITHFUL)
    world.make_pool()
    world.until(world.nodes, 20_000)
    name = world.nodes()[0]["metadata"]["name"]
    assert not world.cloud.exec_ready(name)
    world.run(29)
    assert not world.cloud.exec_ready(name)
    world.run(2)
    assert world.cloud.exec_ready(name)
    world.cloud.lose_node_for(name, 10 * SECOND)
    assert not world.cloud.exec_ready(name)
    assert not world.cloud.exec_ready("nowhere")


def test_boots_take_what_was_measured():
    """14 to 30 minutes, with a tail."""
    world = World(settings=FAITHFUL)
    world.make_pool(nodes=200)
    took = world.until(world.whole, 20_000)
    assert 60 * 30 < took <= 60 * 91
    assert world.ready_pools == ["p"] * 200


@pytest.mark.parametrize(
    "strike", ["kill_node", "interrupt", "cordon", "triage", "delete_pool_from_outside", "lose_pool"]
)
def test_a_fault_without_a_victim_does_nothing(world, strike):
    """And says so."""
    before = world.store.revision
    assert getattr(world.cloud, strike)("nobody") is False
    assert world.cloud.lose_node_for("nobody", 1) is False
    assert world.cloud.evict("nobody") is False
    assert world.cloud.delete_pod_from_outside("nobody") is False
    assert world.store.revision == before


def test_a_pool_deleted_by_others_goes_like_any(pooled):
    """Once."""
    assert pooled.cloud.delete_pool_from_outside("p")
    assert not pooled.cloud.delete_pool_from_outside("p")
    pooled.until(lambda: pooled.pool() is None)


def test_a_pod_deleted_by_others_goes_like_any(pooled):
    """With its grace, or with none."""
    uid = pooled.running_pod("a")
    assert pooled.cloud.delete_pod_from_outside(uid)
    assert uid in pooled.alive
    pooled.until(lambda: pooled.pod("a") is None)
    uid = pooled.running_pod("b")
    assert pooled.cloud.delete_pod_from_outside(uid, 0)
    assert pooled.pod("b") is None


def test_a_lost_pool_leaves_no_trace(pooled):
    """Pool, nodes, pods and processes are gone in one moment."""
    uid = pooled.running_pod()
    assert pooled.cloud.lose_pool("p")
    assert pooled.pool() is None
    assert pooled.nodes() == []
    assert pooled.pod() is None
    assert uid not in pooled.alive
    pooled.run(600)
    assert pooled.cloud.statistics() == Statistics(0, 0, 0, 0, 0)


def test_a_pool_that_is_stuck_can_be_lost(pooled):
    """Whatever its deletion waits for."""
    pooled.scripted["deletion stuck"] = [True]
    pooled.patch(f"{POOLS}/p", {"metadata": {"finalizers": ["test.dev/mine", FINALIZER]}})
    pooled.do("DELETE", f"{POOLS}/p")
    assert pooled.cloud.lose_pool("p")
    assert pooled.pool() is None


def test_everything_can_be_lost_but_what_is_spared(pooled):
    """Chosen by a function of the object."""
    pooled.make_pool("q")
    pooled.until(lambda: pooled.whole("q"))
    pooled.running_pod("a")
    kept = pooled.running_pod("b", "q")

    def mine(item):
        return item["metadata"]["name"] in ("p", "a")

    assert pooled.cloud.lose_everything(mine) == 1
    assert pooled.pool() is None
    assert pooled.pod("a") is None
    assert pooled.whole("q")
    assert [*pooled.alive] == [kept]


def test_all_pods_can_be_lost(pooled):
    """Their pools stay; finalizers do not help."""
    pooled.running_pod("a")
    pooled.patch(f"{PODS}/a", {"metadata": {"finalizers": ["test.dev/mine"]}})
    pooled.make_pod("b", cpu="1000")
    assert pooled.cloud.lose_pods() == 2
    assert pooled.items(PODS) == []
    assert not pooled.alive
    assert pooled.whole()
    assert all(machine.idle for machine in pooled.cloud.nodes.machines.values())


def test_all_machines_can_die(pooled):
    """What ran there is shown for a while as if it did still; others come."""
    uid = pooled.running_pod()
    assert pooled.cloud.lose_machines() == 2
    assert uid not in pooled.alive
    assert pooled.phase() == "Running"
    assert len(pooled.nodes()) == 2
    pooled.until(lambda: pooled.nodes() == [] or not pooled.whole())
    pooled.until(pooled.whole)
    assert pooled.pod() is None


def test_a_cloud_knows_what_was_there_before_it():
    """Pools and pods of a store that it is given."""
    body = {"apiVersion": "compute.coreweave.com/v1alpha1", "kind": "NodePool", "metadata": {"name": "p"}}
    spec = {"instanceType": "cd-gp-a192-genoa", "targetNodes": 1, "nodeLabels": {"slice": "p"}}
    silent = World()
    silent.cloud.react = lambda: None
    silent.make_pod()
    silent.do("POST", POOLS, {**body, "spec": spec})
    silent.cloud = CoreWeave(silent.store, silent, silent)
    silent.until(lambda: silent.phase() == "Running")


def test_compaction_does_not_disturb_it(pooled):
    """It has read what is forgotten."""
    pooled.store.compact(pooled.store.revision)
    pooled.running_pod()


def test_a_busy_world_with_all_faults_goes_on():
    """For an hour; then it can be repaired, and settles."""
    world = busy(5)
    world.run(3600)
    world.rates = {}
    world.cloud.heal()
    world.run(1200)
    assert all(world.whole(f"p{number}") for number in range(3))


def test_what_was_to_go_wrong_does_not_after_a_repair():
    """Deaths, interruptions and evictions that were drawn before it."""
    world = World(settings=FAITHFUL)
    for point in ("node dies early", "node triaged", "spot interruption", "pod evicted"):
        world.scripted[point] = [True]
    world.make_pool(computeClass="spot")
    world.until(world.whole, 20_000)
    uid = world.running_pod()
    world.cloud.heal()
    world.run(86_400)
    assert world.whole()
    assert uid in world.alive
    assert world.ready_pools == ["p"]


def test_settings_are_frozen():
    """A world changes them by evolving."""
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        FAITHFUL.validated = "x"


def test_events_are_forgotten(pooled):
    """After an hour, as the API server does it."""
    pooled.make_pod(cpu="1000")
    pooled.run(10)
    assert pooled.reasons("a") == ["FailedScheduling"]
    pooled.run(3601)
    assert pooled.reasons("a") == []
