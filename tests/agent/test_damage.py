"""A damaged checkpoint never comes to CRIU: the whole way of a thaw, over real folders, with a CRIU that counts."""

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "checkpoint"))  # for artifacts

from artifacts import FROZEN, fill

from iriscw.agent.local import Local, Machine, tiers_below
from iriscw.checkpoint.drivers.store import default_reading
from iriscw.freeze.drivers.processes.driver import KernelProcesses
from iriscw.freeze.messages import ThawTree
from iriscw.freeze.model import CriuAbility, CriuFailed, CudaAbility, Outcome, ThawPlan

pytestmark = pytest.mark.usefixtures("claims_of_ours")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Processes(KernelProcesses):
    """The machine on which the tree was frozen, and its numbers are free."""

    async def host(self):
        return FROZEN.host

    async def taken(self, pids):
        return ()


class CountingCriu:
    """A CRIU that brings nothing back, and counts how often it is asked."""

    def __init__(self) -> None:
        self.restores = 0

    async def ability(self):
        return CriuAbility("criu", "4.2")

    async def restore(self, request, report, pages=None):
        self.restores += 1
        raise CriuFailed("it does nothing")

    async def sweep(self, request):
        return ()


class NoCuda:
    """No driver."""

    async def ability(self):
        return CudaAbility(False)


@pytest.mark.anyio
async def test_damage_is_found_before_criu_is_asked(tmp_path) -> None:
    """A bit, a truncation, a file too many: each is named, CRIU is not started, and the checkpoint is not pinned."""
    tiers = tiers_below(tmp_path, folders={"ram": tmp_path / "memory"})
    disk = tiers.folders["disk"]
    fill(disk.reserve("ck-1", 1 << 20), large=False)
    disk.seal("ck-1", FROZEN, (), default_reading(lambda count: None), lambda size: None)
    disk.publish("ck-1")
    disk.unpin("ck-1", "ck-1")
    criu = CountingCriu()
    local = Local(tmp_path, Machine(Processes(), criu, NoCuda(), None, None, tiers))
    place = disk.root / "artifacts" / "ck-1"
    rng = random.Random(5)
    for number, path in enumerate(sorted(path for path in place.rglob("*") if path.is_file())):
        whole = path.read_bytes()
        at = rng.randrange(len(whole)) if whole else 0
        flipped = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] if whole else b"\0"
        path.write_bytes(flipped if number % 2 else whole[:-1] or b"\0")
        end = await local.run(ThawTree(ThawPlan(f"th-{number}", "ck-1")))
        assert (end.outcome, end.kind) == (Outcome.FAILED, "ArtifactRefused"), path.name
        path.write_bytes(whole)
    assert criu.restores == 0
    assert disk.listing()[0].pinned_by == ()
    end = await local.run(ThawTree(ThawPlan("th-whole", "ck-1")))
    assert (end.outcome, end.kind, criu.restores) == (Outcome.FAILED, "CriuFailed", 1)
