"""Whether images that CRIU calls complete can be restored at all, asked while the tree is still held.

CRIU finds some of what it cannot restore only when it restores: too late, because the tree has ended by then.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from iriscw.freeze.criu_images import NotFiles, NotTree, strays, unresolved_peers
from iriscw.freeze.model import CriuFailed, TargetUnfit

FILES: Final = "files.img"
TREE: Final = "pstree.img"


def check_whole(images: Path) -> None:
    """Refuse images that no CRIU restores. Blocks for some milliseconds a thousand open files.

    Raises:
        TargetUnfit: a Unix socket is connected to one outside of the tree that has not accepted it yet, or a process
            is in the session of one that is not above it.
        CriuFailed: CRIU wrote no list of files or tasks, or what is none.
    """
    try:
        lost = strays((images / TREE).read_bytes())
    except (OSError, NotTree) as error:
        raise CriuFailed(f"CRIU left no {TREE} that can be read: {error}") from error
    if lost:
        raise TargetUnfit(
            f"process {lost[0]} is in a session whose first process is not above it, as a daemon is that a process of "
            "the tree has adopted: it could be frozen, and would not come back whole"
        )
    try:
        unresolved = unresolved_peers((images / FILES).read_bytes())
    except (OSError, NotFiles) as error:
        raise CriuFailed(f"CRIU left no {FILES} that can be read: {error}") from error
    if unresolved:
        raise TargetUnfit(
            "it has a Unix socket whose other end is outside of its tree, and has not accepted the connection yet "
            f"(socket {unresolved[0]}): it could be frozen, and never thawed"
        )
