"""The result store: what callables returned, whole and verified or not there at all.

Layout. ``<root>/<job id>/<index>-<number>-<uid>.part`` grows with the worker's chunks. When the worker has said what
the whole is (size and SHA-256) and the part fits, it is flushed and renamed to
``<index>-<number>-<uid>.<python>.<sha256>.result``: the name is the reference, so a reader never sees a result that
was not verified, at any crash point, and a restarted controller finds its place by listing folders.

With an :class:`~iriscw.controller.stores.archive.Archive` results of a certain size and more belong into an object
store: one of these counts as kept when it is there, and *waits* until then, here. Afterwards the file is a
cache, and goes when room is needed. What an earlier controller has archived is found there when a job's results are
read, whatever became of its disk.

A result that can never be kept (too big, or not what its worker says it is, however often it is sent) is *refused*,
once and for ever: what comes of it is thrown away, and whoever settles it learns why. Nothing waits for it.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import logging
import os
import re
import shutil
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, aclosing
from pathlib import Path
from typing import BinaryIO

import anyio
import anyio.to_thread
import attrs

from iriscw.controller.stores.archive import Archive, StoredDamaged, pieces, verified
from iriscw.controller.stores.result_model import (
    AttemptResult,
    Reference,
    ResultCorrupt,
    ResultLimits,
    ResultMissing,
    ResultRefused,
    ResultStatistics,
    ResultStoreBroken,
    ResultStoreFull,
    ResultTooBig,
    ResultVerdict,
)
from iriscw.controller.stores.stored_files import naming, open_plain, write_all
from iriscw.controller.stores.uploads import Uploads
from iriscw.files import PRIVATE_FILE_MODE, make_private_folder, sync_folder
from iriscw.rpc.limits import MAX_RESULT_BYTES

log = logging.getLogger(__name__)

MAX_MISMATCHES = 3
"""How often a result is wanted again that did not arrive as its worker says it is. TCP's checksum misses one damaged
packet in 65,536; the second time it is the worker."""

LARGE_BYTES = 1 << 20
"""From this size on a result belongs into an object store, where there is one."""

_NAME = re.compile(r"(\d{1,6})-(\d{1,6})-([0-9a-f]{16})(?:\.part|\.(\d{1,2}\.\d{1,2})\.([0-9a-f]{64})\.result)")
_JOB = re.compile(r"job-[a-z2-7]{12}")
_PYTHON = re.compile(r"\d{1,2}\.\d{1,2}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class ResultStore:
    """The store below one folder. All methods are called from one event loop. Make it with :meth:`open`.

    Args:
        root: the folder.
        archive: the object store; without one everything stays in the folder.
        archive_from_bytes: results of this size and more belong into the object store; 0: all.
        limits: how much may wait for it, and is cached.
    """

    def __init__(
        self,
        root: Path,
        archive: Archive | None = None,
        *,
        archive_from_bytes: int = LARGE_BYTES,
        limits: ResultLimits | None = None,
    ) -> None:
        self._root = root
        self._archive = archive
        self._archive_from_bytes = archive_from_bytes
        self._limits = limits or ResultLimits()
        self._results: dict[str, AttemptResult] = {}
        self._jobs: dict[str, dict[str, AttemptResult]] = {}
        self._waiting = self._waiting_bytes = self._cached_bytes = 0
        self._cached: collections.OrderedDict[str, AttemptResult] = collections.OrderedDict()
        self._looked: dict[str, None] = {}
        """Jobs whose results in the object store are known."""
        self._listed = archive is None
        """Whether it is known which jobs have any."""
        self._looking = anyio.Lock()
        self._earlier: dict[str, None] = {}
        """Results that may be in the object store already: an earlier controller left them here."""
        self._uploads = Uploads(self._upload, "results")
        self.settled: Callable[[str], None] = lambda _uid: None
        """Called with the attempt whose result waits no longer. Must not raise."""

    @classmethod
    async def open(
        cls,
        root: Path,
        archive: Archive | None = None,
        *,
        archive_from_bytes: int = LARGE_BYTES,
        limits: ResultLimits | None = None,
    ) -> ResultStore:
        """Open the store in ``root`` with what an earlier controller left there. For the rest see the class.

        Raises:
            ResultStoreBroken: the folder cannot be made or read.
        """
        store = cls(root, archive, archive_from_bytes=archive_from_bytes, limits=limits)
        with _named(root):
            await anyio.to_thread.run_sync(store._load)
        return store

    def _load(self) -> None:
        make_private_folder(self._root)
        for folder in self._root.iterdir():
            if not _JOB.fullmatch(folder.name):
                continue
            for path in folder.iterdir():
                match = _NAME.fullmatch(path.name)
                if match is None:
                    continue
                result = self.begin(folder.name, int(match[1]), int(match[2]), match[3])
                if result.reference is None:
                    result.size_bytes = path.stat().st_size
                    if match[5]:
                        result.reference = Reference(result.size_bytes, match[5], match[4])
                        if self._waits(result):
                            self._earlier[result.uid] = None
                            self._uploads.add(result.uid)
                    self._count(result)

    async def run(self) -> None:
        """Put into the object store what belongs there, until cancelled."""
        await self._uploads.run()

    def begin(self, job_id: str, index: int, number: int, uid: str) -> AttemptResult:
        """Take a result of this attempt from now on. Repeating it is fine."""
        result = self._results.get(uid)
        if result is None:
            result = self._results[uid] = AttemptResult(job_id, index, number, uid)
            self._jobs.setdefault(job_id, {})[uid] = result
        return result

    async def append(self, uid: str, offset: int, data: bytes) -> int | None:
        """Store a chunk; give the offset from which the worker goes on, None for an unknown attempt.

        Idempotent, as :meth:`LogStore.append` is. Of a refused result nothing is stored, but all is taken.

        Raises:
            ResultStoreBroken: nothing was written.
            ResultStoreFull: nor was it: too many others wait for the object store.
        """
        result = self._results.get(uid)
        if result is None:
            return None
        async with result.lock:
            if result.refused is None:
                if result.reference is not None or offset > result.size_bytes:
                    return result.size_bytes
                fresh = data[result.size_bytes - offset :]
                if result.size_bytes + len(fresh) <= MAX_RESULT_BYTES:
                    if fresh:
                        if not result.size_bytes:  # one that has begun is taken to its end: parts free no room
                            self._check_room(result, len(fresh))
                        with _named(self._root):
                            await anyio.to_thread.run_sync(self._write, result, fresh)
                        result.size_bytes += len(fresh)
                        self._count(result)
                    return result.size_bytes
                result.refused = _too_big(uid)
            await self._discard(result)
        return offset + len(data)

    def _write(self, result: AttemptResult, data: bytes) -> None:
        folder = self._root / result.job_id
        make_private_folder(folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(folder / result.name, flags, PRIVATE_FILE_MODE)
        try:
            os.ftruncate(descriptor, result.size_bytes)  # what an interrupted write left behind the end
            os.lseek(descriptor, 0, os.SEEK_END)
            write_all(descriptor, data)
        finally:
            os.close(descriptor)

    async def settle(self, uid: str, reference: Reference) -> ResultVerdict:
        """Verify a result that is all there, and keep it.

        Raises:
            ResultStoreBroken: it cannot be read or kept.
        """
        result = self._results.get(uid)
        if result is None:
            return ResultVerdict.WANTED
        async with result.lock:
            if result.reference is not None:
                return self._verdict(result)
            result.refused = result.refused or _unfit(uid, reference)
            if result.refused is None:
                if result.size_bytes < reference.size_bytes:
                    return ResultVerdict.WANTED
                with _named(self._root):
                    kept = await anyio.to_thread.run_sync(self._keep, result, reference)
                if kept:
                    result.reference = reference
                    self._count(result)
                    return self._verdict(result)
                if not self._mismatched(result):
                    return ResultVerdict.WANTED
            await self._discard(result)
        return ResultVerdict.REFUSED

    def _verdict(self, result: AttemptResult) -> ResultVerdict:
        """Say how a result stands that is here; one that waits is put into the object store."""
        if not self._waits(result):
            return ResultVerdict.KEPT
        self._uploads.add(result.uid)
        return ResultVerdict.WAITS

    def _mismatched(self, result: AttemptResult) -> bool:
        """Want all of it again; refuse it if that was tried. Gives which."""
        log.warning("the result of attempt %s is not what its worker said it is", result.uid)
        result.size_bytes = 0
        self._count(result)
        result.mismatches += 1
        if result.mismatches >= MAX_MISMATCHES:
            text = f"the result of attempt {result.uid} came {result.mismatches} times with another size or SHA-256"
            result.refused = ResultCorrupt(f"{text} than its worker named")
        return result.refused is not None

    async def give_up(self, uid: str) -> None:
        """Wait no longer for a result that does not come: refuse it.

        Raises:
            ResultStoreBroken: what there is of it cannot be removed.
        """
        result = self._results.get(uid)
        if result is None or result.reference is not None:
            return
        async with result.lock:
            text = f"the worker of attempt {uid} announced its result and did not send it"
            result.refused = result.refused or ResultMissing(f"{text}: {result.size_bytes} bytes came")
            await self._discard(result)

    async def _discard(self, result: AttemptResult) -> None:
        """Remove what there is of a refused result."""
        if result.size_bytes:
            path = self._root / result.job_id / result.name
            with _named(path):
                await anyio.to_thread.run_sync(path.unlink, True)
            result.size_bytes = 0
            self._count(result)

    def refusal(self, uid: str) -> ResultRefused | None:
        """Say why an attempt's result will never be kept; None while it may be."""
        result = self._results.get(uid)
        return None if result is None else result.refused

    def _keep(self, result: AttemptResult, reference: Reference) -> bool:
        folder = self._root / result.job_id
        part = folder / result.name
        if not part.exists():  # an empty result came in no chunk
            self._write(result, b"")
        with part.open("rb") as file:
            fits = hashlib.file_digest(file, "sha256").hexdigest() == reference.sha256
            if not fits or part.stat().st_size != reference.size_bytes:
                part.unlink()
                return False
            os.fsync(file.fileno())
        part.rename(folder / attrs.evolve(result, reference=reference).name)
        sync_folder(folder)
        return True

    # What belongs into the object store

    def _waits(self, result: AttemptResult) -> bool:
        """Whether a verified result has to be put into the object store."""
        return self._archive is not None and not result.archived and result.size_bytes >= self._archive_from_bytes

    def _check_room(self, result: AttemptResult, more_bytes: int) -> None:
        if self._archive is None:
            return
        limits = self._limits
        more = int(result.counted_bytes is None)
        if self._waiting + more > limits.waiting_results or self._waiting_bytes + more_bytes > limits.waiting_bytes:
            trouble = f" ({self._uploads.trouble})" if self._uploads.trouble else ""
            raise ResultStoreFull(
                f"{self._waiting} results with {self._waiting_bytes} bytes wait for the object store{trouble}: at most"
                f" {limits.waiting_results} with {limits.waiting_bytes} bytes may"
            )

    def _count(self, result: AttemptResult) -> None:
        """Bring the figures up to date after a change: a part counts as waiting, as nobody knows what it will be."""
        waits = result.size_bytes > 0 if result.reference is None else self._waits(result)
        before, now = result.counted_bytes, result.size_bytes if waits else None
        self._waiting += (now is not None) - (before is not None)
        self._waiting_bytes += (now or 0) - (before or 0)
        result.counted_bytes = now

    async def _upload(self, uid: str) -> None:
        """Put one result into the object store.

        Raises:
            OperationError: it is to be tried again.
        """
        result = self._results.get(uid)
        if result is None or result.reference is None or not self._waits(result):
            return
        assert self._archive is not None
        known, path = result.reference, self._root / result.job_id / result.name
        key = self._archive.key(result.job_id, result.name)
        try:
            if uid not in self._earlier or not await self._archive.has(key, known.size_bytes):
                with _named(path):
                    await self._archive.put(key, path, known.size_bytes, known.sha256)
        except StoredDamaged as error:
            log.warning("the disk has spoilt a result: %s", error)
            await self._want_again(result)
            return
        except ResultStoreBroken:
            if self._results.get(uid) is not result:
                return  # its job was forgotten, and its files removed
            raise
        if self._results.get(uid) is not result:
            self._jobs.setdefault(result.job_id, {})  # forgotten meanwhile: what came there is to be forgotten, too
            return
        self._earlier.pop(uid, None)
        result.archived = key
        self._count(result)
        self._cached[uid] = result
        self._cached_bytes += result.size_bytes
        self.settled(uid)
        await self._make_room()

    async def _want_again(self, result: AttemptResult) -> None:
        """Throw a file away that the disk has spoilt. Whoever still has the result is asked for it.

        Raises:
            ResultStoreBroken: it cannot be removed.
        """
        async with result.lock:
            path = self._root / result.job_id / result.name
            with _named(path):
                await anyio.to_thread.run_sync(path.unlink, True)
            result.reference = None
            self._mismatched(result)
        self.settled(result.uid)

    async def _make_room(self) -> None:
        """Remove files that are in the object store, the oldest first.

        Raises:
            ResultStoreBroken: a file cannot be removed.
        """
        while self._cached_bytes > self._limits.cached_bytes and self._cached:
            await self._remove_cached(next(iter(self._cached.values())))

    async def _remove_cached(self, result: AttemptResult) -> None:
        self._uncache(result.uid)
        path = self._root / result.job_id / result.name
        with _named(path):
            await anyio.to_thread.run_sync(path.unlink, True)

    def _uncache(self, uid: str) -> None:
        result = self._cached.pop(uid, None)
        if result is not None:
            result.stored_here = False
            self._cached_bytes -= result.size_bytes

    async def _look(self, job_id: str) -> None:
        """Take note of what earlier controllers have archived of a job, once."""
        if self._archive is None or job_id in self._looked:
            return
        async with self._looking:
            if job_id in self._looked:
                return
            for filed in await self._archive.of_job(job_id):
                match = _NAME.fullmatch(filed.name)
                if match is None or not match[5]:
                    continue
                result = self.begin(job_id, int(match[1]), int(match[2]), match[3])
                async with result.lock:
                    if result.reference is None:
                        await self._discard(result)
                        result.size_bytes = filed.size_bytes
                        result.reference = Reference(filed.size_bytes, match[5], match[4])
                        result.archived, result.stored_here = filed.key, False
            self._jobs.setdefault(job_id, {})
            self._looked[job_id] = None

    # Reading

    async def find(self, job_id: str, uid: str) -> AttemptResult | None:
        """Return the verified result of an attempt; None if it certainly has none.

        Raises:
            StoreAccessDenied, StoreUnreachable: that cannot be told.
        """
        if self.result(uid) is None:
            await self._look(job_id)
        return self.result(uid)

    def result(self, uid: str) -> AttemptResult | None:
        """Return the verified result of an attempt; None if this controller knows of none."""
        result = self._results.get(uid)
        return result if result is not None and result.reference is not None else None

    def stored(self, uid: str) -> int:
        """Return the offset up to which an attempt's result is stored."""
        result = self._results.get(uid)
        return 0 if result is None else result.size_bytes

    async def read(self, result: AttemptResult) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a verified result, the last of them only if they are what was stored.

        Raises:
            ResultStoreBroken: the file cannot be read.
            StoredDamaged: see :func:`iriscw.controller.stores.archive.verified`.
            StoreAccessDenied, StoreUnreachable: the object store does not give it.
        """
        known = result.reference
        assert known is not None
        file = await self._opened(result)
        if file is not None:
            try:
                with file, _named(self._root):
                    async with aclosing(verified(pieces(file), known.size_bytes, known.sha256, result.name)) as data:
                        async for piece in data:
                            yield piece
            except StoredDamaged:
                if result.archived:  # whoever asks again gets it from there
                    await self._remove_cached(result)
                raise
        else:
            assert self._archive is not None
            async with aclosing(self._archive.read(result.archived, known.size_bytes, known.sha256)) as data:
                async for piece in data:
                    yield piece

    async def _opened(self, result: AttemptResult) -> BinaryIO | None:
        """Open the file of a result; None if it is in the object store and no more here."""
        path = self._root / result.job_id / result.name
        with _named(path):
            try:
                return await anyio.to_thread.run_sync(open_plain, path) if result.stored_here else None
            except FileNotFoundError:
                if result.archived:
                    return None
                raise

    # What goes

    async def jobs(self) -> list[str]:
        """Return the jobs that have results, here or in the object store.

        Raises:
            StoreAccessDenied, StoreUnreachable: the object store cannot say it.
        """
        if not self._listed and self._archive is not None:
            for job_id in await self._archive.jobs():
                self._jobs.setdefault(job_id, {})
            self._listed = True
        return list(self._jobs)

    async def forget(self, job_id: str) -> None:
        """Remove all results of a job.

        Raises:
            ResultStoreBroken: files cannot be removed.
            StoreAccessDenied, StoreUnreachable: objects cannot be removed.
        """
        for uid, result in self._jobs.get(job_id, {}).items():
            del self._results[uid]
            self._uploads.drop(uid)
            self._earlier.pop(uid, None)
            self._uncache(uid)
            waited = result.counted_bytes is not None
            result.size_bytes, result.reference = 0, None
            self._count(result)
            if waited:
                self.settled(uid)
        self._jobs[job_id] = {}  # until all of it is gone, it is to be forgotten
        self._looked.pop(job_id, None)
        with _named(self._root), contextlib.suppress(FileNotFoundError):
            await anyio.to_thread.run_sync(shutil.rmtree, self._root / job_id)
        if self._archive is not None:
            await self._archive.forget(job_id)
        self._jobs.pop(job_id, None)

    def statistics(self) -> ResultStatistics:
        """Return the store in figures."""
        return ResultStatistics(
            known=len(self._results),
            waiting=self._waiting,
            waiting_bytes=self._waiting_bytes,
            cached_bytes=self._cached_bytes,
            archived=self._uploads.done,
            archive_failures=self._uploads.failures,
            archive_stalled=bool(self._uploads.trouble),
        )


def _unfit(uid: str, reference: Reference) -> ResultRefused | None:
    """Say why no bytes could be this result."""
    if reference.size_bytes > MAX_RESULT_BYTES:
        return _too_big(uid)
    if reference.size_bytes < 0 or not _SHA256.fullmatch(reference.sha256) or not _PYTHON.fullmatch(reference.python):
        return ResultCorrupt(f"the worker of attempt {uid} describes its result in a way in which no result is")
    return None


def _too_big(uid: str) -> ResultTooBig:
    return ResultTooBig(f"the result of attempt {uid} is larger than {MAX_RESULT_BYTES} bytes")


def _named(path: Path) -> AbstractContextManager[None]:
    return naming(ResultStoreBroken, "the result store", path)
