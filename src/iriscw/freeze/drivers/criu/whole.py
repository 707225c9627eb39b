"""Whether images that CRIU calls complete can be restored at all, asked while the tree is still held.

CRIU finds some of what it cannot restore only when it restores: too late, because the tree has ended by then. Some it
refuses to restore, and could; some it loses, and need not: these images are mended before they are sealed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from iriscw.files import write_atomic
from iriscw.freeze.criu_images import (
    NotFiles,
    NotImage,
    NotTree,
    death_signal,
    known_to_wait,
    mended,
    privately_mapped,
    socket_names,
    strays,
    threads_of,
    unresolved_peers,
    waiting_on,
    without_death_signal,
)
from iriscw.freeze.criu_protobuf import NotProtobuf
from iriscw.freeze.model import CriuFailed, NoRoom, TargetUnfit
from iriscw.freeze.proc_text import waiting_sockets

FILES: Final = "files.img"
TREE: Final = "pstree.img"


def check_whole(images: Path, *, stays_child: bool = False, root: Path = Path("/"), sockets: str = "") -> None:
    """Refuse images that no CRIU restores. Blocks for some milliseconds a thousand open files.

    Args:
        images: their folder.
        stays_child: whether who thaws stays the parent of what it brings back.
        root: the root directory of the tree.
        sockets: its ``/proc/<pid>/net/unix``.

    Raises:
        TargetUnfit: a Unix socket is connected to one outside of the tree that has not accepted it yet, or one outside
            is to one of the tree; a process is in the session of one that is not above it; a socket's name is that of
            another file; or the first process is to end with its parent.
        CriuFailed: CRIU wrote no list of files or tasks, or what is none.
    """
    try:
        tree = (images / TREE).read_bytes()
        lost, threads = strays(tree), threads_of(tree)
    except (OSError, NotTree) as error:
        raise CriuFailed(f"CRIU left no {TREE} that can be read: {error}") from error
    if not stays_child:
        _check_death_signals(images, threads)
    if lost:
        raise TargetUnfit(
            f"process {lost[0]} is in a session whose first process is not above it, as a daemon is that a process of "
            "the tree has adopted: it could be frozen, and would not come back whole"
        )
    try:
        files = (images / FILES).read_bytes()
        unresolved, names, known = unresolved_peers(files), socket_names(files), known_to_wait(files)
    except (OSError, NotFiles) as error:
        raise CriuFailed(f"CRIU left no {FILES} that can be read: {error}") from error
    if unresolved:
        raise TargetUnfit(
            "it has a Unix socket whose other end is outside of its tree, and has not accepted the connection yet "
            f"(socket {unresolved[0]}): it could be frozen, and never thawed"
        )
    waiting = waiting_sockets(sockets)
    for name, count in known.items():
        if waiting.get(name, 0) > count:
            raise TargetUnfit(
                f"somebody outside of its tree has connected to its Unix socket {name}, and was not accepted yet: that "
                "connection would be lost; let it be accepted, or ended, before"
            )
    own = [each.path for each in names if not each.lost]
    for each in names:
        path = os.fsdecode(each.path)
        if each.lost and each.path not in own and os.path.lexists(f"{root}{path}"):
            raise TargetUnfit(
                f"it has a Unix socket that was bound to {path}, which is another file by now, and a thaw would take "
                "that name away from it: close the socket before, or rename that file"
            )


def _check_death_signals(images: Path, threads: tuple[int, ...]) -> None:
    for number in threads:
        name = f"core-{number}.img"
        try:
            signal = death_signal((images / name).read_bytes())
        except (OSError, NotImage, NotProtobuf) as error:
            raise CriuFailed(f"CRIU left no {name} that can be read: {error}") from error
        if signal:
            raise TargetUnfit(
                f"process {threads[0]} is to get signal {signal} when its parent ends (PR_SET_PDEATHSIG), and after a "
                "thaw that is CRIU, which ends at once: freeze the process above it, with it"
            )


def mend(images: Path, *, orphaned: bool = False) -> None:
    """Have CRIU bring back what it need not refuse, or would lose.

    See :func:`iriscw.freeze.criu_images.mended` and :func:`iriscw.freeze.criu_images.waiting_on`.

    Args:
        images: their folder.
        orphaned: whether the first process comes back without the parent that it was to end with.

    Raises:
        CriuFailed: CRIU left no list of files or mappings that can be read.
        NoRoom: the file system is full.
    """
    try:
        mapped = [each for path in sorted(images.glob("mm-*.img")) for each in privately_mapped(path.read_bytes())]
        before = (images / FILES).read_bytes()
        changed = {FILES: (before, mended(before, frozenset(mapped)))}
        firsts = [f"core-{number}.img" for number in threads_of((images / TREE).read_bytes())] if orphaned else []
        for path in sorted(images.glob("core-*.img")):
            core = path.read_bytes()
            after = waiting_on(core)
            changed[path.name] = (core, without_death_signal(after) if path.name in firsts else after)
    except (OSError, NotImage, NotFiles, NotTree, NotProtobuf) as error:
        raise CriuFailed(f"CRIU left images that cannot be read: {error}") from error
    for name, (before, after) in changed.items():
        if after != before:
            try:
                write_atomic(images / name, after, durable=False)
            except OSError as error:
                raise NoRoom(f"{images / name} cannot be written: {os.strerror(error.errno or 0)}") from error
