"""What waits in a terminal, taken out and put back."""

import contextlib
import errno
import fcntl
import itertools
import os
import struct
import termios

import attrs
import pytest
from hypothesis import given, strategies as st

from iriscw.freeze.drivers.pseudoterminal import EXTPROC, TIOCSPTLCK, WaitingBytes, other_side, put, take, unread
from profiles import examples
from raised import that

CHANGING = {
    "ICANON": (3, termios.ICANON),
    "ECHO": (3, termios.ECHO),
    "ISIG": (3, termios.ISIG),
    "ICRNL": (0, termios.ICRNL),
    "INLCR": (0, termios.INLCR),
    "IGNCR": (0, termios.IGNCR),
    "ISTRIP": (0, termios.ISTRIP),
    "PARMRK": (0, termios.PARMRK),
    "IXON": (0, termios.IXON),
    "OPOST": (1, termios.OPOST),
    "ONLCR": (1, termios.ONLCR),
}


@contextlib.contextmanager
def terminal(*otherwise, **keys):
    """Yield both sides of a new one, in which these modes are other than usual."""
    master, slave = os.openpty()
    try:
        modes = termios.tcgetattr(slave)
        for name in otherwise:
            place, flag = CHANGING[name]
            modes[place] ^= flag
        for name, key in keys.items():
            modes[6][getattr(termios, name)] = key
        termios.tcsetattr(slave, termios.TCSANOW, modes)
        yield master, slave
    finally:
        os.close(slave)
        os.close(master)


def read_all(master, slave):
    """Return what is read from both sides, piece by piece, and of a line that was begun when it ends."""
    pieces = []
    for last in (False, True):
        while unread(slave):
            pieces.append(os.read(slave, 8192))
        if not last:
            os.write(master, b"\n")
    output = b""
    while count := unread(master):
        output += os.read(master, count)
    return pieces, output


BYTES = st.lists(
    st.sampled_from(
        [*(bytes([each]) for each in range(1, 128) if each not in (4, 22)), b"\r\n", b"\r", b"a", b"\xc3\xa4", b"\xff"]
    )
)
"""Without two keys: what begins with the end of a file is not seen to wait, and that the next key is quoted is lost."""


@examples(100)
@given(otherwise=st.sets(st.sampled_from(sorted(CHANGING))), output=BYTES, typed=BYTES)
def test_it_reads_as_one_that_nobody_touched(otherwise, output, typed):
    """By the same lines, with what was begun, no key heard or echoed twice, and its modes as they were."""
    keys = {"VSTOP": b"\0", "VSTART": b"\0"}  # what is stopped is not read by anybody
    with terminal(*otherwise, **keys) as touched, terminal(*otherwise, **keys) as other:
        for master, slave in (touched, other):
            os.write(slave, b"".join(output))
            os.write(master, b"".join(typed))
            unread(slave)
        before = termios.tcgetattr(touched[1])
        lines = []  # as CRIU does
        while "ICANON" not in otherwise and (count := unread(touched[1])):
            lines.append(os.read(touched[1], count))
        waiting = attrs.evolve(take(*touched), input=tuple(lines))
        assert not unread(touched[0])
        put(*touched, waiting)
        assert termios.tcgetattr(touched[1]) == before
        found, wanted = read_all(*touched), read_all(*other)
        if "ICANON" in otherwise:  # how much is given at once is a matter of time
            found, wanted = ((b"".join(pieces), rest) for pieces, rest in (found, wanted))
        assert found == wanted


def test_lines_are_the_same_lines():
    """Each is read by itself, and one that a key ended is not joined with the next."""
    with terminal() as (master, slave):
        put(master, slave, WaitingBytes(input=(b"one\n", b"two", b"three\n", b"", b"end"), begun=b"fo"))
        assert [os.read(slave, 100) for _ in range(5)] == [b"one\n", b"two", b"three\n", b"", b"end"]
        assert not unread(slave)
        os.write(master, b"ur\n")
        assert os.read(slave, 100) == b"four\n"
        assert os.read(master, 100) == b"ur\r\n"


def test_whose_other_side_was_closed():
    """The last words are there, and after them the end."""
    master, slave = os.openpty()
    os.write(slave, b"last\n")
    os.close(slave)
    waiting = take(master, None)
    assert waiting == WaitingBytes(b"last\r\n", closed=True)
    other, slave = os.openpty()
    os.close(slave)
    for each in (master, other):
        put(each, None, waiting)
        assert os.read(each, 100) == b"last\r\n"
        with pytest.raises(OSError, check=that(errno=errno.EIO)):
            os.read(each, 100)
        os.close(each)


def test_one_that_nobody_has_opened_yet():
    """It is left alone."""
    master = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
    try:
        assert not take(master, None)
        put(master, None, WaitingBytes())
    finally:
        os.close(master)


def test_packets():
    """What the master reads begins with a byte of the kernel's, once."""
    with terminal() as (master, slave):
        os.write(slave, b"text")
        fcntl.ioctl(master, termios.TIOCPKT, struct.pack("i", 1))
        waiting = take(master, slave)
        assert waiting.output == b"text"
        put(master, slave, waiting)
        assert os.read(master, 100) == b"\0text"


@pytest.mark.parametrize("by_key", [False, True])
def test_output_that_was_stopped(by_key):
    """It is not lost: it goes on."""
    with terminal() as (master, slave):
        os.write(slave, b"before")
        if by_key:
            os.write(master, b"\x13")
        else:
            termios.tcflow(slave, termios.TCOOFF)
        unread(slave)
        waiting = take(master, slave)
        put(master, slave, waiting)
        assert os.read(master, 100) == b"before"


def filled(descriptor, pieces):
    """Write until there is no room left; give what was written. It blocks afterwards, as a program's does."""
    written = b""
    os.set_blocking(descriptor, False)
    with contextlib.suppress(BlockingIOError):
        for piece in pieces:
            written += piece[: os.write(descriptor, piece)]
    os.set_blocking(descriptor, True)
    return written


@pytest.mark.parametrize("side", ["output", "begun"])
@pytest.mark.parametrize("size_bytes", [1, 100, 1024, 4096, 1 << 16])
def test_one_that_is_full(side, size_bytes):
    """It has a buffer for each side, and the kernel more in between: how much more is a matter of who writes how."""
    with terminal("OPOST", "ICANON", "ECHO", "ISIG", "IXON", "ICRNL") as (master, slave):
        piece = (bytes(range(256)) * 256)[:size_bytes]
        written = filled({"output": slave, "begun": master}[side], itertools.repeat(piece))
        assert len(written) > 2 * 4096
        waiting = take(master, slave)
        assert waiting == WaitingBytes(**{side: written})
        put(master, slave, waiting)
        assert os.get_blocking(master)
        assert os.get_blocking(slave)
        assert take(master, slave) == waiting


def test_by_no_lines_although_its_modes_say_so():
    """The other side edits lines itself (EXTPROC): nothing ends there."""
    with terminal() as (master, slave):
        modes = termios.tcgetattr(slave)
        modes[3] |= EXTPROC
        termios.tcsetattr(slave, termios.TCSANOW, modes)
        put(master, slave, WaitingBytes(input=(b"a\0b",), begun=b"\0c"))
        assert os.read(slave, 100) == b"a\0b\0c"


def test_a_line_with_a_zero_in_it():
    """It does not end there."""
    with terminal() as (master, slave):
        put(master, slave, WaitingBytes(input=(b"a\0b\n",)))
        assert os.read(slave, 100) == b"a\0b\n"


def test_a_side_of_ours():
    """It may be read and written, whatever the tree has; and who locked it finds it locked."""
    with terminal() as (master, slave):
        fcntl.ioctl(master, TIOCSPTLCK, struct.pack("i", 1))
        with other_side(master) as ours:
            assert os.fstat(ours).st_ino == os.fstat(slave).st_ino
            assert not os.get_blocking(ours)
        with pytest.raises(OSError, check=that(errno=errno.EIO)):
            os.open(os.ttyname(slave), os.O_RDWR | os.O_NOCTTY)


@pytest.mark.parametrize(("mode", "typed", "reads"), [("INLCR", b"\n", b"\r"), ("PARMRK", b"\xff", b"\xff\xff")])
def test_what_a_terminal_has_made_of_input_is_not_made_anew(mode, typed, reads):
    """A carriage return that was a line's end would become one again, and a mark would be marked."""
    with terminal(mode, "ICANON", "ECHO") as (master, slave):
        os.write(master, typed)
        waiting = take(master, slave)
        put(master, slave, waiting)
        assert os.read(slave, 100) == reads
