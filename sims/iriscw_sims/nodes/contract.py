"""What the ports of freezing may raise, by the contract of each: under the name of the chance that brings it about."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from iriscw._errors import OperationError
from iriscw.freeze.cuda_codes import NOT_SUPPORTED, OPERATING_SYSTEM, UNKNOWN, refusal
from iriscw.freeze.model import (
    ArtifactRefused,
    CriuFailed,
    CriuOverdue,
    CudaOverdue,
    GuardUntold,
    HookFailed,
    NoRoom,
    PagingFailed,
    RightsMissing,
    TargetUnfit,
    TreeChanged,
    TreeLeft,
    VerifyFailed,
)


@attrs.frozen
class Flaw:
    """One way in which a call may fail: the name of its chance, in how many thousandths at most, and the error."""

    name: str
    most: int
    error: Callable[[str], Exception]


def _plain(kind: type[Exception]) -> Callable[[str], Exception]:
    return lambda method: kind(f"simulated: {method}")


def _says(code: int) -> Callable[[str], Exception]:
    def error(method: str) -> OperationError:
        return refusal(method, 0, code, root=True)

    return error


_REFUSES = Flaw("driver refuses", 150, _says(UNKNOWN))
_SYSTEM = Flaw("driver fails in the system", 60, _says(OPERATING_SYSTEM))
_HANGS = Flaw("driver hangs", 100, _plain(CudaOverdue))
_OUT_OF_MEMORY = Flaw("GPU out of memory", 60, _says(2))
_FULL = Flaw("tier full", 60, _plain(NoRoom))

FLAWS: Mapping[str, tuple[Flaw, ...]] = {
    "tree": (
        Flaw("tree cannot be read", 60, _plain(TargetUnfit)),
        Flaw("right missing", 40, _plain(RightsMissing)),
    ),
    "members": (Flaw("tree cannot be read", 60, _plain(TargetUnfit)),),
    "living": (),
    "tasks": (_REFUSES, _HANGS),
    "reserve": (_FULL,),
    "quiesce": (Flaw("application does not rest", 250, _plain(HookFailed)),),
    "wake": (Flaw("application cannot be told", 150, _plain(HookFailed)),),
    "lock": (_REFUSES, _SYSTEM, Flaw("driver supports it not", 60, _says(NOT_SUPPORTED)), _HANGS),
    "checkpoint": (_REFUSES, _SYSTEM, _HANGS),
    "cuda_restore": (_REFUSES, _HANGS, _OUT_OF_MEMORY),
    "unlock": (_REFUSES, _HANGS),
    "state": (Flaw("driver does not tell", 100, _says(UNKNOWN)), _HANGS),
    "used_by": (),
    "dump": (
        Flaw("criu fails", 150, _plain(CriuFailed)),
        Flaw("criu hangs", 100, _plain(CriuOverdue)),
        Flaw("criu cannot dump it", 60, _plain(TargetUnfit)),
        _FULL,
    ),
    "restore": (
        Flaw("criu fails", 150, _plain(CriuFailed)),
        Flaw("criu hangs", 100, _plain(CriuOverdue)),
        _FULL,
    ),
    "lazy restore": (
        Flaw("criu fails", 150, _plain(CriuFailed)),
        Flaw("criu hangs", 100, _plain(CriuOverdue)),
        Flaw("pager cannot begin", 60, _plain(PagingFailed)),
    ),
    "paging": (Flaw("pages cannot be told of", 300, _plain(OSError)),),
    "vouched": (
        Flaw("supervisor cannot be told", 60, _plain(GuardUntold)),
        Flaw("signal refused", 100, _plain(RightsMissing)),
    ),
    "resume": (Flaw("tree is not let go", 300, _plain(TreeLeft)),),
    "held_end": (Flaw("tree is not ended", 400, _plain(TreeLeft)),),
    "sweep": (Flaw("run cannot be ended", 300, _plain(TreeLeft)),),
    "end": (),
    "proceed": (Flaw("signal refused", 100, _plain(RightsMissing)),),
    "prove": (Flaw("tree came back otherwise", 60, _plain(TreeChanged)),),
    "came_back": (_FULL,),
    "confirm": (Flaw("tree is not what it was", 150, _plain(VerifyFailed)),),
    "seal": (_FULL, Flaw("images are truncated", 100, _plain(ArtifactRefused))),
    "publish": (_FULL,),
    "discard": (Flaw("nothing can be removed", 150, _plain(OSError)),),
    "pin": (Flaw("manifest cannot be read", 40, _plain(ArtifactRefused)),),
    "verify": (Flaw("file cannot be read", 40, _plain(ArtifactRefused)),),
    "unpin": (Flaw("pin cannot be taken back", 150, _plain(OSError)),),
    "remove": (Flaw("nothing can be removed", 150, _plain(OSError)),),
    "clean": (Flaw("nothing can be removed", 150, _plain(OSError)),),
}
"""Each method of the ports that a step is taken in."""


def chances() -> tuple[tuple[str, int], ...]:
    """Return each chance once, with its highest rate."""
    found: dict[str, int] = {}
    for flaws in FLAWS.values():
        for flaw in flaws:
            found[flaw.name] = max(flaw.most, found.get(flaw.name, 0))
    return tuple(found.items())
