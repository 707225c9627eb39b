"""Unpack a bundle without trusting it.

Its hash says that it is the bundle that was meant, not that it is harmless: whoever made it may have meant
harm. So the names are checked as they were when it was packed (no climbing, no links, no ``.iris``), bytes
are counted as they come out rather than believed from the header, and nothing is written outside the target
folder.
"""

from __future__ import annotations

import hashlib
import os
import stat
import zipfile
import zlib
from pathlib import Path

from iriscw._errors import OperationError
from iriscw.bundles.pack import BundleLimits, InvalidBundleFolder, check_name

_COPY_BYTES = 1 << 20


class BundleCorrupt(OperationError):
    """The bundle does not have the hash that is its name, or is not a zip."""


class BundleHarmful(OperationError):
    """The bundle holds what no bundle of ours holds: links, climbing names, names twice, or a bomb."""


def verify(path: Path, bundle_id: str) -> None:
    """Check that the file is the bundle.

    Raises:
        BundleCorrupt: it is not.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != bundle_id:
        raise BundleCorrupt(f"the bundle {bundle_id} has the hash {found}")


def unpack(path: Path, target: Path, limits: BundleLimits | None = None) -> None:
    """Unpack a verified bundle into the new folder ``target``.

    Raises:
        BundleCorrupt: it is not a zip, or damaged.
        BundleHarmful: see there; part of it may have been written below ``target``.
        OSError: as the file system says it.
    """
    bounds = limits or BundleLimits()
    target.mkdir(mode=0o700)
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            _check(entries, bounds)
            room_bytes = bounds.unpacked_bytes
            for entry in entries:
                room_bytes -= _extract(archive, entry, target, room_bytes)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise BundleCorrupt(f"the bundle cannot be unpacked: {error}") from error


def _check(entries: list[zipfile.ZipInfo], bounds: BundleLimits) -> None:
    if len(entries) > bounds.files:
        raise BundleHarmful(f"it has {len(entries)} files, more than {bounds.files}")
    names = {entry.filename for entry in entries}
    if len(names) != len(entries):
        raise BundleHarmful("two of its files have the same name")
    if sum(entry.file_size for entry in entries) > bounds.unpacked_bytes:
        raise BundleHarmful(f"it unpacks to more than {bounds.unpacked_bytes} bytes")
    for entry in entries:
        try:
            check_name(entry.filename)
        except InvalidBundleFolder as error:
            raise BundleHarmful(str(error)) from error
        if stat.S_IFMT(entry.external_attr >> 16) not in {0, stat.S_IFREG}:
            raise BundleHarmful(f"{entry.filename!r} is not a plain file")


def _extract(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, target: Path, room_bytes: int) -> int:
    """Write one file; give its length as it really was."""
    path = target / entry.filename
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = 0o700 if (entry.external_attr >> 16) & 0o111 else 0o600
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    except (FileExistsError, NotADirectoryError) as error:
        raise BundleHarmful(f"{entry.filename!r} is a file and a folder at once") from error
    written = 0
    with os.fdopen(descriptor, "wb") as sink, archive.open(entry) as source:
        while chunk := source.read(_COPY_BYTES):
            written += len(chunk)
            if written > room_bytes:
                raise BundleHarmful("it unpacks to more bytes than its header says")
            sink.write(chunk)
    return written
