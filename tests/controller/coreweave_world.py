"""A controller on a served simulation of CoreWeave, and somebody who plays the worker that no simulated pod runs."""

import base64
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import attrs
from controller_world import FakeWorker

from iriscw.cloud.drivers.kube.access import find_access
from iriscw.cloud.drivers.kube.objects import Objects, open_objects
from iriscw.cloud.kube.leadership import RELEASED
from iriscw.cloud.kube.messages import MERGE_PATCH
from iriscw.config.load import build_config
from iriscw.config.model import ClusterConfig
from iriscw.controller.assembly import Controller
from iriscw.controller.platforms.leading import LEASE, lease_path
from iriscw.rpc.client import RpcChannel
from iriscw.rpc.tokens import Secret
from iriscw_sims.serve.server import SimServer
from iriscw_sims.serve.settings import ServeSettings, Timing
from iriscw_sims.serve.streams import PodStreams

PODS = "/api/v1/namespaces/iris/pods"
SECRETS = "/api/v1/namespaces/iris/secrets"
POOLS = "/apis/compute.coreweave.com/v1alpha1/nodepools"
SPEED = 50
"""How many times as fast as its quick presets the simulation is: a node boots in less than half a second."""


def configuration(kubeconfig: Path, **group: Any) -> ClusterConfig:
    """Return a configuration whose only group has one slice of a node with eight GPUs."""
    return build_config(
        {
            "name": "research",
            "platform": {
                "coreweave": {"region": "LGA1", "kubeconfig_path": str(kubeconfig), "priority_class": "iris-worker"},
                "timeouts": {"api_timeout": "500ms"},
                "autoscaler": {"scale_up_delay": "100ms", "scale_down_delay": "500ms", "evaluation_interval": "1s"},
            },
            "defaults": {
                "bootstrap": {"docker_image": "registry.test/worker:1"},
                "task_secrets": {"WANDB_API_KEY": "wandb/api-key"},
            },
            "scale_groups": {
                "h100": {
                    "accelerator_type": "gpu",
                    "accelerator_variant": "H100",
                    "resources": {"cpu": 4, "ram": "4GiB", "gpu_count": 8},
                    "slice_template": {"coreweave": {"instance_type": "gd-8xh100ib-i128"}},
                    **group,
                }
            },
        }
    )


LEASES = lease_path("iris").rpartition("/")[0]


@attrs.define
class Cluster:
    """The served cluster, as an administrator sees it."""

    objects: Objects
    kubeconfig: Path
    state: Path
    server: SimServer

    async def one(self, path: str, selector: str = "iris-managed=true") -> dict[str, Any]:
        """Wait until there is exactly one object of a kind, and give it."""
        return (await self.until(path, lambda found: len(found) == 1, selector))[0]

    async def until(
        self, path: str, condition: Callable[[Any], object], selector: str = "iris-managed=true"
    ) -> tuple[Any, ...]:
        """Wait until the objects of a kind are as they should be, and give them."""
        with anyio.fail_after(30):
            while True:
                found = await self.objects.list(path, selector)
                if condition(found):
                    return found
                await anyio.sleep(0.05)

    @asynccontextmanager
    async def controller(self, config: ClusterConfig | None = None) -> AsyncIterator[Controller]:
        """Run a controller."""
        made = Controller(config or configuration(self.kubeconfig), state_dir=self.state, host="127.0.0.1", port=0)
        async with made as controller:
            yield controller

    async def token_of(self, pod: str) -> Secret:
        """Read the token that a pod was handed."""
        secret = await self.objects.get(f"{SECRETS}/{pod}")
        assert secret is not None
        return Secret(base64.b64decode(secret["data"]["token"]).decode())


@asynccontextmanager
async def serving(folder: Path, streams: PodStreams | None = None, **more: Any) -> AsyncIterator[Cluster]:
    """Serve an empty cluster; ``streams`` knows the inside of its containers."""
    async with AsyncExitStack() as stack:
        settings = ServeSettings(kubeconfig=folder / "kubeconfig", timing=Timing.QUICK, speed=SPEED, **more)
        server = await stack.enter_async_context(SimServer(settings, streams=streams))
        access = await find_access(folder / "kubeconfig")
        objects = await stack.enter_async_context(open_objects(access))
        lease = await objects.create(LEASES, {"metadata": {"name": LEASE}, "spec": {}})
        freed = {"metadata": {"annotations": {RELEASED: lease["metadata"]["uid"]}}}  # nobody has to wait for it
        await objects.patch(lease_path("iris"), freed, MERGE_PATCH)
        yield Cluster(objects, folder / "kubeconfig", folder / "state", server)


@attrs.define
class Handed:
    """What a worker of a pod knows: where the controller is, and the token that it was handed."""

    controller: Controller
    token: Secret

    @property
    def tokens(self) -> "Handed":
        """What derives tokens: here, what was handed."""
        return self

    def worker_token(self, worker_id: str, incarnation: str) -> Secret:
        """Return the one token there is."""
        return self.token

    def channel(self, token: Secret) -> RpcChannel:
        """A channel to the controller's door."""
        return RpcChannel(self.controller.address, token)


class GpuWorker(FakeWorker):
    """A worker whose machine has what the group promises."""

    def hello(self):
        hello = super().hello()
        hello.capacity.gpu_count, hello.capacity.gpu_class = 8, "H100"
        return hello
