"""A scripted cloud, workers that dial, a scheduler that records: what the fleet's tests run against."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import attrs
import pytest

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
    LABEL_GROUP,
    LABEL_INCARNATION,
    LABEL_MANAGED,
    LABEL_SLICE,
    LABEL_WORKER,
    Attributes,
    Capacity,
    Condition,
    Gone,
    Node,
    NodePool,
    Pod,
    PodPhase,
    Relisted,
    Removed,
    Unavailable,
    Upserted,
)
from iriscw.fleet import pods
from iriscw.fleet.actor import fleet_behavior
from iriscw.fleet.groups import group as groups
from iriscw.fleet.messages import (
    Accepted,
    ActivityChanged,
    Cordon,
    Cordoned,
    DemandChanged,
    DemandEntry,
    DemandRouted,
    DescribeFleet,
    DialAgain,
    Uncordon,
    WorkerDialled,
    WorkerLost,
    WorkerReady,
    WorkerSeen,
)
from iriscw.fleet.model import FleetConfig, FleetDescription, GroupConfig, Timing, worker_path
from iriscw.fleet.slices import slice as slices
from iriscw.runtime.behavior import Behavior, ChildSpec
from iriscw.runtime.vocabulary import SECOND, ActorPath, Spawn, Tell
from iriscw.testing.contexts import FakeContext
from iriscw.testing.simulation import SimOperation, SimSystem

sys.path.insert(0, str(Path(__file__).parent))  # for what tests of groups, and of slices, share

GIB = 1 << 30
BIG = Capacity(cpu_milli=8000, memory_bytes=64 * GIB, disk_bytes=100 * GIB, gpu_count=8, gpu_class="H100")
FLEET = ActorPath("/fleet")
EFFECTS = (CreateNodePool, DeleteNodePool, ListNodePools, CreatePod, DeletePod, ListPods)
SESSIONS = (WatchNodePools, WatchPods)


def fleet_context(path: str = "/fleet/gpu/iris-gpu-a", **clocks: Any) -> FakeContext:
    return FakeContext(path, rng=Random(1), **clocks)


@pytest.fixture
def ctx() -> FakeContext:
    return fleet_context()


def timing(**changes: Any) -> Timing:
    """Seconds where CoreWeave has minutes."""
    spans = {
        "requesting_timeout": 60,
        "boot_timeout": 120,
        "init_timeout": 60,
        "startup_grace": 200,
        "evaluation_interval": 5,
        "scale_up_delay": 10,
        "scale_down_delay": 30,
        "liveness_timeout": 15,
        "cordon_timeout": 5,
        "failure_backoff": 10,
        "failure_backoff_max": 100,
        "quota_backoff": 50,
        "quota_backoff_max": 400,
        "retry_backoff": 1,
        "retry_backoff_max": 20,
        "pod_grace": 20,
        "deletion_patience": 100,
        "deletion_retry": 10,
        "boot_estimate": 30,
    }
    return Timing(**{name: round(span * SECOND) for name, span in {**spans, **changes}.items()})


@pytest.fixture
def group_config() -> Callable[..., GroupConfig]:
    def make(name: str = "gpu", **changes: Any) -> GroupConfig:
        defaults = {
            "per_worker": BIG,
            "attributes": Attributes({"device-type": "gpu", "region": "lga1"}),
            "max_slices": 4,
            "timing": timing(),
        }
        return GroupConfig(name, **{**defaults, **changes})

    return make


@pytest.fixture
def labels() -> Callable[..., dict[str, str]]:
    def make(slice_id: str = "iris-gpu-a", worker: str = "", incarnation: str = "", **more: str) -> dict[str, str]:
        result = {LABEL_MANAGED: "true", LABEL_CLUSTER: "test", LABEL_GROUP: "gpu", LABEL_SLICE: slice_id}
        if worker:
            result[LABEL_WORKER] = worker
        if incarnation:
            result[LABEL_INCARNATION] = incarnation
        return {**result, **more}

    return make


@pytest.fixture
def pool(labels: Callable[..., dict[str, str]]) -> Callable[..., NodePool]:
    """A slice's pool, of which some nodes are ready."""

    def make(nodes: int = 0, uid: str = "u1", total: int = 2, **changes: Any) -> NodePool:
        ready = tuple(Node(f"n{index}", f"nu{index}", ready=True) for index in range(nodes))
        return NodePool("iris-gpu-a", uid, "1", labels(), total, nodes=ready, **changes)

    return make


@pytest.fixture
def pod(labels: Callable[..., dict[str, str]]) -> Callable[..., Pod]:
    """The pod of a worker's incarnation."""

    def make(incarnation: str = "i1", uid: str = "u1", worker: str = "iris-gpu-a-0", **changes: Any) -> Pod:
        name = f"{worker}-{incarnation}"
        return Pod(name, uid, "1", labels("iris-gpu-a", worker, incarnation), **changes)

    return make


def demand(count: int = 1, *, gang: int = 1, what: Capacity | None = None, name: str = "job") -> DemandChanged:
    return DemandChanged((DemandEntry(name, what or attrs.evolve(BIG, disk_bytes=0), (), count, gang, 0),))


class ScriptedCloud:
    """A world with knobs: how long things take, what is refused, which deletions hang."""

    def __init__(self, system: SimSystem) -> None:
        self.system = system
        self.simulation = system.simulation
        self.pools: dict[str, NodePool] = {}
        self.pods: dict[str, Pod] = {}
        self.watches: dict[str, SimOperation] = {}
        self.backlogs: dict[str, deque[Any]] = {}
        self.flushes: dict[str, Callable[[], None]] = {}
        self.calls: list[Any] = []
        self.errors: dict[type, list[Exception]] = {}
        """What the next calls of an effect raise."""
        self.silent: dict[type, int] = {}
        """How many of the next calls of an effect land, but are never answered."""
        self.conditions: tuple[Condition, ...] = ()
        """What every pool shows instead of booting."""
        self.boot_s = 20.0
        self.pod_s = 2.0
        self.delete_s = 5.0
        self.hang = False
        """Whether deletions are acknowledged and never happen."""
        self.workers_dial = True
        self.serial = 0
        self.dialled: dict[str, Any] = {}
        self.capacity = BIG

    # The edge

    def perform(self, operation: SimOperation) -> None:
        effect = operation.effect
        self.calls.append(effect)
        queued = self.errors.get(type(effect))
        if queued:
            operation.fail(queued.pop(0))
            return
        match effect:
            case CreateNodePool(spec=spec):
                value: Any = self._create_pool(spec)
            case CreatePod(spec=spec):
                value = self._create_pod(spec)
            case DeleteNodePool(name=name, uid=uid) | DeletePod(name=name, uid=uid):
                table: dict[str, Any] = self.pools if isinstance(effect, DeleteNodePool) else self.pods
                if name not in table or table[name].uid != uid:
                    operation.fail(Gone(f"no {name} of uid {uid}"))
                    return
                self._delete(table, name, uid)
                value = None
            case ListNodePools(labels=labels):
                value = self.select(self.pools, labels)
            case ListPods(labels=labels):
                value = self.select(self.pods, labels)
            case WatchNodePools(labels=labels):
                self._watch("pools", operation, self.select(self.pools, labels))
                return
            case WatchPods(labels=labels):
                self._watch("pods", operation, self.select(self.pods, labels))
                return
            case _:
                raise AssertionError(effect)
        if self.silent.get(type(effect), 0):
            self.silent[type(effect)] -= 1
            # What a driver says when its own deadline has passed.
            timeout = Unavailable("no answer within 60 s")
            self.simulation.call_after(60 * SECOND, operation.fail, timeout)
            return
        operation.complete(value)

    @staticmethod
    def select(table: dict[str, Any], wanted: Any) -> tuple[Any, ...]:
        return tuple(
            thing
            for _, thing in sorted(table.items())
            if all(thing.labels.get(key) == value for key, value in wanted.items())
        )

    def _watch(self, key: str, operation: SimOperation, things: tuple[Any, ...]) -> None:
        self.watches[key] = operation
        backlog = self.backlogs[key] = deque([Relisted(things)])

        def flush() -> None:
            # A watch waits for room: it never drops what it has seen.
            while backlog and not operation.ended and not operation.cancelled and operation.send(backlog[0]):
                backlog.popleft()

        operation.on_room = flush
        self.flushes[key] = flush
        flush()

    def show(self, key: str, event: Any) -> None:
        if key in self.watches:
            self.backlogs[key].append(event)
            self.flushes[key]()

    def uid(self) -> str:
        self.serial += 1
        return f"uid-{self.serial}"

    # Pools

    def _create_pool(self, spec: Any) -> NodePool:
        if spec.name not in self.pools:
            pool = NodePool(spec.name, self.uid(), "1", dict(spec.labels), spec.target_nodes)
            self.pools[spec.name] = attrs.evolve(pool, conditions=self.conditions, queued_nodes=spec.target_nodes)
            self.show("pools", Upserted(self.pools[spec.name]))
            self.simulation.call_after(round(self.boot_s * SECOND), self.boot, spec.name)
        return self.pools[spec.name]

    def boot(self, name: str) -> None:
        pool = self.pools.get(name)
        if pool is None or pool.deleting or pool.conditions:
            return
        nodes = tuple(Node(f"{name}-n{i}", self.uid(), ready=True) for i in range(pool.target_nodes))
        self.change_pool(name, nodes=nodes, current_nodes=len(nodes), queued_nodes=0)

    def change_pool(self, name: str, **changes: Any) -> None:
        self.pools[name] = attrs.evolve(self.pools[name], **changes)
        self.show("pools", Upserted(self.pools[name]))

    def drop_pool(self, name: str) -> None:
        pool = self.pools.pop(name, None)
        if pool is not None:
            self.show("pools", Removed(pool))

    # Pods

    def _create_pod(self, spec: Any) -> Pod:
        if spec.name not in self.pods:
            self.pods[spec.name] = Pod(spec.name, self.uid(), "1", dict(spec.labels))
            self.show("pods", Upserted(self.pods[spec.name]))
            self.simulation.call_after(round(self.pod_s * SECOND), self.run_pod, spec.name)
        return self.pods[spec.name]

    def run_pod(self, name: str) -> None:
        pod = self.pods.get(name)
        if pod is None or pod.deleting:
            return
        self.pods[name] = attrs.evolve(pod, phase=PodPhase.RUNNING)
        self.show("pods", Upserted(self.pods[name]))
        if self.workers_dial:
            self.dial(name)
            self.simulation.call_after(5 * SECOND, self.beat, name)

    def end_pod(self, name: str, reason: str = "OOMKilled") -> None:
        self.pods[name] = attrs.evolve(self.pods[name], phase=PodPhase.FAILED, reason=reason)
        self.show("pods", Upserted(self.pods[name]))

    def drop_pod(self, name: str) -> None:
        pod = self.pods.pop(name, None)
        if pod is not None:
            self.show("pods", Removed(pod))

    def _delete(self, table: dict[str, Any], name: str, uid: str) -> None:
        key = "pools" if table is self.pools else "pods"
        table[name] = attrs.evolve(table[name], deleting=True)
        self.show(key, Upserted(table[name]))
        if not self.hang:
            drop = self.drop_pool if table is self.pools else self.drop_pod
            self.simulation.call_after(round(self.delete_s * SECOND), drop, name)

    # Workers

    def path_of(self, pod: Pod) -> ActorPath:
        return worker_path(FLEET, pod.labels[LABEL_GROUP], pod.labels[LABEL_WORKER])

    def dial(self, name: str) -> Any:
        pod = self.pods.get(name)
        if pod is None:
            return None
        message = WorkerDialled(
            pod.labels[LABEL_WORKER],
            pod.labels[LABEL_INCARNATION],
            self.capacity,
            Attributes({"python": "3.11"}),
            "10.0.0.1",
        )
        try:
            self.dialled[name] = self.system.question(self.path_of(pod), message)
        except LookupError as error:
            self.dialled[name] = error
        return self.dialled[name]

    def beat(self, name: str) -> None:
        pod = self.pods.get(name)
        if pod is None or pod.phase is not PodPhase.RUNNING:
            return
        self.simulation.call_after(5 * SECOND, self.beat, name)
        if self.workers_dial and not self.system.crashed:
            worker, incarnation = pod.labels[LABEL_WORKER], pod.labels[LABEL_INCARNATION]
            if f"/jobs/links/{worker}" not in self.system.tree.cells:
                self.system.tell("/jobs/links", Link(worker))
            self.system.tell(self.path_of(pod), WorkerSeen(worker, incarnation))


class Link:
    """Start a link's actor."""

    def __init__(self, worker_id: str) -> None:
        self.worker_id = worker_id


class Poison:
    """A message that no actor has a rule for."""


@attrs.define
class Scheduler:
    """Records what the fleet tells, and answers cordons."""

    ready: dict[str, Any] = attrs.field(factory=dict)
    lost: list[WorkerLost] = attrs.field(factory=list)
    cordons: list[Cordon] = attrs.field(factory=list)
    uncordons: list[Uncordon] = attrs.field(factory=list)
    routed: dict[str, str] = attrs.field(factory=dict)
    closed: dict[str, None] = attrs.field(factory=dict)
    """Slices under a cordon."""
    running: dict[str, int] = attrs.field(factory=dict)
    """Attempts by worker, of which a worker that is told anew is reminded."""
    live: int = 0
    """How many attempts it answers to a cordon; -1 for no answer."""

    def decide(self, state: None, message: Any, ctx: Any) -> Any:
        match message:
            case WorkerReady(info=info):
                self.ready[info.worker_id] = info
                self.closed.pop(info.slice_id, None)
                count = self.running.get(info.worker_id, 0)
                if count:
                    return (Tell(FLEET, ActivityChanged(info.worker_id, info.incarnation, count)),)
            case WorkerLost():
                self.lost.append(message)
                known = self.ready.get(message.worker_id)
                if known is not None and known.incarnation == message.incarnation:
                    del self.ready[message.worker_id]
            case Cordon(slice_id=slice_id, round=round_):
                self.cordons.append(message)
                self.closed[slice_id] = None
                if self.live >= 0:
                    return (Tell(FLEET, Cordoned(slice_id, self.live, round_)),)
            case Uncordon():
                self.closed.pop(message.slice_id, None)
                self.uncordons.append(message)
            case DemandRouted(reasons=reasons):
                self.routed = dict(reasons)
        return None


class FleetWorld:
    """The fleet, a scheduler and doors on one simulated controller, before a scripted cloud."""

    def __init__(self, config: FleetConfig, seed: int = 0) -> None:
        self.config = config
        self.scheduler = Scheduler()
        self.redial: list[str] = []
        self.system = SimSystem(self.root(), seed=seed, perform=self.perform)
        self.cloud = ScriptedCloud(self.system)

    def perform(self, operation: SimOperation) -> None:
        self.cloud.perform(operation)

    def root(self) -> Behavior:
        nobody: Any = None
        fleet = fleet_behavior(
            self.config, effects=dict.fromkeys(EFFECTS, nobody), sessions=dict.fromkeys(SESSIONS, nobody)
        )
        scheduler = Behavior(decide=self.scheduler.decide)
        link = Behavior(decide=self.dial_again)
        links = Behavior(decide=lambda state, message, ctx: (Spawn(ChildSpec(message.worker_id, link)),))
        jobs = Behavior(children=(ChildSpec("scheduler", scheduler), ChildSpec("links", links)))
        return Behavior(children=(ChildSpec("fleet", fleet), ChildSpec("jobs", jobs)))

    def dial_again(self, state: None, message: DialAgain, ctx: Any) -> None:
        for name in sorted(self.cloud.pods):
            if self.cloud.pods[name].labels[LABEL_INCARNATION] == message.incarnation:
                self.system.simulation.call_after(0, self.cloud.dial, name)

    def tell(self, message: Any) -> None:
        self.system.tell("/fleet", message)
        self.system.run_until_idle()

    def crash(self) -> None:
        """Kill the controller, and start it again on the same disk before the same cloud and scheduler."""
        self.scheduler.ready.clear()
        self.cloud.watches.clear()
        self.system.restart()
        self.system.run_until_idle()

    def bugs(self) -> list[Any]:
        return [each for each in self.system.failures if not isinstance(each.cause, Poison)]

    def paths(self) -> list[str]:
        return sorted(path for path in self.system.tree.cells if path.startswith("/fleet"))

    def poison(self, index: int) -> None:
        """Make one of the fleet's actors fail."""
        paths = self.paths()
        self.poison_path(paths[index % len(paths)])

    def poison_path(self, path: str) -> None:
        self.system.tell(path, Poison())
        self.system.run_until_idle()

    def is_whole(self, slice_id: str) -> bool:
        (config,) = self.config.groups
        if slice_id in self.scheduler.closed:
            return True
        return sum(1 for name in self.scheduler.ready if name.startswith(slice_id)) == config.num_vms

    def advance(self, seconds: float) -> None:
        self.system.advance(seconds)
        assert self.bugs() == []
        statistics = self.system.statistics()
        assert statistics.undelivered == 0, statistics

    def until(self, condition: Callable[[], bool], within_s: float = 300) -> None:
        assert self.system.simulation.run_until(condition, within_s), self.describe()
        self.system.run_until_idle()
        assert self.bugs() == []

    def describe(self) -> FleetDescription:
        return self.system.ask("/fleet", DescribeFleet())

    def fill(self) -> None:
        """Have the demand placed: one attempt on each ready worker, and nothing that waits."""
        self.tell(DemandChanged(()))
        for info in self.scheduler.ready.values():
            self.scheduler.running[info.worker_id] = 1
            self.tell(ActivityChanged(info.worker_id, info.incarnation, 1))

    def states(self) -> list[str]:
        return [row.state.value for row in self.describe().slices]

    def promises(self, group: str = "gpu") -> Any:
        state = self.system.state(f"/fleet/{group}")
        # None while the group is between two incarnations.
        return getattr(state, "promises", None)


@pytest.fixture
def world(group_config: Callable[..., GroupConfig]) -> Callable[..., FleetWorld]:

    def make(*configs: GroupConfig, seed: int = 0, takeover_s: float = 0, **changes: Any) -> FleetWorld:
        chosen = configs or (group_config(**changes),)
        config = FleetConfig("test", tuple(chosen), takeover_delay=round(takeover_s * SECOND))
        it = FleetWorld(config, seed)
        it.system.run_until_idle()
        return it

    return make


@pytest.fixture
def place(group_config: Callable[..., GroupConfig]) -> pods.WorkerPlace:
    seed = pods.PodSeed(group_config(), "test", "iris-gpu-a", 0, ActorPath("/jobs/scheduler"), ActorPath("/jobs/links"))
    return pods.WorkerPlace(seed)


def _no_child(seed: Any) -> ChildSpec:
    return ChildSpec(getattr(seed, "worker_id", None) or seed.slice_id, Behavior())


@pytest.fixture
def piece(group_config: Callable[..., GroupConfig]) -> Callable[..., slices.Slice]:
    def make(**changes: Any) -> slices.Slice:
        config = group_config(**changes)
        return slices.Slice(
            slices.SliceSeed(
                config, "test", "iris-gpu-a", ActorPath("/jobs/scheduler"), ActorPath("/jobs/links"), _no_child
            )
        )

    return make


@pytest.fixture
def group(group_config: Callable[..., GroupConfig]) -> Callable[..., groups.Group]:
    def make(**changes: Any) -> groups.Group:
        config = group_config(**changes)
        return groups.Group(
            groups.GroupSeed(
                config,
                "test",
                ActorPath("/jobs/scheduler"),
                ActorPath("/jobs/links"),
                0,
                _no_child,
                _no_child,
            )
        )

    return make


@pytest.fixture
def accepted() -> Callable[[Any], bool]:
    return lambda slot: slot.done and slot.error is None and isinstance(slot.value, Accepted)


@pytest.fixture(name="demand")
def demand_fixture() -> Callable[..., DemandChanged]:
    return demand


@pytest.fixture(name="timing")
def timing_fixture() -> Callable[..., Timing]:
    return timing


@pytest.fixture
def big() -> Capacity:
    return BIG
