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
