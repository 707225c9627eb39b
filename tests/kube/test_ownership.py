"""Sets of fields as trees."""

import pytest
from hypothesis import given, strategies as st

from iriscw_sims.kube.ownership import (
    compare,
    fields_of,
    gathered,
    has,
    insert,
    joined,
    members,
    remove,
    shown,
    without,
)
from iriscw_sims.kube.schema import ANY, core_schema

POD, MAP = core_schema("Pod"), core_schema("ConfigMap")
PATHS = st.lists(st.lists(st.sampled_from(["f:a", "f:b", "f:c"]), min_size=1, max_size=3).map(tuple), max_size=8)


def tree_of(paths):
    """Return a tree built one path after the other."""
    tree = {}
    for path in paths:
        tree = insert(tree, path)
    return tree


@given(PATHS)
def test_a_tree_is_the_set_of_its_members(paths):
    """Law: what was put in is in, nothing else, in whichever way it was built."""
    tree = tree_of(paths)
    assert {*members(tree)} == {*paths} == {*members(gathered(paths))}
    assert len([*members(tree)]) == len({*paths})
    assert all(has(tree, path) for path in paths)


@given(PATHS, PATHS)
def test_removing_takes_only_what_is_named(paths, gone):
    """Law: set difference; what is below a removed member stays."""
    tree = tree_of(paths)
    for path in gone:
        tree = (remove(tree, path) if tree else tree) or {}
    assert {*members(tree)} == {*paths} - {*gone}


@given(PATHS, PATHS)
def test_trees_unite(one, other):
    """Law: set union."""
    trees = [tree_of(paths) for paths in (one, other) if paths]
    assert {*members(joined(trees))} == {*one} | {*other}


@given(PATHS, PATHS)
def test_trees_are_not_changed(paths, more):
    """Law: an old tree has the same members after it was built upon."""
    tree = tree_of(paths)
    for path in more:
        insert(tree, path)
        if tree:
            remove(tree, path)
    assert {*members(tree)} == {*paths}


def test_differences_are_by_leaf_and_by_key():
    """A container that is added is named with all its leaves; an atomic list is one."""
    old = {"spec": {"containers": [{"name": "a", "image": "1", "args": ["x"]}], "tolerations": []}}
    new = {
        "spec": {
            "containers": [{"name": "a", "image": "2", "args": ["y"]}, {"name": "b"}],
            "tolerations": [{"key": "k"}],
        }
    }
    found = compare(POD, old, new)
    assert {shown(path) for path in found.modified} == {
        '.spec.containers[name="a"].image',
        '.spec.containers[name="a"].args',
        ".spec.tolerations",
    }
    assert {shown(path) for path in found.added} == {'.spec.containers[name="b"]', '.spec.containers[name="b"].name'}
    assert found.removed == []
    back = compare(POD, new, old)
    assert {shown(path) for path in back.removed} == {shown(path) for path in found.added}


def test_a_map_that_is_added_is_itself_a_member():
    """As in managedFields of a create: labels with a dot."""
    found = compare(MAP, {"metadata": {}}, {"metadata": {"labels": {"a": "1"}}})
    assert gathered(found.added) == {"f:metadata": {"f:labels": {".": {}, "f:a": {}}}}


def test_the_fields_of_a_configuration():
    """What an apply owns: leaves, and entries of maps and keyed lists."""
    config = {
        "metadata": {"labels": {"a": "1"}, "finalizers": ["x/y"]},
        "spec": {"containers": [{"name": "c", "ports": [{"containerPort": 1}]}], "nodeSelector": {"n": "1"}},
    }
    assert fields_of(POD, config) == {
        "f:metadata": {"f:labels": {"f:a": {}}, "f:finalizers": {'v:"x/y"': {}}},
        "f:spec": {
            "f:containers": {
                'k:{"name":"c"}': {
                    ".": {},
                    "f:name": {},
                    "f:ports": {'k:{"containerPort":1,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}},
                }
            },
            "f:nodeSelector": {},
        },
    }


@pytest.mark.parametrize(
    ("paths", "branch", "left"),
    [
        ([("f:a",), ("f:b", "f:c")], ("f:a",), [("f:b", "f:c")]),
        ([("f:a",), ("f:b", "f:c"), ("f:b", "f:d", "f:e")], ("f:b",), [("f:a",)]),
        ([("f:b", "f:c"), ("f:b", "f:d", "f:e")], ("f:b", "f:d"), [("f:b", "f:c")]),
        ([("f:b",), ("f:b", "f:d", "f:e")], ("f:b", "f:d"), [("f:b",)]),
        ([("f:a",)], ("f:x", "f:y"), [("f:a",)]),
        ([("f:a",)], ("f:a",), []),
    ],
)
def test_a_branch_goes_with_all_that_is_below_it(paths, branch, left):
    """And leaves no empty stem."""
    tree = without(gathered(paths), (branch,))
    assert sorted(members(tree)) == sorted(left)


def test_what_is_left_out_is_not_compared():
    """Whole branches, at any depth, on both sides."""
    old = {"spec": {"a": 1}, "metadata": {"labels": {"x": "1"}, "annotations": {"y": "1"}}}
    new = {"spec": {"a": 2}, "metadata": {"annotations": {"y": "2"}}, "status": {"z": 1}}
    found = compare(ANY, old, new, (("f:status",), ("f:metadata", "f:labels"), ("f:spec",)))
    assert (found.added, found.removed) == ([], [])
    assert found.modified == [("f:metadata", "f:annotations", "f:y")]
