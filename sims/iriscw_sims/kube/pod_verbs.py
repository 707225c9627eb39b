"""What is asked of a pod by other words than update: binding it to a node, and evicting it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from iriscw_sims.kube.call import Call
from iriscw_sims.kube.clock import written
from iriscw_sims.kube.deletion import delete_object, read_options
from iriscw_sims.kube.frozen import EMPTY, FrozenDict, freeze
from iriscw_sims.kube.kinds import Json, nested
from iriscw_sims.kube.refusals import (
    bad_request,
    conflict,
    internal,
    invalid,
    required_value,
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


def bind(call: Call) -> tuple[int, Json]:
    """Bind a pod to a node, as a scheduler does: 201 and a Status.

    Raises:
        Refused: 404, 409 (it is bound, or going away), 422 (no node is named).
    """
    body = _body(call)
    target = nested(body, "target", "name")
    if not target:
        raise invalid("", "Binding", call.route.name, [required_value("target.name")])
    pod = call.found()
    metadata = pod["metadata"]
    uid = nested(body, "metadata", "uid")
    if uid and uid != metadata["uid"]:
        said = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {metadata['uid']}"
        raise conflict("", "pods/binding", call.route.name, said)
    if metadata.get("deletionTimestamp"):
        said = f"pod {call.route.name} is being deleted, cannot be assigned to a host"
        raise conflict("", "pods/binding", call.route.name, said)
    node = pod["spec"].get("nodeName")
    if node:
        said = f'pod {call.route.name} is already assigned to node "{node}"'
        raise conflict("", "pods/binding", call.route.name, said)
    if pod["spec"].get("schedulingGates"):
        said = f"pod {call.route.name} has non-empty .spec.schedulingGates"
        raise conflict("", "pods/binding", call.route.name, said)
    condition = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": written(call.now),
    }
    others = [each for each in nested(pod, "status", "conditions") or () if each.get("type") != "PodScheduled"]
    status = {**pod["status"], "conditions": [*others, condition]}
    bound = {**pod, "spec": {**pod["spec"], "nodeName": target}, "status": status}
    if not call.dry:
        call.ground.commit(call.objects, call.key, freeze(bound))
    return 201, _success(201)


def evict(call: Call) -> tuple[int, Json]:
    """Delete a pod unless its disruption budget forbids it now: 201 and a Status.

    Raises:
        Refused: 404; 429, the budget is spent; 500, several budgets protect it.
    """
    body = _body(call)
    name = nested(body, "metadata", "name")
    if name and name != call.route.name:
        raise bad_request("name in URL does not match name in Eviction object")
    pod = call.found()
    options = read_options(call, body.get("deleteOptions") or EMPTY)
    phase = nested(pod, "status", "phase")
    unprotected = phase in ("Succeeded", "Failed", "Pending") or pod["metadata"].get("deletionTimestamp")
    if not unprotected:
        _spend(call, pod)
    delete_object(call, pod, options)
    return 201, _success(201)


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
