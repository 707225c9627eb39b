"""The scale subresource."""

import pytest
from kube_caller import DEFINITIONS, JSON_PATCH, MERGE, WIDGETS, definition, pod, spec_schema, widget

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
SCALE = f"{DEPLOYMENTS}/d/scale"


@pytest.fixture
def scaled(caller):
    """A caller with a deployment."""
    template = {"metadata": {"labels": {"app": "x"}}, "spec": pod()["spec"]}
    spec = {"replicas": 3, "selector": {"matchLabels": {"app": "x"}}, "template": template}
    caller.done("POST", DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": spec})
    return caller


def test_a_scale_is_read(scaled):
    """Wanted, there, and what selects them."""
    item = scaled.done("GET", SCALE)
    assert (item["kind"], item["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert item["spec"] == {"replicas": 3}
    assert item["status"] == {"replicas": 0, "selector": "app=x"}


def test_a_scale_is_changed(scaled):
    """By each verb; the object's generation counts it."""
    assert scaled.done("PUT", SCALE, {"metadata": {"name": "d"}, "spec": {"replicas": 1}})["spec"] == {"replicas": 1}
    assert scaled.patch(SCALE, {"spec": {"replicas": 5}})["spec"] == {"replicas": 5}
    operation = [{"op": "replace", "path": "/spec/replicas", "value": 0}]
    assert scaled.patch(SCALE, operation, JSON_PATCH)["spec"] == {}
    item = scaled.done("GET", f"{DEPLOYMENTS}/d")
    assert item["spec"]["replicas"] == 0
    assert item["metadata"]["generation"] == 4


def test_who_scales_owns_the_number(scaled):
    """Until it is zero, which a Scale does not show: then nobody owns it, nor does who scales it up again."""

    def owners():
        entries = scaled.done("GET", f"{DEPLOYMENTS}/d")["metadata"]["managedFields"]
        return [
            (entry["manager"], entry.get("subresource", ""), "time" in entry)
            for entry in entries
            if "f:replicas" in entry["fieldsV1"].get("f:spec", {})
        ]

    assert [owner[:2] for owner in owners()] == [("unknown", "")]
    scaled.patch(SCALE, {"spec": {"replicas": 5}}, fieldManager="one")
    assert owners() == [("one", "scale", False)]
    scaled.patch(SCALE, {"spec": {"replicas": 5}}, fieldManager="two")
    assert owners() == [("one", "scale", False)]
    scaled.patch(SCALE, {"spec": {"replicas": 0}}, fieldManager="two")
    assert owners() == []
    scaled.patch(SCALE, {"spec": {"replicas": 5}}, fieldManager="two")
    assert owners() == []


def test_who_scales_to_the_same_number_is_forgotten_by_the_next_write(scaled):
    """A second entry of the same writer, which goes as soon as somebody writes, were it nothing: a write of its own."""
    path = f"{DEPLOYMENTS}/d"
    scaled.patch(SCALE, {"spec": {"replicas": 3}})
    before = scaled.done("GET", path)["metadata"]
    assert ["f:replicas" in entry["fieldsV1"]["f:spec"] for entry in before["managedFields"]] == [True, False]
    after = scaled.patch(path, {})["metadata"]
    assert after["managedFields"] == before["managedFields"][1:]
    assert after["resourceVersion"] != before["resourceVersion"]
    assert scaled.patch(path, {})["metadata"] == after


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"spec": {"replicas": -1}}, 422),
        ({"spec": {"replicas": "3"}}, 400),
        ({"metadata": {"resourceVersion": "1"}}, 409),
    ],
)
def test_scales_that_are_refused(scaled, body, code):
    """Fewer than none, no number, an old version."""
    assert scaled.refused("PATCH", SCALE, body, content_type=MERGE)[0] == code


def test_other_verbs_are_refused(scaled):
    """405."""
    assert scaled.refused("DELETE", SCALE)[0] == 405


def test_custom_resources_say_where_their_replicas_are(caller):
    """And what stands there is judged."""
    paths = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.ready"}
    schema = spec_schema(size={"type": "integer"})
    caller.done("POST", DEFINITIONS, definition(schema, subresources={"status": {}, "scale": paths}))
    caller.done("POST", WIDGETS, widget(size=2))
    assert caller.patch(f"{WIDGETS}/w/scale", {"spec": {"replicas": 4}})["spec"] == {"replicas": 4}
    assert caller.done("GET", f"{WIDGETS}/w")["spec"] == {"size": 4}
    assert caller.causes("PATCH", f"{WIDGETS}/w", {"spec": {"size": -1}}, content_type=MERGE) == [
        ("FieldValueInvalid", ".spec.size")
    ]
    assert caller.causes("PATCH", f"{WIDGETS}/w/status", {"status": {"ready": "x"}}, content_type=MERGE) == [
        ("FieldValueInvalid", ".status.ready")
    ]
    too_many = {"spec": {"size": 1 << 31}}
    assert caller.causes("PATCH", f"{WIDGETS}/w", too_many, content_type=MERGE) == [("FieldValueInvalid", ".spec.size")]


def test_what_has_no_scale(caller):
    """404."""
    caller.done("POST", "/api/v1/namespaces/default/pods", pod("a"))
    assert caller.refused("GET", "/api/v1/namespaces/default/pods/a/scale")[0] == 404


def test_a_number_that_is_not_there_cannot_be_read(caller):
    """Of a custom resource: 500, as the real server says it; it can be set all the same."""
    paths = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    schema = spec_schema(replicas={"type": "integer"})
    caller.done("POST", DEFINITIONS, definition(schema, subresources={"scale": paths}))
    caller.done("POST", WIDGETS, widget("w"))
    assert caller.refused("GET", f"{WIDGETS}/w/scale")[:2] == (500, "InternalError")
    assert caller.patch(f"{WIDGETS}/w/scale", {"spec": {"replicas": 2}})["spec"] == {"replicas": 2}
    assert caller.done("GET", f"{WIDGETS}/w/scale")["spec"] == {"replicas": 2}
    assert caller.causes("PATCH", f"{WIDGETS}/w/scale", {"spec": {"replicas": -1}}, content_type=MERGE) == [
        ("FieldValueInvalid", ".spec.replicas")
    ]
