"""Brings the files of a checkpoint out of a repository: parts of packs at the same time, each byte verified."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import attrs

from iriscw.checkpoint.drivers.digests import open_folder
from iriscw.checkpoint.drivers.repository.encoding import Piece, decoded
from iriscw.checkpoint.drivers.repository.groups import unwrapped
from iriscw.checkpoint.drivers.repository.objects import RepositoryObjects
from iriscw.checkpoint.model import ChunkDamaged
from iriscw.checkpoint.repository.contents import SOURCE_MANIFEST
from iriscw.checkpoint.repository.keys import pack_key
from iriscw.checkpoint.repository.model import Contents, StoredFile
from iriscw.checkpoint.repository.reads import PackRead, Target, planned_reads
from iriscw.freeze.model import NoRoom, Progress
from iriscw.freeze.ports import Report
from iriscw.objects.ports import InvalidRange, ObjectNotFound, ObjectReading

DOWNLOADS: Final = 8
"""Parts of packs that are read at the same time: with their length, what is in memory."""

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)

Write = Callable[[Piece, Sequence[Target]], None]
"""Puts the bytes of a chunk where they belong; called in a thread."""


async def fetch_files(
    objects: RepositoryObjects,
    contents: Contents,
    files: Sequence[StoredFile],
    images: Path,
    report: Report,
    *,
    compare: bool = True,
) -> None:
    """Write files into a folder. One that is there is written over: what a fetch left that was cut off is no use.

    Without ``compare`` whoever called compares the files before anything reads them.

    Raises:
        ArtifactRefused: a chunk is damaged or missing.
        NoRoom: the file system is full.
        OSError: a file cannot be written.
    """
    folder = await anyio.to_thread.run_sync(open_folder, images)
    descriptors: dict[str, int] = {}
    try:
        for file in files:
            descriptors[file.name] = await anyio.to_thread.run_sync(_made, folder, file)
        total = sum(file.size_bytes for file in files)
        put = partial(_put, descriptors)
        await _Reading(objects, contents, report, "fetching", total, put, compare=compare).run(files)
    except OSError as error:
        if error.errno in _FULL:
            raise NoRoom(f"the file system of {images} is full") from error
        raise
    finally:
        for descriptor in (*descriptors.values(), folder):
            os.close(descriptor)


async def verify_files(objects: RepositoryObjects, contents: Contents, report: Report) -> None:
    """Read every chunk of a checkpoint and compare.

    Raises:
        ArtifactRefused: one is damaged or missing.
    """
    total = sum(file.size_bytes for file in contents.files)
    reading = _Reading(objects, contents, report, "verifying", total, lambda raw, at: None)
    await reading.run(contents.files)


async def source_manifest(objects: RepositoryObjects, contents: Contents) -> bytes:
    """Return the manifest of the tier that a checkpoint came from.

    Raises:
        ArtifactRefused: a chunk of it is damaged or missing.
    """
    files = [file for file in contents.files if file.name == SOURCE_MANIFEST]
    data = bytearray(files[0].size_bytes)

    def put(raw: Piece, targets: Sequence[Target]) -> None:
        for target in targets:
            data[target.offset : target.offset + len(raw)] = raw

    await _Reading(objects, contents, _unreported, "", 0, put).run(files)
    return bytes(data)


@attrs.define(eq=False)
class _Reading:
    """One reading of many chunks."""

    objects: RepositoryObjects
    contents: Contents
    report: Report
    phase: str
    total: int
    write: Write
    compare: bool = attrs.field(default=True, kw_only=True)
    done: int = attrs.field(default=0, init=False)

    async def run(self, files: Sequence[StoredFile]) -> None:
        reads = await anyio.to_thread.run_sync(planned_reads, files)
        longest = max((read.end - read.start for read in reads), default=0)
        waiting = iter(reads)

        async def work_off() -> None:
            # One buffer for all that this task reads: memory that is new to the process costs as much as hashing it.
            buffer = await anyio.to_thread.run_sync(bytearray, longest)
            for read in waiting:
                data = await self._part(read, buffer)
                await anyio.to_thread.run_sync(self._take, read, data)
                self.done += sum(chunk.size_bytes * len(targets) for chunk, targets in read.chunks)
                self.report(Progress(self.phase, self.done, self.total))

        try:
            async with unwrapped(), anyio.create_task_group() as tasks:
                for _ in range(min(DOWNLOADS, len(reads))):
                    tasks.start_soon(work_off)
        except ChunkDamaged as error:
            await self.objects.note_damage(error.pack)
            raise

    async def _part(self, read: PackRead, buffer: bytearray) -> memoryview:
        """Read a part of a pack into a buffer that has room for it."""
        where = f"checkpoint {self.contents.checkpoint} in the repository: pack {read.pack}"
        try:
            async with self.objects.store.get(pack_key(read.pack), start=read.start, end=read.end) as reading:
                count = await _filled(memoryview(buffer)[: read.end - read.start], reading)
        except ObjectNotFound as error:
            raise ChunkDamaged(f"{where} is missing", read.pack) from error
        except InvalidRange as error:
            raise ChunkDamaged(f"{where} is cut off", read.pack) from error
        if count != read.end - read.start:
            raise ChunkDamaged(f"{where} is cut off", read.pack)
        return memoryview(buffer)[:count].toreadonly()

    def _take(self, read: PackRead, data: memoryview) -> None:
        for chunk, targets in read.chunks:
            first = chunk.place.offset - read.start
            hidden = data[first : first + chunk.place.stored_bytes]
            stored = self.objects.protection.shown(self.contents.key, chunk, hidden)
            self.write(decoded(chunk, stored, compare=self.compare), targets)


async def _filled(view: memoryview, reading: ObjectReading) -> int:
    """Read into a view, and return how many bytes came: fewer or more than it has if the pack is another one."""
    count = 0
    async for piece in reading:
        if count + len(piece) <= len(view):
            view[count : count + len(piece)] = piece
        count += len(piece)
    return count


def _made(folder: int, file: StoredFile) -> int:
    """Make a file of zeros, for its owner alone; a link that has its name is not followed."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(file.name, flags, 0o600, dir_fd=folder)
    try:
        os.ftruncate(descriptor, file.size_bytes)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _put(descriptors: Mapping[str, int], raw: Piece, targets: Sequence[Target]) -> None:
    for target in targets:
        view, at = memoryview(raw), target.offset
        while view:
            count = os.pwrite(descriptors[target.file], view, at)
            view, at = view[count:], at + count


def _unreported(progress: Progress) -> None:
    """Take progress of what takes no time."""
