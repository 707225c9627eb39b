"""Watches."""

import pytest
from kube_caller import MAPS, PODS, SECOND, config_map, pod

from iriscw_sims.kube import collection as collection_module
from iriscw_sims.kube.messages import Request


def test_a_watch_tells_what_happens_in_order(caller):
    """Each event once, the deletion with the object at the revision of its end."""
    watch = caller.watch(MAPS)
    caller.done("POST", MAPS, config_map("a"))
    caller.patch(f"{MAPS}/a", {"data": {"k": "1"}})
    assert caller.told(watch) == [("ADDED", "a"), ("MODIFIED", "a")]
    caller.done("DELETE", f"{MAPS}/a")
    event = watch.take(caller.now)[0]
    assert event["type"] == "DELETED"
    assert event["object"]["data"] == {"k": "1"}
    assert event["object"]["metadata"]["resourceVersion"] == str(caller.store.revision)
    assert watch.take(caller.now) == []


def test_a_watch_begins_where_it_is_asked_to(caller):
    """After a revision; at 0 or without one, with what is there."""
    first = caller.done("POST", MAPS, config_map("a"))["metadata"]["resourceVersion"]
    caller.done("POST", MAPS, config_map("b"))
    assert caller.told(caller.watch(MAPS, resourceVersion=first)) == [("ADDED", "b")]
    assert caller.told(caller.watch(MAPS, resourceVersion=0)) == [("ADDED", "a"), ("ADDED", "b")]
    assert caller.told(caller.watch(MAPS)) == [("ADDED", "a"), ("ADDED", "b")]


def test_objects_enter_and_leave_a_selection(caller):
    """MODIFIED becomes ADDED and DELETED; what leaves is told as it was selected, at the new revision."""
    watch = caller.watch(MAPS, labelSelector="app=x")
    caller.done("POST", MAPS, config_map("a"))
    caller.patch(f"{MAPS}/a", {"metadata": {"labels": {"app": "x"}}})
    caller.patch(f"{MAPS}/a", {"data": {"k": "1"}})
    gone = caller.patch(f"{MAPS}/a", {"metadata": {"labels": {"app": "y"}}})
    caller.done("DELETE", f"{MAPS}/a")
    events = watch.take(caller.now)
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert events[2]["object"]["metadata"]["labels"] == {"app": "x"}
    assert events[2]["object"]["metadata"]["resourceVersion"] == gone["metadata"]["resourceVersion"]


def test_field_selectors_and_one_object(caller):
    """A node's pods, and one object by its path."""
    node, one = caller.watch("/api/v1/pods", fieldSelector="spec.nodeName=n1"), caller.watch(f"{PODS}/b")
    caller.done("POST", PODS, pod("a", node="n1"))
    caller.done("POST", PODS, pod("b", node="n2"))
    assert caller.told(node) == [("ADDED", "a")]
    assert caller.told(one) == [("ADDED", "b")]
    assert caller.watch(f"{PODS}/b", fieldSelector="metadata.name=a").code == 400


def test_a_namespace_hears_only_of_itself(caller):
    """Other namespaces are silent."""
    watch = caller.watch("/api/v1/namespaces/kube-public/configmaps")
    caller.done("POST", MAPS, config_map("a"))
    assert watch.take(caller.now) == []


def test_a_compacted_revision_is_an_error_event(caller):
    """HTTP 200, one ERROR with a 410, and the end."""
    first = caller.done("POST", MAPS, config_map("a"))["metadata"]["resourceVersion"]
    caller.done("POST", MAPS, config_map("b"))
    caller.store.compact(caller.store.revision)
    watch = caller.watch(MAPS, resourceVersion=first)
    caller.done("POST", MAPS, config_map("c"))
    (event,) = watch.take(caller.now)
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
    assert watch.closed


def test_a_watch_that_lags_behind_the_history_is_closed(caller, monkeypatch):
    """It is not told anything wrong; its client begins anew."""
    monkeypatch.setattr(collection_module, "HISTORY_LIMIT", 3)
    watch = caller.watch(MAPS)
    for index in range(10):
        caller.done("POST", MAPS, config_map(f"m{index}"))
    assert watch.take(caller.now) == []
    assert watch.closed


def test_a_watch_of_a_quiet_kind_survives_compaction(caller):
    """It has missed nothing."""
    watch = caller.watch(MAPS)
    caller.done("POST", PODS, pod("a"))
    caller.store.compact(caller.store.revision)
    assert watch.take(caller.now) == []
    assert not watch.closed
    caller.done("POST", MAPS, config_map("a"))
    assert caller.told(watch) == [("ADDED", "a")]


def test_bookmarks_come_once_a_minute_and_before_the_end(caller):
    """To who allowed them; each with the revision until which nothing was missed."""
    watch = caller.watch(MAPS, allowWatchBookmarks="true", timeoutSeconds=150, resourceVersion=caller.store.revision)
    silent = caller.watch(MAPS, timeoutSeconds=150)
    times = []
    for second in range(151):
        caller.now += SECOND
        told = watch.take(caller.now)
        assert all(event["type"] == "BOOKMARK" for event in told)
        times += [second + 1 for _ in told]
    assert times == [60, 120, 148]
    assert watch.closed
    assert silent.take(caller.now) == []
    assert silent.closed


def test_no_bookmark_stands_behind_the_end(caller):
    """Looked at too late, a watch is silent about what came after its end, and does not point behind it either."""
    watch = caller.watch(MAPS, allowWatchBookmarks="true", timeoutSeconds=20, resourceVersion=caller.store.revision)
    caller.now += 60 * SECOND
    caller.done("POST", MAPS, config_map("a"))
    assert watch.take(caller.now) == []
    assert watch.closed


def test_a_bookmark_moves_on_with_what_happens_elsewhere(caller):
    """A quiet watch can be taken up again after a compaction."""
    watch = caller.watch(MAPS, allowWatchBookmarks="true", resourceVersion=caller.store.revision)
    caller.done("POST", PODS, pod("a"))
    caller.now += 61 * SECOND
    (bookmark,) = watch.take(caller.now)
    assert bookmark["object"] == {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": str(caller.store.revision)},
    }
    caller.store.compact(caller.store.revision)
    again = caller.watch(MAPS, resourceVersion=bookmark["object"]["metadata"]["resourceVersion"])
    caller.done("POST", MAPS, config_map("a"))
    assert caller.told(again) == [("ADDED", "a")]


@pytest.mark.parametrize("version", [{}, {"resourceVersion": "0"}])
def test_a_watch_from_no_version_begins_with_what_is_there(caller, version):
    """And with the bookmark that ends it, where bookmarks are allowed: as if it had asked for initial events."""
    caller.done("POST", MAPS, config_map("a"))
    events = caller.watch(MAPS, allowWatchBookmarks="true", **version).take(caller.now)
    assert [event["type"] for event in events] == ["ADDED", "BOOKMARK"]
    assert events[1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert [event["type"] for event in caller.watch(MAPS, **version).take(caller.now)] == ["ADDED"]


def test_a_deletion_is_told_as_the_object_was_stored(caller):
    """The update that took its last finalizer off is never seen, whatever else it changed."""
    caller.done("POST", MAPS, config_map("a", {"k": "1"}, finalizers=["x/a"]))
    caller.done("DELETE", f"{MAPS}/a")
    watch = caller.watch(MAPS, resourceVersion=caller.store.revision)
    answer = caller.patch(f"{MAPS}/a", {"data": {"k": "2"}, "metadata": {"finalizers": None}})
    (event,) = watch.take(caller.now)
    assert event["type"] == "DELETED"
    assert (answer["data"], event["object"]["data"]) == ({"k": "2"}, {"k": "1"})
    assert event["object"]["metadata"]["finalizers"] == ["x/a"]
    assert int(event["object"]["metadata"]["resourceVersion"]) == caller.store.revision


def test_initial_events_end_with_a_bookmark(caller):
    """sendInitialEvents: the state, then an annotated bookmark, then what happens."""
    caller.done("POST", MAPS, config_map("a"))
    options = {"sendInitialEvents": "true", "allowWatchBookmarks": "true", "resourceVersionMatch": "NotOlderThan"}
    watch = caller.watch(MAPS, **options)
    caller.done("POST", MAPS, config_map("b"))
    events = watch.take(caller.now)
    assert [event["type"] for event in events] == ["ADDED", "BOOKMARK", "ADDED"]
    assert events[1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"sendInitialEvents": "true"}, 422),
        ({"resourceVersionMatch": "NotOlderThan"}, 422),
        ({"sendInitialEvents": "true", "resourceVersionMatch": "Exact"}, 422),
        ({"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "resourceVersion": "100000"}, 504),
        ({"resourceVersion": "word"}, 500),
        ({"timeoutSeconds": "long"}, 400),
        ({"labelSelector": "=="}, 400),
    ],
)
def test_options_that_make_no_sense(caller, query, code):
    """A response instead of a watch."""
    assert caller.watch(MAPS, **query).code == code


def test_a_watch_from_the_future_waits(caller):
    """It tells only what comes after."""
    watch = caller.watch(MAPS, resourceVersion=caller.store.revision + 1)
    caller.done("POST", MAPS, config_map("a"))
    caller.done("POST", MAPS, config_map("b"))
    assert caller.told(watch) == [("ADDED", "b")]


def test_a_closed_watch_is_silent(caller):
    """Whoever closed it."""
    watch = caller.watch(MAPS)
    caller.done("POST", MAPS, config_map("a"))
    watch.close()
    assert watch.take(caller.now) == []


def test_a_watch_can_tell_tables(caller):
    """One row an event, the columns once: what kubectl get -w asks for."""
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    watch = caller.store.watch(Request("GET", MAPS, (("watch", "1"),), accept=accept), caller.now)
    caller.done("POST", MAPS, config_map("a"))
    caller.done("POST", MAPS, config_map("b"))
    first, second = watch.take(caller.now)
    assert first["object"]["columnDefinitions"]
    assert second["object"]["columnDefinitions"] is None
    assert second["object"]["rows"][0]["cells"][0] == "b"


def test_a_watch_costs_what_happened_and_not_what_is_there(caller):
    """Law of cost: to look for news goes through the news alone."""

    class Untouchable(dict):
        def __iter__(self):
            raise AssertionError("all objects were gone through")

        values = items = keys = __iter__

    for number in range(50):
        caller.done("POST", MAPS, config_map(f"c{number}"))
    watch = caller.watch(MAPS, resourceVersion=caller.store.revision)
    caller.done("POST", MAPS, config_map("new"))
    (maps,) = [each for each in caller.store.collections if each.kind.kind == "ConfigMap"]
    maps.objects = Untouchable(maps.objects)
    assert caller.told(watch) == [("ADDED", "new")]
    assert caller.told(watch) == []
