"""Copies of the files of an artifact, by many threads: a file is copied by pieces, as it is read for its digest.

What is copied is compared afterwards, where it lies then; here only its size has to be what the manifest says. These
functions block; call them from a thread. ``stop`` ends them early.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs

from iriscw.checkpoint.drivers.digests import READ_BYTES, DigestsStopped, open_folder, open_image
from iriscw.checkpoint.manifest import PIECE_BYTES
from iriscw.freeze.model import ArtifactRefused


@attrs.define(eq=False)
class Copying:
    """One copying of many files: who copies, how far they are, and whether they should stop."""

    threads: int
    report: Callable[[int], None]
    """Gets the number of bytes copied since it was called last; from any thread."""
    stop: threading.Event = attrs.field(factory=threading.Event)

    def copy(self, source: Path, target: Path, sizes: Sequence[tuple[str, int]]) -> None:
        """Copy files of these sizes from one folder into another one, over what is there.

        Raises:
            ArtifactRefused: one is not a plain file, has another size, or ends early.
            Stopped: :attr:`stop` was set.
            OSError: one cannot be read or written.
        """
        folders = [open_folder(source)]
        try:
            folders.append(open_folder(target))
            self._copy(folders[0], folders[1], sizes)
        finally:
            for folder in folders:
                os.close(folder)

    def _copy(self, source: int, target: int, sizes: Sequence[tuple[str, int]]) -> None:
        with ThreadPoolExecutor(self.threads, thread_name_prefix="iriscw-copy") as pool:
            waiting = []
            for name, size in sizes:
                _make(target, name)
                pieces = (range(at, min(at + PIECE_BYTES, size)) for at in range(0, size, PIECE_BYTES))
                waiting += [pool.submit(self._piece, source, target, name, size, piece) for piece in pieces]
            try:
                for each in waiting:
                    each.result()
            except BaseException:
                self.stop.set()
                pool.shutdown(cancel_futures=True)
                raise

    def _piece(self, source: int, target: int, name: str, size: int, piece: range) -> None:
        reads = open_image(source, name, size)
        try:
            writes = os.open(name, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=target)
            try:
                self._bytes(reads, writes, name, piece)
            finally:
                os.close(writes)
        finally:
            os.close(reads)

    def _bytes(self, reads: int, writes: int, name: str, piece: range) -> None:
        buffer, at = bytearray(min(READ_BYTES, len(piece))), piece.start
        while at < piece.stop:
            if self.stop.is_set():
                raise DigestsStopped
            view = memoryview(buffer)[: min(len(buffer), piece.stop - at)]
            count = os.preadv(reads, [view], at)
            if count == 0:
                raise ArtifactRefused(f"{name} became shorter while it was copied")
            written = 0
            while written < count:
                written += os.pwrite(writes, view[written:count], at + written)
            at += count
            self.report(count)


def _make(folder: int, name: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    os.close(os.open(name, flags, 0o600, dir_fd=folder))
