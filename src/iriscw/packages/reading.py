"""Requirements from the files in which projects keep them, read by whoever submits a job. Blocks.

The file is read here and its requirements travel as texts: no worker reads a project's file, so nothing in one (a
path, an index of its own, a build script) reaches a worker.

``pyproject.toml``
    its ``[project] dependencies``; with a ``uv.lock`` beside it the very versions of that, with their hashes, as
    ``uv export`` says them
``uv.lock``
    the same
any other
    lines as ``pip`` reads them, without options
"""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from iriscw.packages.installers import find_uv
from iriscw.packages.requirements import InvalidDependency, normal

MAX_FILE_BYTES = 16 << 20
"""Of a lock file: that of a project with 500 packages has 2 MB."""

EXPORT_TIMEOUT_S = 60.0

_COMMENT = re.compile(r"(^|\s)#.*$")


def dependencies_of(asked: Sequence[str] | str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the requirements that a user gave, as a list or by the name of a file.

    Raises:
        InvalidDependency: one is none, or the file holds none, or holds what only its own folder could mean.
    """
    if not isinstance(asked, str | os.PathLike):
        return normal(asked)
    path = Path(asked)
    if not path.is_file():
        raise InvalidDependency(
            f"dependencies: there is no file {str(path)!r:.80}; give a list of requirements (['numpy>=2']), or the "
            "name of a pyproject.toml, uv.lock or requirements file"
        )
    try:
        if path.name in ("pyproject.toml", "uv.lock"):
            return _of_project(path)
        return _of_list(path)
    except InvalidDependency as error:
        raise InvalidDependency(f"{path}: {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidDependency(f"dependencies: {path} cannot be read: {error}") from error


def _content(path: Path) -> str:
    if path.stat().st_size > MAX_FILE_BYTES:
        raise InvalidDependency(f"dependencies: the file has more than {MAX_FILE_BYTES} bytes")
    return path.read_text(encoding="utf-8")


def _of_list(path: Path) -> tuple[str, ...]:
    listed = list(_lines(path, _content(path)))
    if not listed:
        raise InvalidDependency("dependencies: the file lists none")
    return normal(listed)


def _of_project(path: Path) -> tuple[str, ...]:
    if path.with_name("uv.lock").is_file():
        return normal(list(_lines(path, _exported(path.parent))))
    try:
        read: dict[str, Any] = tomllib.loads(_content(path))
    except tomllib.TOMLDecodeError as error:
        raise InvalidDependency(f"dependencies: it is not TOML: {error}") from error
    project = read.get("project")
    if not isinstance(project, dict) or "dependencies" in project.get("dynamic", ()):
        raise InvalidDependency("dependencies: it does not say what it depends on ([project] dependencies)")
    listed = project.get("dependencies", [])
    if not isinstance(listed, list):
        raise InvalidDependency("dependencies: [project] dependencies is not a list")
    return normal(listed)


def _exported(folder: Path) -> str:
    """Have uv say what a lock file means: it reads two files, and neither installs nor builds anything."""
    uv = find_uv(os.environ)
    if uv is None:
        raise InvalidDependency(
            "dependencies: uv.lock is read by uv, which is not here; install it, or give a requirements.txt"
        )
    words = [uv, "export", "--frozen", "--no-emit-project", "--no-dev", "--no-header", "--no-annotate", "--offline"]
    try:
        done = subprocess.run(  # noqa: S603 - no shell, and uv is the user's own
            [*words, "--project", str(folder)], capture_output=True, text=True, timeout=EXPORT_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise InvalidDependency(f"dependencies: uv did not read uv.lock within {EXPORT_TIMEOUT_S:g} s") from error
    if done.returncode:
        said = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise InvalidDependency(f"dependencies: uv cannot read uv.lock: {said[0]:.200}")
    return done.stdout


def _lines(path: Path, content: str) -> Iterator[str]:
    """Take a requirements file apart; what a backslash has go on in the next line is one."""
    joined = ""
    for number, line in enumerate(_whole(content.splitlines()), 1):
        joined += _COMMENT.sub("", line).strip()
        if joined.endswith("\\"):
            joined = joined[:-1].rstrip() + " "
            continue
        if joined.startswith("-") and not joined.startswith("--hash"):
            raise InvalidDependency(
                f"dependencies: line {number} of {path.name} is an option ({joined:.60}); options are those of the "
                "workers, not of a job"
            )
        if joined:
            yield joined
        joined = ""


def _whole(lines: Iterable[str]) -> Iterator[str]:
    yield from lines
    yield ""
