"""The cloud in memory keeps the contract, counts, fails on request, and can be led by hand."""

import pytest

from iriscw.cloud.drivers.fake import FakeCloud
from iriscw.cloud.model import Capacity, NodePoolSpec, PodPhase, PodSpec, Unavailable
from iriscw.cloud.ports import NodePoolDriver, PodDriver
from iriscw.testing.conformance.cloud import CloudConformance, CloudUnderTest

NODE = Capacity(cpu_milli=1000, memory_bytes=1 << 30)


class TestFakeCloud(CloudConformance):
    """The public suite."""

    @pytest.fixture
    def cloud(self) -> CloudUnderTest:
        fake = FakeCloud(budget=Capacity(4000, 4 << 30))
        return CloudUnderTest(fake.node_pools, fake.pod_driver, "fake", NODE, Capacity(9000, 1))


def test_it_has_the_shape_of_the_ports() -> None:
    """The drivers are what their ports say."""
    fake = FakeCloud(budget=NODE)
    assert isinstance(fake.node_pools, NodePoolDriver)
    assert isinstance(fake.pod_driver, PodDriver)


async def test_errors_strike_before_or_after_the_effect() -> None:
    """A call whose answer is lost may have created the pool."""
    fake = FakeCloud(budget=NODE)
    spec = NodePoolSpec("a", "x", 1, {})
    fake.fail_next("pools.create", Unavailable("before"))
    fake.fail_next("pools.create", Unavailable("after"), after_effect=True)
    for present in ([], ["a"]):
        with pytest.raises(Unavailable):
            await fake.node_pools.create(spec)
        assert sorted(fake.pools) == present
    assert fake.calls == {"pools.create": 2}


async def test_a_test_leads_the_world() -> None:
    """Without ``automatic`` nothing happens by itself: boot, start, end, loss and removal are steps."""
    fake = FakeCloud(budget=NODE, automatic=False)
    await fake.node_pools.create(NodePoolSpec("a", "x", 1, {}, per_node=NODE))
    await fake.pod_driver.create(PodSpec("p", "a", {}, NODE))
    assert fake.pools["a"].nodes == ()
    fake.boot("a")
    assert fake.pools["a"].ready_nodes == 1
    assert fake.pods["p"].phase is PodPhase.PENDING
    fake.start("p")
    assert fake.pods["p"].phase is PodPhase.RUNNING
    fake.end("p", 3, "Error")
    assert (fake.pods["p"].phase, fake.pods["p"].exit_code) == (PodPhase.FAILED, 3)
    await fake.node_pools.delete("a", fake.pools["a"].uid)
    assert fake.pools["a"].deleting
    fake.lose_node("a", fake.pools["a"].nodes[0].name)
    assert fake.pods == {}
    fake.remove_pool("a")
    assert fake.pools == {}


async def test_a_pod_costs_the_same_in_a_large_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times the pools and pods cost four times the looks at what is free, and no more."""
    looks = 0

    def counted(method):
        def look(self, other):
            nonlocal looks
            looks += 1
            return method(self, other)

        return look

    for name in ("minus", "times", "fits"):
        monkeypatch.setattr(Capacity, name, counted(getattr(Capacity, name)))
    costs = []
    for pools in (10, 40):
        looks = 0
        fake = FakeCloud(budget=Capacity(1 << 40, 1 << 60))
        for number in range(pools):
            await fake.node_pools.create(NodePoolSpec(f"pool-{number}", "x", 4, {}, per_node=NODE))
            for place in range(4):
                await fake.pod_driver.create(PodSpec(f"pod-{number}-{place}", f"pool-{number}", {}, NODE))
        assert all(pod.phase is PodPhase.RUNNING for pod in fake.pods.values())
        costs.append(looks)
    assert costs[1] == 4 * costs[0]


async def test_room_that_is_given_back() -> None:
    """A pool that waits for the budget boots when another one is removed, a pod that waits for room when one ends."""
    fake = FakeCloud(budget=Capacity(2000, 2 << 30))
    for name, size in (("first", 2), ("second", 1), ("third", 1)):
        await fake.node_pools.create(NodePoolSpec(name, "x", size, {}, per_node=NODE))
    assert [pool.ready_nodes for pool in fake.pools.values()] == [2, 0, 0]
    await fake.node_pools.delete("first", fake.pools["first"].uid)
    assert [pool.ready_nodes for pool in fake.pools.values()] == [1, 1]
    await fake.node_pools.delete("second", fake.pools["second"].uid)
    await fake.node_pools.create(NodePoolSpec("fourth", "x", 1, {}, per_node=NODE))
    assert [pool.ready_nodes for pool in fake.pools.values()] == [1, 1]
    for name in ("a", "b"):
        await fake.pod_driver.create(PodSpec(name, "fourth", {}, NODE))
    assert [pod.phase for pod in fake.pods.values()] == [PodPhase.RUNNING, PodPhase.PENDING]
    fake.end("a", 0)
    assert [pod.phase for pod in fake.pods.values()] == [PodPhase.SUCCEEDED, PodPhase.RUNNING]
