"""PID namespaces of our own making, without making one: which numbers are given inside, what is said of a failure."""

import subprocess
import sys

import anyio
import pytest
from hypothesis import given, strategies as st

from iriscw.freeze.drivers.namespace import space
from iriscw.freeze.drivers.namespace.first import FAILED, FIRST, READY
from iriscw.freeze.model import CriuFailed, NoRoom, RightsMissing

MOST = 32768
SPARE = 10
"""Numbers that a CRIU needs in there: its own, and those of what it starts."""


@given(st.sets(st.integers(1, MOST), max_size=1024))
def test_numbers_that_are_needed_are_not_given_away(taken):
    """However many a tree has: those that are given next are none of them."""
    after = space.begin_after(taken, MOST)
    assert after >= space.LOWEST
    assert after + SPARE < MOST
    assert not taken & {*range(after + 1, after + SPARE + 1)}


@pytest.mark.parametrize(
    ("said", "error", "text"),
    [
        (FAILED + b"1 Operation not permitted\n", RightsMissing, "CAP_SYS_ADMIN"),
        (FIRST + b"1\n" + FAILED + b"13 Permission denied\n", RightsMissing, "Permission denied"),
        (FAILED + b"28 No space left on device\n", NoRoom, "one more PID namespace"),
        (FAILED + b"22 Invalid argument\n", CriuFailed, "cannot be made: Invalid argument"),
        (b"", CriuFailed, "ended before it was ready"),
        (READY, CriuFailed, "ended before it was ready"),
        (b"?" * 5000, CriuFailed, "ended before it was ready"),
    ],
)
def test_a_namespace_that_cannot_be_made(said, error, text, tmp_path, monkeypatch):
    """The error says whose fault it is, and nobody is left."""
    started = []

    def start(work, after, channel):
        program = "import os, sys; os.write(0, bytes.fromhex(sys.argv[1]))"
        argv = [sys.executable, "-I", "-S", "-c", program, said.hex()]
        started.append(subprocess.Popen(argv, stdin=channel.fileno()))
        return started[-1]

    monkeypatch.setattr(space, "_start", start)
    with pytest.raises(error, match=text):
        anyio.run(space.make, tmp_path, ())
    assert started[0].returncode is not None
