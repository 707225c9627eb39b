"""What the decisions of jobs may be tuned by."""

from __future__ import annotations

import attrs

from iriscw.runtime.vocabulary import SECOND


@attrs.frozen
class JobSettings:
    """What the decisions of jobs may be tuned by; all times in ns."""

    lease_grace_ns: int = 60 * SECOND
    """Silence after which an attempt of an unfenced worker is over. Longer than the worker's own lease."""
    logs_bound_ns: int = 30 * SECOND
    """How long the end of a task waits for its last log line."""
    suspend_limit_ns: int = 3_600 * SECOND
    """How long an attempt may take to be suspended, and how long to come back. Deadlines that grow with its bytes are
    the agent's; this is for an agent that does not answer. A terabyte to a disk of 500 MB/s takes 35 minutes."""
    yield_limit_ns: int = 600 * SECOND
    """How long an attempt may take to be frozen because it has to give way; then it is stopped. Somebody waits."""
    thaw_pause_ns: int = 5 * SECOND
    """Between two tries to bring an attempt back."""
    doubt_ns: int = 15 * SECOND
    """How long a machine that did not take an attempt is not tried again; twice as long each time, up to
    ``longest_doubt_ns``. What was refused changes when somebody does something about it, there or in the pool."""
    longest_doubt_ns: int = 600 * SECOND
    copy_limit_ns: int = 3_600 * SECOND
    """How long a checkpoint of an attempt that runs on may take, as ``suspend_limit_ns``."""


DEFAULT_SETTINGS = JobSettings()
