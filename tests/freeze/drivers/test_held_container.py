"""A container that is held, with sockets and processes that stand for CRIU and its runtime."""

import os
import signal
import socket
import subprocess

import anyio
import pytest

from iriscw.freeze.drivers.identities import identify_task, lives
from iriscw.freeze.drivers.runtime.door import CriuCall
from iriscw.freeze.drivers.runtime.held import HeldContainer
from iriscw.freeze.model import DumpReport, TreeLeft
from raised import that

pytestmark = pytest.mark.anyio

PATIENCE_S = 60
PATIENCE_NS = PATIENCE_S * 10**9


class Ended:
    """A runtime that has ended."""

    async def ended(self, within_ns=None):
        """See the runtime."""
        return True

    async def close(self, within_ns):
        """See the runtime."""
        return 1


class Shut:
    """A door."""

    folder = "none"

    def close(self):
        """See the door."""


@pytest.fixture
def started():
    """Start processes that wait."""
    made = []

    def start():
        made.append(subprocess.Popen(["sleep", "3600"]))
        return identify_task(made[-1].pid)

    yield start
    for each in made:
        each.kill()
        each.wait()


@pytest.mark.parametrize("hears", ["runtime", "nobody"])
async def test_criu_killed_before_it_hears_that_it_is_to_end_the_container(started, hears):
    """It was told, and is killed before it reads that: it is said at once, and the undo ends nothing."""
    root, criu = started(), started()
    ours, runtime = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    to_criu, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    awoken = []

    async def awaken():
        awoken.append(1)

    with runtime, its, socket.socket() as none:
        call = CriuCall(criu, none, ours, to_criu)
        held = HeldContainer(call, Ended(), Shut(), b"post-dump", (root,), DumpReport(), awaken)
        if hears == "nobody":
            runtime.close()
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:

                async def ending():
                    with pytest.raises(TreeLeft, check=that(comes_from="held.HeldContainer.end")):
                        await held.end(3600 * 10**9)

                tasks.start_soon(ending)
                if hears == "runtime":
                    await anyio.wait_readable(runtime)
                    assert runtime.recv(100) == b"post-dump"
                    runtime.send(b"yes")
                await anyio.wait_readable(its)  # it was told, and has not read it
                os.kill(criu.pid, signal.SIGKILL)
            its.close()
            await held.resume(PATIENCE_NS)
    assert awoken == [1]
    assert lives(root)
