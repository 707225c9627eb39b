"""Starting a pager, waiting for one, ending one: for the process that thaws, in this life or a later one."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import anyio

from iriscw.freeze.drivers.paging.guard import GUARDED
from iriscw.freeze.drivers.paging.notes import (
    COMPLETE,
    KILLED,
    REFUSED,
    File,
    PagerNote as Record,
    PagingEnd,
    PagingPlan,
    encode_plan,
    read_end,
    read_pager,
)
from iriscw.freeze.model import ArtifactRefused, LazyPages, PagingFailed, RestoreRequest
from iriscw.processes.identity import ProcessGone, ProcessIdentity, open_pidfd, read_stat

PROGRAM: Final = "iriscw.freeze.drivers.paging.pager"
OUTPUT: Final = "pager.out"
READY: Final = b"ready\n"
KILLED_NS: Final = 5_000_000_000
MAX_OUTPUT_BYTES: Final = 4096


class StartedPager:
    """A pager that this process has started."""

    def __init__(self, process: subprocess.Popen[bytes], work: Path) -> None:
        self._process = process
        self._pidfd = os.pidfd_open(process.pid)
        self._work = work

    async def ready(self) -> None:
        """Wait until CRIU may be asked; a pager that is not waited for until then is killed.

        Raises:
            ArtifactRefused, PagingFailed: it ended instead.
        """
        try:
            await self._says(READY)
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise

    async def guarded(self) -> None:
        """Wait until the tree may run: should the pager be killed from now on, its guard kills the tree.

        Raises:
            ArtifactRefused, PagingFailed: it, or its guard, ended instead.
            OSError: it cannot be told who its guard is.
        """
        record = read_pager(self._work)
        if record is not None and record.guard is not None:
            await self._guard_says(record.guard)
        await self._says(GUARDED)

    async def _guard_says(self, guard: ProcessIdentity) -> None:
        """Wait until there is something to read; a guard that was killed says nothing, and its pager lives on."""
        assert self._process.stdout is not None
        output = self._process.stdout.fileno()
        with contextlib.suppress(ProcessGone), select.epoll() as either:
            descriptor = open_pidfd(guard)
            try:
                for each in (output, descriptor):
                    either.register(each, select.EPOLLIN)
                await anyio.wait_readable(either.fileno())
            finally:
                os.close(descriptor)
        if not select.select([output], [], [], 0)[0]:
            raise PagingFailed("who was to guard its pages was killed")

    async def _says(self, word: bytes) -> None:
        assert self._process.stdout is not None
        output = self._process.stdout.fileno()
        await anyio.wait_readable(output)
        if os.read(output, len(word)) != word:
            await self.ended()
            raise _why(self._work)

    async def ended(self) -> bool:
        """Wait until it has ended; say whether it had brought all pages."""
        await anyio.wait_readable(self._pidfd)
        return self._process.wait() == 0

    def close(self) -> None:
        """Look at it no more; it goes on. One that ended is reaped by whoever waits for its pages."""
        os.close(self._pidfd)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process.poll()
        self._process.returncode = self._process.returncode or 0  # it is not a child of this object's any more


def start(work: Path, request: RestoreRequest, pages: LazyPages) -> StartedPager:
    """Start a pager in a session of its own. Blocks for some milliseconds.

    Raises:
        OSError: the folder cannot be used, or the machine has no room for one more process.
    """
    plan = PagingPlan(
        images=Path(request.images),
        work=work,
        algorithm=pages.algorithm,
        piece_bytes=pages.piece_bytes,
        files=tuple(File(each.name, each.size_bytes, each.digests) for each in pages.files),
        restore_ns=request.within_ns,
        paging_ns=request.paging_ns,
    )
    with os.fdopen(os.memfd_create("plan", os.MFD_CLOEXEC), "r+b") as order, (work / OUTPUT).open("ab") as output:
        order.write(encode_plan(plan))
        order.seek(0)
        process = subprocess.Popen(  # noqa: S603  # a list of arguments
            [sys.executable, "-I", "-m", PROGRAM],
            stdin=order,
            stdout=subprocess.PIPE,
            stderr=output,
            cwd=work,
            start_new_session=True,
            env={"LC_ALL": "C"},
        )
    return StartedPager(process, work)


async def watched(pager: StartedPager, work: Path) -> Exception:
    """Wait until a pager has failed; one that has brought all pages has not."""
    if await pager.ended():
        await anyio.sleep_forever()
    return _why(work)


def _why(work: Path) -> Exception:
    """Return the error of a pager that has failed before its tree ran."""
    try:
        return failure(read_end(work), _last_words(work))
    except OSError as error:
        return PagingFailed(f"who was to bring its pages failed, and why cannot be read: {error}")


async def all_there(work: Path, within_ns: int) -> None:
    """Wait until all pages are there, whoever started the pager.

    Raises:
        ArtifactRefused: a piece is not what was sealed.
        PagingFailed: the pager is gone, or does not end.
        OSError: that cannot be told at present. The tree may be whole: ask again.
    """
    record = read_pager(work)
    if record is None:
        raise PagingFailed("nobody can say who brings its pages")
    try:
        with anyio.fail_after(within_ns / 1e9):
            await _gone(record)
    except TimeoutError as error:
        raise PagingFailed("who brings its pages does not come to an end") from error
    end = read_end(work)
    if end is None or end.kind != COMPLETE:
        raise failure(end, _last_words(work))


async def end_pager(work: Path) -> None:
    """Kill the pager of an operation, and its guard; its tree must have been ended before. May be repeated.

    One that hangs in the kernel is left to it.

    Raises:
        OSError: it cannot be told at present who they are, or they cannot be opened.
    """
    record = read_pager(work)
    if record is None:
        return
    for each in filter(None, (record.guard, record.pager)):
        with contextlib.suppress(ProcessGone):
            descriptor = open_pidfd(each)
            try:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            finally:
                os.close(descriptor)
    with anyio.move_on_after(KILLED_NS / 1e9):
        await _gone(record)


async def _gone(record: Record) -> None:
    for each in filter(None, (record.pager, record.guard)):
        await _ended(each)


async def _ended(process: ProcessIdentity) -> None:
    try:
        descriptor = open_pidfd(process)
    except ProcessGone:
        _reap(process)
        return
    try:
        await anyio.wait_readable(descriptor)
    finally:
        os.close(descriptor)
    _reap(process)


def _reap(process: ProcessIdentity) -> None:
    """Reap it where it is a child of ours: that of another life is not."""
    with contextlib.suppress(ProcessGone, ChildProcessError):
        found = read_stat(process.pid)
        if found.ended and found.start_ticks == process.start_ticks and found.parent_pid == os.getpid():
            os.waitpid(process.pid, os.WNOHANG)


def failure(end: PagingEnd | None, said: str = "") -> Exception:
    """Return the error for an end that is none of success."""
    if end is not None and end.kind == REFUSED:
        return ArtifactRefused(end.text)
    if end is not None:
        return PagingFailed(end.text)
    return PagingFailed(f"who brought its pages ended: {said}" if said else KILLED)


def _last_words(work: Path) -> str:
    try:
        with (work / OUTPUT).open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - MAX_OUTPUT_BYTES))
            lines = file.read(MAX_OUTPUT_BYTES).decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1][:200] if lines else ""
