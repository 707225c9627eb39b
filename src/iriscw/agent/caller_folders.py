"""Folders that callers had checkpoints put into: each a tier of its own, known again after a restart.

A place is on the disk (``places.json``) before an operation may write to it, so that whoever takes the operation up
finds what it wrote. One whose folder has gone is forgotten when an agent begins, and with those that are empty when the
next one is added.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import stat
from collections.abc import Collection
from pathlib import Path

from iriscw.agent.errors import TooManyPlaces
from iriscw.checkpoint.drivers.store import Folders
from iriscw.files import decode_json, read_bounded, write_atomic
from iriscw.freeze.drivers.criu.network import forget
from iriscw.freeze.model import NoRoom, UnsafeRequest

log = logging.getLogger(__name__)

PREFIX = "path:"
"""How the name of such a tier begins; its folder follows."""

MAX_PLACES = 1024
BUDGET_SHARE = 0.8
"""Of its file system, for a place: as for the tier on disk."""

_MAX_FILE_BYTES = 8 << 20


def tier_of(folder: Path) -> str:
    """Return the name of a place's tier."""
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
            raise ValueError(f"{file} is not a list of folders")
        for name in names:
            if not _gone(Path(name)):
                self._folders[tier_of(Path(name))] = _folders(Path(name))

    def folders(self) -> dict[str, Folders]:
        """Return them as tiers."""
        return dict(self._folders)

    def add(self, folder: Path, used: Collection[str] = ()) -> str:
        """Know a folder from now on, and no more those that have gone or are empty; give the name of its tier.

        Args:
            folder: the folder.
            used: the tiers that operations work on: theirs are never forgotten.

        Raises:
            TooManyPlaces: there are too many.
            NoRoom: the disk is too full to write it down.
            OSError: it cannot be written down.
        """
        tier = tier_of(folder)
        if tier not in self._folders:
            kept = {name: each for name, each in self._folders.items() if name in used or not _forgettable(each)}
            if len(kept) >= MAX_PLACES:
                raise TooManyPlaces(f"checkpoints lie in {MAX_PLACES} folders already: remove some")
            kept[tier] = _folders(folder)
            self._write([str(each.root) for each in kept.values()])
            self._folders = kept
        return tier

    def drop(self, tier: str) -> None:
        """Forget a place if no checkpoint is left in it. The folder stays: it is its caller's.

        Raises:
            NoRoom, OSError: it cannot be written down.
        """
        place = self._folders.get(tier)
        if place is None or not _forgettable(place):
            return
        del self._folders[tier]
        self._write([str(each.root) for each in self._folders.values()])

    def _write(self, names: list[str]) -> None:
        try:
            write_atomic(self._file, json.dumps(names).encode())
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise NoRoom(f"the file system of {self._file} is full") from error
            raise


def _gone(folder: Path) -> bool:
    """Whether it is certainly no folder any more; one that cannot be looked at may come back."""
    try:
        return not stat.S_ISDIR(os.lstat(folder).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False


def _forgettable(place: Folders) -> bool:
    """Whether nothing would be lost with it. One that is not ours for now is kept: it may be ours again."""
    if _gone(place.root):
        return True
    try:
        return place.empty()
    except (UnsafeRequest, OSError):
        return False


def _folders(folder: Path) -> Folders:
    try:
        found = os.statvfs(folder)
    except OSError as error:
        log.warning("%s, where a checkpoint may lie, cannot be looked at: %s", folder, error)
        return Folders(tier_of(folder), folder, 0, forget=forget)  # nothing can be written to it either
    return Folders(tier_of(folder), folder, int(found.f_blocks * found.f_frsize * BUDGET_SHARE), forget=forget)
