"""Server-side apply."""

import pytest
from hypothesis import given, strategies as st
from kube_caller import (
    APPLY,
    DEFINITIONS,
    MAPS,
    PODS,
    WIDGETS,
    Caller,
    config_map,
    definition,
    pod,
    spec_schema,
    widget,
)

from profiles import examples

A = f"{MAPS}/a"


def conflicts(caller, body, manager, path=A):
    """Return fields and messages of the conflicts that an apply meets."""
    response = caller.ask("PATCH", path, body, content_type=APPLY, fieldManager=manager)
    assert (response.code, response.body["reason"]) == (409, "Conflict")
    return [(cause["field"], cause["message"]) for cause in response.body["details"]["causes"]]


def test_an_apply_creates_what_is_not_there(caller):
    """201, and owned with operation Apply."""
    response = caller.ask("PATCH", A, config_map("a", {"k": "1"}), content_type=APPLY, fieldManager="one")
    assert response.code == 201
    (entry,) = response.body["metadata"]["managedFields"]
    assert (entry["operation"], entry["fieldsV1"]) == ("Apply", {"f:data": {"f:k": {}}})


def test_applying_again_changes_nothing(caller):
    """Same object, same revision."""
    first = caller.apply(A, config_map("a", {"k": "1"}), "one")
    caller.now += 10**12
    assert caller.apply(A, config_map("a", {"k": "1"}), "one") == first


def test_what_is_no_longer_applied_is_removed(caller):
    """Unless somebody else owns it."""
    caller.apply(A, config_map("a", {"k": "1", "l": "1"}), "one")
    caller.apply(A, config_map("a", {"l": "1"}), "two")
    assert caller.apply(A, config_map("a", {}), "one")["data"] == {"l": "1"}
    assert "data" not in caller.apply(A, config_map("a"), "two")


def test_another_owner_is_a_conflict_unless_forced(caller):
    """The cause names owner and field; forcing takes the field over."""
    caller.apply(A, config_map("a", {"k": "1"}), "one")
    assert conflicts(caller, config_map("a", {"k": "2"}), "two") == [(".data.k", 'conflict with "one"')]
    forced = caller.apply(A, config_map("a", {"k": "2"}), "two", force="true")
    assert [entry["manager"] for entry in forced["metadata"]["managedFields"]] == ["two"]


def test_a_conflict_with_an_update_says_when(caller):
    """And with which version."""
    caller.done("POST", MAPS, config_map("a", {"k": "1", "l": "1"}), fieldManager="editor")
    said = 'conflict with "editor" using v1 at 2027-01-15T08:00:00Z'
    assert conflicts(caller, config_map("a", {"k": "2", "l": "2"}), "two") == [(".data.k", said), (".data.l", said)]


def test_equal_values_are_shared(caller):
    """Two may want the same."""
    caller.apply(A, config_map("a", {"k": "1"}), "one")
    shared = caller.apply(A, config_map("a", {"k": "1"}), "two")
    assert {entry["manager"] for entry in shared["metadata"]["managedFields"]} == {"one", "two"}
    conflicts(caller, config_map("a", {"k": "2"}), "one")


def test_what_was_never_tracked_belongs_to_before(caller):
    """The first apply to such an object meets before-first-apply."""
    caller.done("POST", MAPS, config_map("a", {"k": "1"}))
    caller.patch(A, {"metadata": {"managedFields": [{}]}})
    ((field, said),) = conflicts(caller, config_map("a", {"k": "2"}), "one")
    assert field == ".data.k"
    assert said.startswith('conflict with "before-first-apply" using v1 at')


def test_what_came_before_is_known_by_what_a_path_writes(caller):
    """An apply to the status finds no owner of the rest."""
    caller.done("POST", PODS, pod("a"))
    caller.patch(f"{PODS}/a", {"metadata": {"managedFields": []}})
    before = caller.store.revision
    caller.apply(f"{PODS}/a/status", {"apiVersion": "v1", "kind": "Pod"}, "kubelet")
    owners = caller.done("GET", f"{PODS}/a")["metadata"]["managedFields"]
    assert ["f:spec" in entry["fieldsV1"] for entry in owners] == [False]
    assert caller.store.revision == before + 1


def test_keyed_lists_merge_entry_by_entry(caller):
    """A container of each of two managers; the one that is dropped goes with all that is in it."""
    caller.done("POST", DEFINITIONS, definition(spec_schema(ports=PORTS, tags=SET)))
    path = f"{WIDGETS}/w"
    caller.apply(path, widget(ports=[{"port": 1}, {"port": 2}], tags=["a"]), "one")
    item = caller.apply(path, widget(ports=[{"port": 3, "name": "x"}], tags=["b"]), "two")
    assert [each["port"] for each in item["spec"]["ports"]] == [1, 2, 3]
    assert item["spec"]["tags"] == ["a", "b"]
    item = caller.apply(path, widget(ports=[{"port": 2}]), "one")
    assert [each["port"] for each in item["spec"]["ports"]] == [2, 3]
    assert item["spec"]["tags"] == ["b"]


PORTS = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["port"],
    "items": {
        "type": "object",
        "required": ["port"],
        "properties": {"port": {"type": "integer"}, "name": {"type": "string"}},
    },
}
SET = {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}


def test_an_apply_to_the_status_leaves_the_rest(caller):
    """And the other way round."""
    caller.done("POST", PODS, pod("a"))
    body = {"apiVersion": "v1", "kind": "Pod", "status": {"phase": "Running"}, "spec": {"nodeName": "x"}}
    item = caller.apply(f"{PODS}/a/status", body, "kubelet", force="true")
    assert item["status"]["phase"] == "Running"
    assert "nodeName" not in item["spec"]


@pytest.mark.parametrize(
    ("body", "manager", "code"),
    [
        (config_map("a"), "", 422),
        ([], "m", 400),
        ({"apiVersion": "v1"}, "m", 400),
        ({"kind": "ConfigMap", "apiVersion": "v2"}, "m", 400),
        (config_map("b"), "m", 400),
        (config_map("a", managedFields=[]), "m", 400),
        ({**config_map("a"), "extra": 1}, "m", 500),
        (config_map("a", {"k": 1}), "m", 500),
        (config_map("a", uid="known"), "m", 409),
    ],
)
def test_applies_that_are_refused(caller, body, manager, code):
    """With the server's own codes, 500 for a field that does not exist included."""
    assert caller.refused("PATCH", A, body, content_type=APPLY, fieldManager=manager)[0] == code
    assert caller.refused("GET", A)[0] == 404


def test_an_old_version_is_a_conflict(caller):
    """An apply may say on what it rests."""
    old = caller.apply(A, config_map("a", {"k": "1"}), "one")["metadata"]["resourceVersion"]
    caller.patch(A, {"data": {"z": "1"}})
    body = config_map("a", {"k": "2"}, resourceVersion=old)
    assert caller.refused("PATCH", A, body, content_type=APPLY, fieldManager="one")[:2] == (409, "Conflict")


DATA = st.dictionaries(st.sampled_from("klm"), st.sampled_from("12"), max_size=3)


@examples(60)
@given(st.lists(st.tuples(st.sampled_from(["one", "two"]), DATA), min_size=1, max_size=6))
def test_forced_applies_give_each_manager_what_it_wants(steps):
    """Law: after a forced apply the object has what was applied, idempotently; nothing that nobody applied stays."""
    caller = Caller()
    wanted = {}
    for manager, data in steps:
        item = caller.apply(A, config_map("a", data or None), manager, force="true")
        wanted[manager] = data
        assert {**item.get("data", {}), **data} == item.get("data", {})
        assert caller.apply(A, config_map("a", data or None), manager, force="true") == item
        for key, value in item.get("data", {}).items():
            assert any(other.get(key) == value for other in wanted.values())
