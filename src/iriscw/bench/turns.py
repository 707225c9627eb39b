"""What an event loop does: its turns, each in thread CPU time, and the files that it may open.

A turn is what the loop does between two looks at its sockets: nobody else is served meanwhile. Its thread CPU time is
that of this one thread, so a machine that is busy elsewhere does not change it much. Collections of garbage are taken
apart: what they cost depends on all that the process has ever made.
"""

from __future__ import annotations

import gc
import resource
import selectors
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from iriscw._errors import OperationError
from iriscw.rpc.pacing import FewAtATime

SPARE_DESCRIPTORS = 256
"""Of a process, beside one for each of its peers."""


class TooFewDescriptors(OperationError):
    """The system's hard limit of open files does not allow for so many workers."""


def allow_descriptors(peers: int) -> None:
    """Raise this process's limit of open files so far that each peer can have one.

    Raises:
        TooFewDescriptors: the hard limit is lower.
    """
    needed = peers + SPARE_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise TooFewDescriptors(f"{peers} workers need {needed} open files, the hard limit is {hard}")
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


class TurnWatch(FewAtATime):
    """A controller's selector that takes the thread CPU time of each turn: from one ``select`` to the next one."""

    def __init__(self) -> None:
        super().__init__()
        self._collecting = 0.0
        self._collected_s = 0.0
        self._thread = threading.get_ident()
        self._began = self.cpu_s()
        self.turns_s: list[float] = []
        self.collections_s: list[float] = []

    def cpu_s(self) -> float:
        """CPU time of this thread, but for what collections of garbage took."""
        return time.thread_time() - self._collected_s

    @contextmanager
    def collections(self) -> Iterator[None]:
        """Take note of collections, too."""
        gc.callbacks.append(self._collected)
        try:
            yield
        finally:
            gc.callbacks.remove(self._collected)

    def clear(self) -> None:
        """Forget what was."""
        self.turns_s.clear()
        self.collections_s.clear()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """End a turn, wait, and begin the next one."""
        self.turns_s.append(self.cpu_s() - self._began)
        ready = super().select(timeout)
        self._began = self.cpu_s()
        return ready

    def _collected(self, phase: str, details: dict[str, int]) -> None:
        if threading.get_ident() != self._thread:
            return  # it costs this thread wall time only
        now = time.thread_time()
        if phase == "start":
            self._collecting = now
        else:
            self.collections_s.append(now - self._collecting)
            self._collected_s += now - self._collecting
