"""Bundles that were fetched and unpacked once on a machine, and the key under which a store has them.

A bundle's name is its content: a copy from anywhere is as good as any other once its hash was checked, and it is
checked before anything opens it. Where the bytes come from is the business of the ``BundleSource``.
"""

from __future__ import annotations

import re
import shutil
import uuid
from pathlib import Path
from typing import Protocol

import anyio
import anyio.to_thread

from iriscw._errors import InvalidArgument
from iriscw.bundles.pack import BundleLimits
from iriscw.bundles.unpack import unpack, verify
from iriscw.files import make_private_folder

_ID = re.compile(r"[0-9a-f]{64}")


def check_bundle_id(bundle_id: str) -> str:
    """Return ``bundle_id`` back if it may name a folder and an object.

    Raises:
        InvalidArgument: it is no SHA-256 in lower-case hexadecimal digits.
    """
    if not _ID.fullmatch(bundle_id):
        raise InvalidArgument(f"{bundle_id!r} is not a bundle id")
    return bundle_id


def bundle_key(prefix: str, bundle_id: str) -> str:
    """Return the key of a bundle in an object store: ``<prefix>/<sha256>.zip``.

    Raises:
        InvalidArgument: ``bundle_id`` is no SHA-256.
    """
    return f"{prefix.strip('/')}/{check_bundle_id(bundle_id)}.zip".lstrip("/")


class BundleSource(Protocol):
    """Where the bytes of bundles come from."""

    async def download(self, bundle_id: str, path: Path, limit_bytes: int) -> None:
        """Write a bundle to the new file ``path``; what it holds is checked by whoever asks.

        Raises:
            BundleCorrupt: it has more than ``limit_bytes``, or came in a wrong order.
            IriscwError: as the source has it.
            OSError: the disk is full, or ``path`` cannot be written.
        """


class BundleCache:
    """The bundles that were unpacked on this machine, one folder each, to be copied from and never written to.

    Several tasks and several workers may share a folder: each unpacks into a name of its own, and the first one to
    finish gives it the bundle's name.
    """

    def __init__(self, root: Path, source: BundleSource, limits: BundleLimits | None = None) -> None:
        """Keep bundles of ``source`` below ``root``."""
        self._root = root
        self._source = source
        self._limits = limits or BundleLimits()
        self._locks: dict[str, anyio.Lock] = {}

    async def fetch(self, bundle_id: str) -> Path:
        """Return the folder of a bundle; fetch, verify and unpack it if it is not here.

        Raises:
            InvalidArgument: ``bundle_id`` is no SHA-256.
            BundleCorrupt, BundleHarmful: see ``unpack``; nothing of it is left.
            IriscwError: see ``BundleSource.download``.
            OSError: the disk is full, or the folder cannot be written.
        """
        target = self._root / check_bundle_id(bundle_id)
        async with self._locks.setdefault(bundle_id, anyio.Lock()):  # one download per worker
            if await anyio.to_thread.run_sync(target.is_dir):
                return target
            temporary = self._root / f".iriscw-{uuid.uuid4().hex}"
            await anyio.to_thread.run_sync(make_private_folder, temporary)
            try:
                await self._source.download(bundle_id, temporary / "zip", self._limits.packed_bytes)
                await anyio.to_thread.run_sync(self._install, bundle_id, temporary, target)
            finally:
                with anyio.CancelScope(shield=True):  # a bounded number of files
                    await anyio.to_thread.run_sync(lambda: shutil.rmtree(temporary, ignore_errors=True))
        return target

    def _install(self, bundle_id: str, temporary: Path, target: Path) -> None:
        verify(temporary / "zip", bundle_id)
        unpack(temporary / "zip", temporary / "unpacked", self._limits)
        try:
            (temporary / "unpacked").rename(target)
        except OSError:
            if not target.is_dir():  # else another worker was faster, with the same content
                raise
