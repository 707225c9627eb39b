"""The lines of a repository's small objects: facts with a version, as those of the journal.

A manifest of a repository is a text of lines. ``repository.attempt`` says whose it is, ``repository.packs`` names
packs, each ``repository.file`` begins a file, ``repository.chunks`` has chunks of the file before it, and
``repository.end`` has the digest of all lines before it. The other lines are objects of their own; a head has an
end, too, and between the two what is encrypted of it, and what it is signed with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from iriscw._errors import IriscwError
from iriscw.journal.records import REGISTRY, record
from iriscw.runtime.vocabulary import message


@record("repository.format")
@message
class FormatLine:
    """What a repository says of itself, so that an older iriscw keeps out of a newer one's."""

    format: int


@record("repository.attempt")
@message
class AttemptLine:
    """Whose manifest it is."""

    checkpoint: str
    attempt: str
    software: str
    stored_wall_ns: int
    added_bytes: int


@record("repository.packs")
@message
class PacksLine:
    """The next packs; chunks name them by their number, from 0 in the order of all these lines."""

    names: tuple[str, ...]


@record("repository.file")
@message
class StoredFileLine:
    """The beginning of a file."""

    name: str
    size_bytes: int


@record("repository.chunks")
@message
class ChunksLine:
    """The next chunks of the file: rows of :data:`iriscw.checkpoint.repository.contents.ROW`."""

    rows: bytes


@record("repository.end")
@message
class EndLine:
    """The SHA-256 of all lines before this one, hexadecimal."""

    digest: str


@record("repository.head")
@message
class HeadLine:
    """A checkpoint that can be seen, or will be; see :class:`~iriscw.checkpoint.repository.model.CheckpointHead`."""

    checkpoint: str
    attempt: str
    digest: str
    size_bytes: int
    stored_bytes: int
    added_bytes: int
    program: str
    source: str
    begun_wall_ns: int


@record("repository.key")
@message
class KeyLine:
    """Which key the manifest is encrypted with; see :mod:`iriscw.checkpoint.repository.hiding`."""

    key: str


@record("repository.body")
@message
class BodyLine:
    """The next bytes of an encrypted manifest: the lines of files and chunks."""

    data: bytes


@record("repository.hidden")
@message
class HiddenLine:
    """The line of a head as a whole, encrypted; the line before it lacks what is only here."""

    key: str
    data: bytes


@record("repository.signature")
@message
class SignatureLine:
    """A signature of the lines of a head before all signatures."""

    key: str
    signature: bytes


@record("repository.again")
@message
class AgainLine:
    """Says that another attempt stores the checkpoint of a head anew; it stands after all signatures."""

    attempt: str
    begun_wall_ns: int


@record("repository.tomb")
@message
class TombLine:
    """Says that nothing refers to an object; see :class:`~iriscw.checkpoint.repository.model.Tomb`."""

    token: str
    made_wall_ns: int
    removing: bool


Line = (
    FormatLine
    | AttemptLine
    | KeyLine
    | PacksLine
    | BodyLine
    | StoredFileLine
    | ChunksLine
    | EndLine
    | HeadLine
    | HiddenLine
    | SignatureLine
    | AgainLine
    | TombLine
)


def written(lines: Sequence[Line]) -> bytes:
    """Return the text of these lines.

    Raises:
        InvalidRecord: one is larger than a record may be.
    """
    return "".join(f"{REGISTRY.encode(line)}\n" for line in lines).encode()


def read(data: bytes) -> Iterator[Line]:
    """Read lines that somebody else may have written.

    Raises:
        ValueError: one is none of ours, of a newer version, or cut off.
    """
    if data[-1:] != b"\n":
        raise ValueError("is cut off")
    for number, text in enumerate(data.decode("ascii").split("\n")[:-1], 1):
        try:
            line = REGISTRY.read(text, f"line {number}")
        except IriscwError as error:
            raise ValueError(str(error)) from error
        except RecursionError as error:
            raise ValueError(f"line {number} is nested too deeply") from error
        if not isinstance(line, Line):
            raise ValueError(f"line {number} is not a line of a repository")  # noqa: TRY004 - what was read is wrong
        yield line
