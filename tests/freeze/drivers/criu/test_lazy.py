# ruff: noqa: ASYNC221
# A test's own loop may block: nobody else waits for it.
"""A real tree that runs while its pages come: it is whole, whatever it does meanwhile, or nothing of it is left."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import anyio
import attrs
import pytest

from iriscw.freeze.drivers.criu import driver as driver_module
from iriscw.freeze.drivers.criu.driver import CriuSwrk
from iriscw.freeze.drivers.identities import lives, to_task
from iriscw.freeze.drivers.paging import starting
from iriscw.freeze.drivers.paging.notes import COMPLETE, read_end, read_pager
from iriscw.freeze.model import (
    ArtifactRefused,
    CriuFailed,
    LazyPages,
    PageFile,
    PagingFailed,
    RestoreRequest,
    SweepRequest,
    UnsafeRequest,
)
from iriscw.freeze.traits import Obstacle
from iriscw.processes.identity import read_stat
from raised import that

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0
PATIENCE_NS = 60_000_000_000
PIECE = 1 << 16
"""So that many pieces come one after the other."""


def nothing(progress) -> None:
    """Take progress."""


def pages_of(images: Path, piece_bytes: int = PIECE) -> LazyPages:
    """Return each piece of all files of pages a digest, as a manifest has them."""
    files = []
    for path in sorted(images.glob("pages-*.img")):
        data = path.read_bytes()
        pieces = [data[at : at + piece_bytes] for at in range(0, len(data), piece_bytes)]
        digests = b"".join(hashlib.sha256(piece).digest() for piece in pieces)
        files.append(PageFile(path.name, len(data), digests))
    return LazyPages("sha256-8m", piece_bytes, tuple(files))


class Lazy:
    """A frozen program, and what is asked for to bring it back lazily."""

    def __init__(self, target, request: RestoreRequest, pages: LazyPages) -> None:
        self.target, self.request, self.pages = target, request, pages
        self.work = Path(request.work)
        self.images = Path(request.images)

    @property
    def pager(self):
        """Who brings its pages."""
        return read_pager(self.work)

    def biggest(self) -> Path:
        """The file with most of its memory."""
        return max(self.images.glob("pages-*.img"), key=lambda path: path.stat().st_size)

    async def nothing_is_left(self, processes) -> None:
        """Neither the tree, nor who brought its pages; and its numbers are free."""
        record = self.pager
        with anyio.fail_after(PATIENCE_S):
            for each in (record.pager, *record.tasks) if record is not None else ():
                while lives(to_task(each)):  # noqa: ASYNC110  # the kernel takes a while to end what was killed
                    await anyio.sleep(0.01)
            while under(self.work):  # noqa: ASYNC110  # likewise: a guard that had nothing to guard yet ends by itself
                await anyio.sleep(0.01)
            while await processes.taken(self.request.pids):  # noqa: ASYNC110  # there is no event
                await anyio.sleep(0.01)


@pytest.fixture
async def frozen(criu, processes, program):
    """Yield a function that freezes a program and says what a lazy restore of it asks for."""
    if "uffd-noncoop" not in (await criu.ability()).features:
        pytest.skip("this kernel has no userfaultfd with its events")
    made = []

    async def freeze(*features: str, piece_bytes: int = PIECE, **changes) -> Lazy:
        target = program(*features)
        held = await criu.dump(target.dump(), nothing)
        pids = tuple(task.pid for task in held.tasks)
        await held.end(PATIENCE_NS)
        target.reap()
        with anyio.fail_after(PATIENCE_S):
            while await processes.taken(pids):  # noqa: ASYNC110  # there is no event
                await anyio.sleep(0.01)
        request = target.restore(pids, await processes.ticks())
        request = attrs.evolve(request, **{"lazy": True, "paging_ns": PATIENCE_NS, **changes})
        made.append(Lazy(target, request, pages_of(Path(request.images), piece_bytes)))
        return made[-1]

    yield freeze
    for each in made:
        await processes.end([to_task(task) for task in each.pager.tasks] if each.pager else [], PATIENCE_NS)
        await starting.end_pager(each.work)


async def thawed(criu, processes, lazy: Lazy):
    """Bring it back and let it run."""
    report = await criu.restore(lazy.request, nothing, lazy.pages)
    lazy.target.restored = report.tasks
    await processes.proceed(report.tasks)
    return report


@pytest.fixture
def halted(monkeypatch):
    """Have who brings the pages stand still from the moment in which it has the spaces of all tasks that CRIU made."""

    def write_run(work, run) -> None:
        real(work, run)
        if run.restore and run.tasks:
            end_s = time.monotonic() + PATIENCE_S
            while len(read_pager(work).tasks) < len(run.tasks) and time.monotonic() < end_s:
                time.sleep(0.001)  # nobody is told
            os.kill(read_pager(work).pager.pid, signal.SIGSTOP)

    real = driver_module.write_run
    monkeypatch.setattr(driver_module, "write_run", write_run)


def go_on(lazy: Lazy) -> None:
    """Let who brings the pages go on."""
    os.kill(lazy.pager.pager.pid, signal.SIGCONT)


async def test_half_a_gigabyte_goes_on_before_it_is_there(criu, processes, frozen) -> None:
    """Most of its memory is not read when it comes back; all of it is as it was, and who brought it has ended."""
    lazy = await frozen("memory", "huge", piece_bytes=8 << 20)
    report = await thawed(criu, processes, lazy)
    assert report.pages_restored * 4096 < lazy.biggest().stat().st_size // 10
    state = await lazy.target.ask()
    assert (state["memory"]["count"], state["huge"]) == (1, {"intact": True})
    await criu.paging(lazy.request.work, PATIENCE_NS, nothing)
    await criu.paging(lazy.request.work, PATIENCE_NS, nothing)
    assert not lives(to_task(lazy.pager.pager))
    assert not lives(to_task(lazy.pager.guard))
    assert (await lazy.target.ask())["memory"]["count"] == 2


@pytest.mark.parametrize("number", range(3))
async def test_a_program_may_do_with_its_memory_what_it_likes(criu, processes, frozen, number) -> None:
    """It gives up, moves, unmaps and forks while its pages come, and finds everything as without us."""
    lazy = await frozen("shifting", "large", "threads")
    await thawed(criu, processes, lazy)
    for _ in range(2):
        state = await lazy.target.ask()
        assert state["shifting"].pop("child") == 0
        assert {*state["shifting"].values()} == {True}
        assert state["large"] == {"intact": True}
    await criu.paging(lazy.request.work, PATIENCE_NS, nothing)


async def test_a_tree_with_shared_memory_goes_on(criu, processes, frozen) -> None:
    """Sixty processes, and memory that is shared, which CRIU reads by itself and is compared before."""
    lazy = await frozen("memfd", "family", "epoll", "unix")
    report = await thawed(criu, processes, lazy)
    assert len(report.tasks) > 50
    state = await lazy.target.ask()
    assert len(state["family"]["answers"]) == 49
    await criu.paging(lazy.request.work, PATIENCE_NS, nothing)
    assert len((await lazy.target.ask())["family"]["answers"]) == 49


async def test_a_piece_that_is_damaged_ends_the_tree_and_is_not_given_out(criu, processes, frozen, halted) -> None:
    """The byte changes when the tree runs already: it is found, nothing of the piece gets to the tree, which ends."""
    lazy = await frozen("memory", "large")
    report = await thawed(criu, processes, lazy)
    path = lazy.biggest()
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    go_on(lazy)
    with pytest.raises(ArtifactRefused, check=that(comes_from="starting.all_there", names=path.name)):
        await criu.paging(lazy.request.work, PATIENCE_NS, nothing)
    assert not any(map(lives, report.tasks))
    await lazy.nothing_is_left(processes)


async def test_pages_that_are_cut_off_while_it_runs_end_the_tree(criu, processes, frozen, halted) -> None:
    """CRIU would wait for ever: here it is an error with a name."""
    lazy = await frozen("memory", "large")
    await thawed(criu, processes, lazy)
    os.truncate(lazy.biggest(), PIECE)
    go_on(lazy)
    with pytest.raises(ArtifactRefused, check=that(comes_from="starting.all_there")):
        await criu.paging(lazy.request.work, PATIENCE_NS, nothing)
    await lazy.nothing_is_left(processes)


@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
async def test_what_criu_itself_reads_is_compared_before_it_is_asked(criu, processes, frozen, damage) -> None:
    """Every piece is damaged: CRIU is never asked."""
    lazy = await frozen("memory")
    for path in lazy.images.glob("pages-*.img"):
        data = path.read_bytes()
        if damage == "gone":
            path.unlink()
        else:
            path.write_bytes(data[:-4096] if damage == "cut" else bytes(len(data)))
    with pytest.raises(ArtifactRefused, check=that(comes_from="starting.StartedPager._says", names="pages-")):
        await criu.restore(lazy.request, nothing, lazy.pages)
    assert not (lazy.work / "restore.log").exists()
    await lazy.nothing_is_left(processes)


async def test_a_pager_that_is_killed_takes_the_tree_with_it(criu, processes, frozen, halted) -> None:
    """With all its group: its guard has the tree wait, and kills it. No empty page is given out for a missing one."""
    lazy = await frozen("memory", "threads", "large")
    report = await thawed(criu, processes, lazy)
    seen = await processes.tree(report.tasks[0])
    assert Obstacle.PAGES in [each.obstacle for each in seen.hindrances]  # who freezes it now would get empty pages
    os.killpg(lazy.pager.pager.pid, signal.SIGKILL)
    with pytest.raises(PagingFailed, check=that(comes_from="starting.all_there")):
        await criu.paging(lazy.request.work, PATIENCE_NS, nothing)
    assert not any(map(lives, report.tasks))
    await lazy.nothing_is_left(processes)


@pytest.mark.parametrize("fails", [False, True])
async def test_a_guard_that_is_killed_is_not_missed(criu, processes, frozen, halted, fails) -> None:
    """The pager goes on, with another one; and where it fails then, it does the guard's work."""
    lazy = await frozen("memory", "large")
    await thawed(criu, processes, lazy)
    killed = lazy.pager.guard
    os.kill(killed.pid, signal.SIGKILL)
    if fails:
        os.truncate(lazy.biggest(), PIECE)
    go_on(lazy)
    if fails:
        with pytest.raises(ArtifactRefused, check=that(comes_from="starting.all_there")):
            await criu.paging(lazy.request.work, PATIENCE_NS, nothing)
        await lazy.nothing_is_left(processes)
    else:
        await criu.paging(lazy.request.work, PATIENCE_NS, nothing)
        assert (await lazy.target.ask())["large"] == {"intact": True}
        assert lazy.pager.guard != killed


async def test_pages_have_a_deadline(criu, processes, frozen, halted) -> None:
    """When it has passed the tree is killed, and that is said."""
    lazy = await frozen("memory", "large", paging_ns=1)
    await thawed(criu, processes, lazy)
    go_on(lazy)
    with pytest.raises(PagingFailed, check=that(comes_from="starting.all_there")):
        await criu.paging(lazy.request.work, PATIENCE_NS, nothing)
    await lazy.nothing_is_left(processes)


async def test_who_waits_has_a_deadline_of_its_own(criu, processes, frozen, halted) -> None:
    """A pager that stands still ends nothing by itself; a sweep ends the tree, what it forked, and then the pager."""
    lazy = await frozen("memory", "large")
    await thawed(criu, processes, lazy)
    with pytest.raises(PagingFailed, check=that(comes_from="starting.all_there")):
        await criu.paging(lazy.request.work, 1, nothing)
    sweep = SweepRequest("thaw-1", lazy.request.work, lazy.request.pids, lazy.request.started_after)
    assert await criu.sweep(sweep) == lazy.target.restored
    await lazy.nothing_is_left(processes)


async def test_criu_killed_while_it_restores_leaves_neither(criu, processes, frozen, monkeypatch) -> None:
    """Its socket closes before it said that it was done."""

    def write_run(work, run) -> None:
        real(work, run)
        if run.restore and run.tasks:
            os.kill(run.criu.pid, signal.SIGKILL)

    real = driver_module.write_run
    monkeypatch.setattr(driver_module, "write_run", write_run)
    lazy = await frozen("memory", "large")
    with pytest.raises((CriuFailed, PagingFailed)):
        await criu.restore(lazy.request, nothing, lazy.pages)
    await lazy.nothing_is_left(processes)


async def test_a_pager_killed_while_criu_restores_leaves_neither(criu, processes, frozen, monkeypatch) -> None:
    """CRIU may wait for pages for ever: it is not waited for. Where it needed none, the pages are missed afterwards."""

    def write_run(work, run) -> None:
        real(work, run)
        if run.restore and run.tasks:
            os.kill(read_pager(work).pager.pid, signal.SIGKILL)

    real = driver_module.write_run
    monkeypatch.setattr(driver_module, "write_run", write_run)
    lazy = await frozen("memory", "large")

    async def bring_back() -> None:
        await criu.restore(lazy.request, nothing, lazy.pages)
        await criu.paging(lazy.request.work, PATIENCE_NS, nothing)

    with pytest.raises(PagingFailed, check=that(comes_from="driver._restore")):
        await bring_back()
    await lazy.nothing_is_left(processes)


async def test_a_pager_that_ends_before_it_is_guarded_ends_the_restore(criu, processes, frozen, monkeypatch):
    """CRIU is at work by then: nothing of what it brings back is let run, and nothing of it is left."""
    lazy = await frozen("memory")

    async def ready(pager) -> None:
        await real(pager)
        pager._process.kill()

    real = starting.StartedPager.ready
    monkeypatch.setattr(starting.StartedPager, "ready", ready)
    with pytest.raises(PagingFailed):
        await criu.restore(lazy.request, nothing, lazy.pages)
    await lazy.nothing_is_left(processes)


async def test_a_tree_is_not_given_out_before_its_pager_is_guarded(criu, processes, frozen, monkeypatch):
    """All of it is stopped while the guard is waited for, and killed if none comes."""
    lazy = await frozen("memory")
    states = []

    async def guarded(pager) -> None:
        states.extend(read_stat(pid).state for pid in lazy.request.pids)
        raise PagingFailed("there is no guard")

    monkeypatch.setattr(starting.StartedPager, "guarded", guarded)
    with pytest.raises(PagingFailed, check=that(names="guard")):
        await criu.restore(lazy.request, nothing, lazy.pages)
    assert set(states) == {"T"}
    await lazy.nothing_is_left(processes)


async def test_a_restore_that_is_cancelled_before_criu_is_asked_leaves_no_pager(criu, processes, frozen, monkeypatch):
    """It is killed, and so is its guard's vigil over: nothing waits for a CRIU that never comes."""
    lazy = await frozen("memory")

    async def ready(pager) -> None:
        scope.cancel()
        await real(pager)

    real = starting.StartedPager.ready
    monkeypatch.setattr(starting.StartedPager, "ready", ready)
    with anyio.CancelScope() as scope:
        await criu.restore(lazy.request, nothing, lazy.pages)
    assert scope.cancelled_caught
    await lazy.nothing_is_left(processes)
    with anyio.fail_after(PATIENCE_S):
        while under(lazy.work):  # noqa: ASYNC110  # there is no event
            await anyio.sleep(0.01)


def under(work: Path) -> list[int]:
    """Return the processes that have this folder as theirs."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                if (each / "cwd").readlink() == work:
                    found.append(int(each.name))
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
    return found


async def test_a_lazy_restore_has_its_pages(criu, frozen) -> None:
    """Without them CRIU would look for a daemon that is not there; with them, not lazily, it would read them itself."""
    lazy = await frozen("memory")
    with pytest.raises(UnsafeRequest, check=that(comes_from="driver.CriuSwrk.restore")):
        await criu.restore(lazy.request, nothing)
    with pytest.raises(UnsafeRequest, check=that(comes_from="driver.CriuSwrk.restore")):
        await criu.restore(attrs.evolve(lazy.request, lazy=False), nothing, lazy.pages)


THAWING = """
import json, os, signal, sys, anyio
from pathlib import Path
from iriscw.freeze.drivers.criu import driver
from iriscw.freeze.drivers.processes.driver import KernelProcesses
from iriscw.freeze.model import CriuOptions, LazyPages, PageFile, RestoreRequest
request, pages, point = json.loads(sys.argv[1])
request["options"], request["pids"] = CriuOptions(**request["options"]), tuple(request["pids"])
files = tuple(PageFile(name, size, bytes.fromhex(digests)) for name, size, digests in pages["files"])
pages = LazyPages(pages["algorithm"], pages["piece_bytes"], files)
def die():
    os.kill(os.getpid(), signal.SIGKILL)
def write_run(work, run, real=driver.write_run):
    if point == "making" and run.restore and run.tasks:
        die()
    real(work, run)
driver.write_run = write_run
async def main():
    criu = driver.CriuSwrk()
    report = await criu.restore(RestoreRequest(**request), lambda progress: None, pages)
    if point == "running":
        await KernelProcesses().proceed(report.tasks)
    die()
anyio.run(main)
"""


@pytest.mark.parametrize("point", ["making", "made", "running"])
async def test_the_death_of_who_thaws(criu, processes, frozen, point) -> None:
    """Its pages come all the same once all of it is there; before that nothing of it is left, after a sweep."""
    lazy = await frozen("memory", "large")
    request = attrs.asdict(lazy.request)
    files = [[each.name, each.size_bytes, each.digests.hex()] for each in lazy.pages.files]
    pages = {"algorithm": lazy.pages.algorithm, "piece_bytes": lazy.pages.piece_bytes, "files": files}
    argv = [sys.executable, "-c", THAWING, json.dumps([request, pages, point])]
    done = subprocess.run(argv, timeout=PATIENCE_S, check=False)
    assert done.returncode == -signal.SIGKILL
    another = CriuSwrk()
    if point == "making":
        with pytest.raises(PagingFailed):
            await another.paging(lazy.request.work, PATIENCE_NS, nothing)
    else:
        lazy.target.restored = tuple(map(to_task, lazy.pager.tasks))
        await another.paging(lazy.request.work, PATIENCE_NS, nothing)
        assert read_end(lazy.work).kind == COMPLETE
        await processes.proceed(lazy.target.restored)
        assert (await lazy.target.ask())["large"] == {"intact": True}
    sweep = SweepRequest("thaw-1", lazy.request.work, lazy.request.pids, lazy.request.started_after)
    await another.sweep(sweep)
    await lazy.nothing_is_left(processes)


async def test_a_sweep_kills_what_a_lazy_tree_has_forked(criu, processes, frozen) -> None:
    """It has run, unlike any other restore that is swept: a child of it is ended with it."""
    lazy = await frozen("memory", "shifting")
    await thawed(criu, processes, lazy)
    await lazy.target.ask()
    await criu.paging(lazy.request.work, PATIENCE_NS, nothing)
    await criu.sweep(SweepRequest("thaw-1", lazy.request.work, lazy.request.pids, lazy.request.started_after))
    await lazy.nothing_is_left(processes)
