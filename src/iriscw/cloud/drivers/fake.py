"""A cloud in memory: counts calls, takes scripted errors, and does by itself only what it is told to.

With ``automatic`` (the default) pools get ready nodes and pods start as soon as something waits for them, so
that it keeps the public conformance suite; without, a test leads the world: ``boot``, ``start``, ``end``,
``lose_node``.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing

import anyio.lowlevel
import attrs

from iriscw.cloud.drivers.watching import Watchers, carries
from iriscw.cloud.labels import check_name, check_ours, our_labels
from iriscw.cloud.model import (
    LABEL_INCARNATION,
    LABEL_SLICE,
    Capacity,
    Condition,
    Conflict,
    Gone,
    InvalidSpec,
    Node,
    NodePool,
    NodePoolSpec,
    Pod,
    PodPhase,
    PodSpec,
    Removed,
    Upserted,
    WatchEvent,
)


class FakeCloud:
    """The world behind :class:`FakeNodePoolDriver` and :class:`FakePodDriver`."""

    def __init__(self, *, budget: Capacity, cluster: str = "fake", automatic: bool = True) -> None:
        """Begin empty; pools beyond ``budget`` are told so by their Quota condition."""
        self.budget = budget
        self.cluster = cluster
        self.automatic = automatic
        self.calls: collections.Counter[str] = collections.Counter()
        """How often each method was called: ``pools.create``, ``pods.delete``, ..."""
        self.pools: dict[str, NodePool] = {}
        self.pods: dict[str, Pod] = {}
        self.pool_specs: dict[str, NodePoolSpec] = {}
        self.pod_specs: dict[str, PodSpec] = {}
        self.pool_watchers = Watchers(lambda: tuple(self.pools[name] for name in sorted(self.pools)))
        self.pod_watchers = Watchers(lambda: tuple(self.pods[name] for name in sorted(self.pods)))
        self.node_pools = FakeNodePoolDriver(self)
        self.pod_driver = FakePodDriver(self)
        self._numbers = itertools.count(1)
        self._free = budget
        """What no pool has been granted. A pool that comes later takes nothing from an earlier one."""
        self._refused: dict[str, None] = {}
        """Pools that the budget has no room for."""
        self._waiting: dict[str, None] = {}
        """Pods that have no node yet."""
        self._on_node: collections.defaultdict[str, dict[str, None]] = collections.defaultdict(dict)
        """Pods that take room of a node, by its name."""
        self._failures: collections.defaultdict[str, collections.deque[tuple[Exception, bool]]]
        self._failures = collections.defaultdict(collections.deque)

    def fail_next(self, call: str, error: Exception, *, after_effect: bool = False) -> None:
        """Let the next ``call`` (``pools.create``, ...) raise ``error``, before or after it took effect."""
        self._failures[call].append((error, after_effect))

    def boot(self, pool: str) -> None:
        """Let all missing nodes of the pool be ready now, whatever the budget."""
        present = self.pools[pool]
        missing = present.target_nodes - len(present.nodes)
        new = tuple(self._node(pool) for _ in range(missing))
        quota = Condition("Quota", "True", "Under", "the pool is within the budget")
        self._show_pool(
            attrs.evolve(
                present,
                nodes=present.nodes + new,
                current_nodes=present.target_nodes,
                queued_nodes=0,
                conditions=(quota,),
            )
        )
        self._place()

    def start(self, pod: str, node: str | None = None) -> None:
        """Let the pod run now, on ``node`` or on the first of its pool."""
        spec = self.pod_specs[pod]
        chosen = next(each for each in self.pools[spec.pool].nodes if node in {None, each.name})
        self._show_pod(
            attrs.evolve(self.pods[pod], phase=PodPhase.RUNNING, node=chosen.name, address=chosen.address, reason="")
        )

    def end(self, pod: str, exit_code: int, reason: str = "") -> None:
        """Let the pod's processes end."""
        phase = PodPhase.SUCCEEDED if exit_code == 0 else PodPhase.FAILED
        self._show_pod(attrs.evolve(self.pods[pod], phase=phase, exit_code=exit_code, reason=reason))
        self._place()

    def lose_node(self, pool: str, node: str) -> None:
        """Take a node away, with its pods; nothing replaces it by itself."""
        present = self.pools[pool]
        nodes = tuple(each for each in present.nodes if each.name != node)
        self._show_pool(attrs.evolve(present, nodes=nodes, current_nodes=len(nodes)))
        for pod in [each for each in self.pods.values() if each.node == node]:
            self._remove_pod(pod)

    def remove_pool(self, pool: str) -> None:
        """Finish the deletion of a pool, with its pods."""
        for name in [name for name, spec in self.pod_specs.items() if spec.pool == pool]:
            self._remove_pod(self.pods[name])
        removed = self.pools.pop(pool)
        spec = self.pool_specs.pop(pool)
        self.pool_watchers.tell(Removed(removed))
        if self._refused:
            self._grant_all()
        else:
            self._free = self._free.plus(_all_of(spec))

    def remove_pod(self, pod: str) -> None:
        """Finish the deletion of a pod."""
        self._remove_pod(self.pods[pod])
        self._place()

    # What the drivers call.

    async def enter(self, call: str) -> Exception | None:
        """Count a call and raise its scripted error, or give the one that strikes after the effect."""
        self.calls[call] += 1
        await anyio.lowlevel.checkpoint()
        if not self._failures[call]:
            return None
        error, after_effect = self._failures[call].popleft()
        if not after_effect:
            raise error
        return error

    def add_pool(self, spec: NodePoolSpec) -> NodePool:
        """Let a pool appear."""
        pool = NodePool(
            name=spec.name,
            uid=self._id("pool"),
            resource_version=self._id(""),
            labels=our_labels(self.cluster, spec.labels),
            target_nodes=spec.target_nodes,
            queued_nodes=spec.target_nodes,
        )
        self.pools[spec.name] = pool
        self.pool_specs[spec.name] = spec
        self.pool_watchers.tell(Upserted(pool))
        self._grant(spec)
        return pool

    def add_pod(self, spec: PodSpec) -> Pod:
        """Let a pod appear."""
        pod = Pod(spec.name, self._id("pod"), self._id(""), our_labels(self.cluster, spec.labels))
        self.pods[spec.name] = pod
        self.pod_specs[spec.name] = spec
        self._waiting[spec.name] = None
        self.pod_watchers.tell(Upserted(pod))
        self._place()
        return pod

    def mark_pool(self, pool: NodePool) -> None:
        """Begin the deletion of a pool."""
        self._show_pool(attrs.evolve(pool, deleting=True))
        if self.automatic:
            self.remove_pool(pool.name)

    def mark_pod(self, pod: Pod) -> None:
        """Begin the deletion of a pod."""
        self._show_pod(attrs.evolve(pod, deleting=True))
        if self.automatic:
            self.remove_pod(pod.name)

    # Inside.

    def _id(self, prefix: str) -> str:
        return f"{prefix}{next(self._numbers)}"

    def _node(self, pool: str) -> Node:
        number = next(self._numbers)
        return Node(f"{pool}-n{number}", f"node{number}", ready=True, address=f"10.0.0.{number % 256}")

    def _show_pool(self, pool: NodePool) -> None:
        changed = attrs.evolve(pool, resource_version=self._id(""))
        self.pools[pool.name] = changed
        self.pool_watchers.tell(Upserted(changed))

    def _show_pod(self, pod: Pod) -> None:
        changed = attrs.evolve(pod, resource_version=self._id(""))
        self.pods[pod.name] = changed
        self._note(changed)
        self.pod_watchers.tell(Upserted(changed))

    def _remove_pod(self, pod: Pod) -> None:
        removed = self.pods.pop(pod.name)
        del self.pod_specs[pod.name]
        self._waiting.pop(pod.name, None)
        self._on_node[removed.node].pop(pod.name, None)
        self.pod_watchers.tell(Removed(removed))

    def _note(self, pod: Pod) -> None:
        """Keep in mind whether a pod waits for a node, or takes room of one: it never changes its node."""
        if pod.phase is not PodPhase.PENDING or pod.deleting:
            self._waiting.pop(pod.name, None)
        if pod.node and not pod.phase.over:
            self._on_node[pod.node][pod.name] = None
        else:
            self._on_node[pod.node].pop(pod.name, None)

    def _grant_all(self) -> None:
        """Begin anew with the whole budget, the oldest pool first."""
        self._free = self.budget
        self._refused.clear()
        for spec in list(self.pool_specs.values()):
            self._grant(spec)

    def _grant(self, spec: NodePoolSpec) -> None:
        """Let a pool boot if the budget has room for it; tell the others."""
        pool = self.pools[spec.name]
        if self._free.times(spec.per_node) >= pool.target_nodes:
            self._free = self._free.minus(_all_of(spec))
            if self.automatic and len(pool.nodes) < pool.target_nodes and not pool.deleting:
                self.boot(spec.name)
            return
        self._refused[spec.name] = None
        if not pool.conditions:
            over = Condition("Quota", "False", "Over", "the budget has no room for the pool")
            self._show_pool(attrs.evolve(pool, conditions=(over,)))

    def _place(self) -> None:
        if not self.automatic:
            return
        for name in list(self._waiting):
            pod = self.pods[name]
            node = self._room(self.pod_specs[name])
            if node is not None:
                self.start(name, node.name)
            elif not pod.reason:
                self._show_pod(attrs.evolve(pod, reason="Unschedulable: no ready node has room"))

    def _room(self, spec: PodSpec) -> Node | None:
        per_node = self.pool_specs[spec.pool].per_node
        for node in self.pools[spec.pool].nodes:
            free = per_node
            for name in self._on_node[node.name]:
                free = free.minus(self.pod_specs[name].request)
            if free.fits(spec.request):
                return node
        return None


def _all_of(spec: NodePoolSpec) -> Capacity:
    """Return what all nodes of a pool have."""
    each, count = spec.per_node, spec.target_nodes
    return Capacity(each.cpu_milli * count, each.memory_bytes * count, each.disk_bytes * count, each.gpu_count * count)


@attrs.frozen(eq=False, repr=False)
class FakeNodePoolDriver:
    """Pools of a :class:`FakeCloud`; see :class:`~iriscw.cloud.ports.NodePoolDriver`."""

    cloud: FakeCloud

    async def create(self, spec: NodePoolSpec) -> NodePool:
        """Ask for a pool."""
        late = await self.cloud.enter("pools.create")
        check_name(spec.name)
        if spec.target_nodes <= 0:
            raise InvalidSpec(f"a pool has at least one node, not {spec.target_nodes}")
        present = self.cloud.pools.get(spec.name)
        if present is None:
            present = self.cloud.add_pool(spec)
        elif present.deleting or present.labels.get(LABEL_SLICE) != spec.labels.get(LABEL_SLICE):
            raise Conflict(f"another pool has the name {spec.name!r}, or it is being deleted")
        if late is not None:
            raise late
        return present

    async def delete(self, name: str, uid: str) -> None:
        """Ask for the deletion of a pool."""
        late = await self.cloud.enter("pools.delete")
        pool = self.cloud.pools.get(name)
        if pool is None or pool.uid != uid:
            raise Gone(f"there is no pool {name!r} with the uid {uid}")
        check_ours(self.cloud.cluster, pool.labels)
        if not pool.deleting:
            self.cloud.mark_pool(pool)
        if late is not None:
            raise late

    async def list(self, labels: Mapping[str, str]) -> tuple[NodePool, ...]:
        """Return all pools with these labels."""
        late = await self.cloud.enter("pools.list")
        if late is not None:
            raise late
        return tuple(
            self.cloud.pools[name] for name in sorted(self.cloud.pools) if carries(self.cloud.pools[name], labels)
        )

    async def watch(self, labels: Mapping[str, str]) -> AsyncIterator[WatchEvent]:
        """Yield what there is, then every change; a scripted error ends it."""
        await self.cloud.enter("pools.watch")
        async with aclosing(self.cloud.pool_watchers.watch(labels)) as watch:
            async for event in watch:
                yield event


@attrs.frozen(eq=False, repr=False)
class FakePodDriver:
    """Pods of a :class:`FakeCloud`; see :class:`~iriscw.cloud.ports.PodDriver`."""

    cloud: FakeCloud

    async def create(self, spec: PodSpec) -> Pod:
        """Ask for a pod."""
        late = await self.cloud.enter("pods.create")
        check_name(spec.name)
        pool = self.cloud.pools.get(spec.pool)
        if pool is None or pool.deleting:
            raise Gone(f"there is no pool {spec.pool!r}")
        present = self.cloud.pods.get(spec.name)
        if present is None:
            present = self.cloud.add_pod(spec)
        elif present.deleting or present.labels.get(LABEL_INCARNATION) != spec.labels.get(LABEL_INCARNATION):
            raise Conflict(f"another pod has the name {spec.name!r}, or it is being deleted")
        if late is not None:
            raise late
        return present

    async def delete(self, name: str, uid: str, grace_s: float = 30.0) -> None:
        """Ask for the deletion of a pod; the grace means nothing here."""
        late = await self.cloud.enter("pods.delete")
        pod = self.cloud.pods.get(name)
        if pod is None or pod.uid != uid:
            raise Gone(f"there is no pod {name!r} with the uid {uid}")
        check_ours(self.cloud.cluster, pod.labels)
        if not pod.deleting:
            self.cloud.mark_pod(pod)
        if late is not None:
            raise late

    async def list(self, labels: Mapping[str, str]) -> tuple[Pod, ...]:
        """Return all pods with these labels."""
        late = await self.cloud.enter("pods.list")
        if late is not None:
            raise late
        return tuple(
            self.cloud.pods[name] for name in sorted(self.cloud.pods) if carries(self.cloud.pods[name], labels)
        )

    async def watch(self, labels: Mapping[str, str]) -> AsyncIterator[WatchEvent]:
        """Yield what there is, then every change; a scripted error ends it."""
        await self.cloud.enter("pods.watch")
        async with aclosing(self.cloud.pod_watchers.watch(labels)) as watch:
            async for event in watch:
                yield event
