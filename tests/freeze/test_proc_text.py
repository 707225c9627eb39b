"""What the kernel's files about a process say."""

import pytest

from iriscw.freeze.model import Obstacle
from iriscw.freeze.proc_text import (
    connected_sockets,
    obstacle_of_device,
    obstacle_of_link,
    parse_stat_tail,
    parse_status,
    waits_for_pages,
)

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
    text = "Name:\tx\nVmRSS:\t  12 kB\nTracerPid:\t7\nSigPnd:\t0000000000000000\n"
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
    with pytest.raises(ValueError, match="not a line"):
        parse_stat_tail("1 (a) S")


def test_devices_and_links_that_stand_in_the_way() -> None:
    """Memory's devices and NVIDIA's do not; a terminal, a disk and an io_uring do."""
    devices = [("/dev/null", 1), ("/dev/nvidia0", 195), ("/dev/pts/3", 136), ("/dev/sda", 8)]
    assert [obstacle_of_device(*each) for each in devices] == [None, None, Obstacle.TERMINAL, Obstacle.DEVICE]
    links = ["anon_inode:[io_uring]", "anon_inode:[eventpoll]"]
    assert [obstacle_of_link(each) for each in links] == [Obstacle.IO_URING, None]
