"""Folders that callers had checkpoints put into: each a tier of its own, known again after a restart.

A place is on the disk (``places.json``) before an operation may write to it, so that whoever takes the operation up
finds what it wrote. One whose folder has gone is forgotten when an agent begins.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from iriscw.agent.errors import TooManyPlaces
from iriscw.checkpoint.drivers.store import Folders
from iriscw.files import decode_json, read_bounded, write_atomic

PREFIX = "path:"
"""How the name of such a tier begins; its folder follows."""

MAX_PLACES = 1024
BUDGET_SHARE = 0.8
"""Of its file system, for a place: as for the tier "disk"."""

_MAX_FILE_BYTES = 8 << 20


def tier_of(folder: Path) -> str:
    """Give the name of a place's tier."""
    return f"{PREFIX}{folder}"


class Places:
    """The places of one agent. Its methods block.

    Args:
        file: where they are written down.

    Raises:
        OSError, ValueError: the file cannot be read, or is none of ours.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._folders: dict[str, Folders] = {}
        try:
            names = decode_json(read_bounded(file, _MAX_FILE_BYTES))
        except FileNotFoundError:
            return
        if not isinstance(names, list) or not all(isinstance(name, str) and name.startswith("/") for name in names):
            raise ValueError(f"{file} is no list of folders")
        for name in names:
            if Path(name).is_dir():
                self._folders[tier_of(Path(name))] = _folders(Path(name))

    def folders(self) -> dict[str, Folders]:
        """Give them as tiers."""
        return dict(self._folders)

    def add(self, folder: Path) -> str:
        """Know a folder from now on; give the name of its tier.

        Raises:
            TooManyPlaces: there are too many.
            OSError: it cannot be written down.
        """
        tier = tier_of(folder)
        if tier not in self._folders:
            if len(self._folders) >= MAX_PLACES:
                raise TooManyPlaces(f"checkpoints lie in {MAX_PLACES} folders already: remove some")
            self._write([*(str(each.root) for each in self._folders.values()), str(folder)])
            self._folders[tier] = _folders(folder)
        return tier

    def drop(self, tier: str) -> None:
        """Forget a place if no checkpoint is left in it. The folder stays: it is its caller's.

        Raises:
            OSError: it cannot be written down.
        """
        place = self._folders.get(tier)
        if place is None or place.listing():
            return
        del self._folders[tier]
        self._write([str(each.root) for each in self._folders.values()])

    def _write(self, names: list[str]) -> None:
        write_atomic(self._file, json.dumps(names).encode())


def _folders(folder: Path) -> Folders:
    found = os.statvfs(folder)
    return Folders(tier_of(folder), folder, int(found.f_blocks * found.f_frsize * BUDGET_SHARE))
