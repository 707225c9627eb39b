"""JSON patch and merge patch."""

import pytest
from hypothesis import given, strategies as st

from iriscw_sims.kube.frozen import freeze
from iriscw_sims.kube.patches import OPERATIONS_LIMIT, json_patch, merge
from iriscw_sims.kube.refusals import Refused

DOCUMENT = freeze({"a": {"b": [1, 2, 3]}, "c/d": 1, "e~f": None})
VALUES = st.recursive(
    st.integers(0, 3) | st.none(),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize(
    ("operation", "wanted"),
    [
        ({"op": "add", "path": "/x", "value": 1}, {**DOCUMENT, "x": 1}),
        ({"op": "add", "path": "/a/b/-", "value": 4}, {**DOCUMENT, "a": {"b": [1, 2, 3, 4]}}),
        ({"op": "add", "path": "/a/b/0", "value": 0}, {**DOCUMENT, "a": {"b": [0, 1, 2, 3]}}),
        ({"op": "add", "path": "/a/b/3", "value": 4}, {**DOCUMENT, "a": {"b": [1, 2, 3, 4]}}),
        ({"op": "remove", "path": "/a/b/1"}, {**DOCUMENT, "a": {"b": [1, 3]}}),
        ({"op": "remove", "path": "/c~1d"}, {"a": {"b": [1, 2, 3]}, "e~f": None}),
        ({"op": "replace", "path": "/e~0f", "value": 2}, {**DOCUMENT, "e~f": 2}),
        ({"op": "replace", "path": "", "value": {"z": 1}}, {"z": 1}),
        ({"op": "move", "from": "/c~1d", "path": "/a/g"}, {"a": {"b": [1, 2, 3], "g": 1}, "e~f": None}),
        ({"op": "copy", "from": "/a/b/0", "path": "/g"}, {**DOCUMENT, "g": 1}),
        ({"op": "test", "path": "/a/b", "value": [1, 2, 3]}, DOCUMENT),
        ({"op": "test", "path": "/missing", "value": None}, DOCUMENT),
        ({"op": "test", "path": "", "value": DOCUMENT}, DOCUMENT),
        ({"op": "replace", "path": "/missing", "value": 1}, {**DOCUMENT, "missing": 1}),
        ({"op": "copy", "from": "/missing", "path": "/x"}, {**DOCUMENT, "x": None}),
        ({"op": "add", "path": "/a/b/-1", "value": 4}, {**DOCUMENT, "a": {"b": [1, 2, 3, 4]}}),
        ({"op": "replace", "path": "/a/b/-1", "value": 4}, {**DOCUMENT, "a": {"b": [1, 2, 4]}}),
    ],
)
def test_operations(operation, wanted):
    """Each of the six, on objects and arrays."""
    assert json_patch(DOCUMENT, [operation]) == wanted


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/missing"},
        {"op": "replace", "path": "/missing/deep", "value": 1},
        {"op": "replace", "path": "", "value": 1},
        {"op": "add", "path": "", "value": {}},
        {"op": "add", "path": "/missing/deep", "value": 1},
        {"op": "add", "path": "/a/b/5", "value": 1},
        {"op": "remove", "path": "/a/b/x"},
        {"op": "remove", "path": ""},
        {"op": "add", "path": "/c~1d/deep", "value": 1},
        {"op": "test", "path": "/a/b/0", "value": True},
        {"op": "test", "path": "/c~1d", "value": 2},
        {"op": "move", "from": "/missing", "path": "/x"},
        {"op": "dance", "path": "/a"},
        {"op": "add"},
    ],
)
def test_operations_that_do_not_fit(operation):
    """422, and the document stays as it was."""
    with pytest.raises(Refused) as refused:
        json_patch(DOCUMENT, [{"op": "add", "path": "/x", "value": 1}, operation])
    assert refused.value.status["code"] == 422


@pytest.mark.parametrize(
    ("patch", "code"), [({}, 400), (["a"], 400), ([{"op": "test", "path": ""}] * (OPERATIONS_LIMIT + 1), 413)]
)
def test_what_is_no_patch(patch, code):
    """An object is none (400), and there is a limit (413)."""
    with pytest.raises(Refused) as refused:
        json_patch(DOCUMENT, patch)
    assert refused.value.status["code"] == code


def test_a_patch_shares_what_it_does_not_touch():
    """The new document holds the old one's branches."""
    document = freeze({"a": {"b": 1}, "c": {"d": 2}})
    assert json_patch(document, [{"op": "add", "path": "/c/e", "value": 1}])["a"] is document["a"]
    assert merge(document, {"c": {"e": 1}})["a"] is document["a"]


@given(VALUES, VALUES)
def test_a_merge_patch_is_idempotent(target, patch):
    """Law: merging twice is merging once."""
    once = merge(target, patch)
    assert merge(once, patch) == once


@given(
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 3)),
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 3) | st.none()),
)
def test_a_flat_merge_patch_says_every_field(target, patch):
    """Law: what a patch names is as it says, null is gone, all else stays."""
    merged = merge(target, patch)
    for key in "abc":
        assert merged.get(key) == (patch[key] if key in patch else target.get(key))
