"""Lists: pages, versions, tokens."""

import base64
import json

import pytest
from kube_caller import MAPS, PODS, POOLS, Caller, config_map, definition, pod, spec_schema, widget


@pytest.fixture
def filled(caller):
    """A caller of a store with five config maps, a to e."""
    for name in "abcde":
        caller.done("POST", MAPS, config_map(name, labels={"half": str(name > "b")}))
    return caller


def names(body):
    """Return the names in a list."""
    return [item["metadata"]["name"] for item in body["items"]]


def token(**parts):
    """Return a continue token."""
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


def test_a_list_has_the_stores_revision_and_its_kind(filled):
    """And entries in the order of their names, without a kind of their own."""
    body = filled.done("GET", MAPS)
    assert (body["kind"], body["apiVersion"]) == ("ConfigMapList", "v1")
    assert body["metadata"] == {"resourceVersion": str(filled.store.revision)}
    assert names(body) == ["a", "b", "c", "d", "e"]
    assert "kind" not in body["items"][0]


def test_pages_are_one_consistent_state(filled):
    """What is written between two pages is not in the second."""
    first = filled.done("GET", MAPS, limit=2)
    assert first["metadata"]["remainingItemCount"] == 3
    filled.done("POST", MAPS, config_map("bb"))
    filled.done("DELETE", f"{MAPS}/d")
    second = filled.done("GET", MAPS, **{"limit": 2, "continue": first["metadata"]["continue"]})
    assert names(second) == ["c", "d"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    third = filled.done("GET", MAPS, **{"limit": 2, "continue": second["metadata"]["continue"]})
    assert names(third) == ["e"]
    assert "continue" not in third["metadata"]


def test_a_page_with_a_selector_says_no_remainder(filled):
    """Nobody counted what else is selected."""
    page = filled.done("GET", MAPS, limit=2, labelSelector="half=True")
    assert names(page) == ["c", "d"]
    assert "remainingItemCount" not in page["metadata"]
    rest = filled.done(
        "GET", MAPS, **{"limit": 2, "labelSelector": "half=True", "continue": page["metadata"]["continue"]}
    )
    assert names(rest) == ["e"]


def test_a_page_that_ends_with_the_list_has_no_continuation(filled):
    """Exactly as many as there are."""
    assert "continue" not in filled.done("GET", MAPS, limit=5)["metadata"]


def test_a_compacted_token_gives_one_for_an_inconsistent_rest(filled):
    """410 Expired with a token that goes on with what is there now."""
    first = filled.done("GET", MAPS, limit=2)
    filled.done("POST", MAPS, config_map("bb"))
    filled.store.compact(filled.store.revision)
    response = filled.ask("GET", MAPS, **{"limit": 2, "continue": first["metadata"]["continue"]})
    assert (response.code, response.body["reason"]) == (410, "Expired")
    rest = filled.done("GET", MAPS, **{"continue": response.body["metadata"]["continue"]})
    assert names(rest) == ["bb", "c", "d", "e"]
    assert rest["metadata"]["resourceVersion"] == str(filled.store.revision)


@pytest.mark.parametrize(
    "wrong",
    [
        "!",
        token(v="v0", rv=1, start="a"),
        token(v="meta.k8s.io/v1", rv=0, start="a"),
        token(v="meta.k8s.io/v1", rv=1, start=""),
        token(rv=1),
    ],
)
def test_tokens_that_are_none(filled, wrong):
    """400."""
    assert filled.refused("GET", MAPS, **{"continue": wrong})[:2] == (400, "BadRequest")


def test_resource_versions(filled):
    """Exact is a past state, others are the present, the future is 504, the compacted 410."""
    at = filled.done("GET", f"{MAPS}/c")["metadata"]["resourceVersion"]
    assert names(filled.done("GET", MAPS, resourceVersion=at, resourceVersionMatch="Exact")) == ["a", "b", "c"]
    assert names(filled.done("GET", MAPS, resourceVersion=at, limit=10)) == ["a", "b", "c"]
    assert len(names(filled.done("GET", MAPS, resourceVersion=at))) == 5
    assert len(names(filled.done("GET", MAPS, resourceVersion=at, resourceVersionMatch="NotOlderThan", limit=10))) == 5
    assert len(names(filled.done("GET", MAPS, resourceVersion=0, limit=2))) == 5
    late = filled.ask("GET", MAPS, resourceVersion=filled.store.revision + 1)
    assert (late.code, late.body["reason"]) == (504, "Timeout")
    assert late.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
    assert late.headers == (("Retry-After", "1"),)
    filled.store.compact(filled.store.revision)
    assert filled.refused("GET", MAPS, resourceVersion=at, resourceVersionMatch="Exact")[:2] == (410, "Expired")


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"resourceVersionMatch": "Exact"}, 422),
        ({"resourceVersion": "0", "resourceVersionMatch": "Exact"}, 422),
        ({"resourceVersion": "1", "resourceVersionMatch": "Newest"}, 422),
        ({"sendInitialEvents": "true"}, 422),
        ({"resourceVersion": "word"}, 400),
        ({"limit": "many"}, 400),
        ({"continue": token(v="meta.k8s.io/v1", rv=1, start="a"), "resourceVersion": "5"}, 400),
        ({"continue": token(v="meta.k8s.io/v1", rv=10**6, start="a")}, 504),
    ],
)
def test_options_that_make_no_sense(filled, query, code):
    """They are refused, not guessed."""
    assert filled.refused("GET", MAPS, **query)[0] == code


def test_all_namespaces_are_in_the_order_of_their_keys(caller):
    """etcd's order: a hyphen sorts before the slash."""
    for namespace in ("kube-public", "kube-system", "default"):
        caller.done("POST", f"/api/v1/namespaces/{namespace}/configmaps", config_map("x"))
    items = caller.done("GET", "/api/v1/configmaps")["items"]
    assert [item["metadata"]["namespace"] for item in items] == ["default", "kube-public", "kube-system"]


def test_lists_of_custom_resources_say_kind_and_an_empty_token():
    """Unstructured lists are written otherwise."""
    caller = Caller()
    caller.done("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition(spec_schema()))
    caller.done("POST", "/apis/test.dev/v1/namespaces/default/widgets", widget())
    body = caller.done("GET", "/apis/test.dev/v1/widgets")
    assert body["metadata"]["continue"] == ""
    assert body["items"][0]["kind"] == "Widget"
    assert caller.refused("GET", POOLS)[0] == 404


def test_one_name_is_found_without_a_scan(caller):
    """And only if everything else matches, too."""
    caller.done("POST", PODS, pod("a", node="n1"))
    assert names(caller.done("GET", PODS, fieldSelector="metadata.name=a,spec.nodeName=n1")) == ["a"]
    assert names(caller.done("GET", PODS, fieldSelector="metadata.name=a,spec.nodeName=n2")) == []
    assert names(caller.done("GET", "/api/v1/pods", fieldSelector="metadata.name=a")) == ["a"]
