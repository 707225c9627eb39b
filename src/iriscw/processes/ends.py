"""How a program ended, as its supervisor, or whoever else saw it, can tell. Pure."""

from __future__ import annotations

import enum
import signal

import attrs


class EndKind(enum.Enum):
    """How a program ended, in one word."""

    EXITED = "exited"
    """By itself; ``code`` says how."""
    SIGNALLED = "signalled"
    """By a signal that nobody of iriscw sent; ``signal`` says which."""
    OUT_OF_MEMORY = "out_of_memory"
    """Killed by the kernel for memory."""
    STOPPED = "stopped"
    """After it was told to; ``killed`` says whether it had to be killed."""
    LEASE_OVER = "lease_over"
    """Killed because its worker's lease had run out, whether or not the worker was there."""
    LOST = "lost"
    """Nobody saw how: it is gone with its supervisor."""


@attrs.frozen
class ProcessEnd:
    """How a program ended. At most one of ``code`` and ``signal`` is set; neither: nobody saw how."""

    code: int | None = None
    signal: int | None = None
    stopped: bool = False
    """It ended after it had been told to."""
    killed: bool = False
    """It did not end within its grace and was killed."""
    lease_over: bool = False
    """It was killed because its lease had run out."""
    out_of_memory: bool = False
    """The kernel killed it for memory: in a group of its own the count of such kills rose, and we sent no SIGKILL."""
    max_rss_bytes: int = 0
    perhaps_out_of_memory: bool = False
    """Likewise, in a group that it shares with others: one of them may have been killed, and this one by somebody."""
    text: str = ""
    """What is said of it instead of the usual sentence, by someone who saw more or less than a supervisor sees."""
    log_bytes: int = 0
    """What it has written to standard output and standard error, where that is known: final (INV-J8)."""

    @property
    def kind(self) -> EndKind:
        """The word for it."""
        if self.lease_over:
            return EndKind.LEASE_OVER
        if self.stopped:
            return EndKind.STOPPED
        if self.code is not None:
            return EndKind.EXITED
        if self.signal is None:
            return EndKind.LOST
        return EndKind.OUT_OF_MEMORY if self.out_of_memory else EndKind.SIGNALLED

    @property
    def exit_code(self) -> int | None:
        """Code and signal as one number, which is negative for a signal; None: nobody saw how it ended."""
        return self.code if self.signal is None else -self.signal

    @property
    def succeeded(self) -> bool:
        """Whether the program ended by itself with code 0."""
        return self.kind is EndKind.EXITED and self.code == 0

    @property
    def reason(self) -> str:
        """One sentence for users."""
        if self.text:
            return self.text
        match self.kind:
            case EndKind.LEASE_OVER:
                return "stopped: its worker could not reach the controller until its lease was over"
            case EndKind.STOPPED:
                how = "was killed after its grace" if self.killed else "ended when it was told to"
                return f"stopped: it {how}"
            case EndKind.EXITED:
                return f"exit code {self.code}"
            case EndKind.LOST:
                return "it is gone, and nobody saw how it ended"
            case EndKind.OUT_OF_MEMORY:
                return f"killed by the kernel for memory; it had up to {self.max_rss_bytes} bytes"
            case EndKind.SIGNALLED:
                return f"killed by {_signal_name(self.signal or 0)}{self._doubt()}"

    def _doubt(self) -> str:
        if not self.perhaps_out_of_memory:
            return ""
        return (
            f", perhaps by the kernel: something in the memory group that tasks share was killed for memory meanwhile; "
            f"this one had up to {self.max_rss_bytes} bytes"
        )


UNKNOWN_END = ProcessEnd()
"""The end of a program whose supervisor was killed: it is gone, and nobody saw how."""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
