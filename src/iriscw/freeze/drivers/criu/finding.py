"""Where CRIU is on this machine.

One that somebody named, the one that ``install-criu`` made for this user, the one in PATH: the first that is there.
"""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path
from typing import Final

import iriscw.freeze.drivers
from iriscw.freeze.model import CriuMissing

VARIABLE: Final = "IRISCW_CRIU"
"""Names a CRIU to use instead of all others."""

VERSION: Final = "4.2.1"
"""Of the one that the installer makes; its folder is named after it."""

OLDEST: Final = (4, 2)
"""4.1 fails on sockets from Linux 6.16 on, what is older on any process from 6.13 on."""

INSTALLER: Final = Path(iriscw.freeze.drivers.__path__[0]).parents[1] / "deploy" / "install-criu"


def installed_folder() -> Path:
    """Return the folder of this user into which the installer puts CRIU."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    system = platform.uname()
    return Path(cache) / "iriscw" / f"criu-{VERSION}-{system.system}-{system.machine}"


def how_to_install(installer: Path = INSTALLER) -> str:
    """Return the command that installs CRIU for this user, in the words of a message; a checkout has a shorter one."""
    sources, checkout = installer.parents[2:4]
    in_checkout = sources.name == "src" and (checkout / "Makefile").is_file()
    return f"`make criu` in {checkout}" if in_checkout else f"`bash {installer}`"


def find_criu(program: Path | None = None) -> Path:
    """Find CRIU; ``program`` says which, if it is to be a certain one.

    Raises:
        CriuMissing: there is none; the text says how to get it.
    """
    named = program or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    installed = installed_folder() / "criu"
    on_path = shutil.which("criu")
    for each in [named] if named else [installed, *([Path(on_path)] if on_path else [])]:
        if os.access(each, os.X_OK) and each.is_file():
            return each.absolute()
    where = f"{named} is not a program" if named else f"neither {installed} nor one in PATH is there"
    raise CriuMissing(f"there is no CRIU: {where}; {how_to_install()} installs it for this user")
