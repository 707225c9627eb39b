"""One operation at a time for each target, on the whole machine.

Two freezes of one process would each undo what the other did: CUDA has one state, whoever asks. So whoever freezes a
process holds a name for it (:mod:`iriscw.processes.names`): nobody else can take it meanwhile, whatever state folder
and user, and it goes with whoever holds it. Whoever thaws an artifact holds a name for that, too: two thaws of one
would fight for the same process numbers. Whoever moves one holds the same name: what is thawed stays where it is.

A freeze is of a process with all below it. So whoever has claimed one looks whether any process above or below it is
claimed as well, and gives it back if so. Each of two that begin at the same moment claims before it looks: one of them
sees the other, or both do, and never none. What is forked later is found by whoever freezes that: by the one above it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Final

from iriscw._errors import OperationError
from iriscw.freeze.drivers.processes.reading import ancestors
from iriscw.freeze.model import TaskIdentity
from iriscw.processes.identity import boot_id
from iriscw.processes.names import SocketNameTaken, held_names, hold

PREFIX = "iriscw-"
_FREEZE: Final = "freeze-"
_FREEZE_NAME: Final = re.compile(rf"{_FREEZE}(?P<boot>[0-9a-f-]+)-(?P<pid>[0-9]{{1,7}})-(?P<ticks>[0-9]{{1,19}})")


class TargetBusy(OperationError):
    """Another operation freezes this process, one above or below it, or thaws or moves this artifact.

    Nothing was touched.
    """

    retryable = True


def frozen_by_us(root: TaskIdentity) -> str:
    """Name the freeze of a process."""
    return f"{_FREEZE}{root.boot_id}-{root.pid}-{root.start_ticks}"


def thawed_by_us(artifact: str) -> str:
    """Name the thaw of an artifact, or its move."""
    return f"thaw-{artifact}"


@contextlib.contextmanager
def claim(target: str) -> Iterator[None]:
    """Hold a target for as long as the block lasts. Blocks for a millisecond, if it is to be frozen.

    Raises:
        TargetBusy: somebody else does, or holds a process above or below it.
    """
    try:
        held = hold(f"{PREFIX}{target[:80]}")
    except SocketNameTaken as error:
        raise TargetBusy(f"another command works on it: {target}") from error
    with held:
        if target.startswith(_FREEZE):
            _refuse_relatives(target)
        yield


def _refuse_relatives(target: str) -> None:
    """Look whether the freeze of a process is also that of one above or below it.

    Raises:
        TargetBusy: somebody freezes one of these.
    """
    root = _frozen(target)
    if root is None or root.boot_id != boot_id():
        return  # nothing of it lives
    above = ancestors(root)
    for other in _held() - {root}:
        if other in above:
            raise TargetBusy(f"another command freezes process {other.pid}, which is above process {root.pid}")
        if root in ancestors(other):  # the way up from one is short; the way down is all processes of the machine
            raise TargetBusy(f"another command freezes process {other.pid}, which is below process {root.pid}")


def _frozen(target: str) -> TaskIdentity | None:
    """Return the process that a name of a freeze names; None for any other name."""
    found = _FREEZE_NAME.fullmatch(target)
    return None if found is None else TaskIdentity(int(found["pid"]), int(found["ticks"]), found["boot"])


def _held() -> set[TaskIdentity]:
    """Return the processes that anybody freezes, as far as this network namespace shows them."""
    return {task for task in map(_frozen, held_names(PREFIX)) if task is not None}
