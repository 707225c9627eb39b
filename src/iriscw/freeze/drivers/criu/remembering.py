"""What CRIU was found to be able to, kept in a file: a command does not have it check itself each time.

The file is one of this user's state folder. It holds for one program, known by its path, size, times and inode, in one
boot of one kernel, for one set of rights: when any of these differs CRIU checks itself again, and the file is written
anew. So it is when the file is damaged, or somebody else could have written it. What was not found is looked for again
after a while (:data:`~iriscw.freeze.drivers.criu.ability.AGAIN_S`), from whichever command.

What stands there never says *which* program is run: that is found each time, and only its abilities are read here.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import time
from pathlib import Path
from typing import Final

import attrs

from iriscw.files import decode_json, read_bounded, write_atomic
from iriscw.freeze.drivers.criu.ability import AGAIN_S, FEATURES, SURE, probe
from iriscw.freeze.drivers.criu.finding import find_criu
from iriscw.freeze.model import CriuAbility
from iriscw.processes.identity import boot_id

log = logging.getLogger(__name__)

MAX_BYTES: Final = 1 << 14
WRAPPED: Final = ".bin"
"""Of the program that ``install-criu`` puts beside the script that starts it: a new one is another CRIU."""

_RIGHTS: Final = ("Uid:", "CapEff:", "CapBnd:", "NoNewPrivs:", "Seccomp:")
"""Lines of ``/proc/self/status`` on which it depends what CRIU may do."""

_NAMESPACES: Final = ("user", "net", "mnt", "pid")
"""Others have other rights, and other tables of rules."""

Key = dict[str, str | list[list[int]]]


@attrs.frozen
class Probed:
    """What was found, and when, in seconds of the monotonic clock of this boot."""

    ability: CriuAbility
    at_s: float

    def holds(self, now_s: float) -> bool:
        """Whether nothing of it is to be looked for again yet."""
        return not set(FEATURES).difference(self.ability.features, SURE) or 0 <= now_s - self.at_s < AGAIN_S


def probed(program: Path | None, place: Path | None) -> Probed:
    """Return what CRIU can: as it was remembered in the file ``place``, else by having it check itself. Blocks.

    Raises:
        CriuMissing, CriuUnfit, RightsMissing, NoRoom: as :func:`~iriscw.freeze.drivers.criu.ability.probe`.
    """
    path = find_criu(program)
    key = _key(path)
    known = _read(place, path, key) if place is not None else None
    if known is not None:
        return known
    found = Probed(probe(path), time.monotonic())
    if place is not None:
        _write(place, key, found)
    return found


def _key(path: Path) -> Key:
    """Return all that decides what CRIU can, as JSON has it."""
    rights = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(_RIGHTS)]
    spaces = [str(Path(f"/proc/self/ns/{name}").readlink()) for name in _NAMESPACES]
    files = [_looks(each) for each in (path, path.with_name(f"{path.name}{WRAPPED}"))]
    return {"path": str(path), "files": files, "boot": boot_id(), "rights": " ".join([*rights, *spaces])}


def _looks(path: Path) -> list[int]:
    try:
        found = path.stat()
    except OSError:  # nothing is beside it, or it is going: the probe says what is to be said
        return []
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev]


def _read(place: Path, path: Path, key: Key) -> Probed | None:
    """Read what holds for this key; None if nothing does."""
    try:
        found = place.lstat()
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            log.warning("%s is not ours alone: CRIU checks itself again", place)
            return None
        match decode_json(read_bounded(place, MAX_BYTES)):
            case {
                "key": dict(kept),
                "version": str(version),
                "git": str(git),
                "features": list(names),
                "at": float(at),
            }:
                features = tuple(name for name in FEATURES if name in names)
                known = Probed(CriuAbility(str(path), version, git, tuple(sorted(features))), at)
                return known if kept == key and known.holds(time.monotonic()) else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        log.info("%s says nothing: %s", place, error)
    return None


def _write(place: Path, key: Key, found: Probed) -> None:
    """Keep it; where that cannot be, the next one has CRIU check itself again."""
    known = found.ability
    content = {"key": key, "version": known.version, "git": known.git_id, "features": known.features, "at": found.at_s}
    try:
        write_atomic(place, json.dumps(content).encode(), durable=False)
    except OSError as error:
        log.info("what CRIU can could not be kept in %s: %s", place, error)
