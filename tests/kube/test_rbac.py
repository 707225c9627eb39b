"""Who may do what."""

import pytest
from kube_caller import MAPS, MERGE, PODS, Caller, config_map, pod

from iriscw_sims.kube.rbac import ALLOW_ALL, Rules
from iriscw_sims.kube.reviews import REVIEWS

RBAC = "/apis/rbac.authorization.k8s.io/v1"


def allow(caller, rules, *, user="eve", namespace="", kind="User", name="r", **subject):
    """Bind rules to a user, in a namespace or everywhere."""
    where = f"{RBAC}/namespaces/{namespace}" if namespace else RBAC
    prefix, role = ("", "Role") if namespace else ("cluster", "ClusterRole")
    caller.done("POST", f"{where}/{prefix}roles", {"metadata": {"name": name}, "rules": rules})
    subjects = [{"kind": kind, "name": user, **subject}]
    body = {"metadata": {"name": name}, "roleRef": {"kind": role, "name": name}, "subjects": subjects}
    caller.done("POST", f"{where}/{prefix}rolebindings", body)


def rule(verbs, resources, groups=("",), **more):
    """Return one rule."""
    return {"verbs": [*verbs], "resources": [*resources], "apiGroups": [*groups], **more}


def test_nobody_may_anything_at_first(caller):
    """But admin. The message names who, what and where."""
    assert caller.refused("GET", PODS, user="eve") == (
        403,
        "Forbidden",
        'pods is forbidden: User "eve" cannot list resource "pods" in API group "" in the namespace "default"',
    )
    assert caller.refused("DELETE", f"{PODS}/a", user="")[2] == (
        'pods "a" is forbidden: User "system:anonymous" cannot delete resource "pods" in API group "" '
        'in the namespace "default"'
    )
    assert caller.refused("GET", "/api/v1/nodes", user="eve")[2].endswith("at the cluster scope")
    assert caller.refused("DELETE", "/api/v1/namespaces/n", user="eve")[2].endswith('in the namespace "n"')
    assert caller.watch(PODS).closed is False
    assert caller.ask("GET", "/apis/none.dev/v1/things/a", user="eve").code == 403


def test_a_role_is_for_its_namespace(caller):
    """A cluster role bound by a cluster role binding is for all."""
    allow(caller, [rule(["get", "list", "watch"], ["pods"])], namespace="default")
    assert caller.ask("GET", PODS, user="eve").code == 200
    assert caller.ask("GET", "/api/v1/pods", user="eve").code == 403
    assert caller.ask("POST", PODS, pod("a"), user="eve").code == 403
    allow(caller, [rule(["list"], ["pods"])])
    assert caller.ask("GET", "/api/v1/pods", user="eve").code == 200


def test_names_subresources_and_stars(caller):
    """Rules for one object, for status only, for everything of a group."""
    allow(
        caller,
        [
            rule(["get", "update"], ["configmaps"], resourceNames=["a"]),
            rule(["patch"], ["pods/status", "*/scale"], ["", "apps"]),
        ],
    )
    caller.done("POST", MAPS, config_map("a"))
    caller.done("POST", PODS, pod("a"))
    assert caller.ask("GET", f"{MAPS}/a", user="eve").code == 200
    assert caller.ask("GET", f"{MAPS}/b", user="eve").code == 403
    assert caller.ask("GET", MAPS, user="eve").code == 403
    assert caller.ask("PATCH", f"{PODS}/a/status", {}, content_type=MERGE, user="eve").code == 200
    assert caller.ask("PATCH", f"{PODS}/a", {}, content_type=MERGE, user="eve").code == 403
    scale = "/apis/apps/v1/namespaces/default/deployments/d/scale"
    assert caller.ask("PATCH", scale, {}, content_type=MERGE, user="eve").code == 404
    allow(caller, [rule(["*"], ["*"], ["*"])], user="root", name="root")
    assert caller.ask("DELETE", MAPS, user="root").code == 200


def test_a_list_of_one_name_is_authorized_as_of_that_object(caller):
    """A field selector of metadata.name names it."""
    allow(caller, [rule(["list"], ["configmaps"], resourceNames=["a"])])
    assert caller.ask("GET", MAPS, user="eve", fieldSelector="metadata.name=a").code == 200
    refused = caller.refused("GET", MAPS, user="eve", fieldSelector="metadata.name==b")
    assert refused[2].startswith('configmaps "b" is forbidden')
    assert caller.ask("GET", MAPS, user="eve", fieldSelector="metadata.name!=a").code == 403


def test_groups_and_service_accounts():
    """A group's members, everybody who is known, an account by its full name; a cluster role in one namespace."""
    caller = Caller(rules=Rules(groups={"admin": ("system:masters",), "dev": ("devs",)}))
    allow(caller, [rule(["list"], ["pods"])], user="devs", kind="Group", name="g")
    allow(caller, [rule(["list"], ["nodes"])], user="system:authenticated", kind="Group", name="h")
    body = {
        "metadata": {"name": "b"},
        "roleRef": {"kind": "ClusterRole", "name": "g"},
        "subjects": [{"kind": "ServiceAccount", "name": "sa", "namespace": "n"}],
    }
    caller.done("POST", f"{RBAC}/namespaces/default/rolebindings", body)
    assert caller.ask("GET", PODS, user="dev").code == 200
    assert caller.ask("GET", PODS, user="eve").code == 403
    assert caller.ask("GET", "/api/v1/nodes", user="eve").code == 200
    assert caller.ask("GET", "/api/v1/nodes", user="").code == 403
    assert caller.ask("GET", PODS, user="system:serviceaccount:n:sa").code == 200
    assert caller.ask("GET", "/api/v1/pods", user="system:serviceaccount:n:sa").code == 403


def test_a_binding_to_nothing_allows_nothing(caller):
    """Its role is not there, and the refusal says so."""
    body = {
        "metadata": {"name": "b"},
        "roleRef": {"kind": "ClusterRole", "name": "none"},
        "subjects": [{"kind": "User", "name": "eve"}],
    }
    caller.done("POST", f"{RBAC}/clusterrolebindings", body)
    said = caller.refused("GET", PODS, user="eve")[2]
    assert said.endswith('in the namespace "default": RBAC: clusterrole.rbac.authorization.k8s.io "none" not found')


def test_without_rules_everybody_may():
    """For worlds that are about something else."""
    caller = Caller(rules=ALLOW_ALL)
    assert caller.ask("GET", PODS, user="eve").code == 200
    assert caller.done("POST", REVIEWS, {"spec": {"resourceAttributes": {"verb": "get"}}}, user="eve")["status"] == {
        "allowed": True
    }


@pytest.mark.parametrize(
    ("attributes", "wanted"),
    [
        ({"verb": "list", "resource": "pods", "namespace": "default"}, True),
        ({"verb": "list", "resource": "pods"}, False),
        ({"verb": "patch", "resource": "pods", "subresource": "status", "namespace": "default"}, False),
    ],
)
def test_may_i(caller, attributes, wanted):
    """A review says what a request would meet."""
    allow(caller, [rule(["list"], ["pods"])], namespace="default")
    answer = caller.done("POST", REVIEWS, {"spec": {"resourceAttributes": attributes}}, user="eve")
    assert answer["status"]["allowed"] is wanted
    assert answer["spec"]["resourceAttributes"] == attributes
