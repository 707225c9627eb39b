"""Digests of large files, by many threads, and the check that a folder holds exactly what a manifest says.

A file is cut into pieces of 8 MiB, each piece has its digest, and the file's digest is that of all of them in order. So
one file is read by as many threads as there are processors. SHA-256 comes with Python; BLAKE3, several times as fast on
one core, is taken when the package ``blake3`` is there.

These functions block; call them from a thread. ``stop`` ends them early.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import stat
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import attrs

from iriscw.checkpoint.manifest import PIECE_BYTES
from iriscw.checkpoint.model import ImageFile
from iriscw.freeze.model import ArtifactRefused

READ_BYTES = 1 << 20
"""Large enough that Python's lock is free most of the time, small enough to stay in the cache of a core."""


class DigestsStopped(Exception):
    """The digests are not wanted any more."""


class Digest(Protocol):
    """What hashlib and blake3 have in common."""

    def update(self, data: memoryview, /) -> object:
        """Take more."""
        ...

    def digest(self) -> bytes:
        """Return 32 bytes."""
        ...


def _blake3() -> Callable[[], Digest] | None:
    try:
        module = importlib.import_module("blake3")
    except ImportError:
        return None
    made: Callable[[], Digest] = module.blake3
    return made


def best_algorithm() -> str:
    """Return the fastest one that is there."""
    return "blake3-8m" if _blake3() is not None else "sha256-8m"


def digest_of(algorithm: str) -> Callable[[], Digest]:
    """Return what makes a digest.

    Raises:
        ArtifactRefused: the package that it needs is not installed.
    """
    if algorithm == "sha256-8m":
        return hashlib.sha256
    made = _blake3()
    if made is None:
        raise ArtifactRefused(f"its digests are {algorithm}: install the package blake3 to read it")
    return made


def digest_of_pieces(made: Callable[[], Digest], pieces: bytes) -> str:
    """Return the digest of a file whose pieces have these digests."""
    whole = made()
    whole.update(memoryview(pieces))
    return whole.digest().hex()


@attrs.define(eq=False)
class Reading:
    """One reading of many files: who reads, how far they are, and whether they should stop."""

    algorithm: str
    threads: int
    report: Callable[[int], None]
    """Gets the number of bytes read since it was called last; from any thread."""
    stop: threading.Event = attrs.field(factory=threading.Event)
    known: Callable[[str, int, os.stat_result], bytes | None] = attrs.field(default=lambda name, offset, found: None)
    """Gives the digest of a piece that was read before: by its file's name, where it begins, and which file that is."""

    def digests(self, folder: int, sizes: Sequence[tuple[str, int]]) -> list[ImageFile]:
        """Read the files of an open folder, which have these sizes.

        Raises:
            ArtifactRefused: one is not a plain file, has another size, or ends early.
            Stopped: :attr:`stop` was set.
            OSError: one cannot be read.
        """
        made = digest_of(self.algorithm)
        with ThreadPoolExecutor(self.threads, thread_name_prefix="iriscw-digest") as pool:
            waiting = []
            for name, size in sizes:
                offsets = range(0, max(size, 1), PIECE_BYTES)
                pieces = [pool.submit(self._piece, made, folder, name, size, at) for at in offsets]
                waiting.append((name, size, pieces))
            try:
                return [
                    self._file(made, name, size, [each.result() for each in pieces]) for name, size, pieces in waiting
                ]
            except BaseException:
                self.stop.set()
                pool.shutdown(cancel_futures=True)
                raise

    @staticmethod
    def _file(made: Callable[[], Digest], name: str, size: int, pieces: list[bytes]) -> ImageFile:
        joined = b"".join(pieces)
        return ImageFile(name, size, digest_of_pieces(made, joined), joined)

    def _piece(self, made: Callable[[], Digest], folder: int, name: str, size: int, offset: int) -> bytes:
        """Read one piece. The file is opened anew: a descriptor for each of many files would be too many."""
        descriptor = open_image(folder, name, size)
        try:
            end = min(offset + PIECE_BYTES, size)
            known = self.known(name, offset, os.fstat(descriptor))
            if known is not None:
                self.report(end - offset)
                return known
            return digest_of_piece(made, descriptor, name, range(offset, end), self.report, self.stop)
        finally:
            os.close(descriptor)


@attrs.define(eq=False)
class PieceDigests:
    """The digest of a file of which one piece comes after the other."""

    made: Callable[[], Digest]
    _pieces: bytearray = attrs.field(factory=bytearray)
    _piece: Digest | None = None
    _left: int = 0

    def add(self, data: memoryview) -> None:
        """Take more."""
        while len(data):
            if self._piece is None:
                self._piece, self._left = self.made(), PIECE_BYTES
            part = data[: self._left]
            self._piece.update(part)
            self._left -= len(part)
            data = data[len(part) :]
            if not self._left:
                self._end()

    def _end(self) -> None:
        if self._piece is not None:
            self._pieces += self._piece.digest()
        self._piece = None

    def are(self, wanted: ImageFile) -> bool:
        """Say whether they are what was sealed; nothing more comes then."""
        self._end()
        pieces = bytes(self._pieces) or self.made().digest()  # an empty file has one piece, which is empty
        return digest_of_pieces(self.made, pieces) == wanted.digest and wanted.pieces in (b"", pieces)


def digest_of_piece(
    made: Callable[[], Digest],
    descriptor: int,
    name: str,
    piece: range,
    report: Callable[[int], None],
    stop: threading.Event | None = None,
) -> bytes:
    """Read these bytes of an open file, and give their digest.

    Raises:
        ArtifactRefused: the file ends before they do.
        Stopped: ``stop`` was set.
        OSError: they cannot be read.
    """
    digest, buffer = made(), bytearray(min(READ_BYTES, max(len(piece), 1)))
    offset = piece.start
    while offset < piece.stop:
        if stop is not None and stop.is_set():
            raise DigestsStopped
        view = memoryview(buffer)[: min(len(buffer), piece.stop - offset)]
        count = os.preadv(descriptor, [view], offset)
        if count == 0:
            raise ArtifactRefused(f"{name} became shorter while it was read")
        digest.update(view[:count])
        offset += count
        report(count)
    return digest.digest()


def open_image(folder: int, name: str, size: int | None = None) -> int:
    """Open a file of an open folder: a plain one, no link, of this size if one is given.

    Raises:
        ArtifactRefused: it is something else.
    """
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError as error:
        raise ArtifactRefused(f"{name} cannot be opened: {error.strerror}") from error
    found = os.fstat(descriptor)
    trouble = ""
    if not stat.S_ISREG(found.st_mode):
        trouble = f"{name} is not a plain file"
    elif found.st_nlink != 1:
        trouble = f"{name} has another name elsewhere, so somebody else may write to it"
    elif size is not None and found.st_size != size:
        trouble = f"{name} has {found.st_size} bytes, and {size} are sealed"
    if trouble:
        os.close(descriptor)
        raise ArtifactRefused(trouble)
    return descriptor


def open_folder(path: Path) -> int:
    """Open a folder that is not a link.

    Raises:
        OSError: it is not there, or it is something else.
    """
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)


def listed(folder: int) -> list[tuple[str, int]]:
    """Return the names in an open folder with their sizes, sorted; links are not followed."""
    with os.scandir(folder) as entries:
        return sorted((entry.name, entry.stat(follow_symlinks=False).st_size) for entry in entries)
