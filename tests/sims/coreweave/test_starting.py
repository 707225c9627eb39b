"""How a pod comes to run, and what may keep it from that."""

import pytest
from cloud_world import SECOND, World

from iriscw_sims.coreweave.settings import FAITHFUL


def test_a_pod_starts_in_the_order_of_a_kubelet(pooled):
    """Bound, creating, running, with times, addresses and conditions."""
    pooled.make_pod()
    pooled.until(lambda: pooled.pod()["spec"].get("nodeName"))
    pooled.until(lambda: pooled.waits() == "ContainerCreating")
    assert pooled.phase() == "Pending"
    assert not pooled.alive
    pooled.until(lambda: pooled.phase() == "Running")
    status = pooled.pod()["status"]
    node = next(each for each in pooled.nodes() if each["metadata"]["name"] == pooled.pod()["spec"]["nodeName"])
    assert status["hostIP"] == node["status"]["addresses"][0]["address"]
    assert status["podIP"] != status["hostIP"]
    (container,) = status["containerStatuses"]
    assert container["ready"]
    assert container["state"]["running"]["startedAt"]
    assert {each["type"]: each["status"] for each in status["conditions"]} == {
        "PodScheduled": "True",
        "PodReadyToStartContainers": "True",
        "Initialized": "True",
        "Ready": "True",
        "ContainersReady": "True",
    }
    assert len(pooled.alive) == 1


def test_a_pod_on_the_hosts_network_has_its_address(pooled):
    """As MPI and NCCL want it."""
    pooled.running_pod(hostNetwork=True)
    status = pooled.pod()["status"]
    assert status["podIP"] == status["hostIP"]


def test_the_second_pod_finds_the_image(pooled):
    """It is pulled once a node."""
    pooled.scripted["image pull slow"] = [True]
    pooled.running_pod("a", nodeSelector={"slice": "p"})
    node = pooled.pod("a")["spec"]["nodeName"]
    uid = pooled.make_pod("b", nodeSelector={"kubernetes.io/hostname": node})["metadata"]["uid"]
    assert pooled.until(lambda: uid in pooled.alive) < 3
    assert pooled.asked["image pull slow"] == 1


def test_an_image_may_be_slow(pooled):
    """The pod is creating for as long."""
    pooled.scripted["image pull slow"] = [True]
    pooled.make_pod()
    assert pooled.until(lambda: pooled.phase() == "Running") >= 10


def test_a_pod_may_never_start(pooled):
    """Nothing says why; a repair lets it."""
    pooled.scripted["pod never starts"] = [True]
    pooled.make_pod()
    pooled.run(36_000)
    assert pooled.waits() == "ContainerCreating"
    pooled.cloud.heal()
    pooled.until(lambda: pooled.phase() == "Running", 60)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("point", "reasons", "event", "text"),
    [
        ("image pull fails", ["ErrImagePull", "ImagePullBackOff"], "Failed", "not found"),
        ("image pull limited", ["ErrImagePull", "ImagePullBackOff"], "Failed", "429"),
        ("container config missing", ["CreateContainerConfigError"], "Failed", "secret"),
        ("mount fails", ["ContainerCreating"], "FailedMount", ""),
    ],
)
def test_an_obstacle_shows_and_is_overcome_or_repaired(point, reasons, event, text):
    """Among twenty worlds there are both, and in each it is told as a kubelet tells it."""
    endless = 0
    for seed in range(20):
        world = World(seed)
        world.make_pool()
        world.until(world.whole)
        world.scripted[point] = [True]
        world.make_pod()
        seen = []
        for _ in range(120):
            world.run(1)
            if world.phase() == "Running":
                break
            if world.waits() and (not seen or seen[-1] != world.waits()):
                seen.append(world.waits())
                statuses = world.pod()["status"]["containerStatuses"]
                if world.waits() != "ContainerCreating":
                    assert text in statuses[0]["state"]["waiting"]["message"]
        if world.phase() != "Running":
            endless += 1
            assert seen[-1] == reasons[-1]
            world.cloud.heal()
            world.until(lambda: world.phase() == "Running", 60)  # noqa: B023 - called within the iteration
        assert reasons[0] in seen
        assert event in world.reasons("a")
    assert 0 < endless < 20


def test_a_pod_deleted_while_it_struggles_goes(pooled):
    """And never starts."""
    pooled.scripted["image pull fails"] = [True]
    pooled.make_pod()
    pooled.until(lambda: pooled.waits() in ("ErrImagePull", "ImagePullBackOff"))
    pooled.delete_pod()
    pooled.until(lambda: pooled.pod() is None, 30)
    pooled.cloud.heal()
    pooled.run(600)
    assert pooled.starts == {}


def test_a_pod_bound_to_a_node_that_is_cut_off_starts_when_it_is_back(world):
    """Its kubelet has not heard of it before."""
    world = World(settings=FAITHFUL)
    world.make_pool()
    world.until(world.whole, 20_000)
    name = world.nodes()[0]["metadata"]["name"]
    world.cloud.lose_node_for(name, 30 * SECOND)
    world.make_pod()
    world.run(29)
    assert world.pod()["spec"]["nodeName"] == name
    assert "containerStatuses" not in world.pod()["status"]
    world.until(lambda: world.phase() == "Running")


def test_a_node_takes_no_more_than_it_has(pooled):
    """Also of pods that name their node themselves."""
    name = pooled.nodes()[0]["metadata"]["name"]
    pooled.make_pod("a", cpu="150", nodeName=name)
    pooled.make_pod("b", cpu="150", nodeName=name)
    assert pooled.phase("b") == "Failed"
    assert pooled.pod("b")["status"]["reason"] == "OutOfcpu"
    pooled.until(lambda: pooled.phase("a") == "Running")


def test_a_pod_may_fail_to_start(pooled):
    """Of those that fail, some never ran and some ran out of memory; with no restart both are failed."""
    outcomes = []
    for number in range(12):
        pooled.scripted["pod fails"] = [True]
        uid = pooled.make_pod(f"x{number}")["metadata"]["uid"]
        pooled.until(lambda: pooled.phase(f"x{number}") == "Failed")  # noqa: B023 - called within the iteration
        code, reason = pooled.ended(f"x{number}")
        outcomes.append(reason)
        assert (code, uid in pooled.starts) == ((137, True) if reason == "OOMKilled" else (128, False))
    assert {*outcomes} == {"OOMKilled", "StartError"}
    assert not pooled.alive
