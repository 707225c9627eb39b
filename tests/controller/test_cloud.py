"""Each effect of the cloud is the drivers' call of that name; watches pass everything on."""

from types import SimpleNamespace

import anyio
import pytest
from controller_world import Drivers

from iriscw.cloud import effects
from iriscw.cloud.drivers.fake import FakeCloud
from iriscw.cloud.model import LABEL_CLUSTER, LABEL_INCARNATION, LABEL_SLICE, Capacity, NodePoolSpec, PodSpec, Relisted
from iriscw.controller.cloud import CloudBinding
from iriscw.runtime.vocabulary import MILLISECOND, SECOND

EACH = Capacity(1000, 1 << 30)


class Port:
    """A session's port that keeps what it was sent."""

    def __init__(self) -> None:
        self.items: list[object] = []

    async def send(self, item: object) -> None:
        self.items.append(item)


def pool_spec(name: str) -> NodePoolSpec:
    """A pool of one node."""
    return NodePoolSpec(name=name, instance_type="x", labels={LABEL_SLICE: name}, target_nodes=1, per_node=EACH)


def test_every_effect_is_bound() -> None:
    """No effect of the cloud is left without a function."""
    binding = CloudBinding(Drivers(FakeCloud(budget=EACH)))
    bound = {*binding.effects(), *binding.sessions()}
    messages = {
        each for each in vars(effects).values() if isinstance(each, type) and each.__module__ == effects.__name__
    }
    assert bound == messages


async def test_effects_and_watches() -> None:
    """Pools and pods come and go by effects, and a watch begins with what there is."""
    cloud = FakeCloud(budget=EACH, cluster="test")
    binding = CloudBinding(Drivers(cloud))
    run = binding.effects()
    pool = await run[effects.CreateNodePool](effects.CreateNodePool(pool_spec("p")))
    spec = PodSpec(name="p-0-i", pool="p", labels={LABEL_INCARNATION: "i"}, request=EACH)
    pod = await run[effects.CreatePod](effects.CreatePod(spec))
    assert [each.name for each in await run[effects.ListNodePools](effects.ListNodePools({}))] == ["p"]
    assert [each.name for each in await run[effects.ListPods](effects.ListPods({LABEL_CLUSTER: "test"}))] == ["p-0-i"]
    for kind, name in ((effects.WatchNodePools, "p"), (effects.WatchPods, "p-0-i")):
        port = Port()
        with anyio.move_on_after(0.05):
            await binding.sessions()[kind](kind({}), port)
        assert isinstance(port.items[0], Relisted)
        assert [each.name for each in port.items[0].objects] == [name]
    await run[effects.DeletePod](effects.DeletePod(pod.name, pod.uid))
    await run[effects.DeleteNodePool](effects.DeleteNodePool(pool.name, pool.uid))
    assert cloud.calls["pods.delete"] == cloud.calls["pools.delete"] == 1


class NotedPods:
    """A driver of pods that keeps what it was asked to delete."""

    def __init__(self) -> None:
        self.deleted: list[tuple[str, str, float]] = []

    async def delete(self, name: str, uid: str, grace_s: float) -> None:
        self.deleted.append((name, uid, grace_s))


@pytest.mark.parametrize(("grace_ns", "grace_s"), [(0, 0), (1500 * MILLISECOND, 1.5), (45 * SECOND, 45)])
async def test_a_pod_gets_its_grace(grace_ns: int, grace_s: float) -> None:
    """Neither more nor less: effects count in ns, drivers in seconds."""
    pods = NotedPods()
    binding = CloudBinding(SimpleNamespace(pods=pods))
    await binding.effects()[effects.DeletePod](effects.DeletePod("p", "u", grace_ns))
    assert pods.deleted == [("p", "u", grace_s)]
