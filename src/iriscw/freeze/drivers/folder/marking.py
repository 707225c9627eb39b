"""The mark in the folder of an attempt: which checkpoint has this state of it, and which thaw has put it there.

The mark outlives the state: a program that goes on keeps that of the last freeze that carried its folder.

Everything here blocks.
"""

from __future__ import annotations

import json
from pathlib import Path

import attrs

from iriscw.files import decode_json, read_bounded, write_atomic
from iriscw.freeze.carried import MARK

_MAX_BYTES = 4096


@attrs.frozen
class FolderMark:
    """What a mark says. ``operation`` is the thaw that has put the folder there; empty: it was packed there."""

    checkpoint: str = ""
    operation: str = ""


def read_mark(folder: Path) -> FolderMark:
    """Read the mark of a folder; an empty one if it has none, or its program has spoilt it.

    Raises:
        OSError: it cannot be read.
    """
    try:
        found = decode_json(read_bounded(folder / MARK, _MAX_BYTES, below=folder))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError):
        return FolderMark()
    match found:
        case {"checkpoint": str(checkpoint), "operation": str(operation)}:
            return FolderMark(checkpoint, operation)
    return FolderMark()


def write_mark(folder: Path, checkpoint: str, operation: str = "") -> None:
    """Mark a folder, durably.

    Raises:
        OSError: as the file system says it.
    """
    write_atomic(folder / MARK, json.dumps({"checkpoint": checkpoint, "operation": operation}).encode())
