"""Attempts as pods, on a served simulation whose pods are real processes: the contract, adoption, ends from outside."""

import errno
import os
import signal
import sys
from pathlib import Path

import anyio
import attrs
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from pod_world import PATIENCE_S, PODS, SLEEPER, pod_world

from iriscw.cloud.kube.settings import SecretKey
from iriscw.cloud.model import Capacity, Unavailable
from iriscw.processes.contained import look
from iriscw.processes.ends import EndKind
from iriscw.processes.lease import NEVER_NS
from iriscw.task.environment import GangFacts
from iriscw.testing.conformance.task_runtime import TaskRuntimeConformance, facts
from iriscw.worker.ports import (
    AttemptSpec,
    AttemptWithdrawn,
    ImageUnavailable,
    NotFreezable,
    ProgramMissing,
    WorkerTrouble,
)
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
    """One loop for all tests: they share the cluster."""
    return "asyncio"


@pytest.fixture(scope="module")
async def cluster(tmp_path_factory):
    """A cluster with a node and a worker's pod."""
    async with pod_world(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture
def world(cluster):
    """The cluster, and a worker that begins anew."""
    before = cluster.pods
    yield cluster.next_life()
    cluster.pods = before


@pytest.fixture
async def runtime(world):
    """The worker's runtime, of which nothing was here before."""
    async with world.runtime() as made:
        assert await made.adopt() == ()
        yield made


class TestPodRuntime(TaskRuntimeConformance):
    """The public suite, on pods."""


def program(code, uid="attempt-1", **changes):
    """Return an attempt that runs a line of Python."""
    return AttemptSpec(facts(uid), argv=(sys.executable, "-I", "-S", "-c", code), **changes)


async def until_up(attempt):
    """Wait until the program's handler is in place; the supervisor's is since it has reported."""
    with anyio.fail_after(PATIENCE_S):
        while "up" not in await anyio.Path(attempt.stdout).read_text():  # noqa: ASYNC110 - a file has no event
            await anyio.sleep(0.01)


def supervisor_of(attempt):
    """Return the number of the process that is the first of an attempt's container."""
    order = os.fsencode(attempt.folder.path / "order.json")
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if order in words and any(word.endswith(b"tasks/supervisor.py") for word in words):
                return int(entry.name)
    raise AssertionError("the attempt has no supervisor")


def of(pod, world):
    """Tell whether a pod is of the worker's present life."""
    return pod["metadata"]["labels"]["iris-incarnation"] == world.owner.incarnation


def named(pods, attempt):
    """Tell whether an attempt has a pod."""
    return attempt.name in pods


async def test_an_attempts_environment(world, runtime):
    """The image's below the user's below ours; its address is its pod's own."""
    code = "import os; print(os.environ['FROM_THE_IMAGE'], os.environ['MINE'], os.environ['IRIS_JOB_ID'], sep='|')"
    also = "; print(os.environ['IRIS_ADVERTISE_HOST'], os.environ['IRIS_WORKDIR'] == os.getcwd(), sep='|')"
    also += "; print(os.environ['PYTHONUNBUFFERED'])"
    attempt = await runtime.start(program(code + also, environment={"MINE": "1", "IRIS_JOB_ID": "forged"}))
    assert (await attempt.wait()).succeeded
    first, second, unbuffered = (await anyio.Path(attempt.stdout).read_text()).splitlines()
    assert (first, unbuffered) == ("yes|1|/ada/j", "1")
    host, there = second.split("|")
    assert (host.startswith("127."), there) == (True, "True")  # what stands for the address of a pod
    assert host != "127.0.0.1"
    await attempt.remove()
    await world.until(lambda pods: not named(pods, attempt))


async def test_a_leader_of_a_gang_in_a_pod(world, runtime):
    """Others meet at its pod's own address, and that is what is reported; a member is told another one."""
    names = ("MASTER_ADDR", "MASTER_PORT", "JAX_COORDINATOR_ADDRESS", "IRIS_ADVERTISE_HOST")
    code = f"import os; print(*(os.environ[name] for name in {names}))"
    told = []
    for uid, place in (
        ("leads", GangFacts(0, 1, 0, 2, leads=True, leader_host="10.9.9.9", leader_port=20_000)),
        ("joins", GangFacts(0, 1, 1, 2, leader_host="10.0.0.1", leader_port=20_001)),
    ):
        spec = program(code, uid)
        attempt = await runtime.start(attrs.evolve(spec, facts=attrs.evolve(spec.facts, gang=place)))
        assert (await attempt.wait()).succeeded
        told.append([*(await anyio.Path(attempt.stdout).read_text()).split(), attempt.host])
        await attempt.remove()
    (master, port, coordinator, own, reported), (their_master, *_, other, also_reported) = told
    assert (master, port, coordinator, reported) == (own, "20000", f"{own}:20000", own)
    assert (their_master, also_reported) == ("10.0.0.1", other)


async def test_the_next_process_of_a_worker_takes_attempts_up(world):
    """Running ones, ended ones; nothing that never began; and no pod of theirs is a stray."""
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
        assert end.log_bytes == len("up\n")


async def test_a_worker_that_is_gone_takes_nothing_with_it_but_the_lease(world):
    """Attempts go on without it, and end with their lease: the next one finds them ended."""
    async with world.runtime() as first:
        attempt = await first.start(program(UNTIL_TERM))
        await until_up(attempt)
    assert look(attempt.folder.path, (), attempt.folder.work).ending is None
    async with world.runtime() as second:
        await second.hold(0)
        (found,) = await second.adopt()
        assert (await found.wait()).kind is EndKind.LEASE_OVER
        await second.hold(NEVER_NS)


async def test_a_pod_that_others_delete_is_a_loss(world, runtime):
    """Nobody of ours ordered it: it is no end of the program's own."""
    attempt = await runtime.start(program(UNTIL_TERM))
    await until_up(attempt)
    await world.objects.delete(f"{PODS}/{attempt.name}")
    end = await attempt.wait()
    assert end.kind is EndKind.LOST
    assert "ended by somebody else" in end.reason


async def test_a_container_that_is_killed_as_a_whole_is_a_loss(runtime):
    """Its supervisor wrote nothing; the API says that it is over."""
    attempt = await runtime.start(program(UNTIL_TERM))
    await until_up(attempt)
    os.kill(supervisor_of(attempt), signal.SIGKILL)
    end = await attempt.wait()
    assert end.kind is EndKind.LOST
    assert "exit code 137" in end.reason


async def test_what_does_not_heed_its_files_loses_its_pod(runtime, monkeypatch):
    """A supervisor that hangs: after the grace the pod is deleted, and that is a stop."""
    monkeypatch.setattr("iriscw.worker.runtimes.pod.STUCK_MARGIN_S", 0.1)
    attempt = await runtime.start(program(UNTIL_TERM))
    await until_up(attempt)
    os.kill(supervisor_of(attempt), signal.SIGSTOP)
    end = await attempt.stop(0)
    assert (end.kind, end.killed) == (EndKind.STOPPED, True)


async def test_not_started_is_not_failed(world, runtime):
    """A missing program, a node without room, an image that is none: by name, with the cloud's words."""
    with pytest.raises(ProgramMissing, check=that(comes_from="pod.PodRuntime.start", names="no-such-program")):
        await runtime.start(AttemptSpec(facts("no-program"), argv=("no-such-program",)))
    with pytest.raises(WorkerTrouble, check=that(comes_from="pod.PodRuntime.start", names="OutOfcpu")):
        await runtime.start(program("pass", "too-large", demand=Capacity(10_000_000)))
    with pytest.raises(ImageUnavailable, check=that(comes_from="model.check_image")):
        await runtime.start(program("pass", "no-image", image="two words"))
    assert await runtime.adopt() == ()
    await world.until(lambda pods: not any(of(each, world) for each in pods.values()))


async def test_one_that_is_freezable_gets_no_io_uring(world, runtime, monkeypatch):
    """Its supervisor puts the filter on; where the kernel takes none, that is what is said."""
    code = (
        "import ctypes, os; c = ctypes.CDLL(None, use_errno=True); c.syscall(425, 0, None); print(ctypes.get_errno())"
    )
    attempt = await runtime.start(program(code, freezable=True))
    assert (await attempt.wait()).succeeded
    assert await anyio.Path(attempt.stdout).read_text() == f"{errno.ENOSYS}\n"
    monkeypatch.setattr("iriscw.worker.runtimes.input_checks.FREEZABLE", bytes(8))
    with pytest.raises(NotFreezable, check=that(comes_from="pod.PodRuntime.start")):
        await runtime.start(program(code, "refused", freezable=True))


async def test_a_container_that_cannot_be_made_is_told_of(world):
    """A Secret that is not there: the attempt did not start, and nothing of it is left."""
    world.pods = attrs.evolve(world.pods, secrets={"KEY": SecretKey("absent", "key")})
    async with world.runtime() as lacking:
        assert await lacking.adopt() == ()
        with pytest.raises(WorkerTrouble, check=that(comes_from="pod.PodRuntime.start", names="StartError")):
            await lacking.start(program("pass", "no-secret"))
        assert await lacking.adopt() == ()
        await world.until(lambda pods: not any(of(each, world) for each in pods.values()))


class Sluggish:
    """A driver whose pods run, and do not come to the order that they are for."""

    def __init__(self, driver):
        self.driver, self.asked = driver, anyio.Event()

    def __getattr__(self, name):
        return getattr(self.driver, name)

    async def create(self, task):
        """Have a pod made that only waits."""
        made = await self.driver.create(attrs.evolve(task, command=tuple(SLEEPER)))
        self.asked.set()
        return made


async def test_a_start_that_takes_long_is_given_up_when_it_is_told_to(world):
    """Within moments, not after the half hour that a pod may take; its pod goes, and nothing of it is left."""
    async with world.runtime(wrapped=Sluggish) as runtime:
        await runtime.adopt()

        async def withdraw():
            await runtime.driver.asked.wait()
            runtime.withdraw("another")
            runtime.withdraw("attempt-1")

        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(withdraw)
                with pytest.raises(AttemptWithdrawn, check=that(names="attempt-1")):
                    await runtime.start(program("pass"))
        assert not list((world.life / "attempts").iterdir())
        assert runtime.statistics().held == 0
        await world.until(lambda pods: not any(of(each, world) for each in pods.values()))


class Deaf:
    """A driver whose answers to creations are lost; with ``late`` their requests are, too, until they are let go."""

    def __init__(self, driver, *, late):
        self.driver, self.late, self.waiting = driver, late, []

    def __getattr__(self, name):
        return getattr(self.driver, name)

    async def create(self, task):
        """Ask, or keep the request; say that nobody answered."""
        if self.late:
            self.waiting.append(task)
        else:
            await self.driver.create(task)
        raise Unavailable("no answer")


async def test_an_order_that_was_taken_counts_whoever_answered(world):
    """The request landed, its answer was lost: the pod runs, and so does the attempt, if it was quick enough."""

    class Slow(Deaf):
        async def create(self, task):
            await self.driver.create(task)
            with anyio.fail_after(PATIENCE_S):
                while not (world.cache / task.folder / "order.json.taken").exists():  # noqa: ASYNC110 - no event
                    await anyio.sleep(0.01)
            raise Unavailable("no answer")

    async with world.runtime(wrapped=lambda driver: Slow(driver, late=False)) as runtime:
        attempt = await runtime.start(program("print('up')"))
        assert (await attempt.wait()).succeeded


async def test_a_request_that_lands_late_starts_nothing(world):
    """The attempt did not start, and was said not to have: whatever comes later finds no order, and goes."""
    async with world.runtime(wrapped=lambda driver: Deaf(driver, late=True)) as runtime:
        await runtime.adopt()
        witness = world.life / "witness"
        with pytest.raises(WorkerTrouble, check=that(names="attempt-1")):
            await runtime.start(program(f"open({str(witness)!r}, 'w')"))
        (task,) = runtime.driver.waiting
        pod = await runtime.driver.driver.create(task)
        await world.until(lambda pods: pod.name not in pods)
        assert not witness.exists()
        assert runtime.statistics().held == 0
