"""Defaults and rules of what pods are made, kept and placed by: deployments, daemon sets, disruption budgets, network
policies and classes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from iriscw_sims.kube.core_rules import only_status
from iriscw_sims.kube.frozen import EMPTY
from iriscw_sims.kube.kinds import Json, nested
from iriscw_sims.kube.meta import check_name
from iriscw_sims.kube.pod_rules import judge_pod_spec
from iriscw_sims.kube.pods import default_pod_spec
from iriscw_sims.kube.refusals import Cause, forbidden_value, invalid_value, required_value, unsupported_value


def default_deployment(new: Json, old: Json | None) -> None:
    """Fill in a deployment's defaults."""
    spec = new.get("spec")
    if type(spec) is not dict:
        return
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    strategy = spec.setdefault("strategy", {})
    if type(strategy) is dict:
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            if type(rolling) is dict:
                rolling.setdefault("maxUnavailable", "25%")
                rolling.setdefault("maxSurge", "25%")
    _default_template(spec)


def _default_template(spec: Json) -> None:
    inner = nested(spec, "template", "spec")
    if type(inner) is dict:
        default_pod_spec(inner)


def prepare_deployment_status(new: Json, old: Json | None) -> None:
    """As :func:`only_status`; an update of the status leaves labels alone, too."""
    only_status(new, old)
    if old is not None:
        new["metadata"].pop("labels", None)
        if "labels" in old["metadata"]:
            new["metadata"]["labels"] = old["metadata"]["labels"]


def judge_deployment(new: Json, old: Json | None) -> Iterator[Cause]:
    """Judge a deployment: its selector selects its own pods, and is for life."""
    spec = new.get("spec") or EMPTY
    if old is not None and spec.get("selector") != nested(old, "spec", "selector"):
        yield invalid_value("spec.selector", spec.get("selector"), "field is immutable")
    for name in ("replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"):
        yield from _judge_count(spec.get(name), f"spec.{name}")
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None and deadline <= spec.get("minReadySeconds", 0):
        yield invalid_value("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")
    if spec.get("selector") is None:
        yield required_value("spec.selector")
    yield from _judge_selector(spec, "deployment")
    labels = nested(spec, "template", "metadata", "labels") or EMPTY
    if _misses(spec):
        yield invalid_value("spec.template.metadata.labels", labels, _MISSES)
    yield from _judge_template(spec)


_MISSES = "`selector` does not match template `labels`"


def _judge_selector(spec: Json, what: str) -> Iterator[Cause]:
    selector = spec.get("selector")
    if selector is not None and not selector.get("matchLabels") and not selector.get("matchExpressions"):
        yield invalid_value("spec.selector", selector, f"empty selector is invalid for {what}")


def _misses(spec: Json) -> bool:
    """Tell whether the selector beside a template does not select its pods."""
    wanted = nested(spec, "selector", "matchLabels") or EMPTY
    labels = nested(spec, "template", "metadata", "labels") or EMPTY
    return spec.get("selector") is None or any(labels.get(key) != value for key, value in wanted.items())


def _judge_template(spec: Json) -> Iterator[Cause]:
    template = nested(spec, "template", "spec") or EMPTY
    yield from judge_pod_spec(template, "spec.template.spec")
    if template.get("restartPolicy") != "Always":
        yield unsupported_value("spec.template.spec.restartPolicy", template.get("restartPolicy"), ("Always",))


_REPLICAS = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas")


def judge_deployment_status(new: Json, old: Json | None) -> Iterator[Cause]:
    """Judge a deployment's status: it counts, and no part is more than the whole."""
    status = new.get("status") or EMPTY
    for name in ("observedGeneration", *_REPLICAS, "terminatingReplicas", "collisionCount"):
        yield from _judge_count(status.get(name), f"status.{name}")
    replicas, ready = status.get("replicas", 0), status.get("readyReplicas", 0)
    for name in ("updatedReplicas", "readyReplicas", "availableReplicas"):
        if status.get(name, 0) > replicas:
            yield invalid_value(f"status.{name}", status.get(name, 0), "cannot be greater than status.replicas")
    if status.get("availableReplicas", 0) > ready:
        available = status["availableReplicas"]
        yield invalid_value("status.availableReplicas", available, "cannot be greater than readyReplicas")


def _judge_count(value: int | None, at: str) -> Iterator[Cause]:
    if value is not None and value < 0:
        yield invalid_value(at, value, "must be greater than or equal to 0")


TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
"""An annotation that each daemon set has, and that counts changes of its template."""


def default_daemon_set(new: Json, old: Json | None) -> None:
    """Fill in a daemon set's defaults."""
    spec = new.get("spec")
    if type(spec) is not dict:
        return
    spec.setdefault("revisionHistoryLimit", 10)
    strategy = spec.setdefault("updateStrategy", {})
    if type(strategy) is dict:
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            if type(rolling) is dict:
                rolling.setdefault("maxUnavailable", 1)
                rolling.setdefault("maxSurge", 0)
    _default_template(spec)


_NO_DAEMONS = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")


def prepare_daemon_set(new: Json, old: Json | None) -> None:
    """Begin a daemon set on no node, and count the changes of its template."""
    number = 1
    if old is None:
        new["status"] = dict.fromkeys(_NO_DAEMONS, 0)
    else:
        is_same = nested(new, "spec", "template") == nested(old, "spec", "template")
        number = int(nested(old, "metadata", "annotations", TEMPLATE_GENERATION) or 0) + (not is_same)
    annotations = new["metadata"].get("annotations") or {}
    new["metadata"]["annotations"] = {**annotations, TEMPLATE_GENERATION: str(number)}


def judge_daemon_set(new: Json, old: Json | None) -> Iterator[Cause]:
    """Judge a daemon set: its selector selects its own pods, and is for life."""
    spec = new.get("spec") or EMPTY
    if old is not None and spec.get("selector") != nested(old, "spec", "selector"):
        yield invalid_value("spec.selector", spec.get("selector"), "field is immutable")
    if _misses(spec):
        yield invalid_value("spec.template.metadata.labels", nested(spec, "template", "metadata", "labels"), _MISSES)
    yield from _judge_selector(spec, "daemonset")
    yield from _judge_template(spec)
    for name in ("minReadySeconds", "revisionHistoryLimit"):
        yield from _judge_count(spec.get(name), f"spec.{name}")


def default_network_policy(new: Json, old: Json | None) -> None:
    """Fill in a network policy's defaults: what it is about follows from the rules that it has."""
    spec = new.get("spec")
    if type(spec) is not dict:
        return
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", *(["Egress"] if spec.get("egress") else [])]
    for rule in (*(spec.get("ingress") or ()), *(spec.get("egress") or ())):
        for port in (rule.get("ports") or ()) if type(rule) is dict else ():
            if type(port) is dict:
                port.setdefault("protocol", "TCP")


MOST_PRIORITY = 1_000_000_000
"""Of a class that users make; what is above is the system's."""


def default_priority_class(new: Json, old: Json | None) -> None:
    """Fill in a priority class' default."""
    new.setdefault("preemptionPolicy", "PreemptLowerPriority")


def prepare_priority_class(new: Json, old: Json | None) -> None:
    """Begin a priority class: its generation never changes, and neither does what it means."""
    if old is None:
        new["metadata"]["generation"] = 1


def judge_priority_class(new: Json, old: Json | None) -> Iterator[Cause]:
    """Judge a priority class: its value has a bound, and is for life."""
    if old is not None and new.get("value", 0) != old.get("value", 0):
        yield forbidden_value("value", "may not be changed in an update.")
    if old is not None and new.get("preemptionPolicy") != old.get("preemptionPolicy"):
        yield invalid_value("preemptionPolicy", new.get("preemptionPolicy"), "field is immutable")
    if old is None and new.get("value", 0) > MOST_PRIORITY:
        yield forbidden_value("value", f"maximum allowed value of a user defined priority is {MOST_PRIORITY}")


def judge_runtime_class(new: Json, old: Json | None) -> Iterator[Cause]:
    """Judge a runtime class: its handler is there, and for life."""
    if old is not None and new.get("handler") != old.get("handler"):
        yield invalid_value("handler", new.get("handler"), "field is immutable")
    if not new.get("handler"):
        yield required_value("handler")
    else:
        yield from check_name("label", new["handler"], "handler")


def prepare_budget_status(new: Json, old: Json | None) -> None:
    """Begin a budget with nothing allowed."""
    only_status(new, old)
    if old is None:
        new["status"] = {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}


_PERCENT = re.compile(r"[0-9]+%")


def judge_budget(new: Json, old: Json | None) -> Iterator[Cause]:
    """Judge a disruption budget: one number of pods, or one percentage."""
    spec = new.get("spec") or EMPTY
    if "minAvailable" in spec and "maxUnavailable" in spec:
        yield invalid_value("spec", spec, "minAvailable and maxUnavailable cannot be both set")
    for name in ("minAvailable", "maxUnavailable"):
        if name in spec:
            yield from _judge_share(spec[name], f"spec.{name}")


def _judge_share(value: int | str, at: str) -> Iterator[Cause]:
    if isinstance(value, int):
        yield from _judge_count(value, at)
    elif not _PERCENT.fullmatch(value):
        said = "a valid percent string must be a numeric string followed by an ending '%'"
        yield invalid_value(at, value, said)
    elif int(value[:-1]) > 100:
        yield invalid_value(at, value, "must not be greater than 100%")


def judge_budget_status(new: Json, old: Json | None) -> Iterator[Cause]:
    """Judge a disruption budget's status: it counts."""
    status = new.get("status") or EMPTY
    for name in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"):
        yield from _judge_count(status.get(name), f"status.{name}")
