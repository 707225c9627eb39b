"""Laws of the store, whatever is asked of it."""

import json
from random import Random

import pytest
from hypothesis import given, strategies as st
from kube_caller import APPLY, DEFINITIONS, JSON_PATCH, MERGE, STRATEGIC, WIDGETS, Caller, definition, pod, spec_schema

from iriscw_sims.kube.frozen import thaw
from iriscw_sims.kube.garbage import collect
from iriscw_sims.kube.messages import Request
from iriscw_sims.kube.watches import Watch
from profiles import examples

SPACES = ("default", "kube-public")
NAMES = ("a", "b", "c")


@st.composite
def requests(draw):
    """Draw a request about config maps, pods or widgets; most make sense."""
    space, name = draw(st.sampled_from(SPACES)), draw(st.sampled_from(NAMES))
    plural = draw(st.sampled_from(["configmaps", "pods", "widgets"]))
    root = (
        f"/apis/test.dev/v1/namespaces/{space}/widgets"
        if plural == "widgets"
        else f"/api/v1/namespaces/{space}/{plural}"
    )
    labels = draw(st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["x", "y"]), max_size=2))
    metadata = {"name": name, "labels": labels}
    if draw(st.integers(0, 5)) == 0:
        metadata["finalizers"] = draw(st.sampled_from([["x.dev/keep"], []]))
    value = draw(st.sampled_from(["1", "2"]))
    if plural == "pods":
        body = {**pod(name, node=draw(st.sampled_from(["", "n1"]))), "metadata": metadata}
        change = {"spec": {"activeDeadlineSeconds": int(value)}}
    elif plural == "widgets":
        body = {"apiVersion": "test.dev/v1", "kind": "Widget", "metadata": metadata, "spec": {"size": int(value)}}
        change = {"spec": {"size": int(value)}}
    else:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": value}}
        change = {"data": {"k": value}}
    verb = draw(
        st.sampled_from(["POST", "POST", "PUT", "PATCH", "PATCH", "APPLY", "JSON", "SMP", "DELETE", "DELETEALL"])
    )
    manager = (("fieldManager", draw(st.sampled_from(["one", "two"]))),)
    path = f"{root}/{name}"
    if verb == "POST":
        return Request("POST", root, manager, body)
    if verb == "PUT":
        return Request("PUT", path, manager, body)
    if verb == "PATCH":
        return Request("PATCH", path, manager, {**change, "metadata": {"labels": labels}}, MERGE)
    if verb == "SMP":
        return Request("PATCH", path, manager, {"metadata": {"labels": labels}}, STRATEGIC)
    if verb == "JSON":
        return Request("PATCH", path, manager, [{"op": "add", "path": "/metadata/labels", "value": labels}], JSON_PATCH)
    if verb == "APPLY":
        return Request("PATCH", path, (*manager, ("force", "true")), body, APPLY)
    if verb == "DELETEALL":
        return Request("DELETE", root, (("labelSelector", "app=x"),))
    return Request(
        "DELETE",
        path,
        body=draw(st.sampled_from([None, {"gracePeriodSeconds": 0}, {"propagationPolicy": "Foreground"}])),
    )


PROGRAMS = st.lists(requests(), min_size=1, max_size=12)
ROOTS = ("/api/v1/configmaps", "/api/v1/pods", "/apis/test.dev/v1/widgets")


def new_caller():
    """Return a caller of a store that serves widgets."""
    caller = Caller()
    caller.done("POST", DEFINITIONS, definition(spec_schema(size={"type": "integer", "default": 3})))
    return caller


def run(caller, request):
    """Send one request a millisecond later."""
    caller.now += 10**6
    return caller.store.handle(request, caller.now)


def state(caller, root, **query):
    """Return all objects by namespace and name, as watches tell them."""
    body = caller.done("GET", root, **query)
    version, kind = body["apiVersion"], body["kind"].removesuffix("List")
    return {
        (item["metadata"]["namespace"], item["metadata"]["name"]): {**item, "apiVersion": version, "kind": kind}
        for item in body["items"]
    }


def follow(known, watch, now):
    """Apply a watch's events to a state."""
    for event in watch.take(now):
        item = event["object"]
        key = (item["metadata"]["namespace"], item["metadata"]["name"])
        if event["type"] == "DELETED":
            del known[key]
        else:
            assert (key in known) == (event["type"] == "MODIFIED")
            known[key] = item


@examples(25)
@given(PROGRAMS, st.sampled_from(["", "app=x", "app!=x", "!tier"]))
def test_a_list_and_a_watch_from_its_version_know_the_state_at_any_time(program, selector):
    """Law: what the reflector does is right, for any selector, from any point."""
    caller = new_caller()
    followers = []
    query = {"labelSelector": selector} if selector else {}
    for request in program:
        for root in ROOTS:
            version = caller.done("GET", root, **query)["metadata"]["resourceVersion"]
            followers.append((root, state(caller, root, **query), caller.watch(root, resourceVersion=version, **query)))
        run(caller, request)
        for root, known, watch in followers[::-3][:6]:
            follow(known, watch, caller.now)
            assert known == state(caller, root, **query)
    for root, known, watch in followers:
        follow(known, watch, caller.now)
        assert known == state(caller, root, **query)


@examples(25)
@given(PROGRAMS, st.integers(1, 3), st.sampled_from(["", "app=x"]))
def test_pages_are_the_whole(program, limit, selector):
    """Law: pages joined are the list at the first page's version, whatever is written between them."""
    caller = new_caller()
    for request in program:
        run(caller, request)
    query = {"labelSelector": selector} if selector else {}
    for root in ROOTS:
        whole = caller.done("GET", root, **query)
        page = caller.done("GET", root, limit=limit, **query)
        items, version = [*page["items"]], page["metadata"]["resourceVersion"]
        for request in program:
            token = page["metadata"].get("continue")
            if not token:
                break
            run(caller, request)
            page = caller.done("GET", root, limit=limit, **query, **{"continue": token})
            assert len(page["items"]) <= limit
            assert page["metadata"]["resourceVersion"] == version
            items += page["items"]
        if not page["metadata"].get("continue"):
            assert items == whole["items"]


@examples(25)
@given(PROGRAMS)
def test_the_past_can_be_asked_for(program):
    """Law: an exact list at a version is the list that was."""
    caller = new_caller()
    past = []
    for request in program:
        run(caller, request)
        past += [(root, caller.done("GET", root)) for root in ROOTS]
    for root, was in past:
        query = {"resourceVersion": was["metadata"]["resourceVersion"], "resourceVersionMatch": "Exact"}
        assert caller.done("GET", root, **query) == was


def is_repeatable(request):
    """Tell updates, but for applies of empty metadata to a custom resource: those are written each time."""
    if "widgets" in request.path and request.content_type == APPLY:
        metadata = request.body["metadata"]
        return all(metadata.get(name) not in ({}, []) for name in ("labels", "annotations", "finalizers"))
    return request.method in ("PATCH", "PUT")


@examples(25)
@given(PROGRAMS)
def test_revisions_pass_only_when_something_changes(program):
    """Law: a version is never given twice; a refusal and a repetition write nothing."""
    caller = new_caller()
    for request in program:
        before = caller.store.revision
        response = run(caller, request)
        if response.code >= 400:
            assert caller.store.revision == before
        elif is_repeatable(request) and not response.body["metadata"].get("deletionTimestamp"):
            again = caller.store.revision
            repeated = run(caller, request)
            assert repeated.code == 200
            assert caller.store.revision == again
            assert repeated.body == response.body
        versions = [
            item["metadata"]["resourceVersion"]
            for collection in caller.store.collections
            for item in collection.objects.values()
        ]
        assert len({*versions}) == len(versions)


@examples(20)
@given(PROGRAMS)
def test_answers_share_nothing_that_can_change(program):
    """Law: no answer, once given, is changed by what happens later; none can be changed so that the store is."""
    caller = new_caller()
    given_out = []
    for request in program:
        sent = json.dumps(request.body)
        response = run(caller, request)
        assert json.dumps(request.body) == sent
        listed = [caller.ask("GET", root) for root in ROOTS]
        given_out += [(answer, json.dumps(answer.body)) for answer in (response, *listed)]
        for answer in listed:
            answer.body["items"].append("mine")
            with pytest.raises(TypeError):
                answer.body["items"][0]["metadata"]["name"] = "mine"
            break
    for answer, written in given_out:
        body = thaw(answer.body)
        if body.get("items", [""])[-1:] == ["mine"]:
            body["items"].pop()
        assert json.dumps(body) == written


@examples(20)
@given(PROGRAMS)
def test_a_dry_run_says_what_would_happen(program):
    """Law: the same code, and nothing written."""
    caller = new_caller()
    for request in program:
        before = caller.store.revision
        body = {**request.body, "dryRun": ["All"]} if request.method == "DELETE" and request.body else request.body
        dry = Request(request.method, request.path, (*request.query, ("dryRun", "All")), body, request.content_type)
        tried = run(caller, dry)
        assert caller.store.revision == before
        assert tried.code == run(caller, request).code


@examples(20)
@given(PROGRAMS, st.integers(0, 2**32))
def test_collecting_garbage_converges(program, seed):
    """Law: whatever was deleted how, the controllers come to an end, and then nothing waits for them."""
    caller, rng = new_caller(), Random(seed)
    for request in program:
        run(caller, request)
    for _ in range(30):
        todo = collect(caller.store.collections)
        if not todo:
            break
        rng.shuffle(todo)
        for request in todo:
            run(caller, request)
    assert collect(caller.store.collections) == []
    for collection in caller.store.collections:
        for item in collection.objects.values():
            assert "foregroundDeletion" not in item["metadata"].get("finalizers", ())


def test_a_program_is_one_that_does_something():
    """The laws above are about something: in a thousand drawn requests, most kinds of answer occur."""
    caller, codes = new_caller(), set()

    @examples(60, database=None)
    @given(PROGRAMS)
    def explore(program):
        codes.update(run(caller, request).code for request in program)

    explore()
    assert {200, 201, 404, 409} <= codes
    assert isinstance(caller.watch(WIDGETS), Watch)
