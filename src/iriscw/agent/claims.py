"""One operation at a time for each target, on the whole machine.

Two freezes of one process would each undo what the other did: CUDA has one state, whoever asks. So whoever freezes a
process holds a name for it, in the kernel's list of abstract socket names: nobody else can take it meanwhile, whatever
state folder and user, and it goes with whoever holds it. It counts within one network namespace.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator

from iriscw.errors import OperationError
from iriscw.freeze.model import TaskIdentity


class TargetBusy(OperationError):
    """Another operation freezes this process. Nothing was touched."""

    retryable = True


@contextlib.contextmanager
def claim(root: TaskIdentity) -> Iterator[None]:
    """Hold a process for as long as the block lasts.

    Raises:
        TargetBusy: somebody else does.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as held:
        try:
            held.bind(f"\0iriscw-freeze-{root.boot_id}-{root.pid}-{root.start_ticks}")
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise TargetBusy(f"process {root.pid} is being frozen by another command") from error
        yield
