"""A name is held by one, seen by all, and goes with its holder."""

import os
import subprocess
import sys

import pytest

from iriscw.processes.names import MAX_NAME_CHARS, SocketNameTaken, held_names, hold
from raised import that

PREFIX = f"iriscw-tests-names-{os.getpid()}-"

HOLDER = """
import sys
from iriscw.processes.names import hold
held = hold(sys.argv[1])
print(flush=True)
sys.stdin.read()
"""


def test_a_name_has_one_holder():
    """Nobody else gets it, and all see it; who ends gives it back, however it ends."""
    arguments = [sys.executable, "-c", HOLDER, f"{PREFIX}a"]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        with pytest.raises(SocketNameTaken):
            hold(f"{PREFIX}a")
        with hold(f"{PREFIX}c"):
            assert sorted(held_names(PREFIX)) == ["a", "c"]
        process.kill()
    assert held_names(PREFIX) == ()
    hold(f"{PREFIX}a").close()


def test_a_name_is_not_inherited():
    """A program that the holder starts does not keep it."""
    held = hold(f"{PREFIX}d")
    with subprocess.Popen(["sleep", "60"], close_fds=False) as process:
        held.close()
        hold(f"{PREFIX}d").close()
        process.kill()


def test_a_name_has_a_length():
    """The kernel cuts nothing silently."""
    hold("x" * MAX_NAME_CHARS).close()
    with pytest.raises(OSError, check=that(comes_from="names.hold")):
        hold("x" * (MAX_NAME_CHARS + 1))
