"""Commands in a pod that is a process: the public suite."""

import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest

from iriscw.cloud.drivers.local.connection import COMMAND_MARKER
from iriscw.cloud.drivers.local.drivers import local
from iriscw.cloud.drivers.local.platform import POD_MARKER, LocalOptions
from iriscw.cloud.model import Capacity, ExecOutput, Gone, NodePoolSpec, PodSpec, Unavailable
from iriscw.cloud.ports import Connection
from iriscw.processes import entering
from iriscw.processes.sweep import marked_processes
from iriscw.testing.conformance.connection import ConnectionConformance
from raised import that

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


FOLLOWING = """
import sys, pathlib, anyio
from iriscw.cloud.drivers.local import connection
from iriscw.cloud.drivers.local.drivers import local
from iriscw.cloud.drivers.local.platform import LocalOptions
from iriscw.cloud.model import Capacity

connection.LEASE_S, connection.RENEWAL_S = 1.0, 0.2

async def main():
    async with local(LocalOptions(pathlib.Path(sys.argv[1]), Capacity(1000, 1 << 30), argv=("true",))) as drivers:
        command = ["sh", "-c", "echo $$; sleep 2; echo still; exec sleep 600"]
        async for said in drivers.connection(*sys.argv[2:]).stream(command):
            sys.stdout.buffer.write(said.data)
            sys.stdout.buffer.flush()

anyio.run(main)
"""


@pytest.mark.slow
async def test_a_followed_command_does_not_outlast_who_follows(tmp_path: Path) -> None:
    """Killed, that one renews no lease any more; as long as it lives the command does."""
    options = LocalOptions(tmp_path, NODE, argv=SLEEPER, boot_delay_s=0.01)
    async with local(options) as drivers:
        await drivers.node_pools.create(NodePoolSpec("a", "x", 1, {}, per_node=NODE))
        pod = await drivers.pods.create(PodSpec("a-0", "a", {}, NODE))
        await drivers.connection(pod.name, pod.uid).wait_until_ready(20)
    words = [sys.executable, "-c", FOLLOWING, str(tmp_path), pod.name, pod.uid]
    async with await anyio.open_process(words, stderr=None) as follower:
        assert follower.stdout is not None
        command = int(await follower.stdout.receive())
        assert await follower.stdout.receive() == b"still\n"
        follower.kill()
    with anyio.fail_after(20):
        while any(each.pid == command for each in marked_processes({POD_MARKER: pod.uid})):  # noqa: ASYNC110
            await anyio.sleep(0.05)  # of a process that is not a child
    async with local(options) as drivers:
        with anyio.fail_after(20):
            await drivers.platform.destroy()


ENTERING = Path(entering.__file__).read_text(encoding="utf-8")


async def test_a_command_beside_an_attempt_goes_with_the_pod(tmp_path: Path) -> None:
    """With what it started, though it has the attempt's variables and not the pod's."""
    uid = uuid.uuid4().hex
    variables = {"PATH": os.environ["PATH"], "IRIS_ATTEMPT_UID": uid, "IRIS_TASK_ID": "t"}
    async with (
        await anyio.open_process(["sleep", "600"], env=variables) as attempt,
        local(LocalOptions(tmp_path, NODE, argv=SLEEPER, boot_delay_s=0.01)) as drivers,
    ):
        try:
            await drivers.node_pools.create(NodePoolSpec("a", "x", 1, {}, per_node=NODE))
            pod = await drivers.pods.create(PodSpec("a-0", "a", {}, NODE))
            connection = drivers.connection(pod.name, pod.uid)
            await connection.wait_until_ready(20)
            words = [*connection.interpreter, "-I", "-S", "-c", ENTERING, "mark", uid]
            async with aclosing(connection.stream([*words, "sh", "-c", "setsid sleep 600 & echo there; wait"])) as said:
                assert await anext(said) == ExecOutput(b"there\n")
                await drivers.pods.delete(pod.name, pod.uid, 0)
                with anyio.fail_after(20), pytest.raises(Unavailable):
                    await anext(said)
            assert [each.pid for each in marked_processes({"IRIS_ATTEMPT_UID": uid})] == [attempt.pid]
            with anyio.fail_after(20):
                await drivers.platform.destroy()
        finally:
            attempt.kill()


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
                with pytest.raises(Unavailable, check=that(comes_from="connection._code")):
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
    """Return those whose program was let go."""
    found = [Path(f"/proc/{each.pid}") for each in marked_processes({POD_MARKER: uid})]
    commands = [path for path in found if f"{COMMAND_MARKER}=".encode() in (path / "environ").read_bytes()]
    running = [path for path in commands if b"supervisor.py" not in (path / "cmdline").read_bytes()]
    return [int(path.name) for path in commands if path not in running] if running else []
