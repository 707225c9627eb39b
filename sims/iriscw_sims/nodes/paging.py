"""Who brings the pages of a lazy thaw on a simulated machine: a pager, and the guard that ends the tree without it.

Both are processes of their own, which an agent that is killed leaves behind. As long as one of them is there, a task
that touches a page that is missing waits. When both are gone before all pages are there the kernel gives empty ones:
the tree goes on with memory that was made up, and whoever lets that be has broken INV-C9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from iriscw.runtime.vocabulary import MILLISECOND
from iriscw_sims.nodes.shelves import Artifact

if TYPE_CHECKING:
    from iriscw_sims.nodes.machine import Machine

LEAST_TICKS = 40
"""That bringing pages takes, however few they are: so long that something may happen meanwhile."""

TICK_NS = 20 * MILLISECOND
"""What a tick is worth for a pager: between those of a machine that rests, and of one that works."""

NOTICED_AFTER = 3
"""Ticks until a guard has noticed that its pager is gone."""

COMPLETE, REFUSED, FAILED = "complete", "refused", "failed"


@attrs.define(eq=False)
class Pager:
    """One pager with its guard. ``end`` is what it wrote down last."""

    machine: Machine
    operation: str
    artifact: Artifact
    settled: bool = False
    """CRIU has said that the tree is back."""
    alive: bool = True
    guard: bool = True
    """Whether its guard is there."""
    end: str = ""
    left: int = 0
    """Ticks until all pages are there."""
    patience: int = -1
    """Ticks until its deadline, if that comes first."""
    noticed: int = NOTICED_AFTER

    @property
    def over(self) -> bool:
        """Whether nobody of the two is there."""
        return not (self.alive or self.guard)

    @property
    def lost(self) -> bool:
        """Whether nobody brings what is missing, and nobody keeps the tree from going on without it."""
        return self.over and self.end != COMPLETE

    def begin(self) -> None:
        """The tree is back: from now on all pages are brought."""
        self.settled = True
        size = self.artifact.now.images_bytes
        self.left = LEAST_TICKS + self.machine.fate.lasts("paging", size) // TICK_NS
        if self.machine.fate.may("pages do not come in time", f"operation/{self.operation}"):
            self.patience = self.left // 2

    def tick(self) -> None:
        """Time passes."""
        if self.over:
            return
        if not self.alive:
            self.noticed -= 1
            if self.noticed <= 0:
                self._end_tree()
            return
        if not self.settled:
            return
        self.left -= 1
        if self.artifact.now.damaged:  # every piece is compared before it is given out
            self.end = REFUSED
            self._end_tree()
        elif self.left <= 0 or not self._tree():
            self._complete()
        elif self.left <= self.patience:
            self.end = FAILED
            self._end_tree()

    def _tree(self) -> list[int]:
        return [each.pid for each in self.machine.living() if each.pager is self]

    def _complete(self) -> None:
        self.end = COMPLETE
        self.alive = self.guard = False
        for each in self.machine.processes:
            if each.pager is self:
                each.pager = None

    def _end_tree(self) -> None:
        for each in self.machine.living():
            if each.pager is self:
                self.machine.kill(each)
        self.end = self.end or FAILED
        self.alive = self.guard = False

    def killed(self) -> None:
        """Somebody kills the pager; its guard will notice."""
        self.alive = False

    def killed_with_its_guard(self) -> None:
        """Somebody kills both: nothing keeps the tree waiting any more."""
        self.alive = self.guard = False
