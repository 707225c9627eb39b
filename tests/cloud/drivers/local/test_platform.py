"""The local platform: the contract of both drivers on real processes, restarts, and what may never be left
over.
"""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import attrs
import pytest

from iriscw.cloud.drivers.local import platform as local_platform
from iriscw.cloud.drivers.local.connection import LocalConnection
from iriscw.cloud.drivers.local.folder import WorkdirCorrupt, WorkdirLocked
from iriscw.cloud.drivers.local.interruptions import kill_node, pause_node, resume_node, vanish_node
from iriscw.cloud.drivers.local.platform import POD_MARKER, LocalOptions, LocalPlatform, open_platform
from iriscw.cloud.drivers.local.pods import LocalPodDriver
from iriscw.cloud.drivers.local.pools import LocalNodePoolDriver
from iriscw.cloud.model import Capacity, Gone, Pod, PodPhase, Unavailable
from iriscw.processes.ends import ProcessEnd
from iriscw.processes.identity import read_stat
from iriscw.processes.supervised import Supervised
from iriscw.processes.sweep import SweepFailed, marked_processes
from iriscw.testing.conformance.cloud import CloudConformance, CloudUnderTest
from raised import that

NODE = Capacity(cpu_milli=1000, memory_bytes=1 << 30)
BUDGET = Capacity(cpu_milli=4000, memory_bytes=4 << 30)
SLEEPER = (sys.executable, "-I", "-S", "-c", "import signal; print('up', flush=True); signal.pause()")

STUBBORN = """
import os, signal, sys, time
signal.signal(15, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print("escaped", flush=True)
        time.sleep(600)
    os._exit(0)
os.wait()
print("up", flush=True)
time.sleep(600)
"""


def options(root: Path, *argv: str, **changes) -> LocalOptions:
    return attrs.evolve(LocalOptions(root, BUDGET, argv=argv or SLEEPER, boot_delay_s=0.01), **changes)


def under_test(platform: LocalPlatform) -> CloudUnderTest:
    return CloudUnderTest(
        LocalNodePoolDriver(platform), LocalPodDriver(platform), platform.options.cluster, NODE, Capacity(9000, 1)
    )


def processes_of(pod: Pod) -> int:
    return len(marked_processes({POD_MARKER: pod.uid}))


def states_of(pod: Pod) -> set[str]:
    return {read_stat(each.pid).state for each in marked_processes({POD_MARKER: pod.uid})}


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def files_below(path: Path) -> list[str]:
    return sorted(str(each.relative_to(path)) for each in path.rglob("*"))


async def until_log(platform: LocalPlatform, pod: str, text: str) -> None:
    """Wait until the pod's log holds ``text``."""
    path = platform.folder.pod_log(platform.pods[pod])
    with anyio.fail_after(20):
        while text not in text_of(path):  # noqa: ASYNC110  # a file has no event
            await anyio.sleep(0.01)


async def until_pod(platform: LocalPlatform, pod: str, phase: PodPhase) -> Pod:
    with anyio.fail_after(20):
        await platform.until(lambda: pod in platform.pods and platform.pods[pod].phase is phase)
    return next(each for each in platform.pods_seen() if each.name == pod)


@asynccontextmanager
async def opened(settings: LocalOptions) -> AsyncIterator[LocalPlatform]:
    """Open a platform, and leave nothing of it behind."""
    async with open_platform(settings) as platform:
        try:
            yield platform
        finally:
            with anyio.CancelScope(shield=True), anyio.fail_after(30):
                await platform.destroy()


class TestLocalPlatform(CloudConformance):
    """The public suite, on real processes."""

    @pytest.fixture
    async def cloud(self, tmp_path: Path) -> AsyncIterator[CloudUnderTest]:
        async with opened(options(tmp_path)) as platform:
            yield under_test(platform)


async def test_nothing_is_left_after_a_deletion(tmp_path: Path) -> None:
    """A pod that ignores SIGTERM and has a child in another session: no process, no file, room in the
    budget.
    """
    async with opened(options(tmp_path, sys.executable, "-I", "-S", "-c", STUBBORN)) as platform:
        cloud = under_test(platform)
        await cloud.ready_pool(cloud.pool())
        pod = await cloud.running_pod(cloud.pod())
        await until_log(platform, pod.name, "up")
        assert processes_of(pod) == 3  # the supervisor, the program and its child
        await cloud.pods.delete(pod.name, pod.uid, grace_s=0.05)
        await platform.until(lambda: not platform.pods)
        assert processes_of(pod) == 0
        assert files_below(tmp_path / "pools") == ["slice-1", "slice-1/pods", "slice-1/pool.json"]
        await platform.destroy()
    assert files_below(tmp_path) == ["lock", "pools"]


async def test_a_longer_grace_is_honoured_and_can_be_withdrawn(tmp_path: Path) -> None:
    """A second deletion with no grace overtakes the first, which would wait for minutes."""
    async with opened(options(tmp_path, sys.executable, "-I", "-S", "-c", STUBBORN)) as platform:
        cloud = under_test(platform)
        await cloud.ready_pool(cloud.pool())
        pod = await cloud.running_pod(cloud.pod())
        await until_log(platform, pod.name, "up")
        await cloud.pods.delete(pod.name, pod.uid, grace_s=600)
        await cloud.pods.delete(pod.name, pod.uid, grace_s=900)
        assert processes_of(pod) > 0
        await cloud.pods.delete(pod.name, pod.uid, grace_s=0)
        with anyio.fail_after(20):
            await platform.until(lambda: not platform.pods)


@pytest.mark.parametrize(
    ("code", "phase", "exit_code", "reason"),
    [
        ("pass", PodPhase.SUCCEEDED, 0, "Completed"),
        ("raise SystemExit(5)", PodPhase.FAILED, 5, "exit code 5"),
        ("import os; os.kill(os.getpid(), 9)", PodPhase.FAILED, None, "SIGKILL"),
    ],
)
async def test_how_a_pod_ended_is_told(tmp_path: Path, code, phase, exit_code, reason) -> None:
    """Phase, exit code and a reason for people."""
    async with opened(options(tmp_path, sys.executable, "-I", "-S", "-c", code)) as platform:
        cloud = under_test(platform)
        await cloud.node_pools.create(cloud.pool())
        await cloud.pods.create(cloud.pod())
        pod = await until_pod(platform, "slice-1-0", phase)
        assert pod.exit_code == exit_code
        assert reason in pod.reason


async def test_a_missing_program_fails_the_pod_by_name(tmp_path: Path) -> None:
    """A pod that cannot start has failed, with the reason."""
    async with opened(options(tmp_path, "/no/such/worker")) as platform:
        cloud = under_test(platform)
        await cloud.node_pools.create(cloud.pool())
        await cloud.pods.create(cloud.pod())
        pod = await until_pod(platform, "slice-1-0", PodPhase.FAILED)
        assert pod.reason.startswith("MissingBinary")


async def test_a_pods_environment(tmp_path: Path) -> None:
    """Ours, the pod's own, its address and its share; nothing of the controller's that was not asked for."""
    code = "import os; [print(k, v) for k, v in os.environ.items()]"
    os.environ["CONTROLLER_SECRET"] = "x"
    settings = options(tmp_path, sys.executable, "-c", code, environment={"IRIS_CONTROLLER_ADDRESS": "c:1"})
    try:
        async with opened(settings) as platform:
            cloud = under_test(platform)
            await cloud.node_pools.create(cloud.pool())
            await cloud.pods.create(attrs.evolve(cloud.pod(), environment={"IRIS_WORKER_ID": "w"}))
            pod = await until_pod(platform, "slice-1-0", PodPhase.SUCCEEDED)
            log = text_of(platform.folder.pod_log(platform.pods["slice-1-0"]))
    finally:
        del os.environ["CONTROLLER_SECRET"]
    for line in (
        "IRIS_CONTROLLER_ADDRESS c:1",
        "IRIS_WORKER_ID w",
        f"IRIS_VM_ADDRESS {pod.address}",
        "IRISCW_CPU_MILLI 1000",
        f"IRISCW_POD_UID {pod.uid}",
    ):
        assert line in log.splitlines()
    assert "CONTROLLER_SECRET" not in log


@pytest.mark.parametrize(("asked", "told"), [({}, "600"), ({"IRISCW_ORPHAN_AFTER_S": "5"}, "5")])
async def test_a_pod_is_told_for_how_long_it_waits(tmp_path: Path, asked: dict[str, str], told: str) -> None:
    """Nobody ends the worker of a controller that was killed: it is told when to end itself."""
    code = "import os; print(os.environ['IRISCW_ORPHAN_AFTER_S'])"
    async with opened(options(tmp_path, sys.executable, "-c", code, environment=asked)) as platform:
        cloud = under_test(platform)
        await cloud.node_pools.create(cloud.pool())
        await cloud.pods.create(cloud.pod())
        await until_pod(platform, "slice-1-0", PodPhase.SUCCEEDED)
        assert text_of(platform.folder.pod_log(platform.pods["slice-1-0"])) == f"{told}\n"


async def test_a_pods_log_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that writes without end, whoever looks after it or not: two files within the bound."""
    monkeypatch.setattr(local_platform, "POD_LOG_BYTES", 20_000)
    code = "import sys\nfor n in range(50_000): print(n)\nsys.exit(3)"
    async with opened(options(tmp_path, sys.executable, "-c", code)) as platform:
        cloud = under_test(platform)
        await cloud.node_pools.create(cloud.pool())
        await cloud.pods.create(cloud.pod())
        pod = await until_pod(platform, "slice-1-0", PodPhase.FAILED)
        log = platform.folder.pod_log(platform.pods["slice-1-0"])
        sizes = [path.stat().st_size for path in sorted(log.parent.glob("pod.log*"))]
        assert text_of(log).endswith("49999\n")
    assert pod.exit_code == 3
    assert len(sizes) == 2
    assert max(sizes) <= 20_000


async def test_pods_outlive_their_controller(tmp_path: Path) -> None:
    """The next one relists the same pools and pods, and can tell how they end."""
    async with open_platform(options(tmp_path)) as platform:
        cloud = under_test(platform)
        pool = await cloud.ready_pool(cloud.pool())
        pod = await cloud.running_pod(cloud.pod())
        await until_log(platform, pod.name, "up")
    assert processes_of(pod) == 2
    async with opened(options(tmp_path)) as platform:
        assert [(p.name, p.uid) for p in platform.pools_seen()] == [(pool.name, pool.uid)]
        again = await until_pod(platform, pod.name, PodPhase.RUNNING)
        assert again.uid == pod.uid
        assert processes_of(pod) == 2
        for identity in marked_processes({POD_MARKER: pod.uid}):
            if identity != platform.lives[pod.uid].running.supervisor:  # type: ignore[union-attr]
                os.kill(identity.pid, signal.SIGTERM)
        ended = await until_pod(platform, pod.name, PodPhase.FAILED)
        assert "SIGTERM" in ended.reason
    assert processes_of(pod) == 0


async def test_an_end_that_nobody_saw_is_found(tmp_path: Path) -> None:
    """A pod that ended while there was no controller is Failed or Succeeded after the relist."""
    code = "import sys; print('up', flush=True); sys.stdout.close(); import time; time.sleep(0.2); raise SystemExit(6)"
    async with open_platform(options(tmp_path, sys.executable, "-I", "-S", "-c", code)) as platform:
        cloud = under_test(platform)
        await cloud.node_pools.create(cloud.pool())
        pod = await cloud.running_pod(cloud.pod())
    with anyio.fail_after(20):
        while processes_of(pod):  # noqa: ASYNC110  # nobody waits for it: that is the point
            await anyio.sleep(0.02)
    async with opened(options(tmp_path)) as platform:
        assert (await until_pod(platform, pod.name, PodPhase.FAILED)).exit_code == 6


async def test_deletions_go_on_after_a_restart(tmp_path: Path) -> None:
    """A pool that was being deleted is gone once the next controller has run."""
    async with open_platform(options(tmp_path, sys.executable, "-I", "-S", "-c", STUBBORN)) as platform:
        cloud = under_test(platform)
        pool = await cloud.ready_pool(cloud.pool())
        pod = await cloud.running_pod(cloud.pod())
        await until_log(platform, pod.name, "up")
        await cloud.pods.delete(pod.name, pod.uid, grace_s=0.3)
        await cloud.node_pools.delete(pool.name, pool.uid)
    async with open_platform(options(tmp_path)) as platform:
        with anyio.fail_after(20):
            await platform.until(lambda: not platform.pools)
    assert processes_of(pod) == 0
    assert files_below(tmp_path) == ["lock", "pools"]


CONTROLLER = """
import sys, anyio
from pathlib import Path
from iriscw.cloud.drivers.local.platform import LocalOptions, open_platform
from iriscw.cloud.drivers.local.pods import LocalPodDriver
from iriscw.cloud.drivers.local.pools import LocalNodePoolDriver
from iriscw.cloud.model import Capacity, NodePoolSpec, PodPhase, PodSpec

async def main():
    node = Capacity(1000, 1 << 30)
    argv = (sys.executable, "-I", "-S", "-c", "import signal; signal.pause()")
    options = LocalOptions(Path(sys.argv[1]), Capacity(4000, 4 << 30), argv=argv, boot_delay_s=0.01)
    async with open_platform(options) as platform:
        await LocalNodePoolDriver(platform).create(NodePoolSpec("slice-1", "x", 1, {}, per_node=node))
        await LocalPodDriver(platform).create(PodSpec("slice-1-0", "slice-1", {}, node))
        await platform.until(lambda: platform.pods["slice-1-0"].phase is PodPhase.RUNNING)
        print("running", flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


def run_controller_and_kill_it(root: Path) -> None:
    """Run a controller in a process of its own until its pod runs, then kill it."""
    with subprocess.Popen([sys.executable, "-c", CONTROLLER, str(root)], stdout=subprocess.PIPE) as controller:
        assert controller.stdout is not None
        assert controller.stdout.readline() == b"running\n"
        controller.kill()


async def test_a_killed_controller_leaves_nothing_that_cannot_be_deleted(tmp_path: Path) -> None:
    """After kill -9 the next one finds the pod running, and deletes it."""
    run_controller_and_kill_it(tmp_path)
    async with opened(options(tmp_path)) as platform:
        pod = await until_pod(platform, "slice-1-0", PodPhase.RUNNING)
        assert processes_of(pod) == 2
    assert processes_of(pod) == 0
    assert files_below(tmp_path) == ["lock", "pools"]


async def test_one_controller_at_a_time(tmp_path: Path) -> None:
    """The second one is told, by name."""
    async with open_platform(options(tmp_path)), AsyncExitStack() as stack:
        with pytest.raises(WorkdirLocked):
            await stack.enter_async_context(open_platform(options(tmp_path)))


async def test_a_corrupt_record_is_named(tmp_path: Path) -> None:
    """A record that cannot be read stops the start, rather than being taken for an empty cloud."""
    (tmp_path / "pools" / "a" / "pods").mkdir(parents=True)
    (tmp_path / "pools" / "a" / "pool.json").write_text("{}")
    async with AsyncExitStack() as stack:
        with pytest.raises(WorkdirCorrupt, check=that(names="pool.json")):
            await stack.enter_async_context(open_platform(options(tmp_path)))


async def test_a_full_budget_frees_up(tmp_path: Path) -> None:
    """A pool that waits for quota gets its nodes when another one is deleted."""
    async with opened(options(tmp_path)) as platform:
        cloud = under_test(platform)
        first = await cloud.ready_pool(cloud.pool("first", nodes=3))
        await cloud.node_pools.create(cloud.pool("second", nodes=2))
        waiting = platform.pools["second"]
        assert (waiting.granted, waiting.lacking) == (False, ("cpu", "memory"))
        await cloud.node_pools.delete(first.name, first.uid)
        await cloud.ready_pool(cloud.pool("second", nodes=2))


async def test_interruptions(tmp_path: Path) -> None:
    """A killed node fails its pods and is replaced; a vanished one takes them with it and is not."""
    async with opened(options(tmp_path)) as platform:
        cloud = under_test(platform)
        pool = await cloud.ready_pool(cloud.pool())
        pod = await cloud.running_pod(cloud.pod())
        await kill_node(platform, pod.node)
        failed = await until_pod(platform, pod.name, PodPhase.FAILED)
        assert failed.reason.startswith("NodeLost")
        assert processes_of(pod) == 0
        renewed = await cloud.ready_pool(cloud.pool())
        assert renewed.uid == pool.uid
        assert renewed.nodes[0].uid != pool.nodes[0].uid
        second = await cloud.running_pod(cloud.pod("slice-1-1"))
        await vanish_node(platform, second.node)
        await platform.until(lambda: second.name not in platform.pods)
        assert processes_of(second) == 0
        (left,) = await cloud.node_pools.list({})
        assert (left.nodes, left.target_nodes) == ((), 1)
        with pytest.raises(Gone):
            await kill_node(platform, second.node)


async def test_a_paused_node_stands_still(tmp_path: Path) -> None:
    """All its processes are stopped, the supervisor too; deleting it still works, and so does going on."""
    async with opened(options(tmp_path)) as platform:
        cloud = under_test(platform)
        await cloud.ready_pool(cloud.pool())
        pod = await cloud.running_pod(cloud.pod())
        await until_log(platform, pod.name, "up")
        await pause_node(platform, pod.node)
        with anyio.fail_after(20):
            while states_of(pod) != {"T"}:  # noqa: ASYNC110  # a stop signal takes effect in its own time
                await anyio.sleep(0.01)
        await resume_node(platform, pod.node)
        await cloud.pods.delete(pod.name, pod.uid, grace_s=5)
        await platform.until(lambda: not platform.pods)


async def test_commands_in_a_pod(tmp_path: Path) -> None:
    """Code, both outputs, environment; a bound on output; a time-out that kills; names for what cannot be."""
    async with opened(options(tmp_path)) as platform:
        cloud = under_test(platform)
        await cloud.ready_pool(cloud.pool())
        created = await cloud.pods.create(cloud.pod())
        connection = LocalConnection(platform, created.name, created.uid)
        await connection.wait_until_ready(20)
        code = (
            "import os, sys; print(os.environ['IRISCW_POD_UID'], os.environ['X']); sys.stderr.write('e'); sys.exit(3)"
        )
        result = await connection.run([sys.executable, "-c", code], 20, {"X": "1"})
        assert (result.exit_code, result.stdout, result.stderr) == (3, f"{created.uid} 1\n".encode(), b"e")
        long = await connection.run([sys.executable, "-c", "print('x' * (2 << 20))"], 20)
        assert (len(long.stdout), long.truncated) == (1 << 20, True)
        with pytest.raises(TimeoutError):
            await connection.run([sys.executable, "-c", STUBBORN], 0.3)
        assert processes_of(created) == 2
        await cloud.pods.delete(created.name, created.uid, grace_s=0)
        await platform.until(lambda: not platform.pods)
        with pytest.raises(Gone):
            await connection.run(["true"], 1)


async def test_leaving_a_stream_kills_the_command(tmp_path: Path) -> None:
    """Whoever stops listening stops the command."""
    async with opened(options(tmp_path)) as platform:
        cloud = under_test(platform)
        await cloud.ready_pool(cloud.pool())
        pod = await cloud.running_pod(cloud.pod())
        stream = LocalConnection(platform, pod.name, pod.uid).stream(["yes"])
        assert (await anext(stream)).data.startswith(b"y\n")
        assert processes_of(pod) > 2
        await stream.aclose()  # type: ignore[attr-defined]
        assert processes_of(pod) == 2


async def test_a_command_ends_with_its_pod(tmp_path: Path) -> None:
    """Whoever runs it is told; when the pod is gone, so is the command."""
    async with opened(options(tmp_path)) as platform:
        cloud = under_test(platform)
        await cloud.ready_pool(cloud.pool())
        pod = await cloud.running_pod(cloud.pod())
        outcome = []

        async def run() -> None:
            try:
                await LocalConnection(platform, pod.name, pod.uid).run([sys.executable, "-c", STUBBORN], 600)
            except (Unavailable, Gone) as error:
                outcome.append(error)

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            with anyio.fail_after(20):
                while processes_of(pod) < 5:  # noqa: ASYNC110  # processes have no event
                    await anyio.sleep(0.02)
            await cloud.pods.delete(pod.name, pod.uid, grace_s=0)
            await platform.until(lambda: not platform.pods)
            assert processes_of(pod) == 0
        assert len(outcome) == 1


async def test_a_full_disk_delays_and_does_not_end_the_platform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls are refused by name; what goes on by itself waits, and goes on when there is room again."""
    monkeypatch.setattr("iriscw.cloud.drivers.local.life.RETRY_S", 0.01)
    async with opened(options(tmp_path)) as platform:
        cloud = under_test(platform)
        await cloud.node_pools.create(cloud.pool())

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as disk:
            disk.setattr("iriscw.cloud.drivers.local.folder.write_atomic", full)
            with pytest.raises(Unavailable, check=that(names=os.strerror(errno.ENOSPC))):
                await cloud.node_pools.create(cloud.pool("other"))
            await anyio.sleep(0.1)
            assert [pool.name for pool in platform.pools_seen()] == ["slice-1"]
        await cloud.running_pod(cloud.pod())


async def test_what_cannot_be_done_just_now_delays_and_does_not_end_the_platform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too many open files, a process that does not die at once: asked again, the pod runs and ends as it does."""
    monkeypatch.setattr(local_platform, "RETRY_S", 0.01)
    wait, adopt = Supervised.wait, local_platform.adopt
    troubles: list[Exception] = [OSError(errno.EMFILE, "too many"), SweepFailed("not yet"), OSError(errno.EIO, "lost")]
    late: list[Exception] = [SweepFailed("not yet")]

    async def troubled_wait(running: Supervised) -> ProcessEnd:
        ending = await wait(running)  # first: only what a supervisor left behind is swept, never a program that runs
        if troubles:
            raise troubles.pop()
        return ending

    async def troubled_adopt(folder: Path, markers: dict[str, str]) -> Supervised | None:
        if late:
            raise late.pop()
        return await adopt(folder, markers)

    monkeypatch.setattr(Supervised, "wait", troubled_wait)
    monkeypatch.setattr(local_platform, "adopt", troubled_adopt)
    async with opened(options(tmp_path, sys.executable, "-c", "raise SystemExit(3)")) as platform:
        cloud = under_test(platform)
        await cloud.ready_pool(cloud.pool())
        pod = await cloud.pods.create(cloud.pod())
        assert (await until_pod(platform, pod.name, PodPhase.FAILED)).exit_code == 3
    assert (troubles, late) == ([], [])
