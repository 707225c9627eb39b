"""The simulated cloud: an API that may fail in every honest way, pools of nodes, and pods on them.

Theory of operation. A request leaves the controller, lands some time later, and is answered some time after that. It
may be refused (throttled), get lost before it lands, land and lose its answer, or land long after its sender has given
it up, after a crash of the sender too. What landed is the truth: pools boot node by node, wait for machines, are
refused by a quota or by a check of their specification; nodes die; pods start, fail, or never start; deletions are
slow, or stuck until somebody repairs the cloud.

Watches show the truth in order and late. They break, lose their place and list again, and repeat themselves; an item
is never missing from the middle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from iriscw.cloud.effects import (
    CreateNodePool,
    CreatePod,
    DeleteNodePool,
    DeletePod,
    ListNodePools,
    ListPods,
    WatchNodePools,
    WatchPods,
)
from iriscw.cloud.model import (
    LABEL_CLUSTER,
    LABEL_INCARNATION,
    LABEL_ROLE,
    LABEL_SLICE,
    ROLE_CONTROLLER,
    CloudError,
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
    QuotaExceeded,
    Relisted,
    Removed,
    Throttled,
    Unavailable,
    Upserted,
)
from iriscw.runtime.vocabulary import MILLISECOND, SECOND
from iriscw.testing.simulation import SimOperation
from iriscw_sims.channel import Channel
from iriscw_sims.swarm import CLUSTER

if TYPE_CHECKING:
    from iriscw_sims.world import World

CALL_TIMEOUT = 10 * SECOND
"""After this a driver says that the API did not answer."""

LATEST_LANDING = 30 * SECOND
"""How long after that a request may still land."""

POOLS, PODS = "pools", "pods"

_MINE = {LABEL_CLUSTER: CLUSTER}


@attrs.define(eq=False)
class Watch:
    """One open watch."""

    operation: SimOperation
    kind: str
    labels: Mapping[str, str]
    channel: Channel


class SimCloud:
    """The API and what is behind it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.simulation = world.simulation
        self.rng = world.stream("cloud")
        self.pools: dict[str, NodePool] = {}
        self.pods: dict[str, Pod] = {}
        self.watches: list[Watch] = []
        self.stuck: list[tuple[str, str]] = []
        """(name, uid) of pools and pods whose deletion waits for a repair."""
        self.queued: dict[str, str] = {}
        """Pools that wait for machines, with their uids."""
        self.in_flight = 0
        """Requests that have not landed and still may."""
        self._serial = 0

    def between(self, least: int, most: int) -> int:
        """Draw a delay between two numbers of seconds, ns."""
        return self.rng.randrange(least * SECOND, most * SECOND + 1)

    def after(self, delay: int, function: Any, *args: Any) -> None:
        """Do something later."""
        self.simulation.call_after(delay, function, *args)

    # Requests

    def request(self, operation: SimOperation) -> None:
        """Take a request that left the controller."""
        effect, chance = operation.effect, self.world.chance
        self.world.fleet_checks.requested(effect)
        latency = self.rng.randrange(10 * MILLISECOND, SECOND)
        if chance("crash behind a request"):
            self.after(self.rng.randrange(latency), self.world.crash, 1 + self.rng.randrange(20))
        if chance("api throttled"):
            self.after(latency, operation.fail, Throttled(retry_after=self.rng.randrange(3) * SECOND))
            return
        unanswered = Unavailable("no answer in time")
        if chance("api lost"):
            self.after(CALL_TIMEOUT, operation.fail, unanswered)
        elif chance("api landed in silence"):
            self._fly(latency, effect)
            self.after(CALL_TIMEOUT, operation.fail, unanswered)
        elif chance("api landed late"):
            self._fly(CALL_TIMEOUT + self.rng.randrange(LATEST_LANDING), effect)
            self.after(CALL_TIMEOUT, operation.fail, unanswered)
        else:
            self._fly(latency, effect, operation)

    def _fly(self, latency: int, effect: Any, operation: SimOperation | None = None) -> None:
        self.in_flight += 1
        self.after(latency, self._landed, effect, operation)

    def _landed(self, effect: Any, operation: SimOperation | None) -> None:
        self.in_flight -= 1
        self.simulation.note("landed", type(effect).__name__, getattr(effect, "name", ""))
        back = self.rng.randrange(10 * MILLISECOND, SECOND)
        try:
            value = self._land(effect)
        except CloudError as error:
            if operation is not None:
                self.after(back, operation.fail, error)
            return
        if operation is not None:
            self.after(back, operation.complete, value)

    def _land(self, effect: Any) -> Any:
        match effect:
            case CreateNodePool(spec=spec):
                return self._create_pool(spec)
            case DeleteNodePool():
                return self._delete_pool(effect)
            case ListNodePools(labels=labels):
                return self.select(POOLS, labels)
            case CreatePod(spec=spec):
                return self._create_pod(spec)
            case DeletePod():
                return self._delete_pod(effect)
            case ListPods(labels=labels):
                return self.select(PODS, labels)
        raise AssertionError(effect)

    def table(self, kind: str) -> dict[str, Any]:
        """Give all pools, or all pods, by name."""
        return self.pools if kind == POOLS else self.pods

    def select(self, kind: str, labels: Mapping[str, str]) -> tuple[Any, ...]:
        """Give the objects with these labels, by name."""
        return tuple(thing for _, thing in sorted(self.table(kind).items()) if _has(thing, labels))

    def uid(self) -> str:
        """Give a fresh uid."""
        self._serial += 1
        return f"uid-{self._serial}"

    # Watches

    def watch(self, operation: SimOperation) -> None:
        """Open a watch: it lists, and then shows what changes."""
        effect = operation.effect
        kind = POOLS if isinstance(effect, WatchNodePools) else PODS
        assert isinstance(effect, (WatchNodePools, WatchPods))
        channel = Channel(self.simulation, self._latency, operation.send)
        watch = Watch(operation, kind, effect.labels, channel)
        operation.on_room = channel.pump
        operation.on_cancel = lambda: self._forget(watch)
        self.watches.append(watch)
        channel.put(Relisted(self.select(kind, effect.labels)))

    def _latency(self) -> int:
        return self.rng.randrange(MILLISECOND, 500 * MILLISECOND)

    def _forget(self, watch: Watch) -> None:
        watch.channel.close()
        if watch in self.watches:
            self.watches.remove(watch)

    def drop_watches(self) -> None:
        """The controller is down: nobody watches."""
        for watch in self.watches:
            watch.channel.close()
        self.watches.clear()

    def _show(self, kind: str, thing: Any, *, gone: bool = False) -> None:
        chance = self.world.chance
        for watch in list(self.watches):
            if watch.kind != kind or not _has(thing, watch.labels):
                continue
            if chance("watch breaks"):
                self._forget(watch)
                watch.operation.fail(Unavailable("the watch broke"))
                continue
            if chance("watch loses its place"):
                watch.channel.drop()
                watch.channel.put(Relisted(self.select(kind, watch.labels)))
                continue
            for _ in range(2 if chance("watch repeats") else 1):
                watch.channel.put(Removed(thing) if gone else Upserted(thing))

    def _changed(self, kind: str, name: str, **changes: Any) -> None:
        table = self.table(kind)
        before = table[name]
        version = str(int(before.resource_version) + 1)
        table[name] = attrs.evolve(before, resource_version=version, **changes)
        self._show(kind, table[name])

    def _is(self, kind: str, name: str, uid: str) -> bool:
        thing = self.table(kind).get(name)
        return thing is not None and thing.uid == uid

    # Pools

    def _create_pool(self, spec: NodePoolSpec) -> NodePool:
        chance = self.world.chance
        known = self.pools.get(spec.name)
        if known is not None:
            if known.deleting or known.labels.get(LABEL_SLICE) != spec.labels.get(LABEL_SLICE):
                raise Conflict(f"there is another pool called {spec.name}")
            return known
        if chance("pool quota refused"):
            self.world.fleet_checks.refused(spec.name, "quota")
            raise QuotaExceeded("the quota is used up")
        conditions: tuple[Condition, ...] = ()
        if chance("pool quota exceeded"):
            conditions = (Condition("Quota", "False", "Over", "quota exceeded"),)
            self.world.fleet_checks.refused(spec.name, "quota")
        elif chance("pool invalid"):
            if self.rng.random() < 0.5:
                self.world.fleet_checks.refused(spec.name, "invalid")
                raise InvalidSpec("no such instance type")
            conditions = (Condition("Validated", "False", "InvalidInstanceType", "no such instance type"),)
            self.world.fleet_checks.refused(spec.name, "invalid")
        elif chance("pool without capacity"):
            conditions = (Condition("Capacity", "False", "QueuedAwaitingCapacity"),)
            self.world.fleet_checks.refused(spec.name, "capacity")
        size = spec.target_nodes
        pool = NodePool(spec.name, self.uid(), "1", dict(spec.labels), size, queued_nodes=size, conditions=conditions)
        self.pools[spec.name] = pool
        self._show(POOLS, pool)
        if not conditions:
            self._boot(pool)
        elif conditions[0].type == "Capacity":
            self.queued[pool.name] = pool.uid
            self.after(self.between(10, 240), self.machines_come, pool.name, pool.uid)
        return pool

    def machines_come(self, name: str, uid: str) -> None:
        """A pool that waited for machines gets them."""
        if self.queued.get(name) == uid:
            del self.queued[name]
            if self._is(POOLS, name, uid) and not self.pools[name].deleting:
                self._changed(POOLS, name, conditions=())
                self._boot(self.pools[name])

    def _boot(self, pool: NodePool) -> None:
        for index in range(pool.target_nodes):
            if not self.world.chance("pool never boots"):
                slow = self.world.chance("pool boots slowly")
                self.after(
                    self.between(30, 75) if slow else self.between(3, 20), self._booted, pool.name, pool.uid, index
                )

    def _booted(self, name: str, uid: str, index: int) -> None:
        if not self._is(POOLS, name, uid) or self.pools[name].deleting:
            return
        pool = self.pools[name]
        node = Node(f"{name}-n{index}-{self.uid()}", self.uid(), ready=True)
        nodes = (*pool.nodes, node)
        left = max(0, pool.target_nodes - len(nodes))
        self._changed(POOLS, name, nodes=nodes, current_nodes=len(nodes), queued_nodes=left)
        self.world.fleet_checks.booted(self.pools[name])
        if self.world.chance("node dies early"):
            self.after(self.between(1, 60), self.kill_node, name, node.name)

    def kill_node(self, name: str, node_name: str) -> None:
        """A machine dies with all that runs on it; another one comes after a while."""
        pool = self.pools.get(name)
        if pool is None or all(node.name != node_name for node in pool.nodes):
            return
        nodes = tuple(node for node in pool.nodes if node.name != node_name)
        self._changed(POOLS, name, nodes=nodes, current_nodes=len(nodes), in_progress_nodes=1)
        for pod in [pod for pod in self.pods.values() if pod.node == node_name]:
            self.world.workers.kill(pod.name, "its node died")
            self.after(self.between(2, 30), self._remove_pod, pod.name, pod.uid)
        self.after(self.between(5, 40), self._booted, name, pool.uid, pool.target_nodes)

    def _delete_pool(self, effect: DeleteNodePool) -> None:
        name = effect.name
        self._check_deletable(POOLS, name, effect.uid)
        self.delete_pool_from_outside(name)

    def delete_pool_from_outside(self, name: str) -> None:
        """Begin the deletion of a pool, whoever asked for it."""
        if self.pools[name].deleting:
            return
        self._changed(POOLS, name, deleting=True)
        self._end_later(name, self.pools[name].uid, self._remove_pool)

    def _end_later(self, name: str, uid: str, remove: Any) -> None:
        if self.world.chance("deletion stuck"):
            self.stuck.append((name, uid))
            return
        slow = self.world.chance("deletion slow")
        self.after(self.between(20, 60) if slow else self.between(1, 5), remove, name, uid)

    def _check_deletable(self, kind: str, name: str, uid: str) -> None:
        if not self._is(kind, name, uid):
            raise Gone(f"no {name} of uid {uid}")
        labels = self.table(kind)[name].labels
        if labels.get(LABEL_CLUSTER) != CLUSTER or labels.get(LABEL_ROLE) == ROLE_CONTROLLER:
            raise Conflict(f"{name} is not ours to delete")

    def _remove_pool(self, name: str, uid: str) -> None:
        if not self._is(POOLS, name, uid):
            return
        pool = self.pools.pop(name)
        self._show(POOLS, pool, gone=True)
        for pod in [pod for pod in self.pods.values() if pod.labels.get(LABEL_SLICE) == name]:
            self.world.workers.kill(pod.name, "its pool is gone")
            self.after(self.between(0, 3), self._remove_pod, pod.name, pod.uid)

    # Pods

    def _create_pod(self, spec: PodSpec) -> Pod:
        known = self.pods.get(spec.name)
        if known is not None:
            if known.labels.get(LABEL_INCARNATION) != spec.labels.get(LABEL_INCARNATION):
                raise Conflict(f"there is another pod called {spec.name}")
            return known
        if spec.pool not in self.pools:
            raise Gone(f"there is no pool {spec.pool}")
        pod = self.pods[spec.name] = Pod(spec.name, self.uid(), "1", dict(spec.labels))
        self._show(PODS, pod)
        if not self.world.chance("pod never starts"):
            self.after(self.between(1, 5), self._start_pod, pod.name, pod.uid, spec)
        return pod

    def _start_pod(self, name: str, uid: str, spec: PodSpec) -> None:
        if not self._is(PODS, name, uid) or self.pods[name].deleting or self.pods[name].phase.over:
            return
        taken = [pod.node for pod in self.pods.values() if pod.node and not pod.phase.over]
        pool = self.pools.get(spec.pool)
        free = [node for node in (pool.nodes if pool is not None else ()) if node.name not in taken]
        if not free:
            self.after(self.between(1, 5), self._start_pod, name, uid, spec)
        elif self.world.chance("pod fails"):
            self._changed(PODS, name, phase=PodPhase.FAILED, reason="OOMKilled", node=free[0].name)
        else:
            self._changed(PODS, name, phase=PodPhase.RUNNING, node=free[0].name)
            self.world.workers.start(self.pods[name], spec.request)

    def end_pod(self, name: str, phase: PodPhase, reason: str) -> None:
        """The worker's process has ended, and with it the pod's."""
        pod = self.pods.get(name)
        if pod is not None and not pod.phase.over:
            self._changed(PODS, name, phase=phase, reason=reason)

    def _delete_pod(self, effect: DeletePod) -> None:
        self._check_deletable(PODS, effect.name, effect.uid)
        self.delete_pod_from_outside(effect.name)

    def delete_pod_from_outside(self, name: str) -> None:
        """Begin the deletion of a pod, whoever asked for it."""
        if not self.pods[name].deleting:
            self._changed(PODS, name, deleting=True)
            self._end_later(name, self.pods[name].uid, self._remove_pod)

    def _remove_pod(self, name: str, uid: str) -> None:
        if self._is(PODS, name, uid):
            # Gone means gone: no process of it runs any more.
            self.world.workers.kill(name, "its pod is gone")
            self._show(PODS, self.pods.pop(name), gone=True)

    # Losses behind the controller's back

    def mine(self, kind: str) -> list[Any]:
        """Give the pools or pods of the simulated cluster, the controller's own apart."""
        every = self.table(kind).values()
        return [each for each in every if _has(each, _MINE) and each.labels.get(LABEL_ROLE) != ROLE_CONTROLLER]

    def lose_everything(self) -> None:
        """Have all pools of the cluster gone, with all that ran there and without a trace."""
        for pool in self.mine(POOLS):
            del self.pools[pool.name]
            self._show(POOLS, pool, gone=True)
        self.lose_pods()

    def lose_pods(self) -> None:
        """Have all pods of the cluster gone at once; their pools stay."""
        for pod in self.mine(PODS):
            self._remove_pod(pod.name, pod.uid)

    def lose_machines(self) -> None:
        """Have all machines die; others come after a while. What ran there is shown for a while as if it did still."""
        for pool in self.mine(POOLS):
            for node in pool.nodes:
                self.kill_node(pool.name, node.name)

    # The end of faults

    def heal(self) -> None:
        """Repair what waits for a repair; machines come."""
        stuck, self.stuck = self.stuck, []
        for name, uid in stuck:
            if self._is(POOLS, name, uid):
                self._remove_pool(name, uid)
            else:
                self._remove_pod(name, uid)
        for name, uid in list(self.queued.items()):
            self.machines_come(name, uid)


def _has(thing: Any, labels: Mapping[str, str]) -> bool:
    return all(thing.labels.get(key) == value for key, value in labels.items())
