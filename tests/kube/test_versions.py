"""Custom resources in two versions."""

import pytest
from kube_caller import DEFINITIONS, MERGE, Caller, definition

OLDER = "/apis/test.dev/v1/namespaces/default/widgets"
NEWER = OLDER.replace("/v1/", "/v2/")


def schema(**fields):
    """Return the schema of a version."""
    spec = {"type": "object", "properties": {"size": {"type": "integer"}, **fields}}
    return {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}


def both(**more):
    """Return a definition that serves v1, which stores, and v2."""
    made = definition({})
    made["spec"]["versions"] = [
        {"name": "v1", "served": True, "storage": True, "schema": schema(old={"type": "string", "default": "first"})},
        {"name": "v2", "served": True, "storage": False, "schema": schema(new={"type": "string", "default": "second"})},
    ]
    made["spec"]["versions"][1] |= more
    return made


def body(version, **spec):
    """Return a widget of a version."""
    return {"apiVersion": f"test.dev/{version}", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec}


@pytest.fixture
def twofold():
    """A caller of a store that serves widgets in two versions."""
    caller = Caller()
    caller.done("POST", DEFINITIONS, both())
    return caller


def test_what_is_written_in_one_version_is_read_in_the_other(twofold):
    """With its fields and its apiVersion, at the same revision; a view fills in no defaults."""
    made = twofold.done("POST", NEWER, body("v2", size=1, new="x"))
    assert (made["apiVersion"], made["spec"]) == ("test.dev/v2", {"size": 1})
    older = twofold.done("GET", f"{OLDER}/w")
    assert (older["apiVersion"], older["spec"]) == ("test.dev/v1", {"size": 1, "old": "first"})
    assert older["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_a_write_in_one_version_loses_what_only_the_other_knew(twofold):
    """And the storage version's default comes back."""
    twofold.done("POST", OLDER, body("v1", old="kept"))
    twofold.patch(f"{NEWER}/w", {"spec": {"size": 2}})
    assert twofold.done("GET", f"{OLDER}/w")["spec"] == {"size": 2, "old": "first"}


def test_each_version_is_watched_and_listed_as_such(twofold):
    """One change, one event in each."""
    watches = {"v1": twofold.watch(OLDER), "v2": twofold.watch(NEWER)}
    twofold.done("POST", OLDER, body("v1"))
    twofold.done("DELETE", f"{NEWER}/w")
    for version, watch in watches.items():
        events = watch.take(twofold.now)
        assert [event["type"] for event in events] == ["ADDED", "DELETED"]
        assert {event["object"]["apiVersion"] for event in events} == {f"test.dev/{version}"}
    assert twofold.done("GET", NEWER)["items"] == []


def test_a_version_that_is_served_no_more_takes_nothing_along(twofold):
    """Its watches end; objects stay in the other, and show again when it is served again."""
    twofold.done("POST", NEWER, body("v2", size=1))
    watch = twofold.watch(NEWER, resourceVersion=twofold.store.revision)
    path = f"{DEFINITIONS}/widgets.test.dev"
    versions = both(served=False)["spec"]["versions"]
    twofold.patch(path, {"spec": {"versions": versions}}, MERGE)
    assert twofold.ask("GET", NEWER).code == 404
    watch.take(twofold.now)
    assert watch.closed
    assert len(twofold.done("GET", OLDER)["items"]) == 1
    twofold.patch(path, {"spec": {"versions": both()["spec"]["versions"]}}, MERGE)
    assert twofold.done("GET", f"{NEWER}/w")["spec"] == {"size": 1}


def test_a_definition_takes_all_versions_along(twofold):
    """Objects, lists and watches."""
    twofold.done("POST", NEWER, body("v2"))
    watch = twofold.watch(OLDER, resourceVersion=twofold.store.revision)
    twofold.done("DELETE", f"{DEFINITIONS}/widgets.test.dev")
    assert {twofold.ask("GET", path).code for path in (OLDER, NEWER)} == {404}
    assert [event["type"] for event in watch.take(twofold.now)] == ["DELETED"]
    assert watch.closed


def test_the_past_and_410_are_the_same_in_both(twofold):
    """A compaction is one of all versions."""
    twofold.done("POST", OLDER, body("v1"))
    since = twofold.store.revision
    twofold.patch(f"{OLDER}/w", {"spec": {"size": 5}})
    query = {"resourceVersion": since, "resourceVersionMatch": "Exact"}
    assert twofold.done("GET", NEWER, **query)["items"][0]["spec"] == {}
    twofold.store.compact(twofold.store.revision)
    assert {twofold.ask("GET", path, **query).code for path in (OLDER, NEWER)} == {410}


def test_a_dry_run_answers_as_the_write_would(twofold):
    """Without what storage would lose."""
    twofold.done("POST", NEWER, body("v2"))
    tried = twofold.patch(f"{NEWER}/w", {"spec": {"new": "x", "size": 3}}, dryRun="All")
    assert tried["spec"] == {"size": 3}
    assert twofold.done("GET", f"{NEWER}/w")["spec"] == {}


def test_owners_are_lost_where_versions_do_not_fit_each_other(twofold):
    """As upstream: what one version has and the other has not cannot be compared in both."""
    twofold.apply(f"{NEWER}/w", body("v2", size=1), "one")
    item = twofold.patch(f"{OLDER}/w", {"spec": {"size": 2}})
    assert "managedFields" not in item["metadata"]


def test_what_is_compared_is_what_is_written(caller):
    """Through another version no default of the storage version is: where one was written before, that is a change."""
    served = both()
    for version in served["spec"]["versions"]:
        version["subresources"] = {"status": {}}
    caller.done("POST", DEFINITIONS, served)
    caller.done("POST", OLDER, body("v1"))
    before = caller.store.revision
    caller.patch(f"{OLDER}/w", {})
    assert caller.store.revision == before
    caller.patch(f"{NEWER}/w/status", {})
    assert caller.store.revision == before + 1
    caller.patch(f"{NEWER}/w/status", {})
    assert caller.store.revision == before + 1
    assert caller.done("GET", f"{OLDER}/w")["spec"] == {"old": "first"}
    caller.patch(f"{OLDER}/w", {})
    assert caller.store.revision == before + 2
