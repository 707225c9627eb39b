"""Supervised programs that a real CRIU freezes come back with a grant, once; without one nothing of them runs."""

import sys
import time
from pathlib import Path

import anyio
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for test_supervisor

from test_supervisor import program, renew, until_text

from iriscw.freeze.drivers.criu.driver import CriuSwrk
from iriscw.freeze.drivers.identities import to_task
from iriscw.freeze.drivers.namespace import space
from iriscw.freeze.drivers.processes.driver import KernelProcesses
from iriscw.freeze.model import (
    CriuMissing,
    CriuOptions,
    CriuUnfit,
    DumpRequest,
    GuardRefused,
    RestoreRequest,
    RightsMissing,
)
from iriscw.processes.grants import Grant, GrantStanding, offer, owner_of, standing_of, withdraw
from iriscw.processes.lease import NEVER_NS, LeaseFile
from iriscw.processes.status import read_end, read_identity
from iriscw.processes.supervised import Supervised, adopt, launch
from raised import that

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0
PATIENCE_NS = 60_000_000_000
MARKER = "IRIS_ATTEMPT_UID"

COUNTING = """
import os, time
number = 0
while True:
    number += 1
    os.write(1, b"%d\\n" % number)
    time.sleep(0.005)
"""


class Frozen:
    """A counting program under a supervisor, and its images."""

    def __init__(self, folder: Path, criu: CriuSwrk, asked, running: Supervised) -> None:
        self.folder = folder
        self.criu = criu
        self.processes = KernelProcesses()
        self.asked = asked
        self.running = running
        self.pids: tuple[int, ...] = ()
        self.images = 0
        self.thaws = 0
        self.made = ()

    async def freeze(self) -> None:
        """Freeze it whole; nothing of it runs when this returns."""
        self.images += 1
        at = self.folder / f"frozen-{self.images}"
        (at / "images").mkdir(parents=True)
        (at / "work").mkdir()
        root = to_task(self.running.supervisor)
        request = DumpRequest("freeze", root, str(at / "images"), str(at / "work"), CriuOptions(), PATIENCE_NS)
        held = await self.criu.dump(request, lambda _: None)
        self.pids = tuple(map(space.number_inside, held.tasks))
        await held.end(PATIENCE_NS)
        await self.running.wait()
        with anyio.fail_after(PATIENCE_S):
            while await self.processes.taken(self.pids):  # noqa: ASYNC110  # there is no event
                await anyio.sleep(0.01)

    async def restore(self, images: int = 0, *, inside: bool = False):
        """Bring it back, stopped, in a PID namespace of its own or not; give its tasks, the supervisor first."""
        self.thaws += 1
        work = self.folder / f"thaw-{self.thaws}"
        work.mkdir()
        ticks = await self.processes.ticks()
        at = self.folder / f"frozen-{images or self.images}" / "images"
        request = RestoreRequest(
            "thaw", str(at), str(work), CriuOptions(), self.pids, ticks, PATIENCE_NS, new_pid_namespace=inside
        )
        self.made = (await self.criu.restore(request, lambda _: None)).tasks
        return self.made

    async def thaw(self, images: int = 0, *, inside: bool = False) -> None:
        """Bring it back and let it run as an agent does: the supervisor first.

        Raises:
            GuardRefused: it had no grant.
        """
        tasks = await self.restore(images, inside=inside)
        await self.processes.vouched(tasks, str(self.asked.folder), PATIENCE_NS)
        await self.processes.proceed(tasks)
        self.running = await adopt(self.asked.folder, self.running.markers)

    def count(self) -> int:
        """Return how far it has counted."""
        return int(self.asked.stdout.read_bytes().rpartition(b"\n")[0].rpartition(b"\n")[2] or 0)

    async def counts_on(self) -> None:
        """Wait until it has counted further; no number was left out or written twice."""
        before = self.count()
        with anyio.fail_after(PATIENCE_S):
            while self.count() <= before:  # noqa: ASYNC110  # a file has no event
                await anyio.sleep(0.01)
        numbers = [int(line) for line in self.asked.stdout.read_bytes().split(b"\n")[:-1]]
        assert numbers == [*range(1, len(numbers) + 1)]


def supervisor_clock(pid: int) -> int:
    """Return how far the clock of a process is ahead of the machine's, in whole seconds: below 0 after a thaw."""
    offsets = Path(f"/proc/{pid}/timens_offsets").read_text().split()
    return int(offsets[offsets.index("monotonic") + 1])


@pytest.fixture
async def frozen(tmp_path: Path):
    """A counting program with a lease, frozen."""
    criu = CriuSwrk()
    try:
        await criu.ability()
    except (CriuMissing, CriuUnfit, RightsMissing) as error:
        pytest.skip(f"{type(error).__name__}: {error}")
    (tmp_path / "old").mkdir()
    lease = LeaseFile(tmp_path / "old" / "lease")
    renew(lease, NEVER_NS)
    asked = program(tmp_path, COUNTING, lease=lease.path)
    made = Frozen(tmp_path, criu, asked, await launch(asked))
    await until_text(asked.stdout, "3\n")
    await made.freeze()
    yield made
    lease.close()
    await made.processes.end(made.made, PATIENCE_NS)


@pytest.fixture
def lease(tmp_path: Path):
    """The lease of the next owner."""
    (tmp_path / "new").mkdir()
    lease = LeaseFile(tmp_path / "new" / "lease")
    renew(lease, NEVER_NS)
    yield lease
    lease.close()


async def test_a_program_goes_on_under_the_next_owner(frozen: Frozen, lease: LeaseFile) -> None:
    """The old owner's lease ended and is gone with its folder; the log goes on, and the new lease is what counts."""
    before = frozen.running.supervisor
    log_bytes = frozen.asked.stdout.stat().st_size
    (frozen.folder / "old" / "lease").unlink()
    (frozen.folder / "old").rmdir()
    offer(frozen.asked.folder, Grant("thaw-1", "next", lease.path))
    await frozen.thaw()
    assert frozen.running.supervisor.pid == before.pid
    assert frozen.running.supervisor.start_ticks > before.start_ticks
    assert supervisor_clock(before.pid) < 0, "its clock goes on where it stood, and its lease by the machine's"
    assert standing_of(frozen.asked.folder, "thaw-1") is GrantStanding.TAKEN
    await frozen.counts_on()
    assert frozen.asked.stdout.stat().st_size > log_bytes
    renew(lease, 1)
    frozen.running.look_at_lease()
    with anyio.fail_after(PATIENCE_S):
        ending = await frozen.running.wait()
    assert (ending.lease_over, ending.killed) == (True, True)


async def test_it_is_stopped_and_frozen_again_as_any_other(frozen: Frozen, lease: LeaseFile) -> None:
    """What came back once is frozen, brought back with another grant, and ends when it is told to."""
    offer(frozen.asked.folder, Grant("thaw-1", "next", lease.path))
    await frozen.thaw()
    await frozen.counts_on()
    await frozen.freeze()
    offer(frozen.asked.folder, Grant("thaw-2", "third", lease.path))
    await frozen.thaw()
    await frozen.counts_on()
    assert owner_of(frozen.asked.folder) == "third"
    with anyio.fail_after(PATIENCE_S):
        ending = await frozen.running.stop(0)
    assert (ending.stopped, ending.lease_over) == (True, False)


async def test_others_may_have_its_numbers(frozen: Frozen, lease: LeaseFile) -> None:
    """In a PID namespace of its own it has them all the same, and is named by others; then it is frozen again."""
    numbers = frozen.pids
    offer(frozen.asked.folder, Grant("thaw-1", "next", lease.path))
    await frozen.thaw(inside=True)
    await frozen.counts_on()
    named = (frozen.running.supervisor, frozen.running.target)
    assert [to_task(each) for each in named] == [*frozen.made]
    assert not {*numbers} & {each.pid for each in named}
    assert await frozen.processes.guard(to_task(frozen.running.supervisor)) == str(frozen.asked.folder)
    await frozen.freeze()
    assert frozen.pids == numbers
    offer(frozen.asked.folder, Grant("thaw-2", "third", lease.path))
    await frozen.thaw(inside=True)
    await frozen.counts_on()
    with anyio.fail_after(PATIENCE_S):
        ending = await frozen.running.stop(0)
    assert (ending.stopped, ending.lease_over) == (True, False)
    assert await frozen.processes.living(frozen.made) == ()


@pytest.mark.parametrize("given_up", [False, True])
async def test_without_a_grant_nothing_of_it_runs(frozen: Frozen, lease: LeaseFile, given_up: bool) -> None:
    """Never granted, or given up before: the program has not run when its supervisor ends, which touches nothing."""
    if given_up:
        offer(frozen.asked.folder, Grant("thaw-1", "next", lease.path))
        assert withdraw(frozen.asked.folder, "thaw-1") is GrantStanding.WITHDRAWN
    log, identity = frozen.asked.stdout.read_bytes(), read_identity(frozen.asked.folder)
    with pytest.raises(GuardRefused, check=that(comes_from="driver.KernelProcesses.vouched")):
        await frozen.thaw()
    assert await frozen.processes.living(frozen.made) == ()
    assert frozen.asked.stdout.read_bytes() == log
    assert read_identity(frozen.asked.folder) == identity
    assert read_end(frozen.asked.folder) is None


async def test_it_comes_back_once(frozen: Frozen, lease: LeaseFile) -> None:
    """A second thaw of the same images, when the first one has ended: its grant is spent, and its end stands."""
    offer(frozen.asked.folder, Grant("thaw-1", "next", lease.path))
    offer(frozen.asked.folder, Grant("thaw-1", "next", lease.path))  # once more, as after a crash
    await frozen.thaw()
    await frozen.counts_on()
    await frozen.freeze()  # images again, and of a life that took its grant
    log = frozen.asked.stdout.read_bytes()
    with pytest.raises(GuardRefused, check=that(comes_from="driver.KernelProcesses.vouched")):
        await frozen.thaw()
    assert offer(frozen.asked.folder, Grant("thaw-1", "next", lease.path)) is GrantStanding.TAKEN
    assert not (frozen.asked.folder / "grant.json").exists()
    assert frozen.asked.stdout.read_bytes() == log


async def test_a_grant_whose_lease_is_over_ends_it(frozen: Frozen, lease: LeaseFile) -> None:
    """The next owner had lost its contact meanwhile: the program is told to have ended so, and never ran."""
    renew(lease, time.monotonic_ns())
    log = frozen.asked.stdout.read_bytes()
    offer(frozen.asked.folder, Grant("thaw-1", "next", lease.path))
    tasks = await frozen.restore()
    await frozen.processes.vouched(tasks, str(frozen.asked.folder), PATIENCE_NS)
    running = await adopt(frozen.asked.folder, frozen.running.markers)
    with anyio.fail_after(PATIENCE_S):
        ending = await running.wait()
    assert (ending.lease_over, ending.stopped) == (True, True)
    assert frozen.asked.stdout.read_bytes() == log
