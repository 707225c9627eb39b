"""Rights, verb by verb."""

import pytest
from deploy_world import installed, put, with_agent, with_task_pods
from doctor_world import install, lines, objects_of

from iriscw.cloud.kube.messages import ApiResponse
from iriscw.deploy.rights import RIGHTS
from iriscw.doctor import rights
from iriscw.doctor.findings import Health
from iriscw_sims.kube.messages import Request

INSTALLATION = installed()
ACCOUNT = "system:serviceaccount:iris:iris-controller"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


def narrow(server, path, change):
    """Change the rules of a role."""
    role = server.store.handle(Request("GET", path), server.timeline.now).body
    put(server, "PUT", path, {**role, "rules": [each for rule in role["rules"] if (each := change(dict(rule)))]})


def test_every_verb_is_one_question():
    """In the namespace or in the whole cluster, about one object where the right is."""
    asked = rights.questions(RIGHTS, "iris")
    assert len(asked) == sum(len(right.verbs) * max(1, len(right.names)) for right in RIGHTS)
    assert {(each.verb, each.name) for each in asked if each.right.names} == {
        ("get", "iris-controller"),
        ("update", "iris-controller"),
    }
    assert all(bool(each.namespace) != each.right.cluster for each in asked)
    assert {each.namespace for each in asked if each.right.resource == "events"} == {"default"}
    (execute, _) = [each for each in asked if each.right.resource == "pods/exec"]
    assert execute.attributes == {"verb": "get", "resource": "pods", "subresource": "exec", "namespace": "iris"}
    assert execute.object == "pods/exec in namespace iris"


async def test_the_rendered_rights_are_enough(objects, server):
    """An administrator asks about the controller's account, and hears no more than that it is well."""
    install(server, INSTALLATION)
    (found,) = await rights.look_at_rights(objects, INSTALLATION)
    assert found.verdict is Health.OK
    assert str(len(rights.questions(RIGHTS, "iris"))) in found.found
    assert "ServiceAccount iris-controller" in found.found


async def test_what_is_missing_is_named_with_what_fails(objects, server):
    """Verb by verb; the roles are what is wrong, not the list."""
    install(server, INSTALLATION)

    def without(rule):
        if rule["resources"] == ["nodepools"]:
            rule["verbs"] = ["get", "list", "watch"]
        return None if rule["resources"] == ["pods/log"] else rule

    narrow(server, f"{RBAC}/clusterroles/iris-controller", without)
    narrow(server, f"{RBAC}/namespaces/iris/roles/iris-controller", without)
    found = await rights.look_at_rights(objects, INSTALLATION)
    assert all(each.verdict is Health.WRONG and "--apply" in each.advice for each in found)
    pools, logs = lines(found)
    assert "may not create, delete nodepools (compute.coreweave.com) in the whole cluster: each slice" in pools
    assert "may not get pods/log in namespace iris: the last words" in logs


async def test_with_node_agents_the_controller_has_their_tokens_looked_at(objects, server):
    """That right is asked about only there, and who lacks it is told what fails."""
    with_agents = with_agent()
    install(server, with_agents)
    (found,) = await rights.look_at_rights(objects, with_agents)
    assert found.verdict is Health.OK
    assert str(len(rights.questions(RIGHTS, "iris")) + 1) in found.found
    narrow(server, f"{RBAC}/clusterroles/iris-controller-token-reviews", lambda _rule: None)
    (missing,) = lines(await rights.look_at_rights(objects, with_agents))
    assert "may not create tokenreviews (authentication.k8s.io) in the whole cluster: which node's agent" in missing


async def test_what_would_be_dangerous_is_a_warning(objects, server):
    """To read Secrets is; to read pods of other namespaces is nobody's trouble."""
    install(server, INSTALLATION)
    path = f"{RBAC}/namespaces/iris/roles/iris-controller"
    narrow(server, path, lambda rule: {**rule, "verbs": [*rule["verbs"], "list", "get"]})
    found = await rights.look_at_rights(objects, INSTALLATION)
    (danger,) = lines(found, Health.WARNING)
    assert "may get, list secrets in namespace iris: it could read every Secret" in danger
    assert len(found) == 2


async def test_who_may_not_ask_about_others_asks_about_themselves(server):
    """And it is said about whom: what they lack is none of the controller's trouble."""
    install(server, INSTALLATION)
    found = await rights.look_at_rights(objects_of(server, "eve"), INSTALLATION)
    assert {each.verdict for each in found} == {Health.WARNING}
    assert "whoever asks here may not get" in found[0].found
    assert "asked about whoever asks here" in found[-1].found


async def test_the_controller_asks_about_itself(server):
    """From inside its pod nobody else has to be asked."""
    install(server, INSTALLATION)
    name = ApiResponse(201, {"metadata": {}, "status": {"userInfo": {"username": ACCOUNT}}})
    refusals = {("POST", "/selfsubjectreviews"): name}
    found = await rights.look_at_rights(objects_of(server, ACCOUNT, refusals=refusals), INSTALLATION)
    assert [each.verdict for each in found] == [Health.OK]
    assert ACCOUNT in found[0].found


@pytest.mark.parametrize("status", [None, {}, {"allowed": "yes"}, {"allowed": False}])
async def test_what_is_no_yes_is_a_no(server, status):
    """Whatever a server answers."""
    answer = ApiResponse(201, {"metadata": {}, "status": status})
    objects = objects_of(server, refusals={("POST", "reviews"): answer})
    who = rights.controller_subject("iris")
    assert not await rights.may(objects, who, rights.questions(RIGHTS, "iris")[0])


async def test_workers_are_asked_about_where_they_make_pods(objects, server):
    """Verb by verb; where tasks are processes, nobody asks."""
    installation = with_task_pods()
    install(server, installation)
    found = await rights.look_at_rights(objects, installation)
    assert [each.verdict for each in found] == [Health.OK, Health.OK]
    assert "the ServiceAccount iris-worker may do all 5 things" in found[1].found
    narrow(server, f"{RBAC}/namespaces/iris/roles/iris-worker", lambda rule: {**rule, "verbs": ["get", "list"]})
    _, missing = await rights.look_at_rights(objects, installation)
    assert missing.verdict is Health.WRONG
    assert "the ServiceAccount iris-worker may not watch, create, delete pods in namespace iris" in missing.found
