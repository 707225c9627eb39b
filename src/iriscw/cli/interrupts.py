"""SIGTERM and a closed terminal, taken as Ctrl-C is.

What Ctrl-C does is asyncio's: the first cancels the program's task, which ends everything in order; the second raises
KeyboardInterrupt, and every task is cancelled. asyncio raises it wherever Python happens to be. If that is where it
wakes a task, nobody ever wakes that task; if it is in a task that nobody waits for, asyncio writes a traceback. So the
second is raised between two steps of the loop here, and the third wherever Python is: a step may hold the loop.

In the background of a shell that has no job control SIGINT is ignored: Ctrl-C is for others. It stays so, but asyncio
would not listen then, and SIGTERM would end nothing. So within the block the kernel holds SIGINT back instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

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


def asyncio_listens() -> bool:
    """Whether asyncio hears of Ctrl-C in a loop that is begun here: where nobody else does."""
    here = threading.current_thread() is threading.main_thread()
    return here and signal.getsignal(signal.SIGINT) is signal.default_int_handler


@contextlib.contextmanager
def raised_between_steps() -> Iterator[None]:
    """Have the second Ctrl-C raised between two steps of the loop that runs, within the block; asyncio listens."""
    before = signal.getsignal(signal.SIGINT)
    assert callable(before)
    loop = asyncio.get_running_loop()
    heard = 0
    raising: list[asyncio.Handle] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal heard
        heard += 1
        if heard == 2:
            raising.append(loop.call_soon_threadsafe(_raise))
            return
        _forget(raising)
        before(number, frame)  # asyncio counts these only

    loop.set_exception_handler(_tell_unless_interrupted)
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        _forget(raising)
        if signal.getsignal(signal.SIGINT) is interrupt:  # asyncio takes back its own only
            signal.signal(signal.SIGINT, before if heard < 2 else signal.default_int_handler)


def _raise() -> None:
    raise KeyboardInterrupt


def _forget(raising: list[asyncio.Handle]) -> None:
    """Have what is still to be raised not be: it would cut short how asyncio ends the loop."""
    for each in raising:
        each.cancel()


def _tell_unless_interrupted(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Pass over a task that an interruption has ended: that is told once, by the program."""
    if not isinstance(context.get("exception"), KeyboardInterrupt):
        loop.default_exception_handler(context)


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
