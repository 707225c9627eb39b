"""What the API server itself does to pods: defaults, quality of service, and which changes it allows.

Defaults include those of the admission plugins that a server has on by default (Priority, DefaultTolerationSeconds).
All of it skips what is frozen: that was completed when it was first written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from iriscw_sims.kube import quantity
from iriscw_sims.kube.frozen import EMPTY
from iriscw_sims.kube.kinds import Json, nested
from iriscw_sims.kube.meta import check_name
from iriscw_sims.kube.refusals import (
    Cause,
    duplicate_value,
    forbidden_value,
    invalid_value,
    required_value,
    unsupported_value,
)

TOLERATION_S = 300
"""Seconds a pod stays on a node that is not ready or not reached (``defaulttolerationseconds/admission.go``)."""

_LISTS = ("containers", "initContainers")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")


def default_pod(new: Json, _old: Json | None) -> None:
    """Fill in a pod's defaults."""
    spec = new.get("spec")
    if type(spec) is not dict:
        return
    default_pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    for each in _plain_containers(spec):
        for port in _plain_items(each.get("ports")) if spec.get("hostNetwork") else ():
            port.setdefault("hostPort", port.get("containerPort"))
        limits = nested(each, "resources", "limits")
        if limits and type(each["resources"]) is dict:
            each["resources"]["requests"] = {**limits, **(each["resources"].get("requests") or {})}


def admit_pod(new: Json, old: Json | None) -> None:
    """Fill in what admission plugins give a new pod; nobody owns that."""
    spec = new.get("spec")
    if old is not None or type(spec) is not dict:
        return
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
    status = new.setdefault("status", {})
    if type(status) is dict:
        status.setdefault("qosClass", nested(old, "status", "qosClass"))
        if status.get("podIP") and nested(status, "podIPs") != [{"ip": status["podIP"]}]:
            rest = (status.get("podIPs") or [])[1:]
            status["podIPs"] = [{"ip": status["podIP"]}, *rest]


def quality(spec: Json) -> str:
    """Give a pod's class of quality: Guaranteed, Burstable or BestEffort."""
    guaranteed, burstable = True, False
    for each in [item for name in _LISTS for item in spec.get(name) or ()]:
        resources = each.get("resources") or EMPTY
        limits, requests = resources.get("limits") or EMPTY, resources.get("requests") or EMPTY
        for name in ("cpu", "memory"):
            asked, most = quantity.amount(requests.get(name, "0")), quantity.amount(limits.get(name, "0"))
            burstable = burstable or asked > 0 or most > 0
            guaranteed = guaranteed and most > 0 and asked == most
    return "Guaranteed" if guaranteed and burstable else "Burstable" if burstable else "BestEffort"


def judge_pod(new: Json, old: Json | None) -> Iterator[Cause]:
    """Judge a new pod, or a change of one."""
    if old is not None:
        if new["spec"] is not old["spec"] and new["spec"] != old["spec"]:
            yield from _judge_pod_change(new["spec"], old["spec"])
        return
    yield from judge_pod_spec(new.get("spec") or EMPTY, "spec")


def judge_pod_spec(spec: Json, at: str) -> Iterator[Cause]:
    """Judge a pod's specification, also within a template."""
    volumes: list[str] = []
    for index, volume in enumerate(spec.get("volumes") or ()):
        yield from _judge_name(volume.get("name", ""), f"{at}.volumes[{index}].name", volumes)
    if not spec.get("containers"):
        yield required_value(f"{at}.containers")
    names: list[str] = []
    for kind in ("containers", "initContainers"):
        for index, each in enumerate(spec.get(kind) or ()):
            yield from _judge_container(each, f"{at}.{kind}[{index}]", names, volumes)
    if spec.get("restartPolicy") not in ("Always", "OnFailure", "Never"):
        supported = ("Always", "OnFailure", "Never")
        yield unsupported_value(f"{at}.restartPolicy", spec.get("restartPolicy"), supported)
    if (spec.get("activeDeadlineSeconds") or 1) < 1:
        said = "must be between 1 and 2147483647, inclusive"
        yield invalid_value(f"{at}.activeDeadlineSeconds", spec["activeDeadlineSeconds"], said)
    if spec.get("nodeName"):
        yield from check_name("subdomain", spec["nodeName"], f"{at}.nodeName")


def _judge_name(name: str, at: str, seen: list[str]) -> Iterator[Cause]:
    if not name:
        yield required_value(at)
    elif name in seen:
        yield duplicate_value(at, name)
    else:
        yield from check_name("label", name, at)
    seen.append(name)


def _judge_container(each: Json, at: str, names: list[str], volumes: list[str]) -> Iterator[Cause]:
    yield from _judge_name(each.get("name", ""), f"{at}.name", names)
    image = each.get("image", "")
    if not image:
        yield required_value(f"{at}.image")
    elif image != image.strip():
        yield invalid_value(f"{at}.image", image, "must not have leading or trailing whitespace")
    for index, port in enumerate(each.get("ports") or ()):
        number = port.get("containerPort", 0)
        if not number:
            yield required_value(f"{at}.ports[{index}].containerPort")
        elif not 0 < number < 65_536:
            said = "must be between 1 and 65535, inclusive"
            yield invalid_value(f"{at}.ports[{index}].containerPort", number, said)
    for index, mount in enumerate(each.get("volumeMounts") or ()):
        if mount.get("name") not in volumes:
            text = f'Not found: "{mount.get("name", "")}"'
            yield Cause("FieldValueNotFound", f"{at}.volumeMounts[{index}].name", text)
        if not mount.get("mountPath"):
            yield required_value(f"{at}.volumeMounts[{index}].mountPath")
    policy = each.get("imagePullPolicy")
    if policy not in ("Always", "IfNotPresent", "Never"):
        yield unsupported_value(f"{at}.imagePullPolicy", policy, ("Always", "IfNotPresent", "Never"))
    yield from _judge_resources(each.get("resources") or EMPTY, f"{at}.resources")


def _judge_resources(resources: Json, at: str) -> Iterator[Cause]:
    limits = resources.get("limits") or EMPTY
    for name, asked in (resources.get("requests") or EMPTY).items():
        most = limits.get(name)
        if quantity.amount(asked) < 0:
            yield invalid_value(f"{at}.requests[{name}]", asked, "must be greater than or equal to 0")
        extended = "/" in name and not name.startswith("kubernetes.io/")
        if most is None:
            if extended:
                yield required_value(f"{at}.limits[{name}]", "Limit must be set for non overcommitable resources")
        elif extended and quantity.amount(asked) != quantity.amount(most):
            yield invalid_value(f"{at}.requests", asked, f"must be equal to {name} limit of {most}")
        elif quantity.amount(asked) > quantity.amount(most):
            yield invalid_value(f"{at}.requests", asked, f"must be less than or equal to {name} limit of {most}")


CHANGE_SAID = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def _judge_pod_change(new: Json, old: Json) -> Iterator[Cause]:
    for name in _LISTS:
        if len(new.get(name) or ()) != len(old.get(name) or ()):
            yield forbidden_value(f"spec.{name}", "pod updates may not add or remove containers")
            return
    kept = [each for each in old.get("tolerations") or () if each not in (new.get("tolerations") or ())]
    if _frame(new) != _frame(old):
        yield forbidden_value("spec", CHANGE_SAID)
    elif kept:
        yield forbidden_value(
            "spec.tolerations", "existing toleration can not be modified except its tolerationSeconds"
        )


def _frame(spec: Json) -> Json:
    """Give what of a pod's specification never changes."""
    frame = {k: v for k, v in spec.items() if k not in ("activeDeadlineSeconds", "tolerations", "schedulingGates")}
    for name in _LISTS:
        frame[name] = [{k: v for k, v in each.items() if k != "image"} for each in spec.get(name) or ()]
    return frame
