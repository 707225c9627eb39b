"""Objects as files below one folder: the ``file://`` driver of the ObjectStore port.

Theory of operation. The key's parts are folders and a file. A write goes to a temporary file in a folder of
its own (``.iriscw-unfinished``), is flushed to the disk, and is renamed into place under a lock that all
writers of the store take, in whatever process: so a condition is checked and the name changed in one step.
The lock is held for that step only, never while bytes are written.

Nothing outside the folder is reached, and no link is followed: each part of a key is opened relative to the
folder before it with ``O_NOFOLLOW``, so it does not matter who changes the tree meanwhile. The root's
descriptor is kept open; if the folder is deleted or unmounted under it, that is StoreUnreachable and not
absence.

The etag is made of the file's inode number, change time and length, which differ after each write because
each write makes a new file. Files have mode 0600, folders 0700.

Blocking calls run in threads, one chunk at a time.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat as stat_module
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import attrs

from iriscw._errors import InvalidArgument
from iriscw.files import PRIVATE_FILE_MODE, PRIVATE_FOLDER_MODE, make_private_folder, temporary_name
from iriscw.objects.drivers import listing
from iriscw.objects.drivers.trouble import translated
from iriscw.objects.ports import (
    CHUNK_BYTES,
    MAX_PAGE_OBJECTS,
    Condition,
    Data,
    IfAbsent,
    IfMatch,
    InvalidRange,
    ObjectChanged,
    ObjectExists,
    ObjectInfo,
    ObjectKeyConflict,
    ObjectNotFound,
    ObjectPage,
    StoreAccessDenied,
    StoreUnreachable,
    check_key,
)

UNFINISHED_MAX_AGE_S = 24 * 3600.0
"""Unfinished files older than this belong to writers that were killed; opening the store removes them."""

_UNFINISHED = ".iriscw-unfinished"
_LOCK = ".iriscw-lock"
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@attrs.define
class FileReading:
    """An object that is being read; see ``ObjectReading``."""

    info: ObjectInfo
    _descriptor: int
    _start: int
    _end: int

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Read the chunks."""
        position = self._start
        while position < self._end:
            chunk = await anyio.to_thread.run_sync(self._read, position)
            if not chunk:
                raise StoreUnreachable(f"{self.info.key} was cut short while it was read")
            position += len(chunk)
            yield chunk

    def _read(self, position: int) -> bytes:
        with translated(self.info.key):
            return os.pread(self._descriptor, min(CHUNK_BYTES, self._end - position), position)


class FileObjectStore:
    """Objects as files below ``root``; see :class:`~iriscw.objects.ports.ObjectStore` for what each method
    does.
    """

    def __init__(self, root: Path) -> None:
        """Open the store, and create it if it is not there.

        Raises:
            StoreAccessDenied, StoreUnreachable: the folder cannot be created or opened.
        """
        self._root_path = root
        with translated(str(root)):
            make_private_folder(root)
            self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(_UNFINISHED, PRIVATE_FOLDER_MODE, dir_fd=self._root)
                self._unfinished = os.open(_UNFINISHED, _FOLDER_FLAGS, dir_fd=self._root)
            except OSError:
                os.close(self._root)
                raise
            self._remove_unfinished()

    def __repr__(self) -> str:
        """Show where the objects are."""
        return f"FileObjectStore({str(self._root_path)!r})"

    async def put(self, key: str, data: Data | AsyncIterable[bytes], *, condition: Condition = None) -> ObjectInfo:
        """Write an object as a whole."""
        parts = check_key(key)
        name = temporary_name(parts[-1])
        descriptor = await anyio.to_thread.run_sync(self._open_unfinished, key, name)
        try:
            async for piece in _pieces(data):
                await anyio.to_thread.run_sync(_write_all, key, self._root_path, descriptor, piece)
            return await anyio.to_thread.run_sync(self._commit, key, parts, name, descriptor, condition)
        finally:
            with contextlib.suppress(FileNotFoundError):  # renamed, unless something failed
                os.unlink(name, dir_fd=self._unfinished)
            os.close(descriptor)

    @asynccontextmanager
    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> AsyncIterator[FileReading]:
        """Read an object."""
        parts = check_key(key)
        if start < 0 or (end is not None and end < start):
            raise InvalidRange(f"{start} to {end} is not a range of bytes")
        descriptor = await anyio.to_thread.run_sync(self._open, key, parts)
        try:
            info = _info(key, os.fstat(descriptor))
            if start > info.size_bytes:
                raise InvalidRange(f"{key} has {info.size_bytes} bytes, the range begins at {start}")
            last = info.size_bytes if end is None else min(end, info.size_bytes)
            yield FileReading(info, descriptor, start, last)
        finally:
            os.close(descriptor)

    async def stat(self, key: str) -> ObjectInfo:
        """Return what is known of an object."""
        return await anyio.to_thread.run_sync(self._stat, key, check_key(key))

    async def list(self, prefix: str = "", *, after: str = "", limit: int = MAX_PAGE_OBJECTS) -> ObjectPage:
        """List objects in the order of their keys."""
        if not 1 <= limit <= MAX_PAGE_OBJECTS:
            raise InvalidArgument(f"a page has 1 to {MAX_PAGE_OBJECTS} objects, not {limit}")
        return await anyio.to_thread.run_sync(self._list, prefix, after, limit)

    async def delete(self, key: str, *, condition: IfMatch | None = None) -> None:
        """Delete an object."""
        await anyio.to_thread.run_sync(self._delete, key, check_key(key), condition)

    async def aclose(self) -> None:
        """Close the descriptors of the folders."""
        root, self._root = self._root, -1
        if root >= 0:
            os.close(root)
            os.close(self._unfinished)

    # What runs in threads.

    def _open_unfinished(self, key: str, name: str) -> int:
        with translated(key, self._root_path):
            self._check_root()
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            return os.open(name, flags, PRIVATE_FILE_MODE, dir_fd=self._unfinished)

    def _commit(self, key: str, parts: tuple[str, ...], name: str, descriptor: int, condition: Condition) -> ObjectInfo:
        with translated(key, self._root_path):
            os.fsync(descriptor)
            with self._folder(key, parts[:-1], create=True) as folder:
                with self._locked():
                    present = self._present(key, folder, parts[-1])
                    _check_condition(key, present, condition)
                    os.rename(name, parts[-1], src_dir_fd=self._unfinished, dst_dir_fd=folder)
                os.fsync(folder)
            return _info(key, os.fstat(descriptor))

    def _open(self, key: str, parts: tuple[str, ...]) -> int:
        with translated(key), self._folder(key, parts[:-1]) as folder:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
            try:
                descriptor = os.open(parts[-1], flags, dir_fd=folder)
            except FileNotFoundError as error:
                raise self._absent(key) from error
            if stat_module.S_ISREG(os.fstat(descriptor).st_mode):
                return descriptor
            os.close(descriptor)
            raise self._absent(key)

    def _stat(self, key: str, parts: tuple[str, ...]) -> ObjectInfo:
        with translated(key), self._folder(key, parts[:-1]) as folder:
            present = self._present(key, folder, parts[-1], conflict=False)
            if present is None:
                raise self._absent(key)
            return present

    def _delete(self, key: str, parts: tuple[str, ...], condition: IfMatch | None) -> None:
        try:
            with translated(key), self._folder(key, parts[:-1]) as folder, self._locked():
                present = self._present(key, folder, parts[-1], conflict=False)
                _check_condition(key, present, condition)
                if present is not None:
                    os.unlink(parts[-1], dir_fd=folder)
                    os.fsync(folder)
        except ObjectNotFound as error:  # the folder is not there either
            if condition is not None:
                raise ObjectChanged(f"{key} is gone") from error

    def _list(self, prefix: str, after: str, limit: int) -> ObjectPage:
        found: list[ObjectInfo] = []
        with translated(prefix):
            self._check_root()
            for key, status in listing.walk(self._root, prefix, after):
                if len(found) == limit:
                    return ObjectPage(tuple(found), next_after=found[-1].key)
                found.append(_info(key, status))
        return ObjectPage(tuple(found), next_after=None)

    @contextlib.contextmanager
    def _folder(self, key: str, parts: tuple[str, ...], *, create: bool = False) -> Iterator[int]:
        """Open the folder of a key, one part after the other; ``create`` makes what is missing, durably.

        Raises:
            ObjectNotFound: it is not there, or a part is an object.
            ObjectKeyConflict: with ``create``, a part is an object.
        """
        self._check_root()
        current = os.dup(self._root)
        try:
            for part in parts:
                following = self._enter(key, current, part, create=create)
                os.close(current)
                current = following
            yield current
        finally:
            os.close(current)

    def _enter(self, key: str, folder: int, part: str, *, create: bool) -> int:
        if create:
            try:
                os.mkdir(part, PRIVATE_FOLDER_MODE, dir_fd=folder)
                os.fsync(folder)
            except FileExistsError:
                pass
        try:
            return os.open(part, _FOLDER_FLAGS, dir_fd=folder)
        except FileNotFoundError as error:
            raise self._absent(key) from error
        except NotADirectoryError as error:
            if stat_module.S_ISLNK(os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode):
                raise StoreAccessDenied(f"{part!r} in {key!r} is a link, and no link is followed") from error
            if create:
                raise ObjectKeyConflict(f"{part!r} in {key!r} is an object, so nothing can be below it") from error
            raise self._absent(key) from error

    def _present(self, key: str, folder: int, name: str, *, conflict: bool = True) -> ObjectInfo | None:
        """Return the object that has the name now. ``conflict`` says whether a folder there is an error."""
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if stat_module.S_ISREG(status.st_mode):
            return _info(key, status)
        if not stat_module.S_ISDIR(status.st_mode):
            raise StoreAccessDenied(f"{key!r} is a link or a device, and none is followed")
        if conflict:
            raise ObjectKeyConflict(f"there are objects below {key!r}, so it cannot be one itself")
        return None

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the store's lock against every other thread and process; closing the descriptor gives it
        back.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(_LOCK, flags, PRIVATE_FILE_MODE, dir_fd=self._root)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _check_root(self) -> None:
        if self._root < 0:
            raise StoreUnreachable("the store is closed")
        if os.fstat(self._root).st_nlink == 0:
            raise StoreUnreachable(f"the folder {self._root_path} was deleted")

    def _absent(self, key: str) -> ObjectNotFound:
        self._check_root()  # deleted meanwhile: then nothing is known of the object
        return ObjectNotFound(f"there is no object {key!r}")

    def _remove_unfinished(self) -> None:
        oldest = time.time() - UNFINISHED_MAX_AGE_S
        for name in os.listdir(self._unfinished):  # noqa: PTH208  # a descriptor has no Path
            with contextlib.suppress(FileNotFoundError):
                if os.stat(name, dir_fd=self._unfinished, follow_symlinks=False).st_mtime < oldest:
                    os.unlink(name, dir_fd=self._unfinished)


async def _pieces(data: Data | AsyncIterable[bytes]) -> AsyncIterator[memoryview]:
    if isinstance(data, bytes | memoryview):
        for start in range(0, len(data), CHUNK_BYTES):
            yield memoryview(data)[start : start + CHUNK_BYTES]
        return
    async for chunk in data:
        yield memoryview(chunk)


def _write_all(key: str, root: Path, descriptor: int, piece: memoryview) -> None:
    with translated(key, root):
        while piece:
            piece = piece[os.write(descriptor, piece) :]


def _info(key: str, status: os.stat_result) -> ObjectInfo:
    etag = f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"
    return ObjectInfo(key, status.st_size, etag)


def _check_condition(key: str, present: ObjectInfo | None, condition: Condition) -> None:
    if isinstance(condition, IfAbsent) and present is not None:
        raise ObjectExists(f"there is an object {key!r} already")
    if isinstance(condition, IfMatch) and (present is None or present.etag != condition.etag):
        raise ObjectChanged(f"{key!r} is not the version that was named")
