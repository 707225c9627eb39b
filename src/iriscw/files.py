"""Files that are whole or absent, and folders nobody else reads.

Everything iriscw keeps in files (state of the local platform, identities of processes, results of tasks,
objects) is written here: to a temporary name beside the target, flushed to the disk, then renamed. A reader
sees the old file or the new one, never a part, at any crash point. Folders are made with mode 0700 and files
with 0600, because job environments, tokens and checkpoints are private to the user who runs the process.

What a stranger may have written is read with a bound, and folders are removed whatever was done to them.

These functions block; call them from a thread when an event loop must go on.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from iriscw._errors import OperationError

PRIVATE_FILE_MODE = 0o600
PRIVATE_FOLDER_MODE = 0o700

TEMPORARY_PREFIX = ".iriscw-"
"""How the names of unfinished files begin; whoever lists a folder skips them."""

MAX_ROUNDS = 8
"""How often the removal of a folder begins again because something new is in it."""

_ENTERED = stat.S_IRUSR | stat.S_IXUSR
_numbers = itertools.count()


class StateUnusable(OperationError):
    """A folder that keeps state cannot be used: it cannot be made or written to, or is not what it should be.

    The text says what. Nothing was touched.
    """


def make_private_folder(path: Path) -> None:
    """Create ``path`` and what is missing above it with mode 0700; one that exists keeps its mode.

    Raises:
        OSError: the folder cannot be created, or something else has its name.
    """
    missing: list[Path] = []
    current = path
    while not current.exists():
        missing.append(current)
        current = current.parent
    for folder in reversed(missing):
        folder.mkdir(mode=PRIVATE_FOLDER_MODE, exist_ok=True)
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))


def temporary_name(name: str) -> str:
    """Return a name for the unfinished ``name`` that no other call in any process gives at the same time."""
    return f"{TEMPORARY_PREFIX}{os.getpid()}-{next(_numbers)}-{name[:128]}"


def is_part_of(name: str, whole: str) -> bool:
    """Whether a file with this name is an unfinished ``whole``: one that :func:`temporary_name` named."""
    number, _, rest = name.removeprefix(TEMPORARY_PREFIX).partition("-")
    count, _, meant = rest.partition("-")
    return name.startswith(TEMPORARY_PREFIX) and number.isdigit() and count.isdigit() and meant == whole[:128]


def write_atomic(path: Path, data: bytes, *, mode: int = PRIVATE_FILE_MODE, durable: bool = True) -> None:
    """Give ``path`` the content ``data``, as a whole or not at all.

    ``durable`` also waits until the file and its name are on the disk; without it a power cut may undo the
    write, but never leaves a part of it.

    Raises:
        OSError: as the file system says it; the old content is untouched.
    """
    temporary = path.with_name(temporary_name(path.name))
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(descriptor)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise
    if durable:
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Wait until the names in the folder ``path`` are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_bounded(path: Path, limit_bytes: int, *, below: Path | None = None) -> bytes:
    """Read a plain file that is not a link and at most ``limit_bytes`` long.

    Args:
        path: the file.
        limit_bytes: what it may be long.
        below: a folder above it. What is between the two was written by a stranger: no link there is followed.

    Raises:
        ValueError: the file is longer, and nothing beyond the limit was read; or it is a pipe, a device.
        OSError: as the file system says it; ``ELOOP`` for a link, ``EISDIR`` for a folder, ``ENXIO`` for a socket,
            ``ENOTDIR`` for a link or a file where a folder between ``below`` and the file should be.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    if below is None:
        descriptor = os.open(path, flags)
    else:
        with _folder_below(below, path.relative_to(below).parts[:-1]) as folder:
            descriptor = os.open(path.name, flags, dir_fd=folder)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise ValueError(f"{path} is not a plain file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(limit_bytes + 1)
    finally:
        os.close(descriptor)
    if len(data) > limit_bytes:
        raise ValueError(f"{path} is longer than {limit_bytes} bytes")
    return data


@contextlib.contextmanager
def _folder_below(folder: Path, names: Sequence[str]) -> Iterator[int]:
    """Open a folder, and in turn each of those named in the one before; none of these may be a link."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    with contextlib.ExitStack() as opened:
        descriptor = os.open(folder, flags)
        opened.callback(os.close, descriptor)
        for name in names:
            descriptor = os.open(name, flags | os.O_NOFOLLOW, dir_fd=descriptor)
            opened.callback(os.close, descriptor)
        yield descriptor


def decode_json(data: bytes) -> object:
    """Read JSON that somebody else may have written.

    Raises:
        ValueError: it is none, or nested deeper than anything of ours.
    """
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None


def remove_tree(folder: Path, *, first: Sequence[str] = (), last: str = "") -> None:
    """Remove a folder with all below it, whatever its programs left: read-only folders, links, a tree of any depth.

    What cannot be removed does not keep the rest: all else is gone when the error is raised. Links are removed, not
    followed, and other file systems that are mounted below stay as they are. A folder that is not there is fine. What a
    program that still runs writes meanwhile is removed as well, up to :data:`MAX_ROUNDS` times.

    Args:
        folder: what to remove.
        first: names in it that go before all others: secrets.
        last: the name in it of a small file that goes after all others, and only with them: until then it says what
            this folder is. The removal is on the disk then.

    Raises:
        OSError: as the file system says it, of the first thing that cannot be removed.
    """
    try:
        top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    except PermissionError:
        folder.chmod(PRIVATE_FOLDER_MODE)
        top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    removal = _Removal(os.fstat(top).st_dev)
    try:
        with removal.goes_on():
            _let_in(top)
        for _ in range(MAX_ROUNDS):
            with os.scandir(top) as entries:
                names = [entry.name for entry in entries if entry.name != last]
            if not names:
                break
            for name in sorted(names, key=lambda name: (name not in first, name)):
                removal.remove(top, name)
            if removal.failure is not None:
                raise removal.failure
        _remove_emptied(folder, top, last)
    finally:
        os.close(top)
    if last:
        sync_folder(folder.parent)


def _remove_emptied(folder: Path, top: int, last: str) -> None:
    """Remove the open folder ``top``, in which only ``last`` is left; that is put back if the folder is not empty.

    Somebody may write into it until it is gone. A folder that does not say any more what it is would stay for ever.
    """
    said: bytes | None = None
    if last:
        with contextlib.suppress(FileNotFoundError):
            with os.fdopen(os.open(last, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=top), "rb") as file:
                said = file.read()
            os.unlink(last, dir_fd=top)
    try:
        folder.rmdir()
    except OSError:
        if said is not None:
            write_atomic(folder / last, said)
        raise


@attrs.define
class _Below:
    """A folder that is being emptied: its name in the one above, which folder that was, and what is left to enter."""

    name: str
    above: tuple[int, int]
    folders: list[str]


@attrs.define
class _Removal:
    """Removes one thing after the other, and remembers the first failure.

    There are two descriptors at most, and no recursion: a program can make a tree deeper than either would bear. The
    way up is "..", and must lead to where it came from.
    """

    device: int
    failure: OSError | None = None

    @contextlib.contextmanager
    def goes_on(self) -> Iterator[None]:
        """Remember a failure and go on; what is gone already is none."""
        try:
            yield
        except FileNotFoundError:
            return
        except OSError as error:
            self.failure = self.failure or error

    def remove(self, parent: int, name: str) -> None:
        """Remove what ``name`` is in the folder ``parent``."""
        below: list[_Below] = []
        current = os.dup(parent)
        try:
            current = self._enter(current, name, below)
            while below:
                if below[-1].folders:
                    current = self._enter(current, below[-1].folders.pop(), below)
                else:
                    current = self._leave(current, below)
        finally:
            os.close(current)

    def _enter(self, current: int, name: str, below: list[_Below]) -> int:
        """Remove a file, or go into a folder and remove the files there; give the folder to go on in."""
        inner = -1
        with self.goes_on():
            if not stat.S_ISDIR(os.stat(name, dir_fd=current, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=current)
            else:
                inner = _open_folder(current, name)
                folders = self._remove_files(inner)
                found = os.fstat(current)
                below.append(_Below(name, (found.st_dev, found.st_ino), folders))
                current, inner = inner, current
        if inner >= 0:  # the folder that was left, or one that nobody may empty
            os.close(inner)
        return current

    def _remove_files(self, folder: int) -> list[str]:
        """Remove what is not a folder; give the names of the folders."""
        if os.fstat(folder).st_dev != self.device:
            raise OSError(errno.EXDEV, "another file system is mounted there")
        _let_in(folder)
        folders: list[str] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                    continue
                with self.goes_on():
                    os.unlink(entry.name, dir_fd=folder)
        return folders

    def _leave(self, current: int, below: list[_Below]) -> int:
        """Go up, and remove the folder that was left."""
        left = below.pop()
        above = os.open("..", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=current)
        os.close(current)
        found = os.fstat(above)
        if (found.st_dev, found.st_ino) != left.above:
            below.clear()
            self.failure = self.failure or OSError(errno.ESTALE, f"{left.name} was moved while it was removed")
        else:
            with self.goes_on():
                os.rmdir(left.name, dir_fd=above)
        return above


def _open_folder(parent: int, name: str) -> int:
    """Open a folder, and no link, that may be closed to its owner."""
    place = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        if os.fstat(place).st_mode & _ENTERED != _ENTERED:
            Path(f"/proc/self/fd/{place}").chmod(PRIVATE_FOLDER_MODE)  # the folder itself, whatever has its name now
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place)
    finally:
        os.close(place)


def _let_in(folder: int) -> None:
    """Let the owner of an open folder change what is in it."""
    if os.fstat(folder).st_mode & stat.S_IRWXU != stat.S_IRWXU:
        os.fchmod(folder, PRIVATE_FOLDER_MODE)
