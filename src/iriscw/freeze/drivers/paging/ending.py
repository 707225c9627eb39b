"""Killing the tree of a pager: all that its guard needs beside itself, and what takes longest to load of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import anyio
import anyio.lowlevel

from iriscw.freeze.drivers.identities import to_task
from iriscw.freeze.drivers.processes.driver import KernelProcesses
from iriscw.processes.identity import ProcessIdentity, boot_id

END_NS: Final = 60_000_000_000


def warm() -> None:
    """Load and read what is loaded and read once: later there may be no descriptor for it."""
    boot_id()
    anyio.run(anyio.lowlevel.checkpoint)


def end_all(tasks: Sequence[ProcessIdentity]) -> bool:
    """Kill processes with all below them; say whether all have ended.

    Raises:
        OSError: they cannot be opened.
    """
    return not anyio.run(KernelProcesses().end, [to_task(each) for each in tasks], END_NS)
