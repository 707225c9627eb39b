"""A folder on its way to the controller: packed as a bundle, sent in chunks, kept under the name of its content.

The same files are the same bundle, so sending one again stores nothing and a send that broke off may be repeated.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final, cast

import anyio.to_thread

from iriscw._errors import InvalidArgument
from iriscw.bundles.pack import InvalidBundleFolder, Packed, pack
from iriscw.client.calls import MethodCalls
from iriscw.proto.iriscw.v1 import BundleHeader, PutBundleRequest, PutBundleResponse

log = logging.getLogger("iriscw.client")

CHUNK_BYTES: Final = 256 << 10
"""The protocol's own limit."""

UPLOAD_TIMEOUT_S: Final = 900.0
"""Of one try: the largest bundle (256 MiB) at 300 KB a second, as a worker's download."""


async def upload(calls: MethodCalls, folder: str | os.PathLike[str], exclude: Sequence[str] = ()) -> str:
    """Send the files of a folder, without those that are excluded, and give the bundle's id.

    Raises:
        InvalidArgument: a pattern is none.
        BundleTooLarge: it holds more than a bundle may.
        InvalidBundleFolder: it is none, cannot be read, or holds what no bundle can.
        OperationError: the controller cannot take it now, or cannot be reached.
    """
    with tempfile.TemporaryFile() as file:
        packed = cast("BinaryIO", file)
        made = await anyio.to_thread.run_sync(_pack, Path(folder), packed, exclude)
        if made.useless:
            named = ", ".join(repr(each) for each in made.useless)
            log.warning("iriscw: nothing in %s fits what its bundle is to leave out: %s", folder, named)

        def parts() -> AsyncIterator[PutBundleRequest]:
            return _parts(packed, made)

        await calls.send("PutBundle", parts, PutBundleRequest, PutBundleResponse, timeout_s=UPLOAD_TIMEOUT_S)
    return made.bundle_id


async def bundled(calls: MethodCalls, folder: str | os.PathLike[str] | None, exclude: Sequence[str]) -> str:
    """Send a folder, if there is one, and give the bundle's id; empty if there is none.

    Raises:
        InvalidArgument: a pattern is none, or there is no folder that they could be for.
        BundleTooLarge, InvalidBundleFolder, OperationError: as :func:`upload`.
    """
    if folder is None and exclude:
        raise InvalidArgument("bundle_exclude: there is no bundle that it could be of")
    return "" if folder is None else await upload(calls, folder, exclude)


def _pack(folder: Path, target: BinaryIO, exclude: Sequence[str]) -> Packed:
    try:
        return pack(folder, target, exclude=exclude)
    except OSError as error:
        raise InvalidBundleFolder(f"{folder} cannot be packed: {error}") from error


async def _parts(packed: BinaryIO, made: Packed) -> AsyncIterator[PutBundleRequest]:
    yield PutBundleRequest(header=BundleHeader(bundle_id=made.bundle_id, size_bytes=made.size_bytes))
    packed.seek(0)
    while data := await anyio.to_thread.run_sync(packed.read, CHUNK_BYTES):
        yield PutBundleRequest(data=data)
