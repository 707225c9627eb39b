"""What a NodePool says of itself: judgement of its specification, and its status. Pure."""

from __future__ import annotations

import enum

import attrs

from iriscw_sims.coreweave.settings import Settings
from iriscw_sims.coreweave.shapes import RACK_NODES, SHAPES, Shape
from iriscw_sims.kube.frozen import EMPTY
from iriscw_sims.kube.kinds import Json

OWN_DOMAINS = ("coreweave.com", "coreweave.cloud")


class Quota(enum.Enum):
    """What the organisation's quota allows."""

    UNDER = "Under"
    NOT_SET = "NotSet"
    OVER = "Over"


@attrs.frozen
class Standing:
    """All that a pool's status tells, as numbers. ``why`` is why the specification is invalid, ``""`` if it is valid.

    Attributes:
        judged: Whether the specification was looked at; before, there are no conditions.
        quota: None before it was asked.
        waiting: Whether machines are waited for.
    """

    target: int
    current: int = 0
    booting: int = 0
    queued: int = 0
    judged: bool = False
    why: str = ""
    quota: Quota | None = None
    waiting: bool = False


def target_of(spec: Json) -> int:
    """Give how many nodes a specification wants."""
    racks = spec.get("targetRacks")
    nodes: int = racks * RACK_NODES if racks is not None else spec.get("targetNodes") or 0
    return nodes


def is_spot(spec: Json) -> bool:
    """Tell whether a pool's machines may be taken away at any time."""
    return str(spec.get("computeClass", "default")).lower() == "spot"


def shape_of(spec: Json, settings: Settings) -> Shape | None:
    """Give what a machine of the pool is, None if there is no such type."""
    return SHAPES.get(spec["instanceType"], settings.unknown_type)


def complaint(spec: Json, settings: Settings) -> str:
    """Say what is wrong with a specification; empty if nothing is."""
    kind, shape = spec["instanceType"], shape_of(spec, settings)
    nodes, racks = spec.get("targetNodes"), spec.get("targetRacks")
    if shape is None:
        return f"instance type {kind} is not available in zone {settings.region}"
    if (nodes is None) == (racks is None):
        return "exactly one of targetNodes and targetRacks must be set"
    if racks is not None and not shape.rack:
        return f"targetRacks is not supported for instance type {kind}"
    if shape.rack and spec.get("autoscaling"):
        return f"autoscaling is not supported for instance type {kind}"
    if shape.rack and target_of(spec) % RACK_NODES:
        return f"instance type {kind} comes in racks of {RACK_NODES} nodes"
    low, most = spec.get("minNodes", 0), spec.get("maxNodes")
    if spec.get("autoscaling") and not low <= target_of(spec) <= (target_of(spec) if most is None else most):
        return "targetNodes must lie between minNodes and maxNodes"
    for key in spec.get("nodeLabels") or EMPTY:
        if key.partition("/")[0].endswith(OWN_DOMAINS):
            return f"node label {key} uses a reserved domain"
    prefill = spec.get("prefill") or EMPTY
    if prefill.get("enabled") and (spec.get("autoscaling") or spec.get("computeClass", "default") != "default"):
        return "prefill needs autoscaling to be off and the default compute class"
    return ""


def status_of(standing: Standing, item: Json, settings: Settings, stamp: str) -> Json:
    """Give a pool's status, as a merge patch of it."""
    spec = item["spec"]
    status: Json = {
        "currentNodes": standing.current,
        "queuedNodes": standing.queued,
        settings.in_progress: standing.booting,
        "conditions": _conditions(standing, item, settings, stamp),
    }
    if spec.get("targetRacks") is not None:
        racks = {"target": spec["targetRacks"], "current": standing.current // RACK_NODES}
        status["rackStatus"] = {**racks, "queued": -(-standing.queued // RACK_NODES)}
    return status


def _conditions(standing: Standing, item: Json, settings: Settings, stamp: str) -> list[Json]:
    before = {each["type"]: each for each in (item.get("status") or EMPTY).get("conditions") or ()}
    found: list[Json] = []

    def add(kind: str, holds: bool, reason: str, message: str) -> None:
        status = "True" if holds else "False"
        was = before.get(kind)
        since = was["lastTransitionTime"] if was is not None and was["status"] == status else stamp
        about = {"type": kind, "status": status, "reason": reason, "message": message}
        found.append({**about, "lastTransitionTime": since})

    kind, target = item["spec"]["instanceType"], standing.target
    if not standing.judged:
        return found
    if standing.why:
        add(settings.validated, False, "Invalid", standing.why)
        return found
    add(settings.validated, True, "Valid", "nodePool configuration is valid")
    match standing.quota:
        case Quota.UNDER:
            add("Quota", True, "Under", f"nodePool is under quota for instance type {kind}")
        case Quota.NOT_SET:
            add("Quota", False, "NotSet", f"quota limit is 0 for instance type {kind}")
        case Quota.OVER:
            add("Quota", False, "Over", f"nodePool is over quota for instance type {kind}")
        case None:
            pass
    if standing.waiting:
        text = f"{standing.queued} nodes of instance type {kind} wait for capacity"
        add("Capacity", False, "QueuedAwaitingCapacity", text)
    elif standing.quota is Quota.UNDER:
        add("Capacity", True, "Sufficient", f"there is capacity for instance type {kind}")
    current = standing.current
    reason = "TargetMet" if current == target else "UnderTarget" if current < target else "OverTarget"
    add("AtTarget", current == target, reason, f"{current} of {target} nodes are there")
    return found
