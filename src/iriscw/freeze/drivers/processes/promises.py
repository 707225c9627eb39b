"""Memory that operations are about to take, made known to all who freeze or thaw on this machine.

Who looks at what is free does not see what somebody else is about to take. So whoever will take some holds a name for
that (:mod:`iriscw.processes.names`), which says how much, and in which control groups. Each of two that begin at the
same moment is named before it looks: one of them sees the other, or both do, and never none.

Everything here blocks.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Final

import attrs

from iriscw.processes.names import held_names

PREFIX: Final = "iriscw-memory-"
_NAME: Final = re.compile(r"(?P<who>[0-9a-f]{12})-(?P<bytes>[0-9]{1,18})-(?P<groups>[0-9a-f.]*)")
_LEVELS: Final = 8
"""How many groups, the innermost ones, stand in a name, as it is short (``MAX_NAME_CHARS``)."""


@attrs.frozen
class MemoryPromise:
    """What somebody is about to take: how many bytes, and in which groups."""

    who: str
    size_bytes: int
    groups: tuple[str, ...]


def named(operation: str, size_bytes: int, group: str) -> str:
    """Return the name that says that an operation is about to take so much in a group, and in all above that."""
    return f"{PREFIX}{_digest(operation, 12)}-{size_bytes}-{'.'.join(_levels(group))}"


def promises(names: Iterable[str]) -> Iterator[MemoryPromise]:
    """Read names that begin with :data:`PREFIX`, given without it; what is nobody's promise is left out."""
    for name in names:
        found = _NAME.fullmatch(name)
        if found is not None:
            yield MemoryPromise(found["who"], int(found["bytes"]), tuple(filter(None, found["groups"].split("."))))


def left(machine_bytes: int, limits: Mapping[str, int], others: Iterable[MemoryPromise], besides_bytes: int) -> int:
    """Return what is left on the machine and within each limit, by its group, once others have taken what they will."""
    others = tuple(others)
    found = [machine_bytes - besides_bytes - sum(each.size_bytes for each in others)]
    for group, free in limits.items():
        level = _digest(group, 6)
        found.append(free - sum(each.size_bytes for each in others if level in each.groups))
    return min(found)


def of_others(operation: str) -> tuple[MemoryPromise, ...]:
    """Return what all others are about to take, as far as this network namespace shows them."""
    mine = _digest(operation, 12)
    return tuple(each for each in promises(held_names(PREFIX)) if each.who != mine)


def _levels(group: str) -> list[str]:
    path = PurePosixPath(group)
    return [_digest(str(each), 6) for each in (path, *path.parents)[:_LEVELS]]


def _digest(text: str, characters: int) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:characters]
