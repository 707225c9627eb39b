"""PATCH of objects in the store."""

import pytest
from kube_caller import (
    APPLY,
    DEFINITIONS,
    JSON_PATCH,
    MAPS,
    MERGE,
    STRATEGIC,
    WIDGETS,
    config_map,
    definition,
    spec_schema,
    widget,
)


def test_each_kind_of_patch(caller):
    """Merge, JSON, strategic merge, apply."""
    caller.done("POST", MAPS, config_map("a", {"k": "1", "l": "2"}))
    assert caller.patch(f"{MAPS}/a", {"data": {"k": None}})["data"] == {"l": "2"}
    operations = [{"op": "add", "path": "/data/m", "value": "3"}]
    assert caller.patch(f"{MAPS}/a", operations, JSON_PATCH)["data"] == {"l": "2", "m": "3"}
    assert caller.patch(f"{MAPS}/a", {"data": {"l": None}}, STRATEGIC)["data"] == {"m": "3"}
    assert caller.apply(f"{MAPS}/a", config_map("a", {"n": "4"}), "me")["data"] == {"m": "3", "n": "4"}


@pytest.mark.parametrize(
    ("content_type", "body", "query", "code"),
    [
        ("text/plain", {}, {}, 415),
        ("application/json", {}, {}, 415),
        (MERGE, [], {}, 400),
        (MERGE, {}, {"force": "true"}, 422),
        (MERGE, {"metadata": {"name": "b"}}, {}, 400),
        (MERGE, {"metadata": {"namespace": "kube-system"}}, {}, 400),
        (MERGE, {"metadata": {"uid": "other"}}, {}, 422),
        (MERGE, {"metadata": {"resourceVersion": "1"}}, {}, 409),
        (MERGE, {"data": {"k": 1}}, {}, 422),
        (MERGE, {"kind": "Pod"}, {}, 400),
        (JSON_PATCH, {}, {}, 400),
        (JSON_PATCH, [{"op": "replace", "path": "", "value": []}], {}, 400),
        (JSON_PATCH, [{"op": "test", "path": "/data/k", "value": "other"}], {}, 422),
    ],
)
def test_patches_that_are_refused(caller, content_type, body, query, code):
    """And nothing is written."""
    caller.done("POST", MAPS, config_map("a", {"k": "1"}))
    before = caller.store.revision
    assert caller.refused("PATCH", f"{MAPS}/a", body, content_type=content_type, **query)[0] == code
    assert caller.store.revision == before


def test_what_is_not_there_is_not_patched(caller):
    """404, but for an apply."""
    assert caller.refused("PATCH", f"{MAPS}/a", {}, content_type=MERGE)[:2] == (404, "NotFound")
    assert caller.ask("PATCH", f"{MAPS}/a", config_map("a"), content_type=APPLY, fieldManager="me").code == 201


def test_custom_resources_know_no_strategic_patch(caller):
    """415: their lists have no merge keys."""
    caller.done("POST", DEFINITIONS, definition(spec_schema()))
    caller.done("POST", WIDGETS, widget("w"))
    assert caller.refused("PATCH", f"{WIDGETS}/w", {}, content_type=STRATEGIC)[0] == 415


def test_a_patch_that_tests_only_writes_nothing(caller):
    """And gives the object."""
    made = caller.done("POST", MAPS, config_map("a", {"k": "1"}))
    assert caller.patch(f"{MAPS}/a", [{"op": "test", "path": "/data/k", "value": "1"}], JSON_PATCH) == made
