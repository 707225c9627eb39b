"""An installation on a real kube-apiserver: every object is accepted, and the rights are as narrow as they are written.

No controllers run there, so nothing starts: statuses are written by the tests. Skipped where no server was built
(``tests/kube/real/build-apiserver``).
"""

import base64
import contextlib
import json
import subprocess
import time
from contextlib import aclosing
from pathlib import Path

import anyio
import attrs
import pytest
from deploy_world import EVERYTHING, HURRY, SEEDS, STORED, installed, installed_from, simulated, with_agent

from iriscw.cloud.drivers.kube.access import ClusterAccess, find_access, trusting
from iriscw.cloud.drivers.kube.api import open_api
from iriscw.cloud.drivers.kube.credentials import Fixed, Header
from iriscw.cloud.drivers.kube.drivers import open_drivers
from iriscw.cloud.drivers.kube.kinds import path_of
from iriscw.cloud.drivers.kube.noticing import Noticing
from iriscw.cloud.drivers.kube.objects import open_objects
from iriscw.cloud.kube.messages import JSON, MERGE_PATCH, ApiRequest, ApiUnreachable
from iriscw.cloud.kube.notices import Notice
from iriscw.cloud.kube.reviews import AGENT_AUDIENCE
from iriscw.cloud.kube.settings import KubeSettings
from iriscw.cloud.model import (
    LABEL_CLUSTER,
    LABEL_GROUP,
    LABEL_INCARNATION,
    LABEL_MANAGED,
    LABEL_SLICE,
    Capacity,
    NodePoolSpec,
    PodSpec,
    Removed,
)
from iriscw.controller.platforms.coreweave import open_coreweave
from iriscw.controller.tokens import ControllerTokens
from iriscw.deploy.applying import apply, compare, meant
from iriscw.deploy.cluster import CONTROLLER_PRIORITY, WORKER_PRIORITY
from iriscw.deploy.errors import NotApplied
from iriscw.deploy.removing import Removal, remove
from iriscw.deploy.rendering import render
from iriscw.deploy.secrets import SENT, secret_manifests
from iriscw.deploy.writing import stream
from iriscw.fleet.messages import SliceChanged
from iriscw.fleet.model import SliceRow, SliceState, Trouble
from iriscw.rpc.tokens import mint_token
from iriscw_sims.coreweave.crd import DEFINITION, DEFINITIONS, POOLS
from raised import that

pytestmark = pytest.mark.slow

MONITORS = "/apis/monitoring.coreos.com/v1/servicemonitors"
MONITOR_DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "servicemonitors.monitoring.coreos.com"},
    "spec": {
        "group": "monitoring.coreos.com",
        "scope": "Namespaced",
        "names": {"kind": "ServiceMonitor", "plural": "servicemonitors", "listKind": "ServiceMonitorList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                    }
                },
            }
        ],
    },
}


def access_of(server, token=""):
    """Return the way to the server; with a token, somebody else's than the administrator's."""
    tls = trusting(server.files.authority.read_bytes())
    return ClusterAccess(
        f"https://127.0.0.1:{server.port}", Fixed(Header.of("Bearer", token or server.tokens["admin"])), tls
    )


async def served(api, path):
    """Wait until a custom resource is served."""
    with anyio.fail_after(30):
        while True:
            with contextlib.suppress(ApiUnreachable):
                if (await api.request(ApiRequest("GET", path))).code == 200:
                    return
            await anyio.sleep(0.02)


@pytest.fixture
async def api(real_server):
    """The server as an administrator has it, with node pools and service monitors defined."""
    async with open_api(access_of(real_server)) as opened:
        for body in (DEFINITION, MONITOR_DEFINITION):
            assert (await opened.request(ApiRequest("POST", DEFINITIONS, body=body))).code in (201, 409)
        await served(opened, POOLS)
        await served(opened, MONITORS)
        yield opened


@pytest.fixture
async def objects(real_server, api):
    """Objects, as an administrator writes them."""
    async with open_objects(access_of(real_server)) as opened:
        yield opened


async def ensure(api, namespace):
    """Have a namespace: a dry run makes none for the objects in it."""
    body = {"metadata": {"name": namespace}}
    assert (await api.request(ApiRequest("POST", "/api/v1/namespaces", body=body))).code in (201, 409)


INSTALLATIONS = {
    **{path.stem: installed_from(path) for path in SEEDS},
    "everything": installed(EVERYTHING, bundle_prefix="s3://bucket/bundles"),
    "plaintext": installed({"insecure_plaintext": True, "network_policy": False}, {"image_pull_secret": ""}),
}


@pytest.mark.parametrize("name", INSTALLATIONS)
async def test_every_object_is_accepted(api, objects, name):
    """By a dry run on the server, with strict validation of fields: none is misspelt, and none complained of."""
    installation = INSTALLATIONS[name]
    await ensure(api, installation.namespace)
    for manifest in render(installation):
        made = await objects.apply(path_of(manifest.body), manifest.body, dry_run=True)
        assert made["kind"] == manifest.body["kind"]
        assert made["metadata"]["name"] == manifest.body["metadata"]["name"]


async def test_the_served_simulation_makes_the_same_of_it(api, objects, tmp_path):
    """Of each object, with its defaults; and applied again it changes nothing, here as there: agents included."""
    installation = with_agent(EVERYTHING, {"namespace": "iris-both"}, **STORED)
    rendered = render(installation)
    kubeconfig = tmp_path / "kubeconfig"
    async with simulated(kubeconfig), open_objects(await find_access(kubeconfig), settings=HURRY) as served:
        made = {}
        for side in (objects, served):
            for _ in range(3):  # the real server writes a claim a second time, with nothing in it changed
                told = []
                await apply(side, rendered, told.append)
            assert told == [f"{each.name} unchanged" for each in rendered]
            made[side] = {each.name: meant(await side.get(path_of(each.body))) for each in rendered}
    for each in rendered:
        if each.name.startswith("RuntimeClass/"):  # of the whole cluster: others make it, too
            await api.request(ApiRequest("DELETE", path_of(each.body)))
    for name, there in made[objects].items():
        assert _without_addresses(made[served][name]) == _without_addresses(there), name


def _without_addresses(thing):
    spec = {name: value for name, value in (thing.get("spec") or {}).items() if name not in ("clusterIP", "clusterIPs")}
    return {**thing, "spec": spec}


INSTALLATION = installed(EVERYTHING, {"namespace": "iris-rights"})
ACCOUNT = "/api/v1/namespaces/iris-rights/serviceaccounts"
SETTINGS = KubeSettings(cluster="research", namespace="iris-rights", image="registry.test/worker:1")
OURS = {LABEL_MANAGED: "true", LABEL_CLUSTER: "research", LABEL_SLICE: "slice-1", LABEL_INCARNATION: "1"}


@pytest.fixture
async def applied(objects):
    """The installation, made as an administrator makes it."""
    await apply(objects, render(INSTALLATION), lambda _line: None)


async def account(api, server, name):
    """Return the way of a service account, with a token as the kubelet would ask for it."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    made = await api.request(ApiRequest("POST", f"{ACCOUNT}/{name}/token", body=body))
    assert made.code == 201, made
    return access_of(server, made.body["status"]["token"])


@pytest.fixture
async def controller(api, applied, real_server):
    """The API, as the controller has it; its rights are known to the server when this returns."""
    async with open_api(await account(api, real_server, "iris-controller")) as opened:
        await allowed(opened, ApiRequest("GET", POOLS))
        await allowed(opened, ApiRequest("GET", PODS))
        yield opened


async def allowed(api, request):
    """Wait until a request is allowed: the authorizer hears of new roles a little later."""
    with anyio.fail_after(20):
        while (await api.request(request)).code == 403:  # noqa: ASYNC110
            await anyio.sleep(0.02)


PODS = "/api/v1/namespaces/iris-rights/pods"
SECRETS = "/api/v1/namespaces/iris-rights/secrets"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/iris-rights/leases"


async def test_the_drivers_live_on_the_rendered_rights(api, controller, real_server):
    """A slice's whole life: pool, pod, watches, deletion."""
    pool_spec = NodePoolSpec("slice-1", "turin-gp", 1, OURS)
    pod_spec = PodSpec("slice-1-0", "slice-1", OURS, Capacity(1000, 2**30))
    async with open_drivers(await account(api, real_server, "iris-controller"), SETTINGS) as drivers:
        pool = await drivers.node_pools.create(pool_spec)
        pod = await drivers.pods.create(pod_spec)
        assert [each.uid for each in await drivers.node_pools.list({})] == [pool.uid]
        assert [each.uid for each in await drivers.pods.list({})] == [pod.uid]
        for watch in (drivers.node_pools.watch({}), drivers.pods.watch({})):
            async with aclosing(watch) as events:
                with anyio.fail_after(20):
                    assert (await anext(events)).objects
        await drivers.pods.delete(pod.name, pod.uid)
        await drivers.node_pools.delete(pool.name, pool.uid)
    await api.request(ApiRequest("DELETE", f"{PODS}/slice-1-0", body={"gracePeriodSeconds": 0}))


async def test_the_controllers_platform_lives_on_the_rendered_rights(api, applied, real_server, tmp_path):
    """As the controller opens it: whose it is, a slice with a worker that has a token, and the token's end."""
    access = await account(api, real_server, "iris-controller")
    header = await access.credentials.header()
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(kubeconfig_of(real_server, header.secret.reveal())))
    platform = attrs.evolve(INSTALLATION.platform, kubeconfig_path=str(kubeconfig))
    config = attrs.evolve(INSTALLATION.config, platform=attrs.evolve(INSTALLATION.config.platform, coreweave=platform))
    tokens = ControllerTokens(mint_token(), [])
    name, labels = "slice-2", {LABEL_SLICE: "slice-2", LABEL_INCARNATION: "1", LABEL_GROUP: "cpu"}
    environment = {"IRIS_WORKER_ID": "w", "IRIS_INCARNATION": "1"}
    async with open_coreweave(config, tokens, tmp_path, tls=True, plaintext=False) as drivers:
        namespace = await api.request(ApiRequest("GET", "/api/v1/namespaces/iris-rights"))
        assert drivers.cluster == namespace.body["metadata"]["uid"]
        pool = await drivers.node_pools.create(NodePoolSpec(name, "turin-gp", 1, labels))
        spec = PodSpec(f"{name}-0", name, labels, Capacity(1000, 2**30), environment=environment)
        pod = await drivers.pods.create(spec)
        assert (await api.request(ApiRequest("GET", f"{SECRETS}/{pod.name}"))).code == 200
        made = (await api.request(ApiRequest("GET", f"{PODS}/{pod.name}"))).body
        assert made["spec"]["priority"] == WORKER_PRIORITY
        async with aclosing(drivers.pods.watch({})) as events:
            await anext(events)
            await api.request(ApiRequest("DELETE", f"{PODS}/{pod.name}", body={"gracePeriodSeconds": 0}))
            with anyio.fail_after(20):
                while not isinstance(await anext(events), Removed):
                    pass
        with anyio.fail_after(20):
            while (await api.request(ApiRequest("GET", f"{SECRETS}/{pod.name}"))).code != 404:  # noqa: ASYNC110
                await anyio.sleep(0.02)
        row = SliceRow(name, "cpu", SliceState.INITIALIZING, Trouble.WORKERS, "its image", 0, 0)
        drivers.notices.notice(SliceChanged(row, pool.uid, SliceState.INITIALIZING, Trouble.NONE, time.time_ns()))
        await told(api, name, "its image", 1)
        another = Noticing(drivers.drivers.objects.caller)  # that of a controller which started anew: it counts on
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(another.run)
            another.tell(Notice(name, pool.uid, "WorkersFailing", "its volumes", warning=True, at=time.time_ns()))
            await told(api, name, "its volumes", 2)
            tasks.cancel_scope.cancel()
        await drivers.node_pools.delete(pool.name, pool.uid)


async def told(api, pool, text, count):
    """Wait until an Event about a pool says something for the so-many-th time; there is one."""
    selected = (("fieldSelector", f"involvedObject.kind=NodePool,involvedObject.name={pool}"),)
    with anyio.fail_after(60):
        while True:
            events = (await api.request(ApiRequest("GET", "/api/v1/namespaces/default/events", selected))).body["items"]
            if [(each["message"], each["count"]) for each in events] == [(text, count)]:
                return
            await anyio.sleep(0.02)


async def test_the_controllers_own_requests_are_allowed(controller):
    """A worker's token, the lease, the namespace's uid; with `Connection`, a command and the last words of a pod."""
    secret = {"metadata": {"name": "slice-1-0"}, "stringData": {"token": "t"}}
    assert (await controller.request(ApiRequest("POST", SECRETS, body=secret))).code == 201
    assert (await controller.request(ApiRequest("DELETE", f"{SECRETS}/slice-1-0"))).code == 200
    lease = {"metadata": {"name": "iris-controller"}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}}
    made = await controller.request(ApiRequest("POST", LEASES, body=lease))
    assert made.code in (201, 409)
    held = await controller.request(ApiRequest("GET", f"{LEASES}/iris-controller"))
    assert held.code == 200
    assert (await controller.request(ApiRequest("PUT", f"{LEASES}/iris-controller", body=held.body))).code == 200
    namespace = await controller.request(ApiRequest("GET", "/api/v1/namespaces/iris-rights"))
    assert namespace.body["metadata"]["uid"]
    for subresource in ("exec", "log"):  # there is no such pod, which is told to those only who may know
        answer = await controller.request(ApiRequest("GET", f"{PODS}/none/{subresource}"))
        assert answer.code == 404, answer


ROLES = "/apis/rbac.authorization.k8s.io/v1"
REFUSED = (
    ("GET", SECRETS),
    ("GET", f"{SECRETS}/iris-controller-secrets"),
    ("GET", f"{SECRETS}?watch=1"),
    ("GET", "/api/v1/secrets"),
    ("GET", "/api/v1/pods"),
    ("GET", "/api/v1/namespaces"),
    ("GET", "/api/v1/namespaces/kube-system"),
    ("GET", "/api/v1/namespaces/kube-system/pods"),
    ("GET", "/api/v1/namespaces/kube-system/configmaps"),
    ("POST", "/api/v1/namespaces/kube-system/secrets"),
    ("POST", "/api/v1/namespaces/kube-system/pods"),
    ("GET", "/api/v1/nodes/n1"),
    ("DELETE", "/api/v1/nodes/n1"),
    ("PATCH", "/api/v1/nodes/n1"),
    ("DELETE", "/api/v1/nodes"),
    ("DELETE", POOLS),
    ("PATCH", f"{POOLS}/slice-1"),
    ("PUT", f"{POOLS}/slice-1/status"),
    ("DELETE", PODS),
    ("PATCH", f"{PODS}/slice-1-0"),
    ("POST", f"{PODS}/slice-1-0/eviction"),
    ("GET", f"{PODS}/slice-1-0/portforward"),
    ("GET", f"{PODS}/slice-1-0/attach"),
    ("GET", "/api/v1/namespaces/iris-rights/events"),
    ("GET", "/api/v1/namespaces/default/events"),
    ("DELETE", "/api/v1/namespaces/default/events/x"),
    ("POST", "/api/v1/namespaces/iris-rights/events"),
    ("GET", "/api/v1/namespaces/default/pods"),
    ("DELETE", SECRETS),
    ("PUT", f"{LEASES}/another"),
    ("DELETE", f"{LEASES}/iris-controller"),
    ("PATCH", "/api/v1/namespaces/iris-rights/configmaps/iris-cluster-config"),
    ("DELETE", "/apis/apps/v1/namespaces/iris-rights/deployments/iris-controller"),
    ("POST", f"{ROLES}/clusterroles"),
    ("POST", f"{ROLES}/namespaces/iris-rights/rolebindings"),
    ("PATCH", f"{ROLES}/namespaces/iris-rights/roles/iris-controller"),
    ("POST", f"{ACCOUNT}/iris-controller/token"),
    ("DELETE", "/api/v1/namespaces/iris-rights"),
)


@pytest.mark.parametrize(("method", "path"), REFUSED)
async def test_everything_else_is_refused(controller, method, path):
    """What the controller never does, it could not do either: nodes, Secrets, other namespaces, rights."""
    path, _, query = path.partition("?")
    body = {"metadata": {"name": "x"}} if method in ("POST", "PUT", "PATCH") else None
    content_type = MERGE_PATCH if method == "PATCH" else JSON
    asked = tuple(tuple(each.split("=")) for each in query.split("&") if each)
    answer = await controller.request(ApiRequest(method, path, asked, body, content_type))
    assert answer.code == 403, answer


async def test_workers_may_do_nothing(api, applied, real_server):
    """Not even look at their own pod."""
    async with open_api(await account(api, real_server, "iris-worker")) as worker:
        for path in (PODS, f"{PODS}/slice-1-0", SECRETS, POOLS, "/api/v1/nodes", LEASES):
            assert (await worker.request(ApiRequest("GET", path))).code == 403


async def test_applying_and_comparing(objects, applied):
    """On a real server, too, applying again changes nothing, and a comparison sees what would change."""
    told = []
    await apply(objects, render(INSTALLATION), told.append)
    assert told == [f"{each.name} unchanged" for each in render(INSTALLATION)]
    assert await compare(objects, render(INSTALLATION)) == ()
    other = installed({**EVERYTHING, "cpu": 8}, {"namespace": "iris-rights"})
    names = [each.name for each in await compare(objects, render(other))]
    assert names == ["ConfigMap/iris-cluster-config", "Deployment/iris-controller"]


async def test_a_volume_keeps_its_class(objects, applied):
    """It is told not to delete it: every job is on it."""
    other = installed({**EVERYTHING, "storage_class": "another"}, {"namespace": "iris-rights"})
    with pytest.raises(NotApplied, check=that(comes_from="objects._refuse")):
        await apply(objects, render(other), lambda _line: None)


async def test_the_deployments_pod_is_admitted(api, applied):
    """By every plugin of the server: its level of security, its priority, its account's limits."""
    (manifest,) = [each for each in render(INSTALLATION) if each.body["kind"] == "Deployment"]
    template = manifest.body["spec"]["template"]
    body = {**template, "metadata": {**template["metadata"], "name": "iris-controller-1"}}
    made = await api.request(ApiRequest("POST", PODS, (("dryRun", "All"), ("fieldValidation", "Strict")), body))
    assert made.code == 201, made
    assert made.body["spec"]["priority"] == CONTROLLER_PRIORITY
    assert made.body["spec"]["serviceAccountName"] == "iris-controller"


async def test_node_agents_are_admitted(api, objects, applied):
    """All that is made for them is taken as it is written, and a pod of theirs passes every plugin of the server."""
    installation = with_agent(EVERYTHING, {"namespace": "iris-rights"}, **STORED)
    told = []
    try:
        await apply(objects, render(installation), told.append)
        made = [line for line in told if line.endswith(" created")]
        assert [line.partition(" ")[0] for line in made] == [
            "ServiceAccount/iris-agent",
            "ClusterRole/iris-rights-controller-token-reviews",
            "ClusterRoleBinding/iris-rights-controller-token-reviews",
            "RuntimeClass/kybernate",
            "NetworkPolicy/iris-agent",
            "DaemonSet/iris-agent",
        ]
        assert await compare(objects, render(installation)) == ()
        (manifest,) = [each for each in render(installation) if each.body["kind"] == "DaemonSet"]
        template = manifest.body["spec"]["template"]
        body = {**template, "metadata": {**template["metadata"], "name": "iris-agent-1"}}
        answer = await api.request(ApiRequest("POST", PODS, (("dryRun", "All"), ("fieldValidation", "Strict")), body))
        assert answer.code == 201, answer
        assert "volumes" in answer.body["spec"]
        volumes = [each["projected"] for each in answer.body["spec"]["volumes"] if "projected" in each]
        token, keys = [source for each in volumes for source in each["sources"]]
        assert token["serviceAccountToken"]["audience"] == AGENT_AUDIENCE, "and none for the API server is mounted"
        assert keys["secret"]["name"] == "keys"
    finally:
        await apply(objects, render(INSTALLATION), lambda _line: None)
        for each in reversed(render(installation)):
            if each.name in (line.partition(" ")[0] for line in told if line.endswith(" created")):
                await api.request(ApiRequest("DELETE", path_of(each.body)))


async def test_a_whole_installation_goes(objects, api):
    """All of it is deleted, Secrets that were sent included; what others put there would stay."""
    installation = installed(EVERYTHING, {"namespace": "iris-gone"})
    files = {name: name.encode() for name in SENT}
    rendered = (*render(installation), *secret_manifests(installation, files))
    told = []
    await apply(objects, rendered, told.append)
    assert len(told) == len(rendered)
    secret = await objects.get("/api/v1/namespaces/iris-gone/secrets/iris-controller-secrets")
    assert base64.b64decode(secret["data"]["admin-token"]) == b"admin-token"
    removal = Removal(pools=True, state=True)
    await remove(objects, installation, render(installation), removal, told.append, timeout_s=10)
    for manifest in render(installation):
        found = await objects.get(path_of(manifest.body))
        assert found is None or found["metadata"].get("deletionTimestamp"), manifest.name


@pytest.fixture(scope="session")
def kubectl():
    """The path of a current kubectl; the test is skipped where there is none."""
    finder = Path(__file__).parents[1] / "kube" / "real" / "build-kubectl"
    found = subprocess.run([finder, "--only-find"], capture_output=True, text=True, check=False, timeout=60)
    if found.returncode:
        pytest.skip(f"no kubectl: {found.stderr.strip()}")
    return found.stdout.strip()


async def test_kubectl_applies_the_stream(api, objects, real_server, kubectl, tmp_path):
    """As it is written, to a cluster that has none of it; afterwards nothing is left to apply."""
    installation = installed(EVERYTHING, {"namespace": "iris-kubectl"})
    text = stream(installation, render(installation))
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(kubeconfig_of(real_server)))
    command = [kubectl, "--kubeconfig", str(kubeconfig), "--cache-dir", str(tmp_path), "apply", "-f", "-"]
    done = await anyio.run_process(command, input=text.encode(), check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(b" created\n") == len(render(installation))
    told = []
    await apply(objects, render(installation), told.append, force=True)
    different = await compare(objects, render(installation))
    assert different == ()


def kubeconfig_of(server, token=""):
    """Return a kubeconfig of the administrator; with a token, of somebody else."""
    cluster = {"server": f"https://127.0.0.1:{server.port}", "certificate-authority": str(server.files.authority)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": token or server.tokens["admin"]}}],
    }
