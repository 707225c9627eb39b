"""May I, may they: the questions about rights, and who may ask them."""

import pytest
from hypothesis import given, strategies as st
from kube_caller import MAPS, Caller

from iriscw_sims.kube.rbac import ALLOW_ALL
from iriscw_sims.kube.reviews import REVIEWS, REVIEWS_OF_OTHERS

RBAC = "/apis/rbac.authorization.k8s.io/v1"
PODS = {"verb": "list", "resource": "pods", "namespace": "default"}


def allow(caller, user, rule, *, kind="User", name="r"):
    """Let somebody do something everywhere."""
    caller.done("POST", f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [rule]})
    subjects = [{"kind": kind, "name": user, **({"namespace": "n"} if kind == "ServiceAccount" else {})}]
    body = {"metadata": {"name": name}, "roleRef": {"kind": "ClusterRole", "name": name}, "subjects": subjects}
    caller.done("POST", f"{RBAC}/clusterrolebindings", body)


def lists(resource="pods", group=""):
    """Return a rule."""
    return {"verbs": ["list", "create"], "resources": [resource], "apiGroups": [group]}


@pytest.mark.parametrize(
    ("user", "groups", "kind", "said"),
    [
        ("eve", [], "User", 'ClusterRoleBinding "r" of ClusterRole "r" to User "eve"'),
        ("none", ["eve"], "Group", 'ClusterRoleBinding "r" of ClusterRole "r" to Group "eve"'),
        (
            "system:serviceaccount:n:eve",
            [],
            "ServiceAccount",
            'ClusterRoleBinding "r" of ClusterRole "r" to ServiceAccount "eve/n"',
        ),
    ],
)
def test_may_they(caller, user, groups, kind, said):
    """A review of others is about the user and the groups that it names, and says which binding allows it."""
    allow(caller, "eve", lists(), kind=kind)
    spec = {"user": user, "groups": groups, "resourceAttributes": PODS}
    status = caller.done("POST", REVIEWS_OF_OTHERS, {"spec": spec})["status"]
    assert status == {"allowed": True, "reason": f"RBAC: allowed by {said}"}
    spec = {"user": "bob", "resourceAttributes": PODS}
    assert caller.done("POST", REVIEWS_OF_OTHERS, {"spec": spec})["status"] == {"allowed": False}


def test_who_asks_about_others_needs_a_right(caller):
    """It is that to create such a review; about oneself everybody asks."""
    body = {"spec": {"user": "eve", "resourceAttributes": PODS}}
    refused = caller.refused("POST", REVIEWS_OF_OTHERS, body, user="eve")
    assert refused[0] == 403
    assert refused[2].endswith(
        'cannot create resource "subjectaccessreviews" in API group "authorization.k8s.io" at the cluster scope'
    )
    assert caller.done("POST", REVIEWS, {"spec": {"resourceAttributes": PODS}}, user="eve")["status"] == {
        "allowed": False
    }
    allow(caller, "eve", lists("subjectaccessreviews", "authorization.k8s.io"))
    assert caller.done("POST", REVIEWS_OF_OTHERS, body, user="eve")["status"] == {"allowed": False}


def test_a_review_is_stored_nowhere(caller):
    """It changes no revision, and cannot be read."""
    before = caller.done("GET", MAPS)["metadata"]["resourceVersion"]
    caller.done("POST", REVIEWS_OF_OTHERS, {"spec": {"user": "eve", "resourceAttributes": PODS}})
    assert caller.done("GET", MAPS)["metadata"]["resourceVersion"] == before
    assert caller.ask("GET", REVIEWS_OF_OTHERS).code in (404, 405)


@pytest.mark.parametrize(
    ("path", "spec", "field"),
    [
        (REVIEWS, {}, "spec.resourceAttributes"),
        (REVIEWS_OF_OTHERS, {"resourceAttributes": PODS}, "spec.user"),
        (
            REVIEWS,
            {"resourceAttributes": PODS, "nonResourceAttributes": {"path": "/", "verb": "get"}},
            "spec.nonResourceAttributes",
        ),
    ],
)
def test_a_question_about_nothing_or_two_things_is_none(caller, path, spec, field):
    """It is refused with the field."""
    answer = caller.ask("POST", path, {"spec": spec})
    assert (answer.code, answer.body["details"]["causes"][0]["field"]) == (422, field)


@pytest.mark.parametrize("spec", [7, {"user": 7}, {"groups": "g"}, {"resourceAttributes": {"verb": 7}}])
def test_what_is_no_question_is_refused(caller, spec):
    """With 400, whatever is in it."""
    assert caller.ask("POST", REVIEWS_OF_OTHERS, {"spec": spec}).code == 400


WORDS = st.sampled_from(["", "a", "list", "pods", None, 7, True])
PARTS = st.dictionaries(st.sampled_from(["verb", "resource", "namespace", "name", "fieldSelector"]), WORDS, max_size=4)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "user": WORDS,
        "groups": st.one_of(WORDS, st.lists(WORDS, max_size=2)),
        "resourceAttributes": st.one_of(WORDS, PARTS),
        "nonResourceAttributes": st.one_of(WORDS, PARTS),
        "extra": st.one_of(WORDS, PARTS),
        "unknown": WORDS,
    },
)


@given(path=st.sampled_from([REVIEWS, REVIEWS_OF_OTHERS]), spec=SPECS)
def test_whatever_is_asked_is_answered(path, spec):
    """With a review, or a refusal that says why; nobody is allowed anything that no role allows."""
    caller = Caller()
    answer = caller.ask("POST", path, {"spec": spec})
    assert answer.code in (201, 400, 422)
    if answer.code == 201 and path == REVIEWS_OF_OTHERS:
        assert answer.body["status"] == {"allowed": False}


def test_without_rules_everybody_may():
    """For worlds that are about something else; without a reason."""
    caller = Caller(rules=ALLOW_ALL)
    body = {"spec": {"user": "eve", "resourceAttributes": PODS}}
    assert caller.done("POST", REVIEWS_OF_OTHERS, body, user="bob")["status"] == {"allowed": True}
