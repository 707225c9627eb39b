"""Values of a repository: chunks, files made of them, what was stored, and what is to be removed."""

from __future__ import annotations

import enum

import attrs


class ChunkCodec(enum.IntEnum):
    """How a chunk lies in its pack."""

    RAW = 0
    ZSTD = 1
    PAGES = 2
    """A bit for each page of 4 KiB, whether it has a byte other than 0, and those pages one after the other."""
    PAGES_ZSTD = 3
    """As PAGES, and that compressed."""
    ZEROS = 4
    """Nothing is stored: all its bytes are 0."""


@attrs.frozen
class ChunkPlace:
    """Where a chunk lies."""

    pack: str
    offset: int
    stored_bytes: int
    codec: ChunkCodec


@attrs.frozen
class Chunk:
    """A piece of a file."""

    digest: bytes
    """SHA-256 of its bytes, before anything was done to them."""
    size_bytes: int
    place: ChunkPlace


@attrs.frozen
class StoredFile:
    """A file: its chunks one after the other are its bytes."""

    name: str
    chunks: tuple[Chunk, ...]

    @property
    def size_bytes(self) -> int:
        """Return how long it is."""
        return sum(chunk.size_bytes for chunk in self.chunks)


@attrs.frozen
class Contents:
    """What one attempt to store a checkpoint has written: the manifest of a repository."""

    checkpoint: str
    attempt: str
    """Unlike that of all other attempts, of this checkpoint and of all others."""
    software: str
    stored_wall_ns: int
    added_bytes: int
    """Of packs that this attempt wrote."""
    files: tuple[StoredFile, ...]
    key: str = ""
    """The id of the key that its files, and all its chunks, are encrypted with; empty: they are not."""

    @property
    def packs(self) -> tuple[str, ...]:
        """Return the packs that its chunks lie in, each once."""
        places = (chunk.place for file in self.files for chunk in file.chunks)
        return tuple(dict.fromkeys(place.pack for place in places if place.stored_bytes))

    @property
    def stored_bytes(self) -> int:
        """Return what its chunks take, each counted once."""
        chunks = {chunk.digest: chunk.place.stored_bytes for file in self.files for chunk in file.chunks}
        return sum(chunks.values())


@attrs.frozen
class CheckpointHead:
    """What makes a checkpoint visible: which attempt it is, and the digest of that one's manifest.

    It is written before the attempt begins, with ``begun_wall_ns``: then nobody sees the checkpoint yet, and no
    collection takes the attempt's manifest. Its last change makes the checkpoint visible.
    """

    checkpoint: str
    attempt: str
    digest: str = ""
    """SHA-256 of the manifest, hexadecimal."""
    size_bytes: int = 0
    """Of its files."""
    stored_bytes: int = 0
    added_bytes: int = 0
    program: str = ""
    """The name of its first process: two checkpoints of one program share much."""
    source: str = ""
    """The first and the last line of the manifest of the tier, so that a listing reads nothing else; empty if they are
    too long for that."""
    begun_wall_ns: int = 0
    """When the attempt began; 0: it has ended, and the checkpoint can be seen."""


@attrs.frozen
class HeadSignature:
    """Who answers for a head, and so for the manifest that it names and all content below."""

    key: str
    """The id of the public key, as :func:`iriscw.checkpoint.repository.signatures.public_key_id` gives it."""
    signature: bytes


@attrs.frozen
class StoredAgain:
    """An attempt to store a checkpoint anew that can be seen meanwhile, as it was."""

    attempt: str
    begun_wall_ns: int


@attrs.frozen
class SignedHead:
    """A head as it was read, with what signatures are of."""

    head: CheckpointHead
    lines: bytes
    """The bytes of its lines before the signatures, as they stand in the object."""
    signatures: tuple[HeadSignature, ...]
    key: str = ""
    """The id of the key that a part of it is encrypted with, and the checkpoint; empty: it is not. Where the key is not
    here, the head has neither ``program`` nor ``source``."""
    again: StoredAgain | None = None
    """Of a checkpoint that can be seen, and is being stored anew. No signature is of that."""


@attrs.frozen
class Tomb:
    """A mark beside an object that nothing refers to: a later collection may remove the object.

    Whoever refers to the object meanwhile takes the mark away, unless the removal has begun.
    """

    key: str
    """Of the object."""
    token: str
    """Unlike that of any other mark, so that no two of them have the same content."""
    made_wall_ns: int
    removing: bool
    etag: str = ""
    """Of the mark, as it was read."""
