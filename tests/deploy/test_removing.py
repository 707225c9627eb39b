"""An installation taken away from a served simulation: what goes, in which order, and what stays."""

import anyio
import pytest
from deploy_world import EVERYTHING, installed, put

from iriscw.cloud.drivers.kube.kinds import path_of
from iriscw.cloud.kube.manifests import nodepool_manifest
from iriscw.cloud.kube.settings import KubeSettings
from iriscw.cloud.model import LABEL_CLUSTER_NAME, LABEL_SLICE, NodePoolSpec
from iriscw.deploy import removing
from iriscw.deploy.applying import apply
from iriscw.deploy.errors import NotRemoved
from iriscw.deploy.names import CONTROLLER
from iriscw.deploy.removing import Removal, going, is_slice, remove, slice_pools
from iriscw.deploy.rendering import render
from iriscw_sims.coreweave.crd import POOLS
from raised import that

INSTALLATION = installed(EVERYTHING)
MANIFESTS = render(INSTALLATION)
ALL = Removal(pools=True, state=True)
PODS = "/api/v1/namespaces/iris/pods"


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    """Look every few milliseconds."""
    monkeypatch.setattr(removing, "LOOK_S", 0.02)


@pytest.fixture
async def applied(objects):
    """Everything is there."""
    await apply(objects, MANIFESTS, lambda _line: None)


async def taken(objects, removal, manifests=MANIFESTS, timeout_s=5.0):
    """Remove, and give what was told."""
    told = []
    await remove(objects, INSTALLATION, manifests, removal, told.append, timeout_s=timeout_s)
    return told


async def left(objects):
    """Return what is still there, and not on its way out."""
    found = []
    for each in MANIFESTS:
        thing = await objects.get(path_of(each.body))
        if thing is not None and "deletionTimestamp" not in thing["metadata"]:
            found.append(each.name)
    return found


def slice_of(server, name, cluster="none", **labels):
    """Make a slice's pool, as the driver does."""
    settings = KubeSettings(cluster=cluster, cluster_name=labels.pop(LABEL_CLUSTER_NAME, "research"))
    body = nodepool_manifest(settings, NodePoolSpec(name, "turin-gp", 1, {LABEL_SLICE: name, **labels}))
    return put(server, "POST", POOLS, body)


async def test_everything_goes_in_reverse_order(objects, applied):
    """The controller before all that it could make anew, the namespace last."""
    told = await taken(objects, ALL)
    assert told == [f"{each.name} deleted" for each in reversed(MANIFESTS)]
    assert await left(objects) == []
    again = await taken(objects, ALL)
    assert [line for line in again if not line.endswith(("was not there", "is going already"))] == []


async def test_pools_can_stay(objects, server, applied):
    """Those of the slices, and the controller's; with the namespace, by whose uid they are known."""
    slice_of(server, "slice-1")
    await taken(objects, Removal(pools=False, state=True))
    assert await left(objects) == ["Namespace/iris", "NodePool/iris-controller-pool"]
    assert await objects.get(f"{POOLS}/slice-1") is not None


async def test_the_state_can_stay(objects, applied):
    """And with it the namespace, where people's Secrets are."""
    await taken(objects, Removal(pools=True, state=False))
    assert await left(objects) == ["Namespace/iris", "PersistentVolumeClaim/iris-controller-state"]


async def test_slices_go_with_their_owner_only(objects, server, applied):
    """By their namespace's uid; another installation's stay, also one of the same name, as does every controller's."""
    uids = [await uid_of(objects, server, name) for name in ("iris", "another")]
    slice_of(server, "ours", cluster=uids[0])
    slice_of(server, "of-another", cluster=uids[1])
    slice_of(server, "of-a-controller", cluster=uids[0], **{"iris-role": "controller"})
    slice_of(server, "by-hand", cluster=uids[0], **{"iris-managed": "false"})
    assert [each["metadata"]["name"] for each in await slice_pools(objects, INSTALLATION)] == ["ours"]
    told = await taken(objects, ALL)
    order = [told.index(f"{name} deleted") for name in ("Deployment/iris-controller", "NodePool/ours")]
    assert order == sorted(order)
    for name in ("of-another", "of-a-controller", "by-hand"):
        assert "deletionTimestamp" not in (await objects.get(f"{POOLS}/{name}"))["metadata"]


async def uid_of(objects, server, name):
    """Return the uid of a namespace; make it if there is none."""
    path = f"/api/v1/namespaces/{name}"
    if await objects.get(path) is None:
        put(server, "POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    return (await objects.get(path))["metadata"]["uid"]


async def test_what_a_namespace_left_that_is_gone_goes(objects, server, applied):
    """Its pools are nobody's, and cost money; those of another name may be somebody's to find."""
    slice_of(server, "left", cluster="0-0-0")
    slice_of(server, "left-by-another", cluster="1-1-1", **{LABEL_CLUSTER_NAME: "other"})
    assert [each["metadata"]["name"] for each in await slice_pools(objects, INSTALLATION)] == ["left"]


async def test_the_controller_has_to_be_gone_first(objects, server, applied):
    """As long as its pod is there, no pool is touched: it would be made anew."""
    slice_of(server, "slice-1")
    body = {
        "metadata": {"name": "iris-controller-1", "labels": {"app": CONTROLLER}},
        "spec": {"containers": [{"name": "controller", "image": "i"}]},
    }
    put(server, "POST", PODS, body)
    with pytest.raises(NotRemoved, check=that(names="0.1")):
        await taken(objects, ALL, timeout_s=0.1)
    assert "deletionTimestamp" not in (await objects.get(f"{POOLS}/slice-1"))["metadata"]
    told = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_remove, objects, told)
        while "Pod/iris-controller-1 ends" not in told:  # noqa: ASYNC110
            await anyio.sleep(0.01)
        put(server, "DELETE", f"{PODS}/iris-controller-1", {"gracePeriodSeconds": 0})
    assert "NodePool/slice-1 deleted" in told
    assert told.count("Pod/iris-controller-1 ends") == 1


async def _remove(objects, told):
    await remove(objects, INSTALLATION, MANIFESTS, ALL, told.append, timeout_s=20)


async def test_what_others_made_stays(objects, server):
    """An object of the same name without our labels is left alone, and told."""
    put(server, "POST", "/api/v1/namespaces", {"metadata": {"name": "iris"}})
    put(server, "POST", "/api/v1/namespaces/iris/configmaps", {"metadata": {"name": "iris-cluster-config"}})
    told = await taken(objects, ALL)
    assert "ConfigMap/iris-cluster-config stays: this installation did not make it" in told
    assert "Namespace/iris stays: this installation did not make it" in told
    assert await left(objects) == ["Namespace/iris", "ConfigMap/iris-cluster-config"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("path", "spec"),
    [
        (PODS, {"containers": [{"name": "c", "image": "i"}]}),
        (
            "/api/v1/namespaces/iris/persistentvolumeclaims",
            {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        ),
        ("/api/v1/namespaces/iris/secrets", None),
        ("/api/v1/namespaces/iris/configmaps", None),
    ],
)
async def test_a_namespace_with_others_in_it_stays(objects, server, applied, path, spec):
    """It would go with what is somebody's; it may have been there before."""
    body = {"metadata": {"name": "theirs"}}
    put(server, "POST", path, body if spec is None else {**body, "spec": spec})
    told = await taken(objects, ALL)
    assert told[-1] == "Namespace/iris stays: theirs in it belongs to somebody else"
    assert await left(objects) == ["Namespace/iris"]


async def test_workers_do_not_keep_a_namespace(objects, server, applied):
    """They are ours, and go with it."""
    labels = {"iris-managed": "true"}
    body = {"metadata": {"name": "w", "labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    put(server, "POST", PODS, body)
    assert (await taken(objects, ALL))[-1] == "Namespace/iris deleted"


def test_what_goes_is_known_before():
    """The question that is asked lists it."""
    names = [each.name for each in going(MANIFESTS, Removal(pools=False, state=False))]
    kept = {"Namespace/iris", "NodePool/iris-controller-pool", "PersistentVolumeClaim/iris-controller-state"}
    assert {*names} == {each.name for each in MANIFESTS} - kept
    assert names[:2] == ["ServiceMonitor/iris-controller", "Deployment/iris-controller"]
    assert [each.name for each in going(MANIFESTS, ALL)] == [each.name for each in reversed(MANIFESTS)]


def test_a_slice_is_managed_and_owned():
    """Each of its labels counts."""
    labels = {"iris-managed": "true", "iris-cluster": "u", "iris-cluster-name": "research"}

    def judged(namespaces, **changed):
        return is_slice({"metadata": {"labels": {**labels, **changed}}}, INSTALLATION, namespaces)

    assert judged({"u": "iris"})
    assert judged({"v": "iris"})  # nobody's, and of our name
    assert not judged({"u": "other"})
    assert not judged({"v": "iris"}, **{"iris-cluster-name": "other"})
    assert not judged({"u": "iris"}, **{"iris-managed": "false"})
    assert not judged({"u": "iris"}, **{"iris-role": "controller"})
    assert not is_slice({"metadata": {}}, INSTALLATION, {})
