"""The controller's rights: what the drivers ask for is what the table grants, no more and no less."""

import re
from pathlib import Path

import pytest
from deploy_world import bodies, installed, with_task_pods

import iriscw_sims.cloud
import iriscw_sims.kube.store
from iriscw.deploy.rights import RIGHTS, cluster_rules, controller_rights, events_rules, namespaced_rules
from iriscw_sims.apiserver import CONTROLLER
from iriscw_sims.world import World

PAGE = Path(__file__).parents[2] / "docs" / "coreweave.md"

SEEDS = (1, 2, 3, 5, 8, 13)
"""Runs with faults, crashes and restarts, in which every call of the drivers occurs."""

DRIVERS = ("nodepools", "nodes", "pods")
"""What the drivers of pools and pods work with. All else is the controller's own: tests of its parts ask for it."""


def granted(*resources):
    """Return what the table grants on some resources."""
    return {(each.group, each.resource, verb) for each in RIGHTS if each.resource in resources for verb in each.verbs}


@pytest.fixture
def asked(monkeypatch):
    """Everything that the controller asks the simulated API server for: group, resource, verb."""
    found = set()
    check = iriscw_sims.kube.store.check

    def noted(rules, roles, request, route, verb):
        if request.user == CONTROLLER:
            resource = f"{route.plural}/{route.subresource}" if route.subresource else route.plural
            found.add((route.group, resource, verb))
        return check(rules, roles, request, route, verb)

    monkeypatch.setattr(iriscw_sims.kube.store, "check", noted)
    return found


@pytest.mark.slow
def test_the_drivers_ask_for_what_is_granted(asked):
    """Every line of the table about pools, nodes and pods is used, and nothing else is asked for."""
    for seed in SEEDS:
        World(seed).run()
    assert asked == granted(*DRIVERS)


@pytest.mark.parametrize("seed", [SEEDS[0], *(pytest.param(seed, marks=pytest.mark.slow) for seed in SEEDS[1:3])])
def test_a_world_runs_with_the_rendered_rights(monkeypatch, seed):
    """And no others: a refusal would be seen, as each of them is in that world."""
    lines = tuple((each.group, each.resource, each.verbs) for each in RIGHTS if not each.names)
    monkeypatch.setattr(iriscw_sims.cloud, "PERMISSIONS", lines)
    run = World(seed).run()
    assert not run.violations, run.report


def test_the_cluster_role_is_about_machines_only():
    """Nothing that lives in a namespace is granted in all of them, and nothing of a node is ever changed."""
    (pools, nodes) = cluster_rules()
    assert pools["resources"] == ["nodepools"]
    assert (nodes["resources"], nodes["verbs"]) == (["nodes"], ["list", "watch"])
    assert not {"nodes", "nodepools"} & {each for rule in namespaced_rules() for each in rule["resources"]}


def test_no_right_is_wild():
    """No stars; no reading of Secrets; no handing on of rights."""
    for right in RIGHTS:
        assert "*" not in (right.group, right.resource, *right.verbs)
        assert not right.resource.startswith(("roles", "clusterroles", "serviceaccounts"))
    secrets = {verb for _, _, verb in granted("secrets")}
    assert secrets == {"create", "delete"}


def test_the_lease_is_the_controllers_own():
    """Others in the namespace are not read or written; only making one cannot be narrowed to a name."""
    for right in RIGHTS:
        if right.resource == "leases":
            assert right.names == (() if right.verbs == ("create",) else ("iris-controller",))


def test_workers_may_do_nothing():
    """No role is bound to their account, and no token of it is mounted."""
    found = bodies(installed())
    for body in found.values():
        assert all(each["name"] == "iris-controller" for each in body.get("subjects", ()))
    assert found["ServiceAccount/iris-worker"]["automountServiceAccountToken"] is False


def test_the_roles_are_the_table():
    """Each line is a rule of one of the three roles, in the table's order."""
    found = bodies(installed())
    assert found["ClusterRole/iris-controller"]["rules"] == cluster_rules()
    assert found["Role/iris-controller"]["rules"] == namespaced_rules()
    assert found["Role/iris-controller-events"]["rules"] == events_rules()
    assert len(cluster_rules()) + len(namespaced_rules()) + len(events_rules()) == len(RIGHTS)


def test_the_page_has_every_right_with_its_reason():
    """docs/coreweave.md shows the table as it is."""
    form = r"^\| `(\S+)` \| ([^|]+) \| (namespace|cluster|`default`) \| ([^|]+) \|$"
    rows = re.findall(form, PAGE.read_text(), re.MULTILINE)
    verbs = [(name, [*re.findall(r"`([a-z]+)`", words)], where, why.strip()) for name, words, where, why in rows]
    assert verbs == [
        (each.resource, [*each.verbs], "cluster" if each.cluster else where(each), each.why)
        for each in controller_rights(agents=True)
    ]


def where(right):
    """Return where a right holds that does not hold everywhere, as the page has it."""
    return f"`{right.namespace}`" if right.namespace else "namespace"


def test_events_are_written_and_never_read():
    """In the one namespace where those of node pools are: what others tell there is nobody's of ours to read."""
    (rule,) = events_rules()
    assert rule == {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]}
    role = bodies(installed())["Role/iris-controller-events"]
    assert role["metadata"]["namespace"] == "default"


def test_workers_may_make_pods_where_tasks_have_some():
    """In the namespace, and nothing else: a Role of theirs, bound to them only."""
    before, found = bodies(installed()), bodies(with_task_pods())
    assert sorted(found.keys() - before.keys()) == ["Role/iris-worker", "RoleBinding/iris-worker"]
    (rule,) = found["Role/iris-worker"]["rules"]
    assert (rule["apiGroups"], rule["resources"]) == ([""], ["pods"])
    assert sorted(rule["verbs"]) == ["create", "delete", "get", "list", "watch"]
    binding = found["RoleBinding/iris-worker"]
    assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "iris-worker"}
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "iris-worker", "namespace": "iris"}]
    assert found["ServiceAccount/iris-worker"]["automountServiceAccountToken"] is False  # its pods mount it themselves
