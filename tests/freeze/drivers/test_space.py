"""PID namespaces of our own making, without making one: which numbers are given inside, what is said of a failure."""

import errno
import os
import subprocess
import sys

import anyio
import pytest
from hypothesis import given, strategies as st

from iriscw.freeze.drivers.namespace import first, space
from iriscw.freeze.drivers.namespace.first import FAILED, FIRST, READY, covered, outlive
from iriscw.freeze.model import CriuFailed, NoRoom, RightsMissing
from raised import that

MOST = 32768
SPARE = 10
"""Numbers that a CRIU needs in there: its own, and those of what it starts."""


@given(st.sets(st.integers(1, MOST), max_size=1024))
def test_numbers_that_are_needed_are_not_given_away(taken):
    """However many a tree has: those that are given next are none of them."""
    after = space.begin_after(taken, MOST)
    assert after >= space.LOWEST
    assert after + SPARE < MOST
    assert not taken & {*range(after + 1, after + SPARE + 1)}


@pytest.mark.parametrize(
    ("said", "error", "text"),
    [
        (FAILED + b"1 Operation not permitted\n", RightsMissing, that(comes_from="space._made", names="CAP_SYS_ADMIN")),
        (FIRST + b"1\n" + FAILED + b"13 Permission denied\n", RightsMissing, that(names=os.strerror(errno.EACCES))),
        (FAILED + b"28 No space left on device\n", NoRoom, that(comes_from="space._made", names="PID")),
        (FAILED + b"22 Invalid argument\n", CriuFailed, that(names=os.strerror(errno.EINVAL))),
        (b"", CriuFailed, that(comes_from="space._made")),
        (READY, CriuFailed, that(comes_from="space._made")),
        (b"?" * 5000, CriuFailed, that(comes_from="space._made")),
    ],
)
def test_a_namespace_that_cannot_be_made(said, error, text, tmp_path, monkeypatch):
    """The error says whose fault it is, and nobody is left."""
    started = []

    def start(work, after, channel):
        program = "import os, sys; os.write(0, bytes.fromhex(sys.argv[1]))"
        argv = [sys.executable, "-I", "-S", "-c", program, said.hex()]
        started.append(subprocess.Popen(argv, stdin=channel.fileno()))
        return started[-1]

    monkeypatch.setattr(space, "_start", start)
    with pytest.raises(error, check=text):
        anyio.run(space.make, tmp_path, ())
    assert started[0].returncode is not None


MOUNTS = b"""\
21 1 0:20 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
22 21 0:21 / /proc rw,nosuid shared:2 - proc proc rw
23 22 0:21 /sys /proc/sys ro,nosuid - proc proc rw
24 23 0:22 / /proc/sys/fs/binfmt_misc rw - autofs systemd-1 rw
25 22 0:23 / /proc/a\\040b ro master:7 - tmpfs tmpfs rw
26 22 0:24 / /proc/bus rw - autofs systemd-2 rw
27 22 0:25 / /proc/fs/nfsd rw - autofs systemd-3 rw
28 27 0:26 / /proc/fs/nfsd rw - nfsd nfsd rw
29 22 0:27 net:[1] /proc/17/ns/net rw - nsfs nsfs rw
30 22 0:28 / /proc/sys-more rw - tmpfs tmpfs rw
31 21 0:29 / /process rw - tmpfs tmpfs rw
"""


def test_what_lies_over_parts_of_proc():
    """Its uppermost places, by their names; nothing of a process, nor what is mounted when somebody looks."""
    assert covered(MOUNTS) == [b"/proc/a b", b"/proc/fs/nfsd", b"/proc/sys", b"/proc/sys-more"]
    assert covered(b"") == []


@pytest.mark.parametrize("trouble", [OSError(24, "no descriptors"), MemoryError()])
def test_a_first_process_that_cannot_look_stays(trouble, monkeypatch):
    """It ends when it has seen that nobody is there, and not before."""
    monkeypatch.setattr(first, "AGAIN_S", 0.0)
    monkeypatch.setattr(first, "anybody", lambda: True)
    answers = [True, trouble, trouble, True, False]

    def others():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    outlive(others)
    assert answers == []
