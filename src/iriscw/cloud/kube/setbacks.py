"""How badly it goes: failures in a row, since when nothing else was heard, and which pause follows.

The two are told apart on purpose. A *row of failures* makes pauses longer, and only real progress ends it. *Silence*
makes a watch give up in the end, and any sign of life ends it: a server that answers "forgotten" each time is no
silence, and is still asked more and more slowly.
"""

from __future__ import annotations

from random import Random

from iriscw.cloud.kube.pauses import growing
from iriscw.cloud.kube.settings import KubeSettings


class Setbacks:
    """What went wrong lately with one reflector. Times are ns."""

    def __init__(self, settings: KubeSettings) -> None:
        self.row = 0
        """Failures since the last progress."""
        self.pauses = 0
        """Pauses that were made because of failures, ever."""
        self._settings = settings
        self._since: int | None = None

    @property
    def many(self) -> bool:
        """Whether so much failed in a row that the version of a watch may be what is wrong."""
        return self.row >= self._settings.relist_after

    def progress(self) -> None:
        """Something moved on, or lasted."""
        self.row = 0

    def heard(self) -> None:
        """Somebody is there."""
        self._since = None

    def stumbled(self) -> None:
        """Something failed, though somebody is there."""
        self.row += 1
        self._since = None

    def failed(self, now: int) -> None:
        """Something failed, and nobody was heard."""
        self.row += 1
        if self._since is None:
            self._since = now

    def silence(self, now: int) -> int:
        """Return how long nothing but failures has been heard, in ns."""
        return 0 if self._since is None else now - self._since

    def too_long(self, now: int) -> bool:
        """Whether that is longer than the watch is patient."""
        return self.silence(now) >= self._settings.patience

    def pause(self, rng: Random) -> int:
        """Draw the pause that follows the failures so far, in ns."""
        self.pauses += 1
        return growing(self.row, self._settings.watch_pause_least, self._settings.watch_pause_most, rng)
