"""Make a bundle: a folder as one zip whose name is its content.

A bundle's id is the SHA-256 of the zip. The zip is made so that the same files give the same bytes: names
sorted, one date, one mode for programs and one for data, one level of compression. (Another version of zlib
may compress otherwise; then the same files have two ids, which costs space and nothing else.)

What nobody wants in one is left out (:data:`DEFAULT_EXCLUDES` and virtual environments), and what its user excludes.
Links are refused, not followed: what lies outside the folder is not part of it. So are names that would not be safe
where the bundle is unpacked.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import stat
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import attrs

from iriscw._errors import InvalidArgument, UsageError

DEFAULT_EXCLUDES = (
    *(".git", ".hg", ".svn", "__pycache__", "*.pyc", ".venv", "node_modules", ".mypy_cache", ".pytest_cache"),
    *(".ruff_cache", ".tox", ".nox", ".ipynb_checkpoints", ".iriscw"),
)
"""What people leave out of a repository, and the state of a cluster of this machine, which has tokens."""

MAX_EXCLUDES = 1_000
"""Patterns of a user: each is compared with each file. A large project's list of ignored files has a hundred."""

LARGEST_NAMED = 3
"""Entries of a folder that is too large, as its error names them."""

ENVIRONMENT_MARK = "pyvenv.cfg"
"""Is in every virtual environment, whatever the folder is called. None works on another machine: it has links and paths
of this one."""

_EARLIEST_DATE = (1980, 1, 1, 0, 0, 0)
_LEVEL = 6
_COPY_BYTES = 1 << 20


class BundleTooLarge(UsageError):
    """The folder has more files or bytes than a bundle may; the text names where most are. Exclude what is not used."""


class InvalidBundleFolder(UsageError):
    """The folder is none, or holds a link, a device, or a name that no bundle can hold."""


@attrs.frozen
class BundleLimits:
    """What a bundle may hold. The same limits guard whoever unpacks it against bombs."""

    files: int = 20_000
    """PyTorch's sources have 15,000."""
    unpacked_bytes: int = 1 << 30
    packed_bytes: int = 256 << 20
    """Every worker of a job fetches it: a thousand of them make 256 GB of a full one."""


@attrs.frozen
class Packed:
    """A bundle that was made."""

    bundle_id: str
    size_bytes: int
    files: int
    useless: tuple[str, ...] = ()
    """Patterns of the caller that nothing in the folder fits, as he wrote them."""


_HOW = "bundle_exclude=, --bundle-exclude"

_WAY_OUT = (
    f"make a file of it, or leave it out ({_HOW}; left out of every bundle are virtual environments and "
    + ", ".join(DEFAULT_EXCLUDES)
    + ")"
)


@attrs.frozen
class _Found:
    """A file that is to be packed, and its name in the zip."""

    name: str
    path: Path
    size_bytes: int


def pack(
    folder: Path,
    target: BinaryIO,
    *,
    exclude: Sequence[str] = (),
    limits: BundleLimits | None = None,
) -> Packed:
    """Write the files of ``folder`` to ``target``, an empty file that can seek.

    Args:
        folder: what to pack; itself no link.
        target: where the zip goes.
        exclude: patterns as :func:`check_excludes` takes them; what fits one is left out, with all below it. So is what
            fits :data:`DEFAULT_EXCLUDES`, and folders below ``folder`` that are virtual environments.
        limits: what it may hold.

    Raises:
        BundleTooLarge: it holds more.
        InvalidBundleFolder: see there.
        InvalidArgument: a pattern is none.
        OSError: a file cannot be read, or ``target`` not be written.
    """
    bounds = limits or BundleLimits()
    asked = check_excludes(exclude)
    found, fitting = _files(folder, asked)
    unpacked = sum(each.size_bytes for each in found)
    if len(found) > bounds.files:
        most = _most(found, lambda _: 1, "files")
        raise BundleTooLarge(f"{folder} has {len(found)} files, and a bundle at most {bounds.files}: {most}")
    if unpacked > bounds.unpacked_bytes:
        raise _too_large(folder, "has", unpacked, bounds.unpacked_bytes, found)
    unpacked = 0
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL, strict_timestamps=True) as archive:
        for each in found:
            unpacked += _add(archive, each.path, each.name, bounds.unpacked_bytes - unpacked)
            if target.tell() > bounds.packed_bytes:
                raise _too_large(folder, "packs to more than", bounds.packed_bytes, bounds.packed_bytes, found)
    size_bytes = target.seek(0, os.SEEK_END)
    if size_bytes > bounds.packed_bytes:
        raise _too_large(folder, "packs to", size_bytes, bounds.packed_bytes, found)
    target.seek(0)
    digest = hashlib.sha256()
    while chunk := target.read(_COPY_BYTES):
        digest.update(chunk)
    useless = tuple(written for written, pattern in zip(exclude, asked, strict=True) if pattern not in fitting)
    return Packed(digest.hexdigest(), size_bytes, len(found), useless)


def _too_large(folder: Path, what: str, size_bytes: int, limit_bytes: int, found: Sequence[_Found]) -> BundleTooLarge:
    most = _most(found, lambda each: each.size_bytes, "MB")
    return BundleTooLarge(f"{folder} {what} {_mb(size_bytes)} MB, and a bundle at most {_mb(limit_bytes)}: {most}")


def _most(found: Sequence[_Found], weight: Callable[[_Found], int], unit: str) -> str:
    """Name the entries of the folder that hold most, and what to do about them."""
    held: dict[str, int] = {}
    for each in found:
        top = each.name.partition("/")[0]
        held[top] = held.get(top, 0) + weight(each)
    largest = sorted(held.items(), key=lambda entry: (-entry[1], entry[0]))[:LARGEST_NAMED]
    weighty = [(name, size) for name, size in largest if 100 * size >= sum(held.values())]
    named = ", ".join(f"{name} {_mb(size) if unit == 'MB' else size} {unit}" for name, size in weighty or largest)
    return f"most are {named}; leave out what the job does not need ({_HOW})"


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.4g}"


def check_excludes(exclude: Sequence[str]) -> tuple[str, ...]:
    """Return patterns of what a bundle leaves out, as they are compared.

    Each is a name, which may stand anywhere below the folder, or a path from the folder on; ``*``, ``?`` and ``[...]``
    are the shell's, and ``*`` stands for ``/`` as well. A slash at the end, ``./`` and ``**/`` at the begin mean
    nothing, so that lines of ``.gitignore`` do. One that begins with a slash is a path, also without another one.

    Raises:
        InvalidArgument: one fits nothing or all, has ``..``, or brings back what others leave out (``!``); or there are
            too many.
    """
    if isinstance(exclude, str):
        raise InvalidArgument(f"bundle_exclude: {exclude!r} is one pattern, and a list of them is wanted")
    if len(exclude) > MAX_EXCLUDES:
        raise InvalidArgument(f"bundle_exclude: {len(exclude)} patterns, and at most {MAX_EXCLUDES}")
    read = []
    for pattern in exclude:
        if not isinstance(pattern, str):
            raise InvalidArgument(f"bundle_exclude: {pattern!r:.64} is not a text")
        plain = pattern.rstrip("/")
        while plain.startswith(("./", "**/")):
            plain = plain.partition("/")[2]
        if not plain.strip("/*") or plain == "." or plain.startswith("!") or ".." in plain.split("/"):
            raise InvalidArgument(f"bundle_exclude: {pattern!r} is not a pattern of what to leave out")
        read.append(plain)
    return tuple(read)


def _fits(name: str, pattern: str) -> bool:
    if pattern.startswith("/"):
        return fnmatch.fnmatchcase(name, pattern[1:])
    return fnmatch.fnmatchcase(name.rpartition("/")[2], pattern) or fnmatch.fnmatchcase(name, pattern)


def _files(folder: Path, excludes: Sequence[str]) -> tuple[list[_Found], dict[str, None]]:
    """Find all files, in the order of their names' bytes in the zip; and which patterns fit something."""
    if folder.is_symlink() or not folder.is_dir():
        raise InvalidBundleFolder(f"{folder} is not a folder")
    found: list[_Found] = []
    fitting: dict[str, None] = {}
    open_folders = [folder]
    while open_folders:
        for path in open_folders.pop().iterdir():
            name = path.relative_to(folder).as_posix()
            fits = [pattern for pattern in excludes if _fits(name, pattern)]
            fitting |= dict.fromkeys(fits)
            if fits or any(_fits(name, pattern) for pattern in DEFAULT_EXCLUDES):
                continue
            status = path.lstat()
            if stat.S_ISDIR(status.st_mode):
                if not (path / ENVIRONMENT_MARK).is_file():
                    open_folders.append(path)
            elif stat.S_ISREG(status.st_mode):
                check_name(name)
                found.append(_Found(name, path, status.st_size))
            else:
                raise InvalidBundleFolder(f"{path} is a link or a device, and a bundle holds files only: {_WAY_OUT}")
    return sorted(found, key=lambda each: each.name.encode()), fitting


def check_name(name: str) -> None:
    """Refuse the name of a file that would not be safe to unpack.

    Raises:
        InvalidBundleFolder: it is absolute, climbs, or holds what no name should.
    """
    parts = PurePosixPath(name).parts
    plain = name.isprintable() and "\\" not in name and "/".join(parts) == name
    if not plain or not parts or name.startswith("/") or {"..", "."} & set(parts) or parts[0] == ".iris":
        raise InvalidBundleFolder(f"{name!r} is not a valid name for a file in a bundle")


def _add(archive: zipfile.ZipFile, path: Path, name: str, room_bytes: int) -> int:
    """Add one file; give its length."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as source:
        status = os.fstat(descriptor)
        info = zipfile.ZipInfo(name, _EARLIEST_DATE)
        info.compress_type = zipfile.ZIP_DEFLATED
        info.create_system = 3  # Unix: the mode below is read
        info.external_attr = (stat.S_IFREG | (0o755 if status.st_mode & 0o111 else 0o644)) << 16
        info.file_size = status.st_size
        copied = 0
        with archive.open(info, "w") as sink:
            while chunk := source.read(_COPY_BYTES):
                copied += len(chunk)
                if copied > room_bytes:
                    raise BundleTooLarge("the folder has more bytes than a bundle may hold")
                sink.write(chunk)
    return copied
