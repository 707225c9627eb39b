"""The simulated CoreWeave behind a real API server: pools get nodes, pods are processes, and nothing is left."""

import asyncio
import sys

import pytest

from iriscw.rpc.tokens import Secret
from iriscw_sims.coreweave.crd import DEFINITION, DEFINITIONS, POOLS
from iriscw_sims.kube.messages import Request
from iriscw_sims.processes.containers import ProcessContainers
from iriscw_sims.remote.cluster import attached, namespace
from iriscw_sims.remote.store import RemoteStore

pytestmark = pytest.mark.slow

PODS = "/api/v1/namespaces/iris/pods"
SPEED = 10
MERGE = "application/merge-patch+json"


class Client:
    """What a test asks the server, and waits for."""

    def __init__(self, server, changed):
        self.changed = asyncio.Event()
        loop = asyncio.get_running_loop()
        token = Secret(server.tokens["admin"])
        wake = lambda: loop.call_soon_threadsafe(self.changed.set)  # noqa: E731 - one line
        self.store = RemoteStore(f"https://127.0.0.1:{server.port}", token, server.context, wake)

    def ask(self, method, path, body=None, content_type="application/json"):
        return self.store.handle(Request(method, path, body=body, content_type=content_type), 0)

    def done(self, method, path, body=None, content_type="application/json"):
        answer = self.ask(method, path, body, content_type)
        assert answer.code in (200, 201, 202), answer.body
        return answer.body

    async def until(self, path, holds):
        """Wait until the objects of a kind are so; give them."""
        watch = self.store.watch(Request("GET", path), 0)
        known = {}
        async with asyncio.timeout(60):
            while True:
                self.changed.clear()
                for event in watch.take(0):
                    item = event["object"]
                    known[item["metadata"]["name"]] = item
                    if event["type"] == "DELETED":
                        del known[item["metadata"]["name"]]
                found = [*known.values()]
                if holds(found):
                    watch.close()
                    return found
                await self.changed.wait()


@pytest.fixture
async def client(real_server):
    """A client of a server that serves node pools."""
    calling = Client(real_server, None)
    real_server.erase(["/"])
    calling.ask("POST", DEFINITIONS, DEFINITION)
    namespace(calling.store, "default")
    namespace(calling.store, "iris")
    async with asyncio.timeout(60):
        while calling.ask("GET", POOLS).code != 200:  # noqa: ASYNC110 - it says that it serves a kind before it does
            await asyncio.sleep(0.1)
    yield calling
    calling.store.close()


@pytest.fixture
async def cloud(real_server, client, tmp_path):
    """CoreWeave behind it."""
    url = f"https://127.0.0.1:{real_server.port}"
    async with ProcessContainers(tmp_path / "pods") as containers:
        containers.real_s = lambda span: span / SPEED / 1e9

        def read(path):
            answer = client.ask("GET", path)
            return answer.body if answer.code == 200 else None

        containers.read = read
        token = Secret(real_server.tokens["admin"])
        async with attached(url, token, real_server.context, containers, speed=SPEED) as running:
            yield running


def pool(name, nodes=1):
    """Give a pool to create."""
    return {
        "apiVersion": "compute.coreweave.com/v1alpha1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"instanceType": "cd-gp-i64-erapids", "targetNodes": nodes, "nodeLabels": {"iris-slice-id": name}},
    }


def pod(name, program, **metadata):
    """Give a pod that runs a line of Python."""
    container = {"name": "main", "image": "x", "command": [sys.executable, "-c", program]}
    spec = {"restartPolicy": "Never", "containers": [container], "automountServiceAccountToken": False}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}


def ready(items):
    """Tell whether there are nodes, and all are ready."""
    conditions = [{each["type"]: each["status"] for each in item["status"]["conditions"]} for item in items]
    return bool(items) and all(each.get("Ready") == "True" for each in conditions)


def exit_codes(items):
    """Give how each pod's container ended."""
    ends = {item["metadata"]["name"]: item["status"]["containerStatuses"][0]["state"] for item in items}
    return {name: end["terminated"]["exitCode"] for name, end in ends.items()}


def phases(items):
    """Give the pods' phases."""
    return {item["metadata"]["name"]: item["status"].get("phase") for item in items}


async def test_a_pool_becomes_nodes_on_which_pods_run(client, cloud):
    """Pool, boot, node, pod, process, exit code; and when the pool goes, all that was its own goes with it."""
    made = client.done("POST", POOLS, pool("a"))
    await client.until("/api/v1/nodes", ready)
    client.done("POST", PODS, pod("ok", "pass"))
    client.done("POST", PODS, pod("bad", "raise SystemExit(3)"))
    found = await client.until(PODS, lambda items: phases(items) == {"ok": "Succeeded", "bad": "Failed"})
    codes = {
        i["metadata"]["name"]: i["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] for i in found
    }
    assert codes == {"ok": 0, "bad": 3}
    owner = {"apiVersion": made["apiVersion"], "kind": "NodePool", "name": "a", "uid": made["metadata"]["uid"]}
    client.done("POST", PODS, pod("long", "import time; time.sleep(600)", ownerReferences=[owner]))
    await client.until(PODS, lambda items: phases(items).get("long") == "Running")
    client.done("DELETE", f"{POOLS}/a")
    await client.until(POOLS, lambda items: not items)
    await client.until("/api/v1/nodes", lambda items: not items)
    await client.until(PODS, lambda items: "long" not in phases(items))


async def test_a_server_that_dies_is_waited_for(client, cloud, real_server):
    """The API server is killed in mid-boot and comes back: the pool's node comes all the same."""
    client.done("POST", POOLS, pool("b"))
    await client.until(POOLS, lambda items: any((item.get("status") or {}).get("conditions") for item in items))
    await asyncio.to_thread(real_server.restart_apiserver)
    await client.until("/api/v1/nodes", ready)
    client.done("DELETE", f"{POOLS}/b")
    await client.until("/api/v1/nodes", lambda items: not items)
