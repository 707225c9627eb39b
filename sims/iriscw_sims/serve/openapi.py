"""OpenAPI v3 of what is served: enough for ``kubectl explain``, and for it to trust the server with validation.

Everything is made of what the store itself reads objects by: the types of built-in kinds
(:mod:`iriscw_sims.kube.schema`), and the schemas of definitions as they were given. Descriptions of built-in fields are
upstream's text and are not repeated here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

from iriscw_sims.kube.frozen import thaw
from iriscw_sims.kube.kinds import Json, Kind
from iriscw_sims.kube.schema import Field, Schema, core_schema

ROOT = "/openapi/v3"
_GVK = "x-kubernetes-group-version-kind"
_SCALARS: dict[str, Json] = {
    "string": {"type": "string"},
    "integer": {"type": "integer", "format": "int32"},
    "number": {"type": "number", "format": "double"},
    "boolean": {"type": "boolean"},
    "bytes": {"type": "string", "format": "byte"},
    "quantity": {"type": "string"},
    "time": {"type": "string", "format": "date-time"},
    "microtime": {"type": "string", "format": "date-time"},
    "int-or-string": {"type": "string", "format": "int-or-string"},
    "any": {"type": "object"},
}
_ACTIONS = (("get", "get"), ("put", "put"), ("patch", "patch"), ("delete", "delete"))


def document(path: str, kinds: Sequence[Kind]) -> Json | None:
    """Return the document at a path, ``None`` if there is none."""
    if path == ROOT:
        versions = dict.fromkeys(_root_of(kind) for kind in kinds)
        return {"paths": {each: {"serverRelativeURL": _address(each, kinds)} for each in versions}}
    wanted = path.removeprefix(f"{ROOT}/")
    mine = [kind for kind in kinds if _root_of(kind) == wanted]
    return _version_document(mine) if mine and path != wanted else None


def _root_of(kind: Kind) -> str:
    return f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"


def _address(root: str, kinds: Sequence[Kind]) -> str:
    """Return where the document of a version is; the address changes when its kinds do."""
    said = [[kind.kind, kind.schema and kind.schema.source] for kind in kinds if _root_of(kind) == root]
    return f"{ROOT}/{root}?hash={hashlib.sha256(json.dumps(said).encode()).hexdigest()[:32].upper()}"


def _version_document(kinds: Sequence[Kind]) -> Json:
    schemas: dict[str, Json] = {}
    for kind in kinds:
        _add_kind(kind, schemas)
    return {
        "openapi": "3.0.0",
        "info": {"title": "iriscw simulated Kubernetes", "version": "1"},
        "paths": {path: item for kind in kinds for path, item in _paths(kind)},
        "components": {"schemas": schemas},
    }


def _paths(kind: Kind) -> Iterable[tuple[str, Json]]:
    gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    where = "/namespaces/{namespace}" if kind.namespaced else ""
    base = f"/{_root_of(kind)}{where}/{kind.plural}"
    yield base, {"get": _operation(gvk, "list"), "post": _operation(gvk, "post")}
    yield f"{base}/{{name}}", {method: _operation(gvk, action) for method, action in _ACTIONS}


def _operation(gvk: Json, action: str) -> Json:
    operation: Json = {"x-kubernetes-action": action, _GVK: gvk, "responses": {"200": {"description": "OK"}}}
    if action in ("post", "put", "patch"):
        operation["parameters"] = [
            {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
            for name in ("dryRun", "fieldManager", "fieldValidation")
        ]
    return operation


def _name_of(kind: Kind) -> str:
    return ".".join([*(["io", "k8s", "api"] if kind.typed else []), kind.group or "core", kind.version, kind.kind])


def _add_kind(kind: Kind, schemas: dict[str, Json]) -> None:
    gvk = [{"group": kind.group, "version": kind.version, "kind": kind.kind}]
    if kind.schema is None:
        whole: Json = {"type": "object"}
    elif kind.schema.source is not None:
        whole = thaw(kind.schema.source)
        properties = whole.setdefault("properties", {})
        properties |= {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
        properties["metadata"] = _reference("ObjectMeta", core_schema("ObjectMeta"), schemas)
    else:
        whole = _object(kind.schema, schemas)
        whole["properties"] = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, **whole["properties"]}
    schemas[_name_of(kind)] = {**whole, _GVK: gvk}


def _reference(name: str, schema: Schema, schemas: dict[str, Json]) -> Json:
    """Give a reference to a type, and see that it is there."""
    if name not in schemas:
        schemas[name] = {}  # types may refer to themselves
        schemas[name] = _object(schema, schemas)
    return {"allOf": [{"$ref": f"#/components/schemas/{name}"}], "default": {}}


def _object(schema: Schema, schemas: dict[str, Json]) -> Json:
    properties = {name: _property(field, schemas) for name, field in schema.fields.items()}
    shape: Json = {"type": "object", "properties": properties}
    required = [name for name, field in schema.fields.items() if field.kept and not field.pointer]
    if required:
        shape["required"] = required
    if schema.atomic:
        shape["x-kubernetes-map-type"] = "atomic"
    return shape


def _property(field: Field, schemas: dict[str, Json]) -> Json:
    shape = _shape(field.schema, schemas)
    if field.merge_key is not None or field.retain_keys:
        words = [*(["merge"] if field.merge_key is not None else []), *(["retainKeys"] if field.retain_keys else [])]
        shape["x-kubernetes-patch-strategy"] = ",".join(words)
        if field.merge_key:
            shape["x-kubernetes-patch-merge-key"] = field.merge_key
    return shape


def _shape(schema: Schema, schemas: dict[str, Any]) -> Json:
    if schema.kind == "object":
        return _reference(schema.name, schema, schemas)
    if schema.kind == "list":
        assert schema.element is not None
        shape: Json = {"type": "array", "items": _shape(schema.element, schemas)}
        if schema.list_type:
            shape["x-kubernetes-list-type"] = schema.list_type
        if schema.keys:
            shape["x-kubernetes-list-map-keys"] = [*schema.keys]
        return shape
    if schema.kind == "map":
        assert schema.element is not None
        return {"type": "object", "additionalProperties": _shape(schema.element, schemas)}
    return dict(_SCALARS[schema.kind])
