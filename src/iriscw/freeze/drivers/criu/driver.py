"""CRIU behind the port ``iriscw.freeze.ports.Criu``.

Theory of operation, a dump. CRIU is started and does nothing; who it is is written down; it is asked. When the images
are complete it says ``post-dump`` and waits: then the tree is held, and the caller has a :class:`CriuHeldTree`. If
something goes wrong before, CRIU undoes by itself when its socket is closed, or, when it is killed, the kernel does by
letting go of what it traced. That nobody traces the tree any more is looked at before an error is raised (INV-C6).

A restore. As above; ``post-restore`` says that all tasks exist and none has run: they are written down, and CRIU goes
on to its end, which leaves them stopped. On an error CRIU kills what it made. A CRIU that hangs is *stopped* first, so
that it forks nothing more, then all below it are killed, and then it: nothing of a restore is left (INV-C6). If CRIU
was killed before its tasks were written down, they have been adopted by somebody: until it lets them go, each of them
has its log open for writing, in a folder that only we can enter. That proves whose they are, and nothing else does.

Where numbers of a tree are taken, it comes back in a PID namespace that is made for it
(:mod:`iriscw.freeze.drivers.namespace.space`), and CRIU runs in there, then and at each freeze of it. Killing the first
process of that kills CRIU with all that it made; and that process ends by itself if we die before the tree is whole.

A tree with a terminal comes back in that of this process (:mod:`iriscw.freeze.drivers.criu.terminals`), and as its
child: a stopped process group whose first process has no parent in its session is told by the kernel to hang up and to
go on. It stays stopped as long as we live; should we die before it is let run, the kernel tells it so, and who has not
ended of that is ended by a sweep.

With lazy pages, a pager (:mod:`iriscw.freeze.drivers.paging.pager`) is there before CRIU is asked, and stays when CRIU
has ended. A tree is killed before its pager is: that way no task of it ever runs without one.

A CRIU is never asked twice.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import attrs

from iriscw._errors import OperationError
from iriscw.freeze.criu_log import classify
from iriscw.freeze.criu_rpc import (
    POST_DUMP,
    POST_RESTORE,
    CriuAnswer,
    ask_dump,
    ask_restore,
    read_restore_statistics,
)
from iriscw.freeze.drivers.criu.bounds import broken_off, check_bounds, within
from iriscw.freeze.drivers.criu.held import CriuHeldTree, stopped, untraced
from iriscw.freeze.drivers.criu.network import DUMP_LOG, unlock_network
from iriscw.freeze.drivers.criu.record import CriuRun, forget_run, read_run, write_run
from iriscw.freeze.drivers.criu.remembering import Probed, probed
from iriscw.freeze.drivers.criu.swrk import Swrk, start
from iriscw.freeze.drivers.criu.terminal_queues import give_back, put_in
from iriscw.freeze.drivers.criu.terminals import check_numbers, check_terminals, settle, within_reach
from iriscw.freeze.drivers.criu.whole import check_whole, mend
from iriscw.freeze.drivers.identities import lives, open_task, to_task
from iriscw.freeze.drivers.namespace import space
from iriscw.freeze.drivers.paging import starting
from iriscw.freeze.drivers.paging.notes import read_pager
from iriscw.freeze.drivers.processes.driver import KernelProcesses, doom, end_tasks, supervised
from iriscw.freeze.drivers.processes.reading import (
    descendants,
    held_below,
    held_tree,
    identity_of,
    read_tree,
    writers_of,
)
from iriscw.freeze.drivers.terminal import ControllingTerminal, lendable
from iriscw.freeze.model import (
    CriuAbility,
    CriuFailed,
    CriuOverdue,
    DumpReport,
    DumpRequest,
    LazyPages,
    NoRoom,
    Progress,
    RestoreReport,
    RestoreRequest,
    SweepRequest,
    TargetGone,
    TaskIdentity,
    TreeLeft,
    UnsafeRequest,
)
from iriscw.freeze.ports import KILL_PATIENCE_NS, Report
from iriscw.processes.identity import ProcessGone, boot_id, read_process_file, read_stat

ENDING_NS: Final = 2_000_000_000
"""For a CRIU whose socket was closed, to undo what it did; with established connections that matters."""

PROGRESS_S: Final = 0.1
PROGRESS_MOST_S: Final = 1.0
PROGRESS_GROWTH: Final = 1.25
"""Between two reports of how much of the images is written: the first pause, the longest, and how they grow. So a
freeze of many gigabytes is not looked at ten times a second for all of its time.
"""

FREEZING_S: Final = 600
"""The most that CRIU may take to freeze a tree, whatever the deadline is: its own limit, which it counts in seconds."""

RESTORE_LOG: Final = "restore.log"

_CORE: Final = re.compile(r"core-(?P<number>[1-9][0-9]{0,9})\.img")
"""Images of what each task and each thread of a task was: by its number."""

KILL_ROUNDS: Final = 20
"""Over the tasks below a stopped CRIU: they may fork while they are being killed."""


class CriuSwrk:
    """CRIU, one process for each operation.

    Args:
        program: the program, if it is to be a certain one.
        remembered: a file of a folder of ours that keeps what it can for the next one of these.
    """

    def __init__(self, program: Path | None = None, remembered: Path | None = None) -> None:
        self._program = program
        self._remembered = remembered
        self._known: Probed | None = None

    async def ability(self) -> CriuAbility:
        """Find it and have it check itself (see the port). What was found is kept; what was not, for a while."""
        if self._known is None or not self._known.holds(time.monotonic()):
            self._known = await anyio.to_thread.run_sync(probed, self._program, self._remembered)
        return self._known.ability

    async def dump(self, request: DumpRequest, report: Report) -> CriuHeldTree:
        """Write the images of a tree, and hold it (see the port)."""
        work = check_bounds(request)
        program = Path((await self.ability()).path)
        os.close(open_task(request.root))
        first = await anyio.to_thread.run_sync(space.of, request.root)
        run = await self._started(program, work, dump=request, first=first)
        try:
            return await within(request.within_ns, functools.partial(_dump, run, request, first is not None, report))
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await _undo_dump(run, request)
            raise broken_off(error, "CRIU", run.work, request.within_ns) from error

    async def restore(self, request: RestoreRequest, report: Report, pages: LazyPages | None = None) -> RestoreReport:
        """Bring a tree back, and leave all of it stopped (see the port)."""
        work = check_bounds(request)
        if request.new_pid_namespace + request.lazy + request.options.shell_job > 1:
            raise UnsafeRequest(
                "a PID namespace of its own, lazy pages, a terminal: a restore has one of these at most"
            )
        if request.lazy != (pages is not None):
            raise UnsafeRequest("a lazy restore without its pages, or pages of one that is not lazy")
        program = Path((await self.ability()).path)
        await anyio.to_thread.run_sync(check_numbers, Path(request.images))
        terminal = _lent() if request.options.shell_job else None
        try:
            with await anyio.to_thread.run_sync(within_reach, Path(request.images)):
                return await self._restored_by(program, work, request, pages, terminal)
        except BaseException:
            if terminal is not None:
                terminal.put_back()
            raise
        finally:
            if terminal is not None:
                terminal.close()

    async def _restored_by(
        self,
        program: Path,
        work: Path,
        request: RestoreRequest,
        pages: LazyPages | None,
        terminal: ControllingTerminal | None,
    ) -> RestoreReport:
        made = await _made_space(work, request) if request.new_pid_namespace else None
        first = made.first if made is not None else None
        try:
            at = None if terminal is None else terminal.descriptor
            run = await self._started(program, work, terminal=at, first=first)
        except BaseException as error:
            if made is not None:
                made.close()
            if isinstance(error, TargetGone):
                raise CriuFailed(str(error)) from error
            raise
        try:
            return await within(request.within_ns, functools.partial(_restore, run, request, pages, made, terminal))
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                if made is not None:
                    left = await _kill_space(run, made, KILL_PATIENCE_NS // 2)
                else:
                    left = await _kill_restore(run, request, KILL_PATIENCE_NS // 2)
                if pages is not None:
                    await starting.end_pager(work)
                if not left:  # all of it has ended: a sweep has nothing to look for, and must not guess by numbers
                    await anyio.to_thread.run_sync(forget_run, work)
            if left and not isinstance(error, anyio.get_cancelled_exc_class()):
                raise TreeLeft(f"{error}; and tasks that it made do not end: {_named(left)}") from error
            raise broken_off(error, "CRIU", run.work, request.within_ns) from error

    async def paging(self, work: str, within_ns: int, report: Report) -> None:
        """Wait until all pages of a tree are there (see the port)."""
        await starting.all_there(Path(work), within_ns)

    async def sweep(self, request: SweepRequest) -> tuple[TaskIdentity, ...]:
        """End the run that an earlier life of this operation left, and what it made (see the port)."""
        work = Path(request.work)
        run = await anyio.to_thread.run_sync(read_run, work)
        if run is None or run.criu.boot_id != boot_id():
            return ()
        if run.first is not None:
            return await _end_space(run, run.first, request.within_ns)
        made = [task for task in run.tasks if run.restore and lives(task)]
        if lives(run.criu):
            made += await _end_stranger(run, request.within_ns)
        if not run.restore:
            await let_be(work, run)
        if run.restore and not run.tasks:
            made += await anyio.to_thread.run_sync(writers_of, work / RESTORE_LOG, request.started_after)
        pager = await anyio.to_thread.run_sync(read_pager, work)
        if pager is not None:
            made += [task for task in map(to_task, pager.tasks) if lives(task)]
        doomed = tuple(dict.fromkeys(made))
        ending = end_tasks if pager is None else KernelProcesses().end  # one that has run may have forked
        if left := await ending(doomed, request.within_ns):
            raise TreeLeft(f"tasks of a restore do not end: {_named(left)}")
        await starting.end_pager(work)
        if run.restore and not run.tasks and (left := await anyio.to_thread.run_sync(_suspects, request)):
            who = f"processes {_named(left)} have numbers of the tree and began after its restore did"
            raise TreeLeft(f"{who}, but nothing proves that they are of it: they are left alone")
        return doomed

    async def _started(
        self,
        program: Path,
        work: Path,
        *,
        dump: DumpRequest | None = None,
        terminal: int | None = None,
        first: TaskIdentity | None = None,
    ) -> Swrk:
        try:
            run = start(program, work, terminal=terminal, first=first)
            identity = run.identity()
            if identity is None:
                await run.close(0)
                raise CriuFailed(f"CRIU ended at once: {run.log('criu.out').strip()[:200]}")
            try:
                record = CriuRun(identity, True, first=first) if dump is None else dumping(identity, dump)
                await anyio.to_thread.run_sync(write_run, work, record)
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await run.close(0)
                raise
        except OSError as error:
            raise NoRoom(f"CRIU could not be started in {work}: {error.strerror or error}") from error
        return run


# A dump.


async def _dump(run: Swrk, request: DumpRequest, inside: bool, report: Report) -> CriuHeldTree:
    number = space.number_inside(request.root) if inside else request.root.pid
    images = Path(request.images)
    freezing_s = max(1, min(FREEZING_S, request.within_ns // 1_000_000_000))
    answer: CriuAnswer | None = None
    async with bounded_progress(request, report):
        run.ask(ask_dump(number, request.options, images=request.images, timeout_s=freezing_s))
        answer = await run.receive()
        while answer is not None and answer.script and answer.script != POST_DUMP:
            run.reply(success=True)
            answer = await run.receive()
    if answer is None or answer.script != POST_DUMP:
        raise _failure(run, answer, DUMP_LOG, "freeze")
    await anyio.to_thread.run_sync(functools.partial(give_back, images, run.work / DUMP_LOG, request.root, held=True))
    await anyio.to_thread.run_sync(judge_images, request)
    await anyio.to_thread.run_sync(check_terminals, images)
    # It was asked for a number. Now that the tree is held, the number is certain to mean whom it means.
    held = await anyio.to_thread.run_sync(held_tree, request.root)
    size = await anyio.to_thread.run_sync(_pages_size, images)
    report(Progress("dump", size, size))
    written = DumpReport(pages_written=size // os.sysconf("SC_PAGE_SIZE"))
    return CriuHeldTree(run, held, written, silenced=request.options.tcp_established)


@contextlib.asynccontextmanager
async def bounded_progress(request: DumpRequest, report: Report) -> AsyncIterator[None]:
    """Tell how much of the images is written as long as the block lasts, and break it off when that is too much.

    Raises:
        NoRoom: more was written than was reserved.
    """
    images, beyond = Path(request.images), 0

    async def tell() -> None:
        nonlocal beyond
        pause_s = PROGRESS_S
        while True:
            await anyio.sleep(pause_s)
            pause_s = min(PROGRESS_GROWTH * pause_s, PROGRESS_MOST_S)
            size = await anyio.to_thread.run_sync(_pages_size, images)
            report(Progress("dump", size))
            if 0 < request.most_bytes < size:
                beyond = size
                tasks.cancel_scope.cancel()

    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tell)
        try:
            yield
        except Exception as error:  # noqa: BLE001 - raised below: a task group would wrap it
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    if beyond:
        raise _too_much(request, beyond)


def _too_much(request: DumpRequest, size: int) -> NoRoom:
    text = f"the images take {size >> 20} MiB and more, and {request.most_bytes >> 20} MiB were reserved"
    return NoRoom(f"{text}: the tree grew while it was frozen, or has what was not counted")


def judge_images(request: DumpRequest) -> None:
    """Refuse images that no CRIU restores, or that take too much; mend the others.

    Raises: as :func:`.whole.check_whole`, and NoRoom.
    """
    images = Path(request.images)
    orphaned = supervised(request.root)  # a copy of a task is thawed without the supervisor that it was to end with
    stays = request.options.shell_job or request.container is not None or orphaned
    try:
        sockets = read_process_file(request.root.pid, "net/unix")
    except (FileNotFoundError, ProcessLookupError) as error:
        raise TargetGone(f"process {request.root.pid} has ended") from error
    check_whole(images, stays_child=stays, root=Path(f"/proc/{request.root.pid}/root"), sockets=sockets)
    mend(images, orphaned=orphaned)
    size = sum(each.stat().st_size for each in images.iterdir())
    if 0 < request.most_bytes < size:
        raise _too_much(request, size)


def _pages_size(images: Path) -> int:
    return sum(each.stat().st_size for each in images.glob("pages-*.img"))


def dumping(criu: TaskIdentity, request: DumpRequest) -> CriuRun:
    """Return the record of a dump that this CRIU is asked for."""
    return CriuRun(criu, False, (request.root,), images=request.images, silenced=request.options.tcp_established)


async def let_be(work: Path, run: CriuRun) -> None:
    """Undo what a dump of an earlier life has done to its tree, which nobody holds any more."""
    for root in run.tasks:
        if run.silenced:
            await unlock_network(work, root)
        if run.images:
            await terminals_back(run.images, work, root)


async def terminals_back(images: str, work: Path, root: TaskIdentity) -> None:
    """Have a tree that runs have back what a dump took out of its terminals.

    Raises:
        CriuFailed: that did not work.
    """
    with contextlib.suppress(TargetGone):
        await anyio.to_thread.run_sync(functools.partial(give_back, Path(images), work / DUMP_LOG, root, held=False))


async def _undo_dump(run: Swrk, request: DumpRequest) -> None:
    try:
        tree = await anyio.to_thread.run_sync(read_tree, request.root)
        tasks = tree.identities
    except OperationError:
        tasks = (request.root,)
    run.write_no_more()
    await run.close(ENDING_NS)
    await untraced(tasks, KILL_PATIENCE_NS // 4)
    if request.options.tcp_established:
        await unlock_network(run.work, request.root)
    await terminals_back(request.images, run.work, request.root)


def _failure(run: Swrk, answer: CriuAnswer | None, log: str, doing: str) -> OperationError:
    if answer is None:
        said = f"it ended without a word\n{run.log('criu.out')}"
        return classify(run.log(log), said, doing=doing).as_error()
    return classify(run.log(log), answer.text, doing=doing).as_error()


# A restore.


async def _made_space(work: Path, request: RestoreRequest) -> space.OwnNamespace:
    """Make the namespace. Threads have numbers as well, and only the images tell those.

    Raises:
        RightsMissing, NoRoom, CriuFailed, CriuOverdue: there is none.
    """
    names = await anyio.to_thread.run_sync(os.listdir, request.images)
    cores = [found for found in map(_CORE.fullmatch, names) if found is not None]
    numbers = (*request.pids, *(int(found["number"]) for found in cores))
    try:
        return await within(request.within_ns, functools.partial(space.make, work, numbers))
    except TimeoutError as error:
        raise CriuOverdue(f"no PID namespace was made within {request.within_ns / 1e9:g} s") from error


async def _restore(
    run: Swrk,
    request: RestoreRequest,
    pages: LazyPages | None,
    made: space.OwnNamespace | None,
    terminal: ControllingTerminal | None,
) -> RestoreReport:
    if pages is None:
        restored = await _restored(run, request, None if made is None else made.first)
        if terminal is not None:
            await anyio.to_thread.run_sync(settle, terminal, Path(request.images), restored.tasks)
        if made is not None:
            made.let_go()
        return restored
    pager = await anyio.to_thread.run_sync(starting.start, run.work, request, pages)
    failures: list[Exception] = []
    reports: list[RestoreReport] = []

    async def watch() -> None:
        failures.append(await starting.watched(pager, run.work))
        tasks.cancel_scope.cancel()

    async def restore() -> None:
        try:
            restored = await _restored(run, request)
            await pager.guarded()
            reports.append(restored)
        except Exception as error:  # noqa: BLE001 - raised below: a task group would wrap it
            failures.append(error)
        tasks.cancel_scope.cancel()

    try:
        await pager.ready()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            tasks.start_soon(restore)
    finally:
        pager.close()
    if failures:
        raise failures[0]
    return reports[0]


def _lent() -> ControllingTerminal:
    terminal = lendable()
    if terminal is None:
        raise UnsafeRequest(
            "a tree with a terminal comes back in that of whoever thaws it: standard input is not of this session, or "
            "it is not in the foreground"
        )
    return terminal


def _made(pid: int, request: RestoreRequest) -> tuple[TaskIdentity, ...]:
    """Return what CRIU made and holds, in the order in which it was frozen."""
    places = {number: place for place, number in enumerate(request.pids)}
    first = _child_of_ours(request)
    below = held_below(pid) if first is None else (first, *held_below(first.pid))
    return tuple(sorted(below, key=lambda task: places.get(_number(task, request), len(places))))


def _child_of_ours(request: RestoreRequest) -> TaskIdentity | None:
    """Return the first process of a tree with a terminal, if it is there already: CRIU makes it a child of ours."""
    if not request.options.shell_job:
        return None
    try:
        each = read_stat(request.pids[0])
    except ProcessGone:
        return None
    ours = each.parent_pid == os.getpid() and each.start_ticks >= request.started_after
    return identity_of(each) if ours else None


def _number(task: TaskIdentity, request: RestoreRequest) -> int:
    """Return the number that a task has in the images; 0 if it has ended."""
    if not request.new_pid_namespace:
        return task.pid
    try:
        return space.number_inside(task)
    except TargetGone:
        return 0


async def _restored(run: Swrk, request: RestoreRequest, first: TaskIdentity | None = None) -> RestoreReport:
    made: tuple[TaskIdentity, ...] = ()
    missing: tuple[int, ...] = ()

    async def notified(script: str) -> bool:
        nonlocal made, missing
        if script == POST_RESTORE:
            made = await anyio.to_thread.run_sync(_made, run.pid, request)
            criu = run.identity()
            numbers = [_number(task, request) for task in made]
            missing = tuple(number for number in request.pids if number not in numbers)
            if criu is None or not made or missing:  # nobody is written down: all are known by the log that they have
                return False
            await anyio.to_thread.run_sync(write_run, run.work, CriuRun(criu, True, made, first))
        return True

    run.ask(ask_restore(request.options, images=request.images, lazy=request.lazy))
    answer = await run.answer(notified)
    if missing and made:
        numbers = ", ".join(map(str, missing))
        raise CriuFailed(f"CRIU did not bring the tree back whole: these processes are not where they were: {numbers}")
    if answer is None or not answer.success:
        raise _failure(run, answer, RESTORE_LOG, "thaw")
    tasks = tuple(task for task in made if lives(task))
    if len(tasks) < len(made):
        raise CriuFailed("a process of the tree was ended by somebody before it was let run")
    if not tasks or _number(tasks[0], request) != answer.pid:
        raise CriuFailed("CRIU said that it brought the tree back, and its first process is not there")
    await run.close(ENDING_NS)
    if running := await stopped(tasks, KILL_PATIENCE_NS // 4):
        raise CriuFailed(f"tasks that were restored do not stop: {_named(running)}")
    await anyio.to_thread.run_sync(put_in, Path(request.images), tasks)
    found = read_restore_statistics(run.statistics("stats-restore"))
    return attrs.evolve(found, tasks=tasks)


async def _kill_restore(run: Swrk, request: RestoreRequest, within_ns: int) -> tuple[TaskIdentity, ...]:
    """End a restore, half-way or at its end, with all that it made; give what does not end.

    If somebody killed CRIU, its tasks were adopted, and are not below it any more: they are known by its log.
    """
    recorded = await anyio.to_thread.run_sync(read_run, run.work)
    run.let_go()
    if not await run.ended(0):
        run.signal(signal.SIGSTOP)
    found = dict.fromkeys(recorded.tasks if recorded is not None and recorded.restore else ())
    if (first := await anyio.to_thread.run_sync(_child_of_ours, request)) is not None:
        found[first] = None
        await _doom_below(first.pid, found)
    await _doom_below(run.pid, found)
    run.kill_group()
    await run.close(0)
    if recorded is None or not recorded.tasks:
        stray = await anyio.to_thread.run_sync(writers_of, run.work / RESTORE_LOG, request.started_after)
        found.update(dict.fromkeys(stray))
    return await end_tasks(tuple(found), within_ns)


async def _kill_space(run: Swrk, made: space.OwnNamespace, within_ns: int) -> tuple[TaskIdentity, ...]:
    """End a restore with the namespace that was made for it; give what does not end."""
    recorded = await anyio.to_thread.run_sync(read_run, run.work)
    found = (*(recorded.tasks if recorded is not None else ()), *descendants(made.first.pid), *descendants(run.pid))
    space.kill(made.first)
    made.close()
    run.kill_group()
    await run.close(0)  # it is a child of ours: the namespace ends when it was reaped
    if await space.ended(made.first, within_ns):
        return ()
    return tuple(task for task in dict.fromkeys(found) if lives(task)) or (made.first,)


async def _end_space(run: CriuRun, first: TaskIdentity, within_ns: int) -> tuple[TaskIdentity, ...]:
    """End the namespace of a restore of an earlier life, and give the tasks that were in there."""
    below = (*run.tasks, *descendants(first.pid), *descendants(run.criu.pid)) if lives(first) else ()
    found = tuple(task for task in dict.fromkeys(below) if task != run.criu and lives(task))
    space.kill(first)
    if not await space.ended(first, within_ns):
        left = tuple(task for task in found if lives(task)) or (first,)
        raise TreeLeft(f"tasks of a restore do not end: {_named(left)}")
    return found


async def _end_stranger(run: CriuRun, within_ns: int) -> tuple[TaskIdentity, ...]:
    """Kill the CRIU of an earlier life; of a restore, stop it first, kill what is below it, and give that."""
    found: dict[TaskIdentity, None] = {}
    try:
        descriptor = open_task(run.criu)
    except TargetGone:
        return ()
    try:
        if run.restore:
            signal.pidfd_send_signal(descriptor, signal.SIGSTOP)
            await _doom_below(run.criu.pid, found)
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        with anyio.move_on_after(within_ns / 1e9):
            await anyio.wait_readable(descriptor)
    except ProcessLookupError:
        pass
    except PermissionError as error:
        raise TreeLeft(f"CRIU, process {run.criu.pid}, may not be killed") from error
    finally:
        os.close(descriptor)
    if lives(run.criu):
        raise TreeLeft(f"CRIU, process {run.criu.pid}, does not end")
    return tuple(found)


async def _doom_below(pid: int, found: dict[TaskIdentity, None]) -> None:
    """Kill all that is below a stopped CRIU; ``found`` takes them.

    Who was killed forks nothing more, so it is over when a pass finds nobody new. They have not ended when this
    returns: threads that CRIU traces are gone only when it is.
    """
    for _ in range(KILL_ROUNDS):
        new = [task for task in await anyio.to_thread.run_sync(descendants, pid) if task not in found]
        found.update(dict.fromkeys(new))
        doom(tuple(found))
        if not new:
            return


def _suspects(request: SweepRequest) -> tuple[TaskIdentity, ...]:
    """Find who may be of a restore, and nothing proves it.

    They have numbers of the images, are not older than the restore, and are children of somebody who adopts (the first
    process of the machine, or one above us). A stranger may be all that, too.
    """
    above = _adopters()
    found = []
    for pid in request.pids:
        try:
            each = read_stat(pid)
        except ProcessGone:
            continue
        if not each.ended and each.start_ticks >= request.started_after and each.parent_pid in above:
            found.append(identity_of(each))
    return tuple(found)


def _adopters() -> tuple[int, ...]:
    line = [os.getpid()]
    while line[-1] > 1:
        try:
            line.append(read_stat(line[-1]).parent_pid)
        except ProcessGone:
            break
    return (*line, 1)


def _named(tasks: tuple[TaskIdentity, ...]) -> str:
    return ", ".join(str(task.pid) for task in tasks)
