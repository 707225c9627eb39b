"""Unpack the folder of an attempt into one that was made for it, and that nobody else can enter yet.

Each entry is made anew, in its folder, by its name alone: nothing is opened by a path, no link is followed, and nothing
that is there is replaced. Owners, modes and times are set when a file or folder is complete.

Everything here blocks.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final

import attrs

from iriscw.freeze.carried import (
    MAGIC,
    MAX_HEADER_BYTES,
    PACK,
    FolderDamaged,
    FolderInTheWay,
    PackedEntry,
    PackedKind,
    PackReading,
    decode,
)
from iriscw.freeze.traits import CarriedFolder

PIECE_BYTES: Final = 1 << 20

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class UnpackStopped(Exception):
    """Whoever wanted it has given it up."""


def unpack(images: Path, carried: CarriedFolder, top: int, stop: threading.Event) -> None:
    """Unpack a folder.

    Args:
        images: where the file with it is.
        carried: what the manifest says of it.
        top: the open folder that gets it: empty, and nobody else's.
        stop: set by whoever gives it up.

    Raises:
        FolderDamaged: the file is none of ours, or is not what the manifest says.
        FolderInTheWay: this user cannot make a file of it.
        UnpackStopped: it was given up.
        OSError: it cannot be read or written.
    """
    reading = PackReading()
    folders: list[PackedEntry] = []
    unpacking = _Unpacking(top, stop)
    descriptor = os.open(images / PACK, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb", buffering=PIECE_BYTES) as file:
        if file.readline(len(MAGIC)) != MAGIC:
            raise FolderDamaged(f"{PACK} is of another version, or none of ours")
        for found in _entries(file, reading):
            if stop.is_set():
                raise UnpackStopped
            entry = _without_rights(found, carried.user)
            if entry.kind is PackedKind.FOLDER:
                folders.append(entry)
            unpacking.make(entry, file)
        if file.read(1):
            raise FolderDamaged(f"{PACK} goes on after its end")
    if len(reading.kinds) != carried.files:
        raise FolderDamaged(f"{PACK} has {len(reading.kinds)} entries, and the manifest says {carried.files}")
    for entry in reversed(folders):  # those within first: to write into a folder changes its time
        unpacking.finish_folder(entry)


def _without_rights(entry: PackedEntry, user: int) -> PackedEntry:
    """Return an entry that gives nobody the rights of another user or group than the folder's own."""
    taken = stat.S_ISUID if entry.user != user else 0
    if user and entry.kind is not PackedKind.FOLDER:
        taken |= stat.S_ISGID
    return attrs.evolve(entry, mode=entry.mode & ~taken)


def _entries(file: BinaryIO, reading: PackReading) -> Iterator[PackedEntry]:
    """Yield the entries, each as soon as its line is read: its data comes next."""
    while not reading.ended:
        line = file.readline(MAX_HEADER_BYTES + 1)
        if not line.endswith(b"\n"):
            raise FolderDamaged(f"{PACK} has no end")
        found = decode(line)
        if isinstance(found, int):
            reading.end(found)
        else:
            reading.take(found)
            yield found


@attrs.define
class _Unpacking:
    top: int
    stop: threading.Event

    def make(self, entry: PackedEntry, file: BinaryIO) -> None:
        """Make what an entry says."""
        if entry.path == "":
            return
        folder = self._folder(entry.parent)
        try:
            match entry.kind:
                case PackedKind.FOLDER:
                    os.mkdir(entry.name, 0o700, dir_fd=folder)
                case PackedKind.FILE:
                    self._file(entry, folder, file)
                case PackedKind.LINK:
                    os.symlink(entry.target, entry.name, dir_fd=folder)
                    self._own_name(entry, folder)
                case PackedKind.SAME:
                    self._same(entry, folder)
                case PackedKind.FIFO | PackedKind.SOCKET:
                    kind = stat.S_IFIFO if entry.kind is PackedKind.FIFO else stat.S_IFSOCK
                    os.mknod(entry.name, kind | 0o600, dir_fd=folder)
                    self._own_name(entry, folder)
                    os.chmod(entry.name, entry.mode, dir_fd=folder)  # made by us above, so it is no link
        finally:
            os.close(folder)

    def _folder(self, path: str) -> int:
        """Open a folder that was made here."""
        current = os.dup(self.top)
        for name in path.split("/") if path else ():
            try:
                below = os.open(name, _FOLDER, dir_fd=current)
            finally:
                os.close(current)
            current = below
        return current

    def _file(self, entry: PackedEntry, folder: int, file: BinaryIO) -> None:
        made = os.open(entry.name, _NEW, 0o600, dir_fd=folder)
        try:
            for offset, length in entry.extents:
                self._extent(made, offset, length, file)
            os.truncate(made, entry.size_bytes)
            self._own(entry, made)
        finally:
            os.close(made)

    def _extent(self, made: int, offset: int, length: int, file: BinaryIO) -> None:
        while length:
            if self.stop.is_set():
                raise UnpackStopped
            piece = file.read(min(PIECE_BYTES, length))
            if not piece:
                raise FolderDamaged(f"{PACK} ends in the middle of a file")
            view = memoryview(piece)
            while view:
                written = os.pwrite(made, view, offset)
                view, offset, length = view[written:], offset + written, length - written

    def _same(self, entry: PackedEntry, folder: int) -> None:
        above, _, name = entry.target.rpartition("/")
        other = self._folder(above)
        try:
            os.link(name, entry.name, src_dir_fd=other, dst_dir_fd=folder, follow_symlinks=False)
        finally:
            os.close(other)

    def finish_folder(self, entry: PackedEntry) -> None:
        """Give a folder its owner, its mode and its time."""
        folder = self._folder(entry.path)
        try:
            self._own(entry, folder)
        finally:
            os.close(folder)

    def _own(self, entry: PackedEntry, opened: int) -> None:
        """Give an open file or folder what it had."""
        for name, value in entry.attributes:
            os.setxattr(opened, name, value)
        if (user := self._owner(entry, os.fstat(opened))) is not None:
            os.fchown(opened, *user)
        os.fchmod(opened, entry.mode)
        os.utime(opened, ns=(entry.changed_ns, entry.changed_ns))

    def _own_name(self, entry: PackedEntry, folder: int) -> None:
        """Give what cannot be opened its owner and time."""
        found = os.stat(entry.name, dir_fd=folder, follow_symlinks=False)
        if (user := self._owner(entry, found)) is not None:
            os.chown(entry.name, *user, dir_fd=folder, follow_symlinks=False)
        times = (entry.changed_ns, entry.changed_ns)
        os.utime(entry.name, ns=times, dir_fd=folder, follow_symlinks=False)

    @staticmethod
    def _owner(entry: PackedEntry, found: os.stat_result) -> Sequence[int] | None:
        """Say whom something has to be given to; None if that is who has it."""
        if (found.st_uid, found.st_gid) == (entry.user, entry.group):
            return None
        if os.geteuid() != 0 and (found.st_uid != entry.user or entry.group not in os.getgroups()):
            who = f"user {entry.user} and group {entry.group}"
            raise FolderInTheWay(
                f"{entry.path[:200]!a} belongs to {who}, and user {os.geteuid()} cannot give it to them"
            )
        return entry.user, entry.group
