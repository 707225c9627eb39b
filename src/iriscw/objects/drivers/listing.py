"""Walk a tree of files in the order of keys, where a page can begin anywhere.

S3 lists keys in the order of their bytes, and there ``a-b`` comes before ``a/b`` because ``-`` is a smaller
byte than ``/``. So a folder is sorted as its name with a slash behind it; then depth-first order is key
order. Folders that cannot hold a wanted key are not opened. Memory is one folder's names per level.
"""

from __future__ import annotations

import os
import stat as stat_module
from collections.abc import Iterator

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OURS = ".iriscw-"


def walk(folder: int, prefix: str, after: str, above: str = "") -> Iterator[tuple[str, os.stat_result]]:
    """Yield key and status of each file below the open ``folder`` whose key is wanted; links are left out.

    ``above`` is the key of the folder itself, with a slash behind it.
    """
    for name, is_folder in _entries(folder):
        key = above + name
        if is_folder:
            key += "/"
            if _may_hold(key, prefix, after):
                yield from _below(folder, name, prefix, after, key)
        elif key.startswith(prefix) and key.encode() > after.encode():
            try:
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:  # deleted meanwhile
                continue
            if stat_module.S_ISREG(status.st_mode):
                yield key, status


def _below(folder: int, name: str, prefix: str, after: str, key: str) -> Iterator[tuple[str, os.stat_result]]:
    try:
        inner = os.open(name, _FLAGS, dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError):  # replaced meanwhile
        return
    try:
        yield from walk(inner, prefix, after, key)
    finally:
        os.close(inner)


def _entries(folder: int) -> list[tuple[str, bool]]:
    with os.scandir(folder) as entries:
        found = [
            (entry.name, entry.is_dir(follow_symlinks=False))
            for entry in entries
            if not entry.name.startswith(_OURS) and _is_text(entry.name)
        ]
    found.sort(key=lambda entry: os.fsencode(entry[0]) + (b"/" if entry[1] else b""))
    return found


def _is_text(name: str) -> bool:
    """Whether a key can have this name as a part: others are not ours, whoever made them."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def _may_hold(folder_key: str, prefix: str, after: str) -> bool:
    """Whether a key that begins with ``folder_key`` can begin with ``prefix`` and come after ``after``."""
    if not (folder_key.startswith(prefix) or prefix.startswith(folder_key)):
        return False
    return after.startswith(folder_key) or folder_key.encode() > after.encode()
