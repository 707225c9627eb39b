"""Containers behind the port ``iriscw.freeze.ports.Criu``: their runtime calls CRIU, and we stand between the two.

Theory of operation. Only ``runc`` can dump and restore a container so that it knows it again: mounts, namespaces,
control groups and its own state are its business. Who is let run or ended, and when, is ours. So the runtime is
started with a ``criu`` in its ``PATH`` that hands its socket over to us (:mod:`.door`), and we pass on what both say,
with three changes:

* folders and options of a request are ours (:func:`~iriscw.freeze.criu_rpc.taken_over`): CRIU reads exactly the images
  that were verified, reads no file of options, and loads no plugin;
* ``post-dump`` is kept back until it is decided what becomes of the tree: it is held meanwhile, as any tree is;
* what is restored stays stopped, and is known by name before the runtime hears of it.

If we die, the kernel closes both sockets: CRIU undoes the dump and the container runs, and the runtime says that the
checkpoint failed. There is no moment in which a paused container would wait for somebody who is gone, but one: a CRIU
that is killed may leave the control group frozen in which it had held the tree. The sweep lets it run.

A dump is run by us. A restore is run by who asked for it, because the runtime's own parent has to adopt the container,
and has its standard input and outputs: :meth:`RuntimeCriu.expect` gives the folder for its ``PATH``.

Trees that are no containers go to the plain driver.
"""

from __future__ import annotations

import functools
import json
import logging
import os
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from iriscw._errors import OperationError
from iriscw.files import decode_json, make_private_folder, read_bounded, remove_tree, write_atomic
from iriscw.freeze.criu_log import classify
from iriscw.freeze.criu_rpc import (
    POST_DUMP,
    POST_RESTORE,
    CriuAnswer,
    CriuMessageKind,
    read_restore_statistics,
    taken_over,
)
from iriscw.freeze.drivers.criu.bounds import broken_off, check_bounds, within
from iriscw.freeze.drivers.criu.driver import (
    ENDING_NS,
    FREEZING_S,
    RESTORE_LOG,
    CriuSwrk,
    bounded_progress,
    dumping,
    judge_images,
    terminals_back,
)
from iriscw.freeze.drivers.criu.held import stopped, untraced
from iriscw.freeze.drivers.criu.network import DUMP_LOG, unlock_network
from iriscw.freeze.drivers.criu.record import CriuRun, forget_run, read_run, write_run
from iriscw.freeze.drivers.criu.swrk import MAX_LOG_BYTES, NO_PLUGINS
from iriscw.freeze.drivers.criu.terminal_queues import give_back, put_in
from iriscw.freeze.drivers.identities import lives, open_task
from iriscw.freeze.drivers.processes.driver import doom, end_tasks
from iriscw.freeze.drivers.processes.reading import below, descendants, identity_of, read_text, read_tree, writers_of
from iriscw.freeze.drivers.runtime.door import CriuCall, CriuDoor, kind_of_call
from iriscw.freeze.drivers.runtime.held import HeldContainer
from iriscw.freeze.drivers.runtime.runc import Runtime, checkpoint_words, find_runc, is_paused, unpause
from iriscw.freeze.model import (
    Container,
    CriuAbility,
    CriuFailed,
    DumpReport,
    DumpRequest,
    LazyPages,
    NoRoom,
    Progress,
    RestoreReport,
    RestoreRequest,
    SweepRequest,
    TaskIdentity,
    TreeLeft,
    UnsafeRequest,
)
from iriscw.freeze.ports import KILL_PATIENCE_NS, HeldTree, Report
from iriscw.freeze.proc_text import parse_status
from iriscw.processes.identity import ProcessGone

log = logging.getLogger(__name__)


FOUND: Final = "container-run.json"
MAX_FOUND_BYTES: Final = 4096
RUNTIME_GRACE_NS: Final = 5_000_000_000
"""For a runtime whose CRIU has ended, to say so and end."""


class RuntimeCriu:
    """CRIU for trees and for containers.

    Args:
        plain: CRIU for trees.
        doors: the folder in which the runtimes' calls arrive; nobody else may enter it.
        runc: the runtime, if it is to be a certain one.
    """

    def __init__(self, plain: CriuSwrk, doors: Path, runc: Path | None = None) -> None:
        self._plain = plain
        self._doors = doors
        self._runc = runc
        self._expected: dict[str, CriuDoor] = {}

    async def ability(self) -> CriuAbility:
        """See the port."""
        return await self._plain.ability()

    # Who runs the runtime for a restore

    async def paging(self, work: str, within_ns: int, report: Report) -> None:
        """Wait until all pages of a tree are there (see the port)."""
        await self._plain.paging(work, within_ns, report)

    def expect(self, operation: str) -> CriuDoor:
        """Open the door through which the runtime of a restore will call CRIU.

        Raises:
            OSError: there is no room for it.
        """
        make_private_folder(self._doors)
        return self._expected.setdefault(operation, CriuDoor(self._doors / operation))

    def expect_no_more(self, operation: str) -> None:
        """Close it. May be repeated."""
        door = self._expected.pop(operation, None)
        if door is not None:
            _close(door)

    def forget_all(self) -> None:
        """Remove what an earlier life left: doors at which nobody listens.

        Raises:
            OSError: it cannot be removed.
        """
        remove_tree(self._doors)

    # The port

    async def dump(self, request: DumpRequest, report: Report) -> HeldTree:
        """Write the images of a tree or of a container, and hold it (see the port)."""
        if request.container is None:
            return await self._plain.dump(request, report)
        work = check_bounds(request)
        program = Path((await self.ability()).path)
        runc = self._runc or find_runc()
        os.close(open_task(request.root))
        run = _Dump(self, request, request.container, program, runc, work)
        try:
            return await within(request.within_ns, functools.partial(run.held, report))
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await run.undo()
            raise broken_off(error, "CRIU or the runtime", work, request.within_ns) from error

    async def restore(self, request: RestoreRequest, report: Report, pages: LazyPages | None = None) -> RestoreReport:
        """Bring a tree back, or a container by the runtime that was told so (see the port)."""
        if request.container is None:
            return await self._plain.restore(request, report, pages)
        if request.lazy or pages is not None:
            raise UnsafeRequest("a container's runtime brings all of its memory back at once")
        work = check_bounds(request)
        program = Path((await self.ability()).path)
        door = self._expected.get(request.operation)
        if door is None:
            raise CriuFailed("the runtime that was to bring the container back is gone")
        run = _Restore(request, program, work, door)
        try:
            return await within(request.within_ns, run.restored)
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                left = await run.kill()
            if left and not isinstance(error, anyio.get_cancelled_exc_class()):
                named = ", ".join(str(task.pid) for task in left)
                raise TreeLeft(f"{error}; and tasks that it made do not end: {named}") from error
            raise broken_off(error, "CRIU or the runtime", work, request.within_ns) from error

    async def sweep(self, request: SweepRequest) -> tuple[TaskIdentity, ...]:
        """End the run that an earlier life left (see the port), and let a container run that it left frozen."""
        if request.container is None:
            return await self._plain.sweep(request)
        work = Path(request.work)
        run = await anyio.to_thread.run_sync(read_run, work)
        if run is not None:  # its sockets are closed: it undoes by itself what it did, which is better than a kill
            with anyio.move_on_after(ENDING_NS / 1e9):
                await _ended(run.criu)
        doomed = await self._plain.sweep(request)
        if run is not None and not run.restore:
            await self.awaken(request.container, work)
        return doomed

    async def awaken(self, container: Container, work: Path) -> None:
        """Let a container run whose control group a killed CRIU left frozen; one that was found paused stays so.

        Raises:
            TreeLeft: it cannot be told whether it runs, or it does not.
        """
        if _found_paused(work):
            return
        runc = self._runc or find_runc()
        try:
            if await is_paused(runc, container):
                await unpause(runc, container)
        except CriuFailed as error:
            raise TreeLeft(f"whether the container runs is not known: {error}") from error


class _Dump:
    """One dump of a container, from the start of its runtime on."""

    def __init__(
        self, criu: RuntimeCriu, request: DumpRequest, container: Container, program: Path, runc: Path, work: Path
    ) -> None:
        self.criu = criu
        self.request = request
        self.container = container
        self.program = program
        self.runc = runc
        self.work = work
        self.door: CriuDoor | None = None
        self.runtime: Runtime | None = None
        self.call: CriuCall | None = None

    async def held(self, report: Report) -> HeldContainer:
        """Start the runtime, and pass on what is said until the tree is held."""
        request = self.request
        paused = await is_paused(self.runc, self.container)
        try:
            await anyio.to_thread.run_sync(_write_found, self.work, paused)
            self.door = CriuDoor(make_parent(self.criu._doors / request.operation))
            words = checkpoint_words(self.runc, self.container, request.options, request.images, str(self.work))
            self.runtime = Runtime(words, self.work, self.door.environment(os.environ))
        except OSError as error:
            raise NoRoom(f"the runtime could not be started in {self.work}: {error.strerror or error}") from error
        call, asked = await _awaited(self.door, CriuMessageKind.DUMP, self.program, self.work, self.runtime)
        self.call = call
        await anyio.to_thread.run_sync(write_run, self.work, dumping(call.identity, request))
        freezing_s = max(1, min(FREEZING_S, request.within_ns // 1_000_000_000))
        _begin(call, self.program, self.work)
        async with bounded_progress(request, report):
            call.ask(taken_over(asked, request.options, images=request.images, timeout_s=freezing_s))
            answer, data = await call.until(POST_DUMP)
        if answer is None or answer.script != POST_DUMP:
            call.tell(data)
            raise _failure(self.work, answer, DUMP_LOG, "freeze")
        back = functools.partial(give_back, Path(request.images), self.work / DUMP_LOG, request.root, held=True)
        await anyio.to_thread.run_sync(back)
        await anyio.to_thread.run_sync(judge_images, request)
        tree = await anyio.to_thread.run_sync(read_tree, request.root)
        size = await anyio.to_thread.run_sync(_pages_size, Path(request.images))
        report(Progress("dump", size, size))
        written = DumpReport(pages_written=size // os.sysconf("SC_PAGE_SIZE"))
        awaken = functools.partial(self.criu.awaken, self.container, self.work)
        return HeldContainer(call, self.runtime, self.door, data, tree.identities, written, awaken)

    async def undo(self) -> None:
        """See CRIU and the runtime end, and the container run as before."""
        try:
            tasks = (await anyio.to_thread.run_sync(read_tree, self.request.root)).identities
        except OperationError:
            tasks = (self.request.root,)
        if self.door is not None:
            _close(self.door)
        if self.call is not None:
            await self.call.close(ENDING_NS)
        if self.runtime is not None:
            await self.runtime.close(RUNTIME_GRACE_NS)
        if self.call is None:
            return
        await untraced(tasks, KILL_PATIENCE_NS // 4)
        if self.request.options.tcp_established:
            await unlock_network(self.work, self.request.root)
        await terminals_back(self.request.images, self.work, self.request.root)
        if lives(self.request.root):
            try:
                await self.criu.awaken(self.container, self.work)
            except TreeLeft as error:  # the undoing of the freeze tries again, and says so
                log.warning("container %s: %s", self.container.container_id, error)


class _Restore:
    """One restore of a container by a runtime that somebody else runs."""

    def __init__(self, request: RestoreRequest, program: Path, work: Path, door: CriuDoor) -> None:
        self.request = request
        self.program = program
        self.work = work
        self.door = door
        self.call: CriuCall | None = None
        self.made: tuple[TaskIdentity, ...] = ()

    async def restored(self) -> RestoreReport:
        """Pass on what is said until the tree is there, and stopped."""
        request = self.request
        call, asked = await _awaited(self.door, CriuMessageKind.RESTORE, self.program, self.work, None)
        self.call = call
        await anyio.to_thread.run_sync(write_run, self.work, CriuRun(call.identity, True))
        _begin(call, self.program, self.work)
        call.ask(taken_over(asked, request.options, images=request.images))
        answer, data = await call.until(POST_RESTORE)
        if answer is not None and answer.script == POST_RESTORE:
            self.made = await anyio.to_thread.run_sync(_made, answer.pid, request.inner_pids)
            await anyio.to_thread.run_sync(write_run, self.work, CriuRun(call.identity, True, self.made))
            await call.forward(data)
            answer, data = await call.until(POST_RESTORE)
        call.tell(data)
        if answer is None or not answer.success:
            raise _failure(self.work, answer, RESTORE_LOG, "thaw")
        if not self.made or not lives(self.made[0]):
            raise CriuFailed("CRIU said that it brought the container back, and its first process is not there")
        await call.ended(ENDING_NS)
        await call.close(ENDING_NS)
        if running := await stopped(self.made, KILL_PATIENCE_NS // 4):
            named = ", ".join(str(task.pid) for task in running)
            raise CriuFailed(f"tasks that were restored do not stop: {named}")
        await anyio.to_thread.run_sync(put_in, Path(request.images), self.made)
        found = read_restore_statistics(_tail(self.work / "stats-restore"))
        return RestoreReport(self.made, found.forking_us, found.restore_us, found.pages_restored)

    async def kill(self) -> tuple[TaskIdentity, ...]:
        """End what was begun; give what does not end."""
        found = dict.fromkeys(self.made)
        if self.call is not None:
            found.update(dict.fromkeys(await anyio.to_thread.run_sync(descendants, self.call.identity.pid)))
            doom(tuple(found))
            await self.call.close(ENDING_NS)
            if not self.made:  # they are their runtime's children, and known by the log that each of them writes
                strays = await anyio.to_thread.run_sync(writers_of, self.work / RESTORE_LOG, self.request.started_after)
                found.update(dict.fromkeys(strays))
        left = await end_tasks(tuple(found), KILL_PATIENCE_NS // 2)
        if not left:
            await anyio.to_thread.run_sync(forget_run, self.work)
        return left


async def _awaited(
    door: CriuDoor, kind: CriuMessageKind, program: Path, work: Path, runtime: Runtime | None
) -> tuple[CriuCall, bytes]:
    """Wait for the call that asks for this, and answer all before it.

    Raises:
        CriuFailed: the runtime ended before.
    """
    got: list[tuple[CriuCall, bytes]] = []
    failures: list[Exception] = []

    async def answer() -> None:
        try:
            while True:
                call = await door.call()
                try:
                    asked, request = await kind_of_call(call)
                    if asked is kind:
                        got.append((call, request))
                        break
                    _begin(call, program, work)
                    await call.relay(request)
                finally:
                    if not got:
                        with anyio.CancelScope(shield=True):
                            await call.close(ENDING_NS)
        except (OperationError, OSError) as error:
            failures.append(error)
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer)
        if runtime is None:
            await anyio.sleep_forever()
        else:
            await runtime.ended()
        tasks.cancel_scope.cancel()
    if got:
        return got[0]
    if failures:
        raise CriuFailed(str(failures[0])) from failures[0]
    said = runtime.said() if runtime is not None else ""
    raise CriuFailed(f"the container's runtime did not come to call CRIU: {said or 'it gave no reason'}")


def _begin(call: CriuCall, program: Path, work: Path) -> None:
    plugins = work / NO_PLUGINS
    make_private_folder(plugins)
    path = os.environ.get("PATH", os.defpath)
    call.begin(program, work, plugins, {"PATH": path, "LC_ALL": "C", "CRIU_LIBS_DIR": str(plugins)})


def _made(root: int, inner_pids: tuple[int, ...]) -> tuple[TaskIdentity, ...]:
    """Return what came back in the order in which it was frozen, by the numbers in its own namespace.

    Raises:
        CriuFailed: it is not what was frozen.
    """
    try:
        found = {parse_status(read_text(each.pid, "status")).inner_pid: identity_of(each) for each in below(root)}
    except (FileNotFoundError, ProcessLookupError, ProcessGone) as error:
        raise CriuFailed(f"a process of the container ended while it came back: {error}") from error
    if sorted(found) != sorted(inner_pids):
        raise CriuFailed(f"CRIU brought back processes {sorted(found)}, and {sorted(inner_pids)} were frozen")
    return tuple(found[each] for each in inner_pids)


async def _ended(task: TaskIdentity) -> None:
    try:
        descriptor = open_task(task)
    except OperationError:
        return
    try:
        await anyio.wait_readable(descriptor)
    finally:
        os.close(descriptor)


def make_parent(folder: Path) -> Path:
    """Make the folder above one, ours alone."""
    make_private_folder(folder.parent)
    return folder


def _close(door: CriuDoor) -> None:
    try:
        door.close()
    except OSError as error:
        log.warning("%s cannot be removed: %s", door.folder, error)


def _write_found(work: Path, paused: bool) -> None:
    write_atomic(work / FOUND, json.dumps({"paused": paused}).encode(), durable=False)


def _found_paused(work: Path) -> bool:
    try:
        match decode_json(read_bounded(work / FOUND, MAX_FOUND_BYTES)):
            case {"paused": bool(paused)}:
                return paused
    except (OSError, ValueError):
        return False
    return False


def _failure(work: Path, answer: CriuAnswer | None, name: str, doing: str) -> OperationError:
    said = "it ended without a word" if answer is None else answer.text
    return classify(_tail(work / name).decode(errors="replace"), said, doing=doing).as_error()


def _tail(path: Path) -> bytes:
    try:
        return path.read_bytes()[-MAX_LOG_BYTES:]
    except OSError:
        return b""


def _pages_size(images: Path) -> int:
    return sum(each.stat().st_size for each in images.glob("pages-*.img"))
