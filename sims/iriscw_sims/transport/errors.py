"""What ends a simulation: code that waits for nothing, that never lets time pass, or that reaches past the loop."""

from __future__ import annotations

from iriscw._errors import InternalError, UsageError


class StuckLoop(InternalError):
    """Nothing is ready and no timer is set, so nothing can ever happen again. The text lists what waits, and where."""


class SpinningLoop(InternalError):
    """Callbacks follow each other without end, and virtual time stands still. The text names the last ones."""


class HorizonPassed(InternalError):
    """The virtual time that a run was given is over, and it has not ended. The text lists what waits, and where."""


class CallbackFailed(InternalError):
    """Something raised where nobody could catch it: in a callback, in a task whose end nobody looked at."""


class Unsimulated(UsageError):
    """The code asked for a part of the machine that a virtual loop has not got: a thread, a real socket, a process."""
