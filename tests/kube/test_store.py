"""The store: its paths and revisions, laws whatever is asked of it, and a refusal of nonsense."""

import json
from random import Random

import pytest
from hypothesis import given, strategies as st
from kube_caller import (
    APPLY,
    DEFINITIONS,
    JSON_PATCH,
    MAPS,
    MERGE,
    PODS,
    STRATEGIC,
    WIDGETS,
    Caller,
    config_map,
    definition,
    pod,
    spec_schema,
    widget,
)

from iriscw_sims.kube.frozen import thaw
from iriscw_sims.kube.garbage import collect
from iriscw_sims.kube.messages import Request, Response
from iriscw_sims.kube.store import FIRST_NAMESPACES, Store
from iriscw_sims.kube.watches import Watch
from profiles import examples


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


# Whatever is asked of it


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
    """The laws above are about something: in some hundred drawn requests, most kinds of answer occur."""
    caller, codes = new_caller(), set()

    @examples(25, database=None)
    @given(PROGRAMS)
    def explore(program):
        codes.update(run(caller, request).code for request in program)

    explore()
    assert {200, 201, 404, 409} <= codes
    assert isinstance(caller.watch(WIDGETS), Watch)


# Nonsense in, a refusal out


JUNK = st.sampled_from([None, True, 0, -1, 1.5, "", "x", [], ["x"], [None], {}, {"x": None}, {"": "x"}, [{}], [[]]])
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
FULL_POD = {
    **pod(
        "a",
        node="n",
        labels={"x": "1"},
        finalizers=["x.dev/a"],
        ownerReferences=[{"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u"}],
    ),
    "status": {"phase": "Running", "podIP": "1.2.3.4", "conditions": [{"type": "Ready", "status": "True"}]},
}
FULL_POD["spec"]["containers"][0] |= {
    "resources": {"limits": {"cpu": "1"}},
    "env": [{"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}],
    "ports": [{"containerPort": 1}],
    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    "livenessProbe": {"httpGet": {"port": 1}},
}
FULL_POD["spec"]["volumes"] = [{"name": "v", "configMap": {"name": "m"}}]
ROLE = {"metadata": {"name": "r"}, "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}
BINDING = {
    "metadata": {"name": "b"},
    "roleRef": {"kind": "Role", "name": "r"},
    "subjects": [{"kind": "User", "name": "u"}],
}
DEPLOYMENT = {
    "metadata": {"name": "d"},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": FULL_POD["spec"]},
    },
}
COLUMN = {"name": "N", "type": "string", "jsonPath": ".spec.n"}
DEFINITION = definition(
    spec_schema(n={"type": "integer", "default": 1}),
    kind="Gadget",
    subresources={"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}},
    additionalPrinterColumns=[COLUMN],
)
OPTIONS = {"gracePeriodSeconds": 1, "preconditions": {"uid": "u"}, "propagationPolicy": "Orphan", "dryRun": ["All"]}
BUDGET = {
    "metadata": {"name": "b"},
    "spec": {"minAvailable": 1, "selector": {"matchExpressions": [{"key": "k", "operator": "In"}]}},
}
NODE = {
    "metadata": {"name": "n"},
    "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
    "status": {"capacity": {"cpu": 1}},
}
EVENT = {"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}}
REVIEW = {"spec": {"resourceAttributes": {"verb": "get"}}}
SEEDS = [
    ("POST", PODS, "", FULL_POD),
    ("PUT", f"{PODS}/p", "", {**FULL_POD, "metadata": {"name": "p"}}),
    ("PATCH", f"{PODS}/p", APPLY, {**FULL_POD, "metadata": {"name": "p"}}),
    ("PATCH", f"{PODS}/p", STRATEGIC, FULL_POD),
    ("PATCH", f"{PODS}/p", MERGE, FULL_POD),
    ("PATCH", f"{PODS}/p/status", MERGE, {"status": FULL_POD["status"]}),
    ("PATCH", f"{PODS}/p", JSON_PATCH, [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]),
    ("POST", f"{PODS}/p/binding", "", {"metadata": {"uid": "u"}, "target": {"name": "n"}}),
    ("POST", f"{PODS}/p/eviction", "", {"metadata": {"name": "p"}, "deleteOptions": {"gracePeriodSeconds": 1}}),
    ("DELETE", f"{PODS}/p", "", OPTIONS),
    ("POST", MAPS, "", config_map("a", {"k": "v"}, annotations={"a": "b"})),
    ("POST", LEASES, "", {"metadata": {"name": "l"}, "spec": {"leaseDurationSeconds": 1, "leaseTransitions": 1}}),
    ("POST", BUDGETS, "", BUDGET),
    ("POST", "/api/v1/nodes", "", NODE),
    ("POST", "/api/v1/namespaces/default/secrets", "", {"metadata": {"name": "s"}, "stringData": {"a": "b"}}),
    ("POST", "/api/v1/namespaces/default/services", "", {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}]}}),
    ("POST", "/api/v1/namespaces/default/events", "", EVENT),
    ("POST", "/apis/apps/v1/namespaces/default/deployments", "", DEPLOYMENT),
    ("POST", f"{RBAC}/namespaces/default/roles", "", ROLE),
    ("POST", f"{RBAC}/namespaces/default/rolebindings", "", BINDING),
    ("POST", WIDGETS, "", widget("w", n=1, list=[1], map={"a": 1})),
    ("PATCH", f"{WIDGETS}/x", APPLY, widget("x", n=1, list=[1])),
    ("PATCH", f"{WIDGETS}/x/scale", MERGE, {"spec": {"replicas": 1}, "metadata": {"resourceVersion": "1"}}),
    ("POST", DEFINITIONS, "", DEFINITION),
    ("POST", REVIEWS, "", REVIEW),
]  # fmt: skip


def _paths(value, at=()):
    """Yield the paths of all nodes of a body."""
    yield at
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _paths(item, (*at, key))


def _with(value, path, junk):
    """Return a body with one node replaced."""
    if not path:
        return junk
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = _with(value[path[0]], path[1:], junk)
    return copy


@st.composite
def nonsense(draw):
    """Draw a request whose body has up to two nodes of junk."""
    method, path, content_type, body = draw(st.sampled_from(SEEDS))
    for _ in range(draw(st.integers(1, 2))):
        body = _with(body, draw(st.sampled_from([*_paths(body)])), draw(JUNK))
    return method, path, content_type or "application/json", body


@given(st.lists(nonsense(), min_size=1, max_size=4))
def test_no_body_makes_the_store_raise(program):
    """Law: an answer to everything; and everything can still be listed, as tables too."""
    caller = Caller()
    schema = spec_schema(
        n={"type": "integer", "minimum": 0},
        list={"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "integer"}},
        map={"type": "object", "additionalProperties": {"type": "integer"}},
    )
    paths = {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}
    caller.done("POST", DEFINITIONS, definition(schema, subresources={"status": {}, "scale": paths}))
    caller.done("POST", PODS, pod("p", node="n"))
    caller.done("POST", WIDGETS, widget("x", n=1))
    for method, path, content_type, body in program:
        response = caller.ask(method, path, body, content_type=content_type, fieldManager="m")
        assert response.code < 600
    for kind in caller.store.kinds:
        root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
        caller.done("GET", f"{root}/{kind.plural}", accept="application/json;as=Table;v=v1;g=meta.k8s.io")
