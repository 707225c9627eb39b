"""Putting pages into an address space, with the kernel's own userfaultfd on memory of this process.

Only threads that are in a call of C touch that memory: one that waits for a page must not hold Python's lock.
"""

import ctypes
import mmap
import os
import select
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from iriscw.freeze.drivers.paging.space import PAGE, AddressSpace, PageAnswer
from iriscw.freeze.drivers.processes.reading import _waits_for_pages
from iriscw.freeze.missing import Missing

SYS_USERFAULTFD = 323
UFFDIO_API = 0xC018AA3F
UFFDIO_REGISTER = 0xC020AA00
MISSING_MODE = 1
EVENT_FEATURES = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 6
"""Fork, remap, remove and unmap, as their features are numbered."""

PAGES = 16
PATIENCE_S = 60.0
MAP_PRIVATE_ANONYMOUS = 0x22
READ_WRITE = 3
DONTNEED = 4
MAYMOVE_FIXED = 3

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
libc.mremap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
libc.memcpy.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
libc.ioctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p)


def called(request: int, descriptor: int, form: str, *values: int) -> None:
    """Make a call of userfaultfd."""
    if libc.ioctl(descriptor, request, ctypes.create_string_buffer(struct.pack(form, *values))) < 0:
        raise OSError(ctypes.get_errno(), "userfaultfd")


class Area:
    """Memory that waits for its pages; the source has a byte of its own for each."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.size = PAGES * PAGE
        self.start = libc.mmap(None, self.size, READ_WRITE, MAP_PRIVATE_ANONYMOUS, -1, 0)
        called(UFFDIO_REGISTER, descriptor, "=4Q", self.start, self.size, MISSING_MODE, 0)
        self.source = mmap.mmap(-1, self.size)
        for number in range(PAGES):
            self.source[number * PAGE : (number + 1) * PAGE] = bytes([number + 1]) * PAGE
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.source))
        self.space = AddressSpace(descriptor, "pages-1.img", Missing([(self.start, self.start + self.size, 0)]))

    def fill(self, settled: bool = True) -> PageAnswer:
        """Put all that is missing where it is missing."""
        return self.space.fill(list(self.space.missing.ranges()), lambda at: self.address + at, settled=settled)

    def filled(self) -> None:
        """The same, however often the space changes meanwhile."""
        while self.fill() is PageAnswer.CHANGES:
            self.hear()

    def hear(self) -> tuple[list[int], list[AddressSpace]]:
        """Wait until there is something to hear, or a moment."""
        select.select([self.descriptor], [], [], 0.01)
        return self.space.hear()

    def at(self, page: int) -> int:
        """Return the address of a page."""
        return self.start + page * PAGE


def opened() -> int:
    """Open a userfaultfd with its events, or skip and say why there is none."""
    descriptor = libc.syscall(SYS_USERFAULTFD, os.O_CLOEXEC | os.O_NONBLOCK)
    if descriptor < 0:
        pytest.skip(f"no userfaultfd here: {os.strerror(ctypes.get_errno())}")
    try:
        called(UFFDIO_API, descriptor, "=3Q", 0xAA, EVENT_FEATURES, 0)
    except OSError as error:
        os.close(descriptor)
        pytest.skip(f"this kernel's userfaultfd has no events: {error}")
    return descriptor


@pytest.fixture
def area():
    """An area whose userfaultfd is ours."""
    descriptor = opened()
    yield Area(descriptor)
    os.close(descriptor)


def test_who_freezes_sees_memory_that_waits_for_pages() -> None:
    """As long as somebody has the descriptor of the space, and no longer."""
    descriptor = opened()
    try:
        area = Area(descriptor)
        assert _waits_for_pages(os.getpid())
    finally:
        os.close(descriptor)
    assert not _waits_for_pages(os.getpid())
    libc.munmap(area.start, area.size)


def in_thread(function, *values) -> threading.Thread:
    """Call a function of C in a thread."""
    thread = threading.Thread(target=function, args=values, daemon=True)
    thread.start()
    return thread


def first_bytes(area: Area, pages, start=None) -> list[int]:
    """Read the first byte of pages, in a thread that may wait; answer whoever waits meanwhile."""
    found = (ctypes.c_char * PAGES)()
    start = area.start if start is None else start

    def read() -> None:
        for number in pages:
            libc.memcpy(ctypes.addressof(found) + number, start + number * PAGE, 1)

    thread = in_thread(read)
    while thread.is_alive():
        faults, _ = area.hear()
        for address in faults:
            offset = area.space.missing.offset_of(address)
            if offset is None:
                area.space.empty(address)
            else:
                area.space.fill([(address, address + PAGE, offset)], lambda at: area.address + at)
    thread.join()
    return [found[number][0] for number in pages]


def heard_until(area: Area, thread: threading.Thread) -> list[AddressSpace]:
    """Hear what the space tells until a thread has ended; give what was forked off."""
    forked = []
    while thread.is_alive():
        forked += area.hear()[1]
    thread.join()
    return forked


def test_pages_come_on_demand_and_by_themselves(area):
    """One that is waited for, then the rest at once; nothing is missing then, and each byte is its own."""
    assert first_bytes(area, [5]) == [6]
    assert area.space.missing.offset_of(area.at(5)) is None
    assert area.fill() is PageAnswer.DONE
    assert not area.space.missing
    assert first_bytes(area, range(PAGES)) == [number + 1 for number in range(PAGES)]


def test_a_page_that_is_there_already_is_left_as_it_is(area):
    """It is asked for again, because nobody knew: what the program wrote since stays."""
    assert first_bytes(area, [3]) == [4]
    libc.memcpy(area.at(3), area.address + 8 * PAGE, 1)
    area.space.missing = Missing([(area.start, area.start + area.size, 0)])
    assert area.fill() is PageAnswer.DONE
    assert first_bytes(area, [2, 3, 4]) == [3, 9, 5]


def test_what_the_program_gave_up_stays_empty(area):
    """``MADV_DONTNEED``: the page is an empty one, as without us, and is not brought any more."""
    heard_until(area, in_thread(libc.madvise, area.at(4), 4 * PAGE, DONTNEED))
    assert area.space.missing.offset_of(area.at(4)) is None
    area.filled()
    assert first_bytes(area, [3, 4, 7, 8]) == [4, 0, 0, 9]


def test_what_was_unmapped_is_no_error(area):
    """The ends on both sides of a hole are filled, although they were one range when it was asked for."""
    heard_until(area, in_thread(libc.munmap, area.at(6), 2 * PAGE))
    area.filled()
    assert not area.space.missing
    assert first_bytes(area, [5, 8]) == [6, 9]


def test_memory_that_never_waits_for_pages_is_dropped(area):
    """What we take for missing and is none of the space: certain after two refusals, and the rest is filled."""
    stranger = libc.mmap(None, 2 * PAGE, READ_WRITE, MAP_PRIVATE_ANONYMOUS, -1, 0)
    area.space.missing = Missing([(stranger, stranger + 2 * PAGE, 0), (area.at(1), area.at(3), PAGE)])
    assert area.fill(settled=False) is PageAnswer.DONE
    assert area.space.missing.offset_of(stranger) == 0
    assert area.fill() is PageAnswer.DONE
    assert not area.space.missing


def test_memory_that_was_moved_gets_its_pages_where_it_is(area):
    """While the move is not heard of, no page is put anywhere: neither here nor there."""
    target = libc.mmap(None, area.size, READ_WRITE, MAP_PRIVATE_ANONYMOUS, -1, 0)
    size = 4 * PAGE
    thread = in_thread(libc.mremap, area.at(2), size, size, MAYMOVE_FIXED, target)
    assert select.select([area.descriptor], [], [], PATIENCE_S)[0]
    assert area.fill() is PageAnswer.CHANGES
    heard_until(area, thread)
    area.filled()
    assert not area.space.missing
    assert first_bytes(area, range(4), target) == [3, 4, 5, 6]
    assert first_bytes(area, [1, 6]) == [2, 7]


FORKING = """
import ctypes, os, socket, sys
sys.path[:0] = sys.argv[2:]
import test_space as shared
descriptor = shared.opened()
channel = socket.socket(fileno=int(sys.argv[1]))
area = shared.Area(descriptor)
socket.send_fds(channel, [area.start.to_bytes(8, "little")], [descriptor])
os.close(descriptor)
child = os.fork()
if child:
    shared.libc.madvise(area.start, shared.PAGE, shared.DONTNEED)
channel.recv(1)
channel.send(b"".join(ctypes.string_at(area.at(number), 1) for number in range(shared.PAGES)))
if child:
    os.waitpid(child, 0)
"""


def test_a_space_that_was_forked_off_gets_the_same_pages():
    """Both get all; what one of them gave up is the other's still; one that has ended is gone."""
    os.close(opened())
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    source = mmap.mmap(-1, PAGES * PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(source))
    source[:] = b"".join(bytes([number + 1]) * PAGE for number in range(PAGES))
    argv = [sys.executable, "-c", FORKING, str(its.fileno()), str(Path(__file__).parent)]
    ours.settimeout(PATIENCE_S)
    with ours, subprocess.Popen(argv, pass_fds=[its.fileno()]) as process:
        its.close()
        start, descriptors, _, _ = socket.recv_fds(ours, 8, 1)
        begin = int.from_bytes(start, "little")
        parent = AddressSpace(descriptors[0], "pages-1.img", Missing([(begin, begin + PAGES * PAGE, 0)]))
        forked = []
        while not forked or parent.missing.offset_of(begin) is not None:
            assert select.select([parent.descriptor], [], [], PATIENCE_S)[0]
            forked += parent.hear()[1]
        (child,) = forked
        for space in (child, parent):
            while space.fill(list(space.missing.ranges()), lambda at: address + at) is PageAnswer.CHANGES:
                select.select([space.descriptor], [], [], 0.01)
                space.hear()
        parent.close()  # the page that was given up is an empty one from here on
        ours.send(b"x")
        ours.send(b"x")
        assert {ours.recv(PAGES), ours.recv(PAGES)} == {
            bytes(range(1, PAGES + 1)),
            bytes([0, *range(2, PAGES + 1)]),
        }
        assert process.wait(PATIENCE_S) == 0
    child.missing = Missing([(begin, begin + PAGE, 0)])
    assert child.fill(list(child.missing.ranges()), lambda at: address + at) is PageAnswer.GONE
    assert child.empty(begin) is PageAnswer.GONE
    child.close()
