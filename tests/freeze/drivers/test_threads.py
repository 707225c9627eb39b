"""What a thread of a real process has apart from the first one."""

import subprocess
import sys

import pytest

from iriscw.freeze.drivers.processes.threads import threads_apart
from iriscw.freeze.traits import Obstacle
from iriscw.processes.identity import read_stat

PROGRAM = """
import ctypes, sys, threading
told = threading.Event()

def leave():
    if ctypes.CDLL(None).unshare(int(sys.argv[1])):
        print("not permitted", flush=True)
    told.set()
    threading.Event().wait()

threading.Thread(target=threading.Event().wait, daemon=True).start()
threading.Thread(target=leave, daemon=True).start()
told.wait()
print(flush=True)
input()
"""
"""One of its three threads leaves something that they all have."""


def found(left: int) -> list[tuple[Obstacle, str]]:
    """Return what is in the way of a program one of whose threads has left this."""
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", PROGRAM, str(left)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            if process.stdout.readline().strip():
                pytest.skip("this user may not leave that")
            return [(each.obstacle, each.text) for each in threads_apart(read_stat(process.pid))]
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("left", "what"),
    [
        pytest.param(0x200, "a root or working folder", id="CLONE_FS"),
        pytest.param(0x400, "a table of descriptors", id="CLONE_FILES"),
        pytest.param(0x40000000, "a net namespace", id="CLONE_NEWNET"),
        pytest.param(0x80, "a time namespace", id="CLONE_NEWTIME"),
    ],
)
def test_what_one_thread_has_apart_is_named_once(left, what):
    """The first one that differs is enough: the tree is refused."""
    ((obstacle, text),) = found(left)
    assert obstacle is Obstacle.THREAD
    assert f"has {what} of its own" in text


def test_threads_that_share_all_are_no_obstacle():
    """A call that leaves nothing."""
    assert found(0) == []
