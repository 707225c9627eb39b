"""Removes from a repository what no checkpoint refers to.

Theory of operation: see :mod:`iriscw.checkpoint.drivers.repository.storing`. A pass reads the marks first, then all
heads and all manifests, and then decides (:mod:`iriscw.checkpoint.repository.marking`). Passes of several machines at
the same time do no harm: a mark is changed by one of them only, and who did not change it removes nothing.
"""

from __future__ import annotations

import contextlib
import logging
import time
from typing import Final

import anyio
import anyio.to_thread

from iriscw.checkpoint.drivers.repository.groups import unwrapped
from iriscw.checkpoint.drivers.repository.objects import RepositoryObjects
from iriscw.checkpoint.model import Collected
from iriscw.checkpoint.repository.contents import MAX_STORED_MANIFEST_BYTES, read_packs
from iriscw.checkpoint.repository.keys import (
    HEADS,
    MANIFESTS,
    PACKS,
    damaged_key,
    head_key,
    manifest_key,
    named_head,
    named_manifest,
    named_pack,
    pack_key,
)
from iriscw.checkpoint.repository.marking import Plan, StoredObjects, planned
from iriscw.objects.ports import IfMatch, ObjectChanged, ObjectNotFound

log = logging.getLogger(__name__)

READINGS: Final = 16
"""Manifests that are read at the same time."""


async def collect(objects: RepositoryObjects, *, grace_ns: int) -> Collected:
    """Make one pass. Objects whose mark is younger than ``grace_ns`` stay; whoever fetches has that long.

    Raises:
        ArtifactRefused: a head, its manifest or a mark cannot be read. Nothing is removed then: it is not known what
            that one refers to.
    """
    if not await objects.looked_at():
        return Collected(0, 0, 0, 0, 0)
    tombs = await objects.tombs()
    marked = await _marked(objects)
    plan = planned(marked, tombs, now_wall_ns=time.time_ns(), grace_ns=grace_ns)
    return await _carried_out(objects, marked, plan)


async def _marked(objects: RepositoryObjects) -> StoredObjects:
    """Read what there is, and what refers to what; first the heads, because one is there before all that it names."""
    shown: dict[str, str] = {}
    begun: dict[str, tuple[str, int]] = {}
    again: dict[str, tuple[str, str, int]] = {}
    async for info in objects.keys(HEADS):
        checkpoint = named_head(info.key)
        found = await objects.signed_head(checkpoint) if checkpoint else None
        if found is not None:
            head, anew = found[0].head, found[0].again
            shown[checkpoint] = head.attempt
            if head.begun_wall_ns:
                begun[checkpoint] = (found[1], head.begun_wall_ns)
            elif anew is not None:
                again[checkpoint] = (anew.attempt, found[1], anew.begun_wall_ns)
    referred: dict[str, None] = {}
    waiting = iter([*shown.items(), *((checkpoint, attempt) for checkpoint, (attempt, _, _) in again.items())])

    async def read() -> None:
        for checkpoint, attempt in waiting:
            try:
                data = await objects.read(manifest_key(checkpoint, attempt), MAX_STORED_MANIFEST_BYTES)
            except ObjectNotFound:  # it is not written yet, or was removed meanwhile
                continue
            referred.update(dict.fromkeys(await anyio.to_thread.run_sync(read_packs, data, checkpoint, attempt)))

    async with unwrapped(), anyio.create_task_group() as tasks:
        for _ in range(READINGS):
            tasks.start_soon(read)
    sizes = {info.key: info.size_bytes async for info in objects.keys(MANIFESTS) if named_manifest(info.key)[0]}
    packs = {info.key: info.size_bytes async for info in objects.keys(PACKS) if named_pack(info.key)}
    return StoredObjects(shown, begun, sizes, packs, referred, again)


async def _carried_out(objects: RepositoryObjects, marked: StoredObjects, plan: Plan) -> Collected:
    for tomb in plan.unmark:
        await objects.unmark(tomb)
    for pack in await objects.damaged():
        if pack_key(pack) not in marked.packs:
            await objects.store.delete(damaged_key(pack))
    for checkpoint, etag in plan.give_up:
        with contextlib.suppress(ObjectChanged):  # it has ended, or was begun anew
            await objects.store.delete(head_key(checkpoint), condition=IfMatch(etag))
    for checkpoint, etag in plan.leave:
        found = await objects.signed_head(checkpoint)
        if found is not None and found[1] == etag:
            with contextlib.suppress(ObjectChanged):  # it has ended, or was begun anew
                await objects.write_again(found[0], None, IfMatch(etag))
    new = [key for key in plan.mark if await objects.mark(key) is not None]
    removed, removed_bytes = 0, 0
    for tomb in plan.remove:
        claimed = await objects.mark(tomb.key, removing=tomb)
        if claimed is None:  # somebody refers to it, or another pass removes it
            continue
        await objects.store.delete(tomb.key)
        await objects.unmark(claimed)
        removed += 1
        removed_bytes += marked.size_of(tomb.key)
    if removed:
        log.info("removed %d objects of %d bytes that nothing refers to", removed, removed_bytes)
    return Collected(len(marked.shown) - len(marked.begun), marked.kept_bytes, len(new), removed, removed_bytes)
