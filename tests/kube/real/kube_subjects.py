"""What random programs are about: collections, and values to draw for their objects.

Everything is drawn from short lists, since two requests only interfere when they name the same thing; each list has
values that the server refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
from hypothesis import strategies as st
from kube_requests import (
    BUDGETS,
    DEPLOYMENTS,
    EVENTS,
    GADGETS,
    LEASES,
    MAPS,
    NAMESPACES,
    NODES,
    PODS,
    POOLS,
    WIDGETS,
    config_map,
    lease,
    node,
    pod,
    pool,
    widget,
)

Strategy = st.SearchStrategy


@attrs.frozen
class Subject:
    """A collection that a program is about.

    ``spec`` draws changes of an object of it, beside its metadata; ``status`` changes of its status, where it has one.
    ``fields`` are field selectors beside the name's. ``everywhere``: whether it is also listed over all namespaces.
    ``ours`` is a field selector that leaves out what the server made for itself.
    """

    path: str
    make: Callable[[str], dict[str, Any]]
    spec: Strategy[dict[str, Any]]
    names: tuple[str, ...] = ("a", "b")
    status: Strategy[dict[str, Any]] | None = None
    fields: tuple[str, ...] = ()
    strategic: bool = True
    everywhere: bool = True
    ours: str = ""


def one_of(*values: Any) -> Strategy[Any]:
    """Draw one of a few values; it shrinks to the first."""
    return st.sampled_from(values)


def rarely(values: Strategy[Any], one_in: int = 6) -> Strategy[Any]:
    """Draw None mostly, else one of ``values``."""
    return st.integers(0, one_in - 1).flatmap(lambda drawn: values if drawn == one_in - 1 else st.none())


def some_of(**values: Strategy[Any]) -> Strategy[dict[str, Any]]:
    """Draw some keys and a value for each."""
    return st.fixed_dictionaries({}, optional=values)


# What may stand in objects

LABELS = st.dictionaries(one_of("app", "tier", "app", "a b"), one_of("x", "y", None, "x", "y", "-"), max_size=2)
OWNERS = st.lists(
    st.fixed_dictionaries(
        {
            "apiVersion": one_of("v1", "v1", "", "a/b/c"),
            "kind": one_of("Pod", "Pod", ""),
            "name": one_of("a"),
            "uid": one_of("u1", "u2", ""),
        },
        optional={"controller": one_of(True, False), "blockOwnerDeletion": one_of(True)},
    ),
    max_size=2,
    unique_by=lambda owner: owner["uid"],
)
FINALIZERS = st.lists(one_of("iriscw.dev/one", "iriscw.dev/two", "foregroundDeletion"), max_size=2, unique=True)
METADATA = some_of(
    ownerReferences=st.one_of(st.none(), st.none(), st.none(), OWNERS),
    labels=LABELS,
    annotations=st.dictionaries(one_of("note", "iriscw.dev/note"), one_of("1", "2", None), max_size=2),
    finalizers=st.one_of(
        one_of(["iriscw.dev/one"], [], None, ["iriscw.dev/one", "iriscw.dev/two"]), FINALIZERS, one_of(["bad"], None)
    ),
)
DATA = some_of(data=st.dictionaries(one_of("k", "l"), one_of("1", "2", None), max_size=2), immutable=one_of(None, True))
CONDITIONS = st.lists(
    st.fixed_dictionaries(
        {"type": one_of("Ready", "Quota"), "status": one_of("True", "False")}, optional={"reason": one_of("Under")}
    ),
    max_size=2,
    unique_by=lambda condition: condition["type"],
)
POD_SPEC = some_of(
    spec=some_of(
        activeDeadlineSeconds=one_of(60, 30, 90, None, -1),
        restartPolicy=one_of("Always", "Never", "Sometimes"),
        tolerations=one_of([{"key": "k", "operator": "Exists"}], [], None),
        nodeName=one_of("g1", "g2"),
        terminationGracePeriodSeconds=one_of(30, 5),
        unknown=one_of(1),
    )
)
POD_STATUS = some_of(
    phase=one_of("Pending", "Running", "Succeeded", "Failed"),
    podIP=one_of("10.1.2.3", "10.1.2.4"),
    reason=one_of("Evicted", None),
    conditions=CONDITIONS,
)
NODE_SPEC = some_of(
    spec=some_of(
        unschedulable=one_of(True, False, None),
        taints=one_of([{"key": "k", "effect": "NoSchedule"}], [], None, [{"key": "k", "effect": "Sometimes"}]),
        providerID=one_of("coreweave://1", "coreweave://2"),
    )
)
NODE_STATUS = some_of(
    conditions=CONDITIONS,
    capacity=one_of({"nvidia.com/gpu": "8"}, {"cpu": 128, "memory": "1024Gi"}),
    addresses=one_of([{"type": "InternalIP", "address": "10.0.0.1"}], []),
)
POOL_SPEC = some_of(
    spec=some_of(
        targetNodes=one_of(1, 2, 3, 0, None, -1, "3", 1.5),
        computeClass=one_of("default", "spot", None),
        autoscaling=one_of(True, False, None),
        nodeLabels=one_of({"a": "b"}, {"a": 1}, None),
        nodeTaints=one_of([{"key": "k", "effect": "NoSchedule"}], [{"key": "k"}], []),
        lifecycle=one_of({"scaleDownStrategy": "PreferIdle"}, {}, None, {"scaleDownStrategy": "Never"}),
        instanceType=one_of("b200", None),
        unknown=one_of(1),
    )
)
POOL_STATUS = some_of(currentNodes=one_of(0, 1, 2), queuedNodes=one_of(1), conditions=CONDITIONS)
WIDGET_SPEC = some_of(
    spec=some_of(
        size=one_of(1, 10, 0, 11, None, "1", 2.0, True),
        ratio=one_of(0.5, 1, 0, -1.5, "1"),
        step=one_of(5, 10, 3),
        name=one_of("abc", "a", "abcdef", "AB", ""),
        when=one_of("2026-01-02T03:04:05Z", "yesterday", "2026-13-02T03:04:05Z"),
        port=one_of(80, "http", True, 1.5),
        maybe=one_of("word", None, 1),
        free=one_of({"x": [1, {"y": None}]}, {}, [], None),
        labels=one_of({"a": 1}, {"a": "1"}, {"a": 1, "b": 2, "c": 3}, {}),
        plain=one_of(["x"], [], ["x", "x"], ["w", "x", "y", "z"], [1]),
        set=one_of(["x", "y"], ["y"], ["x", "x"], []),
        ports=st.lists(
            some_of(port=one_of(1, 2, "3"), protocol=one_of("TCP", "UDP", None), unknown=one_of(1)), max_size=2
        ),
        nested=some_of(mode=one_of("fast", "slow", "still", None), count=one_of(1, 2, "1")),
        atomic=one_of({"a": "1"}, {"b": "2"}, {}, None),
        left=one_of("l"),
        right=one_of("r"),
        unknown=one_of(1),
    )
)
WIDGET_STATUS = some_of(ready=one_of(1, 2, "1"), phase=one_of("Up", "Down"), unknown=one_of(1))
LEASE_SPEC = some_of(
    spec=some_of(
        holderIdentity=one_of("me", "you", None, ""),
        leaseDurationSeconds=one_of(15, 30, 0, -1),
        leaseTransitions=one_of(0, 1, -1),
        renewTime=one_of("2026-01-02T03:04:05.678901Z", "2026-01-02T03:04:06Z", "2026-01-02T03:04:05.5+01:00", "soon"),
    )
)
DEPLOYMENT_SPEC = some_of(
    spec=some_of(
        replicas=one_of(1, 2, 0, -1), paused=one_of(True, None), minReadySeconds=one_of(0, 5), unknown=one_of(1)
    )
)
BUDGET_SPEC = some_of(spec=some_of(minAvailable=one_of(1, "50%", "fifty", -1), maxUnavailable=one_of(1)))
BUDGET_STATUS = some_of(
    disruptionsAllowed=one_of(0, 1), observedGeneration=one_of(1, 2), currentHealthy=one_of(1), desiredHealthy=one_of(1)
)
SECRET_SPEC = some_of(
    type=one_of("Opaque", "test.iriscw.dev/x"),
    data=st.dictionaries(one_of("k", "l", "a/b"), one_of("MQ==", "Mg==", None, "?"), max_size=2),
    stringData=st.dictionaries(one_of("k", "l"), one_of("1", "", None), max_size=2),
    immutable=one_of(None, True),
)
GADGET_SPEC = some_of(
    spec=some_of(
        size=one_of(1, 2, None, "1"),
        new=one_of("x", "y", None),
        old=one_of("x", "y", None),
        parts=st.lists(st.fixed_dictionaries({"name": one_of("a", "b")}, optional={"size": one_of(1, 2)}), max_size=2),
    )
)
GADGET_STATUS = some_of(phase=one_of("Up", "Down"))
EVENT_FIELDS = some_of(count=one_of(1, 2), message=one_of("m", "n"), type=one_of("Normal", "Warning"))
NAMESPACE_FIELDS = some_of(spec=some_of(finalizers=one_of(["kubernetes"], [])))


def _deployment(name: str) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "main", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"app": "x"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def _secret(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": {"k": "MQ=="}}


def gadget(name: str, version: str) -> dict[str, Any]:
    """A Gadget, in one of its versions."""
    return {"apiVersion": f"test.iriscw.dev/{version}", "kind": "Gadget", "metadata": {"name": name}, "spec": {}}


def _budget(name: str) -> dict[str, Any]:
    spec = {"selector": {"matchLabels": {"app": "x"}}}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec}


def _event(name: str) -> dict[str, Any]:
    about = {"kind": "Pod", "name": "a", "namespace": "alpha"}
    return {"apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "involvedObject": about, "reason": "R"}


def namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"app": "x"}}}


OURS = ",".join(
    f"metadata.name!={name}"
    for name in ("default", "kube-system", "kube-public", "kube-node-lease", "alpha", "beta", "canary")
)
"""Namespaces that a program made."""

SUBJECTS = {
    # The server keeps some for itself in kube-system: a page over all namespaces would tell of them.
    "configmaps": Subject(MAPS, config_map, DATA, everywhere=False),
    "configmaps of beta": Subject("/api/v1/namespaces/beta/configmaps", config_map, DATA, everywhere=False),
    "pods": Subject(
        PODS,
        pod,
        POD_SPEC,
        status=POD_STATUS,
        fields=("status.phase=Running", "spec.nodeName=g1", "spec.nodeName!=g1", "status.podIP=", "spec.unknown=1"),
    ),
    "pods with a node": Subject(
        PODS, lambda name: pod(name, "g1"), POD_SPEC, status=POD_STATUS, fields=("spec.nodeName=g1",)
    ),
    "nodes": Subject(
        NODES, node, NODE_SPEC, ("g1", "g2"), NODE_STATUS, ("spec.unschedulable=true", "spec.unschedulable!=true")
    ),
    "nodepools": Subject(POOLS, pool, POOL_SPEC, ("h100", "b200"), POOL_STATUS, strategic=False),
    "widgets": Subject(
        WIDGETS,
        lambda name: widget(name, {}),
        WIDGET_SPEC,
        status=WIDGET_STATUS,
        fields=("spec.nested.mode=fast", "spec.size=1"),
        strategic=False,
    ),
    "secrets": Subject("/api/v1/namespaces/alpha/secrets", _secret, SECRET_SPEC, fields=("type=Opaque",)),
    "gadgets": Subject(GADGETS, lambda name: gadget(name, "v1"), GADGET_SPEC, status=GADGET_STATUS, strategic=False),
    "gadgets of v2": Subject(
        GADGETS.replace("/v1/", "/v2/"),
        lambda name: gadget(name, "v2"),
        GADGET_SPEC,
        status=GADGET_STATUS,
        strategic=False,
    ),
    "leases": Subject(LEASES, lease, LEASE_SPEC),
    "deployments": Subject(DEPLOYMENTS, _deployment, DEPLOYMENT_SPEC, status=some_of(replicas=one_of(1, 2, -1))),
    "budgets": Subject(BUDGETS, _budget, BUDGET_SPEC, status=BUDGET_STATUS),
    # The server tells of its own repairs in default: a list over all namespaces would have them.
    "events": Subject(
        EVENTS, _event, EVENT_FIELDS, everywhere=False, fields=("involvedObject.name=a", "type=Warning", "reason!=R")
    ),
    "namespaces": Subject(
        NAMESPACES, namespace, NAMESPACE_FIELDS, ("run-${run}", "run-${run}-b"), everywhere=False, ours=OURS
    ),
    "configmaps of a new namespace": Subject(
        "/api/v1/namespaces/run-${run}/configmaps", config_map, DATA, everywhere=False
    ),
}
