"""What waits unread in the terminals of a tree, at its dump and at its restore.

CRIU takes it out into ``tty-data.img`` when it dumps, and leaves it at that: a tree that runs on does so without, and
with descriptors that do not block any more. At a restore it writes it into the other side as a program would: each
line's end gets a second carriage return, what is echoed is echoed again. Neither a line that was begun is taken, nor
what somebody wrote who has closed his side since.

So all of it is given back while the tree is held, as it was, and kept in an image of our own, from which it is put into
the terminals of a thaw before anything of that runs. Everything here blocks.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import fcntl
import functools
import json
import os
import re
import termios
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import attrs

from iriscw.files import decode_json, read_bounded, write_atomic
from iriscw.freeze.criu_terminals import (
    NotTerminals,
    descriptors_of,
    read_descriptors,
    read_flags,
    read_queues,
    without_queues,
    written_back,
)
from iriscw.freeze.drivers.criu.terminals import FILES, saved_terminals
from iriscw.freeze.drivers.identities import open_task
from iriscw.freeze.drivers.namespace.space import number_inside
from iriscw.freeze.drivers.processes.reading import held_tree
from iriscw.freeze.drivers.pseudoterminal import WaitingBytes, other_side, put, take
from iriscw.freeze.model import CriuFailed, TargetGone, TaskIdentity
from iriscw.freeze.proc_text import MASTER, master_index, slave_index
from iriscw.processes.identity import read_process_file

CRIUS: Final = "tty-data.img"
OURS: Final = "terminal-queues.json"
"""In the folder of the images: what waited, by CRIU, and by us."""

MAX_BYTES: Final = 64 << 20
"""Of our image. A terminal holds some 70 KiB in each direction."""

PIDFD_GETFD: Final = 438
"""The number of the system call, on all architectures."""

FLAGS: Final = os.O_APPEND | os.O_NONBLOCK | os.O_ASYNC | os.O_DIRECT | os.O_NOATIME
"""Of a descriptor: those that may be set. CRIU leaves the second of them."""

_TERMINAL: Final = re.compile(r"/(?:[0-9]+|ptmx)\Z")
"""How the name of one ends, wherever its file system is mounted."""

_GONE: Final = (FileNotFoundError, ProcessLookupError, TargetGone)


class _Held(NamedTuple):
    """A descriptor of a terminal that a process of a tree has."""

    task: TaskIdentity
    descriptor: int
    number: int
    """Of the terminal."""
    master: bool


def give_back(images: Path, log: Path, root: TaskIdentity, *, held: bool) -> None:
    """Have the terminals of a tree be as they were before CRIU looked into them. May be repeated.

    Args:
        images: the folder of the images; it may be empty.
        log: what CRIU wrote meanwhile.
        root: the first process of the tree.
        held: whether nothing of it runs. Then what waits is kept for a thaw; else it has back what CRIU took, behind a
            line that was begun.

    Raises:
        CriuFailed: the images cannot be read, or it did not work.
        TargetGone: the tree has ended.
    """
    with _failing(f"what waits in the terminals of process {root.pid} was not given back"):
        if not (images / FILES).exists() or (images / OURS).exists():  # it has everything back
            return
        try:
            saved = saved_terminals(images)
        except CriuFailed:
            if not held and not (images / CRIUS).exists():  # it was broken off before it came to terminals
                return
            raise
        if not any(each.master for each in saved):
            return
        said = log.read_bytes()
        tree = held_tree(root)
        _give_flags_back(images, root, tree, held=held)
        taken = {} if written_back(said) else read_queues(_taken(images), said, saved)
        kept: dict[int, WaitingBytes] = {}
        for number, master, slave in _terminals(tree, held=held):
            output, typed = taken.get((number, True), ()), taken.get((number, False), ())
            found = take(master, slave) if held else WaitingBytes()
            kept[number] = attrs.evolve(found, output=b"".join(output) + found.output, input=typed)
            try:
                put(master, slave, kept[number])
            finally:  # whatever became of it: to put it in again would be twice
                if output or typed:
                    write_atomic(images / CRIUS, without_queues(_taken(images), number), durable=False)
        write_atomic(images / OURS, _written(kept), durable=False)
        (images / CRIUS).unlink(missing_ok=True)


def put_in(images: Path, tasks: Sequence[TaskIdentity]) -> None:
    """Put what waited when a tree was frozen into its terminals; nothing of it has run yet.

    Raises:
        CriuFailed: the images cannot be read, or it did not work.
    """
    with _failing("what waited in the terminals of the tree was not put into them"):
        try:
            kept = _read(read_bounded(images / OURS, MAX_BYTES))
        except FileNotFoundError:
            return
        for number, master, slave in _terminals(tasks, held=True) if kept else ():
            put(master, slave, kept.get(number, WaitingBytes()))


@contextlib.contextmanager
def _failing(what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, termios.error) as error:
        if isinstance(error, (TargetGone, CriuFailed)):
            raise
        raise CriuFailed(f"{what}: {error}") from error


def _taken(images: Path) -> bytes:
    """Return the image of what CRIU took and nobody has back yet."""
    try:
        return (images / CRIUS).read_bytes()
    except FileNotFoundError:
        return b""


def _written(kept: dict[int, WaitingBytes]) -> bytes:
    content = [
        {
            "number": number,
            "output": base64.b64encode(each.output).decode(),
            "input": [base64.b64encode(line).decode() for line in each.input],
            "begun": base64.b64encode(each.begun).decode(),
            "closed": each.closed,
        }
        for number, each in kept.items()
        if each
    ]
    return json.dumps(content).encode()


def _read(data: bytes) -> dict[int, WaitingBytes]:
    kept = {}
    content = decode_json(data)
    for each in content if isinstance(content, list) else [content]:
        match each:
            case {
                "number": int(number),
                "output": str(out),
                "input": list(lines),
                "begun": str(begun),
                "closed": closed,
            }:
                output, rest, *typed = (base64.b64decode(text, validate=True) for text in (out, begun, *lines))
                kept[number] = WaitingBytes(output, tuple(typed), rest, closed is True)
            case _:
                raise ValueError(f"{OURS} is not what iriscw writes")
    return kept


def _give_flags_back(images: Path, root: TaskIdentity, tree: Sequence[TaskIdentity], *, held: bool) -> None:
    """CRIU has had descriptors not block, to read what waits.

    A tree that runs may have set others since, and have other processes and descriptors: of that, only what is just as
    CRIU leaves it is touched.
    """
    wanted = read_flags((images / FILES).read_bytes())
    inside = Path("/proc/self/ns/pid").stat().st_ino != Path(f"/proc/{root.pid}/ns/pid").stat().st_ino
    for task in tree:
        files: dict[int, int] | None = None
        for each in _descriptors(task):
            with _gone_if_not(held):
                if files is None:
                    files = _files_of(images, number_inside(task) if inside else task.pid)
                which, flags = wanted.get(files.get(each.descriptor, 0), (-1, 0))
                if which == each.number << 1 | each.master:
                    with _ours(each) as ours:
                        if held or fcntl.fcntl(ours, fcntl.F_GETFL) & FLAGS == os.O_NONBLOCK:
                            fcntl.fcntl(ours, fcntl.F_SETFL, flags)


def _files_of(images: Path, number: int) -> dict[int, int]:
    """Return the numbers of the files that a process had open, by descriptor.

    Raises:
        FileNotFoundError: there was no such process.
    """
    table = descriptors_of((images / f"ids-{number}.img").read_bytes())
    return read_descriptors((images / f"fdinfo-{table}.img").read_bytes())


def _gone_if_not(held: bool) -> contextlib.AbstractContextManager[None]:
    """Leave out what is not there any more, or not in images that were broken off, if that may be so."""
    return contextlib.nullcontext() if held else contextlib.suppress(OSError, TargetGone, NotTerminals)


@contextlib.contextmanager
def _ours(held: _Held) -> Iterator[int]:
    """Have a descriptor of ours for the same open file.

    Raises:
        OSError: that cannot be, or nobody has it any more.
    """
    process = open_task(held.task)
    try:
        number = _library().syscall(PIDFD_GETFD, process, held.descriptor, 0)
        if number < 0:
            raise OSError(ctypes.get_errno(), f"descriptor {held.descriptor} of process {held.task.pid} cannot be had")
    finally:
        os.close(process)
    try:
        yield number
    finally:
        os.close(number)


def _terminals(tree: Sequence[TaskIdentity], *, held: bool) -> Iterator[tuple[int, int, int | None]]:
    """Yield each terminal whose master the tree has: its number, a descriptor of the master, one of the other side.

    The one of the other side is our own: theirs may be for reading or for writing alone.
    """
    masters: dict[int, _Held] = {}
    slaves: dict[int, None] = {}
    for task in tree:
        for each in _descriptors(task):
            if each.master:
                masters.setdefault(each.number, each)
            else:
                slaves[each.number] = None
    for number, one in masters.items():
        with _gone_if_not(held), _ours(one) as master, contextlib.ExitStack() as other:
            yield number, master, other.enter_context(other_side(master)) if number in slaves else None


def _descriptors(task: TaskIdentity) -> list[_Held]:
    """Return what a process has of terminals."""
    found = []
    with contextlib.suppress(*_GONE):
        for name in os.listdir(f"/proc/{task.pid}/fd"):  # noqa: PTH208  # a thousand paths
            with contextlib.suppress(*_GONE):
                path = f"/proc/{task.pid}/fd/{name}"
                link = os.readlink(path)  # noqa: PTH115  # likewise
                if not _TERMINAL.search(link):  # nor one that was hung up: its number is another one's
                    continue
                device = os.stat(path).st_rdev  # noqa: PTH116  # likewise
                master = (os.major(device), os.minor(device)) == MASTER
                if master:
                    number = master_index(read_process_file(task.pid, f"fdinfo/{name}"))
                else:
                    number = slave_index(os.major(device), os.minor(device))
                if number is not None:
                    found.append(_Held(task, int(name), number, master))
    return found


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
