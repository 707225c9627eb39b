"""Custom resource definitions, and what they define."""

import pytest
from kube_caller import DEFINITIONS, MERGE, WIDGETS, Caller, definition, spec_schema, widget


@pytest.fixture
def widgets(caller):
    """A caller of a store that serves widgets."""
    size = {"type": "integer", "minimum": 0, "default": 3}
    name = {
        "type": "string",
        "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "name cannot be changed"}],
    }
    schema = spec_schema(size=size, name=name, mode={"type": "string", "enum": ["fast", "slow"]})
    schema["required"] = ["spec"]
    caller.done("POST", DEFINITIONS, definition(schema, subresources={"status": {}}))
    return caller


def test_a_definition_is_established_before_the_next_request(caller):
    """A watch sees it created, then ready."""
    watch = caller.watch(DEFINITIONS)
    caller.done("POST", DEFINITIONS, definition(spec_schema()))
    events = watch.take(caller.now)
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED"]
    assert [each["type"] for each in events[1]["object"]["status"]["conditions"]] == ["NamesAccepted", "Established"]
    assert events[1]["object"]["spec"]["names"]["listKind"] == "WidgetList"
    assert caller.done("GET", WIDGETS)["kind"] == "WidgetList"


def test_defaults_and_pruning(widgets):
    """What is missing is filled in, what is unknown dropped and told."""
    response = widgets.ask("POST", WIDGETS, widget("w", other=1))
    assert response.body["spec"] == {"size": 3}
    assert response.headers == (("Warning", '299 - "unknown field \\"spec.other\\""'),)
    assert widgets.refused("POST", WIDGETS, widget("v", other=1), fieldValidation="Strict")[0] == 400


def test_values_are_judged_with_causes(widgets):
    """422, one cause per field."""
    causes = widgets.causes("POST", WIDGETS, widget("w", size=-1, mode="odd", name=5))
    assert sorted(causes) == [
        ("FieldValueInvalid", "<nil>"),  # CEL rules were not asked
        ("FieldValueInvalid", "spec.size"),
        ("FieldValueNotSupported", "spec.mode"),
        ("FieldValueTypeInvalid", "spec.name"),
    ]
    assert widgets.causes("POST", WIDGETS, {**widget("w"), "spec": None}) == [
        ("FieldValueTypeInvalid", "spec"),
        ("FieldValueInvalid", "<nil>"),
    ]


def test_a_field_can_be_for_life(widgets):
    """By a rule about before: 422 in the words of the rule."""
    widgets.done("POST", WIDGETS, widget("w", name="a"))
    code, _, message = widgets.refused("PATCH", f"{WIDGETS}/w", {"spec": {"name": "b"}}, content_type=MERGE)
    assert code == 422
    assert message == 'Widget.test.dev "w" is invalid: spec.name: Invalid value: "b": name cannot be changed'


def test_status_and_generation(widgets):
    """All but metadata and status counts; status writes touch nothing else."""
    made = widgets.done("POST", WIDGETS, {**widget("w"), "status": {"ready": 1}})
    assert "status" not in made
    assert made["metadata"]["generation"] == 1
    path = f"{WIDGETS}/w"
    item = widgets.patch(
        f"{path}/status", {"status": {"ready": 1}, "spec": {"size": 9}, "metadata": {"labels": {"a": "b"}}}
    )
    assert (item["status"], item["spec"]["size"]) == ({"ready": 1}, 3)
    assert "labels" not in item["metadata"]
    assert item["metadata"]["generation"] == 1
    item = widgets.patch(path, {"status": {"ready": 2}, "metadata": {"labels": {"a": "b"}}})
    assert item["status"] == {"ready": 1}
    assert item["metadata"]["generation"] == 1
    assert widgets.patch(path, {"spec": {"size": 4}})["metadata"]["generation"] == 2


def test_a_replacement_needs_a_version(widgets):
    """Custom resources are never overwritten blindly."""
    widgets.done("POST", WIDGETS, widget("w"))
    assert widgets.causes("PUT", f"{WIDGETS}/w", widget("w")) == [("FieldValueInvalid", "metadata.resourceVersion")]
    assert widgets.refused("PUT", f"{WIDGETS}/x", widget("x"))[0] == 404


def test_kind_and_version_have_to_be_said(widgets):
    """There is no type to take them from."""
    assert widgets.refused("POST", WIDGETS, {"metadata": {"name": "w"}})[0] == 400
    assert widgets.refused("POST", WIDGETS, {**widget("w"), "apiVersion": "test.dev/v2"})[0] == 400


def test_a_definition_that_goes_takes_everything_along(widgets):
    """Objects are deleted, watches end, the path is gone; a new one begins empty."""
    widgets.done("POST", WIDGETS, widget("w"))
    watch = widgets.watch(WIDGETS, resourceVersion=widgets.store.revision)
    widgets.done("DELETE", f"{DEFINITIONS}/widgets.test.dev")
    assert widgets.told(watch) == [("DELETED", "w")]
    assert watch.closed
    assert widgets.refused("GET", WIDGETS)[:2] == (404, "NotFound")
    widgets.done("POST", DEFINITIONS, definition(spec_schema()))
    assert widgets.done("GET", WIDGETS)["items"] == []


def test_a_schema_can_change(widgets):
    """The next write is judged by the new one; what did not change is not."""
    widgets.done("POST", WIDGETS, widget("w", mode="fast"))
    item = widgets.done("GET", f"{DEFINITIONS}/widgets.test.dev")
    version = item["spec"]["versions"][0]
    schema = spec_schema(size={"type": "integer"}, mode={"type": "string", "enum": ["new"]})
    changed = {**item, "spec": {**item["spec"], "versions": [{**version, "schema": {"openAPIV3Schema": schema}}]}}
    widgets.done("PUT", f"{DEFINITIONS}/widgets.test.dev", changed)
    assert widgets.patch(f"{WIDGETS}/w", {"spec": {"size": 5}})["spec"] == {"size": 5, "mode": "fast"}
    assert widgets.refused("PATCH", f"{WIDGETS}/w", {"spec": {"mode": "slow"}}, content_type=MERGE)[0] == 422


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda body: body["metadata"].update(name="other"), "metadata.name"),
        (lambda body: body["spec"].update(scope="World"), "spec.scope"),
        (lambda body: body["spec"].update(group="A_"), "spec.group"),
        (lambda body: body["spec"]["names"].update(kind=""), "spec.names.kind"),
        (lambda body: body["spec"]["versions"][0].update(name=""), "spec.versions[0].name"),
        (
            lambda body: body["spec"]["versions"][0].update(additionalPrinterColumns=[{"name": "N", "type": "string"}]),
            "spec.versions[0].additionalPrinterColumns[0].jsonPath",
        ),
        (
            lambda body: body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"].update(spec=1),
            "spec.versions[0].schema.openAPIV3Schema.properties[spec]",
        ),
        (
            lambda body: body["spec"]["versions"][0]["schema"]["openAPIV3Schema"].update(required="a"),
            "spec.versions[0].schema.openAPIV3Schema.required",
        ),
        (lambda body: body["spec"]["versions"][0].update(storage=False), "spec.versions"),
        (lambda body: body["spec"]["versions"][0].pop("schema"), "spec.versions[0].schema.openAPIV3Schema"),
        (
            lambda body: body["spec"]["versions"][0]["schema"]["openAPIV3Schema"].update(type="string"),
            "spec.versions[0].schema.openAPIV3Schema.type",
        ),
    ],
)
def test_definitions_that_are_refused(caller, change, field):
    """422 with the field; and nothing is served."""
    body = definition(spec_schema())
    change(body)
    assert field in [where for _, where in caller.causes("POST", DEFINITIONS, body)]
    assert caller.ask("GET", WIDGETS).code == 404


def test_what_a_definition_is_about_is_for_life(widgets):
    """Group, scope, names."""
    patch = {"spec": {"scope": "Cluster"}}
    assert widgets.causes("PATCH", f"{DEFINITIONS}/widgets.test.dev", patch, content_type=MERGE) == [
        ("FieldValueInvalid", "spec.scope")
    ]


def test_fields_can_be_selected_by():
    """selectableFields."""
    caller = Caller()
    fields = [{"jsonPath": ".spec.mode"}]
    caller.done("POST", DEFINITIONS, definition(spec_schema(mode={"type": "string"}), selectableFields=fields))
    caller.done("POST", WIDGETS, widget("w", mode="fast"))
    caller.done("POST", WIDGETS, widget("v", mode="slow"))
    found = caller.done("GET", WIDGETS, fieldSelector="spec.mode=fast")["items"]
    assert [item["metadata"]["name"] for item in found] == ["w"]
    assert caller.refused("GET", WIDGETS, fieldSelector="spec.size=1")[2] == "field label not supported: spec.size"
