"""The programs that install packages on a worker: ``uv`` where there is one, else ``pip``.

Which index, which mirror and which certificates are theirs to know from the worker's own environment (``UV_*``,
``PIP_*``, proxies): a job says what it wants, never where from. What they print is shown to a job's owner, without the
credentials that addresses of an index may hold.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import site
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from iriscw.processes.environment import INSTALLER_PREFIXES, basic_environment, installer_settings

VERSION_TIMEOUT_S = 20.0

_ELSEWHERE: tuple[str, ...] = (
    *("PIP_PREFIX", "PIP_PYTHON", "PIP_REQUIRE_VIRTUALENV", "PIP_ROOT", "PIP_TARGET", "PIP_USER", "PIP_LOG"),
    *("PIP_REPORT", "PIP_DRY_RUN", "UV_PROJECT_ENVIRONMENT", "UV_PYTHON", "UV_SYSTEM_PYTHON", "UV_VENV_CLEAR"),
    *("PYTHONPATH", "VIRTUAL_ENV"),
)
"""Would have packages be installed in another place than the one that is made."""

_NO_SOURCE = (
    "PIP_CACHE_DIR",
    "PIP_DEFAULT_TIMEOUT",
    "PIP_DISABLE_PIP_VERSION_CHECK",
    "PIP_PROGRESS_BAR",
    "UV_CACHE_DIR",
)
"""Say nothing of where packages come from, so that they may change without anything being made anew."""

_CREDENTIALS = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.-]*://)[^/\s]+@", re.IGNORECASE)

_AWAY = re.compile(
    r"connection (refused|reset|aborted|broken)|name resolution|failed to lookup address|name or service not known"
    r"|network is unreachable|no route to host|newconnectionerror|connecttimeout|read timed out|operation timed out"
    r"|max retries exceeded|are you offline|tcp connect error|error sending request|temporarily unavailable"
    r"|\b(429|500|502|503|504) (too many|internal|bad gateway|service|gateway|server error)",
    re.IGNORECASE,
)
_FULL = re.compile(r"no space left on device|os error 28|disk quota exceeded|os error 122", re.IGNORECASE)


@attrs.frozen
class Installer:
    """A program that installs packages: its name, and how it is started."""

    name: str
    argv: tuple[str, ...]

    def version(self) -> str:
        """Ask it for its version; empty: it does not answer. Blocks."""
        try:
            done = subprocess.run(  # noqa: S603 - no shell, and the worker's own program
                [*self.argv, "--version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired):  # one that does not answer installs nothing either
            return ""
        words = done.stdout.split()
        return words[1] if done.returncode == 0 and len(words) > 1 else ""

    def commands(self, folder: Path, requirements: Path) -> tuple[tuple[str, ...], ...]:
        """Return the commands that make an environment in the new folder and install a file of requirements."""
        python = str(folder / "bin" / "python")
        if self.name == "uv":
            there = ("--python", python, "--compile-bytecode", "--no-progress")
            return (
                (*self.argv, "venv", "--no-config", "--python", sys.executable, str(folder)),
                (*self.argv, "pip", "install", *there, "--requirements", str(requirements)),
            )
        # Without a retry of its own pip does not say that it reached nobody, and with many it takes too long to.
        target = ("--python", python, "install", "--no-input", "--progress-bar", "off", "--retries", "1")
        return (
            (sys.executable, "-I", "-m", "venv", "--without-pip", str(folder)),
            (*self.argv, *target, "--requirement", str(requirements)),
        )


def find_uv(ours: Mapping[str, str]) -> str | None:
    """Find uv, in the PATH or beside our Python. Blocks."""
    beside = Path(sys.executable).with_name("uv")
    return shutil.which("uv", path=ours.get("PATH")) or (str(beside) if os.access(beside, os.X_OK) else None)


def find_installer(ours: Mapping[str, str]) -> Installer | None:
    """Find what installs packages here: uv in the PATH or beside our Python, else our Python's pip. Blocks."""
    uv = find_uv(ours)
    if uv is not None:
        return Installer("uv", (uv,))
    if importlib.util.find_spec("pip") is None or importlib.util.find_spec("venv") is None:
        return None
    return Installer("pip", (sys.executable, "-I", "-m", "pip"))


def installer_environment(ours: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that an installer gets of the worker's."""
    found = {"UV_LINK_MODE": "copy", **basic_environment(ours), **installer_settings(ours), "PYTHONUNBUFFERED": "1"}
    return {name: value for name, value in found.items() if name not in _ELSEWHERE}


def source_of(environment: Mapping[str, str]) -> str:
    """Return a text that differs where packages come from elsewhere, and holds no credentials."""
    told = [
        f"{name}={environment[name]}"
        for name in sorted(environment)
        if name.startswith(INSTALLER_PREFIXES) and name not in _NO_SOURCE
    ]
    return hashlib.sha256("\0".join(told).encode()).hexdigest()[:16]


def without_credentials(text: str) -> str:
    """Return a text in which addresses have no user and no password."""
    return _CREDENTIALS.sub(r"\g<scheme>***@", text)


def network_is_away(said: str) -> bool:
    """Whether an installer failed because it reached nobody, so that it may succeed later."""
    return _AWAY.search(said) is not None


def disk_is_full(said: str) -> bool:
    """Whether an installer failed for want of room."""
    return _FULL.search(said) is not None


def fallback_folders() -> tuple[Sequence[str], Sequence[str]]:
    """Return where iriscw and what it needs are: folders of packages, and plain entries of the path, of this Python."""
    installed = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    plain = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    plain += [str(Path(__file__).parents[2])]
    return (
        [each for each in installed if Path(each).is_dir()],
        [each for each in dict.fromkeys(str(Path(each).absolute()) for each in plain) if Path(each).is_dir()],
    )
