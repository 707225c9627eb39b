"""Programs mean the same in two worlds: references, patches, paths."""

import pytest
from kube_program import NEVER, Answer, Ask, Drain, Memory, OpenWatch, collection_of, complete, merge, object_path

MAPS = "/api/v1/namespaces/alpha/configmaps"


def _answer(name, revision, **more):
    return Answer(200, {"metadata": {"name": name, "uid": f"uid of {name}", "resourceVersion": revision}, **more})


@pytest.fixture
def memory():
    """A world that has seen the object a twice and one page of a list."""
    memory = Memory(run=7)
    memory.learn(Ask("POST", MAPS), _answer("a", "5", data={"k": "1"}))
    memory.learn(Ask("PATCH", f"{MAPS}/a"), _answer("a", "6", data={"k": "2"}))
    memory.learn(
        Ask("GET", MAPS), Answer(200, {"metadata": {"resourceVersion": "9", "continue": "token"}, "items": []})
    )
    return memory


def test_references_are_what_this_world_saw(memory):
    """The last version, the one before it, the uid, a list's version and its token, the number of the run."""
    seen = {
        "rv": f"${{rv:{MAPS}/a}}",
        "old": f"${{rv1:{MAPS}/a}}",
        "uid": f"${{uid:{MAPS}/a}}",
        "list": [f"${{list:{MAPS}}}", f"${{continue:{MAPS}}}"],
        "name-${run}": "run-${run}",
    }
    assert memory.resolve(seen) == {
        "rv": "6",
        "old": "5",
        "uid": "uid of a",
        "list": ["9", "token"],
        "name-7": "run-7",
    }


def test_what_was_never_seen_has_a_value(memory):
    """So that a program stays one when steps are taken out of it."""
    for what, value in NEVER.items():
        assert memory.resolve(f"${{{what}:/api/v1/namespaces/beta/pods/none}}") == value
    assert memory.resolve(f"${{rv2:{MAPS}/a}}") == NEVER["rv"]
    assert memory.resolve({"$seen": f"{MAPS}/none", "$patch": {"data": {}}}) == {"data": {}}
    body = {"$seen": f"{MAPS}/none", "$patch": {"data": {}}, "$else": {"kind": "run-${run}"}}
    assert memory.resolve(body) == {"kind": "run-7", "data": {}}


def test_a_body_may_be_what_was_seen_with_a_change(memory):
    """What was seen stays as it is."""
    body = {"$seen": f"{MAPS}/a", "$patch": {"data": {"k": None, "l": f"${{rv:{MAPS}/a}}"}}}
    for _ in range(2):
        resolved = memory.resolve_step(Ask("PUT", f"{MAPS}/a", body=body))
        assert resolved.body["data"] == {"l": "6"}
        assert resolved.body["metadata"]["resourceVersion"] == "6"


def test_refusals_teach_nothing(memory):
    """Neither do answers without an object."""
    memory.learn(Ask("PUT", f"{MAPS}/a"), Answer(409, {"metadata": {"name": "a", "uid": "x", "resourceVersion": "7"}}))
    memory.learn(Ask("GET", "/readyz"), Answer(200, {"text": "ok"}))
    memory.learn(Ask("DELETE", f"{MAPS}/a"), Answer(200, {"kind": "Status", "metadata": {}}))
    memory.learn(Ask("POST", MAPS, (("dryRun", "All"),)), Answer(201, {"metadata": {"name": "a", "uid": "new"}}))
    assert memory.resolve(f"${{rv:{MAPS}/a}}") == "6"


def test_a_token_that_is_too_old_comes_back_as_another(memory):
    """What the refusal brings is the token to go on with."""
    memory.learn(Ask("GET", MAPS), Answer(410, {"kind": "Status", "metadata": {"continue": "newer"}}))
    assert memory.resolve(f"${{continue:{MAPS}}}") == "newer"
    assert memory.resolve(f"${{list:{MAPS}}}") == "9"


def test_a_status_belongs_to_its_object(memory):
    """A write through a subresource is seen at the object's own path."""
    pods = "/api/v1/namespaces/alpha/pods"
    memory.learn(Ask("PATCH", f"{pods}/a/status"), _answer("a", "8"))
    assert memory.resolve(f"${{rv:{pods}/a}}") == "8"
    assert object_path("/api/v1/nodes/g1/status") == "/api/v1/nodes/g1"
    assert object_path(f"{MAPS}/status") == f"{MAPS}/status", "an object may have such a name"


def test_the_collection_of_a_path_is_over_all_namespaces():
    """Of objects, lists and subresources, with and without a group or a namespace."""
    assert collection_of(MAPS) == collection_of(f"{MAPS}/a") == "/api/v1/configmaps"
    assert collection_of("/api/v1/namespaces/alpha/pods/a/status") == "/api/v1/pods"
    assert collection_of("/api/v1/nodes/g1") == "/api/v1/nodes"
    for path in ("/api/v1/namespaces", "/api/v1/namespaces/alpha", "/api/v1/namespaces/alpha/finalize"):
        assert collection_of(path) == "/api/v1/namespaces"
    assert collection_of("/apis/apps/v1/namespaces/alpha/deployments/a") == "/apis/apps/v1/deployments"


def test_merge_patches_are_those_of_the_standard():
    """The examples of RFC 7386, appendix A."""
    for target, patch, result in (
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        (["a"], {"b": "c"}, {"b": "c"}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ):
        assert merge(target, patch) == result


def test_every_watch_is_drained_at_the_end():
    """Once each, however often it was opened."""
    watch = OpenWatch("w", MAPS)
    program = (watch, Drain("w"), watch, OpenWatch("v", MAPS))
    assert complete(program) == (*program, Drain("w"), Drain("v"))
