"""The platform ``coreweave`` under the controller, against a served simulation of it."""

import base64
import json
import logging
from pathlib import Path

import anyio
import attrs
import pytest
from controller_world import CLIENTS, submission
from coreweave_world import PODS, POOLS, SECRETS, GpuWorker, Handed, configuration, serving

from iriscw.cloud.kube import mounts
from iriscw.cloud.kube.manifests import pod_manifest
from iriscw.cloud.lifecycle import PodHealth
from iriscw.cloud.model import Capacity, Forbidden, PodSpec, Unavailable
from iriscw.config.load import build_config
from iriscw.controller import mounted_secrets
from iriscw.controller.errors import NoSuchNamespace
from iriscw.controller.platforms import coreweave
from iriscw.controller.platforms.coreweave import IDENTITY_FILE, cluster_identity, kube_settings
from iriscw.deploy import names
from iriscw.files import StateUnusable
from iriscw.proto.iriscw import v1
from iriscw.rpc.client import RpcChannel
from raised import that
from waiting import until

NAMESPACE = "/api/v1/namespaces/iris"


# From the configuration


def test_settings(tmp_path: Path) -> None:
    """The file is what the driver is told: names of Secrets, images, groups, and where the controller is found."""
    config = configuration(
        tmp_path,
        slice_template={
            "preemptible": True,
            "coreweave": {"instance_type": "gd-8xh100ib-i128", "node_taints": {"dedicated": "iris:NoSchedule"}},
        },
    )
    found = kube_settings(config, "uid-1", tls=True, plaintext=True)
    assert (found.cluster, found.cluster_name, found.namespace) == ("uid-1", "research", "iris")
    assert found.image == "registry.test/worker:1"
    assert found.controller_address == "https://iris-controller-svc.iris.svc.cluster.local:10000"
    assert (found.authority_secret, found.plaintext, found.tokens) == ("iris-ca", False, True)
    assert (found.config_map, found.storage_secret) == ("iris-cluster-config", "iris-bundle-credentials")
    assert (found.image_pull_secrets, found.priority_class) == (("iris-image-pull",), "iris-worker")
    assert attrs.astuple(found.task_secrets["WANDB_API_KEY"]) == ("wandb", "api-key")
    group = found.groups["h100"]
    assert (group.infiniband, group.gpu_class, group.interruptable) == (True, "H100", True)
    assert attrs.astuple(group.taints[0]) == ("dedicated", "iris", "NoSchedule")
    assert group.most is not None
    assert group.most.cpu_milli < 128_000


def test_a_network_that_is_trusted(tmp_path: Path) -> None:
    """Without TLS workers are told that they may send their token all the same, and no authority is mounted."""
    found = kube_settings(configuration(tmp_path), "uid-1", tls=False, plaintext=True)
    assert found.controller_address == "iris-controller-svc.iris.svc.cluster.local:10000"
    assert (found.authority_secret, found.plaintext) == ("", True)


@pytest.mark.parametrize(
    ("prefix", "names"),
    [
        ("s3://b/p", ["AWS_SHARED_CREDENTIALS_FILE"]),
        ("gs://b/p", ["GOOGLE_APPLICATION_CREDENTIALS"]),
        ("", []),
        ("file:///x", []),
    ],
)
def test_credentials_of_stores_that_are_used(tmp_path: Path, prefix: str, names: list[str]) -> None:
    """A variable that names a file which is not there would break a library."""
    config = configuration(tmp_path)
    config = attrs.evolve(config, controller=attrs.evolve(config.controller, bundle_prefix=prefix))
    assert list(kube_settings(config, "u", tls=False, plaintext=False).environment) == names


def test_where_stores_are(tmp_path: Path) -> None:
    """Workers are told by the variables that every S3 client reads; the worker's own environment wins over them."""
    config = configuration(tmp_path)
    platform = attrs.evolve(
        config.platform.coreweave, object_storage_endpoint="http://cwlota.com", object_storage_region="eu-1"
    )
    config = attrs.evolve(config, platform=attrs.evolve(config.platform, coreweave=platform))
    said = {"AWS_ENDPOINT_URL_S3": "http://cwlota.com", "AWS_REGION": "eu-1", "AWS_DEFAULT_REGION": "eu-1"}
    assert kube_settings(config, "u", tls=False, plaintext=False).environment == said
    pod = pod_manifest(kube_settings(config, "u", tls=False, plaintext=False), PodSpec("w", "pool", {}, Capacity(1000)))
    (container,) = pod["spec"]["containers"]
    assert said.items() <= {each["name"]: each.get("value") for each in container["env"]}.items()
    bootstrap = attrs.evolve(config.defaults.bootstrap, env_vars={"AWS_ENDPOINT_URL": "http://mine"})
    config = attrs.evolve(config, defaults=attrs.evolve(config.defaults, bootstrap=bootstrap))
    found = kube_settings(config, "u", tls=False, plaintext=False).environment
    assert found == {"AWS_REGION": "eu-1", "AWS_DEFAULT_REGION": "eu-1", "AWS_ENDPOINT_URL": "http://mine"}


@pytest.mark.parametrize(
    ("registry", "image", "full"),
    [
        ("", "worker:1", "worker:1"),
        ("registry.test/iris/", "worker:1", "registry.test/iris/worker:1"),
        ("registry.test", "iris/worker:1", "registry.test/iris/worker:1"),
        ("registry.test", "ghcr.io/iris/worker:1", "ghcr.io/iris/worker:1"),
        ("registry.test", "localhost/worker", "localhost/worker"),
        ("registry.test", "host:5000/worker", "host:5000/worker"),
    ],
)
def test_images(registry: str, image: str, full: str) -> None:
    """The registry goes before names that have none, as Docker tells one from the other."""
    values = {
        "platform": {"coreweave": {"region": "LGA1", "container_registry": registry}},
        "defaults": {"bootstrap": {"docker_image": image}},
    }
    assert kube_settings(build_config(values), "u", tls=False, plaintext=False).image == full


# Identity


class Api:
    """Answers every question with one object, or error."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    async def get(self, path: str) -> object:
        assert path == NAMESPACE
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def namespace(uid: str) -> Api:
    return Api({"metadata": {"name": "iris", "uid": uid}})


async def test_the_identity_is_the_namespaces_uid(tmp_path: Path) -> None:
    """It is remembered, so that an API that is away keeps no controller from starting again."""
    with pytest.raises(Unavailable):
        await cluster_identity(Api(Unavailable("away")), "iris", tmp_path)
    assert await cluster_identity(namespace("u1"), "iris", tmp_path) == "u1"
    assert await cluster_identity(Api(Unavailable("away")), "iris", tmp_path) == "u1"
    assert (tmp_path / IDENTITY_FILE).stat().st_mode & 0o777 == 0o600


async def test_a_folder_of_another_installation(tmp_path: Path) -> None:
    """Its journal speaks of machines that this controller would never touch: named, instead of lost."""
    await cluster_identity(namespace("u1"), "iris", tmp_path)
    with pytest.raises(StateUnusable, check=that(comes_from="coreweave.cluster_identity")):
        await cluster_identity(namespace("u2"), "iris", tmp_path)


@pytest.mark.parametrize(("answer", "error"), [(None, NoSuchNamespace), (Forbidden("no"), Forbidden)])
async def test_no_identity(tmp_path: Path, answer: object, error: type[Exception]) -> None:
    """Nothing is guessed, and nothing is remembered."""
    with pytest.raises(error):
        await cluster_identity(Api(answer), "iris", tmp_path)
    assert not (tmp_path / IDENTITY_FILE).exists()


# All of it


async def test_a_job_from_nothing_to_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Demand makes a pool, its node a pod with a token of its own; the job runs; idle, all of it goes again."""
    caplog.set_level(logging.DEBUG, "iriscw")  # what hpack says of headers is its own
    async with serving(tmp_path) as cluster, cluster.controller() as controller:
        uid = (await cluster.objects.get(NAMESPACE))["metadata"]["uid"]
        channel = RpcChannel(controller.address, controller.admin_token)
        async with channel:
            request = submission("k1", resources=v1.Amount(cpu_milli=100, memory_bytes=1 << 20, gpu_count=8))
            job = await channel.unary(CLIENTS + "SubmitJob", request, v1.SubmitJobResponse)
            pool = await cluster.one(POOLS)
            assert pool["metadata"]["name"].startswith("iris-h100-")
            assert pool["metadata"]["labels"] == pool["spec"]["nodeLabels"]
            assert pool["metadata"]["labels"] == {
                "iris-managed": "true",
                "iris-cluster": uid,
                "iris-cluster-name": "research",
                "iris-scale-group": "h100",
                "iris-slice-id": pool["metadata"]["name"],
            }
            pod = await cluster.one(PODS)
            assert pod["spec"]["nodeSelector"] == {
                "iris-slice-id": pool["metadata"]["name"],
                "gpu.nvidia.com/class": "H100",
            }
            told = {each["name"]: each for each in pod["spec"]["containers"][0]["env"]}
            token = await cluster.token_of(pod["metadata"]["name"])
            assert token.reveal() not in json.dumps(pod)
            worker = GpuWorker(
                Handed(controller, token), told["IRIS_WORKER_ID"]["value"], told["IRIS_INCARNATION"]["value"]
            )
            async with worker:
                watch = v1.WatchJobRequest(job=v1.JobRef(job_id=job.job_id))
                with anyio.fail_after(30):
                    async with channel.server_stream(CLIENTS + "WatchJob", watch, v1.JobStatus) as replies:
                        statuses = [status async for status in replies]
                assert statuses[-1].state is v1.JobState.SUCCEEDED
                for path in (POOLS, PODS, SECRETS, "/api/v1/nodes"):
                    await cluster.until(path, lambda found: not found)
    told_of = [token.reveal(), base64.b64encode(token.reveal().encode()).decode()]
    kept = b"".join(path.read_bytes() for path in (tmp_path / "state" / "journal").rglob("*") if path.is_file())
    for secret in told_of:
        assert secret not in caplog.text
        assert secret.encode() not in kept


async def test_a_controller_that_starts_again_takes_its_pools_up(tmp_path: Path) -> None:
    """Pools of the namespace's uid are adopted; those of another installation with the same name are left alone."""
    async with serving(tmp_path) as cluster:
        config = configuration(cluster.kubeconfig, min_slices=1)
        async with cluster.controller(config):
            first = await cluster.one(POOLS)
        other = {
            "apiVersion": "compute.coreweave.com/v1alpha1",
            "kind": "NodePool",
            "metadata": {
                "name": "iris-h100-other",
                "labels": {**first["metadata"]["labels"], "iris-cluster": "another-uid", "iris-slice-id": "other"},
            },
            "spec": {"instanceType": "turin-gp", "targetNodes": 1},
        }
        await cluster.objects.create(POOLS, other)
        async with cluster.controller(config) as controller:
            await cluster.one(PODS)
            pools = await cluster.objects.list(POOLS, "iris-managed=true")
            assert {each["metadata"]["uid"] for each in pools} >= {first["metadata"]["uid"]}
            assert len(pools) == 2
            await until(lambda: controller.statistics().fleet is not None)


async def test_no_cluster_there(tmp_path: Path) -> None:
    """A controller says by name why it does not start."""
    async with serving(tmp_path) as cluster:
        config = configuration(cluster.kubeconfig)
        platform = attrs.evolve(config.platform.coreweave, namespace="nowhere")
        config = attrs.evolve(config, platform=attrs.evolve(config.platform, coreweave=platform))
        with pytest.raises(NoSuchNamespace, check=that(comes_from="leading.lead", names="nowhere")):
            async with cluster.controller(config):
                pass


def test_what_is_installed_is_what_is_looked_for() -> None:
    """The controller, the driver and the manifests agree on names, places and rights' subjects."""
    assert coreweave.CONFIG_MAP == names.CONFIG_MAP
    assert coreweave.AUTHORITY_SECRET == names.AUTHORITY_SECRET
    assert mounts.CA_FILE.endswith(f"/{names.AUTHORITY_KEY}")
    given_keys = (
        *(
            mounted_secrets.CLUSTER_SECRET,
            mounted_secrets.ADMIN_TOKEN,
            mounted_secrets.METRICS_TOKEN,
            mounted_secrets.CERTIFICATE,
            mounted_secrets.PRIVATE_KEY,
        ),
    )
    assert given_keys == names.CONTROLLER_SECRET_KEYS


def test_the_page_has_every_reason() -> None:
    """docs/coreweave.md says what to do about each thing that keeps a worker pod from running."""
    page = (Path(__file__).parents[2] / "docs" / "coreweave.md").read_text()
    table = page.partition("### When a slice does not get ready")[2].partition("\n## ")[0]
    said = [health.value for health in PodHealth if health not in (PodHealth.WELL, PodHealth.CRASHES)]
    assert [text for text in said if text not in table] == []
