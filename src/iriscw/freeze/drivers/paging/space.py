"""One address space whose pages are missing, and how they come to it.

Theory of operation. The kernel stops who touches a missing page and tells us; it also tells us, and waits until we
heard, when the program unmaps, moves, empties or forks. So what we hold to be missing is what is missing, as long as
all that was told is read before pages are put somewhere; the kernel refuses that (``EAGAIN``) while something is
untold.

=========== ======================================================================================================
answer      what it means, and what is done
=========== ======================================================================================================
``EAGAIN``  the space changes: read what is told, look again
``EEXIST``  the page is there: it is missing no more
``ENOENT``  no memory that waits for pages is there, or two of them side by side: half as much is tried, down to
            one page. Twice for one page, with nothing read in between, is certain: a change between the two would
            have been ``EAGAIN``. Then the program has given it up
``ESRCH``   the space is gone
=========== ======================================================================================================

An address that is not missing and has no page was never in the images: it gets an empty one, as without us.
"""

from __future__ import annotations

import enum
import errno
import os
from collections.abc import Callable
from typing import Final

from iriscw.freeze.drivers.paging import uffd
from iriscw.freeze.missing import Missing, Range

PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class PageAnswer(enum.Enum):
    """What became of an attempt."""

    DONE = "done"
    CHANGES = "changes"
    """There is something to read first, or the kernel has not gone on after it was read."""
    GONE = "gone"


class AddressSpace:
    """One address space. Its descriptor is ours."""

    def __init__(self, descriptor: int, file: str, missing: Missing) -> None:
        self.descriptor = descriptor
        self.file = file
        self.missing = missing

    def hear(self) -> tuple[list[int], list[AddressSpace]]:
        """Read what the kernel has to tell; give the addresses that somebody waits for, and what was forked off.

        Raises:
            OSError: it cannot be read.
        """
        faults: list[int] = []
        forked: list[AddressSpace] = []
        for event in uffd.events(self.descriptor):
            first, second, third = event.numbers
            match event.kind:
                case uffd.FAULT:
                    faults.append(second & -PAGE)
                case uffd.FORK:
                    forked.append(AddressSpace(first, self.file, self.missing.copied()))
                case uffd.REMAP:
                    self.missing.move(first, second, third)
                case uffd.REMOVE | uffd.UNMAP:
                    self.missing.drop(first, second)
        return faults, forked

    def fill(self, ranges: list[Range], address_of: Callable[[int], int], *, settled: bool = True) -> PageAnswer:
        """Put pages where they are missing.

        Args:
            ranges: What of it.
            address_of: Gives where an offset of the file lies in our memory.
            settled: Whether all memory waits for pages by now: while CRIU still builds, what is not there yet stays.
        """
        for start, end, offset in ranges:
            answer = self._fill(start, end, address_of(offset), settled=settled)
            if answer is not PageAnswer.DONE:
                return answer
        return PageAnswer.DONE

    def _fill(self, start: int, end: int, source: int, *, settled: bool) -> PageAnswer:
        at, step, doubted = start, end - start, -1
        while at < end:
            done, error = uffd.copy(self.descriptor, at, source + at - start, min(step, end - at))
            if done > 0:
                self.missing.drop(at, at + done)
                at += done
                step *= 2
            elif error == errno.EEXIST:
                uffd.wake(self.descriptor, at, PAGE)
                self.missing.drop(at, at + PAGE)
                at += PAGE
            elif error == errno.ENOENT and min(step, end - at) > PAGE:
                step = max(PAGE, min(step, end - at) // 2 & -PAGE)
            elif error == errno.ENOENT and not settled:
                return PageAnswer.DONE
            elif error == errno.ENOENT and doubted != at:
                doubted = at
            elif error == errno.ENOENT:
                self.missing.drop(at, at + PAGE)
                at += PAGE
            elif error == errno.EAGAIN:
                return PageAnswer.CHANGES
            elif error == errno.ESRCH:
                return PageAnswer.GONE
            else:
                raise OSError(error, f"the kernel does not take pages at {at:#x}: {os.strerror(error)}")
        return PageAnswer.DONE

    def empty(self, address: int) -> PageAnswer:
        """Put an empty page where one is asked for that was never in the images."""
        error = uffd.zero(self.descriptor, address, PAGE)
        if error == errno.EAGAIN:
            return PageAnswer.CHANGES
        if error == errno.ESRCH:
            return PageAnswer.GONE
        if error in (0, errno.ENOENT, errno.EEXIST):
            uffd.wake(self.descriptor, address, PAGE)  # who waits looks again: the page came by another way
            return PageAnswer.DONE
        raise OSError(error, f"the kernel takes no empty page at {address:#x}: {os.strerror(error)}")

    def close(self) -> None:
        """Let go of it: what has no page from here on gets an empty one."""
        os.close(self.descriptor)
