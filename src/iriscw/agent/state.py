"""Whose the folders have to be that say what is done: a journal names programs that are run as its reader."""

from __future__ import annotations

import os
from pathlib import Path

from iriscw.agent.errors import UnsafeSocketFolder, UnsafeStateFolder
from iriscw.errors import UsageError
from iriscw.files import make_private_folder


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
