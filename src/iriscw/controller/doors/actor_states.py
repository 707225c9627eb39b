"""Snapshots of hosted actors: a part of ControllerService, for the actors themselves.

An attempt keeps and reads the snapshots of its own job and of no other: whose they are is what its token says. They
lie in the cluster's object store, so they outlive the process and its worker, and go with the job's record.

One file for each snapshot. Its name begins with the attempt's number and the snapshot's number within the attempt, so
the latest one has the greatest name. A snapshot replaces another one by being there: only when all of it is stored are
those before it deleted. What a fenced attempt had on its way never hides what the attempt after it keeps.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import IO

import anyio
import anyio.to_thread
import attrs

from iriscw._errors import InvalidArgument
from iriscw.controller.doors.access import Access
from iriscw.controller.doors.rules import ACTOR_STATE_RULES, CHUNK_BYTES
from iriscw.controller.stores.archive import Filed
from iriscw.controller.stores.stores import Stores
from iriscw.files import make_private_folder
from iriscw.hosted.errors import NotHosted, SnapshotMismatch, SnapshotTooLarge
from iriscw.hosted.model import ACTOR_PORT, MAX_STATE_BYTES
from iriscw.jobs.messages import JobView
from iriscw.proto.iriscw import v1
from iriscw.rpc.errors import PermissionDenied
from iriscw.rpc.rules import ServicePart
from iriscw.rpc.tokens import Role

AT_A_TIME = 8
"""Snapshots that are being taken in; each takes room on the disk until it is stored."""

MAX_NUMBER = 10**12
"""Of snapshots of one attempt."""


@attrs.define
class ActorStateStatistics:
    """Snapshots since the start."""

    kept: int = 0
    kept_bytes: int = 0
    given: int = 0
    """To attempts that began anew with one."""


class ActorStatesDoor(ServicePart, v1.ControllerServiceBase):
    """Keeps snapshots of hosted actors.

    Args:
        access: says which attempts live.
        stores: ``states`` has the snapshots.
        folder: for what is on its way, mode 0700.
    """

    method_rules = ACTOR_STATE_RULES

    def __init__(self, access: Access, stores: Stores, folder: Path) -> None:
        self._access = access
        self._logs = stores.logs
        self._states = stores.states
        self._folder = folder
        self._room = anyio.Semaphore(AT_A_TIME)
        self._figures = ActorStateStatistics()

    def clear(self) -> None:
        """Remove what an earlier controller had on its way. Blocks on the disk."""
        if self._folder.exists():
            for each in self._folder.iterdir():
                each.unlink()

    def statistics(self) -> ActorStateStatistics:
        """Return figures of now."""
        return attrs.evolve(self._figures)

    async def _actor(self) -> JobView:
        """Return the job of the actor that calls."""
        principal = await self._access.client()
        if principal.role is not Role.JOB:
            raise PermissionDenied("snapshots are kept, and read, by the actor itself")
        view = await self._access.view(v1.JobRef(job_id=principal.job_id), principal)
        if view.spec.replicas != 1 or ACTOR_PORT not in view.spec.ports:
            raise NotHosted(f"{view.job_id} hosts no actor: that takes one task with a port {ACTOR_PORT!r}")
        return view

    async def put_actor_state(self, messages: AsyncIterator[v1.PutActorStateRequest]) -> v1.PutActorStateResponse:
        """Keep a snapshot; it is durable, and the latest one, when this returns."""
        view = await self._actor()
        first = await anext(messages, None)
        header = first.header if first is not None else None
        if header is None:
            raise InvalidArgument("the first message of a snapshot is its header")
        if header.size_bytes > MAX_STATE_BYTES:
            raise SnapshotTooLarge(f"a snapshot has at most {MAX_STATE_BYTES} bytes, not {header.size_bytes}")
        if header.size_bytes <= 0 or not 0 < header.number < MAX_NUMBER or not _is_sha256(header.sha256):
            raise InvalidArgument("what came is no header of a snapshot")
        await anyio.to_thread.run_sync(make_private_folder, self._folder)
        async with self._room:
            with tempfile.NamedTemporaryFile(dir=self._folder) as file:
                await _receive(messages, header, file)
                # Asked again: it may have been fenced while its bytes came.
                principal = await self._access.client()
                known = self._logs.attempt(principal.attempt_uid)
                if known is None:
                    raise PermissionDenied(f"attempt {principal.attempt_uid} is not known any more")
                name = f"{known.number:06d}-{header.number:012d}-{header.size_bytes}-{header.sha256}"
                key = self._states.key(view.job_id, name)
                await self._states.put(key, Path(file.name), header.size_bytes, header.sha256)
        await self._states.drop_before(view.job_id, name)
        self._figures.kept += 1
        self._figures.kept_bytes += header.size_bytes
        return v1.PutActorStateResponse()

    async def get_actor_state(self, message: v1.GetActorStateRequest) -> AsyncIterator[v1.ActorStatePart]:
        """Yield the latest snapshot, if there is one."""
        view = await self._actor()
        files = await self._states.of_job(view.job_id)
        if not files:
            return
        latest = max(files, key=lambda file: file.name)
        header = _header(latest)
        yield v1.ActorStatePart(header=header)
        async with aclosing(self._states.read(latest.key, header.size_bytes, header.sha256)) as pieces:
            async for piece in pieces:
                for begin in range(0, len(piece), CHUNK_BYTES):
                    yield v1.ActorStatePart(data=piece[begin : begin + CHUNK_BYTES])
        self._figures.given += 1


async def _receive(
    messages: AsyncIterator[v1.PutActorStateRequest], header: v1.ActorStateHeader, file: IO[bytes]
) -> None:
    """Write a snapshot's bytes to a file.

    Raises:
        SnapshotMismatch: they are not what the header says.
    """
    digest, received = hashlib.sha256(), 0
    async for message in messages:
        data = message.data
        if data is None:
            raise InvalidArgument("a snapshot has one header")
        received += len(data)
        if received > header.size_bytes:
            break
        digest.update(data)
        await anyio.to_thread.run_sync(file.write, data)
    await anyio.to_thread.run_sync(file.flush)
    if received != header.size_bytes or digest.hexdigest() != header.sha256:
        raise SnapshotMismatch(f"what was sent is not the snapshot of {header.size_bytes} bytes that was announced")


def _is_sha256(text: str) -> bool:
    return len(text) == 64 and all(each in "0123456789abcdef" for each in text)


def _header(file: Filed) -> v1.ActorStateHeader:
    _, number, size_bytes, sha256 = file.name.split("-")
    return v1.ActorStateHeader(sha256=sha256, size_bytes=int(size_bytes), number=int(number))
