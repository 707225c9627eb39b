"""What the kernel's files about a process say, as far as freezing needs it: pure readers of their texts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from iriscw.freeze.model import Obstacle

SIGKILL_BIT: Final = 1 << 8
EXITING: Final = 0x4
KERNEL_THREAD: Final = 0x200000

_LISTENING, _CLOSED = "0A", "07"

MEMORY_MAJOR: Final = 1
TERMINAL_MAJORS: Final = (4, 5, *range(136, 144))
NVIDIA_PREFIX: Final = "/dev/nvidia"
"""Devices of the GPU: they are closed by a CUDA checkpoint, and the gates judge what is left."""

KNOWN_DEVICES: Final = ("/dev/fuse", "/dev/net/tun", "/dev/rtc")
"""Devices that CRIU dumps beside memory and terminals."""


_MISSING_PAGES: Final = "um"
"""In ``VmFlags``: the kernel asks a userfaultfd for pages that are missing."""


@attrs.frozen
class StatTail:
    """The fields of ``/proc/<pid>/stat`` that :mod:`iriscw.processes.identity` leaves."""

    terminal: int
    flags: int

    @property
    def exiting(self) -> bool:
        """Whether it is on its way out, whatever its state says."""
        return bool(self.flags & EXITING)

    @property
    def of_the_kernel(self) -> bool:
        """Whether it is a thread of the kernel."""
        return bool(self.flags & KERNEL_THREAD)


def parse_stat_tail(text: str) -> StatTail:
    """Read a line of ``/proc/<pid>/stat``.

    Raises:
        ValueError: it is none.
    """
    fields = text.rpartition(") ")[2].split()
    if len(fields) < 7:
        raise ValueError(f"not a line of /proc/<pid>/stat: {text[:80]!r}")
    return StatTail(terminal=int(fields[4]), flags=int(fields[6]))


@attrs.frozen
class Status:
    """What ``/proc/<pid>/status`` says."""

    memory_bytes: int = 0
    traced_by: int = 0
    killed: bool = False
    """SIGKILL is pending: it has only not gone yet."""
    first_of_namespace: bool = False
    inner_pid: int = 0
    """Its number in its own PID namespace; 0 if that is the one that was read from."""


def parse_status(text: str) -> Status:
    """Read ``/proc/<pid>/status``; a line that is missing is as if nothing of it were so."""
    lines = dict(line.partition(":")[::2] for line in text.splitlines())

    def number(name: str, base: int = 10) -> int:
        words = lines.get(name, "").split()
        return int(words[0], base) if words else 0

    numbers = lines.get("NSpid", "").split()
    return Status(
        memory_bytes=number("VmRSS") * 1024,
        traced_by=number("TracerPid"),
        killed=bool((number("SigPnd", 16) | number("ShdPnd", 16)) & SIGKILL_BIT),
        first_of_namespace=bool(numbers) and numbers[-1] == "1",
        inner_pid=int(numbers[-1]) if len(numbers) > 1 else 0,
    )


def waits_for_pages(lines: Iterable[str]) -> bool:
    """Say whether pages of some memory are brought by a userfaultfd, from the lines of ``/proc/<pid>/smaps``.

    It reads no further than the first such memory: each line costs the kernel a walk over pages.
    """
    return any(line.startswith("VmFlags:") and _MISSING_PAGES in line.split() for line in lines)


def connected_sockets(text: str) -> dict[str, str]:
    """Give, from ``/proc/<pid>/net/tcp`` or ``tcp6``, the inodes of sockets with a peer, and its address."""
    found = {}
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) >= 10 and fields[3] not in (_LISTENING, _CLOSED) and fields[9] != "0":
            found[fields[9]] = fields[2]
    return found


def obstacle_of_link(link: str) -> Obstacle | None:
    """Say what stands in the way by where a descriptor's link points; sockets and devices are judged elsewhere."""
    return Obstacle.IO_URING if link.startswith("anon_inode:[io_uring]") else None


def obstacle_of_device(path: str, major: int) -> Obstacle | None:
    """Say what stands in the way by the device that a descriptor means."""
    if major == MEMORY_MAJOR or path.startswith((NVIDIA_PREFIX, *KNOWN_DEVICES)):
        return None
    return Obstacle.TERMINAL if major in TERMINAL_MAJORS else Obstacle.DEVICE
