"""Stores a checkpoint: its chunks that the repository lacks, in packs; then its manifest, then its head.

Theory of operation. Threads read files by the pieces of the tier's digests, each byte once, and compare the pieces,
hash and encode the chunks that begin in them. What they bring is taken in the order of the files, so the same input
makes the same packs (:mod:`iriscw.checkpoint.drivers.repository.packing`). Memory in flight is bounded by a buffer for
each thread and those of the packs (INV-C13).

A chunk is shared with those checkpoints whose manifests were read before: the recent ones, first those of the same
program. Nothing else is asked of the repository for a chunk, so what others store at the same time is not shared.

Removing and storing at the same time. A collection removes what no manifest refers to, in two passes: one puts a mark
beside an object; a later one, which has read all manifests *after* the mark was there, says in the mark that the
removal begins, and removes the object. So whoever refers to packs looks for marks when its manifest is written. A mark
that is there is taken away, and no later pass finds the pack without a reference. If the removal has begun, or the pack
is gone, its chunks are stored again. The manifest is protected by the head, which names the attempt from its beginning;
a collection gives attempts up that began long ago by removing their head, and then the last change of the head, which
makes the checkpoint visible, does not happen. No clock has to be right for that: one that is wrong costs work.

A checkpoint that can be seen is stored anew behind that: its head stays, and names the new attempt beside its own until
it is that one's. It is given up by taking that name away, which is a change as well.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import attrs

from iriscw._errors import OperationError
from iriscw._version import __version__
from iriscw.checkpoint.drivers.digests import Digest, digest_of, digest_of_pieces, listed, open_folder
from iriscw.checkpoint.drivers.repository.cutting import (
    BATCH_BYTES,
    Batch,
    BatchRead,
    Cut,
    PageCuts,
    batches,
    cut_of,
    cuts_in,
    read_batch,
)
from iriscw.checkpoint.drivers.repository.groups import unwrapped
from iriscw.checkpoint.drivers.repository.objects import RepositoryObjects, new_token
from iriscw.checkpoint.drivers.repository.packing import Packing
from iriscw.checkpoint.drivers.repository.protection import SigningKeyMissing
from iriscw.checkpoint.manifest import open_manifest, summary_of
from iriscw.checkpoint.model import KeyMissing, Manifest, StoredCheckpoint
from iriscw.checkpoint.repository.contents import (
    MAX_SOURCE_CHARS,
    MAX_STORED_MANIFEST_BYTES,
    ROW,
    SOURCE_MANIFEST,
    WINDOW_BYTES,
    written_contents,
)
from iriscw.checkpoint.repository.keys import PACKS, head_key, manifest_key, named_pack, pack_key, packs_of
from iriscw.checkpoint.repository.model import (
    CheckpointHead,
    Chunk,
    ChunkCodec,
    ChunkPlace,
    Contents,
    SignedHead,
    StoredAgain,
    StoredFile,
)
from iriscw.freeze.model import ArtifactRefused, ArtifactUnknown, Progress
from iriscw.freeze.ports import Report
from iriscw.objects.ports import Condition, Data, IfAbsent, IfMatch, ObjectChanged, ObjectExists, ObjectNotFound

log = logging.getLogger(__name__)

RELATIVES: Final = 8
"""Checkpoints whose chunks are shared."""

MAX_KNOWN: Final = 4_000_000
"""Chunks whose places are held in memory: 1 TiB."""

RENEWAL_S: Final = 600.0
"""How often an attempt says that it goes on: well within the grace of a collection."""

ATTEMPTS: Final = 5
"""How often a manifest is written anew because a collection removed what it refers to."""


class CheckpointTaken(ArtifactRefused):
    """The repository has another checkpoint of this id; nothing was changed."""


class StoringDisturbed(OperationError):
    """Others stored the same checkpoint, or removed what it shares, all the while; it cannot be seen."""

    retryable = True


@attrs.frozen
class _There:
    """A checkpoint that another call has stored, as it was read."""

    contents: Contents
    found: SignedHead
    etag: str


@attrs.define(eq=False)
class Storing:
    """One attempt to store one checkpoint."""

    objects: RepositoryObjects
    page_cuts: PageCuts
    artifact: str
    images: Path
    manifest: bytes
    report: Report
    threads: int = attrs.field(factory=lambda: max(1, os.cpu_count() or 1))
    attempt: str = attrs.field(factory=new_token, init=False)
    _places: dict[bytes, ChunkPlace] = attrs.field(factory=dict, init=False)
    """Where chunks lie, by their digest: those of relatives, and those of this attempt."""
    _added: int = attrs.field(default=0, init=False)
    _done: int = attrs.field(default=0, init=False)
    _etag: str = attrs.field(default="", init=False)
    """Of the head that says that this attempt has begun."""
    _seen: SignedHead | None = attrs.field(default=None, init=False)
    """The head of the checkpoint as it can be seen while this attempt stores it anew; None: it cannot be seen."""
    _renewed_at: float = attrs.field(default=0.0, init=False)

    async def run(self) -> StoredCheckpoint:
        """Store it; see :meth:`iriscw.checkpoint.ports.Repository.store`."""
        source = open_manifest(self.manifest, self.artifact)
        self.objects.protection.check_stores()
        await self.objects.begin()
        await self._learn(source)
        for _ in range(ATTEMPTS):
            there = await self._begin(source)
            if there is not None:
                self._check_same(there.contents)
                if await self._signed(there, source):
                    return _stored(there.contents, source)
            files = await self._files(source)
            contents = Contents(self.artifact, self.attempt, __version__, time.time_ns(), self._added, files, self._key)
            text = await anyio.to_thread.run_sync(written_contents, contents, self.objects.protection.keys)
            if len(text) > MAX_STORED_MANIFEST_BYTES:
                raise ArtifactRefused(f"checkpoint {self.artifact} has a manifest of {len(text)} bytes")
            await self._put(manifest_key(self.artifact, self.attempt), text)
            lost = await self._lost(contents.packs)
            if not lost and await self._shown(contents, text, source):
                return _stored(contents, source)
            log.info("checkpoint %s is stored again: a collection removed what it shared", self.artifact)
            self._places = {digest: place for digest, place in self._places.items() if place.pack not in lost}
            self.attempt = new_token()
        raise StoringDisturbed(f"checkpoint {self.artifact} was not stored: others disturbed it {ATTEMPTS} times")

    @property
    def _key(self) -> str:
        """Return the id of the key that this attempt encrypts with; empty: it does not encrypt."""
        own = self.objects.protection.own
        return own.key if own is not None else ""

    async def _begin(self, source: Manifest) -> _There | None:
        """Say that this attempt begins; or return what the checkpoint is already, if that is whole as far as is known.

        An attempt that has not ended is taken over: whoever made it has died, or begins anew. So is a checkpoint that
        cannot be read, or in whose packs damage was found: then it is stored again. So is one that is not encrypted
        with the key that it is to be encrypted with. What can be seen of it can be seen until it is another one.
        """
        try:
            found = await self.objects.signed_head(self.artifact)
        except ArtifactRefused as error:
            await self._begin_over_damage(error)
            return None
        self._seen = found[0] if found is not None and not found[0].head.begun_wall_ns else None
        if found is not None and not found[0].head.begun_wall_ns:
            try:
                there = await self.objects.contents(found[0].head)
            except KeyMissing:  # it may be whole
                raise
            except ArtifactRefused as error:
                log.warning("checkpoint %s is stored again: %s", self.artifact, error)
            else:
                damaged = await self.objects.damaged()
                if any(pack in damaged for pack in there.packs):
                    log.warning("checkpoint %s is stored again: damage was found in what it refers to", self.artifact)
                elif self._key in ("", there.key):
                    return _There(there, *found)
                else:
                    await self._check_again(there, found[0], source)
                    log.warning("checkpoint %s is stored again, encrypted with the key %s", self.artifact, self._key)
        try:
            await self._write_begun(IfAbsent() if found is None else IfMatch(found[1]))
        except (ObjectExists, ObjectChanged) as error:
            raise StoringDisturbed(f"somebody else stores the checkpoint {self.artifact} now") from error
        return None

    async def _begin_over_damage(self, damage: ArtifactRefused) -> None:
        """Say that this attempt begins, in the place of a head of which nobody can say what it was."""
        log.warning("checkpoint %s is stored again: %s", self.artifact, damage)
        self._seen = None
        try:
            await self._write_begun(IfMatch((await self.objects.store.stat(head_key(self.artifact))).etag))
        except (ObjectNotFound, ObjectChanged) as error:
            raise StoringDisturbed(f"somebody else stores the checkpoint {self.artifact} now") from error

    async def _write_begun(self, condition: Condition) -> None:
        now = time.time_ns()
        if self._seen is not None:
            self._etag = await self.objects.write_again(self._seen, StoredAgain(self.attempt, now), condition)
        else:
            head = CheckpointHead(self.artifact, self.attempt, begun_wall_ns=now)
            self._etag = await self.objects.write_head(head, condition)
        self._renewed_at = anyio.current_time()

    async def _renew(self) -> None:
        """Say from time to time that this attempt goes on: a collection gives up one that began long ago."""
        if anyio.current_time() - self._renewed_at >= RENEWAL_S:
            try:
                await self._write_begun(IfMatch(self._etag))
            except ObjectChanged:  # it was given up or taken over, which the end finds out
                self._renewed_at = anyio.current_time()

    def _check_same(self, contents: Contents) -> None:
        """Refuse what another call has stored, if that is not the same.

        Raises:
            CheckpointTaken: it is not.
        """
        held = next(file for file in contents.files if file.name == SOURCE_MANIFEST)
        digests = [(chunk.digest, chunk.size_bytes) for chunk in held.chunks]
        if digests != [(hashlib.sha256(piece).digest(), len(piece)) for piece in _windows(self.manifest)]:
            raise CheckpointTaken(f"the repository has another checkpoint {self.artifact}")

    async def _learn(self, source: Manifest) -> None:
        """Read what recent checkpoints have, first those of the same program."""
        heads, _ = await self.objects.recent()
        damaged = await self.objects.damaged()
        program = self.objects.protection.program(_program(source))
        for head in sorted(heads, key=lambda each: each.program != program)[:RELATIVES]:
            try:
                contents = await self.objects.contents_of_relative(head)
            except ArtifactRefused as error:
                log.warning("nothing is shared with checkpoint %s: %s", head.checkpoint, error)
                continue
            except ArtifactUnknown:  # it was removed
                continue
            if contents.key != self._key:  # what is encrypted is read with the key of its checkpoint
                continue
            for chunk in (chunk for file in contents.files for chunk in file.chunks):
                if len(self._places) >= MAX_KNOWN:
                    return
                if chunk.place.stored_bytes and chunk.place.pack not in damaged:
                    self._places.setdefault(chunk.digest, chunk.place)

    # Chunks

    async def _files(self, source: Manifest) -> tuple[StoredFile, ...]:
        """Store the chunks of all files, and the manifest of the tier as one of them."""
        self._done = 0
        sizes = [(file.name, file.size_bytes) for file in source.files]
        if SOURCE_MANIFEST in dict(sizes):
            raise ArtifactRefused(f"checkpoint {self.artifact} has a file {SOURCE_MANIFEST} among its images")
        folder = await anyio.to_thread.run_sync(open_folder, self.images)
        try:
            found = dict(await anyio.to_thread.run_sync(listed, folder))
            for name, size in sizes:
                if found.get(name) != size:
                    raise ArtifactRefused(f"artifact {self.artifact}: {name} has not the {size} bytes that are sealed")
            cuts = await anyio.to_thread.run_sync(cuts_in, folder, sizes, self.page_cuts)
            work = await anyio.to_thread.run_sync(lambda: list(batches(sizes, cuts)))
            chunks: dict[str, list[Chunk]] = {name: [] for name, _ in sizes}
            self._check_count(sum(max(0, len(batch.borders) - 1) for batch in work))
            await self._cut(folder, work, chunks, source)
        finally:
            os.close(folder)
        return tuple(StoredFile(name, tuple(chunks[name])) for name in sorted(chunks))

    def _check_count(self, count: int) -> None:
        """Refuse what would have too long a manifest, before any of it is written."""
        least = count * ROW.size * 4 // 3  # base64
        if least > MAX_STORED_MANIFEST_BYTES:
            raise ArtifactRefused(f"checkpoint {self.artifact} has a manifest of {least} bytes")

    async def _cut(self, folder: int, work: Sequence[Batch], chunks: dict[str, list[Chunk]], source: Manifest) -> None:
        """Have threads read all batches, and take what they bring in order; compare files with the tier's manifest.

        What is damaged is not stored as if it were whole.
        """
        made = digest_of(source.algorithm)
        turns = [anyio.Event() for _ in range(len(work) + 1)]
        turns[0].set()
        waiting = iter(enumerate(work))
        pieces: dict[str, bytearray] = {file.name: bytearray() for file in source.files}

        async def take(cuts: Sequence[Cut], into: list[Chunk]) -> None:
            into += [await self._chunk(cut, packing) for cut in cuts]
            self._done += sum(cut.size_bytes for cut in cuts)
            self.report(Progress("storing", self._done, source.sealed.size_bytes))

        async def work_off() -> None:
            largest = max((each.size_bytes for each in work), default=0)
            buffer = await anyio.to_thread.run_sync(bytearray, min(BATCH_BYTES, largest))
            for number, batch in waiting:
                taken = await anyio.to_thread.run_sync(self._read, folder, batch, buffer, made)
                await turns[number].wait()
                pieces[batch.file] += taken.digest
                await take(taken.cuts, chunks[batch.file])
                copies = packing.copies()
                turns[number + 1].set()
                await packing.copy(copies)  # before the buffer is used again

        async with unwrapped(), anyio.create_task_group() as uploads:
            packing = Packing(self.attempt, self._put_pack, self._renew, uploads)
            async with anyio.create_task_group() as workers:
                for _ in range(self.threads):
                    workers.start_soon(work_off)
            self._compare(source, made, pieces)
            chunks[SOURCE_MANIFEST] = []
            windows = _windows(self.manifest)
            cuts = await anyio.to_thread.run_sync(lambda: [self._hidden(cut_of(piece)) for piece in windows])
            await take(cuts, chunks[SOURCE_MANIFEST])
            await packing.finish()

    def _read(self, folder: int, batch: Batch, buffer: bytearray, made: Callable[[], Digest]) -> BatchRead:
        taken = read_batch(folder, batch, buffer, made, self._places.__contains__)
        return attrs.evolve(taken, cuts=tuple(self._hidden(cut) for cut in taken.cuts))

    def _hidden(self, cut: Cut) -> Cut:
        return self.objects.protection.hidden(cut, self.attempt)

    def _compare(self, source: Manifest, made: Callable[[], Digest], pieces: Mapping[str, bytes | bytearray]) -> None:
        for file in source.files:
            if digest_of_pieces(made, bytes(pieces[file.name])) != file.digest:
                raise ArtifactRefused(f"artifact {self.artifact}: {file.name} was changed: its digest is another one")

    async def _chunk(self, cut: Cut, packing: Packing) -> Chunk:
        """Return where a chunk lies, and give it a place in a pack if it lies nowhere."""
        if cut.codec is ChunkCodec.ZEROS:
            return Chunk(cut.digest, cut.size_bytes, ChunkPlace("", 0, 0, ChunkCodec.ZEROS))
        place = self._places.get(cut.digest)
        if place is None:
            assert cut.stored is not None
            pack, offset = await packing.place(cut.stored)
            place = ChunkPlace(pack, offset, len(cut.stored), cut.codec)
            self._places[cut.digest] = place
            self._added += len(cut.stored)
        return Chunk(cut.digest, cut.size_bytes, place)

    async def _put_pack(self, pack: str, data: memoryview) -> None:
        await self._put(pack_key(pack), data)

    async def _put(self, key: str, data: Data) -> None:
        try:
            await self.objects.store.put(key, data, condition=IfAbsent())
        except ObjectExists:  # nobody else has this name: an earlier try of this call has written it
            log.info("%s was written by a try that seemed to fail", key)

    # Making it visible

    async def _lost(self, packs: Sequence[str]) -> dict[str, None]:
        """Take marks away from packs that are referred to now; return those that cannot be had any more."""
        wanted = dict.fromkeys(packs)
        lost: dict[str, None] = {}
        for tomb in await self.objects.tombs(PACKS):
            pack = named_pack(tomb.key)
            if pack in wanted and (tomb.removing or not await self.objects.unmark(tomb)):
                lost[pack] = None
        there: dict[str, None] = {}
        for attempt in dict.fromkeys(pack.partition("-")[0] for pack in packs):
            async for info in self.objects.keys(packs_of(attempt)):
                there[named_pack(info.key)] = None
        lost.update((pack, None) for pack in wanted if pack not in there)
        return lost

    async def _shown(self, contents: Contents, text: bytes, source: Manifest) -> bool:
        """Make the checkpoint visible; False: a collection has given this attempt up, or another call took it over."""
        head = self._head(contents, hashlib.sha256(text).hexdigest(), source)
        try:
            await self.objects.write_head(head, IfMatch(self._etag), contents.key)
        except ObjectChanged as error:
            if self._seen is not None and await self.objects.head(self.artifact) is None:
                raise StoringDisturbed(f"checkpoint {self.artifact} was removed while it was stored again") from error
            return False
        try:
            program = self.objects.protection.program(head.program)
            await self.objects.add_recent(attrs.evolve(head, program=program, source=""))
        except OperationError as error:  # it is stored all the same, and others share less with it
            log.warning("checkpoint %s is not in the list of recent ones: %s", self.artifact, error)
        return True

    def _head(self, contents: Contents, digest: str, source: Manifest) -> CheckpointHead:
        lines = summary_of(self.manifest).decode("ascii")
        return CheckpointHead(
            checkpoint=self.artifact,
            attempt=contents.attempt,
            digest=digest,
            size_bytes=sum(file.size_bytes for file in source.files),
            stored_bytes=contents.stored_bytes,
            added_bytes=contents.added_bytes,
            program=_program(source),
            source=lines if len(lines) <= MAX_SOURCE_CHARS else "",
        )

    async def _signed(self, there: _There, source: Manifest) -> bool:
        """Sign what another call has stored, if it is what this machine has: all its files are read and compared.

        Returns:
            Whether it is signed. If not, its chunks are others than this machine cuts, and this attempt has begun.

        Raises:
            StoringDisturbed: it was removed or changed meanwhile.
            SignatureWrong: it has a wrong signature of a key that this machine trusts, and this machine signs nothing.
        """
        protection = self.objects.protection
        if protection.signer is None:
            protection.check_head(there.found)
            return True
        if protection.has_signed(there.found):
            return True
        condition = IfMatch(there.etag)
        try:
            if not await self._has_same_files(there.contents, source):
                log.warning("checkpoint %s is stored again: what is there is not what is here", self.artifact)
                await self._write_begun(condition)
                return False
            head = self._head(there.contents, there.found.head.digest, source)
            if head == there.found.head or protection.trusts(there.found):
                await self.objects.sign_head(there.found, condition)
            else:
                for each in there.found.signatures:
                    said = "checkpoint %s has another head than it should: the signature of the key %s goes with that"
                    log.warning(said, self.artifact, each.key)
                await self.objects.write_head(head, condition, there.contents.key)
        except ObjectChanged as error:
            raise StoringDisturbed(f"checkpoint {self.artifact} was changed while it was signed") from error
        return True

    async def _check_again(self, there: Contents, found: SignedHead, source: Manifest) -> None:
        """Refuse to take a checkpoint that can be seen from sight, unless this machine can put all of it back.

        Raises:
            ArtifactRefused: a file here is damaged, or what is there is another checkpoint.
            SigningKeyMissing: it is signed, and would be so no more.
        """
        self._check_same(there)
        if found.signatures and self.objects.protection.signer is None:
            raise SigningKeyMissing(
                f"checkpoint {self.artifact} in the repository is signed, and this machine has no key to sign it anew"
            )
        known = self._places
        await self._has_same_files(there, source)  # it reads and compares all of them
        self._places, self.attempt = known, new_token()

    async def _has_same_files(self, there: Contents, source: Manifest) -> bool:
        """Whether contents are made of the very chunks that this machine makes of its files: then none is stored."""
        known = self._places
        chunks = (chunk for file in there.files for chunk in file.chunks)
        self._places = {**known, **{chunk.digest: chunk.place for chunk in chunks}}
        self._renewed_at = anyio.current_time()  # no head says that this attempt has begun
        files = await self._files(source)
        if _digests(files) == _digests(there.files):
            return True
        self._places, self.attempt = known, new_token()
        return False


def _digests(files: Sequence[StoredFile]) -> dict[str, list[tuple[bytes, int]]]:
    return {file.name: [(chunk.digest, chunk.size_bytes) for chunk in file.chunks] for file in files}


def _windows(data: bytes) -> list[bytes]:
    return [data[at : at + WINDOW_BYTES] for at in range(0, len(data), WINDOW_BYTES)]


def _program(source: Manifest) -> str:
    return source.frozen.tasks[0].name


def _stored(contents: Contents, source: Manifest) -> StoredCheckpoint:
    size = sum(file.size_bytes for file in source.files)
    found = attrs.evolve(source, files=())
    return StoredCheckpoint(source.artifact, size, contents.stored_bytes, contents.added_bytes, found)
