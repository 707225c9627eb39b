"""The desk that carries out what a freeze asks of this machine."""

import contextlib

import anyio
import pytest

from iriscw.freeze.drivers.desk import Desk
from iriscw.freeze.effects import Dump, Look, OpenArtifact, ReadStates
from iriscw.freeze.model import (
    CriuAbility,
    CriuFailed,
    CriuOptions,
    CudaAbility,
    CudaOverdue,
    CudaRefused,
    CudaState,
    CudaTask,
    DumpReport,
    DumpRequest,
    FreeMemory,
    FrozenTree,
    ImageHost,
    Kept,
    NvmlGpu,
    ProcessTree,
    Room,
    Sealed,
    TaskIdentity,
    TreeProcess,
)
from iriscw.freeze.traits import Traits
from raised import that

PATIENCE_S = 60.0
ROOT = TaskIdentity(2, 3, "boot")
USED = CudaTask(ROOT, CudaState.RUNNING, restore_thread=2, device_bytes=1)
GPU = NvmlGpu("GPU-1", "H100", 0, 1 << 30, 0)


@pytest.fixture
def anyio_backend() -> str:
    """Run on asyncio."""
    return "asyncio"


class Ports:
    """All that a look needs, of a tree that uses CUDA or does not; it counts how often the GPUs are listed."""

    def __init__(self, used):
        self.used = used
        self.listed = 0

    async def host(self):
        return ImageHost("boot", "x86_64", 4096, "6.18", "node")

    async def tree(self, root, *, closely=False):
        return ProcessTree((TreeProcess(root, 1, "python", 1 << 20),))

    async def tasks(self, identities, within_ns):
        return self.used

    async def guard(self, root):
        return "/attempt"

    async def free_memory(self, root):
        return FreeMemory(1 << 30)

    async def promised(self, tier):
        return 0

    async def list(self):
        self.listed += 1
        return (GPU,)


class Able:
    """What CRIU and the driver can."""

    def __init__(self, ability, ports):
        self._ability = ability
        self.tasks = ports.tasks

    async def ability(self):
        return self._ability


@pytest.mark.parametrize("used", [(), (USED,)])
async def test_gpus_are_listed_where_they_are_used(used):
    """NVML is asked by a process of its own, which takes longer than the rest: only where the tree has a GPU."""
    ports = Ports(used)
    criu, cuda = Able(CriuAbility("criu", "4.2"), ports), Able(CudaAbility(available=True), ports)
    seen = await Desk(ports, criu, cuda, ports, None, ports).look(Look(ROOT, "ram", 1))
    assert (seen.tree.root, seen.cuda_tasks, seen.guard) == (ROOT, used, "/attempt")
    assert seen.gpus == ((GPU,) if used else ())
    assert ports.listed == len(used)


class Asked:
    """Processes of a machine: it keeps what it is asked for, and gives nothing back."""

    def __init__(self):
        self.about = {}

    def __getattr__(self, name):
        async def ask(*about):
            self.about[name] = about
            return ()

        return ask


class Shelf:
    """One artifact."""

    def __init__(self, kept):
        self.kept = kept

    async def pin(self, artifact, operation):
        return self.kept


async def test_what_a_thaw_looks_for_on_its_machine():
    """Numbers of threads beside those of processes, who came back beside who was frozen, memory where it lands."""
    back = TaskIdentity(7, 8, "boot")
    task = TreeProcess(ROOT, 1, "python", 1 << 20, inner_pid=20, traits=Traits(threads=(21, 22)))
    host, ability = ImageHost("boot", "x86_64", 4096, "6.18", "node"), CriuAbility("criu", "4.2")
    frozen = FrozenTree(host, ability, CriuOptions(), (task,), group="/sys/fs/cgroup/box")
    shelf, asked = Shelf(Kept(frozen, Room("/i", "/w"), Sealed(1, "d", 1), returned=(back,))), Asked()
    able = Able(ability, Ports(()))
    await Desk(asked, able, able, None, None, shelf).open(OpenArtifact("ck-1", "op-1", 1))
    assert asked.about["taken"] == ([20, 21, 22],)
    assert asked.about["living"] == ((ROOT, back),)
    assert asked.about["free_memory_bytes"] == ("/sys/fs/cgroup/box",)


class Dumping:
    """What a dump needs: who is to be frozen, a CRIU that may fail, and who reads beside it."""

    def __init__(self, error=None):
        self.error = error
        self.said = []

    async def tree(self, root, *, closely=False):
        return ProcessTree((TreeProcess(root, 1, "python", 1 << 20),))

    async def members(self, root):
        return {root: False}

    async def ability(self):
        return CudaAbility(available=False)

    async def dump(self, request, report):
        self.said.append("dump")
        if self.error is not None:
            raise self.error
        return self

    report = DumpReport()

    @contextlib.contextmanager
    def following(self, operation, images):
        self.said.append(f"follow {operation} in {images}")
        try:
            yield
        finally:
            self.said.append("stop")


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("error", [None, CriuFailed("it did not")])
async def test_images_are_read_beside_criu_where_the_tree_waits_for_that(ends, error):
    """A tree that is to run on is held for as long as CRIU takes, so nobody takes processors from that."""
    ports = Dumping(error)
    desk = Desk(ports, ports, ports, ports, None, ports)
    effect = Dump(DumpRequest("op-1", ROOT, "/images", "/work", CriuOptions(), 1), ends=ends)
    if error is None:
        await desk.dump(effect)
    else:
        with pytest.raises(CriuFailed):
            await desk.dump(effect)
    assert ports.said == (["follow op-1 in /images", "dump", "stop"] if ends else ["dump"])


class Gpus:
    """GPUs that tell who uses them, or cannot be looked at."""

    def __init__(self, used=None):
        self.used = used

    async def used_by(self, pids):
        if self.used is None:
            raise CudaRefused("NVML is not there")
        return self.used


class Driver:
    """A driver that knows of these users of CUDA, and does not answer about some while others are asked about."""

    def __init__(self, users=(), silent=()):
        self.users, self.silent = users, silent
        self.asked = []
        self.all_asked = anyio.Event()

    async def ability(self):
        return CudaAbility(available=True)

    async def tasks(self, identities, within_ns):
        return self.users

    async def state(self, task, within_ns):
        self.asked.append(task)
        if len(self.asked) == 3:
            self.all_asked.set()
        await self.all_asked.wait()  # would wait for ever if they were asked one after the other
        if task in self.silent:
            raise CudaOverdue("no answer")
        return CudaState.LOCKED


async def test_states_are_read_at_the_same_time():
    """One that is not answered holds up no other, and is told as not known."""
    tasks = tuple(TaskIdentity(pid, 1, "b") for pid in (2, 3, 4))

    class Living:
        async def living(self, asked):
            return asked

    desk = Desk(Living(), None, Driver(silent=tasks[:1]), None, None, None)
    with anyio.fail_after(PATIENCE_S):
        states = await desk.read_states(ReadStates(tasks, tasks, 1))
    assert states.cuda == ((tasks[0], None), (tasks[1], CudaState.LOCKED), (tasks[2], CudaState.LOCKED))


async def test_gpus_that_cannot_be_looked_at_matter_to_who_uses_them():
    """A tree without CUDA is frozen all the same; of one with CUDA it must be known that nobody else of it began."""
    request = DumpRequest("ck-1", ROOT, "/i", "/w", CriuOptions(), 1)
    for users, gpus, found in (((), Gpus(), ()), ((USED,), Gpus({}), (USED,))):
        ports = Dumping()
        dumped = await Desk(ports, ports, Driver(users), gpus, None, ports).dump(Dump(request))
        assert dumped.cuda_tasks == found
    ports = Dumping()
    (stranger,) = (
        await Desk(ports, ports, Driver(), Gpus({ROOT.pid: {"GPU-1": 5}}), None, ports).dump(Dump(request))
    ).cuda_tasks
    assert (stranger.identity, stranger.device_bytes, stranger.by_gpu) == (ROOT, 5, {"GPU-1": 5})
    with pytest.raises(CudaRefused, check=that(names="NVML")):
        await Desk(ports, ports, Driver((USED,)), Gpus(), None, ports).dump(Dump(request))
