"""The desk that carries out what a freeze asks of this machine."""

import contextlib

import pytest

from iriscw.freeze.drivers.desk import Desk
from iriscw.freeze.effects import Dump, Look
from iriscw.freeze.model import (
    CriuAbility,
    CriuFailed,
    CriuOptions,
    CudaAbility,
    CudaState,
    CudaTask,
    DumpReport,
    DumpRequest,
    FreeMemory,
    Gpu,
    Host,
    Task,
    TaskIdentity,
    Tree,
)

ROOT = TaskIdentity(2, 3, "boot")
USED = CudaTask(ROOT, CudaState.RUNNING, restore_thread=2, device_bytes=1)
GPU = Gpu("GPU-1", "H100", 0, 1 << 30, 0)


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
        return Host("boot", "x86_64", 4096, "6.18", "node")

    async def tree(self, root):
        return Tree((Task(root, 1, "python", 1 << 20),))

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


class Dumping:
    """What a dump needs: who is to be frozen, a CRIU that may fail, and who reads beside it."""

    def __init__(self, error=None):
        self.error = error
        self.said = []

    async def tree(self, root):
        return Tree((Task(root, 1, "python", 1 << 20),))

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
