"""Which signals ask a process to end."""

import signal

import pytest

from iriscw.processes.stopping import stopping_signals


@pytest.mark.parametrize(
    ("action", "counts"), [(signal.SIG_DFL, True), (lambda *_: None, True), (signal.SIG_IGN, False)]
)
def test_a_closed_terminal_counts_unless_ignored(action, counts):
    """SIGHUP asks for the end, unless the process was started to outlive its terminal."""
    before = signal.signal(signal.SIGHUP, action)
    try:
        found = stopping_signals()
    finally:
        signal.signal(signal.SIGHUP, before)
    assert found[:2] == (signal.SIGINT, signal.SIGTERM)
    assert (signal.SIGHUP in found) is counts
