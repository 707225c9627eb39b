"""The custom resources that programs use, as data: CoreWeave's NodePool, and one that shows every rule of a schema."""

from __future__ import annotations

from typing import Any

_STRING = {"type": "string"}
_INTEGER = {"type": "integer"}


def _crd(group: str, kind: str, scope: str, *versions: dict[str, Any]) -> dict[str, Any]:
    plural = f"{kind.lower()}s"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [
                {"served": True, "storage": not index, "subresources": {"status": {}}, **version}
                for index, version in enumerate(versions)
            ],
        },
    }


NODE_POOL = _crd(
    "compute.coreweave.com",
    "NodePool",
    "Cluster",
    {
        "name": "v1alpha1",
        "additionalPrinterColumns": [
            {"name": "INSTANCE TYPE", "type": "string", "jsonPath": ".spec.instanceType"},
            {"name": "TARGET", "type": "integer", "jsonPath": ".spec.targetNodes"},
            {"name": "CURRENT", "type": "integer", "jsonPath": ".status.currentNodes"},
            {"name": "QUOTA", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Quota")].reason'},
        ],
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "required": ["spec"],
                "properties": {
                    "spec": {
                        "type": "object",
                        "required": ["instanceType"],
                        "properties": {
                            "computeClass": {"type": "string", "default": "default"},
                            "instanceType": _STRING,
                            "targetNodes": {"type": "integer", "minimum": 0},
                            "minNodes": _INTEGER,
                            "maxNodes": _INTEGER,
                            "autoscaling": {"type": "boolean", "default": False},
                            "nodeLabels": {"type": "object", "additionalProperties": _STRING},
                            "nodeTaints": {
                                "type": "array",
                                "items": {
                                    "type": "object",
                                    "required": ["key", "effect"],
                                    "properties": {"key": _STRING, "value": _STRING, "effect": _STRING},
                                },
                            },
                            "lifecycle": {
                                "type": "object",
                                "properties": {
                                    "scaleDownStrategy": {
                                        "type": "string",
                                        "enum": ["IdleOnly", "PreferIdle"],
                                        "default": "IdleOnly",
                                    }
                                },
                            },
                        },
                    },
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            }
        },
    },
)

_WIDGET_SPEC = {
    "type": "object",
    "properties": {
        "replicas": _INTEGER,
        "size": {"type": "integer", "minimum": 1, "maximum": 10, "default": 3},
        "ratio": {"type": "number", "exclusiveMinimum": True, "minimum": 0},
        "step": {"type": "integer", "multipleOf": 5},
        "name": {"type": "string", "minLength": 2, "maxLength": 5, "pattern": "^[a-z]+$"},
        "when": {"type": "string", "format": "date-time"},
        "port": {"x-kubernetes-int-or-string": True},
        "maybe": {"type": "string", "nullable": True, "default": "some"},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "labels": {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 2},
        "plain": {"type": "array", "items": _STRING, "minItems": 1, "maxItems": 3},
        "set": {"type": "array", "items": _STRING, "x-kubernetes-list-type": "set"},
        "ports": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["port"],
            "items": {
                "type": "object",
                "required": ["port"],
                "properties": {"port": _INTEGER, "protocol": {"type": "string", "default": "TCP"}},
            },
        },
        "nested": {
            "type": "object",
            "default": {},
            "properties": {"mode": {"type": "string", "enum": ["fast", "slow"], "default": "slow"}, "count": _INTEGER},
        },
        "atomic": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": _STRING},
        "left": _STRING,
        "right": _STRING,
    },
    "not": {"required": ["left", "right"]},
}

WIDGET = _crd(
    "test.iriscw.dev",
    "Widget",
    "Namespaced",
    {
        "name": "v1",
        "selectableFields": [{"jsonPath": ".spec.nested.mode"}],
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.ready"},
        },
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "properties": {
                    "spec": _WIDGET_SPEC,
                    "status": {"type": "object", "properties": {"ready": _INTEGER, "phase": _STRING}},
                },
            }
        },
    },
)

_PARTS = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name"],
    "items": {"type": "object", "required": ["name"], "properties": {"name": _STRING, "size": _INTEGER}},
}


def _gadget(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    properties = {
        "spec": {"type": "object", "properties": {"size": _INTEGER, "parts": _PARTS, **spec}},
        "status": {"type": "object", "properties": {"phase": _STRING}},
    }
    return {"name": name, "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}}}


GADGET = _crd(
    "test.iriscw.dev",
    "Gadget",
    "Namespaced",
    _gadget("v1", {"old": {"type": "string", "default": "first"}}),
    _gadget("v2", {"new": {"type": "string", "default": "second"}}),
)
"""Two served versions, each with a field that the other does not have."""

CRDS = (NODE_POOL, WIDGET, GADGET)
"""There before each program, in both worlds."""
