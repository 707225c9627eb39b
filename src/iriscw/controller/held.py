"""Which attempts each worker may hold: what a stream begins with, before its worker has said anything.

On the wire the controller speaks first, with all that should run; behind the door a link speaks second, when it knows
what is there (:mod:`iriscw.jobs.ports`). The two meet here. Before an attempt's order leaves for a worker, its uid is
written down under the worker's incarnation, and struck out when the worker was told to forget it. A new stream then
begins for the link with these uids, as accepted and otherwise unknown; what the worker really has follows as changes.
A uid whose order never arrived is ordered again, which is harmless: workers never start a uid twice.

One file for each incarnation, ``<worker id>#<incarnation>``: lines ``+uid`` and ``-uid``, appended, written anew when
it is read. It survives the process, which is all that the wire's own idempotency does not cover.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import anyio
import anyio.to_thread

from iriscw.errors import OperationError
from iriscw.files import PRIVATE_FILE_MODE, make_private_folder, write_atomic

Key = tuple[str, str]
"""A worker's id and incarnation."""

REWRITE_LINES = 4096
"""Lines struck out since the file was last written anew."""


class HeldBroken(OperationError):
    """The record of held attempts cannot be read or written: a full disk, permissions, an I/O error."""

    retryable = True


class HeldAttempts:
    """The record below one folder; one event loop uses it.

    Args:
        root: the folder; made when it is first needed.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._held: dict[Key, dict[str, None]] = {}
        self._struck: dict[Key, int] = {}
        self._lock = anyio.Lock()

    async def of(self, key: Key) -> tuple[str, ...]:
        """Give the uids that the worker may hold, in the order in which they were given to it.

        Raises:
            HeldBroken: the record cannot be read.
        """
        async with self._lock:
            return tuple(await self._load(key))

    async def give(self, key: Key, uids: Iterable[str]) -> None:
        """Write down that orders for these attempts are about to leave.

        Raises:
            HeldBroken: nothing was written; the orders must not leave.
        """
        async with self._lock:
            held = await self._load(key)
            fresh = [uid for uid in dict.fromkeys(uids) if uid not in held]
            if fresh:
                await self._append(key, [f"+{uid}" for uid in fresh])
                held.update(dict.fromkeys(fresh))

    async def strike(self, key: Key, uids: Iterable[str]) -> None:
        """Strike out attempts that the worker was told to forget.

        Raises:
            HeldBroken: nothing was written.
        """
        async with self._lock:
            held = await self._load(key)
            gone = [uid for uid in dict.fromkeys(uids) if uid in held]
            if not gone:
                return
            for uid in gone:
                del held[uid]
            self._struck[key] = self._struck.get(key, 0) + len(gone)
            if self._struck[key] >= REWRITE_LINES:
                await self._rewrite(key, held)
            else:
                await self._append(key, [f"-{uid}" for uid in gone])

    async def _load(self, key: Key) -> dict[str, None]:
        held = self._held.get(key)
        if held is None:
            with _named(self._root):
                lines = await anyio.to_thread.run_sync(_read, self._path(key))
            held = {}
            for line in lines:
                if line.startswith("+"):
                    held[line[1:]] = None
                else:
                    held.pop(line[1:], None)
            self._held[key] = held
            if lines:
                await self._rewrite(key, held)
        return held

    async def _append(self, key: Key, lines: list[str]) -> None:
        with _named(self._root):
            await anyio.to_thread.run_sync(_append, self._path(key), "".join(f"{line}\n" for line in lines).encode())

    async def _rewrite(self, key: Key, held: Iterable[str]) -> None:
        self._struck[key] = 0
        content = "".join(f"+{uid}\n" for uid in held).encode()
        with _named(self._root):
            await anyio.to_thread.run_sync(lambda: write_atomic(self._path(key), content, durable=False))

    async def retain(self, keys: Iterable[Key]) -> None:
        """Remove the records of all other incarnations: their pods are gone.

        Raises:
            HeldBroken: files cannot be removed.
        """
        kept = dict.fromkeys(self._path(key) for key in keys)
        async with self._lock:
            with _named(self._root):
                await anyio.to_thread.run_sync(_remove_others, self._root, kept)
            self._held = {key: held for key, held in self._held.items() if self._path(key) in kept}

    def _path(self, key: Key) -> Path:
        worker_id, incarnation = key
        return self._root / f"{worker_id}#{incarnation}"


def _read(path: Path) -> list[str]:
    try:
        return [line for line in path.read_text(encoding="ascii").split("\n") if len(line) > 1]
    except FileNotFoundError:
        return []


def _append(path: Path, data: bytes) -> None:
    make_private_folder(path.parent)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, PRIVATE_FILE_MODE)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


def _remove_others(root: Path, kept: dict[Path, None]) -> None:
    if root.is_dir():
        for path in root.iterdir():
            if path not in kept:
                path.unlink(missing_ok=True)


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise HeldBroken(f"the record of held attempts at {path} fails: {error.strerror or error}") from error
