"""Bundles by way of the controller: the object store's port, as far as a worker needs it, over ``GetBundle``.

The bytes are written to a file and checked before anything opens them (see :mod:`iriscw.bundles.unpack`); a download
that breaks off goes on where it was.
"""

from __future__ import annotations

import re
import shutil
import uuid
from pathlib import Path

import anyio
import anyio.to_thread

from iriscw.bundles.pack import BundleLimits
from iriscw.bundles.unpack import BundleCorrupt, unpack, verify
from iriscw.errors import InvalidArgument
from iriscw.files import make_private_folder
from iriscw.proto.iriscw import v1
from iriscw.rpc.client import RpcChannel
from iriscw.rpc.errors import RpcUnavailable

GET_BUNDLE = "/iriscw.v1.WorkerService/GetBundle"
DOWNLOAD_TIMEOUT_S = 900.0
"""The largest bundle (256 MiB) at 300 KB a second."""
MAX_BREAKS = 5
PAUSE_S = 1.0

_ID = re.compile(r"[0-9a-f]{64}")


class ControllerBundles:
    """Bundles that were unpacked on this machine, one folder each, to be copied from and never written to."""

    def __init__(self, root: Path, channel: RpcChannel, limits: BundleLimits | None = None) -> None:
        """Keep them below ``root``; workers may share it."""
        self._root = root
        self._channel = channel
        self._limits = limits or BundleLimits()
        self._locks: dict[str, anyio.Lock] = {}

    async def fetch(self, bundle_id: str) -> Path:
        """Give the folder of a bundle; fetch, verify and unpack it if it is not here.

        Raises:
            InvalidArgument: ``bundle_id`` is no SHA-256.
            BundleCorrupt, BundleHarmful: see ``unpack``; nothing of it is left.
            IriscwError: as the controller or the connection says it.
            OSError: the disk is full, or the folder cannot be written.
        """
        if not _ID.fullmatch(bundle_id):
            raise InvalidArgument(f"{bundle_id!r} is no id of a bundle")
        target = self._root / bundle_id
        async with self._locks.setdefault(bundle_id, anyio.Lock()):  # one download per worker
            if await anyio.to_thread.run_sync(target.is_dir):
                return target
            temporary = self._root / f".iriscw-{uuid.uuid4().hex}"
            await anyio.to_thread.run_sync(make_private_folder, temporary)
            try:
                await self._download(bundle_id, temporary / "zip")
                await anyio.to_thread.run_sync(self._install, bundle_id, temporary, target)
            finally:
                with anyio.CancelScope(shield=True):  # a bounded number of files
                    await anyio.to_thread.run_sync(lambda: shutil.rmtree(temporary, ignore_errors=True))
        return target

    async def _download(self, bundle_id: str, path: Path) -> None:
        breaks = 0
        async with await anyio.open_file(path, "wb") as file:
            while True:
                try:
                    await self._copy(bundle_id, file)
                except RpcUnavailable:
                    breaks += 1
                    if breaks > MAX_BREAKS:
                        raise
                    await anyio.sleep(PAUSE_S * breaks)
                else:
                    return

    async def _copy(self, bundle_id: str, file: anyio.AsyncFile[bytes]) -> None:
        offset = await file.tell()
        request = v1.GetBundleRequest(bundle_id=bundle_id, offset=offset)
        async with self._channel.server_stream(
            GET_BUNDLE, request, v1.BundleChunk, timeout_s=DOWNLOAD_TIMEOUT_S
        ) as chunks:
            async for chunk in chunks:
                if chunk.offset != offset or chunk.total_bytes > self._limits.packed_bytes:
                    raise BundleCorrupt(f"the bundle {bundle_id} came in a wrong order, or is larger than any")
                offset += len(chunk.data)
                if offset > chunk.total_bytes:
                    raise BundleCorrupt(f"the bundle {bundle_id} is longer than it was said to be")
                await file.write(chunk.data)

    def _install(self, bundle_id: str, temporary: Path, target: Path) -> None:
        verify(temporary / "zip", bundle_id)
        unpack(temporary / "zip", temporary / "unpacked", self._limits)
        try:
            (temporary / "unpacked").rename(target)
        except OSError:
            if not target.is_dir():  # else another worker was faster, with the same content
                raise
