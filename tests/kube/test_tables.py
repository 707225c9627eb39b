"""Tables and metadata alone."""

import pytest
from kube_caller import DEFINITIONS, MAPS, PODS, SECOND, WIDGETS, config_map, definition, pod, spec_schema, widget

from iriscw_sims.kube.clock import written
from iriscw_sims.kube.tables import age, wants_partial, wants_table

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0s"), (119, "119s"), (120, "2m"), (150, "2m30s"), (600, "10m"), (10_799, "179m"), (10_800, "3h"),
        (11_000, "3h3m"), (8 * 3600, "8h"), (48 * 3600, "2d"), (50 * 3600, "2d2h"), (8 * 86_400, "8d"),
        (800 * 86_400, "2y70d"), (9 * 365 * 86_400, "9y"), (-5, "<invalid>"),
    ],
)  # fmt: skip
def test_ages(seconds, said):
    """One or two units, as kubectl shows them."""
    assert age(written(10**9 * SECOND), (10**9 + seconds) * SECOND) == said


def test_no_age():
    """Of what was never made."""
    assert age(None, 0) == "<unknown>"


def test_a_list_as_a_table(caller):
    """Columns, a row an object, its metadata beside it; all of it or nothing if asked so."""
    caller.done("POST", MAPS, config_map("a", {"k": "1"}))
    caller.now += 90 * SECOND
    body = caller.done("GET", MAPS, accept=TABLE)
    assert [each["name"] for each in body["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert body["rows"][0]["cells"] == ["a", 1, "90s"]
    assert body["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    assert caller.done("GET", MAPS, accept=TABLE, includeObject="Object")["rows"][0]["object"]["data"] == {"k": "1"}
    assert "object" not in caller.done("GET", MAPS, accept=TABLE, includeObject="None")["rows"][0]


def test_one_object_as_a_table(caller):
    """One row."""
    caller.done("POST", MAPS, config_map("a"))
    body = caller.done("GET", f"{MAPS}/a", accept=TABLE)
    assert [row["cells"][0] for row in body["rows"]] == ["a"]


def test_pods_and_nodes_tell_what_people_look_for(caller):
    """Ready, status with its reason, restarts; the state and version of a node."""
    caller.done("POST", PODS, pod("a", node="n"))
    assert caller.done("GET", PODS, accept=TABLE)["rows"][0]["cells"][:4] == ["a", "0/1", "Pending", 0]
    waiting = {"name": "main", "ready": False, "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    caller.patch(f"{PODS}/a/status", {"status": {"phase": "Running", "containerStatuses": [waiting]}})
    assert caller.done("GET", PODS, accept=TABLE)["rows"][0]["cells"][:4] == ["a", "0/1", "CrashLoopBackOff", 3]
    caller.done("DELETE", f"{PODS}/a")
    assert caller.done("GET", PODS, accept=TABLE)["rows"][0]["cells"][2] == "Terminating"
    node = {
        "metadata": {"name": "g"},
        "spec": {"unschedulable": True},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    caller.done("POST", "/api/v1/nodes", node)
    assert caller.done("GET", "/api/v1/nodes", accept=TABLE)["rows"][0]["cells"][:2] == [
        "g",
        "Ready,SchedulingDisabled",
    ]


def test_custom_columns(caller):
    """By JSON path: a field, an index, the first entry with a value; a date is an age."""
    paths = [
        ("SIZE", "integer", ".spec.size"),
        ("QUOTA", "string", '.status.conditions[?(@.type=="Quota")].reason'),
        ("FIRST", "string", ".spec.list[0]"),
        ("LABEL", "string", ".metadata.labels.x\\.dev/a"),
        ("MADE", "date", ".metadata.creationTimestamp"),
    ]
    columns = [{"name": name, "type": kind, "jsonPath": path} for name, kind, path in paths]
    schema = spec_schema(size={"type": "integer"}, list={"type": "array", "items": {"type": "string"}})
    caller.done("POST", DEFINITIONS, definition(schema, additionalPrinterColumns=columns))
    body = widget("w", size=3, list=["x"])
    conditions = [{"type": "Other", "reason": "No"}, {"type": "Quota", "reason": "Under"}]
    body |= {"status": {"conditions": conditions}}
    body["metadata"]["labels"] = {"x.dev/a": "l"}
    caller.done("POST", WIDGETS, body)
    caller.done("POST", WIDGETS, widget("v"))
    rows = caller.done("GET", WIDGETS, accept=TABLE)["rows"]
    assert [row["cells"] for row in rows] == [["v", None, None, None, None, "0s"], ["w", 3, "Under", "x", "l", "0s"]]


def test_metadata_alone(caller):
    """Of one and of many."""
    caller.done("POST", MAPS, config_map("a", {"k": "1"}))
    one = caller.done("GET", f"{MAPS}/a", accept=PARTIAL)
    assert (one["kind"], "data" in one) == ("PartialObjectMetadata", False)
    many = caller.done("GET", MAPS, accept=PARTIAL.replace("Metadata;", "MetadataList;"))
    assert many["kind"] == "PartialObjectMetadataList"
    assert many["items"] == [one]


def test_the_first_choice_counts():
    """What kubectl sends, and what others do."""
    assert wants_table(f"{TABLE},application/json")
    assert not wants_table(f"application/json,{TABLE}")
    assert wants_partial(PARTIAL)
    assert not wants_partial("application/json")
