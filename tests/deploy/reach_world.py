"""A simulated cluster in which a controller of this process serves, for tests of the way to it."""

import asyncio
import base64
from contextlib import asynccontextmanager

import attrs
import trustme
from deploy_world import installed, put

from iriscw.cloud.drivers.fake import FakeCloud
from iriscw.cloud.model import Capacity
from iriscw.config.load import build_config
from iriscw.controller.assembly import Controller
from iriscw.deploy.controller import service
from iriscw_sims.serve.server import SimServer
from iriscw_sims.serve.settings import ServeSettings

NAMESPACES = "/api/v1/namespaces"
PODS, SECRETS = f"{NAMESPACES}/iris/pods", f"{NAMESPACES}/iris/secrets"
INSTALLATION = installed()
TOKEN = "the-admin-token"


@attrs.frozen
class Drivers:
    """A cloud in memory, of which nobody wants anything here."""

    cloud: FakeCloud = attrs.field(factory=lambda: FakeCloud(budget=Capacity(100_000, 100 << 30), cluster="test"))

    @property
    def node_pools(self):
        """Return the driver of pools."""
        return self.cloud.node_pools

    @property
    def pods(self):
        """Return the driver of pods."""
        return self.cloud.pod_driver


class Inside:
    """The inside of pods: ports of this machine, by the pod's name."""

    def __init__(self):
        self.ports = {}
        self.dialled = []

    def exec_ready(self, _node, _now):
        """Every node can be reached."""
        return True

    def log(self, _pod, _container, _now, _first=0):
        """Nobody says anything."""
        return []

    def next_line(self, _pod, _container, _now):
        """Nor will."""

    async def exec(self, _command, _streams, _now):
        """No command is there."""
        return 127

    async def dial(self, pod, port):
        """Connect to the port that stands for a pod's."""
        self.dialled.append((pod["metadata"]["name"], port))
        try:
            return await asyncio.open_connection("127.0.0.1", self.ports[pod["metadata"]["name"]])
        except OSError:
            return None


class ReachWorld:
    """A cluster, and controllers that are its pods."""

    def __init__(self, server, folder, inside):
        self.server, self.folder, self.inside = server, folder, inside
        self.authority = trustme.CA()
        self.kubeconfig = server.settings.kubeconfig

    def put(self, method, path, body=None):
        """Write to the simulation's store."""
        return put(self.server, method, path, body)

    def install(self, installation=INSTALLATION, *, names=None, secrets=True):
        """Make what a controller consists of, but for its pod; certificates hold the Service's name and no other."""
        self.put("POST", NAMESPACES, {"metadata": {"name": "iris"}})
        made = service(installation)
        self.put("POST", f"{NAMESPACES}/iris/services", {**made, "spec": {**made["spec"], "clusterIP": "None"}})
        files = self.folder / "secrets"
        files.mkdir()
        (files / "cluster-secret").write_text("the-cluster-secret")
        (files / "admin-token").write_text(TOKEN)
        if not installation.controller.insecure_plaintext:
            issued = self.authority.issue_cert(*(names or [installation.host]))
            issued.cert_chain_pems[0].write_to_path(files / "tls.crt")
            issued.private_key_pem.write_to_path(files / "tls.key")
        if secrets:
            self.secret("iris-controller-secrets", "admin-token", TOKEN.encode())
            self.secret("iris-ca", "ca.crt", self.authority.cert_pem.bytes())

    def secret(self, name, key, value):
        """Make a Secret."""
        data = {key: base64.b64encode(value).decode()}
        self.put("POST", SECRETS, {"metadata": {"name": name}, "data": data})

    @asynccontextmanager
    async def controller(self, name, *, words=()):
        """Run a controller that is called as its pod is; leaving the block ends both."""
        config = build_config({"name": name, "platform": {"local": {}}, "controller": {"local": {"port": 0}}})
        config = attrs.evolve(
            config, controller=attrs.evolve(config.controller, secrets_dir=str(self.folder / "secrets"))
        )
        async with Controller(config, state_dir=self.folder / name, drivers=Drivers(), host="127.0.0.1") as running:
            self.inside.ports[name] = running.address.port
            self.pod(name, words)
            try:
                yield running
            finally:
                self.put("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})

    def pod(self, name, words=()):
        """Make a pod that is ready."""
        container = {"name": "controller", "image": "i", "args": [*words]}
        container["ports"] = [{"name": "controller", "containerPort": 10000}]
        metadata = {"name": name, "labels": {"app": "iris-controller"}}
        self.put("POST", PODS, {"metadata": metadata, "spec": {"nodeName": "n", "containers": [container]}})
        found = self.put("GET", f"{PODS}/{name}")
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        self.put("PUT", f"{PODS}/{name}/status", {**found, "status": status})


@asynccontextmanager
async def reach_world(folder):
    """Serve a cluster with a node, and nothing of ours in it."""
    inside = Inside()
    settings = ServeSettings(kubeconfig=folder / "kubeconfig", controllers=False)
    async with SimServer(settings, streams=inside) as server:
        put(server, "POST", "/api/v1/nodes", {"metadata": {"name": "n"}})
        yield ReachWorld(server, folder, inside)
