"""What a NodePool says of itself: judgement of its specification, and its status. Pure."""

from __future__ import annotations

import enum

import attrs

from iriscw_sims.coreweave.crd import SPEC
from iriscw_sims.coreweave.node_objects import OWN_TAINTS
from iriscw_sims.coreweave.settings import Settings
from iriscw_sims.coreweave.shapes import RACK_NODES, SHAPES, Shape
from iriscw_sims.kube.frozen import EMPTY, freeze
from iriscw_sims.kube.kinds import Json
from iriscw_sims.kube.meta import ANNOTATIONS_LIMIT_BYTES
from iriscw_sims.kube.selectors import is_label_key, is_label_value
from iriscw_sims.kube.validation import judge

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
SHOWN_CHARACTERS = 63
"""How much of what users wrote a message repeats: the most that is valid in a label."""

OWN_DOMAINS = ("coreweave.com", "coreweave.cloud")
SYSTEM_CRITICAL = "cks.coreweave.cloud/system-critical"
"""The label of CoreWeave's own domain that users set: their public examples do; no page of CoreWeave's names it."""

NODES_LIMIT = 10_000
"""Nodes that one pool may want: more than twice the 5,000 that a Kubernetes cluster is tested for."""

NO_SPEC: Json = freeze({"instanceType": "", "targetNodes": 0})
"""What an object is taken to want that says nothing one can read."""


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
    """Return how many nodes a specification wants."""
    racks = spec.get("targetRacks")
    return int(racks * RACK_NODES if racks is not None else spec.get("targetNodes") or 0)


def is_spot(spec: Json) -> bool:
    """Tell whether a pool's machines may be taken away at any time."""
    return str(spec.get("computeClass", "default")).lower() == "spot"


def shape_of(spec: Json, settings: Settings) -> Shape | None:
    """Return what a machine of the pool is, None if there is no such type."""
    return SHAPES.get(spec["instanceType"], settings.unknown_type)


def understood(item: Json) -> tuple[Json, str]:
    """Return an object's specification; :data:`NO_SPEC` and why, if it does not have the form that CoreWeave gave it.

    The API server refuses such objects, unless somebody has changed the definition of their kind.
    """
    spec = item.get("spec")
    wrong = next(judge(SPEC, spec, None, ruled=False), None) if isinstance(spec, dict) else "there is no specification"
    if wrong is None:
        return item["spec"], ""
    return NO_SPEC, wrong if isinstance(wrong, str) else f"spec.{wrong.field}: {wrong.text}"


def complaint(name: str, spec: Json, settings: Settings) -> str:
    """Say what is wrong with a pool's name or specification; empty if nothing is."""
    kind, shape = _shown(spec["instanceType"]), shape_of(spec, settings)
    nodes, racks = spec.get("targetNodes"), spec.get("targetRacks")
    if not is_label_value(name):
        return "the name is a label of the pool's nodes, and so must be no more than 63 characters"
    if shape is None or not is_label_value(spec["instanceType"]):
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
    if target_of(spec) > NODES_LIMIT:
        return f"a node pool has at most {NODES_LIMIT} nodes"
    prefill = spec.get("prefill") or EMPTY
    if prefill.get("enabled") and (spec.get("autoscaling") or spec.get("computeClass", "default") != "default"):
        return "prefill needs autoscaling to be off and the default compute class"
    return _wrong_on_nodes(spec)


def _wrong_on_nodes(spec: Json) -> str:
    """Say what a pool's nodes cannot carry of what it gives them; empty if they can."""
    for key, value in (spec.get("nodeLabels") or EMPTY).items():
        if key.partition("/")[0].endswith(OWN_DOMAINS) and key != SYSTEM_CRITICAL:
            return f"node label {_shown(key)} uses a reserved domain"
        if not is_label_key(key) or not is_label_value(value):
            return f"node label {_shown(key)}={_shown(value)} is not a valid label"
    size = 0
    for key, value in (spec.get("nodeAnnotations") or EMPTY).items():
        size += len(key.encode()) + len(value.encode())
        if not is_label_key(key.lower()):
            return f"node annotation {_shown(key)} is not a qualified name"
    if size > ANNOTATIONS_LIMIT_BYTES:
        return f"node annotations may not be more than {ANNOTATIONS_LIMIT_BYTES} bytes"
    seen: dict[tuple[str, str], None] = {}
    for taint in spec.get("nodeTaints") or ():
        key, effect = taint["key"], taint["effect"]
        if not is_label_key(key) or not is_label_value(taint.get("value", "")) or effect not in EFFECTS:
            return f"node taint {_shown(key)}:{_shown(effect)} is not a valid taint"
        if key in OWN_TAINTS:
            return f"node taint {key} is reserved"
        if (key, effect) in seen:
            return f"node taint {key}:{effect} is given twice"
        seen[key, effect] = None
    return ""


def _shown(text: str) -> str:
    """Cut what users wrote for a message."""
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def shows(item: Json, status: Json) -> bool:
    """Tell whether an object shows a status."""
    shown = item.get("status")
    if not isinstance(shown, dict):
        return not status
    return all(shown.get(name) == value for name, value in status.items())


def status_of(standing: Standing, spec: Json, told: Json, settings: Settings, stamp: str) -> Json:
    """Return a pool's status, as a merge patch of it; ``told`` is the one that was written last."""
    status: Json = {
        "currentNodes": standing.current,
        "queuedNodes": standing.queued,
        settings.in_progress: standing.booting,
        "conditions": _conditions(standing, spec, told, settings, stamp),
    }
    if spec.get("targetRacks") is not None:
        racks = {"target": spec["targetRacks"], "current": standing.current // RACK_NODES}
        status["rackStatus"] = {**racks, "queued": -(-standing.queued // RACK_NODES)}
    return status


def _conditions(standing: Standing, spec: Json, told: Json, settings: Settings, stamp: str) -> list[Json]:
    before = {each["type"]: each for each in told.get("conditions", ())}
    found: list[Json] = []

    def add(kind: str, holds: bool, reason: str, message: str) -> None:
        status = "True" if holds else "False"
        was = before.get(kind)
        since = was["lastTransitionTime"] if was is not None and was["status"] == status else stamp
        about = {"type": kind, "status": status, "reason": reason, "message": message}
        found.append({**about, "lastTransitionTime": since})

    kind, target = spec["instanceType"], standing.target
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
