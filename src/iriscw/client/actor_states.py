"""The snapshots of the hosted actor that runs here, as the controller keeps them."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Final

from iriscw.client.calls import MethodCalls
from iriscw.hosted.errors import SnapshotMismatch, SnapshotTooLarge
from iriscw.hosted.model import MAX_STATE_BYTES
from iriscw.proto.iriscw.v1 import (
    ActorStateHeader,
    ActorStatePart,
    GetActorStateRequest,
    PutActorStateRequest,
    PutActorStateResponse,
)

CHUNK_BYTES: Final = 256 << 10
"""The protocol's own limit."""

UPLOAD_TIMEOUT_S: Final = 300.0
"""Of one try."""


class ControllerStates:
    """Snapshots of the job whose attempt this is.

    Args:
        calls: with the attempt's token: that is what says whose they are.
    """

    def __init__(self, calls: MethodCalls) -> None:
        self._calls = calls

    async def load(self) -> bytes | None:
        """Return the latest one; None: there is none.

        Raises:
            SnapshotMismatch: it is damaged.
            OperationError: it cannot be had.
        """
        header: ActorStateHeader | None = None
        data = bytearray()
        async with aclosing(self._calls.stream("GetActorState", GetActorStateRequest, ActorStatePart)) as parts:
            async for part in parts:
                if part.header is not None:  # the stream has begun, or begun again
                    header, data = part.header, bytearray()
                else:
                    data += part.data or b""
        if header is None:
            return None
        if len(data) != header.size_bytes or hashlib.sha256(data).hexdigest() != header.sha256:
            raise SnapshotMismatch(f"what came is not the snapshot of {header.size_bytes} bytes that was kept")
        return bytes(data)

    async def save(self, number: int, data: bytes) -> None:
        """Keep one, in place of those before it.

        Raises:
            SnapshotTooLarge: it is larger than any may be.
            OperationError: it cannot be kept now.
        """
        if len(data) > MAX_STATE_BYTES:
            raise SnapshotTooLarge(f"a snapshot has at most {MAX_STATE_BYTES} bytes, not {len(data)}")
        header = ActorStateHeader(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data), number=number)

        async def parts() -> AsyncIterator[PutActorStateRequest]:
            yield PutActorStateRequest(header=header)
            for begin in range(0, len(data), CHUNK_BYTES):
                yield PutActorStateRequest(data=data[begin : begin + CHUNK_BYTES])

        await self._calls.send(
            "PutActorState", parts, PutActorStateRequest, PutActorStateResponse, timeout_s=UPLOAD_TIMEOUT_S
        )


@asynccontextmanager
async def kept_states() -> AsyncIterator[ControllerStates]:
    """Yield the snapshots of the task that runs here; raises as ``connect()``."""
    from iriscw.client.client import connect

    async with connect() as client:
        yield ControllerStates(client.method_calls)
