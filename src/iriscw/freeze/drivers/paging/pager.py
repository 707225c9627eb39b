"""Brings the pages of a restored tree: on demand, and by itself what nobody asks for. A process of its own.

Theory of operation. Before CRIU is asked, every piece that CRIU itself reads is compared. CRIU then connects and hands
over the address space of each task; while it builds, only pages that somebody waits for are brought. When it says that
it is done, the tree may run, and all that is missing comes: what is waited for first, then the rest from above, a piece
at a time. No byte is given out of a piece that was not compared (INV-C9); a piece that is not what was sealed ends it.

Who has the descriptor of a space keeps its tasks waiting. When the last one is closed the kernel gives *empty* pages
instead, and nobody would notice. So it is held twice: see :mod:`iriscw.freeze.drivers.paging.guard`.

Who waits for the first step of a program waits for this process to start. So it loads little; CRIU is asked as soon as
what it reads is compared; and what the guard needs, which is most, that loads itself meanwhile. The tree is not let run
before the guard has said that it is there.
"""

from __future__ import annotations

import array
import contextlib
import os
import re
import resource
import select
import signal
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from iriscw.freeze.criu_images import NotPagemap, Pagemap, read_pagemap
from iriscw.freeze.drivers.paging import guard
from iriscw.freeze.drivers.paging.notes import (
    COMPLETE,
    FAILED,
    MAX_PLAN_BYTES,
    PAGER_NAME,
    REFUSED,
    SOCKET,
    PagerNote as Record,
    PagingEnd,
    PagingPlan,
    decode_plan,
    prepare_complete,
    say,
    write_complete,
    write_end,
    write_pager,
)
from iriscw.freeze.drivers.paging.pieces import FilePieces, WrongByte
from iriscw.freeze.drivers.paging.space import PAGE, AddressSpace, PageAnswer
from iriscw.freeze.missing import Missing
from iriscw.processes.identity import ProcessGone, ProcessIdentity, identify

FINISHED: Final = 0x52535446
"""What CRIU sends when the tree is back. Else it sends process numbers, that of a zombie negative."""

READY: Final = b"ready\n"
MAX_PAGEMAP_BYTES: Final = 1 << 30
_NUMBER: Final = struct.Struct("=i")
_PAGEMAP: Final = re.compile(r"pagemap-([0-9]+)\.img")
_AGAIN_MS: Final = 1
"""Until a space that changes is looked at again: nobody is told when the kernel has gone on after it was heard."""


class Broken(Exception):
    """It cannot go on; the text says why."""


class Pager:
    """Brings the pages of one tree."""

    def __init__(self, plan: PagingPlan) -> None:
        self._plan = plan
        self.guard: guard.Guard | None = None
        self._tasks: list[ProcessIdentity] = []
        self._spaces: dict[int, AddressSpace] = {}
        self._waiting: deque[tuple[AddressSpace, int]] = deque()
        self._poll = select.poll()
        self._pagemaps: dict[int, Pagemap] = {}
        self._settled = False
        self._deadline_s = 0.0
        self._pieces = FilePieces(plan.images, plan.files, algorithm=plan.algorithm, piece_bytes=plan.piece_bytes)

    # Before CRIU is asked

    def prepare(self) -> socket.socket:
        """Compare what CRIU reads by itself, and listen for it.

        Raises:
            Refused: something is not what was sealed.
            OSError: something cannot be read, or the socket cannot be made.
        """
        self.write_record()
        prepare_complete(self._plan.work)
        for number, path in _pagemaps(self._plan.images):
            self._pagemaps[number] = _read_pagemap(path)
        owners = {f"pages-{each.pages}.img": each for each in self._pagemaps.values()}
        for file in self._plan.files:
            self._compare(file.name, owners.get(file.name))
        os.chdir(self._plan.work)  # the name of a socket has 108 bytes
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(SOCKET)
        os.chmod(SOCKET, 0o600)  # noqa: PTH101 - relative, in a folder that only we can enter
        listening.listen(1)
        return listening

    def _compare(self, name: str, pagemap: Pagemap | None) -> None:
        piece_bytes = self._plan.piece_bytes
        if pagemap is None:  # shared memory: CRIU reads all of it
            numbers = set(range(self._pieces.count_of(name)))
        elif pagemap.size_bytes != self._pieces.size_of(name):
            raise WrongByte(f"{name} has {self._pieces.size_of(name)} bytes, and {pagemap.size_bytes} are mapped")
        else:
            numbers = set()
            for each in pagemap.spans:
                if not each.lazy:
                    last = each.offset + each.end - each.start - 1
                    numbers.update(range(each.offset // piece_bytes, last // piece_bytes + 1))
        for number in sorted(numbers):
            self._pieces.address_of(name, number * piece_bytes)

    def write_record(self) -> None:
        """Write down who we are, and who waits for pages."""
        guarding = None if self.guard is None else self.guard.identity
        write_pager(self._plan.work, Record(identify(os.getpid()), guarding, tuple(self._tasks)))

    # While CRIU builds

    def start_guard(self) -> None:
        """Start who holds all that we hold, and write down who it is; before the first space is taken from CRIU.

        Raises:
            OSError: the kernel does not let us, or it cannot be written.
        """
        self.guard = guard.start(self._plan.work) if self.guard is None else self.guard.renewed()
        self.write_record()
        self._poll.register(self.guard.ended, select.POLLIN)

    def attend(self, listening: socket.socket) -> None:
        """Take the spaces from CRIU, and bring what is waited for, until CRIU says that the tree is back.

        Raises:
            Broken: CRIU ended before that, or said what it never says.
            Refused, OSError: as :meth:`finish`.
        """
        self._deadline_s = time.monotonic() + self._plan.restore_ns / 1e9
        self._poll.register(listening, select.POLLIN)
        while listening.fileno() not in self._events(None):
            pass
        channel = listening.accept()[0]
        self._poll.unregister(listening)
        listening.close()
        self._poll.register(channel, select.POLLIN)
        with channel:
            while True:
                heard = self._events(_AGAIN_MS if self._waiting else None)
                if channel.fileno() in heard and self._take(channel):
                    break
                self._hear(heard)
                self._serve_waiting()
            self._poll.unregister(channel)
        self._settled = True

    def _take(self, channel: socket.socket) -> bool:
        """Take one message of CRIU; say whether it was the last one."""
        number = _NUMBER.unpack(_exactly(channel, _NUMBER.size))[0]
        if number == FINISHED:
            return True
        if number < 0:  # a zombie has no memory
            return False
        descriptor = _descriptor(channel)
        pagemap = self._pagemaps.get(number)
        if pagemap is None:
            raise Broken(f"CRIU speaks of process {number}, which has no pagemap")
        missing = Missing((each.start, each.end, each.offset) for each in pagemap.spans if each.lazy)
        self._add(AddressSpace(descriptor, f"pages-{pagemap.pages}.img", missing))
        self._tasks.append(identify(number))
        self.write_record()
        return False

    def _add(self, space: AddressSpace) -> None:
        self._spaces[space.descriptor] = space
        self._poll.register(space.descriptor, select.POLLIN)

    # While the tree runs

    def finish(self) -> None:
        """Bring all that is missing.

        Raises:
            Refused: a piece is not what was sealed.
            Broken: it is not over in time.
            OSError: something cannot be read, or the kernel does not take pages.
        """
        self._deadline_s = time.monotonic() + self._plan.paging_ns / 1e9
        changes = False
        while True:
            for space in [each for each in self._spaces.values() if not each.missing]:
                self._let_go(space)
            if not self._spaces:
                return
            self._hear(self._events(_AGAIN_MS if changes else 0))
            changes = self._serve_waiting()
            for space in self._spaces.values():
                if space.missing and not changes:
                    self._waiting.append((space, space.missing.last() & -PAGE))
                    changes = self._serve_waiting()
                    break

    def _events(self, within_ms: int | None) -> set[int]:
        """Wait for something to read, at most as long as this, or until the deadline."""
        left_ms = (self._deadline_s - time.monotonic()) * 1000
        if left_ms <= 0:
            raise Broken("its pages did not come in time")
        found = self._poll.poll(left_ms if within_ms is None else min(within_ms, left_ms))
        heard = {descriptor for descriptor, _ in found}
        if self.guard is not None and self.guard.ended in heard:  # whoever killed it may mean us, too
            self._poll.unregister(self.guard.ended)
            self.start_guard()
        return heard

    def _hear(self, descriptors: set[int]) -> None:
        for descriptor in descriptors:
            space = self._spaces.get(descriptor)
            if space is None:
                continue
            faults, forked = space.hear()
            self._waiting.extend((space, address) for address in faults)
            for each in forked:
                self._add(each)

    def _serve_waiting(self) -> bool:
        """Bring what is waited for; say whether something changes, so that it has to be tried again."""
        for _ in range(len(self._waiting)):
            space, address = self._waiting.popleft()
            if space.descriptor not in self._spaces:
                continue
            match self._serve(space, address):
                case PageAnswer.CHANGES:
                    self._waiting.append((space, address))
                    return True
                case PageAnswer.GONE:
                    self._let_go(space)
        return False

    def _serve(self, space: AddressSpace, address: int) -> PageAnswer:
        offset = space.missing.offset_of(address)
        if offset is None:
            return space.empty(address)
        low = offset // self._plan.piece_bytes * self._plan.piece_bytes
        ranges = [(address, address + PAGE, offset)]
        if self._settled:
            ranges = space.missing.around(address, low, low + self._plan.piece_bytes)
        return space.fill(ranges, lambda at: self._pieces.address_of(space.file, at), settled=self._settled)

    def _let_go(self, space: AddressSpace) -> None:
        del self._spaces[space.descriptor]
        self._poll.unregister(space.descriptor)
        space.close()


def _pagemaps(images: Path) -> Iterator[tuple[int, Path]]:
    for path in images.iterdir():
        if match := _PAGEMAP.fullmatch(path.name):
            yield int(match.group(1)), path


def _read_pagemap(path: Path) -> Pagemap:
    if path.stat().st_size > MAX_PAGEMAP_BYTES:
        raise WrongByte(f"{path.name} is larger than any pagemap")
    try:
        return read_pagemap(path.read_bytes(), PAGE)
    except NotPagemap as error:
        raise WrongByte(f"{path.name} is not a pagemap: {error}") from error


def _exactly(channel: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = channel.recv(size - len(data))
        if not piece:
            raise Broken("CRIU ended before the tree was back")
        data += piece
    return data


def _descriptor(channel: socket.socket) -> int:
    """Take the one descriptor that CRIU sends, with a byte that says nothing."""
    taken = array.array("i")
    _, control, _, _ = channel.recvmsg(1, socket.CMSG_SPACE(taken.itemsize), socket.MSG_CMSG_CLOEXEC)
    for level, kind, data in control:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            taken.frombytes(data[: len(data) - len(data) % taken.itemsize])
    if len(taken) != 1:
        raise Broken("CRIU sent a process without its address space")
    return taken[0]


def main() -> int:
    """Read the plan from standard input, say ``ready``, bring all pages; give the exit code."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)  # the tree needs us; we end by ourselves, at the deadline at the latest
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    Path("/proc/self/comm").write_text(PAGER_NAME, encoding="ascii")  # who freezes looks for it
    plan = decode_plan(sys.stdin.buffer.read(MAX_PLAN_BYTES))
    end = PagingEnd(FAILED, "it ended without a reason")
    pager: Pager | None = None
    try:
        pager = Pager(plan)
        with pager.prepare() as listening:
            os.write(1, READY)
            pager.start_guard()
            pager.attend(listening)
        pager.finish()
        assert pager.guard is not None
        pager.guard.has_all()
        end = PagingEnd(COMPLETE)
    except WrongByte as error:
        end = PagingEnd(REFUSED, str(error))
    except (Broken, OSError, ProcessGone) as error:
        end = PagingEnd(FAILED, str(error))
    except BaseException as error:
        end = PagingEnd(FAILED, f"{type(error).__name__}: {error}")
        raise
    finally:
        _write_down(plan.work, end)
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # those that were left to the guard
        if pager is not None and pager.guard is not None:  # before that nothing of the tree was to run
            pager.guard.take_over()
    return int(end.kind != COMPLETE)


def _write_down(work: Path, end: PagingEnd) -> None:
    """Say how it ended. Whoever finds nothing takes the exit code, or the last line of what was said."""
    try:
        if end.kind == COMPLETE:
            write_complete(work)
        else:
            write_end(work, end)
    except OSError as error:
        say(f"{end.text or 'all pages came'}, and that cannot be written down", error)


if __name__ == "__main__":
    sys.exit(main())
