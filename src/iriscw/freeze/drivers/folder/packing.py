"""Pack the folder of an attempt that is frozen: nothing of its tree runs, so nothing changes while it is read.

Each file is opened in its folder, never by a path, and without following a link. Holes are not read. What no other
machine could have again is refused by name: devices, what is mounted below, another user's files, access lists. Sockets
and FIFOs are carried as names: CRIU makes the sockets of the tree anew, and fills its FIFOs.

Everything here blocks.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Protocol

import attrs

from iriscw.freeze.carried import (
    MAGIC,
    MAX_ATTRIBUTES_BYTES,
    MAX_ENTRIES,
    MAX_EXTENTS,
    MAX_FILE_BYTES,
    MAX_FOLDER_BYTES,
    PACK,
    ROW_BYTES,
    FolderUnfit,
    PackedEntry,
    PackedKind,
    carried_as,
    encode,
    encode_end,
    name_trouble,
)
from iriscw.freeze.drivers.folder.marking import write_mark
from iriscw.freeze.model import NoRoom
from iriscw.freeze.traits import CarriedFolder

PIECE_BYTES: Final = 1 << 20

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_CHANGED: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)
"""What is said of a name that is not there any more, or means something else than a moment ago."""

_NO_ATTRIBUTES: Final = (errno.ENOTSUP, errno.ENODATA)
_ACCESS_LISTS: Final = ("system.posix_acl_access", "system.posix_acl_default")


class PackStopped(Exception):
    """Whoever wanted it has given it up."""


Look = Callable[[PackedEntry, int], None]
"""Takes an entry, and a descriptor of it where it is a file."""


@attrs.define
class _Walk:
    """A walk through a folder; ``look`` is told of each entry."""

    folder: str
    look: Look
    stop: threading.Event
    still: bool
    """Whether nothing of it may change meanwhile: its program does not run."""
    device: int = 0
    entries: int = 0
    size_bytes: int = 0
    names: dict[tuple[int, int], str] = attrs.field(factory=dict)
    """Files with several names, by device and inode."""
    top: tuple[str, ...] = ()

    def all(self) -> int:
        """Go through all of it; give the user to whom it belongs."""
        folder = os.open(self.folder, _FOLDER)
        try:
            found = os.fstat(folder)
            self.device = found.st_dev
            self.top = tuple(_names(folder))
            self._folder(folder, "", found)
        finally:
            os.close(folder)
        return found.st_uid

    def _unfit(self, path: str, why: str) -> FolderUnfit:
        shown = f"{self.folder}/{path}" if path else self.folder
        return FolderUnfit(f"the folder of the attempt cannot be carried: {shown!a} {why}")

    def _folder(self, folder: int, path: str, found: os.stat_result) -> None:
        if found.st_dev != self.device:
            raise self._unfit(path, "is another file system, mounted there")
        self._tell(path, PackedKind.FOLDER, found, folder)
        for name in sorted(_names(folder)):
            if self.stop.is_set():
                raise PackStopped
            below = carried_as(f"{path}/{name}" if path else name, self.top)
            if below:
                self._entry(folder, name, below)

    def _entry(self, folder: int, name: str, path: str) -> None:
        if trouble := name_trouble(path):
            raise self._unfit(path, f"cannot be packed, {trouble}")
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            match stat.S_IFMT(found.st_mode):
                case stat.S_IFDIR:
                    with _opened(name, _FOLDER, folder) as below:
                        self._folder(below, path, os.fstat(below))
                case stat.S_IFREG:
                    self._file(folder, name, path, found)
                case stat.S_IFLNK:
                    self._tell(path, PackedKind.LINK, found, target=os.readlink(name, dir_fd=folder))
                case stat.S_IFIFO:
                    self._tell(path, PackedKind.FIFO, found)
                case stat.S_IFSOCK:
                    self._tell(path, PackedKind.SOCKET, found)
                case _:
                    raise self._unfit(path, "is a device")
        except PermissionError as error:
            raise self._unfit(path, f"cannot be read ({error.strerror})") from error
        except OSError as error:
            if error.errno not in _CHANGED:
                raise
            if self.still:
                raise self._unfit(path, "was removed or replaced while it was packed") from error

    def _file(self, folder: int, name: str, path: str, found: os.stat_result) -> None:
        key = found.st_dev, found.st_ino
        if key in self.names:
            self._tell(path, PackedKind.SAME, found, target=self.names[key])
            return
        if found.st_nlink > 1:
            self.names[key] = path
        if found.st_size > MAX_FILE_BYTES:
            raise self._unfit(path, f"has more than {MAX_FILE_BYTES >> 40} TiB")
        with _opened(name, _FILE, folder) as file:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(errno.ENOENT, "it is something else by now", name)
            self._tell(path, PackedKind.FILE, found, file)
            after = os.fstat(file)
        if self.still and (after.st_size, after.st_mtime_ns) != (found.st_size, found.st_mtime_ns):
            raise self._unfit(path, "was changed while it was packed")

    def _tell(self, path: str, kind: PackedKind, found: os.stat_result, opened: int = -1, target: str = "") -> None:
        if found.st_uid != os.geteuid() and os.geteuid() != 0:
            raise self._unfit(path, f"belongs to user {found.st_uid}")
        extents = tuple(_extents(opened, found.st_size)) if kind is PackedKind.FILE else ()
        attributes = self._attributes(path, opened) if kind in (PackedKind.FILE, PackedKind.FOLDER) else ()
        entry = PackedEntry(
            path=path,
            kind=kind,
            mode=stat.S_IMODE(found.st_mode),
            user=found.st_uid,
            group=found.st_gid,
            changed_ns=found.st_mtime_ns,
            size_bytes=found.st_size if kind is PackedKind.FILE else 0,
            extents=extents,
            target=target,
            attributes=attributes,
        )
        self.entries += 1
        self.size_bytes += entry.data_bytes
        if self.entries > MAX_ENTRIES or self.size_bytes > MAX_FOLDER_BYTES:
            raise self._unfit("", f"has more than {MAX_ENTRIES} files, or {MAX_FOLDER_BYTES >> 30} GiB")
        self.look(entry, opened)

    def _attributes(self, path: str, opened: int) -> tuple[tuple[str, bytes], ...]:
        try:
            names = os.listxattr(opened)
            if any(name in _ACCESS_LISTS for name in names):
                raise self._unfit(path, "has an access list (setfacl -b removes it)")
            found = tuple((name, os.getxattr(opened, name)) for name in sorted(names) if name.startswith("user."))
        except OSError as error:
            if error.errno in _NO_ATTRIBUTES:
                return ()
            raise
        if sum(len(name) + len(value) for name, value in found) > MAX_ATTRIBUTES_BYTES:
            raise self._unfit(path, f"has extended attributes of more than {MAX_ATTRIBUTES_BYTES >> 10} KiB")
        return found


def _names(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries]


@contextlib.contextmanager
def _opened(name: str, flags: int, folder: int) -> Iterator[int]:
    descriptor = os.open(name, flags, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _extents(file: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield where a file has data. Where there are too many holes, what is left is one piece."""
    at = 0
    for _ in range(MAX_EXTENTS - 1):
        try:
            begin = os.lseek(file, at, os.SEEK_DATA)
            end = min(os.lseek(file, begin, os.SEEK_HOLE), size)
        except OSError as error:
            if error.errno == errno.ENXIO:  # there is no more data
                return
            raise
        if begin < end:
            yield begin, end - begin
        at = end
        if at >= size:
            return
    if at < size:
        yield at, size - at


def measure(folder: str, checkpoint: str, stop: threading.Event) -> CarriedFolder:
    """Say how much a folder is, and refuse one that cannot be carried. Its program may run, and change it meanwhile.

    Raises:
        FolderUnfit: it cannot be; the text says what is in the way.
        OSError: it cannot be read.
    """
    walk = _Walk(folder, lambda entry, opened: None, stop, still=False)
    user = walk.all()
    return CarriedFolder(folder, checkpoint, user, walk.entries, walk.size_bytes + ROW_BYTES * walk.entries)


def pack(
    carried: CarriedFolder,
    images: Path,
    most_bytes: int,
    stop: threading.Event,
    report: _Report,
    *,
    runs_on: bool = False,
) -> CarriedFolder:
    """Write a folder into a file among the images, and mark it as what was packed. May be repeated.

    Args:
        carried: the folder, as it was measured.
        images: where the file goes.
        most_bytes: what all images together may take.
        stop: set by whoever gives it up.
        report: told how many bytes were written so far.
        runs_on: its program is only held, and changes it afterwards: it gets no mark.

    Returns:
        The folder as it was packed.

    Raises:
        FolderUnfit: it cannot be carried; the text says what is in the way.
        NoRoom: the file system is full, or more would be written than was reserved.
        PackStopped: it was given up.
        OSError: it cannot be read.
    """
    left = most_bytes - sum(each.stat().st_size for each in images.iterdir() if each.name != PACK)
    try:
        top = os.open(carried.path, _FOLDER)
        try:
            if not runs_on:
                write_mark(Path(f"/proc/self/fd/{top}"), carried.checkpoint)
        finally:
            os.close(top)
        target = os.open(images / PACK, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(target, "wb", buffering=PIECE_BYTES) as file:
            writing = _Writing(file, left, stop, report)
            writing.write(MAGIC)
            walk = _Walk(carried.path, writing.entry, stop, still=True)
            walk.all()
            writing.write(encode_end(walk.entries))
    except OSError as error:
        if error.errno in _FULL:
            raise NoRoom(f"the file system of {images} is full, or that of {carried.path}") from error
        raise
    size = walk.size_bytes + ROW_BYTES * walk.entries
    return attrs.evolve(carried, files=walk.entries, size_bytes=size)


class _Report(Protocol):
    def __call__(self, done_bytes: int, /) -> None: ...


class _File(Protocol):
    def write(self, data: bytes | memoryview, /) -> int: ...


@attrs.define
class _Writing:
    file: _File
    left: int
    stop: threading.Event
    report: _Report
    done: int = 0

    def write(self, data: bytes | memoryview) -> None:
        self.left -= len(data)
        if self.left < 0:
            raise NoRoom("the folder of the attempt takes more than was reserved: it grew while the tree was frozen")
        self.file.write(data)
        self.done += len(data)

    def entry(self, entry: PackedEntry, opened: int) -> None:
        self.write(encode(entry))
        for offset, length in entry.extents:
            at, end = offset, offset + length
            while at < end:
                if self.stop.is_set():
                    raise PackStopped
                piece = os.pread(opened, min(PIECE_BYTES, end - at), at)
                if not piece:
                    raise FolderUnfit(f"{entry.path[:200]!a} was cut while it was packed")
                self.write(piece)
                at += len(piece)
            self.report(self.done)
