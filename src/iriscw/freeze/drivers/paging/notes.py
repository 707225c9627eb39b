"""What a pager is told, and what it leaves in the folder of its operation for whoever waits, in this life or another.

=========================  =============================================================================================
``lazy-pages.socket``      where CRIU hands over the address spaces; the name is CRIU's
``pager.json``             who brings the pages, who guards that, and the tasks that wait for pages
``paging-end.json``        how it ended; it is written before the pager ends, and by its guard where it was killed
``paging-whole.json``      what ``paging-end.json`` becomes when all pages are there, written ahead: that needs no room
=========================  =============================================================================================
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Final

import attrs

from iriscw.files import decode_json, read_bounded, write_atomic
from iriscw.processes.identity import ProcessIdentity, decode_identity

SOCKET: Final = "lazy-pages.socket"
RECORD: Final = "pager.json"
END: Final = "paging-end.json"
WHOLE: Final = "paging-whole.json"

MAX_NOTE_BYTES: Final = 4 << 20
MAX_PLAN_BYTES: Final = 256 << 20
"""A tebibyte of pages has digests of 8 MiB."""

COMPLETE: Final = ""
"""The kind of an end that is none of an error."""
REFUSED: Final = "ArtifactRefused"
FAILED: Final = "PagingFailed"
KILLED: Final = "who brought its pages was killed"


PAGER_NAME: Final = "iriscw-pager"
"""How who brings the pages of a lazy thaw is named in ``/proc/<pid>/stat``, and its guard: at most 15 bytes."""


@attrs.frozen
class File:
    """A file of pages, as ``iriscw.freeze.model.PageFile`` has it. A pager starts at once, and that loads much more."""

    name: str
    size_bytes: int
    digests: bytes


@attrs.frozen
class PagingPlan:
    """All that a pager has to know."""

    images: Path
    work: Path
    algorithm: str
    piece_bytes: int
    files: tuple[File, ...]
    restore_ns: int
    """For CRIU, from the moment in which the pager is ready."""
    paging_ns: int
    """For all pages, from the moment in which CRIU has brought the tree back."""


@attrs.frozen
class PagerNote:
    """Who brings the pages, and for whom."""

    pager: ProcessIdentity
    guard: ProcessIdentity | None
    """None until there is one: nothing of the tree runs before that."""
    tasks: tuple[ProcessIdentity, ...] = ()


@attrs.frozen
class PagingEnd:
    """How a paging ended: the class of the error, empty if there was none, and a sentence."""

    kind: str
    text: str = ""


def encode_plan(plan: PagingPlan) -> bytes:
    """Return a plan as bytes."""
    content = attrs.asdict(plan, recurse=False) | {
        "images": str(plan.images),
        "work": str(plan.work),
        "files": [[each.name, each.size_bytes, each.digests.hex()] for each in plan.files],
    }
    return json.dumps(content).encode()


def decode_plan(data: bytes) -> PagingPlan:
    """Read what :func:`encode_plan` gave: from whoever started this process, and nobody else.

    Raises:
        ValueError, KeyError, TypeError: it is something else.
    """
    content = json.loads(data)
    files = tuple(File(name, size, bytes.fromhex(digests)) for name, size, digests in content.pop("files"))
    return PagingPlan(images=Path(content.pop("images")), work=Path(content.pop("work")), files=files, **content)


def write_pager(work: Path, pager: PagerNote) -> None:
    """Write down who brings the pages.

    Raises:
        OSError: it cannot be written.
    """
    write_atomic(work / RECORD, json.dumps(attrs.asdict(pager)).encode(), durable=False)


def read_pager(work: Path) -> PagerNote | None:
    """Read who brings the pages; None if nobody does, or what stands there says nothing.

    Raises:
        OSError: it cannot be read at present; that says nothing about the pager.
    """
    try:
        match decode_json(read_bounded(work / RECORD, MAX_NOTE_BYTES)):
            case {"pager": pager, "guard": guard, "tasks": list(tasks)}:
                living = tuple(decode_identity(each) for each in tasks)
                return PagerNote(decode_identity(pager), None if guard is None else decode_identity(guard), living)
    except (FileNotFoundError, ValueError):
        return None
    return None


def write_end(work: Path, end: PagingEnd) -> None:
    """Write down how it ended: the first end counts.

    Raises:
        OSError: it cannot be written.
    """
    if read_end(work) is None:
        write_atomic(work / END, json.dumps(attrs.asdict(end)).encode(), durable=False)


def prepare_complete(work: Path) -> None:
    """Write ahead what :func:`write_complete` puts in its place.

    Raises:
        OSError: it cannot be written.
    """
    write_atomic(work / WHOLE, json.dumps(attrs.asdict(PagingEnd(COMPLETE))).encode(), durable=False)


def write_complete(work: Path) -> None:
    """Put in its place that all pages are there, on a full disk as well. May be repeated.

    Raises:
        OSError: it was not prepared, or the file system is not what it was.
    """
    if read_end(work) is None:
        (work / WHOLE).replace(work / END)


def say(text: str, error: BaseException) -> None:
    """Say it where the pager's errors are, if it can be said there."""
    with contextlib.suppress(OSError, MemoryError):
        os.write(2, f"{text}: {type(error).__name__}: {error}\n".encode(errors="replace"))


def read_end(work: Path) -> PagingEnd | None:
    """Read how it ended; None if it has not, or what stands there says nothing.

    Raises:
        OSError: it cannot be read at present; that says nothing about the end.
    """
    try:
        match decode_json(read_bounded(work / END, MAX_NOTE_BYTES)):
            case {"kind": str(kind), "text": str(text)}:
                return PagingEnd(kind, text)
    except (FileNotFoundError, ValueError):
        return None
    return None
