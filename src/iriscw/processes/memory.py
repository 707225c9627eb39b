"""How much memory can still be had without swapping: the machine's, and what the limits of a control group leave.

Both layouts of control groups are read: the unified one (version 2), and the older one with a mount for memory alone
(version 1). A limit counts wherever it stands above a group, too, so all groups on the way up are asked. The part of a
group's memory that is a cache of files is free, because the kernel takes it back before it refuses anything: images and
weights that were read twice count as active there. Files in memory (tmpfs) are not in these figures.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

_MEMINFO: Final = Path("/proc/meminfo")
GROUPS: Final = Path("/sys/fs/cgroup")

_NO_LIMIT: Final = 1 << 60
"""What version 1 says of a group without a limit is larger than this, and no machine has as much."""


@attrs.frozen
class _Layout:
    """Where one version keeps its figures, and how it names them."""

    limit: str
    used: str
    caches: tuple[str, str]
    """The lines of ``memory.stat`` with the cache of files."""


_UNIFIED: Final = _Layout("memory.max", "memory.current", ("inactive_file", "active_file"))
_OLDER: Final = _Layout("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file"))


def machine_free_bytes(meminfo: Path = _MEMINFO) -> int:
    """Return what the machine can hand out without swapping (``MemAvailable``).

    A sandbox may show less than the kernel does: then it is what is free, with the cache of files as far as that is
    told. That is less than could be had, never more.
    """
    try:
        lines = dict(line.partition(":")[::2] for line in meminfo.read_text(encoding="ascii").splitlines())
        if "MemAvailable" in lines:
            return _kibibytes(lines, "MemAvailable")
        cached = _kibibytes(lines, "Cached") - _kibibytes(lines, "Shmem") if "Cached" in lines else 0
        return _kibibytes(lines, "MemFree") + max(0, cached)
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _kibibytes(lines: Mapping[str, str], name: str) -> int:
    return int(lines[name].split()[0]) * 1024


def group_of(pid: int | None = None) -> str:
    """Return the memory group of a process, or of this one; empty if it is in none, or has ended."""
    try:
        text = Path(f"/proc/{pid or 'self'}/cgroup").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
    return memory_group(text)


def memory_group(text: str) -> str:
    """Find the group that limits memory in ``/proc/<pid>/cgroup``: a path below the mounts, or nothing if none does."""
    found = ""
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if not colon or ".." in path.split("/"):  # it lies outside of the part of the tree that is seen here
            continue
        if "memory" in controllers.split(","):
            return f"memory{path}"
        if not controllers:
            found = path.lstrip("/") or "."
    return found


def group_free_bytes(group: str, groups: Path = GROUPS) -> int | None:
    """Return what the limits on a group and on those above it leave; None if there is no limit, or no group."""
    return min(limits_on(group, groups).values(), default=None)


def limits_on(group: str, groups: Path = GROUPS) -> dict[Path, int]:
    """Return the groups with a limit among a group and those above it, with what each of them leaves."""
    if not group:
        return {}
    older = Path(group).parts[:1] == ("memory",) and (groups / "memory" / _OLDER.limit).exists()
    layout = _OLDER if older else _UNIFIED
    place, found = groups / group, dict[Path, int]()
    while True:
        left = _free_bytes(place, layout)
        if left is not None:
            found[place] = left
        if place == groups or not place.is_relative_to(groups):
            return found
        place = place.parent


def free_bytes(pid: int | None = None) -> int:
    """Return what a process, or this one, can still take: the machine's memory, or less if its group is limited."""
    left = group_free_bytes(group_of(pid))
    return machine_free_bytes() if left is None else min(machine_free_bytes(), left)


def _free_bytes(place: Path, layout: _Layout) -> int | None:
    """Return what the limit of one group leaves.

    None if it has none. The first group of all has no files of a limit.
    """
    try:
        limit = (place / layout.limit).read_text(encoding="ascii").strip()
        if limit == "max" or int(limit) > _NO_LIMIT:
            return None
        used = int((place / layout.used).read_text(encoding="ascii"))
        stat = (place / "memory.stat").read_text(encoding="ascii")
    except (OSError, ValueError):
        return None
    figures = dict(line.partition(" ")[::2] for line in stat.splitlines())
    cached = sum(int(figures.get(name, 0)) for name in layout.caches)
    return max(0, int(limit) - max(0, used - cached))
