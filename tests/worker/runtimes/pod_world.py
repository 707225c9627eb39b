"""A worker whose tasks have pods, on a served simulation whose pods are processes of this machine."""

import sys
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import attrs

from iriscw.cloud.drivers.kube.access import find_access
from iriscw.cloud.drivers.kube.objects import open_objects
from iriscw.cloud.drivers.kube.task_pods import open_task_pods
from iriscw.cloud.kube.tasks import TaskOwner, TaskPods
from iriscw.cloud.model import Capacity
from iriscw.processes.lease import NEVER_NS, LeaseFile
from iriscw.worker.runtimes.pod import open_pod_runtime
from iriscw_sims.processes.cluster import serve_with_processes
from iriscw_sims.processes.programs import Stage
from iriscw_sims.serve.settings import PoolToBegin, ServeSettings, Timing

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
ON_THE_NODE = "/mnt/local/iris"
PATIENCE_S = 60
SLEEPER = [sys.executable, "-I", "-S", "-c", "import signal; signal.pause()"]


class PodWorld:
    """A node with one worker's pod, and what that worker would have at hand."""

    def __init__(self, server, kubeconfig, objects, node, folder, owner):
        self.server, self.objects, self.node, self.owner = server, objects, node, owner
        self.lives = 0
        self.kubeconfig = kubeconfig
        self.cache = folder / "pods" / "nodes" / node / ON_THE_NODE.strip("/")
        self.pods = TaskPods(
            cluster="ours", namespace="default", image="iris-task", cache_dir=str(self.cache),
            node_cache_dir=ON_THE_NODE, promise=Capacity(64_000, 256 << 30),
        )  # fmt: skip

    @property
    def life(self):
        """The folder of the worker's present life."""
        return self.cache / self.owner.worker_id / self.owner.incarnation

    def next_life(self):
        """Begin a life of the worker that has nothing yet."""
        self.lives += 1
        self.owner = attrs.evolve(self.owner, incarnation=f"i-{self.lives}")
        return self

    @asynccontextmanager
    async def runtime(self, patience=None, wrapped=lambda driver: driver):
        """Yield the runtime, as a process of the worker has it; the next one is that of its next process."""
        (self.life / "tasks").mkdir(mode=0o700, parents=True, exist_ok=True)
        lease = LeaseFile(self.life / "tasks" / "lease")
        if lease.over and not lease.until_ns:
            lease.hold(NEVER_NS)
        async with AsyncExitStack() as stack:
            stack.callback(lease.close)
            access = await find_access(self.kubeconfig)
            tasks = wrapped(await stack.enter_async_context(open_task_pods(self.pods, self.owner, access)))
            opened = open_pod_runtime(
                tasks, lease, root=self.life / "attempts", cache_dir=self.cache, patience=patience
            )
            yield await stack.enter_async_context(opened)

    async def until(self, holds):
        """Wait until the pods of tasks, by name, are so; give them."""
        with anyio.fail_after(PATIENCE_S):
            while True:
                found = await self.objects.list(PODS, "iris-managed=task")
                pods = {str(each["metadata"]["name"]): each for each in found}
                if holds(pods):
                    return pods
                await anyio.sleep(0.05)  # a list tells of nobody's change: only looking again does


@asynccontextmanager
async def pod_world(folder: Path):
    """Serve a cluster with one node, on which a worker's pod runs."""
    kubeconfig = folder / "kubeconfig"
    settings = ServeSettings(
        kubeconfig=kubeconfig, timing=Timing.QUICK, speed=20, pools=(PoolToBegin("cpu", "cd-gp-i64", 1),)
    )
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "FROM_THE_IMAGE": "yes"}
    async with serve_with_processes(settings, folder / "pods", Stage(environment=environment)) as server:
        access = await find_access(kubeconfig)
        async with open_objects(access) as objects:
            (name,) = await _ready_nodes(objects)
            worker = {
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "worker", "namespace": "default"},
                "spec": {
                    "nodeName": name, "restartPolicy": "Never",
                    "tolerations": [{"operator": "Exists"}],
                    "containers": [{"name": "worker", "image": "x", "command": SLEEPER}],
                },
            }  # fmt: skip
            made = await objects.create(PODS, worker)
            owner = TaskOwner("worker", str(made["metadata"]["uid"]), name, "w-0", "i-0")
            yield PodWorld(server, kubeconfig, objects, name, folder, owner)


async def _ready_nodes(objects):
    with anyio.fail_after(PATIENCE_S):
        while True:
            nodes = [each for each in await objects.list(NODES) if _is_ready(each)]
            if nodes:
                return [str(each["metadata"]["name"]) for each in nodes]
            await anyio.sleep(0.05)  # as above


def _is_ready(node):
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
