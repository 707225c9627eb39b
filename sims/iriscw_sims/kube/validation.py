"""Judging a custom resource by its schema: causes with paths and words as the API server's own validator gives them.

What did not change is not judged again (ratcheting): a frozen branch that the old object has at the same place passes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from iriscw_sims.kube import cel
from iriscw_sims.kube.clock import parsed
from iriscw_sims.kube.kinds import Json
from iriscw_sims.kube.refusals import (
    Cause,
    invalid_value,
    quoted,
    required_value,
    type_invalid,
    unsupported_value,
)

_SKIPPED = ("metadata", "apiVersion", "kind")


UNCHECKED = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete "
    "validation"
)
_BLOCKING = (
    "FieldValueNotSupported",
    "FieldValueRequired",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueTypeInvalid",
)
"""Mistakes after which CEL rules cannot be asked, as in ``customresource/strategy.go`` (``hasBlockingErr``)."""


def judge(schema: Json, new: Json, old: Json | None, *, ruled: bool = True) -> Iterator[Cause]:
    """Judge an object by its OpenAPI schema and, unless it is not ``ruled``, by the CEL rules in it."""
    body = {name: part for name, part in new.items() if name not in _SKIPPED}
    was = None if old is None else {name: part for name, part in old.items() if name not in _SKIPPED}
    found = list(_judge(schema, body, was, ""))
    yield from found
    if not ruled or not has_rules(schema):
        return
    if any(cause.kind in _BLOCKING for cause in found):
        yield Cause("FieldValueInvalid", "<nil>", f"Invalid value: null: {UNCHECKED}")
    else:
        yield from _rules(schema, new, old, "")


def has_rules(schema: Json) -> bool:
    """Tell whether a schema has a CEL rule anywhere."""
    inner = [*(schema.get("properties") or {}).values(), schema.get("items"), schema.get("additionalProperties")]
    return "x-kubernetes-validations" in schema or any(has_rules(each) for each in inner if isinstance(each, dict))


def _judge(schema: Json, value: Any, old: Any, at: str) -> Iterator[Cause]:
    if value is old and value is not None:
        return
    if value is None:
        if not schema.get("nullable") and schema.get("type") and at:
            yield _wrong_type(schema["type"], value, at)
        return
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, bool) or not isinstance(value, int | str):
            yield _wrong_type("integer,string", value, at)
            return
    elif schema.get("type") and not _fits(schema["type"], value):
        yield _wrong_type(schema["type"], value, at)
        if schema["type"] != "integer" or isinstance(value, bool) or not isinstance(value, int | float):
            return  # what is not an integer of 64 bits is judged on as a number
    if "enum" in schema and value not in schema["enum"]:
        yield unsupported_value(at, value, [each if isinstance(each, str) else quoted(each) for each in schema["enum"]])
    if isinstance(value, dict):
        yield from _judge_object(schema, value, old if isinstance(old, dict) else {}, at)
    elif isinstance(value, list):
        yield from _judge_list(schema, value, old if isinstance(old, list) else [], at)
    elif isinstance(value, str):
        yield from _judge_text(schema, value, at)
    elif not isinstance(value, bool):
        yield from _judge_number(schema, value, at)
    yield from _judge_alternatives(schema, value, at)


def _judge_object(schema: Json, value: Json, old: Json, at: str) -> Iterator[Cause]:
    fields = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    for name, item in value.items():
        if name in fields:
            yield from _judge(fields[name], item, old.get(name), _below(at, name))
        elif isinstance(additional, dict):
            yield from _judge(additional, item, old.get(name), _below(at, name))
    for name in schema.get("required") or ():
        if name not in value:
            yield required_value(_below(at, name))
    if "maxProperties" in schema and len(value) > schema["maxProperties"]:
        yield _too_many(at, len(value), schema["maxProperties"])
    if "minProperties" in schema and len(value) < schema["minProperties"]:
        said = f"{at} in body should have at least {schema['minProperties']} properties"
        yield invalid_value(at, len(value), said)


def _judge_list(schema: Json, value: list[Any], old: list[Any], at: str) -> Iterator[Cause]:
    for index, item in enumerate(value):
        was = old[index] if index < len(old) else None
        yield from _judge(schema.get("items") or {}, item, was, f"{at}[{index}]")
    if "maxItems" in schema and len(value) > schema["maxItems"]:
        yield _too_many(at, len(value), schema["maxItems"])
    if "minItems" in schema and len(value) < schema["minItems"]:
        yield invalid_value(at, len(value), f"{at} in body should have at least {schema['minItems']} items")
    yield from _judge_distinct(schema, value, at)


def _judge_distinct(schema: Json, value: list[Any], at: str) -> Iterator[Cause]:
    """Judge sets and lists keyed like maps: nothing stands there twice."""
    kind = schema.get("x-kubernetes-list-type")
    seen: list[Any] = []
    for index, item in enumerate(value):
        key = item
        if kind == "map" and isinstance(item, dict):
            key = {name: item.get(name) for name in schema.get("x-kubernetes-list-map-keys") or ()}
        if kind in ("map", "set") and key in seen:
            yield Cause("FieldValueDuplicate", f"{at}[{index}]", f"Duplicate value: {quoted(key)}")
        seen.append(key)


def _judge_text(schema: Json, value: str, at: str) -> Iterator[Cause]:
    if "maxLength" in schema and len(value) > schema["maxLength"]:
        yield Cause("FieldValueTooLong", at, f"Too long: may not be more than {schema['maxLength']} bytes")
    elif "minLength" in schema and len(value) < schema["minLength"]:
        yield invalid_value(at, value, f"{at} in body should be at least {schema['minLength']} chars long")
    elif "pattern" in schema and not re.search(schema["pattern"], value):
        yield invalid_value(at, value, f"{at} in body should match '{schema['pattern']}'")
    if schema.get("format") == "date-time" and parsed(value) is None:
        yield type_invalid(at, value, f"{at} in body must be of type date-time: {quoted(value)}")


_RANGES = {"int32": (-(1 << 31), (1 << 31) - 1), "uint32": (0, (1 << 32) - 1), "uint64": (0, (1 << 64) - 1)}
_INT64 = (-(1 << 63), (1 << 63) - 1)


def _judge_range(schema: Json, value: float, at: str) -> Iterator[Cause]:
    """Judge that a number is one of its integer type, a second time for fractions; upstream loses the path here."""
    form = schema.get("format", "")
    low, high = _RANGES.get(form, _INT64)
    if not _is_whole(value) or not low <= value <= high:
        shown = f"with format {form}" if form else "(default format)"
        yield _unmatched(f"Checked value must be of type integer {shown} in {at}")


def _judge_number(schema: Json, value: float, at: str) -> Iterator[Cause]:
    if schema.get("type") == "integer":
        yield from _judge_range(schema, value, at)
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and schema.get("exclusiveMinimum") and value <= low:
        yield invalid_value(at, value, f"{at} in body should be greater than {low}")
    elif low is not None and value < low:
        yield invalid_value(at, value, f"{at} in body should be greater than or equal to {low}")
    if high is not None and schema.get("exclusiveMaximum") and value >= high:
        yield invalid_value(at, value, f"{at} in body should be less than {high}")
    elif high is not None and value > high:
        yield invalid_value(at, value, f"{at} in body should be less than or equal to {high}")
    if schema.get("multipleOf") and value % schema["multipleOf"]:
        yield invalid_value(at, value, f"{at} in body should be a multiple of {schema['multipleOf']}")


def _judge_alternatives(schema: Json, value: Any, at: str) -> Iterator[Cause]:
    for each in schema.get("allOf") or ():
        yield from _judge(each, value, None, at)
    if schema.get("anyOf") and not any(_passes(each, value, at) for each in schema["anyOf"]):
        yield _unmatched(f'"{at}" must validate at least one schema (anyOf)')
    if schema.get("oneOf"):
        passed = sum(_passes(each, value, at) for each in schema["oneOf"])
        if passed != 1:
            found = "none valid" if not passed else f"{passed} valid alternatives"
            yield _unmatched(f'"{at}" must validate one and only one schema (oneOf). Found {found}')
    if schema.get("not") and _passes(schema["not"], value, at):
        yield _unmatched(f'"{at}" must not validate the schema (not)')


def _unmatched(said: str) -> Cause:
    return Cause("FieldValueInvalid", "<nil>", f'Invalid value: "": {said}')  # upstream loses the path here


def _passes(schema: Json, value: Any, at: str) -> bool:
    return next(_judge(schema, value, None, at), None) is None


def _rules(schema: Json, value: Any, old: Any, at: str) -> Iterator[Cause]:
    """Judge by the CEL rules of a schema and of all below it."""
    for rule in schema.get("x-kubernetes-validations") or ():
        verdict = cel.holds(rule["rule"], value, old)
        if not verdict:
            said = rule.get("message") or f"failed rule: {rule['rule'].strip()}"
            where = at + (rule.get("fieldPath") or "")
            shown = f"{quoted(value)}: " if isinstance(value, str | int | float) else ""
            yield Cause(rule.get("reason") or "FieldValueInvalid", where or "<nil>", f"Invalid value: {shown}{said}")
    if isinstance(value, dict):
        fields = schema.get("properties") or {}
        additional = schema.get("additionalProperties")
        for name, item in value.items():
            inner = fields.get(name) or (additional if isinstance(additional, dict) else None)
            if inner and not (not at and name in _SKIPPED):
                yield from _rules(inner, item, old.get(name) if isinstance(old, dict) else None, _below(at, name))
    elif isinstance(value, list) and schema.get("items"):
        for index, item in enumerate(value):
            yield from _rules(schema["items"], item, None, f"{at}[{index}]")


def _fits(kind: str, value: Any) -> bool:
    if kind == "object":
        return isinstance(value, dict)
    if kind == "array":
        return isinstance(value, list)
    if kind == "string":
        return isinstance(value, str)
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "integer":
        return _is_whole(value) and _INT64[0] <= value <= _INT64[1]
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return type(value) is int or (type(value) is float and value.is_integer())


def _wrong_type(wanted: str, value: Any, at: str) -> Cause:
    given = _type_name(value)
    said = f'{at} in body must be of type {wanted}: "{given}"' if at else f'must be of type {wanted}: "{given}"'
    return type_invalid(at, given, said)


def _type_name(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) and _INT64[0] <= value <= _INT64[1]:
        return "integer"
    if isinstance(value, int | float):  # what does not fit into 64 bits is read as a number with a fraction
        return "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def _too_many(at: str, count: int, most: int) -> Cause:
    return Cause("FieldValueTooMany", at, f"Too many: {count}: must have at most {most} items")


def _below(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name
