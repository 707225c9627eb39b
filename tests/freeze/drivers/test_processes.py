"""Real processes are ended with all that they fork, and nobody else is."""

import contextlib
import os
import select
import signal
import subprocess
import sys

import anyio
import anyio.to_thread
import pytest

from iriscw.freeze.drivers.identities import identify_task, lives
from iriscw.freeze.drivers.processes.driver import KernelProcesses
from iriscw.freeze.drivers.processes.reading import descendants, with_all_below
from iriscw.freeze.model import TaskIdentity

pytestmark = pytest.mark.anyio

PATIENCE_NS = 60_000_000_000

FORKING = """
import os, signal, sys
most = int(sys.argv[1])
made = 0
print(flush=True)
while made < most:
    made += 1
    if os.fork() == 0:
        os.fork()
        signal.pause()
    if made == 20:
        print(flush=True)
signal.pause()
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def forking():
    """Start a process that forks up to so many pairs, one below the other; all of it is ended afterwards."""
    started = []

    def start(most):
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", FORKING, str(most)], stdout=subprocess.PIPE, start_new_session=True
        )
        started.append(process)
        process.stdout.readline()
        return process

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.wait()
        process.stdout.close()


async def test_what_is_forked_in_the_moment_of_the_end_ends_too(forking) -> None:
    """A tree of which only the root is known forks as fast as it can: nothing of it is left."""
    process = forking(60)
    process.stdout.readline()
    root = identify_task(process.pid)
    stranger = forking(1)
    with select.epoll() as ended:
        assert await KernelProcesses().end([root], PATIENCE_NS) == ()
        # All of it has the pipe open; when the last one has ended the pipe is closed.
        ended.register(process.stdout, select.EPOLLIN | select.EPOLLHUP)
        assert [kind & select.EPOLLHUP for _, kind in ended.poll(60)] == [select.EPOLLHUP]
    assert lives(identify_task(stranger.pid))


async def test_a_number_that_means_somebody_else_leads_nowhere(forking) -> None:
    """Neither who has it now nor what is below is touched."""
    process = forking(20)
    process.stdout.readline()
    root = identify_task(process.pid)
    other = TaskIdentity(root.pid, root.start_ticks - 1, root.boot_id)
    assert with_all_below([other]) == ()
    earlier = descendants(root.pid)
    before = with_all_below([root])  # it grows, and nothing of it ends
    assert {*earlier} <= {*before}
    assert len(earlier) >= 20
    assert before[0] == root
    assert await KernelProcesses().end([other], PATIENCE_NS) == ()
    assert all(lives(task) for task in before)


async def test_a_stopped_process_is_ended_as_well(forking) -> None:
    """It need not run to be killed."""
    process = forking(0)
    root = identify_task(process.pid)
    os.kill(process.pid, signal.SIGSTOP)
    await anyio.to_thread.run_sync(os.waitpid, process.pid, os.WUNTRACED)
    assert await KernelProcesses().end([root], PATIENCE_NS) == ()
    assert not lives(root)
