"""An exported file, as a repository that has one checkpoint and takes none.

What is read is compared where it lies then, as any copy of a repository is, before anybody can see it. Memory is
bounded: a buffer, and the manifest. An import is a move from this repository: a command that is killed is undone by the
next one, without the file.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import anyio.to_thread
import attrs

from iriscw._errors import OperationError
from iriscw.checkpoint.drivers.archive_members import (
    IMAGES_FOLDER,
    MANIFEST_MEMBER,
    ArchiveRefused,
    next_member,
    write_all,
)
from iriscw.checkpoint.drivers.digests import (
    READ_BYTES,
    DigestsStopped,
    PieceDigests,
    digest_of,
    open_folder,
)
from iriscw.checkpoint.drivers.images import room_of
from iriscw.checkpoint.drivers.loading import ARCHIVE
from iriscw.checkpoint.drivers.repository.key_files import KeyFiles
from iriscw.checkpoint.drivers.tiers import ByteCount, Tiers, stoppable
from iriscw.checkpoint.manifest import MAX_MANIFEST_BYTES, named_in, open_manifest
from iriscw.checkpoint.model import (
    Collected,
    ImageFile,
    Manifest,
    NotEncrypted,
    SignatureMissing,
    StoredCheckpoint,
)
from iriscw.files import PRIVATE_FILE_MODE
from iriscw.freeze.model import ArtifactRefused, ArtifactUnknown, UnsafeRequest
from iriscw.freeze.ports import Report


class ImportUndone(OperationError):
    """An exported file was not imported, and nothing of it is left here; the text says why, and begins with a name."""


def refuse_unprotected(keys: KeyFiles) -> None:
    """Refuse to import what nobody has signed or encrypted, where only such is taken from a repository.

    Raises:
        SignatureMissing, NotEncrypted: this machine has such keys.
    """
    way_out = "--accept-unprotected takes it all the same"
    if keys.trust and not keys.unprotected_too:
        raise SignatureMissing(f"an exported file has no signature, and this machine wants one: {way_out}")
    if (keys.encrypt_with or keys.decrypt_with) and not keys.unprotected_too:
        raise NotEncrypted(f"an exported file is not encrypted, and this machine wants that: {way_out}")


async def check_new(tiers: Tiers, archive: ExportedFile) -> None:
    """Refuse a file whose checkpoint is here with other content.

    Raises:
        ArchiveRefused: it is.
    """
    for tier in await tiers.holding(archive.content.artifact):
        there = await anyio.to_thread.run_sync(tier.text, archive.content.artifact)
        if there != archive.text:
            raise ArchiveRefused(f"{tier.name} has another checkpoint {archive.content.artifact}", "taken")


@attrs.define(eq=False)
class ExportedFile:
    """An exported file, as a :class:`~iriscw.checkpoint.ports.Repository`. Made by :meth:`open`."""

    path: Path
    text: bytes
    """The manifest."""
    content: Manifest
    name: str = ARCHIVE

    @property
    def place(self) -> str:
        """See the port."""
        return str(self.path)

    @classmethod
    def open(cls, path: Path) -> ExportedFile:
        """Read the manifest of an exported file. Blocks.

        Raises:
            ArchiveRefused: it is none.
            OSError: it cannot be read.
        """
        with _named(path):
            with _opened(path) as file:
                text = _manifest_text(file)
            return cls(path.absolute(), text, open_manifest(text, named_in(text)))

    async def manifest(self, artifact: str) -> bytes:
        """See the port."""
        self._check(artifact)
        return self.text

    async def fetch(self, artifact: str, images: Path, report: Report, *, compare: bool = True) -> None:
        """See the port."""
        self._check(artifact)
        await self._read(report, images, compare=compare)

    async def verify(self, artifact: str, report: Report) -> None:
        """See the port."""
        self._check(artifact)
        await self._read(report, None, compare=True)

    async def listing(self) -> list[StoredCheckpoint]:
        """See the port."""
        size = self.content.sealed.size_bytes
        return [StoredCheckpoint(self.content.artifact, size, size, 0, self.content)]

    async def used_bytes(self) -> int:
        """See the port."""
        return (await anyio.to_thread.run_sync(self.path.stat)).st_size

    async def store(self, artifact: str, images: Path, manifest: bytes, report: Report) -> StoredCheckpoint:
        """Refuse: see :func:`export`."""
        raise UnsafeRequest(f"{self.path} is an exported file: nothing is stored there")

    async def remove(self, artifact: str) -> None:
        """Refuse: the file is its owner's."""
        raise UnsafeRequest(f"{self.path} is an exported file: remove that")

    async def collect(self, *, grace_s: float) -> Collected:
        """Refuse: there is nothing that is not referred to."""
        raise UnsafeRequest(f"{self.path} is an exported file: there is nothing to collect")

    async def aclose(self) -> None:
        """See the port."""

    def _check(self, artifact: str) -> None:
        if artifact != self.content.artifact:
            raise ArtifactUnknown(f"{self.path} has {self.content.artifact}, and no checkpoint {artifact[:80]!a}")

    async def _read(self, report: Report, images: Path | None, *, compare: bool) -> None:
        count = ByteCount("copying" if images is not None else "verifying", report)
        count.begin(self.content.sealed.size_bytes)
        reading = _Unpacking(self, count, compare=compare)
        await stoppable([reading], partial(reading.read, images))


@attrs.define(eq=False)
class _Unpacking:
    """One reading of a file, in a thread."""

    archive: ExportedFile
    count: ByteCount
    compare: bool = attrs.field(kw_only=True)
    stop: threading.Event = attrs.field(factory=threading.Event)

    def read(self, images: Path | None) -> None:
        """Read all of it; write its files into a folder, if there is one."""
        with contextlib.ExitStack() as held:
            held.enter_context(_named(self.archive.path))
            file = held.enter_context(_opened(self.archive.path))
            folder = None
            if images is not None:
                held.enter_context(room_of(images))
                folder = open_folder(images)
                held.callback(os.close, folder)
            if _manifest_text(file) != self.archive.text:
                raise ArchiveRefused("it was changed while it was read", "manifest")
            self._members(file, {each.name: each for each in self.archive.content.files}, folder)

    def _members(self, file: int, wanted: Mapping[str, ImageFile], folder: int | None) -> None:
        left = dict(wanted)
        while (member := next_member(partial(_exactly, file))) is not None:
            expected = left.pop(member.name.removeprefix(IMAGES_FOLDER), None)
            if expected is None or not member.name.startswith(IMAGES_FOLDER):
                raise ArchiveRefused(f"{member.name} is one file too many", "name")
            if member.size_bytes != expected.size_bytes:
                said = f"{member.name} has {member.size_bytes} bytes, and {expected.size_bytes} are sealed"
                raise ArchiveRefused(said, "size")
            self._member(file, expected, folder)
            if len(_exactly(file, member.padding)) < member.padding:
                raise ArchiveRefused(f"it ends after {member.name}", "short")
        if left:
            raise ArchiveRefused(f"{next(iter(left))} is missing", "missing")

    def _member(self, file: int, expected: ImageFile, folder: int | None) -> None:
        digests = PieceDigests(digest_of(self.archive.content.algorithm)) if self.compare else None
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        target = os.open(expected.name, flags, PRIVATE_FILE_MODE, dir_fd=folder) if folder is not None else None
        try:
            buffer, left = memoryview(bytearray(min(READ_BYTES, max(expected.size_bytes, 1)))), expected.size_bytes
            while left:
                if self.stop.is_set():
                    raise DigestsStopped
                count = os.readv(file, [buffer[: min(len(buffer), left)]])
                if count == 0:
                    raise ArchiveRefused(f"it ends within {expected.name}", "short")
                if digests is not None:
                    digests.add(buffer[:count])
                if target is not None:
                    write_all(target, buffer[:count])
                self.count.add(count)
                left -= count
        finally:
            if target is not None:
                os.close(target)
        if digests is not None and not digests.are(expected):
            raise ArchiveRefused(f"{expected.name} was changed: its digest is another one", "changed")


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Have each refusal name the file."""
    try:
        yield
    except ArtifactRefused as error:
        trouble = error.trouble if isinstance(error, ArchiveRefused) else "manifest"
        raise ArchiveRefused(f"{path}: {error}", trouble) from error


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Open a plain file; a pipe or a device would have a command wait, or read for ever."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise ArchiveRefused("it is not a plain file", "kind")
        yield file
    finally:
        os.close(file)


def _manifest_text(file: int) -> bytes:
    """Read the first member, which has to be the manifest."""
    member = next_member(partial(_exactly, file))
    if member is None or member.name != MANIFEST_MEMBER:
        raise ArchiveRefused(f"it does not begin with {MANIFEST_MEMBER}", "manifest")
    if member.size_bytes > MAX_MANIFEST_BYTES:
        raise ArchiveRefused(f"its manifest has {member.size_bytes} bytes: at most {MAX_MANIFEST_BYTES}", "size")
    text = _exactly(file, member.size_bytes + member.padding)
    if len(text) < member.size_bytes + member.padding:
        raise ArchiveRefused("it ends within its manifest", "short")
    return text[: member.size_bytes]


def _exactly(file: int, count: int) -> bytes:
    """Read so many bytes; fewer only where the file ends. Nobody asks for more than a manifest may have."""
    parts = []
    while count:
        data = os.read(file, min(count, READ_BYTES))
        if not data:
            break
        parts.append(data)
        count -= len(data)
    return b"".join(parts)
