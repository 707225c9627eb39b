"""Create, replace, and what they answer."""

import pytest
from kube_caller import MAPS, MERGE, PODS, Caller, config_map, pod

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


def test_a_new_object_gets_what_only_the_server_knows(caller):
    """Uid, revision, time, namespace, owner of its fields; what the caller said of these is ignored."""
    body = config_map("a", {"k": "1"}, uid="mine", generation=7, creationTimestamp="2000-01-01T00:00:00Z", selfLink="x")
    metadata = caller.done("POST", MAPS, body)["metadata"]
    assert metadata["namespace"] == "default"
    assert metadata["creationTimestamp"] == "2027-01-15T08:00:00Z"
    assert metadata["resourceVersion"] == str(caller.store.revision)
    assert len(metadata["uid"]) == 36
    assert "generation" not in metadata
    assert "selfLink" not in metadata
    assert metadata["managedFields"][0]["fieldsV1"] == {"f:data": {".": {}, "f:k": {}}}


def test_a_name_can_be_generated(caller):
    """Five characters more, none that could spell a word; a long base is cut."""
    names = [caller.done("POST", MAPS, config_map(None, generateName="job-"))["metadata"]["name"] for _ in range(3)]
    assert all(name.startswith("job-") and len(name) == 9 for name in names)
    assert len({*names}) == 3
    long = caller.done("POST", MAPS, config_map(None, generateName="x" * 70))["metadata"]["name"]
    assert len(long) == 63


def test_a_generated_name_that_never_is_free_is_a_conflict(caller, monkeypatch):
    """Eight attempts, then 409 with Retry-After."""
    from iriscw_sims.kube import meta

    monkeypatch.setattr(meta, "generated_name", lambda base, rng: f"{base}same")
    caller.done("POST", MAPS, config_map(None, generateName="a-"))
    response = caller.ask("POST", MAPS, config_map(None, generateName="a-"))
    assert (response.code, response.body["reason"]) == (409, "AlreadyExists")
    assert response.headers == (("Retry-After", "1"),)


@pytest.mark.parametrize(
    ("body", "code", "reason"),
    [
        (config_map(None), 422, "Invalid"),
        (config_map("A"), 422, "Invalid"),
        (config_map("a" * 254), 422, "Invalid"),
        (config_map("a", namespace="kube-system"), 400, "BadRequest"),
        (config_map("a", resourceVersion="5"), 500, ""),
        ({**config_map("a"), "kind": "Pod"}, 400, "BadRequest"),
        ({**config_map("a"), "apiVersion": "v2"}, 400, "BadRequest"),
        (config_map("a", {"k": 1}), 400, "BadRequest"),
        (config_map("a", labels={"-": "1"}), 422, "Invalid"),
        (config_map("a", labels={"a": "-"}), 422, "Invalid"),
        (config_map("a", annotations={"a": "x" * 300_000}), 422, "Invalid"),
        (config_map("a", finalizers=["unqualified"]), 422, "Invalid"),
        (config_map("a", ownerReferences=[{"name": "x"}]), 422, "Invalid"),
        ([], 400, "BadRequest"),
        (None, 400, "BadRequest"),
    ],
)
def test_objects_that_cannot_be_created(caller, body, code, reason):
    """And nothing is written."""
    before = caller.store.revision
    assert caller.refused("POST", MAPS, body)[:2] == (code, reason)
    assert caller.store.revision == before


def test_kind_and_version_may_be_left_to_the_path(caller):
    """For built-in kinds."""
    assert caller.done("POST", MAPS, {"metadata": {"name": "a"}})["kind"] == "ConfigMap"


def test_an_object_that_exists(caller):
    """409 AlreadyExists; the message says if it is going away."""
    caller.done("POST", MAPS, config_map("a", finalizers=["x.dev/keep"]))
    refused = caller.refused("POST", MAPS, config_map("a"))
    assert refused == (409, "AlreadyExists", 'configmaps "a" already exists')
    caller.done("DELETE", f"{MAPS}/a")
    assert caller.refused("POST", MAPS, config_map("a"))[2] == 'object is being deleted: configmaps "a" already exists'


def test_a_namespace_that_is_not_there_or_is_going_away(caller):
    """404, and 403 with a cause."""
    other = "/api/v1/namespaces/other/configmaps"
    assert caller.refused("POST", other, config_map("a")) == (404, "NotFound", 'namespaces "other" not found')
    caller.done("POST", "/api/v1/namespaces", {"metadata": {"name": "other"}})
    caller.done("DELETE", "/api/v1/namespaces/other")
    response = caller.ask("POST", other, config_map("a"))
    assert response.code == 403
    assert response.body["details"]["causes"][0]["reason"] == "NamespaceTerminating"


def test_a_replacement_needs_the_latest_version(caller):
    """409 Conflict with an old one; none at all overwrites, where the kind allows it."""
    old = caller.done("POST", MAPS, config_map("a", {"k": "1"}))
    caller.done("PUT", f"{MAPS}/a", {**old, "data": {"k": "2"}})
    code, reason, message = caller.refused("PUT", f"{MAPS}/a", {**old, "data": {"k": "3"}})
    assert (code, reason) == (409, "Conflict")
    assert message.endswith("please apply your changes to the latest version and try again")
    assert caller.done("PUT", f"{MAPS}/a", config_map("a", {"k": "3"}))["data"] == {"k": "3"}
    caller.done("POST", LEASES, {"metadata": {"name": "l"}})
    assert caller.causes("PUT", f"{LEASES}/l", {"metadata": {"name": "l"}}) == [
        ("FieldValueInvalid", "metadata.resourceVersion")
    ]


def test_a_replacement_of_another_incarnation_is_a_conflict(caller):
    """Its uid is a precondition."""
    old = caller.done("POST", MAPS, config_map("a"))
    caller.done("DELETE", f"{MAPS}/a")
    caller.done("POST", MAPS, config_map("a"))
    body = {**old, "metadata": {**old["metadata"], "resourceVersion": ""}}
    code, reason, message = caller.refused("PUT", f"{MAPS}/a", body)
    assert (code, reason) == (409, "Conflict")
    assert "Precondition failed: UID in precondition" in message


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (config_map("b"), 400),
        (config_map("a", namespace="kube-system"), 400),
        (config_map("a", resourceVersion="word"), 500),
        (config_map("a", resourceVersion="1"), 409),
    ],
)
def test_replacements_that_are_refused(caller, body, code):
    """Another name, another namespace, a version that is none or old."""
    caller.done("POST", MAPS, config_map("a"))
    assert caller.refused("PUT", f"{MAPS}/a", body)[0] == code


def test_a_put_creates_only_where_the_kind_lets_it(caller):
    """Leases yes (201), whatever version they name, config maps no (404), with a uid never (409)."""
    assert caller.refused("PUT", f"{MAPS}/a", config_map("a"))[:2] == (404, "NotFound")
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}}
    assert caller.ask("PUT", f"{LEASES}/l", lease).code == 201
    made = caller.ask("PUT", f"{LEASES}/m", {"metadata": {"name": "m", "resourceVersion": "5"}})
    assert made.code == 201
    assert made.body["metadata"]["resourceVersion"] == str(caller.store.revision)
    assert caller.refused("PUT", f"{LEASES}/n", {"metadata": {"name": "n", "uid": "u"}})[:2] == (409, "Conflict")
    assert caller.ask("PUT", f"{LEASES}/n", {"metadata": {"name": "n", "resourceVersion": "x"}}).code == 500


def test_a_change_that_changes_nothing_writes_nothing(caller):
    """No revision passes, and no watch is told."""
    old = caller.done("POST", MAPS, config_map("a", {"k": "1"}))
    caller.now += 10**12
    watch = caller.watch(MAPS, resourceVersion=caller.store.revision)
    assert caller.done("PUT", f"{MAPS}/a", old) == old
    assert caller.patch(f"{MAPS}/a", {"data": {"k": "1"}}, fieldManager="another") == old
    assert watch.take(caller.now) == []


def test_generation_counts_what_is_desired(caller):
    """The spec's changes, not those of metadata or status."""
    caller.done("POST", PODS, pod("a"))
    assert caller.patch(f"{PODS}/a", {"metadata": {"labels": {"x": "1"}}})["metadata"]["generation"] == 1
    assert caller.patch(f"{PODS}/a/status", {"status": {"phase": "Running"}})["metadata"]["generation"] == 1
    assert caller.patch(f"{PODS}/a", {"spec": {"activeDeadlineSeconds": 5}})["metadata"]["generation"] == 2


def test_status_and_the_rest_are_written_apart(caller):
    """Each path ignores what is the other's."""
    caller.done("POST", PODS, {**pod("a"), "status": {"phase": "Running"}})
    assert caller.done("GET", f"{PODS}/a")["status"]["phase"] == "Pending"
    assert caller.patch(f"{PODS}/a", {"status": {"phase": "Running"}})["status"]["phase"] == "Pending"
    through = caller.patch(f"{PODS}/a/status", {"status": {"phase": "Running"}, "spec": {"nodeName": "x"}})
    assert through["status"]["phase"] == "Running"
    assert "nodeName" not in through["spec"]


def test_a_dry_run_answers_and_writes_nothing(caller):
    """For create, replace, patch, delete; other values than All are refused."""
    caller.done("POST", MAPS, config_map("a"))
    before = caller.store.revision
    assert caller.done("POST", MAPS, config_map("b"), dryRun="All")["metadata"]["uid"]
    caller.done("PUT", f"{MAPS}/a", config_map("a", {"k": "1"}), dryRun="All")
    assert caller.patch(f"{MAPS}/a", {"data": {"k": "1"}}, dryRun="All")["data"] == {"k": "1"}
    caller.done("DELETE", f"{MAPS}/a", dryRun="All")
    caller.done("DELETE", f"{MAPS}/a", {"dryRun": ["All"]})
    assert caller.store.revision == before
    assert "data" not in caller.done("GET", f"{MAPS}/a")
    assert caller.refused("POST", MAPS, config_map("b"), dryRun="Some")[0] == 422
    assert caller.refused("PATCH", f"{MAPS}/a", {}, content_type=MERGE, dryRun="Some")[0] == 422


def test_unknown_fields_are_told_as_the_caller_wants(caller):
    """A warning by default, 400 with Strict, nothing with Ignore; 422 in a patch."""
    body = {**config_map("a"), "extra": 1}
    assert caller.refused("POST", MAPS, body, fieldValidation="Strict")[2].endswith(
        'strict decoding error: unknown field "extra"'
    )
    assert caller.refused("POST", MAPS, body, fieldValidation="Loud")[0] == 422
    assert caller.ask("POST", MAPS, body).headers == (("Warning", '299 - "unknown field \\"extra\\""'),)
    assert caller.ask("POST", MAPS, body).code == 409
    assert len(caller.ask("POST", MAPS, body).headers) == 1
    patch = {"extra": 2}
    assert caller.ask("PATCH", f"{MAPS}/a", patch, content_type=MERGE, fieldValidation="Ignore").headers == ()
    assert caller.refused("PATCH", f"{MAPS}/a", patch, content_type=MERGE, fieldValidation="Strict")[0] == 422


def test_bodies_of_other_types_are_refused(caller):
    """415."""
    refused = caller.refused("POST", MAPS, config_map("a"), content_type="text/plain")
    assert refused[:2] == (415, "UnsupportedMediaType")


def test_the_callers_body_is_not_changed(caller):
    """Whatever was filled in."""
    body = pod("a")
    copy = pod("a")
    caller.done("POST", PODS, body)
    assert body == copy


def test_the_same_calls_give_the_same_answers():
    """Two stores with the same seed."""
    one, other = Caller(), Caller()
    for caller in (one, other):
        caller.done("POST", PODS, pod(None, generateName="a-"))
    assert one.done("GET", PODS) == other.done("GET", PODS)
