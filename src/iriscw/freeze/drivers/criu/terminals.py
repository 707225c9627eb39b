"""The terminals of a tree at its dump and at its restore.

CRIU puts standard input of the restore in the place of a terminal from outside. It gives it the modes, the size and the
owner of the old one, and puts the first task's process group into its foreground. Modes are right for who was in the
foreground; the rest belongs to the terminal that is there now, and is put back. All this is done while nothing of the
tree has run: a shell that is let run in the background gives up.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from iriscw.freeze.criu_terminals import (
    REACH,
    TERMINALS_MAGIC,
    NotTerminals,
    SavedTerminal,
    beyond_reach,
    group_of_root,
    needed_numbers,
    outside,
    read_descriptors,
    read_terminals,
    trouble,
)
from iriscw.freeze.drivers.terminal import ControllingTerminal
from iriscw.freeze.model import CriuFailed, GateRefused, TargetUnfit, TaskIdentity

TERMINALS: Final = "tty-info.img"
FILES: Final = "files.img"
TREE: Final = "pstree.img"
SLAVES: Final = Path("/dev/pts")
MASTERS: Final = "/dev/ptmx"

TIOCGPTN: Final = 0x80045430
"""Asks for the number of a terminal."""


T = TypeVar("T")


def check_terminals(images: Path) -> None:
    """Refuse images whose terminals would not come back, asked while the tree is still held.

    Raises:
        TargetUnfit: it has several terminals from outside, or opened the one by its name; several
            with one number; or too many.
        CriuFailed: CRIU wrote no list of them, or what is none.
    """
    saved = saved_terminals(images)
    if text := trouble(saved):
        raise TargetUnfit(text)
    if sum(each.master for each in saved) > REACH:
        tables = [_read(path, read_descriptors) for path in sorted(images.glob("fdinfo-*.img"))]
        number = _read(images / FILES, lambda files: beyond_reach(files, tables))
        if number is not None:
            raise TargetUnfit(
                f"it has more than {REACH} terminals of its own, and CRIU would not get the number of "
                f"/dev/pts/{number} again before it makes those below"
            )


def check_numbers(images: Path, slaves: Path = SLAVES) -> None:
    """Refuse a restore for which the number of a terminal is taken. It may be taken a moment later all the same.

    Raises:
        GateRefused: somebody has it.
        CriuFailed: the images are none.
    """
    for number in needed_numbers(saved_terminals(images)):
        if (slaves / str(number)).exists():
            raise GateRefused(
                f"terminals: the tree has a terminal of its own, and its number is taken: close {slaves / str(number)} "
                "(`fuser` says whose it is), and thaw it then",
                "terminals",
            )


def within_reach(images: Path) -> contextlib.ExitStack:
    """Take the numbers below those of the tree's terminals, where CRIU would not come to these; close it to let go.

    The lowest free number is given out first, and CRIU gives up when the one that it needs is far from that: those that
    were there when the tree was frozen are gone, after a boot all of them.

    Raises:
        CriuFailed: the images are none.
    """
    needed = needed_numbers(saved_terminals(images))
    highest = max(needed, default=0)
    with contextlib.ExitStack() as held, contextlib.ExitStack() as others:
        number = -1 if highest >= REACH else highest
        try:
            while number < highest:
                master = os.open(MASTERS, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
                number = struct.unpack("i", fcntl.ioctl(master, TIOCGPTN, bytes(4)))[0]
                lower = number < highest and number not in needed
                (held if lower else others).callback(os.close, master)
        except OSError:  # so many are not to be had; CRIU says whether it is enough without
            held.close()
        return held.pop_all()


def settle(terminal: ControllingTerminal, images: Path, tasks: Sequence[TaskIdentity]) -> None:
    """Give the terminal to the tree as it had it; nothing of the tree has run yet.

    Raises:
        CriuFailed: the images are none, or the tree has ended.
    """
    saved = next(iter(outside(saved_terminals(images))), None)
    try:
        groups = [os.getpgid(task.pid) for task in tasks]
    except ProcessLookupError as error:
        raise CriuFailed("a process of the tree was ended by somebody before it was let run") from error
    front = groups[0]
    if saved is not None and saved.group in groups:
        front = saved.group
    elif saved is None or saved.group != _read(images / TREE, group_of_root):
        terminal.set_modes(terminal.modes)  # the modes in the images are those of the shell that was in the foreground
    terminal.give(front)
    terminal.put_size_back()


def saved_terminals(images: Path) -> tuple[SavedTerminal, ...]:
    """Return the terminals of the tree; none where CRIU wrote no list of them.

    Raises:
        CriuFailed: the images are none.
    """
    try:
        terminals = (images / TERMINALS).read_bytes()
    except FileNotFoundError:
        terminals = TERMINALS_MAGIC  # CRIU writes none where there is none
    return _read(images / FILES, lambda files: read_terminals(terminals, files))


def _read(path: Path, reader: Callable[[bytes], T]) -> T:
    try:
        return reader(path.read_bytes())
    except (OSError, NotTerminals) as error:
        raise CriuFailed(f"CRIU left no {path.name} that can be read, or no {TERMINALS}: {error}") from error
