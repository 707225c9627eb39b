"""Reading and writing what a repository says: manifests, heads, marks. Pure.

Whoever may write into the bucket may have written it, so nothing in it is believed: names are plain, numbers have
bounds, sizes add up, and the digests are compared. That finds damage. What finds forgery is a signature
(:mod:`iriscw.checkpoint.repository.signatures`).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, TypeVar

import attrs

from iriscw.checkpoint.manifest import ARTIFACT_ID, FILE_NAME, MAX_FILE_BYTES, MAX_FILES, MAX_MANIFEST_BYTES
from iriscw.checkpoint.repository.hiding import MORE_BYTES, Keys, NotOurs, Purpose, RepositoryKey, key_among
from iriscw.checkpoint.repository.keys import ATTEMPT, KEY_ID, PACK
from iriscw.checkpoint.repository.model import (
    CheckpointHead,
    Chunk,
    ChunkCodec,
    ChunkPlace,
    Contents,
    HeadSignature,
    SignedHead,
    StoredAgain,
    StoredFile,
    Tomb,
)
from iriscw.checkpoint.repository.records import (
    AgainLine,
    AttemptLine,
    BodyLine,
    ChunksLine,
    EndLine,
    FormatLine,
    HeadLine,
    HiddenLine,
    KeyLine,
    Line,
    PacksLine,
    SignatureLine,
    StoredFileLine,
    TombLine,
    read,
    written,
)
from iriscw.checkpoint.repository.signatures import MAX_SIGNATURES, SIGNATURE_BYTES
from iriscw.freeze.model import ArtifactRefused

FORMAT_NUMBER: Final = 2
"""The newest that this version reads."""

PLAIN_FORMAT: Final = 1
"""Of a repository in which nothing is signed or encrypted: versions that know of neither read it."""

PAGE_BYTES: Final = 4096
"""In the format, whatever the machine's pages are."""

WINDOW_BYTES: Final = 256 << 10
"""The longest chunk that this version cuts; a reader takes chunks of up to :data:`MAX_CHUNK_BYTES`."""

MAX_CHUNK_BYTES: Final = 16 << 20
MAX_PACK_BYTES: Final = 1 << 30
MAX_PACKS: Final = 1_000_000
MAX_STORED_MANIFEST_BYTES: Final = 512 << 20
"""Some 70 bytes for each chunk: 2 TiB of memory."""

MAX_SMALL_BYTES: Final = 1 << 20
"""Of a head, a mark, the list of recent heads."""

MAX_SOURCE_CHARS: Final = 256 << 10
"""Of the lines of the tier's manifest that stand in a head."""

ROW: Final = struct.Struct("<32sIIIIB")
"""A chunk in a manifest: its SHA-256, its size in bytes, the number of its pack, where it begins there, how many bytes
it takes there, and its :class:`~iriscw.checkpoint.repository.model.ChunkCodec`. Little endian, without gaps."""

ROWS_OF_LINE: Final = 2048
BYTES_OF_LINE: Final = 96 << 10
"""Of an encrypted manifest."""
NAMES_OF_LINE: Final = 1024

SOURCE_MANIFEST: Final = "manifest.jsonl"
"""The file that is the manifest of the tier which the checkpoint came from."""

NO_KEYS: Final[Keys] = {}

LineType = TypeVar("LineType")


def written_contents(contents: Contents, keys: Keys = NO_KEYS) -> bytes:
    """Return the text of a manifest, encrypted if it says so.

    Raises:
        InvalidRecord: a line is larger than a record may be.
        KeyMissing: its key is not among ``keys``.
    """
    packs = contents.packs
    numbers = {pack: number for number, pack in enumerate(packs)}
    begins = AttemptLine(
        contents.checkpoint, contents.attempt, contents.software, contents.stored_wall_ns, contents.added_bytes
    )
    clear: list[Line] = [begins, *([KeyLine(contents.key)] if contents.key else [])]
    clear += [PacksLine(packs[at : at + NAMES_OF_LINE]) for at in range(0, len(packs), NAMES_OF_LINE)]
    lines: list[Line] = []
    for file in contents.files:
        lines.append(StoredFileLine(file.name, file.size_bytes))
        for at in range(0, len(file.chunks), ROWS_OF_LINE):
            rows = [_row(chunk, numbers) for chunk in file.chunks[at : at + ROWS_OF_LINE]]
            lines.append(ChunksLine(b"".join(rows)))
    above, body = written(clear), written(lines)
    if contents.key:
        key = key_among(keys, contents.key, contents.checkpoint)
        hidden = key.hide(Purpose.MANIFEST, contents.attempt, body, above)
        parts = (hidden[at : at + BYTES_OF_LINE] for at in range(0, len(hidden), BYTES_OF_LINE))
        body = written([BodyLine(part) for part in parts])
    body = above + body
    return body + written([EndLine(hashlib.sha256(body).hexdigest())])


def _row(chunk: Chunk, numbers: dict[str, int]) -> bytes:
    place = chunk.place
    number = numbers[place.pack] if place.stored_bytes else 0
    return ROW.pack(chunk.digest, chunk.size_bytes, number, place.offset, place.stored_bytes, place.codec)


def read_contents(data: bytes, checkpoint: str, attempt: str, keys: Keys = NO_KEYS) -> Contents:
    """Read the manifest of this attempt to store this checkpoint, and check all that can be without its packs.

    Raises:
        ArtifactRefused: it is none of ours, or damaged.
        KeyMissing: it is encrypted, with a key that is not among ``keys``.
    """
    try:
        return _contents(data, checkpoint, attempt, keys)
    except _Refused as error:
        raise ArtifactRefused(f"checkpoint {checkpoint} in the repository: {error}") from error


def read_packs(data: bytes, checkpoint: str, attempt: str) -> tuple[str, ...]:
    """Return the packs that a manifest refers to, whether or not its key is here.

    Raises:
        ArtifactRefused: it is none of ours, or damaged.
    """
    try:
        begins, between = _between(data, checkpoint, attempt)
        if not (between and isinstance(between[0], KeyLine)):
            return _read(begins, between, "").packs
        packs, _ = _halves(between)
        _check_packs(packs)
        return tuple(packs)
    except _Refused as error:
        raise ArtifactRefused(f"checkpoint {checkpoint} in the repository: {error}") from error


def _contents(data: bytes, checkpoint: str, attempt: str, keys: Keys) -> Contents:
    begins, between = _between(data, checkpoint, attempt)
    key = between[0].key if between and isinstance(between[0], KeyLine) else ""
    if not KEY_ID.fullmatch(key):
        return _read(begins, between, "")
    packs, hidden = _halves(between)
    above = data[: data.find(b'["repository.body"')]
    try:
        clear = key_among(keys, key, checkpoint).show(Purpose.MANIFEST, attempt, hidden, above)
    except NotOurs as error:
        raise _Refused(f"its manifest is not what was encrypted with the key {key}") from error
    return _read(begins, [PacksLine(tuple(packs)), *_lines(clear)], key)


def _halves(between: list[Line]) -> tuple[list[str], bytes]:
    """Return what stands in an encrypted manifest: names of packs, and the encrypted bytes."""
    packs: list[str] = []
    hidden: list[bytes] = []
    for line in between[1:]:
        if isinstance(line, PacksLine) and not hidden:
            packs += line.names
        elif isinstance(line, BodyLine):
            hidden.append(line.data)
        else:
            raise _Refused("the lines of its manifest are in another order")
    return packs, b"".join(hidden)


def _between(data: bytes, checkpoint: str, attempt: str) -> tuple[AttemptLine, list[Line]]:
    match list(_lines(data)):
        case [AttemptLine() as begins, *between, EndLine() as end]:
            pass
        case _:
            raise _Refused("its manifest has no beginning, or no end")
    if hashlib.sha256(data[: data[:-1].rfind(b"\n") + 1]).hexdigest() != end.digest:
        raise _Refused("its manifest was changed: its digest is another one")
    if (begins.checkpoint, begins.attempt) != (checkpoint, attempt):
        raise _Refused(f"its manifest is that of {begins.checkpoint[:80]!r}, attempt {begins.attempt[:80]!r}")
    return begins, between


def _read(begins: AttemptLine, between: list[Line], key: str) -> Contents:
    packs: list[str] = []
    files: dict[str, tuple[int, list[Chunk]]] = {}
    last = ""
    for line in between:
        match line:
            case PacksLine() if not files:
                packs += line.names
            case StoredFileLine():
                if line.name in files or not FILE_NAME.fullmatch(line.name):
                    raise _Refused(f"it names a file {line.name[:80]!r} twice, or that is not a plain name")
                last, files[line.name] = line.name, (line.size_bytes, [])
            case ChunksLine() if last:
                files[last][1].extend(_chunks(line.rows, packs, MORE_BYTES if key else 0))
            case _:
                raise _Refused("the lines of its manifest are in another order")
    _check_packs(packs)
    _check_files(files)
    found = tuple(StoredFile(name, tuple(chunks)) for name, (_, chunks) in files.items())
    return Contents(
        checkpoint=begins.checkpoint,
        attempt=begins.attempt,
        software=begins.software,
        stored_wall_ns=begins.stored_wall_ns,
        added_bytes=begins.added_bytes,
        files=found,
        key=key,
    )


@lru_cache
def digest_of_zeros(size_bytes: int) -> bytes:
    """Return the digest of so many zeros: few sizes are asked for, and most of them are one."""
    return hashlib.sha256(bytes(size_bytes)).digest()


def _chunks(rows: bytes, packs: list[str], more: int) -> Iterator[Chunk]:
    if not rows or len(rows) % ROW.size:
        raise _Refused("a line of chunks is cut off")
    for digest, size, number, offset, stored, code in ROW.iter_unpack(rows):
        try:
            codec = ChunkCodec(code)
        except ValueError as error:
            raise _Refused(f"a chunk has the codec {code}, which this version does not know") from error
        if not 0 < size <= MAX_CHUNK_BYTES or offset + stored > MAX_PACK_BYTES:
            raise _Refused(f"a chunk of {size} bytes, at {offset} of its pack")
        if codec is ChunkCodec.ZEROS:
            fits, pack = (number, offset, stored, digest) == (0, 0, 0, digest_of_zeros(size)), ""
        else:
            fits = number < len(packs) and more < stored <= more + _most_stored(codec, size)
            fits = fits and (codec is not ChunkCodec.RAW or stored == more + size)
            pack = packs[number] if fits else ""
        if not fits:
            raise _Refused(f"a chunk that takes {stored} bytes in pack {number} of {len(packs)}")
        yield Chunk(digest, size, ChunkPlace(pack, offset, stored, codec))


def _most_stored(codec: ChunkCodec, size: int) -> int:
    """Return the most that a chunk takes in its pack: it is read into memory before its digest can be compared."""
    bits = codec in (ChunkCodec.PAGES, ChunkCodec.PAGES_ZSTD)
    return size + (-(-size // PAGE_BYTES // 8) if bits else 0)


def _check_packs(packs: list[str]) -> None:
    odd = [name for name in packs if not PACK.fullmatch(name)]
    if odd or len(packs) > MAX_PACKS or len(dict.fromkeys(packs)) != len(packs):
        raise _Refused(f"it names {len(packs)} packs, among them {odd[0][:80]!r}" if odd else "it names a pack twice")


def _check_files(files: dict[str, tuple[int, list[Chunk]]]) -> None:
    if SOURCE_MANIFEST not in files or len(files) > MAX_FILES + 1:
        raise _Refused(f"it has {len(files)} files, and has to have {SOURCE_MANIFEST}")
    for name, (size, chunks) in files.items():
        most = MAX_MANIFEST_BYTES if name == SOURCE_MANIFEST else MAX_FILE_BYTES
        if size != sum(chunk.size_bytes for chunk in chunks) or size > most:
            raise _Refused(f"the chunks of {name} are not the {size} bytes that it has")


def head_lines(head: CheckpointHead, key: RepositoryKey | None = None) -> bytes:
    """Return the lines of a head that a signature is of; with a key, what only names and describes is encrypted."""
    whole = written([HeadLine(*attrs.astuple(head))])
    if key is None:
        return whole
    clear = written([HeadLine(*attrs.astuple(_undescribed(head)))])
    return clear + written([HiddenLine(key.key, key.hide(Purpose.HEAD, head.attempt, whole, clear))])


def _undescribed(head: CheckpointHead) -> CheckpointHead:
    return attrs.evolve(head, program="", source="")


def written_head(lines: bytes, signatures: Sequence[HeadSignature] = (), again: StoredAgain | None = None) -> bytes:
    """Return the content of a head of these lines."""
    body = lines + written([SignatureLine(each.key, each.signature) for each in signatures])
    if again is not None:
        body += written([AgainLine(again.attempt, again.begun_wall_ns)])
    return body + written([EndLine(hashlib.sha256(body).hexdigest())])


def read_head(data: bytes, checkpoint: str, keys: Keys = NO_KEYS) -> SignedHead:
    """Read the head of this checkpoint. Its signatures are not looked at.

    Raises:
        ArtifactRefused: it is none of ours, or damaged.
    """
    try:
        found = _sealed_head(data, keys)
    except _Refused as error:
        raise ArtifactRefused(f"checkpoint {checkpoint} in the repository: its head {error}") from error
    if found.head.checkpoint != checkpoint:
        other = found.head.checkpoint[:80]
        raise ArtifactRefused(f"checkpoint {checkpoint} in the repository: its head is that of {other}")
    return found


def _sealed_head(data: bytes, keys: Keys) -> SignedHead:
    hidden: HiddenLine | None = None
    match list(_lines(data)):
        case [HeadLine() as line, HiddenLine() as hidden, *others, EndLine() as end]:
            pass
        case [HeadLine() as line, *others, EndLine() as end]:
            pass
        case _:
            raise _Refused("is none of ours")
    if hashlib.sha256(data[: data[:-1].rfind(b"\n") + 1]).hexdigest() != end.digest:
        raise _Refused("was changed: its digest is another one")
    again = _again(others.pop()) if others and isinstance(others[-1], AgainLine) else None
    if len(others) > MAX_SIGNATURES:
        raise _Refused(f"has {len(others)} signatures")
    signatures = tuple(_signature(each) for each in others)
    clear = data[: data.index(b"\n") + 1]
    if hidden is not None and not KEY_ID.fullmatch(hidden.key):
        raise _Refused(f"is encrypted with a key {hidden.key[:80]!r}")
    if hidden is None:
        return SignedHead(_head(line), clear, signatures, again=again)
    lines = data[: data.index(b"\n", len(clear)) + 1]
    return SignedHead(_described(line, hidden, clear, keys), lines, signatures, hidden.key, again)


def _described(line: HeadLine, hidden: HiddenLine, clear: bytes, keys: Keys) -> CheckpointHead:
    """Return a head with what is encrypted of it, as far as its key is here."""
    head = _head(line)
    if hidden.key not in keys:
        return head
    try:
        whole = _head(_sole(keys[hidden.key].show(Purpose.HEAD, head.attempt, hidden.data, clear), HeadLine))
    except NotOurs as error:
        raise _Refused(f"is not what was encrypted with the key {hidden.key}") from error
    if _undescribed(whole) != head:
        raise _Refused("is encrypted as another one")
    return whole


def _again(line: Line) -> StoredAgain:
    if not isinstance(line, AgainLine) or not ATTEMPT.fullmatch(line.attempt):
        raise _Refused("is stored again by something that is no attempt")
    return StoredAgain(line.attempt, line.begun_wall_ns)


def _signature(line: Line) -> HeadSignature:
    if not isinstance(line, SignatureLine) or not KEY_ID.fullmatch(line.key) or len(line.signature) != SIGNATURE_BYTES:
        raise _Refused("has a line that is no signature")
    return HeadSignature(line.key, line.signature)


def _head(line: HeadLine) -> CheckpointHead:
    if not ATTEMPT.fullmatch(line.attempt) or not ARTIFACT_ID.fullmatch(line.checkpoint):
        raise _Refused(f"names the attempt {line.attempt[:80]!r} of {line.checkpoint[:80]!r}")
    return CheckpointHead(
        line.checkpoint,
        line.attempt,
        line.digest,
        line.size_bytes,
        line.stored_bytes,
        line.added_bytes,
        line.program,
        line.source,
        line.begun_wall_ns,
    )


def written_heads(heads: Sequence[CheckpointHead]) -> bytes:
    """Return the content of a list of heads."""
    return written([HeadLine(*attrs.astuple(head)) for head in heads])


def read_heads(data: bytes) -> tuple[CheckpointHead, ...]:
    """Read a list of heads. One that is damaged is empty: nothing but sharing rests on it."""
    try:
        return tuple(_head(line) for line in _lines(data) if isinstance(line, HeadLine))
    except _Refused:
        return ()


def written_tomb(tomb: Tomb) -> bytes:
    """Return the content of a mark."""
    return written([TombLine(tomb.token, tomb.made_wall_ns, tomb.removing)])


def read_tomb(data: bytes, key: str, etag: str) -> Tomb:
    """Read the mark beside the object of this key.

    Raises:
        ArtifactRefused: it is none of ours, or damaged.
    """
    try:
        line = _sole(data, TombLine)
    except _Refused as error:
        raise ArtifactRefused(f"the mark beside {key[:200]} in the repository {error}") from error
    return Tomb(key, line.token, line.made_wall_ns, line.removing, etag)


def written_format(number: int) -> bytes:
    """Return what a repository of this format says of itself."""
    return written([FormatLine(number)])


def read_format(data: bytes) -> int:
    """Return the format of a repository; refuse one of a newer version, and what is not one.

    Raises:
        ArtifactRefused: it is such a one.
    """
    try:
        number = _sole(data, FormatLine).format
    except _Refused as error:
        raise ArtifactRefused(f"what lies there is not a repository of checkpoints: its format {error}") from error
    if not 1 <= number <= FORMAT_NUMBER:
        raise ArtifactRefused(f"the repository has format {number}, and this version reads up to {FORMAT_NUMBER}")
    return number


class _Refused(ValueError):
    """What is wrong with what was read; callers say where."""


def _sole(data: bytes, kind: type[LineType]) -> LineType:
    lines = list(_lines(data))
    if len(lines) != 1 or not isinstance(lines[0], kind):
        raise _Refused("is none of ours")
    return lines[0]


def _lines(data: bytes) -> Iterator[Line]:
    try:
        yield from read(data)
    except ValueError as error:
        raise _Refused(str(error)) from error
