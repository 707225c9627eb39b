"""What a failed job's last words mean to whoever submitted it from this machine.

A task finds the packages of its worker's Python and the files of its bundle, and nothing else of the submitter's. Most
first jobs fail for that: a module or a file is here and not there. The words of the task say which; what this process
can see says why, and what to do.
"""

from __future__ import annotations

import importlib.machinery
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from iriscw.client.submission import is_installed
from iriscw.task.environment import WORK_FOLDER

PAGE: Final = "see 'Your code and its packages' in the documentation"

_MODULE = re.compile(r"No module named '(?P<name>[\w.]+)'")
_BELOW = f"(?:.*/{WORK_FOLDER}/)?"
_FILES = (
    re.compile(rf"can't open file '{_BELOW}(?P<name>[^']+)'"),
    re.compile(rf"No such file or directory: b?'{_BELOW}(?P<name>[^']+)'"),
    re.compile(r"there is no program '(?P<name>[^']+)'"),
    re.compile(r"(?:^|[\s:])(?:\./)?(?P<name>[^\s:']+): No such file or directory"),
)


def advice(words: str) -> str:
    """Return what to do about a failure that ended with these words, in one sentence; empty if nothing is known."""
    for line in reversed(words.splitlines()):
        module = _MODULE.search(line)
        if module is not None:
            return _of_module(module["name"].partition(".")[0])
        for form in _FILES:
            found = form.search(line)
            if found is not None and _is_here(found["name"]):
                return _of_file(found["name"])
    return ""


def files_named(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of a command that are files of the present folder: a task finds them only in its bundle."""
    return tuple(each for each in argv if _is_here(each))


def _of_module(name: str) -> str:
    origin = _origin_of(name)
    if origin is None:
        return f"{name!r} is installed neither here nor where the task ran ({PAGE})"
    if is_installed(origin):
        return (
            f"{name!r} is installed here, and not for the Python of the workers: install it there; the tasks of a local"
            f" cluster have the packages of the Python that started the cluster ({PAGE})"
        )
    folder = origin.parent.parent if origin.name == "__init__.py" else origin.parent
    return (
        f"{name!r} is a file of yours, {origin}, which tasks do not have: send its folder along,"
        f" bundle={str(folder)!r} or --bundle ({PAGE})"
    )


def _of_file(name: str) -> str:
    return (
        f"{name!r} is a file of this folder, and a task's working folder has only what its bundle holds:"
        f' bundle="." or --bundle . sends this folder along ({PAGE})'
    )


def _is_here(name: str) -> bool:
    path = Path(name)
    try:
        return not path.is_absolute() and path.is_file()
    except (OSError, ValueError):  # too long for a name, or with a zero byte
        return False


def _origin_of(name: str) -> Path | None:
    """Find the file of a module that this process could import, without importing anything."""
    for folder in _folders():
        spec = importlib.machinery.PathFinder.find_spec(name, [folder])
        if spec is not None and spec.origin is not None:
            return Path(spec.origin).resolve()
    return None


def _folders() -> Iterator[str]:
    yield str(Path.cwd())  # of a command's neighbours: the commands of iriscw do not have it in their path
    yield from sys.path
