"""The simulated CoreWeave behind a real API server: pools get nodes, pods are processes, and nothing is left."""

import asyncio
import json
import sys

import anyio
import pytest

from iriscw.rpc.tokens import Secret
from iriscw_sims.coreweave.crd import DEFINITION, DEFINITIONS, POOLS
from iriscw_sims.kube.messages import Request
from iriscw_sims.processes.containers import ProcessContainers
from iriscw_sims.remote.accounts import Accounts
from iriscw_sims.remote.cluster import attached, namespace
from iriscw_sims.remote.store import RemoteStore

pytestmark = pytest.mark.slow

PODS = "/api/v1/namespaces/iris/pods"
NODES = "/api/v1/nodes"
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
        tokens = RemoteStore(url, Secret(real_server.tokens["admin"]), real_server.context)
        accounts = Accounts(tokens, url, real_server.files.authority, tmp_path / "accounts")
        containers.environment = accounts.environment
        token = Secret(real_server.tokens["admin"])
        async with attached(url, token, real_server.context, containers, speed=SPEED) as running:
            yield running
        tokens.close()


def pool(name, nodes=1):
    """Give a pool to create."""
    return {
        "apiVersion": "compute.coreweave.com/v1alpha1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"instanceType": "cd-gp-i64-erapids", "targetNodes": nodes, "nodeLabels": {"iris-slice-id": name}},
    }


def pod(name, program, **metadata):
    """Return a pod that runs a line of Python."""
    container = {"name": "main", "image": "x", "command": [sys.executable, "-c", program]}
    spec = {"restartPolicy": "Never", "containers": [container], "automountServiceAccountToken": False}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}


def ready(items):
    """Tell whether there are nodes, and all are ready."""
    conditions = [{each["type"]: each["status"] for each in item["status"]["conditions"]} for item in items]
    return bool(items) and all(each.get("Ready") == "True" for each in conditions)


def exit_codes(items):
    """Return how each pod's container ended."""
    ends = {item["metadata"]["name"]: item["status"]["containerStatuses"][0]["state"] for item in items}
    return {name: end["terminated"]["exitCode"] for name, end in ends.items()}


def phases(items):
    """Return the pods' phases."""
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


@pytest.mark.parametrize("crash", ["crash_apiserver", "crash_etcd"])
async def test_a_server_that_dies_is_waited_for(client, cloud, real_server, hands, crash):
    """It is killed in mid-boot and comes back: the pool's node comes all the same."""
    client.done("POST", POOLS, pool("b"))
    await client.until(POOLS, lambda items: any((item.get("status") or {}).get("conditions") for item in items))
    await asyncio.wrap_future(hands.submit(getattr(real_server, crash)))
    await client.until(NODES, ready)
    client.done("DELETE", f"{POOLS}/b")
    await client.until(NODES, lambda items: not items)


async def test_a_node_that_dies_while_nothing_else_happens_is_replaced(client, cloud):
    """What is done to a cluster in which nobody waits for anything has its consequences, in time."""
    client.done("POST", POOLS, pool("c"))
    (node,) = await client.until(NODES, ready)
    async with asyncio.timeout(60):
        while cloud.timeline.waiting:  # noqa: ASYNC110 - until nothing is to come: nobody tells
            await asyncio.sleep(0.05)
    assert cloud.act(cloud.coreweave.kill_node, node["metadata"]["name"])
    (another,) = await client.until(
        NODES, lambda items: ready(items) and node["metadata"]["uid"] not in [i["metadata"]["uid"] for i in items]
    )
    assert another["metadata"]["labels"]["iris-slice-id"] == "c"


TELLING = "import os, time; print(os.environ['KUBECONFIG'], flush=True); time.sleep(600)"


def deployment(program):
    """Return a Deployment of a pod that runs a line of Python with its account's token."""
    labels = {"app": "d"}
    template = {"metadata": {"labels": labels}, "spec": pod("d", program)["spec"]}
    template["spec"] |= {
        "restartPolicy": "Always",
        "serviceAccountName": "someone",
        "automountServiceAccountToken": True,
        "terminationGracePeriodSeconds": 1,
    }
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "strategy": {"type": "Recreate"}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}


def running(items, *, but=()):
    """Return the pods that run, but those of some uids."""
    there = [item for item in items if item["metadata"]["uid"] not in but]
    return [item for item in there if (item.get("status") or {}).get("phase") == "Running"]


def words_of(folder, name):
    """Return what the lives of a pod have said, together."""
    return "".join(log.read_text() for log in (folder / "pods" / "pods").glob(f"{name}-*/log"))


async def said(folder, name, text):
    """Wait until a pod has said something; give all that it said."""
    async with asyncio.timeout(60):
        while text not in words_of(folder, name):  # noqa: ASYNC110 - a file rings no bell
            await asyncio.sleep(0.05)
    return words_of(folder, name)


async def test_a_deployments_pod_is_replaced(client, cloud, real_server, tmp_path):
    """When it was evicted, and when somebody deletes it; each finds a token of its account."""
    client.done("POST", POOLS, pool("d"))
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "someone"}}
    client.done("POST", "/api/v1/namespaces/iris/serviceaccounts", account)
    client.done("POST", "/apis/apps/v1/namespaces/iris/deployments", deployment(TELLING))
    first = running(await client.until(PODS, running))[0]["metadata"]
    assert first["name"] == "d-1"
    assert cloud.act(cloud.coreweave.evict, first["uid"])
    found = await client.until(PODS, lambda items: running(items, but=[first["uid"]]))
    second = running(found)[0]["metadata"]
    assert phases(found) == {"d-1": "Failed", "d-2": "Running"}
    config = json.loads(await anyio.Path((await said(tmp_path, "d-2", "\n")).strip()).read_text())
    token = Secret(config["users"][0]["user"]["token"])
    theirs = RemoteStore(config["clusters"][0]["cluster"]["server"], token, real_server.context)
    refusal = theirs.handle(Request("GET", PODS), 0)  # nobody has given it a right
    assert refusal.code == 403
    assert 'User "system:serviceaccount:iris:someone"' in refusal.body["message"]
    client.done("DELETE", f"{PODS}/d-2")
    third = running(await client.until(PODS, lambda items: running(items, but=[first["uid"], second["uid"]])))
    assert [item["metadata"]["name"] for item in third] == ["d-3"]
    theirs.close()
    client.done("DELETE", "/apis/apps/v1/namespaces/iris/deployments/d")
    await client.until(PODS, lambda items: not items)


KEPT = """
import os, pathlib, time
claim, scratch = pathlib.Path(os.environ["CLAIM"]) / "n", pathlib.Path(os.environ["SCRATCH"]) / "n"
for path in (claim, scratch):
    path.write_text((path.read_text() if path.exists() else "") + "x")
print(claim.read_text(), scratch.read_text(), flush=True)
time.sleep(600 if len(scratch.read_text()) == 2 else 0)
raise SystemExit(1)
"""


async def test_what_a_pod_wrote_is_there_when_its_container_starts_again(client, cloud, tmp_path):
    """In its own volume as long as it lives, in a claimed one for the next pod, too."""
    client.done("POST", POOLS, pool("e"))
    for name, words in (("one", "xx xx"), ("two", "xxxx xx")):
        item = pod(name, KEPT)
        item["spec"]["restartPolicy"] = "Always"
        mounts = [{"name": "claim", "mountPath": "/claim"}, {"name": "scratch", "mountPath": "/scratch"}]
        variables = [{"name": "CLAIM", "value": "/claim"}, {"name": "SCRATCH", "value": "/scratch"}]
        item["spec"]["containers"][0] |= {"volumeMounts": mounts, "env": variables}
        item["spec"]["volumes"] = [
            {"name": "claim", "persistentVolumeClaim": {"claimName": "journal"}},
            {"name": "scratch", "emptyDir": {}},
        ]
        client.done("POST", PODS, item)
        await said(tmp_path, name, words)
        client.done("DELETE", f"{PODS}/{name}")
