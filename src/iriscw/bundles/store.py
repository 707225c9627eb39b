"""Bundles in an object store, and unpacked once on each worker.

A bundle lies at ``<prefix>/<sha256>.zip``. Because its name is its content, writing it again changes
nothing, and a copy anywhere is as good as any other once its hash was checked; it is checked before every
use.
"""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

import anyio
import anyio.to_thread

from iriscw.bundles.pack import BundleLimits, Packed
from iriscw.bundles.unpack import BundleCorrupt, unpack, verify
from iriscw.errors import InvalidArgument
from iriscw.files import make_private_folder
from iriscw.tiers.ports import CHUNK_BYTES, IfAbsent, ObjectExists, ObjectStore

_ID = re.compile(r"[0-9a-f]{64}")


def bundle_key(prefix: str, bundle_id: str) -> str:
    """Give the key of a bundle.

    Raises:
        InvalidArgument: ``bundle_id`` is no SHA-256.
    """
    if not _ID.fullmatch(bundle_id):
        raise InvalidArgument(f"{bundle_id!r} is no id of a bundle")
    return f"{prefix.strip('/')}/{bundle_id}.zip".lstrip("/")


async def upload(store: ObjectStore, prefix: str, packed: Packed, source: BinaryIO) -> str:
    """Write a bundle unless it is there already; give its key. ``source`` is what ``pack`` wrote.

    Raises:
        StoreAccessDenied, StoreUnreachable, StoreFull: see ``ObjectStore.put``.
    """
    key = bundle_key(prefix, packed.bundle_id)

    async def chunks() -> AsyncIterator[bytes]:
        await anyio.to_thread.run_sync(source.seek, 0)
        while chunk := await anyio.to_thread.run_sync(source.read, CHUNK_BYTES):
            yield chunk

    try:
        await store.put(key, chunks(), condition=IfAbsent())
    except ObjectExists:
        return key
    return key


class BundleCache:
    """The bundles that were unpacked on this machine, one folder each, to be copied from and never written
    to.

    Several tasks and several workers may share a folder: each unpacks into a name of its own, and the first
    one to finish gives it the bundle's name.
    """

    def __init__(self, root: Path, store: ObjectStore, prefix: str, limits: BundleLimits | None = None) -> None:
        """Keep bundles of ``store`` below ``root``."""
        self._root = root
        self._store = store
        self._prefix = prefix
        self._limits = limits or BundleLimits()
        self._locks: dict[str, anyio.Lock] = {}

    async def fetch(self, bundle_id: str) -> Path:
        """Give the folder of a bundle; fetch, verify and unpack it if it is not here.

        Raises:
            InvalidArgument: ``bundle_id`` is no SHA-256.
            BundleCorrupt, BundleHarmful: see ``unpack``; nothing of it is left.
            ObjectNotFound, StoreAccessDenied, StoreUnreachable: see ``ObjectStore.get``.
            OSError: the disk is full, or the folder cannot be written.
        """
        key = bundle_key(self._prefix, bundle_id)
        target = self._root / bundle_id
        async with self._locks.setdefault(bundle_id, anyio.Lock()):  # one download per worker
            if await anyio.to_thread.run_sync(target.is_dir):
                return target
            temporary = self._root / f".iriscw-{uuid.uuid4().hex}"
            await anyio.to_thread.run_sync(make_private_folder, temporary)
            try:
                await self._download(key, temporary / "zip")
                await anyio.to_thread.run_sync(self._install, bundle_id, temporary, target)
            finally:
                with anyio.CancelScope(shield=True):  # a bounded number of files
                    await anyio.to_thread.run_sync(lambda: shutil.rmtree(temporary, ignore_errors=True))
        return target

    async def _download(self, key: str, path: Path) -> None:
        async with self._store.get(key) as reading:
            if reading.info.size_bytes > self._limits.packed_bytes:
                raise BundleCorrupt(f"{key} has {reading.info.size_bytes} bytes, more than any bundle")
            async with await anyio.open_file(path, "wb") as file:
                async for chunk in reading:
                    await file.write(chunk)

    def _install(self, bundle_id: str, temporary: Path, target: Path) -> None:
        verify(temporary / "zip", bundle_id)
        unpack(temporary / "zip", temporary / "unpacked", self._limits)
        try:
            (temporary / "unpacked").rename(target)
        except OSError:
            if not target.is_dir():  # else another worker was faster, with the same content
                raise
