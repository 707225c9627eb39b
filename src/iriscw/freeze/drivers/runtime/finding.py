"""Where the real ``runc`` is. Only the standard library is needed: ``iriscw-runc`` looks before all that it does."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

VARIABLE = "IRISCW_RUNC_REAL"
"""Names the runtime to call instead of the ``runc`` of ``PATH``: an absolute path."""

WRAPPER = "iriscw-runc"


def real_runc(environment: Mapping[str, str]) -> str:
    """Find the real runtime, which is never the wrapper, whatever name that has.

    Raises:
        FileNotFoundError: there is none; the text says how to name one.
    """
    named = environment.get(VARIABLE)
    if named:
        if os.path.isabs(named) and os.access(named, os.X_OK) and not is_wrapper(named):  # noqa: PTH117 - quick
            return named
        raise FileNotFoundError(f"{VARIABLE}={named} is not a program with an absolute path, or is {WRAPPER} itself")
    for folder in (environment.get("PATH") or os.defpath).split(os.pathsep):
        found = shutil.which("runc", path=folder) if folder else None
        if found and not is_wrapper(found):
            return os.path.abspath(found)  # noqa: PTH100 - quick
    raise FileNotFoundError(f"there is no runc in PATH: {VARIABLE} may name one")


def is_wrapper(path: str) -> bool:
    """Whether this is our wrapper: under its own name, as a link to it, or as a copy of its script."""
    if os.path.basename(os.path.realpath(path)) == WRAPPER:  # noqa: PTH119 - quick
        return True
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - quick
            beginning = file.read(4096)
    except OSError:
        return False
    return beginning.startswith(b"#!") and b"iriscw.shim" in beginning
