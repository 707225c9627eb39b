"""The result store: what callables returned, whole and verified or not there at all.

Layout. ``<root>/<job id>/<index>-<number>-<uid>.part`` grows with the worker's chunks. When the worker has said what
the whole is (size and SHA-256) and the part fits, it is flushed and renamed to
``<index>-<number>-<uid>.<python>.<sha256>.result``: the name is the reference, so a reader never sees a result that
was not verified, at any crash point, and a restarted controller finds its place by listing folders.

A result that can never be kept (too big, or not what its worker says it is, however often it is sent) is *refused*,
once and for ever: what comes of it is thrown away, and whoever settles it learns why. Nothing waits for it.
"""

from __future__ import annotations

import contextlib
import enum
import hashlib
import logging
import os
import re
import shutil
from contextlib import AbstractContextManager
from pathlib import Path

import anyio
import anyio.to_thread
import attrs

from iriscw.controller.stored_files import naming, read_at, write_all
from iriscw.errors import OperationError
from iriscw.files import PRIVATE_FILE_MODE, make_private_folder, sync_folder
from iriscw.rpc.limits import MAX_RESULT_BYTES

log = logging.getLogger(__name__)

MAX_MISMATCHES = 3
"""How often a result is wanted again that did not arrive as its worker says it is. TCP's checksum misses one damaged
packet in 65,536; the second time it is the worker."""

_NAME = re.compile(r"(\d{1,6})-(\d{1,6})-([0-9a-f]{16})(?:\.part|\.(\d{1,2}\.\d{1,2})\.([0-9a-f]{64})\.result)")
_JOB = re.compile(r"job-[a-z2-7]{12}")
_PYTHON = re.compile(r"\d{1,2}\.\d{1,2}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class ResultStoreBroken(OperationError):
    """The result store cannot read or write its files: a full disk, permissions, an I/O error."""

    retryable = True


class ResultRefused(OperationError, abstract=True):
    """An attempt's result will never be kept. The attempt failed: its user has no result."""


class ResultTooBig(ResultRefused):
    """It is larger than ``MAX_RESULT_BYTES``."""


class ResultCorrupt(ResultRefused):
    """It is not what its worker said it is."""


class ResultMissing(ResultRefused):
    """Its worker announced it and did not send it."""


class Verdict(enum.Enum):
    """How a result stands whose worker has said what the whole is."""

    KEPT = "kept"
    WANTED = "wanted"
    """Bytes are missing, or all must be sent again."""
    REFUSED = "refused"
    """See :meth:`ResultStore.refusal`."""


@attrs.frozen
class Reference:
    """A whole result: its size, the SHA-256 of its bytes in hex, and the Python (``3.11``) that pickled it."""

    size_bytes: int
    sha256: str
    python: str


@attrs.define(eq=False)
class AttemptResult:
    """One attempt's result. ``reference`` is None until the whole was verified."""

    job_id: str
    index: int
    number: int
    uid: str
    size_bytes: int = 0
    """What is stored, verified or not."""
    reference: Reference | None = None
    refused: ResultRefused | None = None
    """Why it will never be kept."""
    mismatches: int = 0
    lock: anyio.Lock = attrs.field(factory=anyio.Lock)

    @property
    def name(self) -> str:
        """The file that holds it now."""
        known = self.reference
        end = "part" if known is None else f"{known.python}.{known.sha256}.result"
        return f"{self.index}-{self.number}-{self.uid}.{end}"


class ResultStore:
    """The store below one folder. All methods are called from one event loop. Make it with :meth:`open`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._results: dict[str, AttemptResult] = {}
        self._jobs: dict[str, dict[str, AttemptResult]] = {}

    @classmethod
    async def open(cls, root: Path) -> ResultStore:
        """Open the store in ``root`` with what an earlier controller left there.

        Raises:
            ResultStoreBroken: the folder cannot be made or read.
        """
        store = cls(root)
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
                        with _named(self._root):
                            await anyio.to_thread.run_sync(self._write, result, fresh)
                        result.size_bytes += len(fresh)
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

    async def settle(self, uid: str, reference: Reference) -> Verdict:
        """Verify a result that is all there, and keep it.

        Raises:
            ResultStoreBroken: it cannot be read or kept.
        """
        result = self._results.get(uid)
        if result is None:
            return Verdict.WANTED
        async with result.lock:
            if result.reference is not None:
                return Verdict.KEPT
            result.refused = result.refused or _unfit(uid, reference)
            if result.refused is None:
                if result.size_bytes < reference.size_bytes:
                    return Verdict.WANTED
                with _named(self._root):
                    kept = await anyio.to_thread.run_sync(self._keep, result, reference)
                if kept:
                    result.reference = reference
                    return Verdict.KEPT
                if not self._mismatched(result):
                    return Verdict.WANTED
            await self._discard(result)
        return Verdict.REFUSED

    def _mismatched(self, result: AttemptResult) -> bool:
        """Want all of it again; refuse it if that was tried. Gives which."""
        log.warning("the result of attempt %s is not what its worker said it is", result.uid)
        result.size_bytes = 0
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

    def result(self, uid: str) -> AttemptResult | None:
        """Give the verified result of an attempt; None if it has none."""
        result = self._results.get(uid)
        return result if result is not None and result.reference is not None else None

    def stored(self, uid: str) -> int:
        """Give the offset up to which an attempt's result is stored."""
        result = self._results.get(uid)
        return 0 if result is None else result.size_bytes

    async def read(self, result: AttemptResult, offset: int, limit_bytes: int) -> bytes:
        """Give bytes of a result, at most ``limit_bytes``; none at its end.

        Raises:
            ResultStoreBroken: the file cannot be read.
        """
        path = self._root / result.job_id / result.name
        with _named(path):
            return await anyio.to_thread.run_sync(read_at, path, offset, limit_bytes)

    def jobs(self) -> list[str]:
        """Give the jobs that have results."""
        return list(self._jobs)

    async def forget(self, job_id: str) -> None:
        """Remove all results of a job.

        Raises:
            ResultStoreBroken: files cannot be removed.
        """
        for uid in self._jobs.pop(job_id, {}):
            del self._results[uid]
        with _named(self._root), contextlib.suppress(FileNotFoundError):
            await anyio.to_thread.run_sync(shutil.rmtree, self._root / job_id)


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
