"""One controller at a time on a Kubernetes cluster, against a served simulation of it."""

from pathlib import Path

import anyio
import pytest
from coreweave_world import configuration, serving

from iriscw.cloud.drivers.kube.leading import LeadershipLost
from iriscw.controller.assembly import Controller
from iriscw.controller.platforms.leading import lease_path
from raised import that

LEASE = lease_path("iris")


def controller(cluster, state):
    """Make a controller with a folder of its own."""
    config = configuration(cluster.kubeconfig)
    return Controller(config, state_dir=state, host="127.0.0.1", port=0)


async def test_the_second_controller_waits_for_the_first(tmp_path: Path) -> None:
    """It opens nothing before; and when the first has ended in order, it serves soon."""
    async with serving(tmp_path) as cluster:
        serves, end = anyio.Event(), anyio.Event()

        async def second() -> None:
            async with controller(cluster, tmp_path / "two"):
                serves.set()
                await end.wait()

        async with anyio.create_task_group() as tasks:
            async with controller(cluster, tmp_path / "one"):
                tasks.start_soon(second)
                with anyio.move_on_after(3):
                    await serves.wait()
                    pytest.fail("two controllers serve")
                assert not (tmp_path / "two" / "journal").exists()
            with anyio.fail_after(20):
                await serves.wait()
            end.set()


async def test_a_controller_whose_lease_is_taken_ends(tmp_path: Path) -> None:
    """By name, out of its block; its machines stay."""
    async with serving(tmp_path) as cluster:

        async def lead() -> None:
            async with controller(cluster, tmp_path / "one"):
                lease = await cluster.objects.get(LEASE)
                assert lease is not None
                metadata = {name: lease["metadata"][name] for name in ("name", "namespace", "resourceVersion")}
                spec = {**lease["spec"], "holderIdentity": "somebody"}
                await cluster.objects.apply(
                    LEASE,
                    {"apiVersion": lease["apiVersion"], "kind": "Lease", "metadata": metadata, "spec": spec},
                    force=True,
                )
                await anyio.sleep(20)

        with pytest.raises(LeadershipLost, check=that(names="Lease")):
            await lead()
