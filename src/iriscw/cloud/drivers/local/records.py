"""What the local platform remembers of pools, nodes and pods, and how it looks from outside. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs

from iriscw.cloud.model import Capacity, Condition, Node, NodePool, NodePoolSpec, Pod, PodPhase, PodSpec
from iriscw.files import decode_json


@attrs.frozen
class NodeRecord:
    """A node: a share of the budget that boots. ``number`` gives it a loopback address of its own."""

    name: str
    uid: str
    number: int
    ready: bool = False

    @property
    def address(self) -> str:
        """An address in 127.0.0.0/8, so that several workers can listen on the same port."""
        return f"127.{100 + (self.number >> 16)}.{self.number >> 8 & 255}.{self.number & 255}"


@attrs.frozen
class PoolRecord:
    """A node pool. Without ``granted`` it waits for room in the budget; ``lacking`` names what it waits for."""

    spec: NodePoolSpec
    uid: str
    version: int
    granted: bool = False
    lacking: tuple[str, ...] = ()
    deleting: bool = False
    nodes: tuple[NodeRecord, ...] = ()

    @property
    def total(self) -> Capacity:
        """What all its nodes take together."""
        return _times(self.spec.per_node, self.spec.target_nodes)

    def node(self, name: str) -> NodeRecord | None:
        """Return the node of this name."""
        return next((node for node in self.nodes if node.name == name), None)


@attrs.frozen
class PodRecord:
    """A pod. ``node`` is empty until one has room; ``grace_s`` counts once it is being deleted."""

    spec: PodSpec
    uid: str
    version: int
    node: str = ""
    address: str = ""
    phase: PodPhase = PodPhase.PENDING
    reason: str = ""
    exit_code: int | None = None
    deleting: bool = False
    grace_s: float = 0.0


def lacking(budget: Capacity, pools: Mapping[str, PoolRecord], wanted: PoolRecord) -> tuple[str, ...]:
    """Name what of the budget is short for ``wanted`` beside the pools that were granted."""
    free = budget
    for pool in pools.values():
        if pool.granted and pool.uid != wanted.uid:
            free = free.minus(pool.total)
    return free.lacking(wanted.total)


def place(pool: PoolRecord, pods: Mapping[str, PodRecord], pod: PodRecord) -> NodeRecord | None:
    """Choose the first ready node of ``pool`` with room for ``pod``."""
    for node in pool.nodes:
        free = pool.spec.per_node
        for other in pods.values():
            if other.node == node.name and not other.phase.over:
                free = free.minus(other.spec.request)
        if node.ready and free.fits(pod.spec.request):
            return node
    return None


def pool_seen(record: PoolRecord) -> NodePool:
    """Show a pool as CoreWeave's API would, conditions included."""
    ready = sum(node.ready for node in record.nodes)
    target = record.spec.target_nodes
    return NodePool(
        name=record.spec.name,
        uid=record.uid,
        resource_version=str(record.version),
        labels=record.spec.labels,
        target_nodes=target,
        current_nodes=ready,
        queued_nodes=target - len(record.nodes),
        in_progress_nodes=len(record.nodes) - ready,
        deleting=record.deleting,
        conditions=_conditions(record, ready),
        nodes=tuple(Node(node.name, node.uid, ready=node.ready, address=node.address) for node in record.nodes),
    )


def _conditions(record: PoolRecord, ready: int) -> tuple[Condition, ...]:
    target = record.spec.target_nodes
    if record.granted:
        quota = Condition("Quota", "True", "Under", "the pool is within the budget of this machine")
    elif record.lacking:
        short = ", ".join(record.lacking)
        quota = Condition("Quota", "False", "Over", f"the budget of this machine has not enough {short} left")
    else:
        return (Condition("Validated", "True", "Valid"),)
    met = ready == target
    at_target = Condition("AtTarget", str(met), "TargetMet" if met else "UnderTarget", f"{ready} of {target} nodes")
    return (Condition("Validated", "True", "Valid"), quota, at_target)


def pod_seen(record: PodRecord) -> Pod:
    """Show a pod as Kubernetes would."""
    return Pod(
        name=record.spec.name,
        uid=record.uid,
        resource_version=str(record.version),
        labels=record.spec.labels,
        phase=record.phase,
        deleting=record.deleting,
        node=record.node,
        address=record.address,
        reason=record.reason,
        exit_code=record.exit_code,
    )


def encode(record: PoolRecord | PodRecord) -> bytes:
    """Return the JSON of a record."""
    return json.dumps(attrs.asdict(record, value_serializer=_plain), indent=1).encode()


def decode_pool(data: bytes) -> PoolRecord:
    """Read what :func:`encode` gave for a pool.

    Raises:
        ValueError: it is something else.
    """
    try:
        content: Any = decode_json(data)
        spec = content.pop("spec")
        per_node = Capacity(**spec.pop("per_node"))
        nodes = tuple(NodeRecord(**node) for node in content.pop("nodes"))
        lacking_names = tuple(content.pop("lacking"))
        spec = NodePoolSpec(**spec, per_node=per_node)
        return PoolRecord(**content, spec=spec, nodes=nodes, lacking=lacking_names)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not the record of a pool: {error!r}") from error


def decode_pod(data: bytes) -> PodRecord:
    """Read what :func:`encode` gave for a pod.

    Raises:
        ValueError: it is something else.
    """
    try:
        content: Any = decode_json(data)
        spec = content.pop("spec")
        request = Capacity(**spec.pop("request"))
        phase = PodPhase(content.pop("phase"))
        return PodRecord(**content, spec=PodSpec(**spec, request=request), phase=phase)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not the record of a pod: {error!r}") from error


def _plain(_: object, __: object, value: object) -> object:
    return value.value if isinstance(value, PodPhase) else value


def _times(each: Capacity, count: int) -> Capacity:
    return Capacity(
        each.cpu_milli * count,
        each.memory_bytes * count,
        each.disk_bytes * count,
        each.gpu_count * count,
        each.gpu_class,
    )
