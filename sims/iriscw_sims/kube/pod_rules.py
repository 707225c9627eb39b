"""How pods are judged: new ones, templates of them, and what of one may change.

The order in which mistakes are told, and which of them end the telling, are those of ``core/validation/validation.go``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from iriscw_sims.kube import quantity
from iriscw_sims.kube.frozen import EMPTY
from iriscw_sims.kube.kinds import Json, nested
from iriscw_sims.kube.meta import check_name
from iriscw_sims.kube.pod_numbers import judge_container_numbers, judge_pod_numbers
from iriscw_sims.kube.refusals import (
    Cause,
    duplicate_value,
    forbidden_value,
    invalid_value,
    required_value,
    unsupported_value,
)
from iriscw_sims.kube.selectors import is_label_key, is_label_value

MOST_S = (1 << 31) - 1
"""The longest time that a pod's specification names."""

TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")

_LISTS = ("containers", "initContainers")


def judge_pod(new: Json, old: Json | None) -> Iterator[Cause]:
    """Judge a new pod, or a change of one."""
    spec = new.get("spec") or EMPTY
    if old is not None and (spec is old["spec"] or spec == old["spec"]):
        return
    yield from judge_pod_spec(spec, "spec")
    if old is not None:
        yield from _judge_pod_change(spec, old["spec"])


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
            here = f"{at}.{kind}[{index}]"
            yield from _judge_container(each, here, names, volumes)
            yield from judge_container_numbers(each, here, spec.get("terminationGracePeriodSeconds", 30))
    if spec.get("restartPolicy") not in ("Always", "OnFailure", "Never"):
        supported = ("Always", "OnFailure", "Never")
        yield unsupported_value(f"{at}.restartPolicy", spec.get("restartPolicy"), supported)
    if spec.get("nodeName"):
        yield from check_name("subdomain", spec["nodeName"], f"{at}.nodeName")
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= MOST_S:
        yield invalid_value(f"{at}.activeDeadlineSeconds", deadline, "must be between 1 and 2147483647, inclusive")
    yield from judge_pod_numbers(spec, at)
    yield from _judge_tolerations(spec.get("tolerations") or (), f"{at}.tolerations")


def _judge_tolerations(tolerations: Sequence[Json], at: str) -> Iterator[Cause]:
    for index, each in enumerate(tolerations):
        here, operator, value = f"{at}[{index}]", each.get("operator", ""), each.get("value", "")
        if each.get("key") and not is_label_key(each["key"]):
            yield invalid_value(f"{here}.key", each["key"], "name part must consist of alphanumeric characters")
        if not each.get("key") and operator != "Exists":
            said = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            yield invalid_value(f"{here}.operator", operator, said)
        if each.get("tolerationSeconds") is not None and each.get("effect", "") != "NoExecute":
            said = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            yield invalid_value(f"{here}.effect", each.get("effect", ""), said)
        if operator in ("Equal", ""):
            if not is_label_value(value):
                yield invalid_value(f"{here}.operator", value, "a valid label must be an empty string or consist of")
        elif operator != "Exists":
            yield unsupported_value(f"{here}.operator", operator, ("Equal", "Exists"))
        elif value:
            yield invalid_value(f"{here}.operator", value, "value must be empty when `operator` is 'Exists'")
        if each.get("effect") and each["effect"] not in TAINT_EFFECTS:
            yield unsupported_value(f"{here}.effect", each["effect"], TAINT_EFFECTS)


def _judge_name(name: str, at: str, seen: list[str]) -> Iterator[Cause]:
    if not name:
        yield required_value(at)
    elif name in seen:
        yield duplicate_value(at, name)
    else:
        yield from check_name("label", name, at)
    seen.append(name)


def _judge_image(each: Json, at: str) -> Iterator[Cause]:
    image = each.get("image", "")
    if not image:
        yield required_value(at)
    elif image != image.strip():
        yield invalid_value(at, image, "must not have leading or trailing whitespace")


def _judge_container(each: Json, at: str, names: list[str], volumes: list[str]) -> Iterator[Cause]:
    yield from _judge_name(each.get("name", ""), f"{at}.name", names)
    yield from _judge_image(each, f"{at}.image")
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
        for index, each in enumerate(new.get(name) or ()):
            yield from _judge_image(each, f"spec.{name}[{index}].image")
    deadline, was = new.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds")
    wrong = _wrong_deadline(deadline, was)
    if wrong:
        yield invalid_value("spec.activeDeadlineSeconds", deadline, wrong)
        if deadline is not None:
            return
    yield from _judge_added_tolerations(new.get("tolerations") or (), old.get("tolerations") or ())
    gates = [each.get("name") for each in old.get("schedulingGates") or ()]
    for index, each in enumerate(new.get("schedulingGates") or ()):
        if each.get("name") not in gates:
            said = f"only deletion is allowed, but found new scheduling gate '{each.get('name')}'"
            yield forbidden_value(f"spec.schedulingGates[{index}].name", said)
    if _frame(new) != _frame(old):
        yield forbidden_value("spec", CHANGE_SAID)


def _wrong_deadline(deadline: int | None, was: int | None) -> str:
    if deadline is None:
        return "" if was is None else "must not update from a positive integer to nil value"
    if not 0 <= deadline <= MOST_S:
        return "must be between 0 and 2147483647, inclusive"
    return "must be less than or equal to previous value" if was is not None and was < deadline else ""


def _judge_added_tolerations(new: Sequence[Json], old: Sequence[Json]) -> Iterator[Cause]:
    """Judge that tolerations were added only, or given another time."""

    def timeless(each: Json) -> Json:
        return {name: part for name, part in each.items() if name != "tolerationSeconds"}

    kept = [timeless(each) for each in new]
    if any(timeless(each) not in kept for each in old):
        said = "existing toleration can not be modified except its tolerationSeconds"
        yield forbidden_value("spec.tolerations", said)
    else:
        yield from _judge_tolerations(new, "spec.tolerations")


def _frame(spec: Json) -> Json:
    """Return what of a pod's specification never changes."""
    frame = {k: v for k, v in spec.items() if k not in ("activeDeadlineSeconds", "tolerations", "schedulingGates")}
    for name in _LISTS:
        frame[name] = [{k: v for k, v in each.items() if k != "image"} for each in spec.get(name) or ()]
    return frame


def judge_pod_status(new: Json, old: Json | None) -> Iterator[Cause]:
    """Judge a change of a pod's status: what ended and is not restarted never runs again."""
    status, was = new.get("status") or EMPTY, (old or EMPTY).get("status") or EMPTY
    if status.get("qosClass") != was.get("qosClass"):
        yield invalid_value("status.qosClass", status.get("qosClass"), "field is immutable")
    policy = nested(old, "spec", "restartPolicy")
    for kind in ("containerStatuses", "initContainerStatuses"):
        now = {each.get("name"): each for each in status.get(kind) or ()}
        for index, each in enumerate(was.get(kind) or ()):
            ended = nested(each, "state", "terminated")
            if ended is None or policy == "Always" or (policy == "OnFailure" and ended.get("exitCode")):
                continue
            if each.get("name") in now and nested(now[each["name"]], "state", "terminated") is None:
                at = f"status.{kind}[{index}].state"
                yield forbidden_value(at, "may not be transitioned to non-terminated state")
