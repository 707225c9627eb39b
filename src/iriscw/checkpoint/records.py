"""The lines of a manifest, and what a move keeps over the death of the process that runs it: facts with a version.

A manifest is a text of lines, and the last one closes it: without it nothing was ever sealed. ``checkpoint.facts``
says what the artifact is, each ``checkpoint.file`` names one of its files, ``checkpoint.pieces`` has digests of pieces
of the file before it, and ``checkpoint.seal`` has the digest of all lines before it. No line has environment variables
or secrets (INV-C14).

``MoveBegan`` is written before the step it names is taken: what is found after a crash is the last step that *may* have
been taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from iriscw._errors import IriscwError
from iriscw.checkpoint.model import MovePhase, MovePlan
from iriscw.freeze.model import FrozenTree, Outcome
from iriscw.journal.records import REGISTRY, record
from iriscw.runtime.vocabulary import message


@record("checkpoint.facts")
@message
class FactsLine:
    """What the artifact is."""

    artifact: str
    labels: tuple[tuple[str, str], ...]
    software: str
    sealed_wall_ns: int
    algorithm: str
    frozen: FrozenTree


@record("checkpoint.file")
@message
class FileLine:
    """One of its files."""

    name: str
    size_bytes: int
    digest: str


@record("checkpoint.pieces")
@message
class PiecesLine:
    """Digests of the next pieces of the file in the line before, so that a piece can be compared by itself."""

    name: str
    digests: str
    """Hexadecimal, one after the other."""


@record("checkpoint.seal")
@message
class SealLine:
    """How much it is, and the digest of all lines before this one."""

    files: int
    size_bytes: int
    digest: str


Line = FactsLine | FileLine | PiecesLine | SealLine


def written(lines: Sequence[Line]) -> bytes:
    """Return the text of these lines.

    Raises:
        InvalidRecord: one is larger than a record may be.
    """
    return "".join(f"{REGISTRY.encode(line)}\n" for line in lines).encode()


def read(data: bytes) -> Iterator[Line]:
    """Read lines that somebody else may have written.

    Raises:
        ValueError: one is none of ours, or of a newer version.
    """
    text = data.decode("ascii")
    for number, each in enumerate(text.splitlines(), 1):
        try:
            line = REGISTRY.read(each, f"line {number}")
        except IriscwError as error:
            raise ValueError(str(error)) from error
        except RecursionError as error:
            raise ValueError(f"line {number} is nested too deeply") from error
        if not isinstance(line, FactsLine | FileLine | PiecesLine | SealLine):
            raise ValueError(f"line {number} is not a line of a manifest")  # noqa: TRY004 - what was read is wrong
        yield line


# Of a move


@record("checkpoint.move_accepted")
@message
class MoveAccepted:
    """It was asked for, and looks for the checkpoint."""

    plan: MovePlan
    wall_ns: int


@record("checkpoint.move_opened")
@message
class MoveOpened:
    """The checkpoint is pinned where it lies; it is being copied."""

    source: str
    """Empty: it lies in the target alone."""
    size_bytes: int
    digest: str
    there: bool = False
    """Whether the target has it already."""


@record("checkpoint.move_began")
@message
class MoveBegan:
    """A step is being taken."""

    phase: MovePhase


@record("checkpoint.move_undoing")
@message
class MoveUndoing:
    """It will not come to its end, and why; what was written is being removed."""

    kind: str
    text: str


@record("checkpoint.move_ended")
@message
class MoveEnded:
    """Nothing is owed any more."""

    outcome: Outcome
    kind: str
    text: str
    wall_ns: int
