"""The files of an artifact: whether there is room for them, and whether they are those that they should be."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from iriscw.checkpoint.drivers.digests import listed, open_image
from iriscw.checkpoint.manifest import FILE_NAME, MAX_FILES
from iriscw.checkpoint.model import ImageFile, Manifest
from iriscw.checkpoint.ports import ImageReader
from iriscw.freeze.model import ArtifactRefused, NoRoom

NEEDED = ("inventory.img", "pstree.img")
"""What CRIU always writes: without them there is nothing to restore."""

_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextlib.contextmanager
def room_of(root: Path) -> Iterator[None]:
    """Turn a full disk into its name."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise NoRoom(f"the file system of {root} is full") from error
        raise


def check_images(operation: str, found: list[tuple[str, int]]) -> None:
    """Check that CRIU left what it always leaves.

    Raises:
        ArtifactRefused: it did not.
    """
    sizes = dict(found)
    missing = [name for name in NEEDED if not sizes.get(name)]
    if missing:
        raise ArtifactRefused(f"CRIU left no {missing[0]} for {operation}")
    if len(found) > MAX_FILES:
        raise ArtifactRefused(f"CRIU left {len(found)} files for {operation}")
    odd = [name for name in sizes if not FILE_NAME.fullmatch(name)]
    if odd:
        raise ArtifactRefused(f"CRIU left a file {odd[0][:80]!r} for {operation}")


def make_durable(folder: int, name: str) -> None:
    """Put a file of an open folder on the disk, and let nobody else read it."""
    descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=folder)
    try:
        os.fchmod(descriptor, 0o600)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def compare(
    manifest: Manifest, folder: int, reader: Callable[[str, int], ImageReader], later: tuple[ImageFile, ...] = ()
) -> None:
    """Compare the files of an open folder with their manifest; of those that come ``later`` only the sizes.

    Raises:
        ArtifactRefused: one differs, is missing, or is one too many.
    """
    wanted = {file.name: file for file in manifest.files}
    sizes = sorted((file.name, file.size_bytes) for file in manifest.files)
    trouble = _difference(sizes, listed(folder))
    if trouble:
        raise ArtifactRefused(f"artifact {manifest.artifact}: {trouble}")
    for file in later:
        os.close(open_image(folder, file.name, file.size_bytes))
    total = manifest.sealed.size_bytes - sum(file.size_bytes for file in later)
    now = [(name, size) for name, size in sizes if wanted[name] not in later]
    for file in reader(manifest.algorithm, total).digests(folder, now):
        if file != wanted[file.name]:
            raise ArtifactRefused(f"artifact {manifest.artifact}: {file.name} was changed: its digest is another one")


def _difference(wanted: list[tuple[str, int]], found: list[tuple[str, int]]) -> str:
    """Say how a folder differs from what it should hold; empty if it does not."""
    want, have = dict(wanted), dict(found)
    for name, size in want.items():
        if name not in have:
            return f"{name} is missing"
        if have[name] != size:
            return f"{name} has {have[name]} bytes, and {size} are sealed"
    extra = [name for name in have if name not in want]
    return f"{extra[0][:80]!r} is not a file of it" if extra else ""
