"""Pods of a served simulation, for tests that look into them."""

from contextlib import asynccontextmanager

import anyio
from drivers_world import LIMITS, SETTINGS

from iriscw.cloud.drivers.kube.access import find_access
from iriscw.cloud.drivers.kube.drivers import open_drivers
from iriscw.cloud.model import LABEL_INCARNATION, LABEL_SLICE, Capacity, NodePoolSpec, PodPhase, PodSpec
from iriscw_sims.serve.server import SimServer
from iriscw_sims.serve.settings import ServeSettings, Timing

PATIENCE_S = 60
LABELS = {LABEL_SLICE: "s1", LABEL_INCARNATION: "1"}


def serve(folder, streams=None):
    """Return a simulated cluster, fifty times as fast as its quick presets."""
    settings = ServeSettings(kubeconfig=folder / "kubeconfig", timing=Timing.QUICK, speed=50)
    return SimServer(settings, streams=streams)


@asynccontextmanager
async def drivers_of(server, token=None):
    """The drivers of that cluster, by its own token or by another one."""
    path = server.settings.kubeconfig
    if token is not None:
        path = path.with_name("wrong")
        path.write_text(server.settings.kubeconfig.read_text().replace(server.token.reveal(), token))
    async with open_drivers(await find_access(path), SETTINGS, limits=LIMITS) as opened:
        yield opened


async def made_pod(drivers):
    """Make a pod, whose processes do not run yet."""
    await drivers.node_pools.create(NodePoolSpec("s1", "turin-gp", 1, LABELS))
    return await drivers.pods.create(PodSpec("s1-0", "s1", LABELS, Capacity(1000, 2**30)))


async def running_pod(drivers):
    """Make a pod, and wait until it runs."""
    made = await made_pod(drivers)
    with anyio.fail_after(PATIENCE_S):
        async for event in drivers.pods.watch({}):
            phase = getattr(event, "object", made).phase
            assert phase is not PodPhase.FAILED, event
            if phase is PodPhase.RUNNING:
                return made
    raise AssertionError("a watch never ends by itself")
