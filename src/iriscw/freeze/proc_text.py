"""What the kernel's files about a process say, as far as freezing needs it: pure readers of their texts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import attrs

from iriscw.freeze.traits import Area, FileLock, Obstacle

SIGKILL_BIT: Final = 1 << 8
EXITING: Final = 0x4
KERNEL_THREAD: Final = 0x200000

_LISTENING, _CLOSED = "0A", "07"

MEMORY_MAJOR: Final = 1
SLAVE_MAJORS: Final = tuple(range(136, 144))
MASTER: Final = (5, 2)
"""The device ``/dev/ptmx``."""
NVIDIA_PREFIX: Final = "/dev/nvidia"
"""Devices of the GPU: they are closed by a CUDA checkpoint, and the gates judge what is left."""

KNOWN_DEVICES: Final = ("/dev/fuse", "/dev/net/tun", "/dev/rtc")
"""Devices that CRIU dumps beside memory and terminals."""


_MISSING_PAGES: Final = "um"
"""In ``VmFlags``: the kernel asks a userfaultfd for pages that are missing."""


MADE_UP: Final = ("/memfd:", "/proc/", "/sys/", "/dev/")
DELETED: Final = " (deleted)"
"""What the kernel adds to a name that was removed."""

KEPT_LINES: Final = (
    "Name",
    "Umask",
    "Uid",
    "Gid",
    "Groups",
    "SigIgn",
    "SigCgt",
    "CapInh",
    "CapPrm",
    "CapEff",
    "CapBnd",
    "CapAmb",
    "NoNewPrivs",
    "Seccomp",
    "Seccomp_filters",
    "THP_enabled",
)
"""Lines of a status that CRIU brings back, and that do not change while a process is held. Blocked signals do: CRIU
blocks all while it is in there, and the kernel those of a handler.
"""


SPECULATION: Final = ("Speculation_Store_Bypass", "SpeculationIndirectBranch")
"""Lines of a status: what a processor may guess for a thread. Their places are numbers of the kernel's."""

ASKED_FOR_ITSELF: Final = 0x80
EARLY: Final = 0x08000000
"""``PF_MCE_PROCESS`` and ``PF_MCE_EARLY``: a thread has said what is to happen at broken memory, and when."""


@attrs.frozen
class StatTail:
    """The fields of ``/proc/<pid>/stat`` that :mod:`iriscw.processes.identity` leaves."""

    terminal: int
    flags: int
    nice: int = 0
    policy: str = ""
    """Scheduling policy and its priority among real-time ones."""
    layout: tuple[int, ...] = ()
    """Where its program, stack and data begin; empty if that is not told."""

    @property
    def exiting(self) -> bool:
        """Whether it is on its way out, whatever its state says."""
        return bool(self.flags & EXITING)

    @property
    def at_broken_memory(self) -> int:
        """What of its flags is about that; 0 if it has the machine's way, whatever it had before."""
        return self.flags & (ASKED_FOR_ITSELF | EARLY) if self.flags & ASKED_FOR_ITSELF else 0

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
    policy = f"{fields[38]} {fields[37]}" if len(fields) > 38 else ""
    nice = int(fields[16]) if len(fields) > 16 else 0
    layout = tuple(int(fields[place]) for place in _LAYOUT) if len(fields) > max(_LAYOUT) else ()
    told = all(each > 1 for each in layout)  # to who may not know, the kernel says 0 or 1
    return StatTail(int(fields[4]), int(fields[6]), nice, policy, layout if told else ())


_LAYOUT: Final = (23, 25, 42)
"""Fields of a stat after its name: ``startcode``, ``startstack``, ``start_data``."""


@attrs.frozen
class ProcStatus:
    """What ``/proc/<pid>/status`` says."""

    memory_bytes: int = 0
    """What is its own and of no file: in memory, swapped out, or in huge pages."""
    traced_by: int = 0
    killed: bool = False
    """SIGKILL is pending: it has only not gone yet."""
    first_of_namespace: bool = False
    inner_pid: int = 0
    """Its number in its own PID namespace; 0 if that is the one that was read from."""
    cpus: str = ""
    """The processors that it may run on."""
    speculation: tuple[tuple[str, str], ...] = ()
    """See :data:`SPECULATION`."""
    kept: tuple[tuple[str, str], ...] = ()
    """See :data:`KEPT_LINES`."""


def parse_status(text: str) -> ProcStatus:
    """Read ``/proc/<pid>/status``; a line that is missing is as if nothing of it were so."""
    lines = dict(line.partition(":")[::2] for line in text.splitlines())

    def number(name: str, base: int = 10) -> int:
        words = lines.get(name, "").split()
        return int(words[0], base) if words else 0

    numbers = lines.get("NSpid", "").split()
    private = number("RssAnon") if "RssAnon" in lines else number("VmRSS")
    return ProcStatus(
        memory_bytes=(private + number("VmSwap") + number("HugetlbPages")) * 1024,
        traced_by=number("TracerPid"),
        killed=bool((number("SigPnd", 16) | number("ShdPnd", 16)) & SIGKILL_BIT),
        first_of_namespace=bool(numbers) and numbers[-1] == "1",
        inner_pid=int(numbers[-1]) if len(numbers) > 1 else 0,
        cpus=lines.get("Cpus_allowed_list", "").strip(),
        speculation=tuple((name, lines[name].strip()) for name in SPECULATION if name in lines),
        kept=tuple((name, " ".join(lines[name].split())) for name in KEPT_LINES if name in lines),
    )


def all_numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of a thread in each PID namespace that it is in, from its status."""
    return next((tuple(map(int, line.split()[1:])) for line in text.splitlines() if line.startswith("NSpid:")), ())


def parse_limits(text: str) -> tuple[tuple[str, str], ...]:
    """Return the limits in ``/proc/<pid>/limits``: a name, and its soft and hard value."""
    found = []
    for line in text.splitlines()[1:]:
        fields = line[26:].split()
        if len(fields) >= 2:
            found.append((line[:26].strip(), " ".join(fields[:2])))
    return tuple(found)


def parse_locks(descriptor: int, text: str) -> tuple[FileLock, ...]:
    """Return the locks that ``/proc/<pid>/fdinfo/<descriptor>`` names; what somebody waits for is none."""
    found = []
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < 8 or fields[0] != "lock:" or fields[2] == "->":
            continue
        end = -1 if fields[-1] == "EOF" else int(fields[-1])
        found.append(FileLock(descriptor, fields[2], fields[4], int(fields[-2]), end, place=fields[-3]))
    return tuple(found)


@attrs.frozen
class HeldLock:
    """One line of ``/proc/locks``: a lock that somebody holds; -1 as its process where that is not told."""

    kind: str
    mode: str
    pid: int
    place: str
    start: int
    end: int
    """Of its last byte; -1: to the end of the file."""


def parse_held_locks(text: str) -> tuple[HeldLock, ...]:
    """Return the locks that ``/proc/locks`` names; what somebody waits for is none."""
    found = []
    for line in text.splitlines():
        fields = line.split()
        if len(fields) == 8 and fields[1] != "->":
            end = -1 if fields[7] == "EOF" else int(fields[7])
            found.append(HeldLock(fields[1], fields[3], int(fields[4]), fields[5], int(fields[6]), end))
    return tuple(found)


_OF_PROCESS: Final = re.compile(r"/proc/(?P<process>[1-9][0-9]*)(?:/task/(?P<thread>[1-9][0-9]*))?(?:[/ ]|$)")


def numbers_in(link: str) -> tuple[int, ...]:
    """Return the numbers of the process, and of its thread, that an open file or folder of ``/proc`` is about."""
    match = _OF_PROCESS.match(link)
    return tuple(int(number) for number in match.groups() if number) if match else ()


def open_flags(text: str) -> int:
    """Return the flags of an open file from ``/proc/<pid>/fdinfo/<descriptor>``; 0 where they are not told."""
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name == "flags":
            return int(value, 8)
    return 0


@attrs.frozen
class Mapping:
    """One line of ``/proc/<pid>/maps`` that is about a file or about shared memory."""

    span: str
    """Its beginning and end, as a name below ``map_files``."""
    shared: bool
    inode: int
    nameless: bool
    """It is a file without a name: one that was removed, or memory that is shared."""
    ring: bool = False
    """It is that of an io_uring, whose descriptor may be closed."""
    device: tuple[int, int] = (0, 0)
    """Major and minor."""
    written: bool = False
    """It may be written to through this mapping."""


def parse_mappings(text: str) -> tuple[Mapping, ...]:
    """Return the mappings of files and of shared memory."""
    found = []
    for line in text.splitlines():
        fields = line.split(None, 5)
        if len(fields) < 6 or fields[4] == "0":
            continue
        begin, _, end = fields[0].partition("-")
        major, _, minor = fields[3].partition(":")
        found.append(
            Mapping(
                f"{int(begin, 16):x}-{int(end, 16):x}",
                fields[1].endswith("s"),
                int(fields[4]),
                fields[5].endswith(DELETED) or fields[5].startswith(("/memfd:", "/SYSV")),
                obstacle_of_link(fields[5]) is Obstacle.IO_URING,
                (int(major, 16), int(minor, 16)),
                "w" in fields[1],
            )
        )
    return tuple(found)


def name_of(link: str) -> str:
    """Return the name of an open file from the link of its descriptor; empty if its name was removed, or it has none.

    What the kernel makes up has other numbers after a thaw, and CRIU opens it by itself.
    """
    return link if link.startswith("/") and not link.endswith(DELETED) and not link.startswith(MADE_UP) else ""


_POLICY: Final = re.compile(r"[0-9a-f]+ (?P<policy>(?:prefer \(many\)|weighted interleave)?\S*)")


def first_policy(line: str) -> str:
    """Return the NUMA policy of a line of ``/proc/<pid>/numa_maps``."""
    match = _POLICY.match(line)
    return match["policy"] if match else "default"


def parse_placed(numa: Iterable[str], maps: Iterable[str], policy: str) -> tuple[tuple[int, int, str], ...]:
    """Return the memory whose NUMA policy is not that of its thread: where it begins and ends, and which it has.

    Where two pieces with one policy meet, they are one: the kernel may join them, or not.

    Args:
        numa: the lines of ``/proc/<pid>/numa_maps``, which tell beginnings alone.
        maps: those of ``/proc/<pid>/maps``.
        policy: the thread's.
    """
    spans = [line.split(None, 1)[0].partition("-") for line in maps]
    ends = {int(begin, 16): int(end, 16) for begin, _, end in spans}
    found: list[tuple[int, int, str]] = []
    for line in numa:
        own, begin = first_policy(line), int(line.split(None, 1)[0], 16)
        if own == policy or begin not in ends:
            continue
        if found and found[-1][1:] == (begin, own):
            begin = found.pop()[0]
        found.append((begin, ends[int(line.split(None, 1)[0], 16)], own))
    return tuple(found)


def waits_for_pages(lines: Iterable[str]) -> bool:
    """Say whether pages of some memory are brought by a userfaultfd, from the lines of ``/proc/<pid>/smaps``.

    It reads no further than the first such memory: each line costs the kernel a walk over pages.
    """
    return any(line.startswith("VmFlags:") and _MISSING_PAGES in line.split() for line in lines)


_MARKS: Final = ("lf", "sl")
_OF_KERNEL: Final = ("[v", "[uprobes]")
"""How the names of memory begin that the kernel puts into each program, and may have sealed."""


def flagged(lines: Iterable[str]) -> tuple[Area, ...]:
    """Return the memory that is sealed, or locked when it is touched, from the lines of ``/proc/<pid>/smaps``.

    Where two pieces with one mark meet, they are one: the kernel may join them, or not.
    """
    found: list[Area] = []
    last: dict[str, int] = {}
    head = ""
    for line in lines:
        if not line.startswith("VmFlags:"):
            head = head if line[:1].isupper() else line
        elif marks := [mark for mark in _MARKS if mark in line.split()]:
            fields = head.split(None, 5)
            if len(fields) > 5 and fields[5].startswith(_OF_KERNEL):
                continue
            begin, end = (int(each, 16) for each in fields[0].split("-"))
            for mark in marks:
                at = last.get(mark, -1)
                if at >= 0 and found[at].end == begin:
                    found[at] = attrs.evolve(found[at], end=end)
                else:
                    last[mark] = len(found)
                    found.append(Area(begin, end, mark))
    return tuple(found)


def counts_as_semaphore(text: str) -> bool:
    """Say whether an eventfd gives one at a time, from ``/proc/<pid>/fdinfo/<descriptor>``.

    Before Linux 6.5 the kernel does not tell.
    """
    return any(line.split() == ["eventfd-semaphore:", "1"] for line in text.splitlines())


def waiting_sockets(text: str) -> dict[str, int]:
    """Give, from ``/proc/<pid>/net/unix``, how many connections wait to be accepted at each name."""
    found: dict[str, int] = {}
    for line in text.splitlines()[1:]:
        fields = line.split(None, 7)
        if len(fields) == 8 and fields[5] == "02" and fields[6] == "0":
            found[fields[7]] = found.get(fields[7], 0) + 1
    return found


def connected_sockets(text: str) -> dict[str, str]:
    """Give, from ``/proc/<pid>/net/tcp`` or ``tcp6``, the inodes of sockets with a peer, and its address."""
    found = {}
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) >= 10 and fields[3] not in (_LISTENING, _CLOSED) and fields[9] != "0":
            found[fields[9]] = fields[2]
    return found


IO_URING_WAY_OUT = (
    "CRIU cannot dump one: start a task with `freezable=True`, another program by `iriscw freezable -- COMMAND`, "
    "uvicorn with `--loop asyncio` as well"
)
"""What is said with an io_uring."""


def obstacle_of_link(link: str) -> Obstacle | None:
    """Say what stands in the way by where a descriptor's link points; sockets and devices are judged elsewhere."""
    return Obstacle.IO_URING if link.startswith("anon_inode:[io_uring]") else None


def obstacle_of_device(path: str, major: int, minor: int) -> Obstacle | None:
    """Say what stands in the way by the device that a descriptor means; pseudo-terminals are judged elsewhere."""
    if major == MEMORY_MAJOR or path.startswith((NVIDIA_PREFIX, *KNOWN_DEVICES)):
        return None
    return None if major in SLAVE_MAJORS or (major, minor) == MASTER else Obstacle.DEVICE


def slave_index(major: int, minor: int) -> int | None:
    """Return the number of a pseudo-terminal by the device of its slave; None if it is another device."""
    return (major - SLAVE_MAJORS[0]) * 256 + minor if major in SLAVE_MAJORS else None


def terminal_device(number: int) -> tuple[int, int]:
    """Return major and minor of a controlling terminal as ``/proc/<pid>/stat`` has it."""
    return number >> 8 & 0xFFF, number & 0xFF | number >> 12 & 0xFFF00


def master_index(fdinfo: str) -> int | None:
    """Return the number of the pseudo-terminal whose master a descriptor is, from its ``fdinfo``."""
    for line in fdinfo.splitlines():
        name, _, value = line.partition(":")
        if name == "tty-index":
            return int(value)
    return None
