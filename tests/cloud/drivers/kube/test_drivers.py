"""Both drivers against a served simulation of CoreWeave: the contract of the ports, and what is left behind."""

import asyncio
from contextlib import aclosing

import anyio
import attrs
import pytest
from drivers_world import LIMITS, SETTINGS

from iriscw.cloud.drivers.kube.access import find_access
from iriscw.cloud.drivers.kube.drivers import KubeDrivers, open_drivers
from iriscw.cloud.drivers.loading import CloudDrivers
from iriscw.cloud.model import Capacity, Forbidden, NodePoolSpec, Relisted
from iriscw.cloud.ports import Connection, NodePoolDriver, PodDriver
from iriscw.testing.conformance.cloud import CloudConformance, CloudUnderTest
from iriscw_sims.serve.server import SimServer
from iriscw_sims.serve.settings import ServeSettings, Timing
from waiting import until

GIB = 1 << 30
NODE = Capacity(cpu_milli=8000, memory_bytes=64 * GIB)
TOO_MUCH = Capacity(cpu_milli=900_000, memory_bytes=GIB)
TYPE, SCARCE = "turin-gp", "gd-1xgh200"
"""Machines without a limit, and machines of which the quota is one."""


@attrs.frozen
class ByType:
    """Asks for machines by their type: CoreWeave has no other way to say how large a node is."""

    driver: NodePoolDriver

    async def create(self, spec: NodePoolSpec):
        scarce = attrs.evolve(spec, instance_type=SCARCE, target_nodes=2)
        return await self.driver.create(scarce if spec.per_node == TOO_MUCH else spec)

    def __getattr__(self, name):
        return getattr(self.driver, name)


@pytest.fixture
async def server(tmp_path):
    """A simulated cluster, fifty times as fast as its quick presets."""
    settings = ServeSettings(kubeconfig=tmp_path / "kubeconfig", timing=Timing.QUICK, speed=50, quotas={SCARCE: 1})
    async with SimServer(settings) as running:
        yield running


@pytest.fixture
async def drivers(server):
    """The drivers of that cluster."""
    access = await find_access(server.settings.kubeconfig)
    async with open_drivers(access, SETTINGS, limits=LIMITS) as opened:
        yield opened


def under_test(drivers: KubeDrivers) -> CloudUnderTest:
    return CloudUnderTest(ByType(drivers.node_pools), drivers.pods, "test", NODE, TOO_MUCH, TYPE)


class TestConformance(CloudConformance):
    """The contract of both ports, over HTTP."""

    @pytest.fixture
    def cloud(self, drivers):
        """An empty cloud of one's own."""
        return under_test(drivers)


def test_the_drivers_are_the_ports():
    """As far as the runtime can tell."""
    drivers = KubeDrivers(None, SETTINGS)
    assert isinstance(drivers.node_pools, NodePoolDriver)
    assert isinstance(drivers.pods, PodDriver)
    assert isinstance(drivers.connection("pod", "uid"), Connection)
    assert isinstance(drivers, CloudDrivers)


async def test_a_watch_that_is_left_leaves_nothing(server, drivers):
    """Neither a task, nor a connection, nor an open watch at the server."""
    before = len(asyncio.all_tasks())
    async with aclosing(drivers.node_pools.watch({})) as events:
        assert await anext(events) == Relisted(())
        await until(lambda: server.statistics().door.open_watches == drivers.statistics().api.open_watches == 2)
        assert len(drivers.statistics().watches) == 1
    statistics = drivers.statistics()
    assert (statistics.api.open_watches, statistics.watches) == (0, ())
    await until(lambda: len(asyncio.all_tasks()) <= before and not server.statistics().door.open_watches)


async def test_a_watch_that_is_forgotten_is_closed(drivers):
    """Whoever breaks out of a loop and lets go of the watch has left it."""
    async for event in drivers.pods.watch({}):
        assert event == Relisted(())
        break
    await until(lambda: not drivers.statistics().watches and not drivers.statistics().api.open_watches)


async def test_a_cancelled_watch_leaves_nothing(drivers):
    """At whatever moment: before the list, while it is asked for, while the watch is open."""
    for delay_s in (0, 0.001, 0.003, 0.01, 0.03, 0.1):
        with anyio.move_on_after(delay_s):
            async with aclosing(drivers.node_pools.watch({})) as events:
                async for _event in events:
                    pass
        statistics = drivers.statistics()
        assert (statistics.api.open_watches, statistics.watches) == (0, ())


async def test_figures(drivers):
    """Statistics are frozen values of what was done."""
    cloud = under_test(drivers)
    await cloud.node_pools.create(cloud.pool())
    assert len(await cloud.node_pools.list({})) == 1
    found = drivers.statistics()
    assert (found.calls.calls, found.calls.open_calls, found.calls.timed_out) == (2, 0, 0)
    assert found.api.requests == 3
    assert found.api.received_bytes > 1000
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        found.api.requests = 0


async def test_a_wrong_token_is_forbidden(server, drivers, tmp_path):
    """As CoreWeave says it: 403. A watch ends with it, and a call says it at once."""
    path = tmp_path / "wrong"
    path.write_text(server.settings.kubeconfig.read_text().replace(server.token.reveal(), "CW-SECRET-wrong"))
    async with open_drivers(await find_access(path), SETTINGS, limits=LIMITS) as wrong:
        with pytest.raises(Forbidden) as refused:
            await wrong.pods.list({})
        assert "CW-SECRET" not in str(refused.value)
        with pytest.raises(Forbidden):
            await anext(wrong.node_pools.watch({}))
