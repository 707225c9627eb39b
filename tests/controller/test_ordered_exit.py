"""Ends that nothing cuts short."""

import asyncio
import signal
import subprocess
import sys
import threading

import anyio
import pytest

from iriscw.controller import ordered_exit as module
from iriscw.controller.ordered_exit import threads_dismissed, uncut
from iriscw.rpc.errors import NeedsAsyncio


async def cancelled(times, make):
    """Run a function that waits for ``go`` uncut, cancel that task natively so often; give how it ended."""
    began, go = threading.Event(), threading.Event()
    ended = []

    def function():
        began.set()
        go.wait()
        ended.append(make())

    task = asyncio.create_task(uncut(function))
    await asyncio.to_thread(began.wait)
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert not task.done()
    go.set()
    [result] = await asyncio.gather(task, return_exceptions=True)
    return ended, result


@pytest.mark.parametrize("times", [0, 1, 5])
async def test_no_cancellation_cuts_it(times):
    """asyncio's cancellation comes out after the end, however often it came."""
    ended, result = await cancelled(times, lambda: "done")
    assert ended == ["done"]
    assert isinstance(result, asyncio.CancelledError) is bool(times)


async def test_a_scope_waits():
    """anyio's cancellation waits for the end as well."""
    ended = []
    with anyio.CancelScope() as scope:
        scope.cancel()
        await uncut(lambda: ended.append(1))
    assert ended == [1]


@pytest.mark.parametrize("times", [0, 2])
async def test_its_error_comes_out(times):
    """What the function raises is raised, cancelled or not."""
    _, result = await cancelled(times, lambda: 1 / 0)
    assert isinstance(result, ZeroDivisionError)


async def test_threads_are_dismissed_when_the_main_thread_is_gone(monkeypatch):
    """The threads that worked for this loop are told to end; those of others are not."""
    stopped = []

    class Thread:
        def __init__(self, loop):
            self.loop = loop

        def stop(self):
            stopped.append(self)

    class Main:
        def is_alive(self):
            return False

    mine, other = Thread(asyncio.get_running_loop()), Thread(object())
    left = threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(module.threading, "main_thread", Main)
        patch.setattr(module.threading, "enumerate", lambda: [other, mine, threading.current_thread()])
        module._watch(asyncio.get_running_loop(), left)
    assert stopped == [mine]


async def test_nobody_watches_after_the_block():
    """The watch ends with the block."""
    with threads_dismissed():
        [watch] = [each for each in threading.enumerate() if each.name == "iriscw-leaving"]
    await asyncio.to_thread(watch.join)
    assert not watch.is_alive()


def test_it_needs_a_loop():
    """Outside of an asyncio loop the error says so."""
    with pytest.raises(NeedsAsyncio), threads_dismissed():
        pass


INTERRUPTED = """
import asyncio
import anyio.to_thread
from iriscw.controller.ordered_exit import threads_dismissed

async def main():
    with threads_dismissed():
        await anyio.to_thread.run_sync(int)  # from now on a thread waits for work
        try:
            asyncio.get_running_loop().call_soon(interrupt)
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            interrupt()

def interrupt():
    raise KeyboardInterrupt

asyncio.run(main())
"""
"""Interrupted twice as by Ctrl-C: in its loop, and in this task while that loop is closed."""


def test_an_interrupt_in_the_midst_of_the_task_ends_the_process():
    """The loop never runs again, so nobody else tells its threads that they may end."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.rstrip().endswith("KeyboardInterrupt")
    assert done.returncode in (1, -signal.SIGINT)
