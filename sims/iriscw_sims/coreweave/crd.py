"""What a CoreWeave cluster has before anybody uses it: the NodePool definition and the namespace, as data.

The schema follows CoreWeave's reference of node pools: cluster-scoped, ``instanceType`` for life, exactly one of
``targetNodes`` and ``targetRacks`` (which the pool controller judges, later), a status that anybody may extend.
"""

from __future__ import annotations

from typing import Any

from iriscw_sims.kube.kinds import Json
from iriscw_sims.kube.messages import Request
from iriscw_sims.kube.store import Store

GROUP = "compute.coreweave.com"
VERSION = "v1alpha1"
POOLS = f"/apis/{GROUP}/{VERSION}/nodepools"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAMESPACES = "/api/v1/namespaces"

TEXT: Json = {"type": "string"}
COUNT: Json = {"type": "integer", "minimum": 0}
TEXTS: Json = {"type": "object", "additionalProperties": TEXT}


def _fields(*required: str, **fields: Json) -> Json:
    schema: Json = {"type": "object", "properties": fields}
    return {**schema, "required": list(required)} if required else schema


def _choice(default: str, *others: str) -> Json:
    return {"type": "string", "enum": [default, *others], "default": default}


_IMMUTABLE: list[Json] = [{"rule": "self == oldSelf", "message": "InstanceType cannot be changed"}]

SPEC: Json = _fields(
    "instanceType",
    computeClass={"type": "string", "default": "default"},
    instanceType={"type": "string", "minLength": 1, "x-kubernetes-validations": _IMMUTABLE},
    targetNodes=COUNT,
    targetRacks=COUNT,
    minNodes=COUNT,
    maxNodes=COUNT,
    autoscaling={"type": "boolean", "default": False},
    nodeLabels=TEXTS,
    nodeAnnotations=TEXTS,
    nodeTaints={"type": "array", "items": _fields("key", "effect", key=TEXT, value=TEXT, effect=TEXT)},
    image=_fields(kernel=TEXT, name=TEXT, releaseTrain=_choice("stable", "latest")),
    gpu=_fields(version=TEXT),
    lifecycle=_fields(
        scaleDownStrategy=_choice("IdleOnly", "PreferIdle"), disableUnhealthyNodeEviction={"type": "boolean"}
    ),
    prefill=_fields(
        enabled={"type": "boolean", "default": False},
        timeout={"type": "string", "default": "24h"},
        maxNodes={"type": "integer", "minimum": 1, "maximum": 4, "default": 3},
    ),
)
"""The schema of a specification."""


def _column(name: str, path: str, kind: str = "string") -> Json:
    return {"name": name, "type": kind, "jsonPath": path}


def _reason(name: str) -> Json:
    return _column(name.upper(), f'.status.conditions[?(@.type=="{name}")].reason')


_COLUMNS: list[Json] = [
    _column("INSTANCE TYPE", ".spec.instanceType"),
    _column("TARGET", ".spec.targetNodes", "integer"),
    _column("QUEUED", ".status.queuedNodes", "integer"),
    _column("INPROGRESS", ".status.inProgress", "integer"),
    _column("CURRENT", ".status.currentNodes", "integer"),
    _reason("Validated"),
    _reason("Capacity"),
    _reason("Quota"),
    _column("AGE", ".metadata.creationTimestamp", "date"),
]

DEFINITION: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"nodepools.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Cluster",
        "names": {"kind": "NodePool", "plural": "nodepools", "singular": "nodepool", "listKind": "NodePoolList"},
        "versions": [
            {
                "name": VERSION,
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "additionalPrinterColumns": _COLUMNS,
                "schema": {
                    "openAPIV3Schema": _fields(
                        "spec", spec=SPEC, status={"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                    )
                },
            }
        ],
    },
}
"""The definition of NodePool, as it is posted."""


def install(store: Store, now: int = 0, namespace: str = "iris") -> None:
    """Put into an empty store what a CoreWeave cluster has: NodePools are served, and there is a namespace.

    Args:
        store: Where to.
        now: ns since 1970.
        namespace: Whose pods will live there; ``""`` for none.
    """
    _post(store, now, DEFINITIONS, DEFINITION)
    if namespace:
        _post(store, now, NAMESPACES, {"metadata": {"name": namespace}})


def _post(store: Store, now: int, path: str, body: Any) -> None:
    response = store.handle(Request("POST", path, body=body), now)
    assert response.code == 201, response.body
