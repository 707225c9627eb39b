"""What is asked of a pod by other words than update: binding it to a node, and evicting it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from iriscw_sims.kube.call import Call
from iriscw_sims.kube.clock import written
from iriscw_sims.kube.deletion import check_preconditions, delete_object, is_dry, read_options
from iriscw_sims.kube.frozen import EMPTY, FrozenDict, freeze
from iriscw_sims.kube.kinds import Json, nested
from iriscw_sims.kube.refusals import (
    bad_request,
    conflict,
    internal,
    too_many_requests,
)
from iriscw_sims.kube.writes import update

MANY_BUDGETS = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."


def _success(code: int) -> Json:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code}


def _body(call: Call) -> Json:
    body = call.request.body
    if body is not None and not isinstance(body, dict):
        raise bad_request("couldn't get version/kind; json parse error: not an object")
    return body or EMPTY


def _part(body: Json, name: str) -> Json:
    part = body.get(name) or EMPTY
    if not isinstance(part, dict) or not all(
        isinstance(part.get(each) or {}, dict) for each in ("labels", "annotations")
    ):
        raise bad_request(f"json: cannot unmarshal into Go struct field Binding.{name}")
    return part


def bind(call: Call) -> tuple[int, Json]:
    """Bind a pod to a node, as a scheduler does: 201 and a Status.

    Raises:
        Refused: 400, another pod is named; 404; 409, it is bound, or going away; 500, no node is named.
    """
    body = _body(call)
    given, target = _part(body, "metadata"), _part(body, "target")
    if given.get("name", "") != call.route.name:
        raise bad_request("name in URL does not match name in Binding object")
    if target.get("kind", "") not in ("", "Node"):
        raise internal(f'target.kind: Unsupported value: "{target["kind"]}": supported values: "Node", "<empty>"')
    if not target.get("name"):
        raise internal("target.name: Required value")
    pod = call.found()
    _check_bindable(call, pod, given)
    metadata = dict(pod["metadata"])
    for name in ("labels", "annotations"):
        if given.get(name):
            metadata[name] = {**(metadata.get(name) or EMPTY), **given[name]}
    status = {name: part for name, part in pod["status"].items() if name != "nominatedNodeName"}
    status["conditions"] = _with_condition(status.get("conditions") or (), "PodScheduled", call.now)
    spec = {**pod["spec"], "nodeName": target["name"]}
    bound: FrozenDict = freeze({**pod, "metadata": metadata, "spec": spec, "status": status})
    if not call.dry:
        call.ground.commit(call.objects, call.key, bound)
    return 201, _success(201)


def _check_bindable(call: Call, pod: FrozenDict, given: Json) -> None:
    """Refuse to bind what is another pod, is going away, or has a node."""
    metadata, name = pod["metadata"], call.route.name
    for key, said in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        if given.get(key) and given[key] != metadata[key]:
            detail = (
                f"Precondition failed: {said} in precondition: {given[key]}, {said} in object meta: {metadata[key]}"
            )
            raise conflict("", "pods", name, detail)
    if metadata.get("deletionTimestamp"):
        raise conflict("", "pods/binding", name, f"pod {name} is being deleted, cannot be assigned to a host")
    node = pod["spec"].get("nodeName")
    if node:
        raise conflict("", "pods/binding", name, f'pod {name} is already assigned to node "{node}"')
    if pod["spec"].get("schedulingGates"):
        raise conflict("", "pods/binding", name, f"pod {name} has non-empty .spec.schedulingGates")


def _with_condition(conditions: Sequence[Json], kind: str, now: int, **more: str) -> list[Json]:
    """Return conditions with one that is true, in its place if it is there, and since when it first was."""
    at = next((index for index, each in enumerate(conditions) if each.get("type") == kind), len(conditions))
    was = conditions[at] if at < len(conditions) else EMPTY
    since = was.get("lastTransitionTime") if was.get("status") == "True" else written(now)
    condition = {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": since, **more}
    return [*conditions[:at], condition, *conditions[at + 1 :]]


def evict(call: Call) -> tuple[int, Json]:
    """Delete a pod unless its disruption budget forbids it now: 201 and a Status.

    Raises:
        Refused: 404; 429, the budget is spent; 500, several budgets protect it.
    """
    body = _body(call)
    if (nested(body, "metadata", "name") or "") != call.route.name:
        raise bad_request("name in URL does not match name in Eviction object")
    pod = call.found()
    options = read_options(call, body.get("deleteOptions") or EMPTY)
    phase = nested(pod, "status", "phase")
    unprotected = phase in ("Succeeded", "Failed", "Pending") or pod["metadata"].get("deletionTimestamp")
    if not unprotected:
        _spend(call, pod)
    if not is_dry(call):
        check_preconditions(call, pod, options)
        pod, options = _told_of_eviction(call, pod), attrs.evolve(options, version=None)
    delete_object(call, pod, options)
    return 201, _success(201)


def _told_of_eviction(call: Call, pod: FrozenDict) -> FrozenDict:
    """Write into a pod's conditions why it goes, before it goes."""
    why = {"reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}
    conditions = _with_condition(nested(pod, "status", "conditions") or (), "DisruptionTarget", call.now, **why)
    if conditions == nested(pod, "status", "conditions"):
        return pod
    marked = {**pod, "status": {**(pod.get("status") or EMPTY), "conditions": conditions}}
    return call.ground.commit(call.objects, call.key, freeze(marked))


def _is_ready(pod: Json) -> bool:
    conditions = nested(pod, "status", "conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def _spend(call: Call, pod: FrozenDict) -> None:
    """Take one disruption off the budget that protects a pod."""
    budgets = call.ground.named_collection("policy", "poddisruptionbudgets")
    prefix = f"{call.route.namespace}/"
    mine = [key for key, each in budgets.objects.items() if key.startswith(prefix) and _protects(each, pod)]
    if len(mine) > 1:
        raise internal(MANY_BUDGETS, "InternalError")
    if not mine:
        return
    budget = budgets.objects[mine[0]]
    status = budget.get("status") or EMPTY
    if not _is_ready(pod):
        healthy, wanted = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
        if nested(budget, "spec", "unhealthyPodEvictionPolicy") == "AlwaysAllow" or healthy >= wanted > 0:
            return  # it is not among those that the budget counts
    name = budget["metadata"]["name"]
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        cause = {
            "reason": "DisruptionBudget",
            "message": f"The disruption budget {name} is still being processed by the server.",
        }
        raise too_many_requests("Cannot evict pod as it would violate the pod's disruption budget.", 10, [cause])
    if status.get("disruptionsAllowed", 0) <= 0:
        healthy = f"{status.get('desiredHealthy', 0)} healthy pods and has {status.get('currentHealthy', 0)} currently"
        needs = f"The disruption budget {name} needs {healthy}"
        cause = {"reason": "DisruptionBudget", "message": needs}
        raise too_many_requests("Cannot evict pod as it would violate the pod's disruption budget.", 0, [cause])
    disrupted = {**(status.get("disruptedPods") or {}), call.route.name: written(call.now)}
    left = status["disruptionsAllowed"] - 1
    spent: Json = {**status, "disruptionsAllowed": left, "disruptedPods": disrupted}
    if left == 0:
        others = [each for each in status.get("conditions") or () if each["type"] != "DisruptionAllowed"]
        none_left = {
            "type": "DisruptionAllowed",
            "status": "False",
            "reason": "InsufficientPods",
            "message": "",
            "lastTransitionTime": written(call.now),
            "observedGeneration": status.get("observedGeneration", 0),
        }
        spent["conditions"] = [*others, none_left]
    query = (("fieldManager", "kube-apiserver"), *(pair for pair in call.request.query if pair[0] == "dryRun"))
    where = attrs.evolve(call.route, group="policy", plural="poddisruptionbudgets", name=name, subresource="status")
    request = attrs.evolve(call.request, method="PATCH", query=query)
    own = Call(call.ground, request, where, budgets.kind, budgets, call.now)
    update(own, budget, lambda old: {**old, "status": spent})


def _protects(budget: Json, pod: Json) -> bool:
    selector = nested(budget, "spec", "selector")
    if selector is None:
        return False
    labels = pod["metadata"].get("labels") or EMPTY
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or EMPTY).items()):
        return False
    return all(_holds(each, labels) for each in selector.get("matchExpressions") or ())


def _holds(expression: Json, labels: Json) -> bool:
    key, operator, values = expression["key"], expression["operator"], expression.get("values") or ()
    if operator in ("Exists", "DoesNotExist"):
        return bool((key in labels) == (operator == "Exists"))
    return bool((labels.get(key) in values) == (operator == "In"))


VERBS: dict[str, Callable[[Call], tuple[int, Any]]] = {"binding": bind, "eviction": evict}
