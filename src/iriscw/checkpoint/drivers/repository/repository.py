"""A :class:`~iriscw.checkpoint.ports.Repository` in an object store."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import anyio
import attrs

from iriscw.checkpoint.drivers.repository.collecting import collect
from iriscw.checkpoint.drivers.repository.cutting import PageCuts
from iriscw.checkpoint.drivers.repository.fetching import fetch_files, source_manifest, verify_files
from iriscw.checkpoint.drivers.repository.groups import unwrapped
from iriscw.checkpoint.drivers.repository.objects import RepositoryObjects
from iriscw.checkpoint.drivers.repository.protection import PLAIN, Protection
from iriscw.checkpoint.drivers.repository.storing import Storing
from iriscw.checkpoint.manifest import open_manifest, open_summary, summary_of
from iriscw.checkpoint.model import Collected, StoredCheckpoint
from iriscw.checkpoint.repository.contents import SOURCE_MANIFEST
from iriscw.checkpoint.repository.keys import head_key
from iriscw.checkpoint.repository.model import Contents
from iriscw.freeze.model import ArtifactRefused, ArtifactUnknown
from iriscw.freeze.ports import Report
from iriscw.objects.ports import IfMatch, ObjectChanged, ObjectStore

LOOKS: Final = 16
"""Checkpoints that are looked at at the same time."""


@attrs.frozen(eq=False)
class ObjectRepository:
    """Checkpoints in an object store.

    Attributes:
        bucket: where they lie; it is closed with the repository.
        place: its URL without secrets, for people.
        page_cuts: says where to cut files of pages.
        name: what users call it.
        protection: the keys of this machine.
    """

    bucket: ObjectStore
    place: str
    page_cuts: PageCuts
    name: str = "repository"
    protection: Protection = PLAIN
    objects: RepositoryObjects = attrs.field(
        init=False, default=attrs.Factory(lambda self: RepositoryObjects(self.bucket, self.protection), takes_self=True)
    )

    async def store(self, artifact: str, images: Path, manifest: bytes, report: Report) -> StoredCheckpoint:
        """See the port."""
        return await Storing(self.objects, self.page_cuts, artifact, images, manifest, report).run()

    async def manifest(self, artifact: str) -> bytes:
        """See the port."""
        return await source_manifest(self.objects, await self._contents(artifact))

    async def fetch(self, artifact: str, images: Path, report: Report, *, compare: bool = True) -> None:
        """See the port."""
        contents = await self._contents(artifact)
        files = [file for file in contents.files if file.name != SOURCE_MANIFEST]
        sealed = open_manifest(await source_manifest(self.objects, contents), artifact).files
        if {file.name: file.size_bytes for file in files} != {file.name: file.size_bytes for file in sealed}:
            raise ArtifactRefused(f"checkpoint {artifact} in the repository has other files than were sealed")
        await fetch_files(self.objects, contents, files, images, report, compare=compare)

    async def verify(self, artifact: str, report: Report) -> None:
        """See the port."""
        await verify_files(self.objects, await self._contents(artifact), report)

    async def has(self, artifact: str) -> bool:
        """See the port."""
        return await self.objects.looked_at() and await self.objects.shown(artifact) is not None

    async def listing(self) -> list[StoredCheckpoint]:
        """See the port."""
        if not await self.objects.looked_at():
            return []
        checkpoints = await self.objects.checkpoints()
        found: dict[str, StoredCheckpoint] = {}
        waiting = iter(checkpoints)

        async def look() -> None:
            for checkpoint in waiting:
                listed = await self._listed(checkpoint)
                if listed is not None:
                    found[checkpoint] = listed

        async with unwrapped(), anyio.create_task_group() as tasks:
            for _ in range(min(LOOKS, len(checkpoints))):
                tasks.start_soon(look)
        return [found[checkpoint] for checkpoint in checkpoints if checkpoint in found]

    async def _listed(self, checkpoint: str) -> StoredCheckpoint | None:
        """Return a checkpoint as a listing has it; None if it was removed meanwhile, or is being made."""
        try:
            shown = await self.objects.shown(checkpoint)
        except ArtifactRefused as error:
            return StoredCheckpoint(checkpoint, 0, 0, 0, trouble=str(error))
        if shown is None:
            return None
        head, manifest, trouble = shown[0], None, ""
        try:
            if head.source:  # one that is encrypted has none where its key is not here, which shown() refuses
                manifest = open_summary(head.source.encode(), checkpoint)
            else:
                data = await source_manifest(self.objects, await self.objects.contents(head))
                manifest = open_summary(summary_of(data), checkpoint)
        except (ArtifactRefused, ArtifactUnknown) as error:
            trouble = str(error)
        return StoredCheckpoint(checkpoint, head.size_bytes, head.stored_bytes, head.added_bytes, manifest, trouble)

    async def used_bytes(self) -> int:
        """See the port."""
        return sum([info.size_bytes async for info in self.objects.keys("")])

    async def remove(self, artifact: str) -> None:
        """See the port."""
        if not await self.objects.looked_at():
            raise ArtifactUnknown(f"there is no checkpoint {artifact} in the repository")
        try:
            found = await self.objects.shown(artifact)
            etag = found[1] if found is not None else ""
        except ArtifactRefused:  # it is damaged, and may be removed all the same
            etag = (await self.bucket.stat(head_key(artifact))).etag
        if not etag:
            raise ArtifactUnknown(f"there is no checkpoint {artifact} in the repository")
        try:
            await self.bucket.delete(head_key(artifact), condition=IfMatch(etag))
        except ObjectChanged as error:
            raise ArtifactUnknown(f"checkpoint {artifact} was removed by somebody else, or is stored anew") from error

    async def collect(self, *, grace_s: float) -> Collected:
        """See the port."""
        return await collect(self.objects, grace_ns=int(grace_s * 1e9))

    async def aclose(self) -> None:
        """See the port."""
        await self.bucket.aclose()

    async def _contents(self, artifact: str) -> Contents:
        found = await self.objects.shown(artifact) if await self.objects.looked_at() else None
        if found is None:
            raise ArtifactUnknown(f"there is no checkpoint {artifact} in the repository")
        return await self.objects.contents(found[0])
