"""Defaults and rules of what pods are made and kept by: deployments and disruption budgets."""

from __future__ import annotations

import re
from collections.abc import Iterator

from iriscw_sims.kube.core_rules import only_status
from iriscw_sims.kube.frozen import EMPTY
from iriscw_sims.kube.kinds import Json, nested
from iriscw_sims.kube.pod_rules import judge_pod_spec
from iriscw_sims.kube.pods import default_pod_spec
from iriscw_sims.kube.refusals import Cause, invalid_value, required_value, unsupported_value


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
    wanted = nested(spec, "selector", "matchLabels") or EMPTY
    if spec.get("selector") is None:
        yield required_value("spec.selector")
    elif not wanted and not nested(spec, "selector", "matchExpressions"):
        yield invalid_value("spec.selector", spec["selector"], "empty selector is invalid for deployment")
    labels = nested(spec, "template", "metadata", "labels") or EMPTY
    if spec.get("selector") is None or any(labels.get(key) != value for key, value in wanted.items()):
        yield invalid_value("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
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
