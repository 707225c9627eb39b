"""Digests of images that are still being written: what CRIU has behind it is read while it writes on.

Theory of operation. CRIU writes the memory of a process from the front of its file to the end, and never goes back. So
a piece that the file has grown beyond does not change any more, and can have its digest before the rest is there. When
CRIU has written all of it, the pieces at the ends of the files are read as well, while the images are judged. Whoever
seals the images takes those digests and reads what is left.

Nothing rests on it. A piece without a digest, be it because the reading failed or did not come that far, is read when
the images are sealed; so is every piece of a file that is another one by then. Were a piece changed all the same, the
thaw would find it, as it finds all that is changed after the sealing.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

import attrs

from iriscw.checkpoint.drivers.digests import Digest, digest_of, digest_of_piece, open_folder, open_image
from iriscw.checkpoint.manifest import PIECE_BYTES, PIECES_OF
from iriscw.freeze.model import ArtifactRefused

FIRST_LOOK_S: Final = 0.002
LOOK_GROWTH: Final = 1.1
LAST_LOOK_S: Final = 0.05
"""Between two looks at how far the files have come. The first ones are as close together as a small process needs; a
large one is not looked at hundreds of times a second."""
LOOK_COST: Final = 10
"""A pause is at least that many times as long as the look before it: a thousand processes have as many files."""


def following_threads() -> int:
    """Say how many threads read while CRIU writes: it keeps a processor for itself, where there are two."""
    return max(1, (os.cpu_count() or 1) - 1)


@attrs.frozen
class Piece:
    """The digest of a piece, and of which file it is."""

    device: int
    inode: int
    digest: bytes


class Following:
    """Reads images in a folder while they are written there, from when it is made until they are :meth:`written`.

    Args:
        folder: Where the images are written.
        algorithm: That of the digests.
        threads: How many read.
    """

    def __init__(self, folder: Path, algorithm: str, threads: int) -> None:
        self.algorithm: Final = algorithm
        self._folder = folder
        self._made = digest_of(algorithm)
        self._pieces: dict[tuple[str, int], Future[Piece]] = {}
        self._begun: dict[str, int] = {}
        self._stop = threading.Event()
        self._whole = False
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="iriscw-follow")
        self._watcher = threading.Thread(target=self._watch, name="iriscw-follow", daemon=True)
        self._watcher.start()

    @property
    def done_bytes(self) -> int:
        """How much has been read to the end of its piece."""
        return PIECE_BYTES * sum(piece.done() and not piece.cancelled() for piece in tuple(self._pieces.values()))

    def written(self) -> None:
        """Begin what is left, as nothing is written any more, and return at once."""
        self._whole = True
        self._stop.set()

    def stop(self) -> None:
        """Begin nothing any more, and return at once: a piece that is being read is read to its end."""
        self._stop.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def known(self, name: str, offset: int, file: os.stat_result) -> bytes | None:
        """Return the digest of a piece of this very file, once it is :meth:`written`. Blocks while it is being read.

        Returns:
            None if it has none: then it is to be read.
        """
        self._watcher.join()
        found = self._pieces.get((name, offset))
        if found is None or found.cancel():  # who seals has more threads: what nobody reads yet is read by those
            return None
        try:
            piece = found.result()
        except (OSError, ArtifactRefused):  # who seals it reads it again, and says what is wrong
            return None
        return piece.digest if (piece.device, piece.inode) == (file.st_dev, file.st_ino) else None

    def _watch(self) -> None:
        pause_s, took_s = FIRST_LOOK_S, 0.0
        with contextlib.suppress(OSError, RuntimeError):  # no folder, no thread: who seals it says what is wrong
            while not self._stop.wait(max(pause_s, LOOK_COST * took_s)):
                pause_s = min(LOOK_GROWTH * pause_s, LAST_LOOK_S)
                began_s = time.monotonic()
                self._look(PIECE_BYTES)
                took_s = time.monotonic() - began_s
            if self._whole:
                self._look(1)
        self._pool.shutdown(wait=False)

    def _look(self, least: int) -> None:
        """Have all pieces read of which this many bytes are behind the end of their file by now."""
        folder = open_folder(self._folder)
        try:
            with os.scandir(folder) as entries:
                written = [each for each in entries if PIECES_OF.fullmatch(each.name)]
            sizes = [(each.name, each.stat(follow_symlinks=False).st_size) for each in written]
        finally:
            os.close(folder)
        for name, size in sizes:
            for offset in range(self._begun.get(name, 0), size - least + 1, PIECE_BYTES):
                piece = range(offset, min(offset + PIECE_BYTES, size))
                self._pieces[name, offset] = self._pool.submit(self._read, self._made, name, piece)
                self._begun[name] = offset + PIECE_BYTES

    def _read(self, made: Callable[[], Digest], name: str, piece: range) -> Piece:
        folder = open_folder(self._folder)
        try:
            descriptor = open_image(folder, name)
        finally:
            os.close(folder)
        try:
            found = os.fstat(descriptor)
            digest = digest_of_piece(made, descriptor, name, piece, lambda count: None)
            return Piece(found.st_dev, found.st_ino, digest)
        finally:
            os.close(descriptor)
