"""Frozen JSON: equal to plain JSON, shared safely, cheap to write."""

import copy
import json
import pickle

import pytest
from hypothesis import given, strategies as st

from iriscw._errors import InvalidArgument
from iriscw_sims.kube.frozen import FrozenDict, FrozenList, freeze, shared, thaw
from raised import that

SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3)
TREES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
)


@given(TREES)
def test_frozen_json_equals_and_encodes_like_plain_json(tree):
    """Freezing changes no value, for whoever compares, encodes, copies or pickles it."""
    frozen = freeze(tree)
    assert frozen == tree
    assert json.dumps(frozen) == json.dumps(tree)
    assert copy.deepcopy(frozen) == thaw(frozen) == tree
    assert pickle.loads(pickle.dumps(frozen)) == tree


@given(TREES)
def test_freezing_twice_gives_the_same_object(tree):
    """What is frozen is taken as it is: a write costs only what is new."""
    frozen = freeze(tree)
    assert freeze(frozen) is frozen


@given(TREES, TREES)
def test_sharing_keeps_the_value_and_what_did_not_change(old, new):
    """Equal branches become the old ones; nothing else changes."""
    frozen = freeze(old)
    result = shared(frozen, new)
    assert result == new
    assert (result is frozen) == (new == old)


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value.__setitem__("a", 1),
        lambda value: value.__delitem__("a"),
        lambda value: value.update(a=1),
        lambda value: value.pop("a"),
        lambda value: value.setdefault("b", 1),
        lambda value: value.clear(),
        lambda value: value["a"].append(1),
        lambda value: value["a"].__setitem__(0, 1),
        lambda value: value["a"].sort(),
        lambda value: value["a"].extend([1]),
        lambda value: value["a"][0].update(c=1),
    ],
)
def test_every_change_is_refused(change):
    """No method of dict or list changes a frozen tree, at any depth."""
    frozen = freeze({"a": [{"b": 1}]})
    with pytest.raises(TypeError, check=that(comes_from="frozen._refuse")):
        change(frozen)
    assert frozen == {"a": [{"b": 1}]}


def test_a_plain_copy_can_be_changed_without_harm():
    """A copy owns all of itself."""
    frozen = freeze({"a": [1]})
    plain = thaw(frozen)
    plain["a"].append(2)
    assert frozen == {"a": [1]}
    assert type(plain) is dict
    assert type(plain["a"]) is list


def test_freezing_copies_the_callers_containers():
    """A caller that changes its own tree afterwards changes nothing here."""
    tree = {"a": [1]}
    frozen = freeze(tree)
    tree["a"].append(2)
    assert frozen == {"a": [1]}
    assert type(frozen) is FrozenDict
    assert type(frozen["a"]) is FrozenList


def test_what_is_no_json_is_refused():
    """A set or an object is a mistake of the caller."""
    with pytest.raises(InvalidArgument, check=that(comes_from="frozen.freeze", names="set")):
        freeze({"a": {1}})
