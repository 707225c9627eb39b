"""The store as a whole: what belongs to no verb."""

from random import Random

import pytest
from kube_caller import DEFINITIONS, MAPS, PODS, Caller, config_map, definition, pod, spec_schema

from iriscw_sims.kube.messages import Request, Response
from iriscw_sims.kube.store import FIRST_NAMESPACES, Store


def test_a_cluster_begins_with_its_namespaces(caller):
    """And nothing else."""
    names = [item["metadata"]["name"] for item in caller.done("GET", "/api/v1/namespaces")["items"]]
    assert names == sorted(FIRST_NAMESPACES)
    assert sum(len(collection.objects) for collection in caller.store.collections) == len(FIRST_NAMESPACES)


def test_one_revision_for_all_kinds(caller):
    """As in etcd: each write is the next."""
    one = int(caller.done("POST", MAPS, config_map("a"))["metadata"]["resourceVersion"])
    two = int(caller.done("POST", PODS, pod("a"))["metadata"]["resourceVersion"])
    assert two == one + 1 == caller.store.revision


def test_compaction_is_of_the_past_only(caller):
    """Never of what is to come, and never undone."""
    caller.store.compact(10**9)
    listed = caller.done("GET", MAPS)
    version = listed["metadata"]["resourceVersion"]
    assert caller.done("GET", MAPS, resourceVersion=version, resourceVersionMatch="Exact") == listed
    caller.store.compact(1)
    caller.done("POST", MAPS, config_map("a"))
    assert caller.done("GET", MAPS, resourceVersion=version, resourceVersionMatch="Exact") == listed


def test_a_new_kind_begins_with_the_present(caller):
    """There is nothing of it before it was defined."""
    before = caller.store.revision
    caller.done("POST", DEFINITIONS, definition(spec_schema()))
    assert caller.watch("/apis/test.dev/v1/widgets", resourceVersion=before).take(caller.now)[0]["type"] == "ERROR"


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/api/v1/namespaces/default/nodes", 404),
        ("/api/v1/pods/a", 404),
        ("/api/v1/namespaces/default/pods/a/log", 404),
        ("/api/v1/namespaces/default/configmaps/a/status", 404),
        ("/api/v1/namespaces/default/pods/a", 404),
        ("/", 404),
    ],
)
def test_paths_that_lead_nowhere(caller, path, code):
    """Wrong scope, no such subresource, no such object."""
    assert caller.refused("GET", path)[0] == code
    assert isinstance(caller.watch("/nowhere"), Response)


def test_a_get_of_the_future_is_refused(caller):
    """504, as a list; what is no version is 500, unlike a list."""
    caller.done("POST", MAPS, config_map("a"))
    assert caller.refused("GET", f"{MAPS}/a", resourceVersion=10**6)[:2] == (504, "Timeout")
    assert caller.refused("GET", f"{MAPS}/a", resourceVersion="word")[0] == 500
    assert caller.done("GET", f"{MAPS}/a", resourceVersion=1)["metadata"]["name"] == "a"


def test_other_methods_are_refused(caller):
    """405."""
    assert caller.refused("HEAD", MAPS)[:2] == (405, "MethodNotAllowed")


def test_answers_do_not_depend_on_other_stores():
    """Random choices come from the given source alone."""
    one = Store(rng=Random(1))
    Store(rng=Random(2))
    two = Store(rng=Random(1))
    request = Request("POST", MAPS, body=config_map("a"))
    assert one.handle(request, 0) == two.handle(request, 0)


def test_a_caller_sets_the_time(caller):
    """Nothing here reads a clock."""
    other = Caller()
    other.now += 10**9
    request = config_map("a")
    made = [each.done("POST", MAPS, request)["metadata"]["creationTimestamp"] for each in (caller, other)]
    assert made == ["2027-01-15T08:00:00Z", "2027-01-15T08:00:01Z"]
