"""Which of NVIDIA's libraries are loaded: those that somebody named, or those that the loader finds by their names."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from iriscw.freeze.model import CudaMissing

VARIABLE: Final = "IRISCW_CUDA_LIBRARY"
"""Names the driver's library (``libcuda.so.1``) where the loader does not find it, or finds another one."""

CUDA: Final = "libcuda.so.1"
NVML: Final = "libnvidia-ml.so.1"


def cuda_library() -> str:
    """Return the driver's library: a path, or a name for the loader.

    Raises:
        CudaMissing: one was named that is not there, or that somebody else could change: it would run with our rights.
    """
    named = os.environ.get(VARIABLE, "")
    if named:
        _check(Path(named))
    return named or CUDA


def nvml_library() -> str:
    """Return NVML: the one beside the driver's library that was named, if there is one, else a name for the loader.

    Raises:
        CudaMissing: as :func:`cuda_library`.
    """
    beside = Path(cuda_library()).with_name(NVML)
    if not os.environ.get(VARIABLE) or not beside.exists():
        return NVML
    _check(beside)
    return str(beside)


def _check(path: Path) -> None:
    """Say no to a library that is none, or that anybody but root and this user could put another one in place of."""
    if not path.is_absolute():
        raise CudaMissing(f"{VARIABLE}: {path} is not an absolute path")
    if not path.is_file():
        raise CudaMissing(f"{VARIABLE}: there is no library {path}")
    for each in _all_of(path):
        found = each.stat()
        closed = not found.st_mode & 0o022 or bool(each.is_dir() and found.st_mode & stat.S_ISVTX)
        if found.st_uid not in (0, os.geteuid()) or not closed:
            owner = f"{each} belongs to user {found.st_uid}, mode {stat.S_IMODE(found.st_mode):04o}"
            raise CudaMissing(f"{VARIABLE}: {owner}: others could change what is loaded")


def _all_of(path: Path) -> Iterator[Path]:
    """Yield the file and all folders above it, as named and as resolved."""
    for each in dict.fromkeys((path, path.resolve())):
        yield from (each, *each.parents)
