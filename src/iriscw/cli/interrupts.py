"""SIGTERM and a closed terminal, taken as Ctrl-C is.

What Ctrl-C does is asyncio's: the first cancels the program's task, which ends everything in order; the second raises
KeyboardInterrupt, and every task is cancelled.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

from iriscw.processes.stopping import stopping_signals


@contextlib.contextmanager
def as_interrupts(*, stopping: bool = False) -> Iterator[None]:
    """Have SIGTERM and SIGHUP do what SIGINT does, within the block.

    A terminal that closes sends SIGHUP more than once, the kernel's and the shell's own: only the first counts, and
    none of them if the program is ``stopping`` already. The process is in no hurry then, up to its end.
    """
    hung_up = stopping

    def relay(number: int, frame: FrameType | None) -> None:
        nonlocal hung_up
        if number == signal.SIGHUP and hung_up:
            return
        hung_up = hung_up or number == signal.SIGHUP
        interrupt = signal.getsignal(signal.SIGINT)
        if callable(interrupt):
            interrupt(signal.SIGINT, frame)

    before = {each: signal.signal(each, relay) for each in stopping_signals() if each != signal.SIGINT}
    try:
        yield
    finally:
        for each, action in before.items():
            signal.signal(each, signal.SIG_IGN if each == signal.SIGHUP and hung_up else action)
