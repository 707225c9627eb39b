"""What random programs found, by hand: each scenario is a difference that was, in as few requests as show it.

The differences are mended; the recorded answers keep them so on machines that have no real server.
"""

from __future__ import annotations

from typing import Any

from kube_program import JSON_PATCH, MERGE, Ask, OpenWatch, Program
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
    ROLES,
    WIDGETS,
    apply,
    changed,
    config_map,
    delete,
    get,
    lease,
    node,
    patch,
    pod,
    pool,
    post,
    put,
    role,
    widget,
)

A = f"{MAPS}/a"
SECRETS = "/api/v1/namespaces/alpha/secrets"
NEWER = GADGETS.replace("/v1/", "/v2/")
BAD = {"metadata": {"finalizers": ["bad"]}}
ODD_LABELS = {"metadata": {"labels": {"a b": "x"}}}
FAR = {"metadata": {"deletionTimestamp": "2030-01-01T00:00:00Z", "deletionGracePeriodSeconds": 5}}


def _event(name: str, **metadata: Any) -> dict[str, Any]:
    about = {"kind": "Pod", "name": "a", "namespace": "alpha"}
    return {"metadata": {"name": name, **metadata}, "involvedObject": about, "reason": "R"}


def _budget(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": "x"}}, **spec}}


def _lasting(name: str, grace_s: int, **spec: Any) -> dict[str, Any]:
    body = pod(name)
    return {**body, "spec": {**body["spec"], "nodeName": "n", "terminationGracePeriodSeconds": grace_s, **spec}}


def _deployment(name: str, **metadata: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "main", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"app": "x"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, **metadata}, "spec": spec}


def _gadget(name: str, version: str, **spec: Any) -> dict[str, Any]:
    kind = {"apiVersion": f"test.iriscw.dev/{version}", "kind": "Gadget"}
    return {**kind, "metadata": {"name": name}, "spec": spec}


def _watch(path: str, *query: tuple[str, str]) -> OpenWatch:
    return OpenWatch("w", path, query)


def _bind(name: str, node_name: str = "g1", body: Any = None, **metadata: Any) -> Ask:
    target = {"name": node_name} if body is None else body
    return post(f"{PODS}/{name}/binding", {"metadata": {"name": name, **metadata}, "target": target})


def _evict(name: str, **options: Any) -> Ask:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    return post(f"{PODS}/{name}/eviction", {**body, "deleteOptions": options})


_ROLE = f"{ROLES}/namespaces/alpha/roles"
_KINDS = {
    MAPS: config_map("a"),
    PODS: pod("a"),
    NODES: node("a"),
    LEASES: lease("a"),
    EVENTS: _event("a"),
    BUDGETS: _budget("a"),
    DEPLOYMENTS: _deployment("a"),
    _ROLE: role("Role", "a"),
    WIDGETS: widget("a", {}),
}

FINDINGS: dict[str, Program] = {
    "how often a mistake in metadata is told": tuple(
        step
        for path, body in _KINDS.items()
        for step in (
            post(path, {**body, "metadata": {**body["metadata"], **BAD["metadata"]}}),
            delete(f"{path}/a"),
            post(path, body),
            patch(f"{path}/a", ODD_LABELS),
            patch(f"{path}/a", FAR),
            patch(f"{path}/a", {"metadata": {"ownerReferences": [{"apiVersion": "a/b/c", "kind": "", "name": "n"}]}}),
            patch(f"{path}/a", BAD),
            *((patch(f"{path}/a/status", BAD), patch(f"{path}/a/status", FAR)) if "spec" in body else ()),
        )
    ),
    "names that only paths forbid": (
        post(BUDGETS, _budget("A_b")),
        post(EVENTS, _event("A B")),
        post(EVENTS, _event("a%b")),
    ),
    "a name beside a prefix": (
        post(MAPS, config_map("a")),
        post(MAPS, config_map("a", generateName="b-")),
    ),
    "a PUT that creates, with a version": (
        put(f"{LEASES}/a", {**lease("a"), "metadata": {"name": "a", "resourceVersion": "7"}}),
        put(f"{LEASES}/b", {**lease("b"), "metadata": {"name": "b", "resourceVersion": "word"}}),
        put(f"{EVENTS}/a", _event("a", resourceVersion="7")),
    ),
    "a deletion is told as it was stored": (
        _watch(MAPS),
        post(MAPS, config_map("a", {"k": "1"}, finalizers=["iriscw.dev/one"])),
        delete(A),
        patch(A, {"data": {"k": "2"}, "metadata": {"finalizers": None}}),
        get(A),
    ),
    "finalizers of deletion keep their order": (
        post(MAPS, config_map("a", finalizers=["foregroundDeletion", "iriscw.dev/one"])),
        delete(A),
        post(f"{MAPS}", config_map("b", finalizers=["iriscw.dev/one"])),
        delete(f"{MAPS}/b", {"propagationPolicy": "Foreground"}),
    ),
    "events own nothing": (
        post(EVENTS, _event("a")),
        delete(f"{EVENTS}/a", {"propagationPolicy": "Orphan"}),
        post(EVENTS, _event("b", finalizers=["iriscw.dev/one"])),
        delete(f"{EVENTS}/b", {"propagationPolicy": "Foreground"}),
        get(f"{EVENTS}/b", resourceVersion="word"),
    ),
    "pages of what is not cached": (
        post(EVENTS, _event("a")),
        post(EVENTS, _event("b")),
        get(EVENTS, limit="1", resourceVersion="0"),
        post(MAPS, config_map("a")),
        post(MAPS, config_map("b")),
        get(MAPS, limit="1", resourceVersion="0"),
    ),
    "a namespace's preconditions": (
        post(NAMESPACES, {"metadata": {"name": "run-${run}"}}),
        delete(f"{NAMESPACES}/run-${{run}}", {"preconditions": {"resourceVersion": "1"}}),
        delete(f"{NAMESPACES}/run-${{run}}", {"preconditions": {"uid": "wrong"}}),
    ),
    "a body's options replace the query's": (
        post(MAPS, config_map("a", finalizers=["iriscw.dev/one"])),
        delete(A, {}, propagationPolicy="Foreground"),
        delete(A, None, propagationPolicy="Sometimes"),
        delete(A, {}, dryRun="Some"),
    ),
    "options are judged together": (
        post(MAPS, config_map("a"), dryRun="Some", fieldValidation="Maybe"),
        put(A, config_map("a"), dryRun="Some", fieldValidation="Maybe"),
        patch(A, {}, dryRun="Some", fieldValidation="Maybe", force="true"),
        post(MAPS, config_map("a"), fieldManager="m" * 129),
        get(PODS, labelSelector="a in b", resourceVersionMatch="Exact"),
        get(PODS, fieldSelector="spec.unknown=1", resourceVersionMatch="Exact"),
        get(PODS, fieldSelector="spec.unknown=1"),
        Ask("DELETE", PODS, (("fieldSelector", "spec.unknown=1"),), {"propagationPolicy": "Sometimes"}),
    ),
    "a list of one name has one page": (
        post(MAPS, config_map("a")),
        post(MAPS, config_map("b")),
        get(MAPS, fieldSelector="metadata.name=a", limit="1"),
        get(MAPS, fieldSelector="metadata.name!=b", limit="1"),
        get("/api/v1/configmaps", fieldSelector="metadata.name=a,metadata.namespace=alpha", limit="1"),
    ),
    "watches without a version": (
        post(WIDGETS, widget("a", {})),
        OpenWatch("v", WIDGETS, (("allowWatchBookmarks", "true"),)),
        OpenWatch("w", EVENTS, (("allowWatchBookmarks", "true"),)),
    ),
    "who tries to change what is kept": (
        post(NAMESPACES, {"metadata": {"name": "run-${run}"}}),
        patch(f"{NAMESPACES}/run-${{run}}", {"spec": {"finalizers": []}}, fieldManager="one"),
        post(DEPLOYMENTS, _deployment("a", labels={"app": "x"})),
        patch(f"{DEPLOYMENTS}/a/status", {"metadata": {"labels": {"app": "y"}}, "status": {"replicas": -1}}),
        patch(f"{DEPLOYMENTS}/a/status", {"metadata": {"labels": {"app": "y"}}, "status": {"replicas": 1}}),
        patch(f"{DEPLOYMENTS}/a", {"metadata": {"annotations": {"note": "1"}}}),
        patch(f"{DEPLOYMENTS}/a/status", {"metadata": {"annotations": {"note": "2"}}}),
    ),
    "a status that does not fit leaves nobody an owner": (
        post(WIDGETS, widget("a", {})),
        patch(f"{WIDGETS}/a/status", {"spec": {"size": "big"}}),
        apply(f"{WIDGETS}/a/status", {**widget("a"), "status": {"ready": 1}}, "one"),
        apply(f"{WIDGETS}/b/status", {**widget("b"), "spec": {"unknown": 1}}, "one"),
        apply(f"{WIDGETS}/a", widget("a", {"set": ["x", "x"]}), "one"),
        apply(f"{WIDGETS}/a", widget("a", {"ports": [{"protocol": "UDP"}]}), "one"),
        apply(f"{WIDGETS}/a", widget("a", {"size": "big"}), "one"),
    ),
    "a field goes with what nobody owned in it": (
        apply(f"{NODES}/g1", {**node("g1"), "spec": {"unschedulable": True}}, "one"),
        apply(f"{NODES}/g1", node("g1"), "one"),
        apply(f"{NODES}/g2", {**node("g2"), "status": {"capacity": {"cpu": "1"}}}, "one"),
        apply(f"{NODES}/g2", {**node("g2"), "status": {"capacity": {"cpu": "2"}}}, "two"),
    ),
    "an applied pod keeps the tolerations of admission": (
        post(PODS, pod("a")),
        apply(f"{PODS}/a", {**pod("a"), "spec": {**pod("a")["spec"], "tolerations": []}}, "one"),
        patch(f"{PODS}/a", {"spec": {"tolerations": [{"key": "", "operator": "Maybe"}]}}),
        patch(f"{PODS}/a", {"spec": {"activeDeadlineSeconds": 60, "restartPolicy": "Sometimes"}}),
        patch(f"{PODS}/a", {"spec": {"activeDeadlineSeconds": 60}}),
        patch(f"{PODS}/a", {"spec": {"activeDeadlineSeconds": 90}}),
        patch(f"{PODS}/a", {"spec": {"activeDeadlineSeconds": None}}),
    ),
    "empty maps that were applied are stored": (
        apply(f"{WIDGETS}/a", {**widget("a", {}), "metadata": {"name": "a", "labels": {}}}, "one"),
        put(f"{WIDGETS}/a", changed(f"{WIDGETS}/a", {})),
        put(f"{WIDGETS}/a", changed(f"{WIDGETS}/a", {})),
    ),
    "finalizers of custom resources are warned of": (
        post(WIDGETS, widget("a", {}, finalizers=["bad", "iriscw.dev/one"])),
        patch(f"{WIDGETS}/a", {"metadata": {"finalizers": ["bad", "worse.dev"]}}),
        apply(f"{WIDGETS}/a", widget("a", {}, finalizers=["worst"]), "one"),
    ),
    "numbers": (
        post(POOLS, {**pool("a"), "spec": {"targetNodes": 1.5}}),
        post(WIDGETS, widget("a", {"size": 0.5})),
        post(BUDGETS, _budget("a", minAvailable="101%", maxUnavailable=-1)),
        post(BUDGETS, _budget("a", minAvailable="fifty")),
        post(DEPLOYMENTS, {**_deployment("a"), "spec": {**_deployment("a")["spec"], "replicas": -1}}),
        post(DEPLOYMENTS, {"metadata": {"name": "a"}}),
        post(SECRETS, {"metadata": {"name": "a"}, "data": {"a/b": "MQ==", "..": "MQ=="}}),
    ),
    "bindings": (
        post(f"{PODS}/a/binding", {"target": {"name": "g1"}}),
        _bind("a"),
        post(PODS, pod("a")),
        _bind("a", body={}),
        _bind("a", body={"kind": "Pod", "name": "g1"}),
        _bind("a", uid="wrong"),
        _bind("a", labels={"rack": "r"}, annotations={"note": "1"}),
        get(f"{PODS}/a"),
        _bind("a"),
        post(f"{PODS}/a/eviction", {}),
    ),
    "an eviction says why": (
        OpenWatch("w", PODS),
        post(PODS, pod("a", "g1", finalizers=["iriscw.dev/one"])),
        _evict("a", dryRun=["All"]),
        _evict("a", preconditions={"resourceVersion": "1"}),
        _evict("a", preconditions={"uid": "wrong"}),
        _evict("a"),
        _evict("a"),
        get(f"{PODS}/a"),
        post(PODS, pod("b")),
        _evict("b"),
    ),
    "an eviction of what is not ready": (
        post(BUDGETS, _budget("a", minAvailable=1)),
        patch(f"{BUDGETS}/a/status", {"status": {"observedGeneration": 1, "currentHealthy": 1, "desiredHealthy": 1}}),
        post(PODS, pod("a", "g1", labels={"app": "x"})),
        patch(
            f"{PODS}/a/status", {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
        ),
        _evict("a"),
        patch(f"{PODS}/a/status", {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
        _evict("a"),
        get(f"{BUDGETS}/a"),
    ),
    "scales and their owner": (
        post(DEPLOYMENTS, _deployment("a")),
        patch(f"{DEPLOYMENTS}/a/scale", {"spec": {"replicas": 3}}, fieldManager="one"),
        get(f"{DEPLOYMENTS}/a"),
        patch(f"{DEPLOYMENTS}/a/scale", {"spec": {"replicas": 0}}, fieldManager="two"),
        patch(f"{DEPLOYMENTS}/a/scale", {"spec": {"replicas": 2}}, fieldManager="two"),
        get(f"{DEPLOYMENTS}/a"),
        post(WIDGETS, widget("a", {})),
        patch(f"{WIDGETS}/a/scale", {"spec": {"replicas": -1}}),
    ),
    "managers beyond the tenth": (
        # The oldest are joined, and those of one second by name: names in the order of the requests make both the same.
        post(MAPS, config_map("a", {"k": "0"}), fieldManager="first"),
        *(patch(A, {"data": {f"k{number}": "1"}}, fieldManager=f"m{number:02}") for number in range(12)),
        get(A),
    ),
    "two versions": (
        OpenWatch("old", GADGETS),
        OpenWatch("new", NEWER),
        post(NEWER, _gadget("a", "v2", new="x")),
        get(f"{GADGETS}/a"),
        patch(f"{GADGETS}/a", {"spec": {"old": "x", "size": 1}}),
        get(f"{NEWER}/a"),
        patch(f"{NEWER}/a", {}),
        get(f"{GADGETS}/a"),
        patch(f"{NEWER}/a", {"spec": {"size": 2}}, dryRun="All"),
        get(NEWER),
        get(GADGETS),
        patch(f"{NEWER}/a", [{"op": "test", "path": "/spec/old", "value": "x"}], JSON_PATCH),
        Ask("PATCH", f"{NEWER}/a/status", (), {"status": {"phase": "Up"}}, MERGE),
        post(NEWER, _gadget("b", "v1")),
        delete(f"{GADGETS}/a"),
    ),
    "an apply creates with the defaults of the kind": (
        apply(f"{PODS}/a", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}, "one"),
        apply(f"{DEPLOYMENTS}/a", {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}}, "one"),
        apply(f"{DEPLOYMENTS}/a", _deployment("a"), "one"),
    ),
    "a status of another version": (
        post(GADGETS, {**_gadget("a", "v1"), "metadata": {"name": "a", "annotations": {"note": "1"}}}),
        apply(f"{NEWER}/a/status", {**_gadget("a", "v2"), "metadata": {"name": "a", "labels": {"a": "b"}}}, "two"),
        patch(f"{NEWER}/a/status", {}),
        patch(f"{GADGETS}/a", {}),
        patch(f"{GADGETS}/a", {}),
        apply(f"{NEWER}/a/status", {**_gadget("a", "v2"), "status": {"phase": "Up"}}, "two"),
    ),
    "an upsert that is not meant, and names a version": (
        put(f"{EVENTS}/a", _event("a", resourceVersion="7"), dryRun="All"),
        put(f"{LEASES}/a", {**lease("a"), "metadata": {"name": "a", "resourceVersion": "7"}}, dryRun="All"),
        get(f"{EVENTS}/a"),
    ),
    "numbers that are too large, or too small": (
        *(post(PODS, _lasting(f"g{index}", seconds)) for index, seconds in enumerate((10**12, 2**63, -5, 10**30))),
        delete(f"{PODS}/g0"),
        delete(f"{PODS}/g0", {"gracePeriodSeconds": 2**63}),
        delete(f"{PODS}/g0", {"gracePeriodSeconds": "5"}),
        delete(f"{PODS}/g0", {"gracePeriodSeconds": 5}),
        patch(f"{PODS}/g2", {"spec": {"terminationGracePeriodSeconds": -7}}),
        post(POOLS, pool("a", targetNodes=2**63)),
        post(PODS, _lasting("p", 5, priority=5)),
        post(PODS, _lasting("u", 5, securityContext={"runAsUser": 2**31, "supplementalGroups": [-1]})),
    ),
    "an applier has one entry in all versions": (
        apply(f"{NEWER}/a", _gadget("a", "v2", size=1), "one"),
        apply(f"{GADGETS}/a", _gadget("a", "v1", parts=[{"name": "p"}]), "one"),
    ),
}
"""Programs by what they show."""
