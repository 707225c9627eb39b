"""Signals that ask a process to end in order."""

from __future__ import annotations

import signal


def stopping_signals() -> tuple[signal.Signals, ...]:
    """Return them: Ctrl-C, SIGTERM, and that the terminal was closed, unless the process was started to outlive it.

    ``nohup`` does that by having SIGHUP ignored.
    """
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return (signal.SIGINT, signal.SIGTERM)
    return (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
