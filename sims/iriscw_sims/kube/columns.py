"""The columns of built-in kinds, as ``kubectl get`` shows them (``printers/internalversion/printers.go``)."""

from __future__ import annotations

from typing import Any

from iriscw_sims.kube.frozen import EMPTY
from iriscw_sims.kube.kinds import Column, Json, nested
from iriscw_sims.kube.tables import age, age_column, column

NONE = "<none>"


def _statuses(pod: Json) -> list[Json]:
    found: list[Json] = nested(pod, "status", "containerStatuses") or []
    return found


def _pod_status(pod: Json) -> str:
    """Return what a person wants to know of a pod: why it waits or ended, else its phase."""
    status = pod.get("status") or EMPTY
    said: str = status.get("reason") or status.get("phase") or "Unknown"
    for each in _statuses(pod):
        state = each.get("state") or EMPTY
        reason = nested(state, "waiting", "reason") or nested(state, "terminated", "reason")
        if reason:
            said = reason
        elif "terminated" in state:
            ended = state["terminated"]
            signal = ended.get("signal")
            said = f"Signal:{signal}" if signal else f"ExitCode:{ended.get('exitCode', 0)}"
    if nested(pod, "metadata", "deletionTimestamp"):
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return said


def _pod_ready(pod: Json) -> str:
    ready = sum(bool(each.get("ready")) for each in _statuses(pod))
    return f"{ready}/{len(nested(pod, 'spec', 'containers') or ())}"


def _restarts(pod: Json) -> int:
    return sum(each.get("restartCount", 0) for each in _statuses(pod))


def _node_status(node: Json) -> str:
    ready = [each for each in nested(node, "status", "conditions") or () if each.get("type") == "Ready"]
    said = ["Ready" if ready[0].get("status") == "True" else "NotReady"] if ready else ["Unknown"]
    if nested(node, "spec", "unschedulable"):
        said.append("SchedulingDisabled")
    return ",".join(said)


def _roles(node: Json) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = nested(node, "metadata", "labels") or EMPTY
    roles = [key.removeprefix(prefix) for key in labels if key.startswith(prefix)]
    return ",".join(sorted(roles)) or NONE


def _text(*path: str) -> Any:
    return lambda item: nested(item, *path) or NONE


def _count(*path: str) -> Any:
    return lambda item: len(nested(item, *path) or ())


def _number(*path: str) -> Any:
    return lambda item: nested(item, *path) or 0


def _labels(labels: Json | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or NONE


def _seen(event: Json, now: int) -> str:
    last = event.get("lastTimestamp") or event.get("eventTime") or nested(event, "metadata", "creationTimestamp")
    return age(last, now)


def _object(event: Json) -> str:
    involved = event.get("involvedObject") or EMPTY
    return f"{involved.get('kind', '').lower()}/{involved.get('name', '')}"


AGE = age_column()
POD = (
    column("Ready", _pod_ready),
    column("Status", _pod_status),
    column("Restarts", _restarts, "integer"),
    AGE,
    column("IP", _text("status", "podIP"), priority=1),
    column("Node", _text("spec", "nodeName"), priority=1),
)
NODE = (
    column("Status", _node_status),
    column("Roles", _roles),
    AGE,
    column("Version", lambda node: nested(node, "status", "nodeInfo", "kubeletVersion") or ""),
)
NAMESPACE = (column("Status", _text("status", "phase")), AGE)
CONFIG_MAP = (column("Data", _count("data"), "integer"), AGE)
SECRET = (column("Type", _text("type")), column("Data", _count("data"), "integer"), AGE)
SERVICE = (column("Type", _text("spec", "type")), column("Cluster-IP", _text("spec", "clusterIP")), AGE)
VOLUME_CLAIM = (column("Status", _text("status", "phase")), column("Volume", _text("spec", "volumeName")), AGE)
LEASE = (column("Holder", lambda lease: nested(lease, "spec", "holderIdentity") or ""), AGE)
DEPLOYMENT = (
    column("Ready", lambda item: f"{_number('status', 'readyReplicas')(item)}/{_number('spec', 'replicas')(item)}"),
    column("Up-to-date", _number("status", "updatedReplicas"), "integer"),
    column("Available", _number("status", "availableReplicas"), "integer"),
    AGE,
)
DAEMON_SET = (
    column("Desired", _number("status", "desiredNumberScheduled"), "integer"),
    column("Current", _number("status", "currentNumberScheduled"), "integer"),
    column("Ready", _number("status", "numberReady"), "integer"),
    column("Up-to-date", _number("status", "updatedNumberScheduled"), "integer"),
    column("Available", _number("status", "numberAvailable"), "integer"),
    column("Node Selector", lambda item: _labels(nested(item, "spec", "template", "spec", "nodeSelector"))),
    AGE,
)
NETWORK_POLICY = (
    column("Pod-Selector", lambda item: _labels(nested(item, "spec", "podSelector", "matchLabels"))),
    AGE,
)
PRIORITY_CLASS = (
    column("Value", _number("value"), "integer"),
    column("Global-Default", lambda item: bool(item.get("globalDefault")), "boolean"),
    AGE,
    column("PreemptionPolicy", _text("preemptionPolicy")),
)
RUNTIME_CLASS = (column("Handler", lambda item: item.get("handler") or ""), AGE)
EVENT = (
    Column("Last Seen", "string", _seen),
    column("Type", _text("type")),
    column("Reason", _text("reason")),
    column("Object", _object),
    column("Message", lambda event: (event.get("message") or "").strip()),
)
BUDGET = (
    column("Min Available", lambda item: str(nested(item, "spec", "minAvailable") or "N/A")),
    column("Max Unavailable", lambda item: str(nested(item, "spec", "maxUnavailable") or "N/A")),
    column("Allowed Disruptions", _number("status", "disruptionsAllowed"), "integer"),
    AGE,
)
DEFINITION = (column("Created At", lambda item: item["metadata"].get("creationTimestamp")),)
