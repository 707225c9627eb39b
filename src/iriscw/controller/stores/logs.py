"""The log store: what attempts wrote, bounded, on disk, readable while it grows.

Layout. ``<root>/<job id>/<index>-<number>-<uid>.<start>.log``: a *segment* with the bytes of one attempt's log from
``start`` on. The names say everything, so a restarted controller finds its place by listing folders. An attempt that
has not said anything has no segment; ``<root>/<job id>/attempts`` names all that were opened, a line each, so that many
are opened by one write. A segment that is full is followed by the next, at the start of a line; beyond
``attempt_bytes`` the oldest of the attempt goes, beyond ``total_bytes`` the logs of the jobs that finished longest ago.
What is gone leaves an empty segment that starts where the log ended: readers see a gap in the offsets, never a shorter
log.

Offsets count bytes of the attempt's log from its start. Appending is idempotent: what is there already is skipped,
and a chunk that begins beyond the end changes nothing. The answer is always the end, from which the worker goes on.
An attempt is opened before its worker is told to run it; chunks of any other attempt are ignored.

Bytes go to the page cache: they survive every crash of a process, and not that of the machine.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import logging
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import anyio
import anyio.to_thread
import attrs

from iriscw._errors import OperationError
from iriscw.controller.events import Subscription
from iriscw.controller.stores.group_commit import GroupCommit
from iriscw.controller.stores.stored_files import append_whole, naming, read_at
from iriscw.files import make_private_folder, write_atomic
from iriscw.jobs.model import AwaitLogs
from iriscw.runtime.vocabulary import SECOND

log = logging.getLogger(__name__)

MIB = 1 << 20

LINE_SHARE = 256
"""By this part of its size, and a chunk, a full segment grows while its last line has no end: 64 KiB, the longest line
that readers get in one piece."""

ROLL = "attempts"
"""The file in a job's folder that names all its attempts, a line each; one that says nothing has no other file."""

_CALLED = re.compile(r"(\d{1,6})-(\d{1,6})-([0-9a-f]{16})")
_NAME = re.compile(r"(\d{1,6})-(\d{1,6})-([0-9a-f]{16})\.(\d{1,15})\.log")
_JOB = re.compile(r"job-[a-z2-7]{12}")


class LogStoreBroken(OperationError):
    """The log store cannot read or write its files: a full disk, permissions, an I/O error."""

    retryable = True


@attrs.frozen
class LogLimits:
    """How much is kept. Kubernetes rotates a container's log at 10 MiB and keeps 5; Docker keeps all."""

    segment_bytes: int = 16 * MIB
    attempt_bytes: int = 64 * MIB
    total_bytes: int = 4096 * MIB


@attrs.frozen
class LogStatistics:
    """The store in figures."""

    attempts: int
    stored_bytes: int
    appended_bytes: int
    dropped_bytes: int
    """Bytes that limits took, since the start."""


@attrs.frozen
class Named:
    """Which attempt of its job one is."""

    index: int
    number: int
    uid: str


@attrs.define(eq=False)
class AttemptLog:
    """One attempt's log."""

    job_id: str
    index: int
    number: int
    uid: str
    segments: list[list[int]] = attrs.field(factory=list)
    """``[start, size]`` in bytes, in order."""
    over: bool = False
    """Whether the attempt was seen to end: nothing more comes."""
    ends_line: bool = False
    """Whether the last byte is known to end a line; it is not after a restart."""
    _lock: anyio.Lock | None = None

    @property
    def lock(self) -> anyio.Lock:
        """Held while something is stored. Made late: most attempts that are ordered at once say nothing for a while."""
        if self._lock is None:
            self._lock = anyio.Lock()
        return self._lock

    @property
    def begin(self) -> int:
        """The first offset that is still stored."""
        return self.segments[0][0] if self.segments else 0

    @property
    def end(self) -> int:
        """The offset behind the last byte."""
        return self.segments[-1][0] + self.segments[-1][1] if self.segments else 0

    @property
    def stored_bytes(self) -> int:
        """What it takes on disk."""
        return sum(size for _, size in self.segments)

    def name(self, start: int) -> str:
        """Return the file name of a segment."""
        return f"{self.index}-{self.number}-{self.uid}.{start}.log"


class LogFollower(Subscription):
    """Rung when logs of one job grow; ``changed`` collects the attempts."""

    def __init__(self) -> None:
        super().__init__()
        self.changed: dict[str, None] = {}

    def take(self) -> list[str]:
        """Return the uids of the attempts that grew since the last call."""
        uids = list(self.changed)
        self.changed.clear()
        return uids


class LogStore:
    """The store below one folder. All methods are called from one event loop. Make it with :meth:`open`."""

    def __init__(self, root: Path, limits: LogLimits | None = None) -> None:
        self._root = root
        self._limits = limits or LogLimits()
        self._attempts: dict[str, AttemptLog] = {}
        self._jobs: dict[str, dict[str, AttemptLog]] = {}
        self._finished: collections.OrderedDict[str, None] = collections.OrderedDict()
        self._followers: dict[str, dict[LogFollower, None]] = {}
        self._stored_bytes = self._appended_bytes = self._dropped_bytes = 0
        self.rolls: dict[str, GroupCommit[Sequence[Named]]] = {}
        """What writes the names of a job's attempts: an append that fails cuts its file, and must not cut another
        one's lines."""

    @classmethod
    async def open(cls, root: Path, limits: LogLimits | None = None) -> LogStore:
        """Open the store in ``root`` with what an earlier controller left there.

        Raises:
            LogStoreBroken: the folder cannot be made or read.
        """
        store = cls(root, limits)
        with _named(root):
            await anyio.to_thread.run_sync(store._load)
        return store

    def _load(self) -> None:
        make_private_folder(self._root)
        for folder in sorted(self._root.iterdir()):
            if not _JOB.fullmatch(folder.name):
                continue
            for each in _called(folder / ROLL):
                self._register(AttemptLog(folder.name, each.index, each.number, each.uid))
            for path in folder.iterdir():
                match = _NAME.fullmatch(path.name)
                if match is not None:
                    attempt = self._register(AttemptLog(folder.name, int(match[1]), int(match[2]), match[3]))
                    attempt.segments.append([int(match[4]), path.stat().st_size])
        for attempt in self._attempts.values():
            attempt.segments.sort()
            attempt.segments = attempt.segments or [[0, 0]]
            self._stored_bytes += attempt.stored_bytes

    def _register(self, attempt: AttemptLog) -> AttemptLog:
        """Make an attempt known; give the one that is known by its uid, if there is one."""
        known = self._attempts.setdefault(attempt.uid, attempt)
        self._jobs.setdefault(known.job_id, {})[known.uid] = known
        return known

    # Writing

    async def begin(self, job_id: str, index: int, number: int, uid: str) -> None:
        """Take logs of this attempt from now on; see :meth:`begin_all`."""
        await self.begin_all(job_id, (Named(index, number, uid),))

    async def begin_all(self, job_id: str, attempts: Iterable[Named]) -> None:
        """Take logs of these attempts of a job from now on. Repeating it is fine.

        Raises:
            LogStoreBroken: nothing can be written; the attempts are as unknown as before.
        """
        named = [each for each in attempts if each.uid not in self._attempts]
        if named:
            if job_id not in self.rolls:
                self.rolls[job_id] = GroupCommit(functools.partial(self._begin_all, job_id))
            await self.rolls[job_id].put(named)

    async def _begin_all(self, job_id: str, named: Sequence[Sequence[Named]]) -> dict[int, Exception]:
        fresh = {each.uid: each for some in named for each in some if each.uid not in self._attempts}
        if fresh:
            lines = "".join(f"{each.index}-{each.number}-{each.uid}\n" for each in fresh.values())
            with _named(self._root):
                await anyio.to_thread.run_sync(append_whole, self._root / job_id / ROLL, lines.encode())
            for (
                each
            ) in fresh.values():  # now that they are written down: what only memory knows is lost with the process
                self._register(AttemptLog(job_id, each.index, each.number, each.uid, segments=[[0, 0]]))
        return {}

    async def append(self, uid: str, offset: int, data: bytes) -> int | None:
        """Store a chunk; give the offset up to which the log is stored now, None for an unknown attempt.

        Raises:
            LogStoreBroken: nothing was written, or a part whose length the answer to the next call shows.
        """
        attempt = self._attempts.get(uid)
        if attempt is None:
            return None
        async with attempt.lock:
            fresh = data[attempt.end - offset :] if offset <= attempt.end else b""
            if fresh:
                await self._grow(attempt, fresh)
        return attempt.end

    async def _grow(self, attempt: AttemptLog, data: bytes) -> None:
        """Append to the last segment, or to the next: a full one ends with a line, so that the next begins one."""
        segment = attempt.segments[-1] if attempt.segments else [attempt.end, 0]
        over_bytes = segment[1] - self._limits.segment_bytes
        if over_bytes >= 0 and not attempt.ends_line:
            end = data.find(b"\n") + 1
            if not end and over_bytes < self._limits.segment_bytes // LINE_SHARE:
                end = len(data)
            if end:
                await self._append(attempt, segment, data[:end])
            data = data[end:]
        if data:
            await self._append(attempt, [attempt.end, 0] if over_bytes >= 0 else segment, data)
        while attempt.stored_bytes > self._limits.attempt_bytes and len(attempt.segments) > 1:
            await self._drop(attempt, attempt.segments[0])
        if self._stored_bytes > self._limits.total_bytes:
            await self._make_room()
        self._tell(attempt)

    async def _append(self, attempt: AttemptLog, segment: list[int], data: bytes) -> None:
        with _named(self._root):
            await anyio.to_thread.run_sync(self._write, attempt, segment[0], data)
        if segment not in attempt.segments[-1:]:
            attempt.segments.append(segment)
        segment[1] += len(data)
        attempt.ends_line = data.endswith(b"\n")
        self._stored_bytes += len(data)
        self._appended_bytes += len(data)

    def _write(self, attempt: AttemptLog, start: int, data: bytes) -> None:
        # All or nothing, so that offsets stay true.
        append_whole(self._root / attempt.job_id / attempt.name(start), data)

    async def _drop(self, attempt: AttemptLog, segment: list[int]) -> None:
        with _named(self._root):
            await anyio.to_thread.run_sync((self._root / attempt.job_id / attempt.name(segment[0])).unlink, True)
        attempt.segments.remove(segment)
        self._stored_bytes -= segment[1]
        self._dropped_bytes += segment[1]

    async def _make_room(self) -> None:
        """Drop the logs of the jobs that finished longest ago, and leave their ends as gaps."""
        for job_id in list(self._finished):
            if self._stored_bytes <= self._limits.total_bytes:
                return
            before = self._stored_bytes
            for attempt in list(self._jobs.get(job_id, {}).values()):
                if attempt.stored_bytes:
                    end = attempt.end
                    with _named(self._root):
                        await anyio.to_thread.run_sync(self._write, attempt, end, b"")
                    for segment in list(attempt.segments):
                        await self._drop(attempt, segment)
                    attempt.segments.append([end, 0])
            del self._finished[job_id]
            log.warning("the log store is full: dropped %d bytes of logs of %s", before - self._stored_bytes, job_id)

    def finish(self, uid: str) -> None:
        """Take note that the attempt has ended and its log is complete."""
        attempt = self._attempts.get(uid)
        if attempt is not None and not attempt.over:
            attempt.over = True
            self._tell(attempt)

    def reopen(self, uid: str) -> int:
        """Take note that an attempt that had ended lives once more; give the end of what is stored of its log."""
        attempt = self._attempts.get(uid)
        if attempt is None:
            return 0
        attempt.over = False
        return attempt.end

    def job_finished(self, job_id: str) -> None:
        """Take note that the job is over: when room is needed, its logs may go."""
        if job_id in self._jobs:
            self._finished[job_id] = None

    async def forget(self, job_id: str) -> None:
        """Remove all logs of a job.

        Raises:
            LogStoreBroken: files cannot be removed.
        """
        self.rolls.pop(job_id, None)
        for attempt in self._jobs.pop(job_id, {}).values():
            del self._attempts[attempt.uid]
            self._stored_bytes -= attempt.stored_bytes
        self._finished.pop(job_id, None)
        with _named(self._root), contextlib.suppress(FileNotFoundError):
            await anyio.to_thread.run_sync(shutil.rmtree, self._root / job_id)

    # Reading

    def attempt(self, uid: str) -> AttemptLog | None:
        """Return what is known of an attempt's log."""
        return self._attempts.get(uid)

    def attempts(self, job_id: str) -> list[AttemptLog]:
        """Return the attempts of a job that have logs, by task and number."""
        return sorted(self._jobs.get(job_id, {}).values(), key=lambda each: (each.index, each.number))

    def jobs(self) -> list[str]:
        """Return the jobs that have logs."""
        return list(self._jobs)

    async def read(self, attempt: AttemptLog, offset: int, limit_bytes: int) -> tuple[int, bytes]:
        """Return the bytes from ``offset`` on, at most ``limit_bytes``, and the offset at which they really begin.

        That is later than asked for where bytes were dropped. No bytes: ``offset`` is the end.

        Raises:
            LogStoreBroken: the file cannot be read.
        """
        for start, size in list(attempt.segments):
            if offset < start + size or (size == 0 and offset < start):
                offset = max(offset, start)
                count = min(limit_bytes, start + size - offset)
                if count == 0:
                    continue
                path = self._root / attempt.job_id / attempt.name(start)
                with _named(path):
                    data = await anyio.to_thread.run_sync(_read_if_there, path, offset - start, count)
                if data is not None:
                    return offset, data
        return max(offset, attempt.begin), b""

    async def tail(self, attempt: AttemptLog, lines: int, search_bytes: int = MIB) -> int:
        """Return the offset at which the last ``lines`` lines begin, looking at most ``search_bytes`` back."""
        offset = max(attempt.begin, attempt.end - search_bytes)
        found: list[int] = []
        while True:
            begin, data = await self.read(attempt, offset, search_bytes)
            if not data:
                break
            if not found:
                found.append(begin)
            found += [begin + match.end() for match in re.finditer(rb"\n", data)]
            offset = begin + len(data)
        if found and found[-1] == attempt.end:
            found.pop()  # the newline at the very end begins no line
        return found[-lines] if len(found) >= lines else (found[0] if found else attempt.end)

    @contextlib.contextmanager
    def following(self, job_id: str) -> Iterator[LogFollower]:
        """Be rung whenever a log of the job grows or ends, while the block lasts."""
        follower = LogFollower()
        self._followers.setdefault(job_id, {})[follower] = None
        try:
            yield follower
        finally:
            following = self._followers[job_id]
            del following[follower]
            if not following:
                del self._followers[job_id]

    def _tell(self, attempt: AttemptLog) -> None:
        for follower in self._followers.get(attempt.job_id, ()):
            follower.changed[attempt.uid] = None
            follower.ring()

    # The port of jobs

    async def await_logs(self, effect: AwaitLogs) -> int:
        """Wait until the log reaches an offset; see :class:`iriscw.jobs.ports.Logs`."""
        attempt = self._attempts.get(effect.uid)
        if attempt is None:
            return 0
        with anyio.move_on_after(effect.bound_ns / SECOND), self.following(attempt.job_id) as follower:
            while attempt.end < effect.offset:
                await follower.wait()
        return attempt.end

    def statistics(self) -> LogStatistics:
        """Return the store in figures."""
        return LogStatistics(len(self._attempts), self._stored_bytes, self._appended_bytes, self._dropped_bytes)


def _called(path: Path) -> list[Named]:
    """Return the attempts that a job's roll names.

    Half a line, where the machine stopped, is taken away. What cannot be read names nobody: attempts that have written
    something are known by their files.
    """
    try:
        with open(path, "rb", opener=_no_link) as file:
            *lines, rest = file.read().decode("ascii", "replace").split("\n")
    except FileNotFoundError:
        return []  # all that began under an older controller have a file each
    except OSError as error:
        log.warning("%s cannot be read, and names no attempts: %s", path, error.strerror or error)
        return []
    if rest:
        write_atomic(path, "".join(f"{line}\n" for line in lines).encode(), durable=False)
    matches = [_CALLED.fullmatch(line) for line in lines]
    if damaged := matches.count(None):
        log.warning("%s: %d lines name no attempt, and are left out", path, damaged)
    return [Named(int(match[1]), int(match[2]), match[3]) for match in matches if match is not None]


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC)


def _read_if_there(path: Path, position: int, count: int) -> bytes | None:
    try:
        return read_at(path, position, count)
    except FileNotFoundError:
        return None  # dropped between the look at the list and the look at the disk


def _named(path: Path) -> AbstractContextManager[None]:
    return naming(LogStoreBroken, "the log store", path)
