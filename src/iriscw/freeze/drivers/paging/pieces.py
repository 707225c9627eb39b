"""Pieces of image files that are read, compared and only then given out (INV-C9).

A piece is read into memory of ours, and the digest is made of that memory: what was compared is what is given out,
whatever becomes of the file meanwhile. The files are opened once, so an artifact that is removed can be read on.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import mmap
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from iriscw.freeze.drivers.paging.notes import File

DIGEST_BYTES: Final = 32


class WrongByte(Exception):
    """A byte is not what was sealed."""


def maker_of(algorithm: str) -> Callable[[memoryview], Any]:
    """Return what makes a digest; the names are those of manifests.

    Raises:
        Refused: this machine cannot make it.
    """
    if algorithm.startswith("sha256"):
        return hashlib.sha256
    try:
        made: Callable[[memoryview], Any] = importlib.import_module("blake3").blake3
    except ImportError as error:
        raise WrongByte(f"its digests are {algorithm}: install the package blake3 to read it") from error
    return made


class FilePieces:
    """The pieces of some files. One of them is in memory at a time."""

    def __init__(self, folder: Path, files: Iterable[File], *, algorithm: str, piece_bytes: int) -> None:
        """Open the files.

        Raises:
            Refused: one is not a plain file, or has another size.
            OSError: the folder cannot be opened.
        """
        self._digest = maker_of(algorithm)
        self._piece_bytes = piece_bytes
        self._memory = mmap.mmap(-1, piece_bytes)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._held: tuple[str, int] | None = None
        self._open: dict[str, tuple[int, File]] = {}
        self.read_bytes = 0
        """So far, a piece that was read twice twice."""
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            for file in files:
                self._open[file.name] = (_opened(directory, file), file)
        finally:
            os.close(directory)

    def size_of(self, name: str) -> int | None:
        """Return the size of a file; None if there is none of this name."""
        found = self._open.get(name)
        return found[1].size_bytes if found else None

    def count_of(self, name: str) -> int:
        """Return the number of pieces of a file."""
        return -(-self._open[name][1].size_bytes // self._piece_bytes)

    def address_of(self, name: str, offset: int) -> int:
        """Return where in our memory a byte of a file lies; its piece was compared. It is good until the next call.

        Raises:
            Refused: the piece is not what was sealed.
            OSError: it cannot be read.
        """
        number = offset // self._piece_bytes
        if self._held != (name, number):
            self._held = None
            self._read(name, number)
            self._held = (name, number)
        return self._address + offset % self._piece_bytes

    def _read(self, name: str, number: int) -> None:
        descriptor, file = self._open[name]
        begin = number * self._piece_bytes
        size = min(self._piece_bytes, file.size_bytes - begin)
        wanted = file.digests[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES]
        if size <= 0 or len(wanted) != DIGEST_BYTES:
            raise WrongByte(f"{name} has no piece {number}")
        view = memoryview(self._memory)[:size]
        done = 0
        while done < size:
            count = os.preadv(descriptor, [view[done:]], begin + done)
            if count == 0:
                raise WrongByte(f"{name} became shorter while it was read")
            done += count
        self.read_bytes += size
        if self._digest(view).digest() != wanted:
            raise WrongByte(f"{name} was changed: the digest of piece {number} is another one")


def _opened(directory: int, file: File) -> int:
    try:
        descriptor = os.open(file.name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    except OSError as error:
        raise WrongByte(f"{file.name} cannot be opened: {error.strerror}") from error
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_size != file.size_bytes:
        os.close(descriptor)
        raise WrongByte(f"{file.name} has {found.st_size} bytes, and {file.size_bytes} are sealed")
    return descriptor
