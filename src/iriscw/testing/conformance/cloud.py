"""What every NodePoolDriver and PodDriver must do.

Subclass :class:`CloudConformance` in a test module and give a ``cloud`` fixture: a :class:`CloudUnderTest`
whose pools get ready nodes and whose pods start by themselves within ``patience_s``. Each test gets an empty
cloud.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import TypeVar

import anyio
import attrs
import pytest

from iriscw.cloud.model import (
    LABEL_CLUSTER,
    LABEL_INCARNATION,
    LABEL_MANAGED,
    LABEL_ROLE,
    LABEL_SLICE,
    ROLE_CONTROLLER,
    Capacity,
    Conflict,
    Gone,
    InvalidSpec,
    NodePool,
    NodePoolSpec,
    Pod,
    PodPhase,
    PodSpec,
    Relisted,
    Removed,
    Upserted,
    WatchEvent,
)
from iriscw.cloud.ports import NodePoolDriver, PodDriver

_T = TypeVar("_T", NodePool, Pod)

BAD_NAMES = ("", "A", "a_b", "../x", "a/b", "-a", "a" * 64, "a.b")


@attrs.frozen
class CloudUnderTest:
    """The drivers of one cloud, with what a test must know of it."""

    node_pools: NodePoolDriver
    pods: PodDriver
    cluster: str
    per_node: Capacity
    """A node that the cloud has room for at least three times."""
    too_much: Capacity
    """A node that the cloud will never have."""
    instance_type: str = "local"
    patience_s: float = 20.0

    def pool(self, name: str = "slice-1", *, nodes: int = 1, **labels: str) -> NodePoolSpec:
        """Return the specification of a pool of ours."""
        ours = {LABEL_MANAGED: "true", LABEL_CLUSTER: self.cluster, LABEL_SLICE: name}
        return NodePoolSpec(name, self.instance_type, nodes, {**ours, **_label_names(labels)}, per_node=self.per_node)

    def pod(self, name: str = "slice-1-0", *, pool: str = "slice-1", incarnation: str = "1") -> PodSpec:
        """Return the specification of a pod of ours that takes a whole node."""
        labels = {
            LABEL_MANAGED: "true",
            LABEL_CLUSTER: self.cluster,
            LABEL_SLICE: pool,
            LABEL_INCARNATION: incarnation,
        }
        environment = {"IRIS_WORKER_ID": name, "IRIS_INCARNATION": incarnation}  # as the fleet's pods have it
        return PodSpec(name, pool, labels, self.per_node, environment=environment)

    async def until(self, watch: AsyncIterator[WatchEvent], condition: Callable[[WatchEvent], bool]) -> WatchEvent:
        """Take events until one fits.

        Raises:
            TimeoutError: none did within ``patience_s``.
        """
        with anyio.fail_after(self.patience_s):
            async for event in watch:
                if condition(event):
                    return event
        raise AssertionError("a watch never ends by itself")

    async def ready_pool(self, spec: NodePoolSpec) -> NodePool:
        """Create a pool and wait until all its nodes are ready."""
        await self.node_pools.create(spec)
        return await _until_object(
            self, self.node_pools.watch({}), NodePool, spec.name, lambda p: p.ready_nodes == p.target_nodes
        )

    async def running_pod(self, spec: PodSpec) -> Pod:
        """Create a pod and wait until it runs."""
        await self.pods.create(spec)
        return await _until_object(self, self.pods.watch({}), Pod, spec.name, lambda pod: pod.phase is PodPhase.RUNNING)


@asynccontextmanager
async def _closing(watch: AsyncIterator[WatchEvent]) -> AsyncIterator[AsyncIterator[WatchEvent]]:
    """End a watch with the block: they are asynchronous generators, whatever the port promises."""
    try:
        yield watch
    finally:
        close = getattr(watch, "aclose", None)
        if close is not None:
            await close()


def _label_names(labels: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in labels.items()}


async def _until_object(
    cloud: CloudUnderTest,
    watch: AsyncIterator[WatchEvent],
    kind: type[_T],
    name: str,
    condition: Callable[[_T], bool],
) -> _T:
    found: list[_T] = []

    def fits(event: WatchEvent) -> bool:
        objects = event.objects if isinstance(event, Relisted) else (event.object,)
        found.extend(e for e in objects if isinstance(e, kind) and e.name == name and condition(e))
        return bool(found) and not isinstance(event, Removed)

    async with _closing(watch):
        await cloud.until(watch, fits)
    return found[-1]


def _removed(name: str) -> Callable[[WatchEvent], bool]:
    return lambda event: isinstance(event, Removed) and event.object.name == name


class CloudConformance:
    """The contracts of both drivers, as tests."""

    async def test_a_pool_gets_its_nodes(self, cloud: CloudUnderTest) -> None:
        """A created pool shows its labels and, in time, as many ready nodes as were asked for."""
        spec = cloud.pool(nodes=2, iris_scale_group="cpu")
        acknowledged = await cloud.node_pools.create(spec)
        assert acknowledged.uid
        assert acknowledged.resource_version
        assert acknowledged.target_nodes == 2
        pool = await cloud.ready_pool(spec)
        assert pool.uid == acknowledged.uid
        assert pool.resource_version != acknowledged.resource_version
        assert dict(pool.labels) == dict(spec.labels)
        assert len({node.uid for node in pool.nodes}) == len({node.name for node in pool.nodes}) == 2
        assert not pool.deleting

    async def test_creating_twice_is_creating_once(self, cloud: CloudUnderTest) -> None:
        """The same slice gets the pool it has; another slice is told that the name is taken."""
        first = await cloud.node_pools.create(cloud.pool())
        again = await cloud.node_pools.create(cloud.pool())
        assert again.uid == first.uid
        other = attrs.evolve(cloud.pool(), labels={**cloud.pool().labels, LABEL_SLICE: "other"})
        with pytest.raises(Conflict):
            await cloud.node_pools.create(other)
        assert len(await cloud.node_pools.list({})) == 1

    @pytest.mark.parametrize("name", BAD_NAMES)
    async def test_names_that_are_no_labels(self, cloud: CloudUnderTest, name: str) -> None:
        """Pools and pods have RFC 1123 labels as names; nothing else is accepted."""
        with pytest.raises(InvalidSpec):
            await cloud.node_pools.create(attrs.evolve(cloud.pool(), name=name))
        await cloud.node_pools.create(cloud.pool())
        with pytest.raises(InvalidSpec):
            await cloud.pods.create(attrs.evolve(cloud.pod(), name=name))

    async def test_a_pool_without_nodes_is_refused(self, cloud: CloudUnderTest) -> None:
        """A pool has at least one node."""
        with pytest.raises(InvalidSpec):
            await cloud.node_pools.create(cloud.pool(nodes=0))

    async def test_lists_are_ordered_and_filtered(self, cloud: CloudUnderTest) -> None:
        """All given labels must fit; the order is that of the names."""
        for name, group in [("b", "x"), ("a", "x"), ("c", "y")]:
            await cloud.node_pools.create(cloud.pool(name, iris_scale_group=group))
        assert [pool.name for pool in await cloud.node_pools.list({})] == ["a", "b", "c"]
        assert [pool.name for pool in await cloud.node_pools.list({"iris-scale-group": "x"})] == ["a", "b"]
        assert await cloud.node_pools.list({"iris-scale-group": "x", LABEL_SLICE: "c"}) == ()

    async def test_exceeded_quota_is_told_by_a_condition(self, cloud: CloudUnderTest) -> None:
        """A pool that the cloud has no room for is accepted, waits without nodes, and says why; it can go."""
        spec = attrs.evolve(cloud.pool(), per_node=cloud.too_much)
        await cloud.node_pools.create(spec)
        pool = await _until_object(
            cloud, cloud.node_pools.watch({}), NodePool, spec.name, lambda p: p.condition("Quota") is not None
        )
        quota = pool.condition("Quota")
        assert quota is not None
        assert (quota.status, quota.reason) == ("False", "Over")
        assert quota.message
        assert (pool.current_nodes, pool.nodes) == (0, ())
        await cloud.node_pools.delete(pool.name, pool.uid)
        async with _closing(cloud.node_pools.watch({})) as watch:
            await cloud.until(watch, lambda event: event == Relisted(()) or isinstance(event, Removed))

    async def test_deletion_names_one_incarnation(self, cloud: CloudUnderTest) -> None:
        """A uid that is not the present one deletes nothing; the right one does, and repeating is fine."""
        pool = await cloud.ready_pool(cloud.pool())
        with pytest.raises(Gone):
            await cloud.node_pools.delete(pool.name, "another uid")
        with pytest.raises(Gone):
            await cloud.node_pools.delete("nothing", pool.uid)
        async with _closing(cloud.node_pools.watch({})) as watch:
            await cloud.until(watch, lambda event: isinstance(event, Relisted))
            await cloud.node_pools.delete(pool.name, pool.uid)
            await cloud.until(watch, _removed(pool.name))
        with pytest.raises(Gone):
            await cloud.node_pools.delete(pool.name, pool.uid)
        again = await cloud.node_pools.create(cloud.pool())
        assert again.uid != pool.uid

    async def test_what_is_not_ours_is_never_deleted(self, cloud: CloudUnderTest) -> None:
        """INV-F2: neither what carries the controller nor what belongs to another cluster."""
        for name, labels in [("head", {LABEL_ROLE: ROLE_CONTROLLER}), ("foreign", {LABEL_CLUSTER: "another"})]:
            spec = cloud.pool(name)
            pool = await cloud.node_pools.create(attrs.evolve(spec, labels={**spec.labels, **labels}))
            with pytest.raises(Conflict):
                await cloud.node_pools.delete(pool.name, pool.uid)
        assert len(await cloud.node_pools.list({})) == 2

    async def test_a_watch_begins_with_everything(self, cloud: CloudUnderTest) -> None:
        """First all that there is with these labels, then changes in order, each of which shows something new.

        A pool is shown with its nodes, which have versions of their own: so a change is a new version of the pool, or
        other nodes under the same one. And what was ready a moment ago may have been written to since.
        """
        before = await cloud.ready_pool(cloud.pool("a", iris_scale_group="x"))
        await cloud.node_pools.create(cloud.pool("b", iris_scale_group="y"))
        async with _closing(cloud.node_pools.watch({"iris-scale-group": "x"})) as watch:
            first = await anext(watch)
            assert isinstance(first, Relisted)
            assert [(each.name, each.uid) for each in first.objects] == [(before.name, before.uid)]
            await cloud.node_pools.delete(before.name, before.uid)
            seen: list[WatchEvent] = []

            def gone(event: WatchEvent) -> bool:
                seen.append(event)
                return _removed("a")(event)

            await cloud.until(watch, gone)
        changes = [event for event in seen[:-1] if isinstance(event, Upserted)]
        assert len(changes) == len(seen) - 1
        pools = [change.object for change in changes if isinstance(change.object, NodePool)]
        deleting = [pool.deleting for pool in pools]
        assert deleting == sorted(deleting), "what is being deleted stays so"
        shown = [(pool.resource_version, pool.nodes) for pool in pools]
        assert all(one != next_one for one, next_one in pairwise(shown))

    async def test_a_pod_runs_on_a_node_of_its_pool(self, cloud: CloudUnderTest) -> None:
        """It waits for a ready node, then runs, on a node of the pool, with an address."""
        await cloud.node_pools.create(cloud.pool())
        created = await cloud.pods.create(cloud.pod())
        assert created.phase is PodPhase.PENDING
        pod = await cloud.running_pod(cloud.pod())
        assert pod.uid == created.uid
        assert pod.address
        (pool,) = await cloud.node_pools.list({})
        assert pod.node in {node.name for node in pool.nodes}
        assert dict(pod.labels) == dict(cloud.pod().labels)

    async def test_a_pod_needs_its_pool(self, cloud: CloudUnderTest) -> None:
        """A pool that is not there is Gone, not waited for."""
        with pytest.raises(Gone):
            await cloud.pods.create(cloud.pod(pool="nothing"))

    async def test_a_full_node_takes_no_second_pod(self, cloud: CloudUnderTest) -> None:
        """A pod without room waits and says so; it starts when the first is gone."""
        await cloud.node_pools.create(cloud.pool())
        first = await cloud.running_pod(cloud.pod("first"))
        await cloud.pods.create(cloud.pod("second"))
        waiting = await _until_object(cloud, cloud.pods.watch({}), Pod, "second", lambda pod: bool(pod.reason))
        assert waiting.phase is PodPhase.PENDING
        await cloud.pods.delete(first.name, first.uid, grace_s=0)
        await _until_object(cloud, cloud.pods.watch({}), Pod, "second", lambda pod: pod.phase is PodPhase.RUNNING)

    async def test_a_pods_name_and_incarnation(self, cloud: CloudUnderTest) -> None:
        """The same incarnation is given back; another one is told that the name is taken."""
        await cloud.node_pools.create(cloud.pool())
        first = await cloud.pods.create(cloud.pod())
        assert (await cloud.pods.create(cloud.pod())).uid == first.uid
        with pytest.raises(Conflict):
            await cloud.pods.create(cloud.pod(incarnation="2"))

    async def test_deleting_a_pod_frees_its_name(self, cloud: CloudUnderTest) -> None:
        """After Removed the next incarnation may come; a wrong uid deletes nothing."""
        await cloud.node_pools.create(cloud.pool())
        pod = await cloud.running_pod(cloud.pod())
        with pytest.raises(Gone):
            await cloud.pods.delete(pod.name, "another uid")
        async with _closing(cloud.pods.watch({})) as watch:
            await cloud.until(watch, lambda event: isinstance(event, Relisted))
            await cloud.pods.delete(pod.name, pod.uid, grace_s=0)
            await cloud.until(watch, _removed(pod.name))
        with pytest.raises(Gone):
            await cloud.pods.delete(pod.name, pod.uid)
        successor = await cloud.running_pod(cloud.pod(incarnation="2"))
        assert successor.uid != pod.uid

    async def test_a_pools_pods_go_with_it(self, cloud: CloudUnderTest) -> None:
        """When a pool is gone, so are its pods, or soon: in Kubernetes a garbage collector removes them behind it."""
        pool = await cloud.ready_pool(cloud.pool())
        await cloud.running_pod(cloud.pod())
        async with _closing(cloud.node_pools.watch({})) as watch:
            await cloud.until(watch, lambda event: isinstance(event, Relisted))
            await cloud.node_pools.delete(pool.name, pool.uid)
            await cloud.until(watch, _removed(pool.name))
        async with _closing(cloud.pods.watch({})) as watch:
            await cloud.until(watch, lambda event: event == Relisted(()) or isinstance(event, Removed))
        assert await cloud.pods.list({}) == ()
