"""The schemas of custom resources: pruning, defaults, and types for merging, all from one OpenAPI document.

A structural schema says of every field where it may stand, so it is compiled into the same
:class:`~iriscw_sims.kube.schema.Schema` that built-in kinds have. Values are judged in
:mod:`iriscw_sims.kube.validation`.
"""

from __future__ import annotations

from typing import Any

from iriscw_sims.kube.frozen import FrozenDict, FrozenList, thaw
from iriscw_sims.kube.kinds import Json
from iriscw_sims.kube.schema import ANY, Field, Schema, core_schema

OBJECT_META = "metadata"


def compiled(source: Json) -> Schema:
    """Compile the schema of a whole object: metadata is what it always is."""
    schema = _compile(source)
    schema.kind, schema.source = "object", source
    schema.fields["apiVersion"] = schema.fields["kind"] = Field(Schema("string"))
    schema.fields[OBJECT_META] = Field(core_schema("ObjectMeta"))
    return schema


def _compile(source: Json) -> Schema:
    kind = source.get("type", "")
    keep = bool(source.get("x-kubernetes-preserve-unknown-fields"))
    if source.get("x-kubernetes-int-or-string"):
        return Schema("int-or-string", source=source)
    if source.get("x-kubernetes-embedded-resource") and not source.get("properties"):
        return Schema("any", keep_unknown=True, source=source)
    atomic = source.get("x-kubernetes-map-type") == "atomic"
    if kind == "array":
        element = _compile(source["items"]) if isinstance(source.get("items"), dict) else ANY
        keys = tuple(source.get("x-kubernetes-list-map-keys") or ())
        schema = Schema("list", element=element, list_type=source.get("x-kubernetes-list-type", "atomic"), keys=keys)
        schema.key_defaults = {key: default for key, default in _defaults_of(element) if key in keys}
        schema.source = source
        return schema
    additional = source.get("additionalProperties")
    if kind == "object" and isinstance(additional, dict) and not source.get("properties"):
        return Schema("map", element=_compile(additional), atomic=atomic, source=source)
    if kind == "object" and additional is True and not source.get("properties"):
        return Schema("map", element=ANY, atomic=atomic, source=source)
    if kind == "object" or source.get("properties"):
        schema = Schema("object", atomic=atomic, keep_unknown=keep, source=source)
        schema.fields = {name: Field(_compile(inner)) for name, inner in (source.get("properties") or {}).items()}
        return schema
    if keep or not kind:
        return Schema("any", keep_unknown=True, source=source)
    return Schema(kind, source=source)


def _defaults_of(element: Schema) -> list[tuple[str, Any]]:
    return [
        (name, _default(field.schema)) for name, field in element.fields.items() if _default(field.schema) is not None
    ]


def complete(schema: Schema, value: Json, unknown: list[str]) -> Json:
    """Prune what the schema does not know and fill in defaults; frozen branches were completed before.

    Args:
        schema: Of the whole object.
        value: The object; not changed.
        unknown: Gets the paths that were pruned.
    """
    completed: Json = _complete(schema, value, "", unknown)
    return completed


def _complete(schema: Schema, value: Any, at: str, unknown: list[str]) -> Any:
    if type(value) is FrozenDict or type(value) is FrozenList:
        return value
    if isinstance(value, dict) and schema.kind == "object":
        return _complete_object(schema, value, at, unknown)
    if isinstance(value, dict) and schema.kind == "map" and schema.element is not None:
        element = schema.element
        return {name: _complete(element, item, _below(at, name), unknown) for name, item in value.items()}
    if isinstance(value, list) and schema.kind == "list" and schema.element is not None:
        element = schema.element
        return [_complete(element, item, f"{at}[{index}]", unknown) for index, item in enumerate(value)]
    return value


def _complete_object(schema: Schema, value: Json, at: str, unknown: list[str]) -> Json:
    result: Json = {}
    for name, item in value.items():
        field = schema.fields.get(name)
        if field is None:
            if schema.keep_unknown:
                result[name] = item
            else:
                unknown.append(_below(at, name))
        elif not at and name == OBJECT_META:
            result[name] = item
        elif item is None and not _nullable(field.schema) and _default(field.schema) is not None:
            continue  # null where null may not be: the default takes its place
        else:
            result[name] = _complete(field.schema, item, _below(at, name), unknown)
    if schema.defaults is None:
        known = [(name, field.schema, _default(field.schema)) for name, field in schema.fields.items()]
        schema.defaults = [each for each in known if each[2] is not None]
    for name, inner, default in schema.defaults:
        if name not in result:
            result[name] = _complete(inner, thaw(default), _below(at, name), unknown)
    return result


def prune(schema: Schema, value: Json) -> Json:
    """Return a plain object without what the schema does not know; nothing is filled in."""
    pruned: Json = _prune(schema, value, root=True)
    return pruned


def _prune(schema: Schema, value: Any, *, root: bool = False) -> Any:
    element = schema.element
    if isinstance(value, dict) and schema.kind == "object":
        fields = schema.fields
        return {
            name: item
            if root and name == OBJECT_META
            else _prune(fields[name].schema, item)
            if name in fields
            else item
            for name, item in value.items()
            if name in fields or schema.keep_unknown
        }
    if isinstance(value, dict) and schema.kind == "map" and element is not None:
        return {name: _prune(element, item) for name, item in value.items()}
    if isinstance(value, list) and schema.kind == "list" and element is not None:
        return [_prune(element, item) for item in value]
    return value


def _default(schema: Schema) -> Any:
    return schema.source.get("default") if schema.source else None


def _nullable(schema: Schema) -> bool:
    return bool(schema.source and schema.source.get("nullable"))


def _below(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name
