"""A grant lets a frozen program go on: a file in its folder, for one thaw, that its supervisor takes once.

A frozen program is a set of images, and images can be brought back twice, or when the program was given up long ago
and begun elsewhere. So its supervisor (see :mod:`iriscw.processes.supervisor`), which comes back before all others,
takes the grant by renaming it, and without one it kills what came back before that has run. Whoever wants the program
to go on *offers* a grant before the thaw; whoever gives it up *withdraws* it first. Offer, taking and withdrawal are
each one operation of the file system, so one of the latter two succeeds.

==========================  ====================================================================
``grant.json``              offered: the id, its owner, and the file of the lease that holds then
``grant.json.taken``        the supervisor goes on under it
``grant.json.withdrawn``    nobody can take it any more
``grant.json.spent``        its owner has let the frozen program go
``let-go``                  whoever started it has: it is nobody's until the next grant
==========================  ====================================================================

A folder that is carried to another machine has no grant but spent ones (:mod:`iriscw.freeze.carried`): whoever lets the
program go on there offers its own, in the folder that has come.

An id names one thaw. A grant that was taken or withdrawn is not offered again, whoever asks (after a crash, say).

All functions block.
"""

from __future__ import annotations

import contextlib
import enum
import json
import os
from pathlib import Path

import attrs

from iriscw._errors import OperationError
from iriscw.files import decode_json, read_bounded, sync_folder, temporary_name, write_atomic
from iriscw.processes.status import NEVER_READ

MAX_GRANT_BYTES = 64 << 10
"""As ``supervisor.py`` has it."""

OFFERED = "grant.json"
TAKEN = "grant.json.taken"
WITHDRAWN = "grant.json.withdrawn"
SPENT = "grant.json.spent"
LET_GO = "let-go"
NOBODY = ""


class GrantRefused(OperationError):
    """The program cannot be granted to go on: somebody else may let it, or this grant is spent."""


class GrantStanding(enum.Enum):
    """What became of a grant."""

    NONE = "none"
    OFFERED = "offered"
    TAKEN = "taken"
    WITHDRAWN = "withdrawn"


@attrs.frozen
class Grant:
    """What is needed for one thaw. ``lease`` is the file that says until when the program may run from then on."""

    id: str
    owner: str
    lease: Path

    def encode(self) -> bytes:
        """Return the content of the file."""
        return json.dumps({"id": self.id, "owner": self.owner, "lease": str(self.lease)}).encode()


def decode(data: bytes) -> Grant:
    """Read the content of the file.

    Raises:
        ValueError: it is none.
    """
    match decode_json(data):
        case {"id": str(name), "owner": str(owner), "lease": str(lease)}:
            return Grant(name, owner, Path(lease))
    raise ValueError("it grants nothing")


def offer(folder: Path, grant: Grant) -> GrantStanding:
    """Let the frozen program of ``folder`` go on; repeating it is fine. Give what became of the grant.

    Raises:
        GrantRefused: another grant is on offer, or this one was withdrawn.
        OSError: as the file system says it; nothing was offered.
    """
    standing = standing_of(folder, grant.id)
    if standing in (GrantStanding.OFFERED, GrantStanding.TAKEN):
        return standing
    if standing is GrantStanding.WITHDRAWN:
        raise GrantRefused(f"the grant {grant.id} was withdrawn")
    temporary = folder / temporary_name(OFFERED)
    write_atomic(temporary, grant.encode())
    try:
        os.link(temporary, folder / OFFERED, follow_symlinks=False)  # unlike a rename it replaces nothing
    except FileExistsError as error:
        raise GrantRefused("another grant is on offer for this program") from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
    sync_folder(folder)
    return GrantStanding.OFFERED


def withdraw(folder: Path, grant_id: str) -> GrantStanding:
    """Take a grant back, if that can still be; repeating it is fine. Give what became of it.

    Only what was offered can be withdrawn: offers and withdrawals of one grant come from one owner, in turn.

    Raises:
        OSError: as the file system says it.
    """
    if standing_of(folder, grant_id) is GrantStanding.OFFERED:
        with contextlib.suppress(FileNotFoundError):  # its supervisor came first
            (folder / OFFERED).rename(folder / WITHDRAWN)
            sync_folder(folder)
    return standing_of(folder, grant_id)


def withdraw_all(folder: Path) -> None:
    """Take back whatever is on offer.

    Raises:
        OSError: as the file system says it.
    """
    with contextlib.suppress(FileNotFoundError):
        (folder / OFFERED).rename(folder / WITHDRAWN)
        sync_folder(folder)


def standing_of(folder: Path, grant_id: str) -> GrantStanding:
    """Say what became of a grant.

    Raises:
        OSError: as the file system says it.
    """
    # In the order in which a file moves: one that is moved between two looks is seen by the later.
    for name, standing in (
        (OFFERED, GrantStanding.OFFERED),
        (TAKEN, GrantStanding.TAKEN),
        (WITHDRAWN, GrantStanding.WITHDRAWN),
    ):
        found = _read(folder / name)
        if found is not None and found.id == grant_id:
            return standing
    return GrantStanding.NONE


def owner_of(folder: Path) -> str | None:
    """Say to whom the program was granted last: ``NOBODY`` once it was let go, None if it is still its starter's.

    Raises:
        OSError: as the file system says it.
    """
    found = _read(folder / OFFERED) or _read(folder / TAKEN)
    if found is not None:
        return found.owner
    return NOBODY if os.path.lexists(folder / LET_GO) else None


def let_go(folder: Path) -> None:
    """Say that the frozen program of ``folder`` is nobody's any more, until it is granted; repeating it is fine.

    For its owner only, and while nothing is on offer.

    Raises:
        OSError: as the file system says it.
    """
    write_atomic(folder / LET_GO, b"")  # first: between the two it is still its owner's
    with contextlib.suppress(FileNotFoundError):
        (folder / TAKEN).rename(folder / SPENT)
    sync_folder(folder)


def _read(path: Path) -> Grant | None:
    """Read a grant; None if there is none, or the program put something else there."""
    try:
        return decode(read_bounded(path, MAX_GRANT_BYTES))
    except (FileNotFoundError, ValueError):
        return None
    except OSError as error:
        if error.errno in NEVER_READ:
            return None
        raise
