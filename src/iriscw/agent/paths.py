"""Folders that a caller names: only below configured roots, and nothing on the way that somebody else could change.

A path is walked from its root on, folder by folder, each opened in the one before it and never through a link. Who
could write into one of them could put another one in its place later, so each belongs to us or to root, and nobody else
may write to it, but for folders like ``/dev/shm`` in which everybody may change what is his only (the sticky bit). What
is above a root is up to whoever configured it.

``parts_below`` is pure; :func:`folder_below` reads the file system, and blocks.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path

import attrs

from iriscw.agent.errors import PathNotAllowed

MAX_PATH_BYTES = 4096
"""The kernel's limit (PATH_MAX)."""

MAX_NAME_BYTES = 255
MAX_DEPTH = 16
"""Folders below a root."""

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@attrs.frozen
class Root:
    """A folder below which callers may name others: as it was configured, and what it really is."""

    given: str
    real: str

    @classmethod
    def of(cls, path: Path) -> Root:
        """Look at a configured folder.

        Raises:
            PathNotAllowed: it is not there, or no folder.
        """
        try:
            real = path.resolve(strict=True)
        except (OSError, RuntimeError) as error:
            raise PathNotAllowed(f"the root {path} is not there: {error}") from error
        if not real.is_dir():
            raise PathNotAllowed(f"the root {path} is not a folder")
        return cls(str(path.absolute()).rstrip("/"), str(real))


def parts_below(path: str, roots: Sequence[Root]) -> tuple[Root, tuple[str, ...]]:
    """Return the root that a path is below, and the names on the way.

    Raises:
        PathNotAllowed: it is below none of them, or not written out plainly.
    """
    shown = ascii(path[:120])
    if not path.startswith("/") or "\0" in path or len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise PathNotAllowed(f"{shown} is not an absolute path")
    names = path[1:].split("/")
    if any(name in ("", ".", "..") for name in names):
        raise PathNotAllowed(f"{shown} has '..', '.' or an empty name in it: write it out plainly")
    if any(len(os.fsencode(name)) > MAX_NAME_BYTES or not name.isprintable() for name in names):
        raise PathNotAllowed(f"{shown} has a name that is too long, or not printable")
    for root in roots:
        above = [] if root.given == "" else root.given[1:].split("/")
        below = names[len(above) :]
        if names[: len(above)] == above and below:
            if len(below) > MAX_DEPTH:
                raise PathNotAllowed(f"{shown} is more than {MAX_DEPTH} folders below {root.given}")
            return root, tuple(below)
    allowed = ", ".join(root.given or "/" for root in roots) or "none is configured (--root)"
    raise PathNotAllowed(f"{shown} is not below a folder that this agent may use: {allowed}")


def folder_below(path: str, roots: Sequence[Root], *, create: bool = False) -> Path:
    """Check a folder that a caller names, and make it if it is to be: 0700, and ours.

    Returns:
        The folder without any link in its path.

    Raises:
        PathNotAllowed: as :func:`parts_below`; or there is a link on the way, a folder that others may change, or
            none; or the folder itself is not one of mode 0700 that belongs to us.
        OSError: it cannot be made.
    """
    root, names = parts_below(path, roots)
    here = Path(root.real)
    current = _opened(here, root.real, None)
    try:
        _check(current, here)
        for number, name in enumerate(names):
            here = here / name
            last = number == len(names) - 1
            if last and create:
                try:
                    os.mkdir(name, 0o700, dir_fd=current)
                except FileExistsError:
                    pass  # looked at below
            inner = _opened(here, name, current)
            os.close(current)
            current = inner
            (_check_own if last else _check)(current, here)
    finally:
        os.close(current)
    return here


def _opened(here: Path, name: str, above: int | None) -> int:
    try:
        return os.open(name, _OPEN, dir_fd=above)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise PathNotAllowed(f"{here} is a link, or no folder") from error
        if error.errno == errno.ENOENT:
            raise PathNotAllowed(f"{here} is not there") from error
        raise


def _check(folder: int, here: Path) -> None:
    found = os.fstat(folder)
    if found.st_uid not in (0, os.geteuid()):
        raise PathNotAllowed(f"{here} belongs to user {found.st_uid}, who could put another folder in its place")
    if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
        raise PathNotAllowed(f"{here} may be written to by others (mode {stat.S_IMODE(found.st_mode):04o})")


def _check_own(folder: int, here: Path) -> None:
    found = os.fstat(folder)
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise PathNotAllowed(f"{here} is not a folder of mode 0700 that belongs to user {os.geteuid()}")
