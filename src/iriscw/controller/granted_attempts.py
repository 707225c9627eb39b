"""Which attempts each worker was given: what its stream begins with, and of what it is believed.

On the wire the controller speaks first, with all that should run; behind the door a link speaks second, when it knows
what is there (:mod:`iriscw.jobs.ports`). The two meet here. Before an attempt's order leaves for a worker, its uid is
written down under the worker's incarnation, with those that leave for others at the same time, and struck out when the
worker was told to forget it. A new stream then begins for the link with these uids, as accepted and otherwise unknown;
what the worker really has follows as changes. A uid whose order never arrived is ordered again, which is harmless:
workers never start a uid twice.

The record is also what a worker's word is held against. An attempt belongs to the one incarnation that it was given to
last; what any other says of it is not believed (:meth:`HeldAttempts.owns`). That does not end when the attempt is
struck out: its last log lines may be on the way by then, or the stream breaks before the worker has heard that it may
forget. So the uids that were struck out last stay known. Only an attempt that was suspended, and that its worker
was told to let go, is not its own any more: the next one may be given it.

One file for each incarnation, ``<worker id>#<incarnation>``: lines ``+uid`` and ``-uid``, appended, written anew when
many were struck out: a full disk keeps nobody from reading it. It survives the process, which is all that the wire's
own idempotency does not cover.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import anyio
import anyio.to_thread
import attrs

from iriscw._errors import OperationError
from iriscw.controller.stores.group_commit import GroupCommit
from iriscw.controller.stores.stored_files import append_whole, naming
from iriscw.files import write_atomic

Key = tuple[str, str]
"""A worker's id and incarnation."""

Gift = tuple[Key, tuple[str, ...]]
"""What one worker is given at once."""

REWRITE_LINES = 4096
"""Lines struck out since the file was last written anew."""

MAX_STRUCK = 256
"""Uids of each worker that stay known after they were struck out: as many attempts as one may have."""


class HeldBroken(OperationError):
    """The record of held attempts cannot be read or written: a full disk, permissions, an I/O error."""

    retryable = True


@attrs.define(eq=False)
class Record:
    """What one incarnation was given, in order."""

    held: dict[str, None] = attrs.field(factory=dict)
    struck: collections.deque[str] = attrs.field(factory=lambda: collections.deque(maxlen=MAX_STRUCK))
    struck_lines: int = 0
    """Since the file was last written anew."""

    def strike(self, uid: str) -> None:
        """Take one from those held to those struck out."""
        self.held.pop(uid, None)
        self.struck.append(uid)


class HeldAttempts:
    """The record below one folder; one event loop uses it.

    Args:
        root: the folder; made when it is first needed.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._records: dict[Key, Record] = {}
        self._lock = anyio.Lock()
        self.giving = GroupCommit(self._give_all)

    async def of(self, key: Key) -> tuple[str, ...]:
        """Return the uids that the worker may hold, in the order in which they were given to it.

        Raises:
            HeldBroken: the record cannot be read.
        """
        async with self._lock:
            return tuple((await self._load(key)).held)

    def owns(self, key: Key, uid: str) -> bool:
        """Say whether the worker was given this attempt; no other worker ever was.

        Without a look at the disk: nobody owns anything before :meth:`of` was asked for it.
        """
        record = self._records.get(key)
        return record is not None and (uid in record.held or uid in record.struck)

    async def give(self, key: Key, uids: Iterable[str]) -> None:
        """Write down that orders for these attempts are about to leave.

        Raises:
            HeldBroken: nothing was written; the orders must not leave.
        """
        given = tuple(dict.fromkeys(uids))
        if given:
            await self.giving.put((key, given))

    async def _give_all(self, gifts: Sequence[Gift]) -> dict[int, Exception]:
        """Write down what several workers are given; give what was not written, and why."""
        errors: dict[int, Exception] = {}
        fresh: dict[int, list[str]] = {}
        async with self._lock:
            for index, (key, uids) in enumerate(gifts):
                try:
                    record = await self._load(key)
                except HeldBroken as error:
                    errors[index] = error
                else:
                    fresh[index] = [uid for uid in uids if uid not in record.held]
            lines = {index: (self._path(gifts[index][0]), _added(uids)) for index, uids in fresh.items() if uids}
            if lines:
                for index, refused in (await anyio.to_thread.run_sync(_append_each, lines)).items():
                    errors[index] = self._broken(refused)
            for index, added in fresh.items():
                if index not in errors:
                    self._records[gifts[index][0]].held.update(dict.fromkeys(added))
        return errors

    def _broken(self, refused: OSError) -> HeldBroken:
        try:
            with _named(self._root):
                raise refused
        except HeldBroken as error:
            return error

    async def strike(self, key: Key, uids: Iterable[str]) -> None:
        """Strike out attempts that the worker was told to forget.

        Raises:
            HeldBroken: nothing was written.
        """
        struck = dict.fromkeys(uids)
        if not struck:
            return
        async with self._lock:
            record = await self._load(key)
            gone = [uid for uid in struck if uid in record.held]
            if not gone:
                return
            if record.struck_lines + len(gone) < REWRITE_LINES:
                await self._append(key, [f"-{uid}" for uid in gone])
            for uid in gone:
                record.strike(uid)
            record.struck_lines += len(gone)
            if record.struck_lines >= REWRITE_LINES:
                await self._rewrite(key, record)

    async def let_go(self, key: Key, uids: Iterable[str]) -> None:
        """Forget attempts that the worker was told to let go, suspended as they are: another one may have them next.

        Raises:
            HeldBroken: nothing was written.
        """
        let_go = dict.fromkeys(uids)
        if not let_go:
            return
        async with self._lock:
            record = await self._load(key)
            gone = [uid for uid in let_go if uid in record.held]
            for uid in gone:
                del record.held[uid]
            if gone:
                await self._rewrite(key, record)

    async def _load(self, key: Key) -> Record:
        record = self._records.get(key)
        if record is None:
            with _named(self._root):
                lines, torn = await anyio.to_thread.run_sync(_read, self._path(key))
            record = Record()
            for line in lines:
                if line.startswith("+"):
                    record.held[line[1:]] = None
                else:
                    record.strike(line[1:])
                    record.struck_lines += 1
            if torn:
                await self._rewrite(key, record)
            self._records[key] = record
        return record

    async def _append(self, key: Key, lines: list[str]) -> None:
        content = "".join(f"{line}\n" for line in lines).encode()
        with _named(self._root):
            await anyio.to_thread.run_sync(append_whole, self._path(key), content)

    async def _rewrite(self, key: Key, record: Record) -> None:
        lines = [*(f"-{uid}\n" for uid in record.struck), *(f"+{uid}\n" for uid in record.held)]
        content = "".join(lines).encode()
        with _named(self._root):
            await anyio.to_thread.run_sync(lambda: write_atomic(self._path(key), content, durable=False))
        record.struck_lines = 0

    async def retain(self, keys: Iterable[Key]) -> None:
        """Remove the records of all other incarnations: their pods are gone, and none of them is believed again.

        Raises:
            HeldBroken: files cannot be removed.
        """
        kept = dict.fromkeys(self._path(key) for key in keys)
        async with self._lock:
            with _named(self._root):
                await anyio.to_thread.run_sync(_remove_others, self._root, kept)
            self._records = {key: record for key, record in self._records.items() if self._path(key) in kept}

    def _path(self, key: Key) -> Path:
        worker_id, incarnation = key
        return self._root / f"{worker_id}#{incarnation}"


def _added(uids: Iterable[str]) -> bytes:
    return "".join(f"+{uid}\n" for uid in uids).encode()


def _append_each(lines: Mapping[int, tuple[Path, bytes]]) -> dict[int, OSError]:
    refused = {}
    for index, (path, content) in lines.items():
        try:
            append_whole(path, content)
        except OSError as error:
            refused[index] = error
    return refused


def _read(path: Path) -> tuple[list[str], bool]:
    """Return the lines, and whether the machine stopped while one was written: that one never counted."""
    try:
        *lines, rest = path.read_text(encoding="ascii").split("\n")
    except FileNotFoundError:
        return [], False
    return [line for line in lines if len(line) > 1], bool(rest)


def _remove_others(root: Path, kept: dict[Path, None]) -> None:
    if root.is_dir():
        for path in root.iterdir():
            if path not in kept:
                path.unlink(missing_ok=True)


def _named(path: Path) -> AbstractContextManager[None]:
    return naming(HeldBroken, "the record of held attempts", path)
