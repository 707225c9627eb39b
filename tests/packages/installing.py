"""Installers for tests: the real ones of this machine, and one that does what a script says."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import attrs

from iriscw.packages.cache import CacheLimits, EnvironmentCache
from iriscw.packages.installers import Installer, find_installer

PIP = Installer("pip", (sys.executable, "-I", "-m", "pip"))


def real(name: str) -> Installer | None:
    """Return one of the real ones; None if it is not here."""
    found = find_installer(os.environ)
    return PIP if name == "pip" else found if found is not None and found.name == name else None


@attrs.frozen
class Scripted(Installer):
    """Runs a script of Python in the place of an installation; the environment has no packages, and no true Python."""

    script: str = ""

    def version(self) -> str:
        """Return a version."""
        return "1"

    def commands(self, folder: Path, requirements: Path) -> tuple[tuple[str, ...], ...]:
        """Return the commands that make the folder, and run the script with the folder as its argument."""
        python = (sys.executable, "-I", "-S", "-c")
        make = (
            f"import os; os.makedirs({str(folder / 'bin')!r}); os.symlink('/bin/true', {str(folder / 'bin/python')!r})"
        )
        return (*python, make), (*python, self.script, str(folder))


def scripted(script: str) -> Scripted:
    """Return an installer that runs a script."""
    return Scripted("pip", ("pip",), script)


def cache_of(
    folder: Path, installer: Installer, ours: Mapping[str, str] | None = None, limits: CacheLimits | None = None
) -> EnvironmentCache:
    """Return a cache below a folder, which does not pause; attempts have their folders in ``users``."""
    given = {**os.environ, **(ours or {})}
    return EnvironmentCache(
        folder / "environments", installer, ours=given, users=folder / "users", limits=limits, pause_s=0.0
    )


def attempt(folder: Path, uid: str) -> str:
    """Make the folder of an attempt, for which it uses what it is given."""
    (folder / "users" / uid).mkdir(parents=True)
    return uid
