"""Bundles by way of the controller, over ``GetBundle``; a download that breaks off goes on where it was."""

from __future__ import annotations

from pathlib import Path

import anyio
import attrs

from iriscw.bundles.unpack import BundleCorrupt
from iriscw.proto.iriscw import v1
from iriscw.rpc.client import RpcChannel
from iriscw.rpc.errors import RpcUnavailable

GET_BUNDLE = "/iriscw.v1.WorkerService/GetBundle"
DOWNLOAD_TIMEOUT_S = 900.0
"""The largest bundle (256 MiB) at 300 KB a second."""
MAX_BREAKS = 5
PAUSE_S = 1.0


@attrs.frozen
class ControllerBundles:
    """What the controller has; see :class:`iriscw.bundles.cache.BundleSource`."""

    channel: RpcChannel

    async def download(self, bundle_id: str, path: Path, limit_bytes: int) -> None:
        """Write a bundle to a file, in as many calls as the connection needs."""
        breaks = 0
        async with await anyio.open_file(path, "wb") as file:
            while True:
                try:
                    await self._copy(bundle_id, file, limit_bytes)
                except RpcUnavailable:
                    breaks += 1
                    if breaks > MAX_BREAKS:
                        raise
                    await anyio.sleep(PAUSE_S * breaks)
                else:
                    return

    async def _copy(self, bundle_id: str, file: anyio.AsyncFile[bytes], limit_bytes: int) -> None:
        offset = await file.tell()
        request = v1.GetBundleRequest(bundle_id=bundle_id, offset=offset)
        async with self.channel.server_stream(
            GET_BUNDLE, request, v1.BundleChunk, timeout_s=DOWNLOAD_TIMEOUT_S
        ) as chunks:
            async for chunk in chunks:
                if chunk.offset != offset or chunk.total_bytes > limit_bytes:
                    raise BundleCorrupt(f"the bundle {bundle_id} came in a wrong order, or is larger than any")
                offset += len(chunk.data)
                if offset > chunk.total_bytes:
                    raise BundleCorrupt(f"the bundle {bundle_id} is longer than it was said to be")
                await file.write(chunk.data)
