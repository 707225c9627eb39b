"""Judging custom resources by their schema."""

import pytest
from hypothesis import given, strategies as st
from kube_caller import spec_schema

from iriscw_sims.kube.frozen import freeze
from iriscw_sims.kube.validation import UNCHECKED, judge

ZERO = "Invalid value: 0: spec.f in body should be"
NUMBER = {"type": "number"}
TEXTS = {"type": "array", "items": {"type": "string"}}
EITHER = {"x-kubernetes-int-or-string": True}


def found(field, value, old=None):
    """Return what is said about one field of a spec."""
    was = None if old is None else {"spec": {"f": old}}
    return [(cause.field, cause.text) for cause in judge(spec_schema(f=field), {"spec": {"f": value}}, was)]


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ({"type": "integer"}, "x", 'Invalid value: "string": spec.f in body must be of type integer: "string"'),
        ({"type": "integer"}, True, 'Invalid value: "boolean": spec.f in body must be of type integer: "boolean"'),
        ({"type": "string"}, None, 'Invalid value: "null": spec.f in body must be of type string: "null"'),
        ({"type": "integer", "minimum": 1}, 0, "Invalid value: 0: spec.f in body should be greater than or equal to 1"),
        ({"type": "integer", "maximum": 1}, 2, "Invalid value: 2: spec.f in body should be less than or equal to 1"),
        ({**NUMBER, "minimum": 0, "exclusiveMinimum": True}, 0, f"{ZERO} greater than 0"),
        ({**NUMBER, "maximum": 0, "exclusiveMaximum": True}, 0, f"{ZERO} less than 0"),
        ({"type": "integer", "multipleOf": 5}, 3, "Invalid value: 3: spec.f in body should be a multiple of 5"),
        ({"type": "string", "enum": ["a", "b"]}, "c", 'Unsupported value: "c": supported values: "a", "b"'),
        ({"type": "string", "minLength": 2}, "a", 'Invalid value: "a": spec.f in body should be at least 2 chars long'),
        ({"type": "string", "maxLength": 1}, "ab", "Too long: may not be more than 1 bytes"),
        ({"type": "string", "pattern": "^a$"}, "b", "Invalid value: \"b\": spec.f in body should match '^a$'"),
        ({**TEXTS, "minItems": 1}, [], "Invalid value: 0: spec.f in body should have at least 1 items"),
        ({**TEXTS, "maxItems": 1}, ["a", "b"], "Too many: 2: must have at most 1 items"),
        ({"type": "object", "maxProperties": 0}, {"a": 1}, "Too many: 1: must have at most 0 items"),
        (EITHER, 1.5, 'Invalid value: "number": spec.f in body must be of type integer,string: "number"'),
    ],
)  # fmt: skip
def test_what_is_said(field, value, said):
    """The field and the server's own words."""
    assert found(field, value) == [("spec.f", said)]


def test_paths_go_through_lists_and_maps():
    """Index and key."""
    inner = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}
    assert found({"type": "array", "items": inner}, [{"a": 1}, {}]) == [("spec.f[1].a", "Required value")]
    assert found({"type": "object", "additionalProperties": inner}, {"k": {}}) == [("spec.f.k.a", "Required value")]


def test_sets_and_keyed_lists_hold_nothing_twice():
    """Duplicate value at the second."""
    tags = {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}
    assert found(tags, ["a", "a"]) == [("spec.f[1]", 'Duplicate value: "a"')]
    keyed = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["p"],
        "items": {"type": "object"},
    }
    assert found(keyed, [{"p": 1}, {"p": 1}]) == [("spec.f[1]", 'Duplicate value: {"p":1}')]


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, 1, True),
        ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": 1}, {"a": 1, "b": 1}),
        ({"not": {"required": ["a", "b"]}}, {"a": 1}, {"a": 1, "b": 1}),
        ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, 1, 3),
    ],
)
def test_alternatives(field, good, bad):
    """anyOf, oneOf, not, allOf."""
    assert found(field, good) == []
    assert len(found(field, bad)) == 1


def test_what_did_not_change_is_not_judged_again():
    """A value that an older schema allowed may stay."""
    value = freeze({"a": "bad"})
    field = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert found(field, value, value) == []
    assert len(found(field, value)) == 1


def test_rules_are_asked_only_of_what_fits_the_schema():
    """With their message, path and reason."""
    rule = {"rule": "self <= 3", "message": "too much", "reason": "FieldValueForbidden"}
    field = {"type": "integer", "x-kubernetes-validations": [rule]}
    assert found(field, 4) == [("spec.f", "Invalid value: 4: too much")]
    assert found(field, "4") == [
        ("spec.f", 'Invalid value: "string": spec.f in body must be of type integer: "string"'),
        ("<nil>", f"Invalid value: null: {UNCHECKED}"),
    ]
    bare = {"type": "object", "x-kubernetes-validations": [{"rule": "has(self.a)"}]}
    assert found(bare, {}) == [("spec.f", "Invalid value: failed rule: has(self.a)")]


def test_a_fraction_is_no_integer_and_still_a_number():
    """It is told twice, and its bounds are judged."""
    said = 'Invalid value: "number": spec.f in body must be of type integer: "number"'
    checked = 'Invalid value: "": Checked value must be of type integer (default format) in spec.f'
    low = "Invalid value: 1.5: spec.f in body should be greater than or equal to 2"
    assert found({"type": "integer", "minimum": 2}, 1.5) == [("spec.f", said), ("<nil>", checked), ("spec.f", low)]


@pytest.mark.parametrize(("form", "most"), [("int32", 2**31 - 1), ("uint32", 2**32 - 1), ("", 2**63 - 1)])
def test_formats_of_integers_are_ranges(form, most):
    """What does not fit is told without a path, as the real server does."""
    field = {"type": "integer", "format": form}
    assert found(field, most) == []
    whole = most == 2**63 - 1  # beyond that it is read as a number with a fraction
    assert [path for path, _ in found(field, most + 1)] == (["spec.f", "<nil>"] if whole else ["<nil>"])


@given(st.integers(-5, 5), st.integers(-5, 5), st.integers(-5, 5))
def test_bounds_are_exactly_the_bounds(value, low, high):
    """Law: a number passes if and only if it is within both."""
    passes = not found({"type": "integer", "minimum": low, "maximum": high}, value)
    assert passes == (low <= value <= high)
