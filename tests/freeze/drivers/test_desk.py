"""The desk that carries out what a freeze asks of this machine."""

import pytest

from iriscw.freeze.drivers.desk import Desk
from iriscw.freeze.effects import Look
from iriscw.freeze.model import (
    CriuAbility,
    CudaAbility,
    CudaState,
    CudaTask,
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
    assert (seen.tree.root, seen.cuda_tasks) == (ROOT, used)
    assert seen.gpus == ((GPU,) if used else ())
    assert ports.listed == len(used)
