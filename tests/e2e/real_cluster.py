"""A real API server with a simulated CoreWeave behind it, in which a whole installation can run.

Real: the API server with its validation, admission and RBAC; the controller, started by its Deployment's command line
with its ServiceAccount's token and no more rights than were rendered; the worker, started as its Pod says; the task.
Stand-ins: CoreWeave's pool controller, nodes, scheduler and kubelets are the simulated ones, acting on that server,
and what a controller manager does is done as far as it is needed; pods are processes of this machine; images are
command lines, mounted folders are folders elsewhere, and the Service's name is an address of loopback.
"""

import asyncio
import contextlib
import json
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from iriscw.rpc.tokens import Secret
from iriscw_sims.coreweave.crd import DEFINITION, DEFINITIONS, POOLS
from iriscw_sims.kube.messages import Request
from iriscw_sims.processes.containers import ProcessContainers
from iriscw_sims.processes.programs import Stage, loopback_of
from iriscw_sims.remote.accounts import Accounts
from iriscw_sims.remote.cluster import attached, namespace
from iriscw_sims.remote.store import RemoteStore

sys.path.insert(0, str(Path(__file__).parents[1] / "kube" / "real"))

from kube_server import NoBinariesError, find_binaries, running_server

SPEED = 10
"""Simulated time, by real time: nodes boot within a second or two."""

IRISCW = str(Path(sys.executable).with_name("iriscw"))
OURS = "iris-managed"


def pods_in(namespace_name):
    """Return the path of a namespace's pods."""
    return f"/api/v1/namespaces/{namespace_name}/pods"


PODS = pods_in("iris")
NODES = "/api/v1/nodes"
SECRETS = "/api/v1/namespaces/iris/secrets"
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
"""The seeds' cluster, small and quick."""


@contextlib.contextmanager
def api_server(tmp_path_factory):
    """Run a real API server; the test is skipped where there is none."""
    try:
        binaries = find_binaries()
    except NoBinariesError as error:
        pytest.skip(f"no real API server: {error}")
    with running_server(binaries, tmp_path_factory.mktemp("kube") / "server") as server:
        yield server


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
        """Return an object, None if there is none."""
        answer = self.ask("GET", path)
        assert answer.code in (200, 404), answer.body
        return answer.body if answer.code == 200 else None

    def list(self, path):
        """Return all objects of a kind that we manage, or made."""
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


@contextlib.asynccontextmanager
async def coreweave_cluster(real_server, tmp_path):
    """Yield an empty CoreWeave cluster: node pools are served, machines boot, pods are processes."""
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


@pytest.fixture(scope="module")
def real_server(tmp_path_factory):
    """A real API server; the test is skipped where there is none."""
    with api_server(tmp_path_factory) as server:
        yield server


@pytest.fixture
async def cluster(real_server, tmp_path):
    """An empty CoreWeave cluster: node pools are served, machines boot, pods are processes."""
    async with coreweave_cluster(real_server, tmp_path) as made:
        yield made


def phase(item):
    """Return a pod's phase."""
    return (item.get("status") or {}).get("phase")


def phase_runs(item):
    """Tell whether a pod runs."""
    return phase(item) == "Running"


def slice_of(item):
    """Return the slice that a node belongs to."""
    return item["metadata"]["labels"].get("iris-slice-id")


def workers(items):
    """Return the worker pods among pods."""
    return [item for item in items if item["metadata"]["labels"].get(OURS) == "true"]


def slices(items):
    """Return the pools of slices among pools."""
    return [item for item in items if item["metadata"]["labels"].get(OURS) == "true"]


async def controller_address(cluster, namespace_name="iris"):
    """Wait for the pod that the Deployment has; give its address, to which the Service's name leads from now on."""
    (pod,) = await cluster.until(pods_in(namespace_name), lambda items: any(phase_runs(item) for item in items))
    address = f"{loopback_of(pod['status']['podIP'])}:10000"
    cluster.names[f"iris-controller-svc.{namespace_name}.svc.cluster.local:10000"] = address
    return address
