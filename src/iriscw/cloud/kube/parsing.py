"""What Kubernetes objects say, as values of the model. Total: whatever JSON comes is read or refused by name.

Theory of operation. Only an object's identity must be there (name, uid, resource version): without it nothing can be
done with the object, and :class:`MalformedObject` is raised. Everything else is read if it has the right shape and
left at its default if it has not, because a status that is half written, or written by a newer version, is no reason
to lose sight of a machine. Unknown conditions are passed on as they are; the fleet judges by those it knows
(:mod:`iriscw.cloud.lifecycle`). :func:`unknown_words` lists what was not known, for the counters of a watch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from iriscw.cloud.catalogue import RACK_NODES
from iriscw.cloud.kube import words
from iriscw.cloud.model import CloudError, Condition, Node, NodePool, Pod, PodPhase

MAX_CONDITIONS = 64
"""Conditions of one object that are read; a NodePool has about six, a node of CoreWeave about thirty."""

MAX_TEXT = 4096
"""Characters of a text that is kept. Conditions quote errors of other systems."""


MAX_STATE = 63
"""Characters of a node's state that are kept: as many as a label has."""


class MalformedObject(CloudError):
    """What the API gave as an object has no name, no uid or no resource version."""


def pool_of(obj: Any, nodes: Iterable[Node] = ()) -> NodePool:
    """Read a NodePool; ``nodes`` are those that were found to be its, in any order.

    Raises:
        MalformedObject: it has no identity.
    """
    name, uid, version = _identity(obj)
    spec, status = _part(obj, "spec"), _part(obj, "status")
    return NodePool(
        name=name,
        uid=uid,
        resource_version=version,
        labels=labels_of(obj),
        target_nodes=_count(spec, "targetNodes") or RACK_NODES * _count(spec, "targetRacks"),
        current_nodes=_count(status, "currentNodes"),
        queued_nodes=_count(status, "queuedNodes"),
        # Two names for one number: the docs of 2025 have the first, objects seen in 2026 the second.
        in_progress_nodes=max(_count(status, "inProgress"), _count(status, "inProgressNodes")),
        deleting=is_deleting(obj),
        conditions=tuple(_conditions(status)),
        nodes=tuple(sorted(nodes, key=lambda node: node.name)),
    )


def node_of(obj: Any, tolerated: tuple[str, ...] = words.OUR_TOLERATIONS) -> Node:
    """Read a node, as it is to pods that tolerate these taints.

    Raises:
        MalformedObject: it has no identity.
    """
    name, uid, _ = _identity(obj)
    status = _part(obj, "status")
    closed = "being deleted" if is_deleting(obj) else _closed(_part(obj, "spec"), tolerated) or _state(obj, status)
    return Node(
        name=name,
        uid=uid,
        ready=_condition(status, "Ready").get("status") == "True",
        usable=not closed,
        address=_address(status),
        closed=closed,
    )


def pod_of(obj: Any) -> Pod:
    """Read a pod.

    Raises:
        MalformedObject: it has no identity.
    """
    name, uid, version = _identity(obj)
    spec, status = _part(obj, "spec"), _part(obj, "status")
    reason, message = _pod_reason(status)
    return Pod(
        name=name,
        uid=uid,
        resource_version=version,
        labels=labels_of(obj),
        phase=_phase(status),
        deleting=is_deleting(obj),
        node=_text(spec, "nodeName"),
        address=_text(status, "podIP"),
        reason=reason,
        message=message,
        unset=_condition(status, "PodReadyToStartContainers").get("status") == "False",
        exit_code=_exit_code(status),
    )


def labels_of(obj: Any) -> dict[str, str]:
    """Return an object's labels, in the order of their names."""
    labels = _part(_part(obj, "metadata"), "labels")
    return dict(sorted((name, value) for name, value in labels.items() if isinstance(value, str)))


def label_of(obj: Any, name: str) -> str:
    """Return one of an object's labels, empty if it has none of this name."""
    return _text(_part(_part(obj, "metadata"), "labels"), name)


def is_deleting(obj: Any) -> bool:
    """Whether an object has a deletion timestamp."""
    return bool(_part(obj, "metadata").get("deletionTimestamp"))


# The shapes of JSON, whatever stands there. It is JSON as Python has it: ``isinstance`` of a dict is what costs least,
# and a fleet is told of thousands of heartbeats a minute.

_NOTHING: Mapping[str, Any] = {}


def _identity(obj: Any) -> tuple[str, str, str]:
    metadata = _part(obj, "metadata")
    name, uid, version = _text(metadata, "name"), _text(metadata, "uid"), _text(metadata, "resourceVersion")
    if not (name and uid and version):
        raise MalformedObject(f"the API gave an object without name, uid or version: {name[:80]!r}")
    return name, uid, version


def _part(obj: Any, name: str) -> Mapping[str, Any]:
    part = obj.get(name) if isinstance(obj, dict) else None
    return part if isinstance(part, dict) else _NOTHING


def _parts(obj: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = obj.get(name)
    if not isinstance(found, list):
        return []
    return [part for part in found[:MAX_CONDITIONS] if isinstance(part, dict)]


def _text(obj: Mapping[str, Any], name: str) -> str:
    found = obj.get(name)
    return found[:MAX_TEXT] if isinstance(found, str) else ""


def _count(obj: Mapping[str, Any], name: str) -> int:
    found = obj.get(name)
    return max(0, found) if isinstance(found, int) and not isinstance(found, bool) else 0


def _conditions(status: Mapping[str, Any]) -> Iterator[Condition]:
    for each in _parts(status, "conditions"):
        kind = _text(each, "type")
        if kind:
            yield Condition(kind, _text(each, "status"), _text(each, "reason"), _text(each, "message"))


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return the condition of this type as it was told, or nothing."""
    for each in _parts(status, "conditions"):
        if each.get("type") == kind:
            return each
    return _NOTHING


# Nodes


def _closed(spec: Mapping[str, Any], tolerated: tuple[str, ...]) -> str:
    """Say why a pod of ours would not be put here: cordoned, or tainted with what our pods do not tolerate."""
    if spec.get("unschedulable") is True:
        return "cordoned"
    for taint in _parts(spec, "taints"):
        key = _text(taint, "key")
        stands = key in tolerated or key in words.PASSING_TAINTS
        if taint.get("effect") in ("NoSchedule", "NoExecute") and not stands:
            return f"tainted with {key or 'something'}"
    return ""


def _state(obj: Any, status: Mapping[str, Any]) -> str:
    """Name the state that a node is in, if it is one that takes no work."""
    for name in words.STATE_LABELS:
        state = label_of(obj, name).lower()
        if state:
            return "" if state == words.PRODUCTION else f"in the state {state}"
    for kind in words.PHASE_CONDITIONS:
        condition = _condition(status, kind)
        for field in ("reason", "message"):
            text = _text(condition, field).lower()
            if text.startswith(words.OTHER_STATES):
                return f"in the state {text[:MAX_STATE]}"
    return ""


def _address(status: Mapping[str, Any]) -> str:
    found = {_text(each, "type"): _text(each, "address") for each in _parts(status, "addresses")}
    return found.get("InternalIP") or found.get("ExternalIP") or ""


# Pods


_PHASES = {phase.value: phase for phase in PodPhase}


def _phase(status: Mapping[str, Any]) -> PodPhase:
    text = _text(status, "phase")
    return _PHASES.get(text, PodPhase.UNKNOWN) if text else PodPhase.PENDING


def _states(status: Mapping[str, Any], kind: str) -> list[Mapping[str, Any]]:
    """Return what the containers' states say about waiting or about their end, main containers before others."""
    containers = [*_parts(status, "containerStatuses"), *_parts(status, "initContainerStatuses")]
    states = [_part(_part(each, "state"), kind) for each in containers]
    return [state for state in states if state]


def _pod_reason(status: Mapping[str, Any]) -> tuple[str, str]:
    """Return the most telling reason.

    Why somebody ended it, how it ended, why it waits, in this order; and its text.
    """
    ends = [_told(end) for end in _states(status, "terminated")]
    waits = [_told(wait) for wait in _states(status, "waiting")]
    targets = [_condition(status, kind) for kind in words.ENDED_BY]
    scheduled = _condition(status, "PodScheduled")
    order = (
        _told(status),  # of the kubelet or a controller: Evicted, NodeLost, Shutdown
        *(_told(target) for target in targets if target.get("status") == "True"),
        *(end for end in ends if end[0] not in words.EMPTY_ENDS),
        *(wait for wait in waits if wait[0] not in words.EMPTY_WAITS),
        *ends,
        _told(scheduled) if scheduled.get("status") == "False" else _UNTOLD,
        *waits,
    )
    return next((told for told in order if told[0]), _UNTOLD)


_UNTOLD = ("", "")


def _told(part: Mapping[str, Any]) -> tuple[str, str]:
    return _text(part, "reason"), _text(part, "message")


def _exit_code(status: Mapping[str, Any]) -> int | None:
    """Return the exit code of the pod: of the first container that failed, else of the first that ended."""
    codes = [
        end["exitCode"]
        for end in _states(status, "terminated")
        if isinstance(end.get("exitCode"), int) and not isinstance(end["exitCode"], bool)
    ]
    return next((code for code in codes if code != 0), codes[0] if codes else None)


# What is not known


_CONDITIONS = dict.fromkeys((*words.POOL_CONDITIONS, *words.NODE_CONDITIONS, *words.POD_CONDITIONS))
_REASONS = dict.fromkeys(("", *words.POOL_REASONS))


def unknown_words(obj: Any) -> tuple[str, ...]:
    """List the conditions, reasons and phases of an object that no table here knows, as ``kind word`` texts."""
    status = _part(obj, "status")
    found: list[str] = []
    phase = _text(status, "phase")
    if phase and phase not in _PHASES:
        found.append(f"phase {phase}")
    for condition in _parts(status, "conditions"):
        kind = _text(condition, "type")
        if kind not in _CONDITIONS:
            found.append(f"condition {kind}")
        elif kind in words.JUDGED_CONDITIONS and _text(condition, "reason") not in _REASONS:
            found.append(f"reason {kind}/{_text(condition, 'reason')}")
    return tuple(found)
