"""Pruning, defaults and types of custom resources."""

from kube_caller import spec_schema

from iriscw_sims.kube.frozen import freeze
from iriscw_sims.kube.structural import compiled, complete


def completed(schema, spec):
    """Return a spec after completion, and the pruned paths."""
    unknown = []
    value = complete(compiled(schema), {"spec": spec}, unknown)
    return value["spec"], unknown


def test_unknown_fields_are_pruned_everywhere():
    """In objects, arrays, maps; not where they are preserved."""
    inner = {"type": "object", "properties": {"a": {"type": "integer"}}}
    schema = spec_schema(
        one=inner,
        many={"type": "array", "items": inner},
        by_name={"type": "object", "additionalProperties": inner},
        free={"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        anything={"x-kubernetes-preserve-unknown-fields": True},
    )
    value = {"a": 1, "b": 2}
    spec, unknown = completed(
        schema, {"one": value, "many": [value], "by_name": {"x": value}, "free": value, "anything": [value], "z": 1}
    )
    assert spec == {
        "one": {"a": 1}, "many": [{"a": 1}], "by_name": {"x": {"a": 1}}, "free": value, "anything": [value],
    }  # fmt: skip
    assert unknown == ["spec.one.b", "spec.many[0].b", "spec.by_name.x.b", "spec.z"]


def test_defaults_are_filled_in_where_their_parent_is():
    """Nested ones need a parent, which may be a default itself; null gives way unless it is allowed."""
    schema = spec_schema(
        plain={"type": "integer", "default": 1},
        nested={"type": "object", "properties": {"x": {"type": "integer", "default": 2}}},
        born={"type": "object", "default": {}, "properties": {"y": {"type": "integer", "default": 3}}},
        maybe={"type": "string", "nullable": True, "default": "d"},
    )
    assert completed(schema, {})[0] == {"plain": 1, "born": {"y": 3}, "maybe": "d"}
    assert completed(schema, {"nested": {}, "plain": None, "maybe": None})[0] == {
        "nested": {"x": 2}, "plain": 1, "maybe": None, "born": {"y": 3},
    }  # fmt: skip


def test_a_default_is_not_shared_with_the_definition():
    """Each object has its own."""
    schema = spec_schema(born={"type": "object", "default": {"list": []}, "x-kubernetes-preserve-unknown-fields": True})
    completed(schema, {})[0]["born"]["list"].append(1)
    assert completed(schema, {})[0] == {"born": {"list": []}}


def test_frozen_branches_are_complete():
    """They were completed when they were written."""
    spec = freeze({"unknown": 1})
    assert completed(spec_schema(), spec) == (spec, [])


def test_types_say_how_fields_are_owned():
    """Lists by keys or as sets, maps as a whole; keys may have defaults."""
    entry = {
        "type": "object",
        "properties": {"port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}},
    }
    keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"]}
    texts = {"type": "array", "items": {"type": "string"}}
    fields = {
        "ports": {"type": "array", "items": entry, **keyed},
        "tags": {**texts, "x-kubernetes-list-type": "set"},
        "plain": texts,
        "labels": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "x-kubernetes-map-type": "atomic",
        },
        "either": {"x-kubernetes-int-or-string": True},
    }
    schema = compiled(spec_schema(**fields)).fields["spec"].schema.fields
    assert (schema["ports"].schema.list_type, schema["ports"].schema.keys) == ("map", ("port", "protocol"))
    assert schema["ports"].schema.key_defaults == {"protocol": "TCP"}
    assert schema["tags"].schema.list_type == "set"
    assert schema["plain"].schema.list_type == "atomic"
    assert schema["labels"].schema.atomic
    assert schema["either"].schema.kind == "int-or-string"
