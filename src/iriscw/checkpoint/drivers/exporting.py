"""A checkpoint of a tier, written into one file: :mod:`iriscw.checkpoint.drivers.archive_members` has its form.

What is written is compared with the manifest byte for byte on its way, and gets its name only when all of it is on the
disk. Memory is bounded: a buffer, and the manifest. No pin keeps the checkpoint meanwhile, since a command that is
killed would leave one: if it goes, the export ends with that error, and nothing is left of the file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import attrs

from iriscw._errors import UsageError
from iriscw.checkpoint.drivers.archive_members import (
    BLOCK,
    END,
    IMAGES_FOLDER,
    MANIFEST_MEMBER,
    Member,
    header_of,
    write_all,
)
from iriscw.checkpoint.drivers.digests import (
    READ_BYTES,
    DigestsStopped,
    PieceDigests,
    digest_of,
    open_folder,
    open_image,
)
from iriscw.checkpoint.drivers.images import room_of
from iriscw.checkpoint.drivers.tiers import ByteCount, Tiers, stoppable
from iriscw.checkpoint.manifest import open_manifest
from iriscw.checkpoint.model import ImageFile, Manifest
from iriscw.checkpoint.ports import Tier
from iriscw.files import PRIVATE_FILE_MODE, temporary_name
from iriscw.freeze.model import ArtifactRefused, ArtifactUnknown, NoRoom
from iriscw.freeze.ports import Report

RECORD_BYTES: Final = 20 * BLOCK
"""A tar file is so long, or a multiple of it."""

_NO_LINKS: Final = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class ExportExists(UsageError):
    """There is a file where a checkpoint was to be exported to. It is as it was."""


@attrs.frozen
class Exported:
    """A checkpoint that was exported."""

    checkpoint: str
    file: str
    size_bytes: int
    """Of the file."""
    tier: str
    """Where it was read."""


async def export(tiers: Tiers, artifact: str, target: Path, report: Report, *, over: bool = False) -> Exported:
    """Write a checkpoint that lies in a tier of this machine into one file.

    Args:
        tiers: where to look; the first copy that is whole is taken.
        artifact: which.
        target: the file.
        report: told how far it is.
        over: also if there is such a file.

    Raises:
        ArtifactUnknown: there is none in a tier, or it was removed meanwhile.
        ArtifactRefused: no copy is as its manifest says; nothing is left of the file.
        ExportExists: there is such a file.
        NoRoom: the file's disk is full, or has less room than the checkpoint takes.
        OSError: the file cannot be written, or a copy cannot be read.
    """
    trouble: ArtifactRefused | None = None
    for tier in await tiers.holding(artifact):
        count = ByteCount("exporting", report)
        writing = _Writing(count)
        try:
            size = await stoppable([writing], partial(writing.export, tier, artifact, target, over=over))
        except ArtifactRefused as error:
            trouble = trouble or error
        else:
            return Exported(artifact, str(target), size, tier.name)
    raise trouble or ArtifactUnknown(f"there is no checkpoint {artifact} in a tier of this machine")


@attrs.define(eq=False)
class _Writing:
    """One writing of a file, in a thread."""

    count: ByteCount
    stop: threading.Event = attrs.field(factory=threading.Event)

    def export(self, tier: Tier, artifact: str, target: Path, *, over: bool) -> int:
        """Write it, and return how long the file is."""
        text = tier.text(artifact)
        manifest = open_manifest(text, artifact)
        self.count.begin(manifest.sealed.size_bytes)
        with room_of(target.parent), _new_file(target, over=over) as (folder, file):
            room = os.fstatvfs(folder)
            needed = sum(each.size_bytes + 2 * BLOCK for each in manifest.files) + len(text)
            if needed > room.f_bavail * room.f_frsize:
                free = room.f_bavail * room.f_frsize
                raise NoRoom(f"{target.parent} has {free >> 20} MiB free, and {needed >> 20} MiB are needed")
            self._write(tier, manifest, text, file)
            return os.fstat(file).st_size

    def _write(self, tier: Tier, manifest: Manifest, text: bytes, file: int) -> None:
        member = Member(MANIFEST_MEMBER, len(text))
        write_all(file, header_of(member) + text + bytes(member.padding))
        try:
            images = open_folder(tier.images(manifest.artifact))
            try:
                for each in manifest.files:
                    self._copy(images, each, manifest, file)
            finally:
                os.close(images)
        except (ArtifactRefused, OSError) as error:
            if not tier.has(manifest.artifact):
                text_of = (
                    f"checkpoint {manifest.artifact} was removed from {tier.name}, or moved, while it was exported"
                )
                raise ArtifactUnknown(text_of) from error
            raise
        write_all(file, END)
        write_all(file, bytes(-os.fstat(file).st_size % RECORD_BYTES))

    def _copy(self, images: int, wanted: ImageFile, manifest: Manifest, file: int) -> None:
        source = open_image(images, wanted.name, wanted.size_bytes)
        try:
            member = Member(IMAGES_FOLDER + wanted.name, wanted.size_bytes)
            write_all(file, header_of(member))
            digests = PieceDigests(digest_of(manifest.algorithm))
            for data in self._pieces(partial(_some, source), wanted.name, wanted.size_bytes):
                digests.add(data)
                write_all(file, data)
            write_all(file, bytes(member.padding))
        finally:
            os.close(source)
        if not digests.are(wanted):
            raise ArtifactRefused(f"artifact {manifest.artifact}: {wanted.name} was changed: its digest is another one")

    def _pieces(self, read: Callable[[memoryview], int], name: str, size: int) -> Iterator[memoryview]:
        """Yield the bytes of a file, as they are read into one buffer."""
        buffer = memoryview(bytearray(min(READ_BYTES, max(size, 1))))
        while size:
            if self.stop.is_set():
                raise DigestsStopped
            count = read(buffer[: min(len(buffer), size)])
            if count == 0:
                raise ArtifactRefused(f"{name} became shorter while it was read")
            yield buffer[:count]
            self.count.add(count)
            size -= count


@contextlib.contextmanager
def _new_file(target: Path, *, over: bool) -> Iterator[tuple[int, int]]:
    """Open a folder, and a new file in it that gets its name when the block has ended, and all of it is on the disk.

    Raises:
        ExportExists: there is one of this name, and it is not to go.
    """
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        part = temporary_name(target.name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        file = os.open(part, flags, PRIVATE_FILE_MODE, dir_fd=folder)
        try:
            try:
                yield folder, file
                os.fsync(file)
            finally:
                os.close(file)
            _name(folder, part, target, over=over)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part, dir_fd=folder)
            raise
        os.fsync(folder)
    finally:
        os.close(folder)


def _name(folder: int, part: str, target: Path, *, over: bool) -> None:
    if over:
        os.replace(part, target.name, src_dir_fd=folder, dst_dir_fd=folder)
        return
    try:
        os.link(part, target.name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        os.unlink(part, dir_fd=folder)
    except FileExistsError as error:
        raise ExportExists(_there(target)) from error
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        refuse_existing(target)  # a file system without links: this is as near as it goes
        os.rename(part, target.name, src_dir_fd=folder, dst_dir_fd=folder)


def refuse_existing(target: Path) -> None:
    """Refuse a name that is taken: by a link, too.

    Raises:
        ExportExists: it is.
    """
    if os.path.lexists(target):
        raise ExportExists(_there(target))


def _there(target: Path) -> str:
    return f"{target} is there already: choose another name, or say --force"


def _some(file: int, into: memoryview) -> int:
    return os.readv(file, [into])
