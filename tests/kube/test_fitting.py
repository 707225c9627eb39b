"""What fits a type, as server-side apply asks it."""

import pytest

from iriscw_sims.kube.fitting import unfit
from iriscw_sims.kube.frozen import freeze
from iriscw_sims.kube.schema import core_schema
from iriscw_sims.kube.structural import compiled

PORTS = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["port", "protocol"],
    "items": {
        "type": "object",
        "properties": {"port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}},
    },
}
FIELDS = {
    "text": {"type": "string"},
    "when": {"type": "string", "format": "date-time"},
    "number": {"type": "integer"},
    "flag": {"type": "boolean"},
    "either": {"x-kubernetes-int-or-string": True},
    "map": {"type": "object", "additionalProperties": {"type": "string"}},
    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"a": {"type": "object"}}},
    "empty": {"type": "object"},
    "list": {"type": "array", "items": {"type": "string"}},
    "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
    "ports": PORTS,
}
SCHEMA = compiled({"type": "object", "properties": {"spec": {"type": "object", "properties": FIELDS}}})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("text", "x"), ("text", None), ("when", "soon"), ("when", 5), ("number", 1.5), ("flag", False), ("either", "x"),
        ("either", {"a": []}), ("map", {"a": "b"}), ("free", {"b": 1}), ("free", {"a": {"c": 1}}), ("empty", {"x": 1}),
        ("list", ["a", "a"]), ("set", ["a", "b"]), ("ports", [{"port": 1}, {"port": 1, "protocol": "UDP"}]),
        ("ports", [{}]),
    ],
)  # fmt: skip
def test_what_fits(field, value):
    """Values of the type, nulls, scalars for times, and all where anything may stand."""
    assert unfit(SCHEMA, {"spec": {field: value}}) == ""


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("text", 1, "expected string"), ("text", {}, "got a map"), ("number", "1", "expected integer"),
        ("number", True, "expected integer"), ("flag", 0, "expected boolean"), ("map", [], "got a list"),
        ("map", {"a": 1}, ".map.a: expected string"), ("list", "a", "expected list"), ("list", [1], "list[0]"),
        ("unknown", 1, "field not declared in schema"), ("set", ["a", "a"], "duplicate entries"),
        ("set", [None], "no scalar"), ("ports", [{"port": 1}, {"port": 1}], "duplicate entries"),
        ("ports", [1], "non-map elements"), ("ports", {}, "got a map"),
    ],
)  # fmt: skip
def test_what_does_not_fit(field, value, said):
    """Is told with its path."""
    found = unfit(SCHEMA, {"spec": {field: value}})
    assert said in found
    assert found.startswith(".spec")


def test_a_list_whose_entries_have_no_key_does_not_fit():
    """Unless the key has a default."""
    pod = {"spec": {"containers": [{"image": "i"}]}}
    assert "omits all key fields" in unfit(core_schema("Pod"), pod)


def test_what_was_written_may_have_duplicates():
    """Nobody could repair it otherwise."""
    value = {"spec": {"set": ["a", "a"]}}
    assert unfit(SCHEMA, value)
    assert unfit(SCHEMA, value, duplicates=True) == ""


def test_frozen_branches_fit():
    """They were read by this very type before."""
    assert unfit(SCHEMA, {"spec": freeze({"text": 1})}) == ""
