"""What is served, as clients ask for it first."""

from kube_caller import DEFINITIONS, Caller, definition, spec_schema


def test_versions_and_health():
    """Of the server's own choosing."""
    caller = Caller(version="v1.35.2")
    version = caller.done("GET", "/version")
    told = ("major", "minor", "gitVersion", "emulationMinor", "minCompatibilityMinor", "platform")
    assert [version[each] for each in told] == ["1", "35", "v1.35.2", "35", "34", "linux/amd64"]
    wanted = ("gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler")  # Python's client takes no less
    assert all(version[each] for each in wanted)
    assert caller.done("GET", "/readyz") == {"text": "ok"}
    assert caller.done("GET", "/api")["versions"] == ["v1"]


def test_groups_and_resources(caller):
    """Every kind with its verbs and subresources; those that were defined among them."""
    paths = {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}
    caller.done("POST", DEFINITIONS, definition(spec_schema(), subresources={"status": {}, "scale": paths}))
    groups = {group["name"]: group["preferredVersion"]["version"] for group in caller.done("GET", "/apis")["groups"]}
    assert groups["apps"] == groups["test.dev"] == "v1"
    assert caller.done("GET", "/apis/apps")["versions"] == [{"groupVersion": "apps/v1", "version": "v1"}]
    core = {each["name"]: each for each in caller.done("GET", "/api/v1")["resources"]}
    assert core["pods"]["shortNames"] == ["po"]
    assert core["pods/eviction"]["group"] == "policy"
    assert not core["namespaces"]["namespaced"]
    assert "deletecollection" not in core["namespaces"]["verbs"]
    mine = [each["name"] for each in caller.done("GET", "/apis/test.dev/v1")["resources"]]
    assert mine == ["widgets", "widgets/scale", "widgets/status"]


def test_what_is_not_served(caller):
    """404."""
    for path in ("/apis/none.dev", "/apis/none.dev/v1", "/api/v2", "/nothing", "/api/v1/things", "/api/v1/pods/a"):
        assert caller.refused("GET", path)[:2] == (404, "NotFound")


def test_methods_that_a_path_does_not_have(caller):
    """405."""
    for method, path in (
        ("POST", "/api/v1/namespaces/default/pods/a"),
        ("PUT", "/api/v1/namespaces/default/pods"),
        ("PATCH", "/api/v1/namespaces/default/pods"),
        ("POST", "/api/v1/pods"),
        ("DELETE", "/api/v1/pods"),
        ("DELETE", "/api/v1/namespaces"),
    ):
        assert caller.refused(method, path, {})[:2] == (405, "MethodNotAllowed"), (method, path)
