"""Objects applied to a served simulation, again and again, and compared with what is there."""

import attrs
import pytest
from deploy_world import EVERYTHING, bodies, installed, put

from iriscw.cloud.drivers.kube.kinds import path_of
from iriscw.cloud.drivers.kube.objects import FIELD_MANAGER
from iriscw.cloud.kube.messages import ApiRequest
from iriscw.deploy.applying import apply, compare, difference, meant
from iriscw.deploy.errors import NotApplied
from iriscw.deploy.rendering import render
from raised import that

INSTALLATION = installed(EVERYTHING)
MANIFESTS = render(INSTALLATION)
BUDGET = "/apis/policy/v1/namespaces/iris/poddisruptionbudgets/iris-controller"


def changed(installation, name, **fields):
    """Return an installation's objects with some fields of one of them changed, on top."""
    return [
        attrs.evolve(each, body={**each.body, **fields}) if each.name == name else each for each in render(installation)
    ]


async def test_objects_are_created_then_unchanged(objects):
    """In their order; applying again says so of each, and writes nothing."""
    told = []
    await apply(objects, MANIFESTS, told.append)
    assert told == [f"{each.name} created" for each in MANIFESTS]
    told.clear()
    await apply(objects, MANIFESTS, told.append)
    assert told == [f"{each.name} unchanged" for each in MANIFESTS]
    assert await compare(objects, MANIFESTS) == ()


async def test_what_is_there_is_what_was_written(objects):
    """Each object has all that its manifest says, under our field manager."""
    await apply(objects, MANIFESTS, lambda _line: None)
    for manifest in MANIFESTS:
        found = await objects.get(path_of(manifest.body))
        assert has(found, manifest.body), manifest.name
        assert {each["manager"] for each in found["metadata"]["managedFields"]} == {FIELD_MANAGER}


def has(found, wanted):
    """Whether all of ``wanted`` is in ``found``; the server adds its defaults."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(has(found.get(name), value) for name, value in wanted.items())
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(has, found, wanted))
    return found == wanted or (wanted is False and found is None)  # the server leaves that out where it is the default


async def test_a_change_is_told_before_and_after(objects):
    """The comparison shows its lines and changes nothing; applying makes it."""
    await apply(objects, MANIFESTS, lambda _line: None)
    other = render(installed({**EVERYTHING, "cpu": 8}))
    found = await compare(objects, other)
    assert [each.name for each in found] == ["ConfigMap/iris-cluster-config", "Deployment/iris-controller"]
    assert '\n-              cpu: "4"\n' in found[1].text
    assert '\n+              cpu: "8"\n' in found[1].text
    assert await compare(objects, MANIFESTS) == ()
    told = []
    await apply(objects, other, told.append)
    assert [line for line in told if line.endswith(" changed")] == [f"{each.name} changed" for each in found]


async def test_an_empty_cluster_differs_by_everything(objects):
    """Also where not even the namespace is there, in which the server could be asked."""
    found = await compare(objects, MANIFESTS)
    assert [each.name for each in found] == [each.name for each in MANIFESTS]
    assert all(line.startswith("+") for each in found for line in each.text.splitlines()[3:])
    assert await objects.get("/api/v1/namespaces/iris") is None


async def test_a_field_that_is_left_out_goes_away(objects):
    """What we said before and do not say now is taken back."""
    await apply(objects, MANIFESTS, lambda _line: None)
    await apply(objects, render(installed({**EVERYTHING, "storage_class": ""})), lambda _line: None)
    claim = await objects.get("/api/v1/namespaces/iris/persistentvolumeclaims/iris-controller-state")
    assert "storageClassName" not in claim["spec"]


async def test_others_fields_are_a_conflict(objects, server):
    """It names field and owner, and the way out; by force it is taken over."""
    await apply(objects, MANIFESTS, lambda _line: None)
    patch = ApiRequest(
        "PATCH",
        BUDGET,
        (("fieldManager", "somebody"), ("force", "true")),
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": {"minAvailable": 0}},
        "application/apply-patch+yaml",
    )
    assert (await objects.caller.api.request(patch)).code == 200
    with pytest.raises(
        NotApplied, check=that(names=("PodDisruptionBudget/iris-controller", "somebody", ".spec.minAvailable"))
    ):
        await apply(objects, MANIFESTS, lambda _line: None)
    (found,) = await compare(objects, MANIFESTS)
    assert found.name == "PodDisruptionBudget/iris-controller"
    await apply(objects, MANIFESTS, lambda _line: None, force=True)
    assert (await objects.get(BUDGET))["spec"]["minAvailable"] == 1


async def test_the_first_refusal_ends_it(objects):
    """It names the object and the reason; what came before is there."""
    name = "PodDisruptionBudget/iris-controller"
    bad = changed(INSTALLATION, name, spec={**bodies(INSTALLATION)[name]["spec"], "minAvailable": -1})
    told = []
    with pytest.raises(NotApplied, check=that(names=name)):
        await apply(objects, bad, told.append)
    names = [each.name for each in MANIFESTS]
    assert told == [f"{each} created" for each in names[: names.index(name)]]
    with pytest.raises(NotApplied, check=that(names=name)):
        await compare(objects, bad)


async def test_what_is_on_its_way_out_is_not_applied(objects, server):
    """It would go with all that is put into it; whoever installs anew at once has to wait."""
    await apply(objects, MANIFESTS, lambda _line: None)
    await objects.delete("/api/v1/namespaces/iris")
    with pytest.raises(NotApplied, check=that(comes_from="applying._applied", names="Namespace/iris")):
        await apply(objects, MANIFESTS, lambda _line: None)


async def test_a_type_that_cannot_change_is_told(objects):
    """CoreWeave keeps a pool's instance type for life."""
    await apply(objects, MANIFESTS, lambda _line: None)
    other = render(installed({**EVERYTHING, "instance_type": "turin-gp"}))
    with pytest.raises(
        NotApplied, check=that(names=("NodePool/iris-controller-pool", "API", "NodePool.compute.coreweave.com"))
    ):
        await apply(objects, other, lambda _line: None)


async def test_a_cluster_without_node_pools_is_told(objects, server):
    """It is no CoreWeave, then."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodepools.compute.coreweave.com"
    put(server, "DELETE", path, None)
    with pytest.raises(NotApplied, check=that(names="NodePool/iris-controller-pool")):
        await apply(objects, MANIFESTS, lambda _line: None)


def test_noise_is_no_difference():
    """What the server writes by itself, and a status, is not compared."""
    body = bodies(INSTALLATION)["Service/iris-controller-svc"]
    noise = {"uid": "u", "resourceVersion": "7", "generation": 2, "creationTimestamp": "t", "managedFields": []}
    there = {**body, "metadata": {**body["metadata"], **noise}, "status": {"loadBalancer": {}}}
    assert meant(there) == body
    assert difference("x", there, body) == ""
