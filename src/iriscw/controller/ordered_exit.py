"""Ends that nothing cuts short.

A cancel scope's shield holds off anyio's cancellation, not asyncio's own: at a second Ctrl-C ``asyncio.run`` cancels
every task of its loop, shielded or not. What must be done to its end (a journal closed, machines ended) is therefore
done in a thread of its own, and the task that waits for it goes on waiting.

A third Ctrl-C ends the loop in the middle of that. Python then still waits for all threads, and those of
:mod:`anyio.to_thread` wait for work from a loop that is gone: they are dismissed, or the process would never end.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Final

import anyio
import anyio.to_thread

from iriscw.rpc.listening import require_asyncio

LOOK_EVERY_S: Final = 0.05
"""How often the end of the main thread is looked for: nothing else tells of it while a block is open."""


async def uncut(function: Callable[[], None]) -> None:
    """Run a blocking function to its end, however often this task is cancelled; bounded by the function alone.

    Raises:
        BaseException: what the function raised, else the cancellation that came meanwhile.
    """
    done: Future[None] = Future()

    def run() -> None:
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - raised below, in the task
            done.set_exception(error)
        else:
            done.set_result(None)

    # No daemon: an interpreter that leaves its loop behind, as at a third Ctrl-C, waits for this before it exits.
    thread = threading.Thread(target=run, name="iriscw-ending", daemon=False)
    thread.start()
    cancelled: BaseException | None = None
    with anyio.CancelScope(shield=True):
        while thread.is_alive():
            try:
                await anyio.to_thread.run_sync(thread.join)
            except anyio.get_cancelled_exc_class() as error:
                cancelled = error
    done.result()
    if cancelled is not None:
        raise cancelled


@contextlib.contextmanager
def threads_dismissed() -> Iterator[None]:
    """Should the main thread end inside of the block, which leaves its loop for ever, dismiss that loop's threads.

    The same goes for a block that an interrupt ends: it has come through this task, and ends the main thread after it.

    Raises:
        NeedsAsyncio: this is not a task of an asyncio loop.
    """
    require_asyncio()
    left = threading.Event()
    if threading.current_thread() is threading.main_thread():  # nothing interrupts the loops of others
        watch = threading.Thread(target=_watch, args=(asyncio.get_running_loop(), left), name="iriscw-leaving")
        watch.start()
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise  # it ends its loop, in the middle of this task if that was running when it came: the watch goes on
    except BaseException:
        left.set()
        raise
    left.set()


def _watch(loop: asyncio.AbstractEventLoop, left: threading.Event) -> None:
    while not left.wait(LOOK_EVERY_S):
        if threading.main_thread().is_alive():
            continue
        for thread in threading.enumerate():
            if getattr(thread, "loop", None) is loop:
                thread.stop()  # type: ignore[attr-defined]  # anyio's: what it calls when its loop ends in order
        return
