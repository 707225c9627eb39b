"""Whose the folders have to be that say what is done: a journal names programs that are run as its reader."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from iriscw._errors import IriscwError, UsageError
from iriscw.agent.errors import UnsafeSocketFolder, UnsafeStateFolder
from iriscw.files import StateUnusable, make_private_folder
from iriscw.freeze.model import NoRoom


@contextlib.contextmanager
def usable(state: Path) -> Iterator[None]:
    """Give a name to what the file system says of the state folder before anything is touched.

    Raises:
        NoRoom: it is full.
        StateUnusable: anything else.
    """
    try:
        yield
    except IriscwError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoRoom(f"the file system of {state} is full: nothing was touched") from error
        why = error.strerror or error
        raise StateUnusable(f"{state} cannot be used, nothing was touched: {why}") from error


def check_state(folder: Path) -> None:
    """Make the state folder, or see that nobody but its owner, root or us, can put anything into it.

    A journal says which programs run as hooks, so whoever could put one there could run programs as the agent's user.

    Raises:
        UnsafeStateFolder: somebody else could.
        OSError: it cannot be made.
    """
    make_private_folder(folder)
    found = folder.stat()
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o022:
        raise UnsafeStateFolder(f"{folder} belongs to user {found.st_uid}, mode {found.st_mode & 0o7777:04o}: not safe")


def own_folder(folder: Path, refused: type[UsageError] = UnsafeSocketFolder) -> None:
    """Make a folder, or see that nobody but its owner, us, can enter it.

    Args:
        folder: that of the socket, or what ``refused`` is about.
        refused: what to say no with.

    Raises:
        UnsafeSocketFolder: it is somebody else's, or others can.
        OSError: it cannot be made.
    """
    make_private_folder(folder)
    found = folder.lstat()
    if not folder.is_dir() or folder.is_symlink() or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise refused(f"{folder} is not a folder of mode 0700 that belongs to user {os.geteuid()}")
