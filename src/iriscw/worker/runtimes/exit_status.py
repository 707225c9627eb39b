"""How a program ended, in the port's words. Pure."""

from __future__ import annotations

import signal

from iriscw.processes.status import Ending
from iriscw.worker.ports import AttemptEnd, EndKind


def classify(ending: Ending) -> AttemptEnd:
    """Say in the port's words how a program ended. Pure."""
    if ending.lease_over:
        reason = "stopped: its worker could not reach the controller until its lease was over"
        return AttemptEnd(EndKind.LEASE_OVER, ending.code, ending.signal, killed=True, reason=reason)
    if ending.stopped:
        how = "was killed after its grace" if ending.killed else "ended when it was told to"
        return AttemptEnd(EndKind.STOPPED, ending.code, ending.signal, ending.killed, f"stopped: it {how}")
    if ending.code is not None:
        return AttemptEnd(EndKind.EXITED, ending.code, reason=f"exit code {ending.code}")
    if ending.signal is None:
        return AttemptEnd(EndKind.LOST, reason="it is gone, and nobody saw how it ended")
    if ending.out_of_memory:
        reason = f"killed by the kernel for memory; it had up to {ending.max_rss_bytes} bytes"
        return AttemptEnd(EndKind.OUT_OF_MEMORY, signal=ending.signal, reason=reason)
    reason = f"killed by {_signal_name(ending.signal)}"
    if ending.perhaps_out_of_memory:
        reason += (
            f", perhaps by the kernel: something in the memory group that tasks share was killed for memory meanwhile; "
            f"this one had up to {ending.max_rss_bytes} bytes"
        )
    return AttemptEnd(EndKind.SIGNALLED, signal=ending.signal, reason=reason)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
