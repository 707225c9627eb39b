"""Deletes: preconditions, grace, finalizers, propagation."""

import pytest
from kube_caller import DEFINITIONS, MAPS, PODS, SECOND, WIDGETS, config_map, definition, pod, spec_schema, widget

from iriscw_sims.kube.deletion import Options, finalizers_after

A = f"{PODS}/a"


def test_what_waits_for_nothing_is_gone_at_once(caller):
    """A Status tells its uid; pods and some others answer with the object."""
    uid = caller.done("POST", MAPS, config_map("a"))["metadata"]["uid"]
    assert caller.done("DELETE", f"{MAPS}/a") == {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": {"name": "a", "kind": "configmaps", "uid": uid},
    }  # fmt: skip
    assert caller.refused("DELETE", f"{MAPS}/a")[:2] == (404, "NotFound")


def test_a_pod_on_a_node_is_left_time_to_end(caller):
    """30 s by default; the kubelet ends it with a delete without grace."""
    caller.done("POST", PODS, pod("a", node="n"))
    item = caller.done("DELETE", A)
    assert item["metadata"]["deletionGracePeriodSeconds"] == 30
    assert item["metadata"]["deletionTimestamp"] == "2027-01-15T08:00:30Z"
    assert item["metadata"]["generation"] == 2
    watch = caller.watch(PODS, resourceVersion=caller.store.revision)
    caller.done("DELETE", A, {"gracePeriodSeconds": 0})
    assert caller.told(watch) == [("MODIFIED", "a"), ("DELETED", "a")]


@pytest.mark.parametrize(
    ("spec", "phase", "options", "grace"),
    [
        ({"node": "n", "grace": 5}, "", {}, 5),
        ({"node": "n", "grace": 5}, "", {"gracePeriodSeconds": 7}, 7),
        ({"node": "n"}, "", {"gracePeriodSeconds": -3}, 1),
        ({"node": "n"}, "Running", {}, 30),
        ({"node": "n"}, "Succeeded", {}, None),
        ({"node": "n"}, "Failed", {"gracePeriodSeconds": 9}, None),
        ({}, "", {}, None),
    ],
)
def test_how_long_a_pod_is_left(caller, spec, phase, options, grace):
    """What the caller says, else the pod; nothing if it never ran or has ended (``None``: gone)."""
    caller.done("POST", PODS, pod("a", **spec))
    if phase:
        caller.patch(f"{A}/status", {"status": {"phase": phase}})
    caller.done("DELETE", A, options)
    response = caller.ask("GET", A)
    assert response.body.get("metadata", {}).get("deletionGracePeriodSeconds") == grace
    assert (response.code == 404) == (grace is None)


def test_grace_is_only_shortened(caller):
    """From when it began, and never into the past."""
    caller.done("POST", PODS, pod("a", node="n"))
    first = caller.done("DELETE", A)
    assert caller.done("DELETE", A) == first
    assert caller.done("DELETE", A, {"gracePeriodSeconds": 60}) == first
    caller.now += 5 * SECOND
    shorter = caller.done("DELETE", A, {"gracePeriodSeconds": 10})
    assert shorter["metadata"]["deletionTimestamp"] == "2027-01-15T08:00:10Z"
    late = caller.done("DELETE", A, {"gracePeriodSeconds": 2})
    assert late["metadata"]["deletionTimestamp"] == "2027-01-15T08:00:05Z"
    assert late["metadata"]["deletionGracePeriodSeconds"] == 1


def test_preconditions(caller):
    """409 with the kind, not the resource, as upstream."""
    old = caller.done("POST", MAPS, config_map("a"))["metadata"]
    caller.patch(f"{MAPS}/a", {"data": {"k": "1"}})
    for wrong in ({"uid": "other"}, {"resourceVersion": old["resourceVersion"]}):
        response = caller.ask("DELETE", f"{MAPS}/a", {"preconditions": wrong})
        assert (response.code, response.body["reason"]) == (409, "Conflict")
        assert response.body["details"] == {"name": "a", "kind": "ConfigMap"}
    caller.done("DELETE", f"{MAPS}/a", {"preconditions": {"uid": old["uid"]}})


def test_a_finalizer_holds_an_object_until_it_is_taken_off(caller):
    """A deletion is an update that others see; the last finalizer's removal ends it."""
    caller.done("POST", MAPS, config_map("a", finalizers=["x.dev/a", "x.dev/b"]))
    watch = caller.watch(MAPS, resourceVersion=caller.store.revision)
    going = caller.done("DELETE", f"{MAPS}/a")
    assert going["metadata"]["deletionGracePeriodSeconds"] == 0
    assert caller.done("DELETE", f"{MAPS}/a") == going
    assert caller.causes(
        "PATCH", f"{MAPS}/a", {"metadata": {"finalizers": ["x.dev/new"]}}, content_type="application/merge-patch+json"
    )[0] == (
        "FieldValueForbidden",
        "metadata.finalizers",
    )
    caller.patch(f"{MAPS}/a", {"metadata": {"finalizers": ["x.dev/b"]}})
    assert "deletionTimestamp" in caller.patch(f"{MAPS}/a", {"metadata": {"deletionTimestamp": None}})["metadata"]
    caller.patch(f"{MAPS}/a", {"metadata": {"finalizers": None}})
    assert caller.told(watch) == [("MODIFIED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


def test_a_pod_waits_for_grace_and_finalizers_both(caller):
    """Whichever is last."""
    caller.done("POST", PODS, pod("a", node="n", finalizers=["x.dev/a"]))
    caller.done("DELETE", A)
    caller.patch(A, {"metadata": {"finalizers": None}})
    assert caller.done("GET", A)["metadata"]["deletionGracePeriodSeconds"] == 30
    caller.done("DELETE", A, {"gracePeriodSeconds": 0})
    assert caller.ask("GET", A).code == 404


@pytest.mark.parametrize(
    ("finalizers", "options", "wanted"),
    [
        ([], Options(), []),
        ([], Options(policy="Foreground"), ["foregroundDeletion"]),
        ([], Options(policy="Orphan"), ["orphan"]),
        (["x/y", "orphan"], Options(policy="Background"), ["x/y"]),
        (["orphan"], Options(), ["orphan"]),
        (["foregroundDeletion"], Options(), ["foregroundDeletion"]),
        ([], Options(orphan=True), ["orphan"]),
        (["orphan"], Options(orphan=False), []),
    ],
)
def test_propagation_is_a_finalizer(finalizers, options, wanted):
    """What the collector is to do first."""
    assert finalizers_after(finalizers, options) == wanted


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"propagationPolicy": "Sideways"}, 422),
        ({"propagationPolicy": "Orphan", "orphanDependents": True}, 422),
        ({"dryRun": ["Some"]}, 422),
        ({"gracePeriodSeconds": "soon"}, 400),
        ([1], 400),
    ],
)
def test_options_that_make_no_sense(caller, options, code):
    """Nothing is deleted."""
    caller.done("POST", MAPS, config_map("a"))
    assert caller.refused("DELETE", f"{MAPS}/a", options)[0] == code
    caller.done("GET", f"{MAPS}/a")


def test_options_can_stand_in_the_query(caller):
    """As kubectl raw and simple clients send them."""
    caller.done("POST", MAPS, config_map("a"))
    item = caller.done("DELETE", f"{MAPS}/a", propagationPolicy="Foreground")
    assert item["metadata"]["finalizers"] == ["foregroundDeletion"]


def test_a_collection_is_deleted_by_selector(caller):
    """The answer lists what was there; what waits, waits."""
    caller.done("POST", MAPS, config_map("a", labels={"x": "1"}))
    caller.done("POST", MAPS, config_map("b", labels={"x": "1"}, finalizers=["x.dev/a"]))
    caller.done("POST", MAPS, config_map("c"))
    told = caller.done("DELETE", MAPS, labelSelector="x=1")
    assert [item["metadata"]["name"] for item in told["items"]] == ["a", "b"]
    left = caller.done("GET", MAPS)["items"]
    assert [(item["metadata"]["name"], "deletionTimestamp" in item["metadata"]) for item in left] == [
        ("b", True),
        ("c", False),
    ]
    assert caller.refused("DELETE", "/api/v1/configmaps")[0] == 405


def test_namespaces_go_in_two_steps(caller):
    """Terminating until its own finalizer is taken off through /finalize; some never go."""
    path = "/api/v1/namespaces/n"
    caller.done("POST", "/api/v1/namespaces", {"metadata": {"name": "n"}})
    going = caller.done("DELETE", path)
    assert going["status"]["phase"] == "Terminating"
    caller.done("PUT", path, {**going, "spec": {"finalizers": []}})
    assert caller.done("GET", path)["spec"]["finalizers"] == ["kubernetes"]
    caller.done("PUT", f"{path}/finalize", {**going, "metadata": {"name": "n"}, "spec": {"finalizers": []}})
    assert caller.ask("GET", path).code == 404
    assert caller.refused("DELETE", "/api/v1/namespaces/default")[:2] == (403, "Forbidden")


@pytest.mark.parametrize(
    ("kind", "blank"),
    [
        ("configmap", {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {}}),
        ("pod", {"kind": "Pod", "apiVersion": "v1", "metadata": {}, "spec": {"containers": None}, "status": {}}),
        ("widget", {"kind": "Widget", "apiVersion": "test.dev/v1"}),
    ],
)
def test_a_trial_that_takes_the_last_finalizer_off_shows_nothing(caller, kind, blank):
    """An oddity of the real server: it shows what its update would have filled in. Nothing is deleted."""
    if kind == "widget":
        caller.done("POST", DEFINITIONS, definition(spec_schema()))
    collection, body = {
        "configmap": (MAPS, config_map("a")), "pod": (PODS, pod("a")), "widget": (WIDGETS, widget("a")),
    }[kind]  # fmt: skip
    caller.done("POST", collection, body)
    path = f"{collection}/a"
    waiting = caller.done("DELETE", path, {"propagationPolicy": "Orphan", "gracePeriodSeconds": 0})
    assert waiting["metadata"]["finalizers"] == ["orphan"]
    assert caller.done("DELETE", path, {"propagationPolicy": "Background", "dryRun": ["All"]}) == blank
    assert caller.done("GET", path) == waiting
