"""Attempts as containers of a real Docker engine: the contract, adoption, limits, ends from outside."""

import errno
import json
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import attrs
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from docker_world import IMAGE, PATIENCE_S, docker_world

from iriscw.cloud.docker.containers import TaskContainers
from iriscw.cloud.drivers.docker.engine import open_engine
from iriscw.cloud.drivers.docker.tasks import open_docker_tasks
from iriscw.cloud.model import Capacity, Unavailable
from iriscw.processes.ends import EndKind
from iriscw.runtime.vocabulary import SECOND
from iriscw.testing.conformance.task_runtime import TaskRuntimeConformance, facts
from iriscw.worker.ports import AttemptSpec, AttemptWithdrawn, ImageUnavailable, ProgramMissing
from iriscw.worker.runtimes.pod_life import PodPatience
from raised import that

pytestmark = pytest.mark.slow

UNTIL_TERM = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print("up", flush=True)
while True:
    signal.pause()
"""


@pytest.fixture(scope="module")
def anyio_backend():
    """One loop for all tests: they share the engine."""
    return "asyncio"


@pytest.fixture(scope="module")
async def machine(tmp_path_factory):
    """A machine with an engine."""
    async with docker_world(tmp_path_factory.mktemp("docker")) as made:
        yield made


@pytest.fixture
def world(machine):
    """The machine, and a worker that begins anew."""
    return machine.next_life()


@pytest.fixture
async def runtime(world):
    """The worker's runtime, of which nothing was here before."""
    async with world.runtime() as made:
        assert await made.adopt() == ()
        yield made


class TestDockerRuntime(TaskRuntimeConformance):
    """The public suite, on containers."""


def program(code, uid="attempt-1", **changes):
    """Return an attempt that runs a line of Python."""
    return AttemptSpec(facts(uid), argv=(sys.executable, "-I", "-S", "-c", code), **changes)


async def until_up(attempt):
    """Wait until the program's handler is in place; the supervisor's is since it has reported."""
    with anyio.fail_after(PATIENCE_S):
        while "up" not in await anyio.Path(attempt.stdout).read_text():  # noqa: ASYNC110 - a file has no event
            await anyio.sleep(0.01)


async def test_what_an_attempt_sees(world, runtime):
    """Its variables, the machine's address, no capability, and nothing of the machine but what it is shown."""
    code = """
import json, os
status = dict(line.split(':', 1) for line in open('/proc/self/status').read().splitlines() if ':' in line)
print(json.dumps({
    'mine': os.environ['MINE'], 'job': os.environ['IRIS_JOB_ID'], 'host': os.environ['IRIS_ADVERTISE_HOST'],
    'gpus': os.environ['NVIDIA_VISIBLE_DEVICES'], 'there': os.environ['IRIS_WORKDIR'] == os.getcwd(),
    'capabilities': int(status['CapEff'], 16), 'privileges': status['NoNewPrivs'].strip(),
    'user': os.getuid(), 'etc': os.listdir('/etc'), 'first': os.getppid(),
    'lease': os.access(os.environ['LEASE'], os.W_OK),
}))
"""
    lease = str(world.life / "tasks" / "lease")
    attempt = await runtime.start(program(code, environment={"MINE": "1", "IRIS_JOB_ID": "forged", "LEASE": lease}))
    assert (await attempt.wait()).succeeded
    seen = json.loads(await anyio.Path(attempt.stdout).read_text())
    assert {"hostname", "hosts", "resolv.conf"} >= set(seen.pop("etc")) - {"mtab"}
    assert seen == {
        "mine": "1", "job": "/ada/j", "host": "127.0.0.1", "gpus": "void", "there": True, "capabilities": 0,
        "privileges": "1", "user": os.getuid(), "first": 1, "lease": False,
    }  # fmt: skip
    await attempt.remove()
    await world.until(lambda found: attempt.name not in found)


async def test_one_that_is_freezable_gets_no_io_uring(runtime):
    """Beside what the engine's own profile forbids: a container without rights may put the filter on itself."""
    code = "import ctypes; c = ctypes.CDLL(None, use_errno=True); c.syscall(425, 0, None); print(ctypes.get_errno())"
    attempt = await runtime.start(program(code, freezable=True))
    assert (await attempt.wait()).succeeded
    assert await anyio.Path(attempt.stdout).read_text() == f"{errno.ENOSYS}\n"


async def test_the_next_process_of_a_worker_takes_attempts_up(world):
    """Running ones, ended ones; nothing that never began; and no container of theirs is a stray."""
    async with world.runtime() as first:
        running = await first.start(program(UNTIL_TERM, "running"))
        ended = await first.start(program("raise SystemExit(3)", "ended"))
        await until_up(running)
        assert (await ended.wait()).code == 3
        half = first.root / "half"
        half.mkdir()
    async with world.runtime() as second:
        found = {attempt.uid: attempt for attempt in await second.adopt()}
        assert sorted(found) == ["ended", "running"]
        assert not half.exists()
        assert (await found["ended"].wait()).code == 3
        end = await found["running"].stop(60)
        assert (end.kind, end.code, end.killed) == (EndKind.STOPPED, 7, False)
        for attempt in found.values():
            await attempt.remove()
        await world.until(lambda there: running.name not in there and ended.name not in there)


async def test_what_an_earlier_life_left_is_removed(world):
    """By its label: its attempts mean nothing to the next incarnation."""
    async with world.runtime() as first:
        running = await first.start(program(UNTIL_TERM, "left"))
        await until_up(running)
    async with world.next_life().runtime() as second:
        assert await second.adopt() == ()
        await world.until(lambda found: running.name not in found)


async def test_memory_is_bounded(world, runtime):
    """Whoever takes more than he asked for is killed, and it is told as that."""
    hungry = "data = bytearray(512 << 20); data[:] = b'x' * len(data)"
    attempt = await runtime.start(program(hungry, demand=Capacity(1000, 64 << 20)))
    with anyio.fail_after(PATIENCE_S):
        end = await attempt.wait()
    # The engine may tell of the end before it tells of the memory.
    assert end.kind is EndKind.OUT_OF_MEMORY or (end.kind, end.signal) == (EndKind.SIGNALLED, 9)
    found = await world.all()
    await attempt.remove()
    assert attempt.name in found


async def test_a_container_that_others_remove_is_lost(world, runtime):
    """What its program made of SIGTERM does not count: nobody of us ordered it."""
    attempt = await runtime.start(program(UNTIL_TERM))
    await until_up(attempt)
    async with open_engine(str(world.socket)) as engine:
        await engine.call("DELETE", f"/containers/{attempt.name}", query={"force": "1"})
    with anyio.fail_after(PATIENCE_S):
        end = await attempt.wait()
    assert end.kind is EndKind.LOST
    assert "gone" in end.reason


async def test_an_image_that_cannot_be_had(world):
    """The job's own is the job's fault; it is told with the engine's words, and no container is left."""
    async with world.runtime(PodPatience(image=0)) as runtime:
        assert await runtime.adopt() == ()
        with pytest.raises(ImageUnavailable, check=that(comes_from="pod.PodRuntime.start", names="127.0.0.1")):
            await runtime.start(program("pass", image="127.0.0.1:1/no/such:1"))
    assert not [name for name, each in (await world.all()).items() if each["Image"].startswith("127.0.0.1")]


async def test_an_image_without_an_interpreter(world):
    """It is refused as the job's, and does not close the worker."""
    async with world.runtime(containers=attrs.evolve(world.containers, shown=())) as runtime:
        assert await runtime.adopt() == ()
        with pytest.raises(ImageUnavailable, check=that(comes_from="pod.PodRuntime.start", names="StartError")):
            await runtime.start(program("pass", image=IMAGE))


async def test_a_program_that_is_not_there(runtime):
    """The supervisor says so: the container is well."""
    with pytest.raises(ProgramMissing):
        await runtime.start(AttemptSpec(facts(), argv=("/no/such/program",)))


async def test_a_start_that_is_withdrawn_leaves_nothing(world):
    """While the image is fetched for ever."""
    async with world.runtime(PodPatience(image=600 * SECOND)) as runtime:
        assert await runtime.adopt() == ()
        refused = []

        async def start():
            try:
                await runtime.start(program("pass", image="127.0.0.1:1/no/such:1"))
            except AttemptWithdrawn as error:
                refused.append(error)

        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(start)
                while "attempt-1" not in runtime._starting:  # noqa: ASYNC110 - it begins in another task
                    await anyio.sleep(0.01)
                runtime.withdraw("attempt-1")
        assert refused
        assert runtime.statistics().held == 0


async def test_what_workers_left_long_ago_is_removed(world, runtime):
    """A worker that was killed for good removes nothing; its containers are over, and another one does it later."""
    attempt = await runtime.start(program("pass"))
    await attempt.wait()
    other = attrs.evolve(world.owner, worker_id="w-1")
    async with open_docker_tasks(world.containers, other) as driver:
        assert await driver.tidy() == 0
        assert attempt.name in await world.all()
        assert await driver.tidy(datetime.now(UTC) + timedelta(hours=2)) >= 1
        assert attempt.name not in await world.all()


async def test_no_engine_is_a_named_error_at_the_start(tmp_path, world):
    """Before anything else."""
    nowhere = TaskContainers(image=IMAGE, socket=str(tmp_path / "nobody.sock"))
    with pytest.raises(Unavailable, check=that(names="Docker")):
        async with open_docker_tasks(nowhere, world.owner):
            raise AssertionError("it was opened")
