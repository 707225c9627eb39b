"""SIGTERM and a closed terminal, taken as Ctrl-C is.

What Ctrl-C does is asyncio's: the first cancels the program's task, which ends everything in order; the second raises
KeyboardInterrupt, and every task is cancelled.

In the background of a shell that has no job control SIGINT is ignored: Ctrl-C is for others. It stays so, but asyncio
would not listen then, and SIGTERM would end nothing. So within the block the kernel holds SIGINT back instead.
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
        with _held_back_if_ignored():
            yield
    finally:
        for each, action in before.items():
            signal.signal(each, signal.SIG_IGN if each == signal.SIGHUP and hung_up else action)


@contextlib.contextmanager
def _held_back_if_ignored() -> Iterator[None]:
    """Where SIGINT is ignored, have Python listen to it for the block, and the kernel never send it."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        yield
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # threads that are begun within hold it back, too
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # and what was held back is forgotten
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
