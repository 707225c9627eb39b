"""What the API server itself fills in of pods: defaults, quality of service, the begin of a status.

Defaults include those of the admission plugins that a server has on by default (Priority, DefaultTolerationSeconds).
All of it skips what is frozen: that was completed when it was first written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from iriscw_sims.kube import quantity
from iriscw_sims.kube.frozen import EMPTY
from iriscw_sims.kube.kinds import Json, nested
from iriscw_sims.kube.refusals import forbidden

TOLERATION_S = 300
"""Seconds a pod stays on a node that is not ready or not reached (``defaulttolerationseconds/admission.go``)."""

_LISTS = ("containers", "initContainers")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")


def default_pod(new: Json, _old: Json | None) -> None:
    """Fill in a pod's defaults."""
    if type(new.get("status")) is dict:
        _align_addresses(new["status"])
    spec = new.get("spec")
    if type(spec) is not dict:
        return
    default_pod_spec(spec)
    grace = spec.get("terminationGracePeriodSeconds")
    if type(grace) is int and grace < 0:  # not in a template, which keeps it
        spec["terminationGracePeriodSeconds"] = 1
    spec.setdefault("enableServiceLinks", True)
    for each in _plain_containers(spec):
        for port in _plain_items(each.get("ports")) if spec.get("hostNetwork") else ():
            port.setdefault("hostPort", port.get("containerPort"))
        limits = nested(each, "resources", "limits")
        if limits and type(each["resources"]) is dict:
            each["resources"]["requests"] = {**limits, **(each["resources"].get("requests") or {})}


def _align_addresses(status: Json) -> None:
    """Let a pod's address be the first of its addresses, whichever was said (where both were, the one)."""
    one, all_of_them = status.get("podIP"), status.get("podIPs")
    if one and (not all_of_them or all_of_them[0].get("ip") != one):
        status["podIPs"] = [{"ip": one}]
    elif all_of_them and not one:
        status["podIP"] = all_of_them[0].get("ip", "")


def admit_pod(new: Json, old: Json | None) -> None:
    """Fill in what admission plugins give a pod, at each write of it; nobody owns that.

    Raises:
        Refused: 403, it names a priority: only a class may.
    """
    spec = new.get("spec")
    if type(spec) is not dict:
        return
    if old is None and spec.get("priority") and not spec.get("priorityClassName"):
        said = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; priority admission"
        )
        said += " controller computed 0 from the given PriorityClass name"
        raise forbidden("", "pods", new["metadata"].get("name", ""), said)
    spec.setdefault("priority", 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    tolerations = list(spec.get("tolerations") or ())
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(_tolerates(each, key) for each in tolerations):
            tolerations.append(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_S}
            )
    if len(tolerations) != len(spec.get("tolerations") or ()):
        spec["tolerations"] = tolerations


def _tolerates(toleration: Json, key: str) -> bool:
    return toleration.get("key", "") in (key, "") and toleration.get("effect", "NoExecute") in ("NoExecute", "")


def default_pod_spec(spec: Json) -> None:
    """Fill in the defaults of a pod's specification, also within a template."""
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("securityContext", {})
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("schedulerName", "default-scheduler")
    if spec.get("serviceAccountName"):
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
    for each in _plain_containers(spec):
        _default_container(each)
    for volume in _plain_items(spec.get("volumes")):
        if len(volume) == 1:
            volume["emptyDir"] = {}
        for source in ("secret", "configMap", "downwardAPI", "projected"):
            if type(volume.get(source)) is dict:
                volume[source].setdefault("defaultMode", 420)
        if type(volume.get("hostPath")) is dict:
            volume["hostPath"].setdefault("type", "")


def _plain_items(items: Any) -> Iterator[Json]:
    return (item for item in items or () if type(item) is dict)


def _plain_containers(spec: Json) -> Iterator[Json]:
    for name in _LISTS:
        yield from _plain_items(spec.get(name))


def _default_container(each: Json) -> None:
    if "imagePullPolicy" not in each:
        name, colon, tag = each.get("image", "").rpartition(":")
        latest = "@" not in each.get("image", "") and (not colon or "/" in tag or tag == "latest" or not name)
        each["imagePullPolicy"] = "Always" if latest else "IfNotPresent"
    each.setdefault("terminationMessagePath", "/dev/termination-log")
    each.setdefault("terminationMessagePolicy", "File")
    for port in _plain_items(each.get("ports")):
        port.setdefault("protocol", "TCP")
    for probe in (each.get(name) for name in _PROBES):
        if type(probe) is dict:
            for key, value in (
                ("timeoutSeconds", 1),
                ("periodSeconds", 10),
                ("successThreshold", 1),
                ("failureThreshold", 3),
            ):
                probe.setdefault(key, value)
            if type(probe.get("httpGet")) is dict:
                probe["httpGet"].setdefault("path", "/")
                probe["httpGet"].setdefault("scheme", "HTTP")
            if type(probe.get("grpc")) is dict and probe["grpc"].get("service") is None:
                probe["grpc"]["service"] = ""
    for variable in _plain_items(each.get("env")):
        source = nested(variable, "valueFrom", "fieldRef")
        if type(source) is dict:
            source.setdefault("apiVersion", "v1")


def prepare_pod_status(new: Json, old: Json | None) -> None:
    """Begin a pod's status; an update of it leaves the specification alone."""
    if old is None:
        new["status"] = {"phase": "Pending", "qosClass": quality(new["spec"])}
        gates = new["spec"].get("schedulingGates")
        if gates:
            gated = {
                "type": "PodScheduled",
                "status": "False",
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
                "lastProbeTime": None,
                "lastTransitionTime": None,
            }
            new["status"]["conditions"] = [gated]
        return
    new["spec"] = old["spec"]
    metadata = new["metadata"]
    for name in ("deletionTimestamp", "ownerReferences"):  # not for a kubelet to change
        metadata.pop(name, None)
        if name in old["metadata"]:
            metadata[name] = old["metadata"][name]
    status = new.setdefault("status", {})
    if type(status) is dict:
        status.setdefault("qosClass", nested(old, "status", "qosClass"))


def quality(spec: Json) -> str:
    """Return a pod's class of quality: Guaranteed, Burstable or BestEffort."""
    guaranteed, burstable = True, False
    for each in [item for name in _LISTS for item in spec.get(name) or ()]:
        resources = each.get("resources") or EMPTY
        limits, requests = resources.get("limits") or EMPTY, resources.get("requests") or EMPTY
        for name in ("cpu", "memory"):
            asked, most = quantity.amount(requests.get(name, "0")), quantity.amount(limits.get(name, "0"))
            burstable = burstable or asked > 0 or most > 0
            guaranteed = guaranteed and most > 0 and asked == most
    return "Guaranteed" if guaranteed and burstable else "Burstable" if burstable else "BestEffort"
