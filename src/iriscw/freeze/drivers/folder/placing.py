"""Put the folder of an attempt in its place, and take it away again: what was there is kept until it is decided.

::

    <parent>/<folder>                   its place
    <parent>/.iriscw-<thaw>-new         what is being unpacked
    <parent>/.iriscw-<thaw>-old         what was there before

Theory of operation. A thaw unpacks beside the place and exchanges the two in one step, so the place never has a part of
a folder. In the new folder are a mark with the thaw's name, ``let-go``, and no grant: it is nobody's, and nothing runs
from it until somebody grants that, in the place, afterwards. So an offer that somebody had made in what was there
before is not in it; whoever made that offers it anew when the folder arrives.

How a thaw ended decides what stays. Once its supervisor has taken a grant the folder is in use, whatever became of the
rest. If none was taken, the new folder goes and what was there comes back: it may be the only one with that state. All
of this is read off the disk, so it can be done again after a crash in between.

Everything here blocks.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import threading
from pathlib import Path
from typing import Final

from iriscw.files import TEMPORARY_PREFIX, remove_tree, sync_folder, write_atomic
from iriscw.freeze.carried import OFFERED, TAKEN, FolderInTheWay
from iriscw.freeze.drivers.folder.marking import read_mark, write_mark
from iriscw.freeze.drivers.folder.unpacking import unpack
from iriscw.freeze.model import NoRoom, Outcome
from iriscw.freeze.traits import CarriedFolder, FolderSight, FolderStanding
from iriscw.processes.grants import LET_GO
from iriscw.processes.identity import is_alive
from iriscw.processes.status import StatusDamaged, read_identity

_NO_REPLACE, _EXCHANGE = 1, 2
"""Flags of ``renameat2``."""

_HERE: Final = -100
"""``AT_FDCWD``."""

_UNSUPPORTED: Final = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


def look(carried: CarriedFolder) -> FolderSight:
    """Look at the place of a folder.

    Raises:
        OSError: it cannot be looked at.
    """
    place = Path(carried.path)
    if trouble := _parent_trouble(carried):
        return FolderSight(_standing(place, carried), trouble)
    found = os.statvfs(place.parent)
    return FolderSight(_standing(place, carried), free_bytes=found.f_bavail * found.f_frsize)


def _parent_trouble(carried: CarriedFolder) -> str:
    parent = Path(carried.path).parent
    try:
        if os.path.realpath(parent, strict=True) != str(parent):
            return f"there is a link in {parent}, and its images name it without one"
        found = parent.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return f"{parent} is not there: a worker that may have the attempt makes it"
    if not stat.S_ISDIR(found.st_mode):
        return f"{parent} is not a folder"
    if found.st_uid not in (0, carried.user) or os.geteuid() not in (0, carried.user):
        return f"{parent} is of user {found.st_uid}, this is user {os.geteuid()}, and it was of user {carried.user}"
    if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
        return f"{parent} may be written to by others (mode {stat.S_IMODE(found.st_mode):04o})"
    return ""


def _standing(place: Path, carried: CarriedFolder) -> FolderStanding:
    try:
        found = place.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return FolderStanding.ABSENT
    if not stat.S_ISDIR(found.st_mode):
        return FolderStanding.KEPT
    if read_mark(place).checkpoint == carried.checkpoint:
        return FolderStanding.SAME
    left = os.path.lexists(place / LET_GO) and not os.path.lexists(place / TAKEN)
    return FolderStanding.LEFT if left and not _runs(place) else FolderStanding.KEPT


def _runs(place: Path) -> bool:
    """Whether a supervisor of this folder lives, as far as the folder tells."""
    try:
        found = read_identity(place)
    except StatusDamaged:
        return True
    return found is not None and any(is_alive(each) for each in found)


def place(carried: CarriedFolder, images: Path, operation: str, stop: threading.Event) -> None:
    """Put a folder in its place, unless it is there. May be repeated.

    Raises:
        FolderInTheWay: what is there is somebody's, or nothing may be put there.
        FolderDamaged: what is carried is none of ours.
        NoRoom: the file system is full.
        UnpackStopped: it was given up.
        OSError: as the file system says it.
    """
    sight = look(carried)
    if sight.standing is FolderStanding.SAME:
        return
    if sight.trouble or sight.standing is FolderStanding.KEPT:
        raise FolderInTheWay(sight.trouble or f"{carried.path} is somebody's: it was not let go, or runs")
    at = Path(carried.path)
    new, old = _beside(at, operation)
    try:
        remove_tree(new)
        new.mkdir(mode=0o700)
        top = os.open(new, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            unpack(images, carried, top, stop)
            opened = Path(
                f"/proc/self/fd/{top}"
            )  # whoever owns the folder above may put a link in the place of its name
            write_mark(opened, carried.checkpoint, operation)
            write_atomic(opened / LET_GO, b"")
            if os.geteuid() == 0:
                os.chown(opened / LET_GO, carried.user, -1, follow_symlinks=False)
                os.chown(top, carried.user, -1)
            if not os.path.samestat(os.fstat(top), os.lstat(new)):
                raise FolderInTheWay(f"somebody put something else in the place of {new}")
            if sight.standing is FolderStanding.ABSENT:
                _rename(new, at)
            else:
                _swap(new, at, old)
            if not _is(at, top):  # its name was taken between that look and this one
                _put_back(at, new, old)
                raise FolderInTheWay(f"somebody put something else in the place of {new}, and so of {at}")
        finally:
            os.close(top)
    except OSError as error:
        if error.errno in _FULL:
            raise NoRoom(
                f"the file system of {at.parent} is full, and a folder of {carried.size_bytes} bytes is to be there"
            ) from error
        raise
    sync_folder(at.parent)


def _is(at: Path, folder: int) -> bool:
    """Whether a name is that of an open folder, and no link to it."""
    try:
        return os.path.samestat(os.fstat(folder), os.lstat(at))
    except FileNotFoundError:
        return False


def _put_back(at: Path, new: Path, old: Path) -> None:
    """Have in its place again what was there, and what somebody put there beside it."""
    if os.path.lexists(old):
        _swap(old, at, new) if os.path.lexists(at) else _rename(old, at)
    elif os.path.lexists(at):
        _rename(at, new)


def leave(carried: CarriedFolder, operation: str, outcome: Outcome) -> None:
    """Decide what stays in the place of a folder when a thaw is over. May be repeated.

    Args:
        carried: the folder.
        operation: the thaw.
        outcome: how it ended. After one that failed nothing of it runs any more.

    Raises:
        OSError: as the file system says it. What is left beside the place is the folder of before, or the new one.
    """
    at = Path(carried.path)
    new, old = _beside(at, operation)
    placed = read_mark(at).operation == operation
    if placed and os.path.lexists(new) and not os.path.lexists(old):  # exchanged, and then there was a crash
        _rename(new, old)
    if outcome is Outcome.LEFT and not os.path.lexists(at / TAKEN):
        return  # who is left may use either
    if outcome is not Outcome.THAWED and not os.path.lexists(at / TAKEN):
        if placed and os.path.lexists(old):
            _swap(old, at, new)
        elif placed:
            _rename(at, new)
        elif os.path.lexists(old) and not _is_folder(at) and read_mark(old).operation != operation:
            _put_back(at, new, old)
    if os.path.lexists(at.parent):
        sync_folder(at.parent)
    remove_tree(old)
    remove_tree(new)


def _is_folder(at: Path) -> bool:
    try:
        return stat.S_ISDIR(at.lstat().st_mode)
    except FileNotFoundError:
        return False


def is_granted(folder: Path) -> bool:
    """Whether a grant can be expected in a folder no more: it is there, or nobody has just put the folder there."""
    if not read_mark(folder).operation:
        return True
    return any(os.path.lexists(folder / name) for name in (OFFERED, TAKEN))


def _beside(at: Path, operation: str) -> tuple[Path, Path]:
    name = f"{TEMPORARY_PREFIX}{operation}"
    return at.parent / f"{name}-new", at.parent / f"{name}-old"


def _swap(comes: Path, at: Path, goes: Path) -> None:
    """Have a folder in the place of another one, which gets the third name."""
    try:
        _renameat2(comes, at, _EXCHANGE)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        at.rename(goes)  # a file system that cannot exchange: for a moment there is nothing
        comes.rename(at)
        return
    _rename(comes, goes)


def _rename(source: Path, target: Path) -> None:
    """Rename, and replace nothing."""
    try:
        _renameat2(source, target, _NO_REPLACE)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from error
        source.rename(target)


def _renameat2(source: Path, target: Path, flags: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.renameat2(_HERE, os.fsencode(source), _HERE, os.fsencode(target), ctypes.c_uint(flags)) != 0:
        number = ctypes.get_errno() or errno.EIO
        raise OSError(number, os.strerror(number), str(target))
