"""What the kernel's files about a process say."""

import pytest

from iriscw.freeze.proc_text import (
    HeldLock,
    all_numbers,
    connected_sockets,
    counts_as_semaphore,
    first_policy,
    flagged,
    master_index,
    name_of,
    numbers_in,
    obstacle_of_device,
    obstacle_of_link,
    open_flags,
    parse_held_locks,
    parse_limits,
    parse_locks,
    parse_mappings,
    parse_placed,
    parse_stat_tail,
    parse_status,
    slave_index,
    terminal_device,
    waits_for_pages,
)
from iriscw.freeze.traits import FileLock, Obstacle
from raised import that

TCP = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 11 1 0 100 0 0 10 0
   1: 0100007F:1F90 0100007F:A2B4 01 00000000:00000000 00:00000000 00000000  1000        0 22 1 0 20 4 30 10 -1
   2: 0100007F:A2B4 0100007F:1F90 08 00000000:00000000 00:00000000 00000000  1000        0 33 1 0 20 4 30 10 -1
   3: 0100007F:A2B6 0100007F:1F90 06 00000000:00000000 03:000017A4 00000000     0        0 0 3 0
"""


def test_sockets_with_a_peer_are_found() -> None:
    """One that listens has none, one that waits for its end (TIME_WAIT) is nobody's."""
    assert connected_sockets(TCP) == {"22": "0100007F:A2B4", "33": "0100007F:1F90"}
    assert connected_sockets("") == {}


def test_memory_that_waits_for_pages_is_found_and_no_more_is_read() -> None:
    """By the flag of its area, not by the letters elsewhere; the first area is enough."""
    lines = iter(
        ["00400000-00452000 r-xp 00000000 08:02 1 /um um", "VmFlags: rd ex mr", "VmFlags: rd wr um ac", "rest"]
    )
    assert waits_for_pages(lines)
    assert [*lines] == ["rest"]
    assert not waits_for_pages(["00400000-00452000 r-xp 00000000 08:02 1 /um um", "VmFlags: rd umx uw"])


def test_status_is_read() -> None:
    """Memory, tracer, a kill that is on its way, the first process of a namespace; what is missing is not so."""
    text = "Name:\tx\nVmRSS:\t  99 kB\nRssAnon:\t  8 kB\nVmSwap:\t  4 kB\nTracerPid:\t7\nSigPnd:\t0000000000000000\n"
    text += "ShdPnd:\t0000000000000100\nNSpid:\t40\t1\n"
    status = parse_status(text)
    assert (status.memory_bytes, status.traced_by, status.killed, status.first_of_namespace) == (12288, 7, True, True)
    assert status.inner_pid == 1
    assert parse_status("NSpid:\t40\n").inner_pid == 0
    assert parse_status("") == parse_status("TracerPid:\t0\nNSpid:\t40\n")


def test_the_rest_of_stat_is_read() -> None:
    """Terminal and flags, behind a name that may hold anything."""
    tail = parse_stat_tail("1 (a) b) S 1 1 1 34816 -1 2097156 0 0\n")
    assert (tail.terminal, tail.exiting, tail.of_the_kernel) == (34816, True, True)
    with pytest.raises(ValueError, check=that(comes_from="proc_text.parse_stat_tail")):
        parse_stat_tail("1 (a) S")


def test_devices_and_links_that_stand_in_the_way() -> None:
    """Memory's devices, NVIDIA's and pseudo-terminals do not; a disk, a console and an io_uring do."""
    allowed = [("/dev/null", 1, 3), ("/dev/nvidia0", 195, 0), ("/dev/pts/3", 136, 3), ("/dev/ptmx", 5, 2)]
    assert [obstacle_of_device(*each) for each in allowed] == [None] * len(allowed)
    others = [("/dev/sda", 8, 0), ("/dev/tty", 5, 0), ("/dev/console", 5, 1), ("/dev/tty1", 4, 1)]
    assert [obstacle_of_device(*each) for each in others] == [Obstacle.DEVICE] * len(others)
    links = ["anon_inode:[io_uring]", "anon_inode:[eventpoll]"]
    assert [obstacle_of_link(each) for each in links] == [Obstacle.IO_URING, None]


def test_what_criu_keeps_of_a_status() -> None:
    """Named lines, their spaces folded; processors in the kernel's list."""
    guesses = "Speculation_Store_Bypass:\tthread mitigated\nSpeculationIndirectBranch:\tunsupported\n"
    assert dict(parse_status(guesses).speculation) == {
        "Speculation_Store_Bypass": "thread mitigated",
        "SpeculationIndirectBranch": "unsupported",
    }
    status = parse_status("Name:\tx y\nUid:\t0\t0\t0\t0\nVmRSS:\t12 kB\nCpus_allowed_list:\t0-1,4\n")
    assert (status.kept, status.cpus) == ((("Name", "x y"), ("Uid", "0 0 0 0")), "0-1,4")


def test_memory_that_is_sealed_or_locked_when_touched() -> None:
    """By the flags of its area; pieces that meet are one; the kernel's own are left out."""
    lines = []
    for span, flags, name in (
        ("1000-2000", "rd wr lf lo", ""),
        ("2000-3000", "rd wr lo lf sl", ""),
        ("4000-5000", "rd sl", "/slf"),
        ("9000-a000", "rd ex sl", "[vdso]"),
    ):
        lines += [f"{span} rw-p 00000000 00:00 0  {name}", "Size:  4 kB", f"VmFlags: {flags}"]
    found = [(each.begin, each.end, each.flag) for each in flagged(lines)]
    assert found == [(0x1000, 0x3000, "lf"), (0x2000, 0x3000, "sl"), (0x4000, 0x5000, "sl")]


def test_an_eventfd_that_gives_one_at_a_time() -> None:
    """By its line; older kernels have none."""
    assert counts_as_semaphore("pos:\t0\neventfd-count:                3\neventfd-semaphore: 1\n")
    assert not counts_as_semaphore("pos:\t0\neventfd-count: 1\neventfd-semaphore: 0\n")
    assert not counts_as_semaphore("eventfd-count: 1\n")


def test_locks_of_a_descriptor() -> None:
    """Of all kinds; what somebody waits for is no lock."""
    text = "pos:\t0\nflags:\t0102001\nlock:\t1: POSIX  ADVISORY  WRITE 12 fe:00:5 0 EOF\n"
    text += (
        "lock:\t2: OFDLCK ADVISORY  READ  -1 fe:00:5 120 130\nlock:\t1: -> POSIX  ADVISORY  WRITE 13 fe:00:5 0 EOF\n"
    )
    assert parse_locks(3, text) == (
        FileLock(3, "POSIX", "WRITE", 0, -1),
        FileLock(3, "OFDLCK", "READ", 120, 130),
    )
    assert (open_flags(text), open_flags("")) == (0o102001, 0)


def test_limits_are_read() -> None:
    """The name has spaces; the unit is left out, and may be missing."""
    text = f"{'Limit':26}{'Soft Limit':21}{'Hard Limit':21}Units     \n"
    text += f"{'Max open files':26}{'1024':21}{'unlimited':21}files     \n"
    text += f"{'Max nice priority':26}{'0':21}{'0':21}          \n"
    assert parse_limits(text) == (("Max open files", "1024 unlimited"), ("Max nice priority", "0 0"))


def test_mappings_of_files_and_shared_memory() -> None:
    """Anonymous memory of one process is none; what has no name is known by what the kernel adds to it."""
    text = "00400000-00452000 r-xp 00000000 08:02 17 /usr/bin/a b\n7f0000000000-7f0000001000 rw-p 00000000 00:00 0 \n"
    text += "7f1000000000-7f1000001000 rw-s 00000000 00:01 5 /dev/zero (deleted)\n"
    text += "7f2000000000-7f2000001000 rw-p 00000000 00:01 6 /memfd:x\n"
    found = [(each.span, each.shared, each.inode, each.nameless) for each in parse_mappings(text)]
    assert found == [
        ("400000-452000", False, 17, False),
        ("7f1000000000-7f1000001000", True, 5, True),
        ("7f2000000000-7f2000001000", False, 6, True),
    ]


def test_names_of_open_files() -> None:
    """A file whose name was removed has none, nor has memory that has a descriptor, or a socket."""
    links = ["/a/b", "/a/b (deleted)", "/memfd:x (deleted)", "socket:[3]", "pipe:[4]", "/proc/12/status"]
    assert [name_of(each) for each in links] == ["/a/b", "", "", "", "", ""]


def test_policies_of_memory() -> None:
    """The policy may have a space in its name; memory with its own is told by where it begins."""
    lines = ["00400000 default file=/x", "00500000 prefer (many):0-1 anon=1", "00600000 bind=static:0 anon=1"]
    assert [first_policy(each) for each in lines] == ["default", "prefer (many):0-1", "bind=static:0"]
    maps = ["00400000-00401000 r", "00500000-00501000 r", "00501000-00502000 r", "00600000-00602000 r"]
    both = [*lines[:2], "00501000 prefer (many):0-1", *lines[2:]]
    assert parse_placed(both, maps, "default") == (
        (0x500000, 0x502000, "prefer (many):0-1"),
        (0x600000, 0x602000, "bind=static:0"),
    )


def test_pseudo_terminals_are_known_by_their_number() -> None:
    """A slave by its device, be it that of a descriptor or of a session, and a master by what the kernel says of it."""
    assert [slave_index(136, 3), slave_index(137, 4), slave_index(5, 2)] == [3, 260, None]
    assert terminal_device(34819) == (136, 3)
    assert terminal_device(0x1088C0) == (136, 0x1C0)
    assert (master_index("pos:\t0\ntty-index:\t12\n"), master_index("pos:\t0\n")) == (12, None)


def test_locks_of_everybody_are_read() -> None:
    """With who holds each, as far as that is told; what somebody waits for is none."""
    text = """1: POSIX  ADVISORY  WRITE 1234 08:02:77 10 19
1: -> POSIX  ADVISORY  WRITE 1235 08:02:77 10 19
2: OFDLCK ADVISORY  READ -1 08:02:78 0 EOF
3: LEASE  ACTIVE    READ 1236 08:02:79 0 EOF
"""
    assert parse_held_locks(text) == (
        HeldLock("POSIX", "WRITE", 1234, "08:02:77", 10, 19),
        HeldLock("OFDLCK", "READ", -1, "08:02:78", 0, -1),
        HeldLock("LEASE", "READ", 1236, "08:02:79", 0, -1),
    )


@pytest.mark.parametrize(
    ("link", "numbers"),
    [
        ("/proc/12/status", (12,)),
        ("/proc/12", (12,)),
        ("/proc/12 (deleted)", (12,)),
        ("/proc/12/task", (12,)),
        ("/proc/12/task/13/comm", (12, 13)),
        ("/proc/12x", ()),
        ("/proc/meminfo", ()),
        ("/srv/proc/12/status", ()),
    ],
)
def test_whose_a_file_of_proc_is(link, numbers) -> None:
    """It is of a process, or of a thread of it as well; of others nobody is needed."""
    assert numbers_in(link) == numbers


def test_all_numbers_of_a_thread_are_read() -> None:
    """In each of its namespaces; a kernel that tells none has none."""
    assert all_numbers("Name:\tx\nNSpid:\t40\t1\n") == (40, 1)
    assert all_numbers("Name:\tx\n") == ()
