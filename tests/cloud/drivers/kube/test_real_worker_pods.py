"""The manifests of a whole worker pod against a real kube-apiserver: every field is known to it, and none is refused.

Skipped where no server was built (``tests/kube/real/build-apiserver``).
"""

import contextlib

import anyio
import attrs
import pytest
from drivers_world import LIMITS, SETTINGS

from iriscw.cloud.drivers.kube.access import ClusterAccess, trusting
from iriscw.cloud.drivers.kube.credentials import Fixed, Header
from iriscw.cloud.drivers.kube.drivers import open_drivers
from iriscw.cloud.kube.handing import drop_token, token_manifest
from iriscw.cloud.kube.manifests import nodepool_manifest, pod_manifest
from iriscw.cloud.kube.messages import ApiRequest, ApiUnreachable
from iriscw.cloud.kube.pods import create_pod
from iriscw.cloud.kube.settings import GroupSettings, SecretKey, Taint
from iriscw.cloud.model import Capacity, InvalidSpec, NodePoolSpec, PodSpec
from iriscw_sims.coreweave.crd import DEFINITION, DEFINITIONS, NAMESPACES, POOLS
from raised import that

pytestmark = pytest.mark.slow

PODS, SECRETS = "/api/v1/namespaces/iris/pods", "/api/v1/namespaces/iris/secrets"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
LABELS = {"iris-scale-group": "h100", "iris-slice-id": "whole-1", "iris-incarnation": "1"}
POOL = NodePoolSpec("whole-1", "gd-8xh100ib-i128", 1, LABELS)
POD = PodSpec("whole-1-0", "whole-1", LABELS, Capacity(128_000, 2048 * 10**9, 10**12, 8), environment={"A": "1"})
WHOLE = attrs.evolve(
    SETTINGS,
    cluster_name="research",
    node_cache_dir="/mnt/local/iris",
    config_map="iris-cluster-config",
    storage_secret="iris-bundle-credentials",
    authority_secret="iris-ca",
    tokens=True,
    image_pull_secrets=("iris-image-pull",),
    task_secrets={"WANDB_API_KEY": SecretKey("wandb", "api-key")},
    priority_class="iris-worker",
    command=("python", "-m", "iriscw.worker", "serve"),
    groups={
        "h100": GroupSettings(
            infiniband=True,
            gpu_class="H100",
            interruptable=True,
            taints=(Taint("dedicated", "iris", "NoSchedule"),),
            most=Capacity(115_200, 1843 * 10**9),
        )
    },
)


@pytest.fixture
async def drivers(real_server):
    """The drivers as an administrator, and a namespace with nothing of this test in it."""
    tls = trusting(real_server.files.authority.read_bytes())
    token = Fixed(Header.of("Bearer", real_server.tokens["admin"]))
    access = ClusterAccess(f"https://127.0.0.1:{real_server.port}", token, tls)
    async with open_drivers(access, WHOLE, limits=LIMITS) as opened:
        api = opened.objects.caller.api
        for path, body in ((DEFINITIONS, DEFINITION), (NAMESPACES, {"metadata": {"name": "iris"}})):
            assert (await api.request(ApiRequest("POST", path, body=body))).code in (201, 409)
        with anyio.fail_after(30):
            while True:
                with contextlib.suppress(ApiUnreachable):
                    if (await api.request(ApiRequest("GET", POOLS))).code == 200:
                        break
                await anyio.sleep(0.05)
        for path in (f"{PODS}/{POD.name}", f"{SECRETS}/{POD.name}", f"{POOLS}/{POOL.name}", f"{CLASSES}/iris-worker"):
            await opened.objects.delete(path)
        yield opened


async def test_every_field_is_known(drivers):
    """Validated strictly: a word that the server does not know, or would drop in silence, is refused."""
    api = drivers.objects.caller.api
    await drivers.objects.create(CLASSES, {"metadata": {"name": "iris-worker"}, "value": 1000})
    strict = (("fieldValidation", "Strict"), ("dryRun", "All"))
    for path, body in (
        (POOLS, nodepool_manifest(WHOLE, POOL)),
        (SECRETS, token_manifest(WHOLE, POD, "uid", "the-token")),
        (PODS, pod_manifest(WHOLE, POD, "uid")),
    ):
        answer = await api.request(ApiRequest("POST", path, strict, body))
        assert answer.code == 201, answer.body.get("message")


async def test_a_pod_and_its_secret(drivers):
    """Both are there, owned by the pool; a priority class that is not there is told as what it is."""
    caller = drivers.objects.caller
    pool = await drivers.node_pools.create(POOL)

    async def create():
        return await caller.carry_out(create_pod(caller.settings, POD, caller.rng, token="the-token"))

    with pytest.raises(InvalidSpec, check=that(comes_from="ownership.create", names="iris-worker")):
        await create()
    await drivers.objects.create(CLASSES, {"metadata": {"name": "iris-worker"}, "value": 1000})
    pod = await create()
    assert (await create()).uid == pod.uid
    for path in (PODS, SECRETS):
        found = await drivers.objects.get(f"{path}/{POD.name}")
        assert found["metadata"]["ownerReferences"][0]["uid"] == pool.uid
    await caller.carry_out(drop_token(caller.settings, POD.name, caller.rng))
    assert await drivers.objects.get(f"{SECRETS}/{POD.name}") is None
