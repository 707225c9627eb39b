"""What waits in a pseudoterminal, taken out of it and put back, byte by byte.

Nobody reads, writes or sets it meanwhile. No call of the kernel looks at what waits without taking it, and what is
written is treated as if it were new: a line's end gets a carriage return, keys are echoed, Ctrl-C is a signal. So the
modes that do this are off while it is written; what a terminal gives out by lines it gives by the same lines.

Everything here blocks, for as long as the kernel takes to move bytes from one side to the other.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import struct
import termios
import time
from collections.abc import Iterator
from typing import Any, Final

import attrs

TIOCGPTPEER: Final = 0x5441
"""Opens the other side of a master, wherever its name is."""

TIOCGPKT: Final = 0x80045438
"""Asks whether what is read begins with a byte that says of what kind it is."""

TIOCSPTLCK: Final = 0x40045431
TIOCGPTLCK: Final = 0x80045439
"""Locks a terminal, so that nobody opens its other side; and asks whether it is."""

EXTPROC: Final = 0o200000
"""Of the local modes: whoever has the master edits lines; the other side gives what comes."""

ROOM_BYTES: Final = 4095
"""What a terminal takes in; more waits until its reader has read."""

PIECES_BYTES: Final = (511, 255, 73, 64, 341, 1000, 1792)
"""Written at once, until all fits. A terminal that nobody reads is full, and how much it holds then is a matter of how
it was written: the kernel has 256 bytes with a flag for each, or 512 without, and begins anew where a piece is larger
than what is left. Hardly ever more than the first is needed."""

ROOM_S: Final = 0.25
LOOK_MS: Final = 1
"""For the kernel to move what was written from its own buffer to the reader's, and between two looks: it takes
microseconds, and there is no event for it. A terminal that has no room after that is full."""

CHANGING: Final = termios.ICRNL | termios.INLCR | termios.IGNCR | termios.ISTRIP | termios.IUCLC | termios.PARMRK
"""What is made of input."""

ECHOING: Final = termios.ECHO | termios.ECHONL | termios.ISIG

KEYS: Final = ("VERASE", "VKILL", "VEOF", "VREPRINT", "VWERASE", "VLNEXT", "VDISCARD")
"""They edit a line; they are never in one."""

IFLAG, OFLAG, LFLAG, CC = 0, 1, 3, 6
"""Places in what ``tcgetattr`` gives."""

OFF: Final = b"\0"


@attrs.frozen
class WaitingBytes:
    """What waits in a terminal."""

    output: bytes = b""
    """For the master."""
    input: tuple[bytes, ...] = ()
    """For the other side; where it is given by lines, each whole one. An empty one is the end of a file."""
    begun: bytes = b""
    """After that: a line that has not ended."""
    closed: bool = False
    """Everybody has closed the other side: who has read the output is told that."""

    def __bool__(self) -> bool:
        """Whether a new terminal lacks something of it."""
        return self != WaitingBytes()


def take(master: int, slave: int | None) -> WaitingBytes:
    """Take out all that waits.

    Args:
        master: a descriptor of the one side.
        slave: one of the other side; None if there is none.

    Raises:
        OSError, termios.error: it is not a terminal.
    """
    if slave is None:
        closed = bool(_polled(master) & select.POLLHUP)
        return WaitingBytes(_all_of_output(master) if closed else b"", closed=closed)
    output = _all_of_output(master)
    modes = termios.tcgetattr(slave)
    if not _by_lines(modes) and not unread(slave):
        return WaitingBytes(output)
    with _set(slave, modes, _raw(modes)):  # else it gives neither a begun line, nor less than it is to wait for
        return WaitingBytes(output, begun=_all_of(slave))


def put(master: int, slave: int | None, waiting: WaitingBytes) -> None:
    """Put it in, as it was.

    Raises:
        OSError, termios.error: it is not a terminal, or not of this kind.
    """
    if slave is None:
        if waiting.closed:
            with other_side(master) as other, _no_packets(master):
                _put_output(master, other, waiting.output)
        return
    with _no_packets(master):  # it would be told of each mode that is changed
        _put_output(master, slave, waiting.output)
        _put_input(master, slave, waiting)


@contextlib.contextmanager
def other_side(master: int) -> Iterator[int]:
    """Open the other side: for reading and writing, and such that it does not block.

    Raises:
        OSError: it cannot be opened.
    """
    locked = struct.unpack("i", fcntl.ioctl(master, TIOCGPTLCK, bytes(4)))[0]
    if locked:
        fcntl.ioctl(master, TIOCSPTLCK, struct.pack("i", 0))
    try:
        other = fcntl.ioctl(master, TIOCGPTPEER, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK)
    finally:
        if locked:
            fcntl.ioctl(master, TIOCSPTLCK, struct.pack("i", 1))
    try:
        yield other
    finally:
        os.close(other)


def unread(descriptor: int) -> int:
    """Return how many bytes can be read from one side: of what is given by lines, those of whole ones.

    Raises:
        OSError: it is not a terminal.
    """
    _polled(descriptor)  # for this, the kernel takes in what was written; else it does that later
    return int(struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))[0])


def _polled(descriptor: int, wanted: int = select.POLLIN, patience_ms: int = 0) -> int:
    poll = select.poll()
    poll.register(descriptor, wanted)
    return next((events for _, events in poll.poll(patience_ms)), 0)


def _by_lines(modes: list[Any]) -> bool:
    return bool(modes[LFLAG] & termios.ICANON and not modes[LFLAG] & EXTPROC)


def _all_of_output(master: int) -> bytes:
    with _no_packets(master):
        return _all_of(master)


@contextlib.contextmanager
def _no_packets(master: int) -> Iterator[None]:
    """Have what is read begin with no byte of the kernel's, and have it note nothing for one."""
    packets = struct.unpack("i", fcntl.ioctl(master, TIOCGPKT, bytes(4)))[0]
    if packets:
        fcntl.ioctl(master, termios.TIOCPKT, struct.pack("i", 0))
    try:
        yield
    finally:
        if packets:
            fcntl.ioctl(master, termios.TIOCPKT, struct.pack("i", 1))


def _all_of(descriptor: int) -> bytes:
    found = []
    while count := unread(descriptor):
        found.append(os.read(descriptor, count))
    return b"".join(found)


def _put_output(master: int, slave: int, output: bytes) -> None:
    if output:
        modes = termios.tcgetattr(slave)
        plain = _changed(modes, OFLAG, termios.OPOST)
        if not _polled(slave, select.POLLOUT):  # output was stopped, by Ctrl-S or by a program: it goes on
            termios.tcflow(slave, termios.TCOON)
            plain = _changed(plain, IFLAG, termios.IXON)
        with _set(slave, modes, plain):
            for size_bytes in PIECES_BYTES:
                left = _written(slave, output, size_bytes)
                if not left:
                    return
                output = _all_of(master) + left
            raise _full(left)


def _put_input(master: int, slave: int, waiting: WaitingBytes) -> None:
    if not waiting.input and not waiting.begun:
        return
    modes = termios.tcgetattr(slave)
    plain = _changed(_changed(modes, IFLAG, CHANGING), LFLAG, ECHOING)
    stopping = {modes[CC][termios.VSTART], modes[CC][termios.VSTOP]} - {OFF}
    typed = b"".join(waiting.input) + waiting.begun
    if any(key in typed for key in stopping):
        plain = _changed(plain, IFLAG, termios.IXON)
    for key in KEYS:
        plain[CC][getattr(termios, key)] = OFF
    room = ROOM_BYTES - unread(slave)
    if not _by_lines(modes):
        with _set(slave, modes, _raw(plain)):
            for size_bytes in PIECES_BYTES:
                left = _typed(master, slave, typed, room, size_bytes)
                if not left:
                    return
                typed, room = _all_of(slave) + left, ROOM_BYTES
        raise _full(left)
    ends = {b"\n", modes[CC][termios.VEOL], modes[CC][termios.VEOL2]} - {OFF}
    pieces = [b""]
    for line in waiting.input:
        pieces[-1] += line
        if line[-1:] not in ends:
            pieces.append(b"")
    begun = waiting.begun.split(OFF)  # the kernel keeps the key that has ended a line as this byte
    for at, piece in enumerate([*pieces[:-1], pieces[-1] + begun[0], *begun[1:]]):
        if at:
            plain[CC][termios.VEOF] = modes[CC][termios.VEOF]
            with _set(slave, modes, plain):
                room = _lines_typed(master, slave, modes[CC][termios.VEOF], room)
            plain[CC][termios.VEOF] = OFF
        with _set(slave, modes, plain):
            room = _lines_typed(master, slave, piece, room)


def _full(left: bytes) -> BlockingIOError:
    return BlockingIOError(f"{len(left)} bytes do not fit into it any more")


def _lines_typed(master: int, slave: int, data: bytes, room: int) -> int:
    """Have lines be typed; give how much room is left."""
    if left := _typed(master, slave, data, room, PIECES_BYTES[0]):
        raise _full(left)
    return max(0, room - len(data))


def _typed(master: int, slave: int, data: bytes, room: int, piece_bytes: int) -> bytes:
    """Have it be typed: taken in at once, under the modes of now, as far as there is room; give what does not fit.

    What is between the two is taken in when it is read.
    """
    for at in range(min(len(data), room)):
        fcntl.ioctl(slave, termios.TIOCSTI, data[at : at + 1])
    return _written(master, data[room:], piece_bytes)


def _written(descriptor: int, data: bytes, piece_bytes: int) -> bytes:
    """Write to one side, while nobody reads the other; give what does not fit."""
    if not data:
        return b""
    blocks = os.get_blocking(descriptor)
    os.set_blocking(descriptor, False)
    end = time.monotonic() + ROOM_S
    try:
        while data and time.monotonic() < end:
            try:
                data = data[os.write(descriptor, data[:piece_bytes]) :]
                end = time.monotonic() + ROOM_S
            except BlockingIOError:
                _polled(descriptor, select.POLLOUT, LOOK_MS)
    finally:
        os.set_blocking(descriptor, blocks)
    return data


def _raw(modes: list[Any]) -> list[Any]:
    raw = _changed(modes, LFLAG, termios.ICANON)
    raw[CC][termios.VMIN], raw[CC][termios.VTIME] = b"\1", b"\0"
    return raw


def _changed(modes: list[Any], place: int, without: int) -> list[Any]:
    changed = [*modes]
    changed[CC] = [*modes[CC]]
    changed[place] &= ~without
    return changed


@contextlib.contextmanager
def _set(slave: int, modes: list[Any], meanwhile: list[Any]) -> Iterator[None]:
    termios.tcsetattr(slave, termios.TCSANOW, meanwhile)
    try:
        yield
    finally:
        termios.tcsetattr(slave, termios.TCSANOW, modes)
