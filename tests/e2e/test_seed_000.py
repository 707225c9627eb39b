"""Seed 000, phases 0 to 5, on a real API server: from manifests to a task's result, and back to nothing.

Real: the API server with its validation, admission and RBAC; the controller, started by its Deployment's command line
with its ServiceAccount's token and no more rights than were rendered; the worker, started as its Pod says; the task.
Stand-ins: CoreWeave's pool controller, nodes, scheduler and kubelets are the simulated ones, acting on that server,
and what a controller manager does is done as far as it is needed; pods are processes of this machine; images are
command lines, mounted folders are folders elsewhere, and the Service's name is an address of loopback.
"""

import asyncio
import json
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import iriscw
from iriscw.rpc.tokens import Secret, read_token_file
from iriscw_sims.coreweave.crd import DEFINITION, DEFINITIONS, POOLS
from iriscw_sims.kube.messages import Request
from iriscw_sims.processes.containers import ProcessContainers
from iriscw_sims.processes.programs import Stage, loopback_of
from iriscw_sims.remote.accounts import Accounts
from iriscw_sims.remote.cluster import attached, namespace
from iriscw_sims.remote.store import RemoteStore

sys.path.insert(0, str(Path(__file__).parents[1] / "kube" / "real"))

from kube_server import NoBinariesError, find_binaries, running_server

pytestmark = pytest.mark.slow

SPEED = 10
"""Simulated time, by real time: nodes boot within a second or two."""

IRISCW = str(Path(sys.executable).with_name("iriscw"))
SERVICE = "iris-controller-svc.iris.svc.cluster.local:10000"
PODS = "/api/v1/namespaces/iris/pods"
NODES = "/api/v1/nodes"
SECRETS = "/api/v1/namespaces/iris/secrets"
OURS = "iris-managed"
CONFIG = """\
name: research
platform:
  coreweave: { region: LGA1, namespace: iris }
  timeouts: { api_timeout: 2s }          # a new controller waits twice that for what an old one may have sent
  autoscaler: { evaluation_interval: 1s, scale_up_delay: 1s, scale_down_delay: 3s, startup_grace_period: 60s }
controller:
  coreweave: { instance_type: cd-gp-i64-erapids, insecure_plaintext: true }
  image: iris-controller:1
defaults:
  bootstrap: { docker_image: iris-worker:1 }
scale_groups:
  cpu_test:
    resources: { cpu: 1, ram: 2GB }
    max_slices: 2
    slice_template: { coreweave: { instance_type: cd-gp-i64-erapids } }
"""


def hello():
    """What the seed's test submits: a value comes back, and who computed it."""
    return 42, os.environ["IRIS_WORKER_ID"]


class Cluster:
    """A real API server with a simulated CoreWeave behind it."""

    def __init__(self, server, folder):
        self.server, self.folder = server, folder
        self.url = f"https://127.0.0.1:{server.port}"
        self.admin = Secret(server.tokens["admin"])
        self.changed = asyncio.Event()
        loop = asyncio.get_running_loop()
        self.store = RemoteStore(self.url, self.admin, server.context)
        self.store.changed = lambda: loop.call_soon_threadsafe(self.changed.set)
        self.names = {}

    def ask(self, method, path, body=None):
        """Make a request as an administrator."""
        return self.store.handle(Request(method, path, body=body), 0)

    def get(self, path):
        """Give an object, None if there is none."""
        answer = self.ask("GET", path)
        assert answer.code in (200, 404), answer.body
        return answer.body if answer.code == 200 else None

    def list(self, path):
        """Give all objects of a kind that we manage, or made."""
        return list(self.ask("GET", path).body["items"])

    async def until(self, path, holds):
        """Wait until the objects of a kind are so; give them."""
        watch = self.store.watch(Request("GET", path), 0)
        known = {}
        try:
            async with asyncio.timeout(90):
                while True:
                    self.changed.clear()
                    for event in watch.take(0):
                        known[event["object"]["metadata"]["uid"]] = event["object"]
                        if event["type"] == "DELETED":
                            del known[event["object"]["metadata"]["uid"]]
                    if holds([*known.values()]):
                        return [*known.values()]
                    await self.changed.wait()
        finally:
            await asyncio.to_thread(watch.close)

    def kubeconfig(self):
        """Write an administrator's kubeconfig."""
        path = self.folder / "admin.kubeconfig"
        user = {"name": "u", "user": {"token": self.server.tokens["admin"]}}
        where = {"server": self.url, "certificate-authority": str(self.server.files.authority)}
        context = {"name": "c", "context": {"cluster": "k", "user": "u"}}
        text = {"current-context": "c", "contexts": [context], "clusters": [{"name": "k", "cluster": where}]}
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **text, "users": [user]}))
        path.chmod(0o600)
        return str(path)

    async def iriscw(self, *words):
        """Run a command as an administrator; give its exit code and what it said."""
        environment = {**os.environ, "KUBECONFIG": self.kubeconfig()}
        process = await asyncio.create_subprocess_exec(
            IRISCW, *words, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        said, _ = await process.communicate()
        return process.returncode, said.decode()


@pytest.fixture(scope="module")
def real_server(tmp_path_factory):
    """A real API server; the test is skipped where there is none."""
    try:
        binaries = find_binaries()
    except NoBinariesError as error:
        pytest.skip(f"no real API server: {error}")
    with running_server(binaries, tmp_path_factory.mktemp("kube") / "server") as server:
        yield server


@pytest.fixture
async def cluster(real_server, tmp_path):
    """An empty CoreWeave cluster: node pools are served, machines boot, pods are processes."""
    async with AsyncExitStack() as stack:
        made = Cluster(real_server, tmp_path)
        stack.callback(made.store.close)
        made.ask("POST", DEFINITIONS, DEFINITION)
        for name in ("default", "kube-system"):
            namespace(made.store, name)
        async with asyncio.timeout(60):
            while made.ask("GET", POOLS).code != 200:  # noqa: ASYNC110 - it says that it serves a kind before it does
                await asyncio.sleep(0.1)
        environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        containers = ProcessContainers(tmp_path / "pods", Stage(names=made.names, environment=environment))
        containers.read, containers.real_s = made.get, lambda span: span / SPEED / 1e9
        tokens = RemoteStore(made.url, made.admin, real_server.context)
        stack.callback(tokens.close)
        accounts = Accounts(tokens, made.url, real_server.files.authority, tmp_path / "accounts")
        containers.environment = accounts.environment
        await stack.enter_async_context(containers)
        there = attached(made.url, made.admin, real_server.context, containers, speed=SPEED)
        await stack.enter_async_context(there)
        yield made


def phase(item):
    """Give a pod's phase."""
    return (item.get("status") or {}).get("phase")


def phase_runs(item):
    """Tell whether a pod runs."""
    return phase(item) == "Running"


def slice_of(item):
    """Give the slice that a node belongs to."""
    return item["metadata"]["labels"].get("iris-slice-id")


def workers(items):
    """Give the worker pods among pods."""
    return [item for item in items if item["metadata"]["labels"].get(OURS) == "true"]


def slices(items):
    """Give the pools of slices among pools."""
    return [item for item in items if item["metadata"]["labels"].get(OURS) == "true"]


async def controller_address(cluster):
    """Wait for the pod that the Deployment has; give its address, to which the Service's name leads from now on."""
    (pod,) = await cluster.until(PODS, lambda items: any(phase_runs(item) for item in items))
    address = f"{loopback_of(pod['status']['podIP'])}:10000"
    cluster.names[SERVICE] = address
    return address


async def test_from_manifests_to_a_result_and_back_to_nothing(cluster, tmp_path):
    """The whole life of a cluster, as the seed tells it."""
    config = tmp_path / "cluster.yaml"
    config.write_text(CONFIG)

    # Phase 0: the cluster is prepared.
    code, said = await cluster.iriscw("manifests", str(config), "--secrets-to", str(tmp_path / "secrets"))
    assert code == 0, said
    apply = ("manifests", str(config), "--apply", "--secrets-from", str(tmp_path / "secrets"), "--wait", "0s")
    code, said = await cluster.iriscw(*apply)
    assert code == 0, said

    # Phase 1: the controller starts on its own node, and finds nothing to take up.
    address = await controller_address(cluster)
    token = read_token_file(tmp_path / "secrets" / "admin-token")
    async with iriscw.connect(address, token) as client:
        assert not slices(cluster.list(POOLS))

        # Phase 2: a job makes demand; demand makes one pool, which boots one node.
        job = await client.submit(hello, name="smoke")
        (pool,) = slices(await cluster.until(POOLS, lambda items: len(slices(items)) == 1))
        name = pool["metadata"]["name"]
        assert name.startswith("iris-cpu-test-")
        assert pool["spec"]["targetNodes"] == 1
        assert not pool["spec"]["autoscaling"]
        labels = {"iris-managed": "true", "iris-scale-group": "cpu_test", "iris-slice-id": name}
        uid = cluster.get("/api/v1/namespaces/iris")["metadata"]["uid"]
        for found in (pool["metadata"]["labels"], pool["spec"]["nodeLabels"]):
            assert {**labels, "iris-cluster": uid}.items() <= found.items()

        # Phase 3: the node is ready; the pod runs a worker, which registers.
        nodes = await cluster.until(
            NODES, lambda items: any(i["metadata"]["labels"].get("iris-slice-id") for i in items)
        )
        assert [item["metadata"]["labels"].get("iris-slice-id") for item in nodes].count(name) == 1
        (pod,) = workers(await cluster.until(PODS, lambda items: any(map(phase_runs, workers(items)))))
        assert pod["spec"]["nodeSelector"]["iris-slice-id"] == name
        assert pod["spec"]["containers"][0]["image"] == "iris-worker:1"

        # Phase 4: the task runs in a process of its own, on that worker; its result comes back.
        async with asyncio.timeout(60):
            ((value, worker),) = await job.result()
        assert value == 42
        assert worker == pod["metadata"]["labels"]["iris-worker-id"]

        # Phase 5: idle, the very slice goes: pod, token, pool and node; the controller's own node stays.
        await cluster.until(POOLS, lambda items: not slices(items))
        left = await cluster.until(NODES, lambda items: len(items) == 1)
        assert left[0]["metadata"]["labels"]["iris-role"] == "controller"
        await cluster.until(PODS, lambda items: not workers(items))
        await cluster.until(SECRETS, lambda items: not [i for i in items if i["metadata"]["name"].startswith(name)])

    # And the whole of it.
    code, said = await cluster.iriscw("down", str(config), "--delete-pools", "--yes")
    assert code == 0, said
    await cluster.until(POOLS, lambda items: not items)
    await cluster.until(NODES, lambda items: not items)
