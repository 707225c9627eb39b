"""What attempts left, in an object store: whole files of jobs, written once, verified when read, gone with their job.

Keys. ``<folder>/<job id>/<name>``. The name says what the content is, its SHA-256 among it, so an object is never
written over with something else, whoever writes it: a controller that was fenced off meanwhile writes what is there
already, or what nobody refers to. It is found again by listing: nothing of it has to outlive the controller's disk.

The folder is the journal's (:func:`folders`): two installations that share a store never see each other's files. What
the journal does not know any more may be deleted, once it is certain that nobody else had taken it over when the files
were listed (:mod:`iriscw.controller.upkeep`).
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import BinaryIO

import anyio
import anyio.to_thread
import attrs

from iriscw._errors import OperationError
from iriscw.controller.stores.stored_files import open_plain
from iriscw.files import StateUnusable, write_atomic
from iriscw.objects.ports import IfAbsent, IfMatch, ObjectExists, ObjectNotFound, ObjectStore

ARCHIVE = "attempts"
"""What the keys of all of it begin with."""

RESULTS = "results"
STATES = "states"
"""Snapshots of hosted actors."""

PIECE_BYTES = 1 << 20
"""Of a file that is read."""

DELETIONS = 8
"""Objects that are deleted at a time."""


IDENTITY = "archive.id"
"""In the folder of a controller whose journal has no second copy: what its files are known by."""


class StoredDamaged(OperationError):
    """What was stored is not there as it was: it is gone, or has another size or SHA-256 than its name says."""


@attrs.frozen
class Filed:
    """One file in the store."""

    key: str
    name: str
    """Within its job."""
    size_bytes: int


class Archive:
    """Files of one kind.

    Args:
        store: where they are.
        folders: before all keys, without a slash at their ends. New files go to the first; those in the others are
            found and deleted as well.
    """

    def __init__(self, store: ObjectStore, folders: Sequence[str]) -> None:
        self._store = store
        self._folders = tuple(dict.fromkeys(folders))

    def key(self, job_id: str, name: str) -> str:
        """Return the key of a new file."""
        return f"{self._folders[0]}/{job_id}/{name}"

    async def has(self, key: str, size_bytes: int) -> bool:
        """Say whether a file is there, of this size.

        Raises:
            StoreAccessDenied, StoreUnreachable: it cannot be told.
        """
        try:
            return (await self._store.stat(key)).size_bytes == size_bytes
        except ObjectNotFound:
            return False

    async def put(self, key: str, path: Path, size_bytes: int, sha256: str) -> None:
        """Copy a file there, durable when this returns; it is fine if it is there already.

        What is there under its name and has another size is a damaged copy, and replaced.

        Raises:
            StoredDamaged: the file itself is not what was said; nothing was written.
            StoreAccessDenied, StoreUnreachable, StoreFull: see ``ObjectStore.put``.
            ObjectChanged, ObjectNotFound: somebody else wrote or deleted it at the same time; it may be tried again.
            OSError: the file cannot be read.
        """
        try:
            await self._put(key, path, size_bytes, sha256, IfAbsent())
        except ObjectExists:
            found = await self._store.stat(key)
            if found.size_bytes != size_bytes:
                await self._put(key, path, size_bytes, sha256, IfMatch(found.etag))

    async def _put(self, key: str, path: Path, size_bytes: int, sha256: str, condition: IfAbsent | IfMatch) -> None:
        with await anyio.to_thread.run_sync(open_plain, path) as file:
            async with aclosing(verified(pieces(file), size_bytes, sha256, str(path))) as data:
                await self._store.put(key, data, condition=condition)

    async def read(self, key: str, size_bytes: int, sha256: str) -> AsyncGenerator[bytes, None]:
        """Yield a file's bytes, as :func:`verified` does.

        Raises:
            StoredDamaged: see there; or it is gone.
            StoreAccessDenied, StoreUnreachable: see ``ObjectStore.get``.
        """
        try:
            async with self._store.get(key) as reading:
                if reading.info.size_bytes != size_bytes:
                    raise StoredDamaged(f"{key} has {reading.info.size_bytes} bytes, not {size_bytes}")
                async with aclosing(verified(reading, size_bytes, sha256, key)) as data:
                    async for piece in data:
                        yield piece
        except ObjectNotFound:
            raise StoredDamaged(f"{key} is gone from the object store") from None

    async def of_job(self, job_id: str) -> list[Filed]:
        """List the files of a job.

        Raises:
            StoreAccessDenied, StoreUnreachable: see ``ObjectStore.list``.
        """
        found: list[Filed] = []
        for folder in self._folders:
            prefix, after = f"{folder}/{job_id}/", ""
            while True:
                page = await self._store.list(prefix, after=after)
                found += [Filed(each.key, each.key.removeprefix(prefix), each.size_bytes) for each in page.objects]
                if page.next_after is None:
                    break
                after = page.next_after
        return found

    async def drop_before(self, job_id: str, name: str) -> None:
        """Delete the files of a job whose names come before this one's.

        Raises:
            StoreAccessDenied, StoreUnreachable: some of them may be left.
        """
        await self._delete_all([each.key for each in await self.of_job(job_id) if each.name < name])

    async def jobs(self) -> list[str]:
        """List the jobs that have files: one request for each thousand files or each job, whichever are fewer.

        Raises:
            StoreAccessDenied, StoreUnreachable: see ``ObjectStore.list``.
        """
        found: dict[str, None] = {}
        for folder in self._folders:
            prefix, after = f"{folder}/", ""
            while True:
                page = await self._store.list(prefix, after=after)
                found.update(dict.fromkeys(each.key.removeprefix(prefix).partition("/")[0] for each in page.objects))
                if page.next_after is None:
                    break
                # The rest of the last job's files is known by now: go on behind them all ("0" follows "/").
                after = f"{prefix}{page.next_after.removeprefix(prefix).partition('/')[0]}0"
        return list(found)

    async def forget(self, job_id: str) -> None:
        """Delete all files of a job.

        Raises:
            StoreAccessDenied, StoreUnreachable: some of them may be left.
        """
        await self._delete_all([each.key for each in await self.of_job(job_id)])

    async def _delete_all(self, keys: Sequence[str]) -> None:
        for begin in range(0, len(keys), DELETIONS):
            for error in await self._delete(keys[begin : begin + DELETIONS]):
                raise error

    async def _delete(self, keys: Sequence[str]) -> list[OperationError]:
        failed: list[OperationError] = []

        async def delete(key: str) -> None:
            try:
                await self._store.delete(key)
            except OperationError as error:
                failed.append(error)

        async with anyio.create_task_group() as tasks:
            for key in keys:
                tasks.start_soon(delete, key)
        return failed


def folders(state: Path, kind: str, journal: str) -> list[str]:
    """Return the folders of files of one kind, for an :class:`Archive`. Blocks on the disk.

    Args:
        state: the controller's folder. Who has only that is known by a name of its own, which is written down there.
        kind: such as :data:`RESULTS`.
        journal: which journal it is; empty if it has no second copy. It is what outlives the disk.

    Raises:
        StateUnusable: the name cannot be read or written down.
    """
    path = state / IDENTITY
    try:
        own = path.read_text(encoding="ascii").strip() if path.exists() else ""
        if not own and not journal:
            own = uuid.uuid4().hex
            write_atomic(path, f"{own}\n".encode())
    except (OSError, ValueError) as error:
        raise StateUnusable(f"{path}: {error}") from error
    return [f"{ARCHIVE}/{each}/{kind}" for each in (journal, own) if each]


async def pieces(file: BinaryIO) -> AsyncGenerator[bytes, None]:
    """Yield the rest of a file in pieces. Its name may be removed meanwhile.

    Raises:
        OSError: it cannot be read.
    """
    while piece := await anyio.to_thread.run_sync(file.read, PIECE_BYTES):
        yield piece


async def verified(data: AsyncIterable[bytes], size_bytes: int, sha256: str, what: str) -> AsyncGenerator[bytes, None]:
    """Yield the same bytes, the last piece only if all of them are what they should be; one empty piece for none.

    So whoever has got as many bytes as were announced has the right ones.

    Raises:
        StoredDamaged: they have another size or SHA-256.
    """
    digest, received, held = hashlib.sha256(), 0, b""
    async for piece in data:
        if held:
            yield held
        digest.update(piece)
        received += len(piece)
        if received > size_bytes:
            break
        held = bytes(piece)
    if received != size_bytes or digest.hexdigest() != sha256:
        raise StoredDamaged(f"{what} is not what was stored: its size or SHA-256 is another one")
    yield held
