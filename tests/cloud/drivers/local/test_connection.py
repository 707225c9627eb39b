"""Commands in a pod that is a process: the public suite."""

import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from iriscw.cloud.drivers.local.connection import COMMAND_MARKER
from iriscw.cloud.drivers.local.drivers import local
from iriscw.cloud.drivers.local.platform import POD_MARKER, LocalOptions
from iriscw.cloud.model import Capacity, Gone, NodePoolSpec, PodSpec, Unavailable
from iriscw.cloud.ports import Connection
from iriscw.processes.sweep import marked_processes
from iriscw.testing.conformance.connection import ConnectionConformance

SLEEPER = (sys.executable, "-I", "-S", "-c", "import signal; signal.pause()")
NODE = Capacity(1000, 1 << 30)


class TestLocalConnection(ConnectionConformance):
    """The public suite, on a real process."""

    @pytest.fixture
    async def connection(self, tmp_path: Path) -> AsyncIterator[Connection]:
        async with local(LocalOptions(tmp_path, NODE, argv=SLEEPER, boot_delay_s=0.01)) as drivers:
            await drivers.node_pools.create(NodePoolSpec("a", "x", 1, {}, per_node=NODE))
            pod = await drivers.pods.create(PodSpec("a-0", "a", {}, NODE))
            connection = drivers.connection(pod.name, pod.uid)
            await connection.wait_until_ready(20)
            yield connection
            await drivers.platform.destroy()


async def test_a_pod_that_is_not_there_yet_or_any_more(tmp_path: Path) -> None:
    """A pod that waits is unavailable, another incarnation is gone, and waiting for it has an end."""
    async with local(LocalOptions(tmp_path, NODE, argv=SLEEPER, boot_delay_s=600)) as drivers:
        await drivers.node_pools.create(NodePoolSpec("a", "x", 1, {}, per_node=NODE))
        pod = await drivers.pods.create(PodSpec("a-0", "a", {}, NODE))
        waiting, gone = drivers.connection(pod.name, pod.uid), drivers.connection(pod.name, "another")
        with pytest.raises(Unavailable):
            await waiting.run(["true"], 1)
        with pytest.raises(TimeoutError):
            await waiting.wait_until_ready(0.05)
        for call in (gone.run(["true"], 1), gone.wait_until_ready(1)):
            with pytest.raises(Gone):
                await call
        with anyio.fail_after(20):
            await drivers.platform.destroy()


async def test_a_command_whose_supervisor_is_killed_ends_alone(tmp_path: Path) -> None:
    """Its own processes are swept, those of the pod and of its other commands are not."""
    async with local(LocalOptions(tmp_path, NODE, argv=SLEEPER, boot_delay_s=0.01)) as drivers:
        await drivers.node_pools.create(NodePoolSpec("a", "x", 1, {}, per_node=NODE))
        pod = await drivers.pods.create(PodSpec("a-0", "a", {}, NODE))
        connection = drivers.connection(pod.name, pod.uid)
        await connection.wait_until_ready(20)
        before = {each.pid for each in marked_processes({POD_MARKER: pod.uid})}
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                with pytest.raises(Unavailable, match="nobody saw"):
                    await connection.run(SLEEPER, 60)

            tasks.start_soon(run)
            with anyio.fail_after(20):
                while not (supervisors := supervisors_of_commands(pod.uid)):  # noqa: ASYNC110 - processes have no event
                    await anyio.sleep(0.01)
            os.kill(supervisors[0], signal.SIGKILL)
        assert {each.pid for each in marked_processes({POD_MARKER: pod.uid})} == before
        with anyio.fail_after(20):
            await drivers.platform.destroy()


def supervisors_of_commands(uid: str) -> list[int]:
    """Give those whose program was let go."""
    found = [Path(f"/proc/{each.pid}") for each in marked_processes({POD_MARKER: uid})]
    commands = [path for path in found if f"{COMMAND_MARKER}=".encode() in (path / "environ").read_bytes()]
    running = [path for path in commands if b"supervisor.py" not in (path / "cmdline").read_bytes()]
    return [int(path.name) for path in commands if path not in running] if running else []
