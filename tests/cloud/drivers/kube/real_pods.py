"""Pods of a real API server whose containers are processes of this machine: their objects are written by hand."""

from contextlib import asynccontextmanager

import anyio
import attrs
from drivers_world import LIMITS
from kube_kubelet import Kubelet

from iriscw.cloud.drivers.kube.access import ClusterAccess, trusting
from iriscw.cloud.drivers.kube.api import KubernetesApi, open_api
from iriscw.cloud.drivers.kube.credentials import Fixed, Header
from iriscw.cloud.kube.messages import MERGE_PATCH, ApiRequest

NAMESPACES, NODES = "/api/v1/namespaces", "/api/v1/nodes"
PODS = "/api/v1/namespaces/iris/pods"
CONTAINER = "worker"
PREFIXES = ("/registry/minions/", "/registry/pods/iris/")


def access_of(server, user="admin"):
    """Return a user's way to a real server."""
    tls = trusting(server.files.authority.read_bytes())
    return ClusterAccess(f"https://127.0.0.1:{server.port}", Fixed(Header.of("Bearer", server.tokens[user])), tls)


@attrs.frozen
class RealPods:
    """Makes pods on one node."""

    api: KubernetesApi
    kubelet: Kubelet

    async def ask(self, method, path, body=None, *codes, content_type="application/json"):
        """Make a request that has to be answered with one of ``codes``, by default 200 or 201."""
        answer = await self.api.request(ApiRequest(method, path, (), body, content_type))
        assert answer.code in (codes or (200, 201)), answer
        return answer.body

    async def node(self, name="n1", port=None):
        """Make a node whose kubelet listens on a port, by default on the right one."""
        await self.ask("POST", NODES, {"metadata": {"name": name}}, 201, 409)
        await self.status(f"{NODES}/{name}", self.kubelet.node_status(port))

    async def status(self, path, status):
        """Write a status."""
        await self.ask("PATCH", f"{path}/status", {"status": status}, content_type=MERGE_PATCH)

    async def pod(self, name, phase="Running", node="n1"):
        """Make a pod on a node, and give its uid; the kubelet knows it."""
        spec = {"nodeName": node, "containers": [{"name": CONTAINER, "image": "none"}]}
        made = await self.ask("POST", PODS, {"metadata": {"name": name}, "spec": spec})
        if phase != "Pending":
            await self.status(f"{PODS}/{name}", {"phase": phase})
        folder = self.kubelet.folder / "iris" / name
        if not folder.exists():
            self.kubelet.pod("iris", name)
        return made["metadata"]["uid"]

    async def remove(self, name):
        """Remove a pod, as its kubelet would in the end."""
        await self.ask("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})


@asynccontextmanager
async def real_pods(server, kubelet):
    """An empty namespace and a node."""
    async with open_api(access_of(server), LIMITS) as api:
        pods = RealPods(api, kubelet)
        await pods.ask("POST", NAMESPACES, {"metadata": {"name": "iris"}}, 201, 409)
        server.erase(PREFIXES)
        with anyio.fail_after(30):
            for path in (NODES, PODS):
                while (await pods.ask("GET", path))["items"]:  # noqa: ASYNC110
                    await anyio.sleep(0.02)  # until the server's caches have heard of it
        await pods.node()
        yield pods
