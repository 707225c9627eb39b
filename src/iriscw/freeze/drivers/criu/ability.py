"""What the CRIU of this machine is and can: its version, ``criu check``, and its features one by one."""

from __future__ import annotations

import errno
import re
import subprocess
from pathlib import Path
from typing import Final

from iriscw.freeze.criu_log import classify, error_lines
from iriscw.freeze.drivers.criu.finding import OLDEST, find_criu, how_to_install
from iriscw.freeze.model import CriuAbility, CriuMissing, CriuUnfit, NoRoom, RightsMissing

FEATURES: Final = (
    "mem_dirty_track",
    "network_lock_nftables",
    "uffd-noncoop",
)
"""Those that iriscw asks for, as ``criu check --feature`` names them: dumps of what changed since the last one,
established connections, lazy restores.
"""

SURE: Final = ("mem_dirty_track",)
"""Those that a kernel was built with or not. CRIU tries the others out, and that may fail for want of room."""

CHECK_S: Final = 30.0
"""For one call; it takes 10 ms, and the first one after a boot some more."""

AGAIN_S: Final = 60.0
"""After that long features that were not found, and are not :data:`SURE`, are looked for again."""

_NO_ROOM: Final = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)

_VERSION: Final = re.compile(r"^Version: (?P<version>[0-9][0-9.]*)", re.MULTILINE)
_GIT_ID: Final = re.compile(r"^GitID: (?P<id>\S+)", re.MULTILINE)


def probe(program: Path | None = None) -> CriuAbility:
    """Find CRIU and have it check itself. Blocks for some tens of milliseconds.

    Raises:
        CriuMissing: there is none.
        CriuUnfit: it does not work here, or is too old.
        RightsMissing: it may not do here what it must.
        NoRoom: this machine has no room for one more process.
    """
    path = find_criu(program)
    code, said = _run(path, "--version")
    match = _VERSION.search(said)
    if code or match is None:
        raise CriuUnfit(f"{path} does not say which version it is: {said.strip()[:200]}")
    version = match.group("version")
    if _numbers(version) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise CriuUnfit(f"{path} is version {version}, too old: {how_to_install()} installs one from {oldest} on")
    code, said = _run(path, "--no-default-config", "check")
    if code:
        raise _refusal(path, said)
    git_id = _GIT_ID.search(said)
    can = [name for name in FEATURES if _run(path, "--no-default-config", "check", "--feature", name)[0] == 0]
    return CriuAbility(str(path), version, git_id.group("id") if git_id else "", tuple(sorted(can)))


def _refusal(path: Path, said: str) -> RightsMissing | CriuUnfit:
    error = classify(said, said, doing="check").as_error()
    if isinstance(error, RightsMissing):
        return RightsMissing(f"{path} may not work here: it needs root, or CAP_SYS_ADMIN ({_first(said)})")
    return CriuUnfit(f"{path} does not work on this machine: {_first(said)}")


def _first(said: str) -> str:
    lines = error_lines(said) or tuple(line for line in said.splitlines() if line.strip()) or ("it gave no reason",)
    return lines[0][:200]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(each) for each in version.split(".") if each)


def _run(path: Path, *arguments: str) -> tuple[int, str]:
    try:
        done = subprocess.run(  # noqa: S603  # a list of arguments
            [str(path), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=CHECK_S,
            check=False,
            env={"LC_ALL": "C"},
        )
    except FileNotFoundError as error:
        raise CriuMissing(f"{path} is not there any more") from error
    except PermissionError as error:
        raise RightsMissing(f"{path} may not be executed") from error
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise NoRoom(f"{path} could not be started: {error.strerror}") from error
        raise CriuUnfit(f"{path} is not a program for this machine: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise CriuUnfit(f"{path} {' '.join(arguments)} did not end within {CHECK_S:g} s") from error
    return done.returncode, (done.stdout + done.stderr).decode(errors="replace")
