"""Reading and writing manifests, and what a manifest may say. Pure.

A manifest may have been written by anybody who could write into the folder, so nothing in it is believed: names are one
part without a separator, sizes add up, digests have their form, and the last line has the digest of all before it. That
last one is not a signature. It finds damage, not forgery; who may write into a tier is trusted (docs/freezing.md).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

import attrs

from iriscw.checkpoint.model import ImageFile, Manifest
from iriscw.checkpoint.records import FactsLine, FileLine, Line, PiecesLine, SealLine, read, written
from iriscw.freeze.model import MAX_TASKS, ArtifactRefused, FrozenTree, Sealed

MAX_FILES = 100_000
"""CRIU writes about ten for each process."""

MAX_MANIFEST_BYTES = 32 << 20
MAX_FILE_BYTES = 1 << 44
"""16 TiB: more than any machine has of memory."""

MAX_LABELS = 64
MAX_LABEL_CHARS = 256

ALGORITHMS = ("sha256-8m", "blake3-8m")
"""``X-8m``: the digest of the digests of a file's pieces of 8 MiB, so that one file can be read by many threads."""

PIECE_BYTES = 8 << 20
DIGEST_BYTES = 32
PIECES_OF = re.compile(r"pages-[0-9]+\.img")
"""Files whose pieces have digests of their own in the manifest: memory of processes, which may be read by pieces."""

MAX_PIECES_OF_LINE = 4096
"""So that a line stays a quarter of a record."""

FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
ARTIFACT_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_DIGESTS = re.compile(r"(?:[0-9a-f]{64})+")
_MAX_PID = 1 << 22


def seal(
    artifact: str,
    *,
    frozen: FrozenTree,
    files: tuple[ImageFile, ...],
    algorithm: str,
    labels: tuple[tuple[str, str], ...] = (),
    software: str = "",
    wall_ns: int = 0,
) -> tuple[bytes, Sealed]:
    """Return the text of a manifest, and what it says in short.

    Raises:
        InvalidRecord: a line is larger than a record may be.
    """
    ordered = sorted(files, key=lambda file: file.name)
    facts = FactsLine(artifact, labels, software, wall_ns, algorithm, frozen)
    lines: list[Line] = [facts, *(line for file in ordered for line in _file_lines(file))]
    body = written(lines)
    sealed = Sealed(sum(file.size_bytes for file in files), hashlib.sha256(body).hexdigest(), len(files))
    return body + written([SealLine(sealed.files, sealed.size_bytes, sealed.digest)]), sealed


def _file_lines(file: ImageFile) -> Iterator[FileLine | PiecesLine]:
    yield FileLine(file.name, file.size_bytes, file.digest)
    if PIECES_OF.fullmatch(file.name):
        step = MAX_PIECES_OF_LINE * DIGEST_BYTES
        for at in range(0, len(file.pieces), step):
            yield PiecesLine(file.name, file.pieces[at : at + step].hex())


def open_manifest(data: bytes, artifact: str) -> Manifest:
    """Read the manifest of this artifact, and check all that can be checked without its files.

    Raises:
        ArtifactRefused: it is none of ours; the text names the first thing that is wrong.
    """
    if data[-1:] != b"\n":  # other characters end a line, too, and then one changed bit would be none
        raise ArtifactRefused(f"artifact {artifact}: the manifest has no end")
    try:
        lines = list(read(data))
    except ValueError as error:
        raise ArtifactRefused(f"artifact {artifact}: {error}") from error
    manifest = _assembled(artifact, data, lines)
    trouble = _trouble(artifact, manifest)
    if trouble:
        raise ArtifactRefused(f"artifact {artifact}: {trouble}")
    return manifest


def named_in(data: bytes) -> str:
    """Return the id of which a manifest says that it is, whatever else is in it.

    Raises:
        ArtifactRefused: it says none.
    """
    try:
        first = next(read(data[: data.find(b"\n") + 1]), None)
    except ValueError as error:
        raise ArtifactRefused(f"the manifest cannot be read: {error}") from error
    if not isinstance(first, FactsLine) or not ARTIFACT_ID.fullmatch(first.artifact):
        raise ArtifactRefused("the manifest does not begin with the id of a checkpoint")
    return first.artifact


def summary_of(data: bytes) -> bytes:
    """Return the first and the last line of a manifest: what it says of the artifact without its files."""
    return data[: data.find(b"\n") + 1] + data[data[:-1].rfind(b"\n") + 1 :]


def open_summary(data: bytes, artifact: str) -> Manifest:
    """Read what :func:`summary_of` gave, as a manifest without files: for people, because its digest is not compared.

    Raises:
        ArtifactRefused: it is none of ours.
    """
    try:
        lines = list(read(data))
    except ValueError as error:
        raise ArtifactRefused(f"artifact {artifact}: {error}") from error
    match lines:
        case [FactsLine() as facts, SealLine() as last]:
            manifest = _manifest(facts, (), last)
        case _:
            raise ArtifactRefused(f"artifact {artifact}: its summary has other lines")
    trouble = label_trouble(manifest.labels) or _tasks_trouble(manifest)
    if trouble or manifest.artifact != artifact:
        raise ArtifactRefused(f"artifact {artifact}: {trouble or 'its summary is that of another one'}")
    return manifest


def _assembled(artifact: str, data: bytes, lines: list[Line]) -> Manifest:
    match lines:
        case [FactsLine() as facts, *between, SealLine() as last]:
            pass
        case _:
            raise ArtifactRefused(f"artifact {artifact}: the manifest has no end, or no beginning")
    files = _files(artifact, between)
    body = data[: data[:-1].rfind(b"\n") + 1]
    if hashlib.sha256(body).hexdigest() != last.digest:
        raise ArtifactRefused(f"artifact {artifact}: the manifest was changed: its digest is another one")
    return _manifest(facts, files, last)


def _manifest(facts: FactsLine, files: tuple[ImageFile, ...], last: SealLine) -> Manifest:
    return Manifest(
        artifact=facts.artifact,
        labels=facts.labels,
        software=facts.software,
        sealed_wall_ns=facts.sealed_wall_ns,
        algorithm=facts.algorithm,
        frozen=facts.frozen,
        files=files,
        sealed=Sealed(last.size_bytes, last.digest, last.files),
    )


def _files(artifact: str, lines: list[Line]) -> tuple[ImageFile, ...]:
    """Return the files that these lines name, each with the digests of its pieces, where there are some."""
    files: list[ImageFile] = []
    for line in lines:
        match line:
            case FileLine():
                files.append(ImageFile(line.name, line.size_bytes, line.digest))
            case PiecesLine() if files and files[-1].name == line.name and _DIGESTS.fullmatch(line.digests):
                files[-1] = attrs.evolve(files[-1], pieces=files[-1].pieces + bytes.fromhex(line.digests))
            case PiecesLine():
                raise ArtifactRefused(f"artifact {artifact}: digests of pieces that are none, or of no file")
            case _:
                raise ArtifactRefused(f"artifact {artifact}: the manifest has two beginnings, or two ends")
    return tuple(files)


def _trouble(artifact: str, manifest: Manifest) -> str:
    """Return the first thing that is wrong with it; empty if nothing is."""
    if manifest.artifact != artifact:
        return f"the manifest is that of {manifest.artifact[:80]!r}"
    if manifest.algorithm not in ALGORITHMS:
        return f"its digests are {manifest.algorithm[:80]!r}, which this version does not know"
    if len(manifest.files) > MAX_FILES or len(manifest.files) != manifest.sealed.files:
        return f"it names {len(manifest.files)} files, and {manifest.sealed.files} are sealed"
    seen: dict[str, None] = {}
    for file in manifest.files:
        trouble = _file_trouble(file)
        if trouble or file.name in seen:
            return trouble or f"it names {file.name} twice"
        seen[file.name] = None
    if sum(file.size_bytes for file in manifest.files) != manifest.sealed.size_bytes:
        return "the sizes of its files do not add up"
    return label_trouble(manifest.labels) or _tasks_trouble(manifest)


def _file_trouble(file: ImageFile) -> str:
    if not FILE_NAME.fullmatch(file.name):
        return f"it names a file {file.name[:80]!r}, which is not a plain name"
    if not 0 <= file.size_bytes <= MAX_FILE_BYTES:
        return f"{file.name} has {file.size_bytes} bytes"
    if not _DIGEST.fullmatch(file.digest):
        return f"{file.name} has no digest"
    if file.pieces and len(file.pieces) != max(1, -(-file.size_bytes // PIECE_BYTES)) * DIGEST_BYTES:
        return f"{file.name} has digests of {len(file.pieces) // DIGEST_BYTES} pieces"
    return ""


def _tasks_trouble(manifest: Manifest) -> str:
    pids = [task.identity.pid for task in manifest.frozen.tasks]
    if not 0 < len(pids) <= MAX_TASKS:
        return f"it has {len(pids)} processes"
    if len(dict.fromkeys(pids)) != len(pids) or not all(1 < pid <= _MAX_PID for pid in pids):
        return "its process numbers are none"
    if any(task.identity.pid not in pids for task in manifest.frozen.cuda_tasks):
        return "it has CUDA in a process that it does not have"
    return ""


def label_trouble(labels: tuple[tuple[str, str], ...]) -> str:
    """Say what is wrong with labels; empty if nothing is."""
    if len(labels) > MAX_LABELS:
        return f"{len(labels)} labels: at most {MAX_LABELS}"
    names = [name for name, _ in labels]
    if len(dict.fromkeys(names)) != len(names):
        return "a label has two values"
    for name, value in labels:
        if not name or len(name) > MAX_LABEL_CHARS or len(value) > MAX_LABEL_CHARS:
            return f"label {name[:80]!r}: from 1 to {MAX_LABEL_CHARS} characters"
        if not (name.isprintable() and value.isprintable()):
            return f"label {name[:80]!r}: printable characters only"
    return ""
