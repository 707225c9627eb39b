"""The specifications that this worker holds: files named by their hash, for one life of the process."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from iriscw._errors import OperationError
from iriscw.files import make_private_folder, read_bounded, write_atomic
from iriscw.worker.model import Specification
from iriscw.worker.wire import MalformedSpecification, specification

MAX_SPECIFICATION_BYTES = 8 << 20
"""As the protocol says."""

MAX_HELD = 256
"""Of the largest size they take 2 GiB of disk."""


class SpecificationUnknown(OperationError):
    """The worker was asked to run an attempt of a job whose specification it does not hold."""

    retryable = True


class SpecificationsFull(OperationError):
    """The worker holds as many specifications as it may; it drops all and dials again, so that those in use come
    again.
    """

    retryable = True


class Specifications:
    """Specifications by hash. All functions block."""

    def __init__(self, folder: Path) -> None:
        """Begin with none: what an earlier process left is removed.

        Raises:
            OSError: the folder cannot be made or emptied.
        """
        self._folder = folder
        self._held: dict[str, None] = {}
        self.clear()

    @property
    def hashes(self) -> tuple[str, ...]:
        """The hashes that are held, in hexadecimal."""
        return tuple(self._held)

    def clear(self) -> None:
        """Drop all."""
        self._held.clear()
        if self._folder.exists():
            shutil.rmtree(self._folder)
        make_private_folder(self._folder)

    def put(self, name: str, content: bytes) -> None:
        """Keep one.

        Raises:
            MalformedSpecification: its hash is another, or it is larger than any.
            SpecificationsFull: see there.
            OSError: it cannot be written.
        """
        if len(content) > MAX_SPECIFICATION_BYTES:
            raise MalformedSpecification(f"a specification has {len(content)} bytes, more than any")
        if hashlib.sha256(content).hexdigest() != name:
            raise MalformedSpecification(f"the specification {name} has another hash")
        if name in self._held:
            return
        if len(self._held) >= MAX_HELD:
            raise SpecificationsFull(f"this worker holds {MAX_HELD} specifications already")
        write_atomic(self._folder / name, content, durable=False)
        self._held[name] = None

    def get(self, name: str) -> Specification:
        """Read one.

        Raises:
            SpecificationUnknown: it is not held.
            MalformedSpecification: it is none.
            OSError: it cannot be read.
        """
        if name not in self._held:
            raise SpecificationUnknown(f"the specification {name} is not on this worker")
        return specification(read_bounded(self._folder / name, MAX_SPECIFICATION_BYTES))
