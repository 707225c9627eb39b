"""One operation at a time for each target, on the whole machine.

Two freezes of one process would each undo what the other did: CUDA has one state, whoever asks. So whoever freezes a
process holds a name for it, in the kernel's list of abstract socket names: nobody else can take it meanwhile, whatever
state folder and user, and it goes with whoever holds it. It counts within one network namespace. Whoever thaws an
artifact holds a name for that, too: two thaws of one would fight for the same process numbers.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator

from iriscw.errors import OperationError
from iriscw.freeze.model import TaskIdentity

PREFIX = "iriscw-"


class TargetBusy(OperationError):
    """Another operation freezes this process, or thaws this artifact. Nothing was touched."""

    retryable = True


def frozen_by_us(root: TaskIdentity) -> str:
    """Name the freeze of a process."""
    return f"freeze-{root.boot_id}-{root.pid}-{root.start_ticks}"


def thawed_by_us(artifact: str) -> str:
    """Name the thaw of an artifact."""
    return f"thaw-{artifact}"


@contextlib.contextmanager
def claim(target: str) -> Iterator[None]:
    """Hold a target for as long as the block lasts.

    Raises:
        TargetBusy: somebody else does.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as held:
        try:
            held.bind(f"\0{PREFIX}{target[:80]}")
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise TargetBusy(f"another command works on it: {target}") from error
        yield
