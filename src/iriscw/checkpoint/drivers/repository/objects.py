"""The small objects of a repository, read and written through an object store."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import time
from collections.abc import AsyncIterator

import anyio.to_thread
import attrs

from iriscw._errors import OperationError
from iriscw.checkpoint.drivers.repository.protection import PLAIN, Protection
from iriscw.checkpoint.repository.contents import (
    FORMAT_NUMBER,
    MAX_SMALL_BYTES,
    MAX_STORED_MANIFEST_BYTES,
    PLAIN_FORMAT,
    head_lines,
    read_contents,
    read_format,
    read_head,
    read_heads,
    read_tomb,
    written_format,
    written_head,
    written_heads,
    written_tomb,
)
from iriscw.checkpoint.repository.keys import (
    DAMAGED,
    FORMAT,
    HEADS,
    PACK,
    RECENT,
    TOMBS,
    damaged_key,
    head_key,
    manifest_key,
    named_head,
    named_manifest,
    named_pack,
    tomb_key,
)
from iriscw.checkpoint.repository.model import CheckpointHead, Contents, SignedHead, StoredAgain, Tomb
from iriscw.freeze.model import ArtifactRefused, ArtifactUnknown
from iriscw.objects.ports import (
    Condition,
    IfAbsent,
    IfMatch,
    ObjectChanged,
    ObjectExists,
    ObjectInfo,
    ObjectNotFound,
    ObjectStore,
)

log = logging.getLogger(__name__)

RECENT_HEADS = 64
RECENT_TRIES = 4
"""How often the list of recent heads is written anew when somebody else has written it meanwhile."""


def new_token() -> str:
    """Return a name that nobody else has."""
    return os.urandom(12).hex()


@attrs.define(eq=False)
class RepositoryObjects:
    """The small objects of one repository."""

    store: ObjectStore
    protection: Protection = PLAIN
    _known_format: bool = attrs.field(default=False, init=False)

    async def begin(self) -> None:
        """Say that this is a repository, if nobody has; refuse one of a newer version.

        Raises:
            ArtifactRefused: it is such a one, or something else lies there.
        """
        wanted = PLAIN_FORMAT if self.protection.stores_plain else FORMAT_NUMBER
        while not self._known_format:
            condition: Condition = IfAbsent()
            with contextlib.suppress(ObjectNotFound):
                data, info = await self.read_with_info(FORMAT, MAX_SMALL_BYTES)
                condition = IfMatch(info.etag)
                self._known_format = read_format(data) >= wanted
            if not self._known_format:  # somebody else may write it meanwhile, so it is read again
                with contextlib.suppress(ObjectExists, ObjectChanged):
                    await self.store.put(FORMAT, written_format(wanted), condition=condition)

    async def looked_at(self) -> bool:
        """Whether there is a repository at all, of a version that can be read.

        Raises:
            ArtifactRefused: it is of a newer version, or something else lies there.
        """
        try:
            read_format(await self.read(FORMAT, MAX_SMALL_BYTES))
        except ObjectNotFound:
            return False
        return True

    async def read(self, key: str, most_bytes: int) -> bytes:
        """Return an object.

        Raises:
            ObjectNotFound: there is none.
            ArtifactRefused: it is longer than such an object is.
        """
        return (await self.read_with_info(key, most_bytes))[0]

    async def read_with_info(self, key: str, most_bytes: int) -> tuple[bytes, ObjectInfo]:
        """Return an object, and which version of it that is; raises as :meth:`read`."""
        async with self.store.get(key) as reading:
            if reading.info.size_bytes > most_bytes:
                raise ArtifactRefused(f"{key} in the repository has {reading.info.size_bytes} bytes")
            return b"".join([chunk async for chunk in reading]), reading.info

    async def keys(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """Yield all objects whose keys begin like this, in order."""
        after: str | None = ""
        while after is not None:
            page = await self.store.list(prefix, after=after)
            for info in page.objects:
                yield info
            after = page.next_after

    # Heads and manifests

    async def shown(self, checkpoint: str) -> tuple[CheckpointHead, str] | None:
        """Return the head of a checkpoint that can be seen, as :meth:`head` does, if this machine accepts it.

        Raises:
            ArtifactRefused: it is none of ours, or damaged.
            SignatureMissing, SignatureWrong: no key that this machine trusts has signed it.
        """
        found = await self.signed_head(checkpoint)
        if found is None or found[0].head.begun_wall_ns:
            return None
        self.protection.check_head(found[0])
        return found[0].head, found[1]

    async def head(self, checkpoint: str) -> tuple[CheckpointHead, str] | None:
        """Return the head of a checkpoint with its etag, whoever signed it; None if there certainly is none.

        Raises:
            ArtifactRefused: it is none of ours, or damaged.
        """
        found = await self.signed_head(checkpoint)
        return None if found is None else (found[0].head, found[1])

    async def signed_head(self, checkpoint: str) -> tuple[SignedHead, str] | None:
        """Return a head as :meth:`head` does, with its signatures and its key."""
        try:
            data, info = await self.read_with_info(head_key(checkpoint), MAX_SMALL_BYTES)
        except ObjectNotFound:
            return None
        return read_head(data, checkpoint, self.protection.keys), info.etag

    async def contents(self, head: CheckpointHead) -> Contents:
        """Return what a head names.

        Raises:
            ArtifactUnknown: it is not there: the checkpoint was removed a moment ago.
            ArtifactRefused: it is none of ours, damaged, or gone although the checkpoint is there.
            KeyMissing: it is encrypted, and its key is not here.
        """
        key = manifest_key(head.checkpoint, head.attempt)
        try:
            data = await self.read(key, MAX_STORED_MANIFEST_BYTES)
        except ObjectNotFound as error:
            now = await self.shown(head.checkpoint)
            if now is not None and now[0].attempt == head.attempt:
                raise ArtifactRefused(
                    f"checkpoint {head.checkpoint} in the repository has lost its manifest"
                ) from error
            raise ArtifactUnknown(f"checkpoint {head.checkpoint} was removed from the repository") from error
        if hashlib.sha256(data).hexdigest() != head.digest:
            raise ArtifactRefused(f"checkpoint {head.checkpoint} in the repository: its manifest is another one")
        # In a thread, as all that takes seconds if it is long.
        return await anyio.to_thread.run_sync(read_contents, data, head.checkpoint, head.attempt, self.protection.keys)

    async def contents_of_relative(self, head: CheckpointHead) -> Contents:
        """Return what a head of the list of recent ones names; raises as :meth:`contents`.

        Raises:
            SignatureMissing, SignatureWrong: the checkpoint is not signed; in the list no head is.
        """
        if self.protection.trusted:
            found = await self.shown(head.checkpoint)
            if found is None:
                raise ArtifactUnknown(f"checkpoint {head.checkpoint} was removed from the repository")
            head = found[0]
        return await self.contents(head)

    async def write_head(self, head: CheckpointHead, condition: Condition, key: str = "") -> str:
        """Write the head of a checkpoint, signed if it can be seen and this machine signs; return its etag.

        ``key`` is the id of the key that the checkpoint is encrypted with.

        Raises:
            ObjectExists, ObjectChanged: the condition does not hold.
        """
        lines = head_lines(head, self.protection.keys[key] if key else None)
        signatures = () if head.begun_wall_ns else self.protection.signatures(lines)
        data = written_head(lines, signatures)
        return (await self.store.put(head_key(head.checkpoint), data, condition=condition)).etag

    async def write_again(self, found: SignedHead, again: StoredAgain | None, condition: Condition) -> str:
        """Say in a head that its checkpoint is stored anew, or (None) that it is not; return its etag.

        Raises:
            ObjectChanged: the condition does not hold.
        """
        data = written_head(found.lines, found.signatures, again)
        return (await self.store.put(head_key(found.head.checkpoint), data, condition=condition)).etag

    async def sign_head(self, found: SignedHead, condition: Condition) -> None:
        """Write a head as it is, with this machine's signature beside those that it has and that are not wrong.

        Raises:
            ObjectChanged: the condition does not hold.
        """
        others = self.protection.not_wrong(found)
        data = written_head(found.lines, self.protection.signatures(found.lines, others))
        await self.store.put(head_key(found.head.checkpoint), data, condition=condition)

    async def checkpoints(self) -> list[str]:
        """Return all checkpoints that have a head."""
        return [name async for name in (named_head(info.key) async for info in self.keys(HEADS)) if name]

    # Recent heads

    async def recent(self) -> tuple[tuple[CheckpointHead, ...], Condition]:
        """Return the heads that were written last, and the condition under which they may be written anew."""
        try:
            data, info = await self.read_with_info(RECENT, MAX_SMALL_BYTES)
        except ObjectNotFound:
            return (), IfAbsent()
        except ArtifactRefused:  # it is too long to be one, and is written anew
            return (), IfMatch((await self.store.stat(RECENT)).etag)
        return read_heads(data), IfMatch(info.etag)

    async def add_recent(self, head: CheckpointHead) -> None:
        """Add a head to those that were written last. If others are faster all the time it is left out: then less is
        shared, and nothing else.
        """
        for _ in range(RECENT_TRIES):
            known, condition = await self.recent()
            others = [each for each in known if each.checkpoint != head.checkpoint]
            try:
                await self.store.put(RECENT, written_heads([head, *others][:RECENT_HEADS]), condition=condition)
            except (ObjectExists, ObjectChanged):
                continue
            return
        log.info("checkpoint %s is not in the list of recent ones: others write it all the time", head.checkpoint)

    # Damage

    async def note_damage(self, pack: str) -> None:
        """Say that a pack is damaged, so that nobody shares its chunks any more; as well as that can be said."""
        try:
            await self.store.put(damaged_key(pack), b"\n")
        except OperationError as error:
            log.warning("pack %s of the repository is damaged, and that could not be noted: %s", pack, error)

    async def damaged(self) -> dict[str, None]:
        """Return the packs that somebody found damaged."""
        names = [info.key.removeprefix(DAMAGED) async for info in self.keys(DAMAGED)]
        return {name: None for name in names if PACK.fullmatch(name)}

    # Marks

    async def tombs(self, prefix: str = "") -> list[Tomb]:
        """Return the marks beside objects whose keys begin like this."""
        found = []
        async for info in self.keys(tomb_key(prefix)):
            key = info.key.removeprefix(TOMBS)
            if not (named_pack(key) or named_manifest(key)[0]):  # such as what a console makes of a folder
                continue
            try:
                data, read = await self.read_with_info(info.key, MAX_SMALL_BYTES)
            except ObjectNotFound:  # it was taken away meanwhile
                continue
            found.append(read_tomb(data, key, read.etag))
        return found

    async def mark(self, key: str, *, removing: Tomb | None = None) -> Tomb | None:
        """Put a mark beside an object, or say in the one that is there that the removal begins.

        Returns:
            The mark; None if somebody else was faster.
        """
        tomb = Tomb(key, new_token(), time.time_ns(), removing is not None)
        condition: Condition = IfAbsent() if removing is None else IfMatch(removing.etag)
        try:
            info = await self.store.put(tomb_key(key), written_tomb(tomb), condition=condition)
        except (ObjectExists, ObjectChanged):
            return None
        return attrs.evolve(tomb, etag=info.etag)

    async def unmark(self, tomb: Tomb) -> bool:
        """Take a mark away that nobody has changed; say whether it is gone."""
        try:
            await self.store.delete(tomb_key(tomb.key), condition=IfMatch(tomb.etag))
        except ObjectChanged:
            return False
        return True
