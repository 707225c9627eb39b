"""Objects of any kind, against a real kube-apiserver: and the errors that its own judges cause."""

import attrs
import pytest
from drivers_world import LIMITS, SETTINGS
from objects_suite import POOL, ObjectsSuite, config_map, furnish, settings  # noqa: F401 - the last is a fixture
from real_pods import PODS, access_of

from iriscw.cloud.drivers.kube.credentials import Fixed, Header
from iriscw.cloud.drivers.kube.drivers import open_drivers
from iriscw.cloud.drivers.kube.kinds import path_of
from iriscw.cloud.drivers.kube.objects import open_objects
from iriscw.cloud.kube.messages import MERGE_PATCH
from iriscw.cloud.model import (
    LABEL_INCARNATION,
    LABEL_SLICE,
    Capacity,
    Forbidden,
    InvalidSpec,
    NodePoolSpec,
    PodSpec,
    QuotaExceeded,
    Throttled,
    Unavailable,
)
from raised import that

pytestmark = pytest.mark.slow

PREFIXES = (
    "/registry/compute.coreweave.com/nodepools/",
    "/registry/configmaps/iris/",
    "/registry/pods/",
    "/registry/poddisruptionbudgets/",
    "/registry/resourcequotas/",
)


@pytest.fixture
async def objects(real_server):
    """The objects of an administrator; none of ours is left of another test."""
    async with open_objects(access_of(real_server), limits=LIMITS, settings=SETTINGS) as opened:
        await furnish(opened)
        real_server.erase(PREFIXES)
        for path in ("/api/v1/namespaces/iris/configmaps", "/api/v1/namespaces/iris/resourcequotas", PODS):
            while await opened.list(path):  # until the server's caches have heard of it
                pass
        yield opened


class TestSuite(ObjectsSuite):
    """What objects do."""


def quota(namespace="iris", pods="0"):
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "all", "namespace": namespace},
        "spec": {"hard": {"pods": pods}},
    }


POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "iris", "labels": {"app": "p"}},
    "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "none"}]},
}


async def test_a_used_up_quota(real_server, objects):
    """Of a namespace: for whatever is made, by drivers and by objects."""
    path = path_of(quota())
    await objects.apply(path, quota())
    status = {"status": {"hard": {"pods": "0"}, "used": {"pods": "0"}}}
    await objects.patch(f"{path}/status", status, MERGE_PATCH)
    with pytest.raises(QuotaExceeded):
        await objects.create(PODS, POD)
    labels = {LABEL_SLICE: "s1", LABEL_INCARNATION: "1"}
    async with open_drivers(access_of(real_server), SETTINGS, limits=LIMITS) as drivers:
        await drivers.node_pools.create(NodePoolSpec("s1", "turin-gp", 1, labels))
        with pytest.raises(QuotaExceeded):
            await drivers.pods.create(PodSpec("s1-0", "s1", labels, Capacity(1000, 2**30)))


async def test_a_policy_that_does_not_accept_a_pod(objects):
    """Is about the pod, not about us: the same code as a missing right, and another error."""
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "strict", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    }
    await objects.apply(path_of(namespace), namespace)
    pod = {**POD, "metadata": {"name": "p", "namespace": "strict"}}
    with pytest.raises(InvalidSpec, check=that(names="PodSecurity")):
        await objects.create("/api/v1/namespaces/strict/pods", pod)


async def test_a_namespace_that_is_being_deleted(objects):
    """Passes, whichever way it ends."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ending"}}
    await objects.apply(path_of(namespace), namespace)
    assert await objects.delete(path_of(namespace))
    inside = {**config_map(), "metadata": {"name": "settings", "namespace": "ending"}}
    with pytest.raises(Unavailable, check=that(names="configmaps")):
        await objects.apply(path_of(inside), inside)


async def test_slower(objects):
    """429 is what an eviction gets that a disruption budget does not allow."""
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "iris"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "p"}}},
    }
    await objects.apply(path_of(budget), budget)
    status = {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1}
    await objects.patch(f"{path_of(budget)}/status", {"status": {**status, "expectedPods": 1}}, MERGE_PATCH)
    await objects.create(PODS, POD)
    running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await objects.patch(f"{PODS}/p/status", {"status": running}, MERGE_PATCH)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": "iris"}}
    with pytest.raises(Throttled, check=that(retry_after=0)):
        await objects.create(f"{PODS}/p/eviction", eviction)


async def test_rights(real_server):
    """Who may do nothing is told so, by every method."""
    async with open_objects(access_of(real_server, "dev"), limits=LIMITS, settings=SETTINGS) as objects:
        path = path_of(config_map())
        for attempt in (
            objects.get(path),
            objects.list("/api/v1/namespaces/iris/configmaps"),
            objects.apply(path, config_map()),
            objects.patch(path, {}, MERGE_PATCH),
            objects.create("/api/v1/namespaces/iris/configmaps", config_map()),
            objects.delete(path),
            objects.wait(path, bool, 20),
        ):
            with pytest.raises(Forbidden, check=that(names="dev")):
                await attempt


async def test_a_wrong_token(real_server):
    """401 here."""
    access = attrs.evolve(access_of(real_server), credentials=Fixed(Header.of("Bearer", "CW-SECRET-wrong")))
    async with open_objects(access, limits=LIMITS, settings=SETTINGS) as objects:
        with pytest.raises(Forbidden, check=that(names="Unauthorized")) as refused:
            await objects.get(path_of(POOL))
        assert "CW-SECRET" not in str(refused.value)
