"""Make a bundle: a folder as one zip whose name is its content.

A bundle's id is the SHA-256 of the zip. The zip is made so that the same files give the same bytes: names
sorted, one date, one mode for programs and one for data, one level of compression. (Another version of zlib
may compress otherwise; then the same files have two ids, which costs space and nothing else.)

Virtual environments in the folder are left out. Links are refused, not followed: what lies outside the folder is not
part of it. So are names that would not be safe where the bundle is unpacked.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import stat
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import attrs

from iriscw._errors import UsageError

DEFAULT_EXCLUDES = (".git", "__pycache__", "*.pyc", ".venv", "node_modules", ".mypy_cache", ".pytest_cache")

ENVIRONMENT_MARK = "pyvenv.cfg"
"""Is in every virtual environment, whatever the folder is called. None works on another machine: it has links and paths
of this one."""

_EARLIEST_DATE = (1980, 1, 1, 0, 0, 0)
_LEVEL = 6
_COPY_BYTES = 1 << 20


class BundleTooLarge(UsageError):
    """The folder has more files or bytes than a bundle may; exclude what the job does not need."""


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


_WAY_OUT = (
    "make a file of it, or move it out of the folder (left out of a bundle are virtual environments and "
    + ", ".join(DEFAULT_EXCLUDES)
    + ")"
)


def pack(
    folder: Path,
    target: BinaryIO,
    *,
    excludes: Sequence[str] = DEFAULT_EXCLUDES,
    limits: BundleLimits | None = None,
) -> Packed:
    """Write the files of ``folder`` to ``target``, an empty file that can seek.

    Args:
        folder: what to pack; itself no link.
        target: where the zip goes.
        excludes: patterns; a name or a path below ``folder`` that fits one is left out, with all below it. So are
            folders below it that are virtual environments.
        limits: what it may hold.

    Raises:
        BundleTooLarge: it holds more.
        InvalidBundleFolder: see there.
        OSError: a file cannot be read, or ``target`` not be written.
    """
    bounds = limits or BundleLimits()
    count = unpacked = 0
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL, strict_timestamps=True) as archive:
        for path, name in _files(folder, excludes):
            count += 1
            if count > bounds.files:
                raise BundleTooLarge(f"{folder} has more than {bounds.files} files")
            unpacked += _add(archive, path, name, bounds.unpacked_bytes - unpacked)
            if target.tell() > bounds.packed_bytes:
                raise BundleTooLarge(f"{folder} packs to more than {bounds.packed_bytes} bytes")
    size_bytes = target.seek(0, os.SEEK_END)
    if size_bytes > bounds.packed_bytes:
        raise BundleTooLarge(f"{folder} packs to more than {bounds.packed_bytes} bytes")
    target.seek(0)
    digest = hashlib.sha256()
    while chunk := target.read(_COPY_BYTES):
        digest.update(chunk)
    return Packed(digest.hexdigest(), size_bytes, count)


def _files(folder: Path, excludes: Sequence[str]) -> Iterator[tuple[Path, str]]:
    """Yield all files with their names in the zip, in the order of the names' bytes."""
    if folder.is_symlink() or not folder.is_dir():
        raise InvalidBundleFolder(f"{folder} is not a folder")
    found: list[tuple[str, Path]] = []
    open_folders = [folder]
    while open_folders:
        for path in open_folders.pop().iterdir():
            name = path.relative_to(folder).as_posix()
            if any(fnmatch.fnmatchcase(path.name, p) or fnmatch.fnmatchcase(name, p) for p in excludes):
                continue
            mode = path.lstat().st_mode
            if stat.S_ISDIR(mode):
                if not (path / ENVIRONMENT_MARK).is_file():
                    open_folders.append(path)
            elif stat.S_ISREG(mode):
                check_name(name)
                found.append((name, path))
            else:
                raise InvalidBundleFolder(f"{path} is a link or a device, and a bundle holds files only: {_WAY_OUT}")
    for name, path in sorted(found, key=lambda each: each[0].encode()):
        yield path, name


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
