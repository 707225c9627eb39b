"""What hosted actors and their callers did, and what of that must not be: the checks of the world of hosted calls."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from iriscw.hosted.model import STREAM_ITEMS

LOST = "CallLost"
"""How a call ends of which nobody knows whether it ran."""


@attrs.define
class Run:
    """One time that a method ran."""

    tag: str
    life: int
    caller: int
    order: int
    open: bool = True
    finished: bool = False
    """Whether it came to its end by itself."""


@attrs.define
class Made:
    """A call, as its caller knows it."""

    tag: str
    kind: str
    caller: int
    order: int
    """Its number among the calls of its caller."""
    end: str = ""
    """What came of it; empty: nothing yet."""
    life: int = 0
    """Of the actor that its answer names."""
    cancelled: bool = False


class Truth:
    """Keeps what happened, and notes violations.

    Args:
        concurrency: of the actor.
        note: takes lines of the trace.
    """

    def __init__(self, concurrency: int, note: Callable[[str], None]) -> None:
        self.concurrency = concurrency
        self.note = note
        self.violations: list[str] = []
        self.runs: list[Run] = []
        self.calls: list[Made] = []
        self.made: dict[str, Made] = {}
        """The first call of each tag: several may share a key."""
        self.over: set[int] = set()
        """Lives that have ended."""
        self._forbidden: set[tuple[str, int]] = set()
        self._never: set[str] = set()
        self._running: dict[int, int] = {}
        self._came: dict[str, int] = {}
        self._last: dict[tuple[int, int], int] = {}

    def violate(self, law: str, what: str) -> None:
        """Note that a law is broken."""
        self.violations.append(f"{law}: {what}")
        self.note(f"violation {law}: {what}")

    # What the actor does

    def begins(self, tag: str, life: int, *, ghost: bool = False) -> Run:
        """Have a method begin."""
        self.note(f"life {life} begins {tag}")
        made = self.made.get(tag)
        if ghost or life in self.over:
            self.violate("H4", f"{tag} ran in an earlier attempt")
        if made is None:
            self.violate("H4", f"{tag} was never called")
            made = Made(tag, "", -1, 0)
        if any(each.tag == tag and (each.life == life or made.kind != "keyed") for each in self.runs):
            self.violate("H1", f"{tag} ran twice")
        if tag in self._never or (tag, life) in self._forbidden:
            self.violate("H6", f"{tag} was taken back, and then began")
        run = Run(tag, life, made.caller, made.order)
        self.runs.append(run)
        self._running[life] = self._running.get(life, 0) + 1
        if self._running[life] > self.concurrency:
            self.violate("H3", f"{self._running[life]} calls run at once, with a concurrency of {self.concurrency}")
        return run

    def ends(self, run: Run, *, finished: bool) -> None:
        """Have a method end, or be cancelled."""
        self.note(f"life {run.life} {'ends' if finished else 'leaves'} {run.tag}")
        run.open, run.finished = False, finished
        self._running[run.life] -= 1

    def comes(self, tag: str) -> None:
        """Have a call with a key come to the actor, perhaps once more."""
        self._came[tag] = self._came.get(tag, 0) + 1

    def forbid(self, tag: str, life: int) -> None:
        """Have a call not begin in a life from now on: the actor was told so."""
        self._forbidden.add((tag, life))

    def forbid_everywhere(self, tag: str) -> None:
        """Have a call not begin from now on: it was never sent."""
        self._never.add(tag)

    def check_bound(self, what: str, value: int, bound: int) -> None:
        """Check H5 in one place."""
        if value > bound:
            self.violate("H5", f"{what}: {value}, of at most {bound}")

    def check_ahead(self, tag: str, given: int, taken: int) -> None:
        """Check how far a stream runs ahead: one item may be in the reader's hands, and one in the making."""
        self.check_bound(f"items of {tag} that were given and not taken", given - taken, STREAM_ITEMS + 2)

    # What callers see

    def makes(self, made: Made) -> None:
        """Have a call be made."""
        self.calls.append(made)
        self.made.setdefault(made.tag, made)

    def answered(self, made: Made, end: str, life: int = 0) -> None:
        """Have a call end."""
        self.note(f"caller {made.caller} has {end} of {made.tag}")
        if made.end:
            self.violate("H1", f"{made.tag} ended twice: {made.end}, {end}")
        made.end, made.life = end, life

    def check_ends(self, *, faultless: bool) -> None:
        """Check at the end that calls have ended as they ran, begun in their order, and been lost by faults only."""
        by_tag: dict[str, list[Run]] = {}
        for run in self.runs:
            by_tag.setdefault(run.tag, []).append(run)
        for made in self.calls:
            self._check_end(made, by_tag.get(made.tag, []))
            if faultless and made.end == LOST:
                self.violate("H7", f"{made.tag} was lost, and nothing had failed")
        if self.concurrency == 1:
            self._check_order()

    def _check_end(self, made: Made, runs: list[Run]) -> None:
        if not made.end:
            self.violate("H7", f"{made.tag} of caller {made.caller} has no end")
        if made.end in ("value", "error") and not any(each.life == made.life and each.finished for each in runs):
            self.violate("H1", f"{made.tag} ended with a {made.end} of life {made.life}, where it did not run")
        if made.end == "taken" and not any(each.finished for each in runs) and made.life not in self.over:
            self.violate("H1", f"{made.tag} was taken, and was not done")
        if made.end == "unsent" and runs:
            self.violate("H1", f"{made.tag} ran, though its caller was told that it was not sent")
        if any(each.open and each.life not in self.over for each in runs):
            self.violate("H7", f"{made.tag} still runs")

    def _check_order(self) -> None:
        """Nobody knows when what was lost came, what comes again has lost its place, and a shared key is nobody's."""
        for run in self.runs:
            made = self.made.get(run.tag)
            if made is None or made.end == LOST or made.tag.startswith("shared") or self._came.get(made.tag, 0) > 1:
                continue
            place = (run.caller, run.life)
            if run.order < self._last.get(place, 0):
                self.violate("H2", f"{run.tag} of caller {run.caller} began after call {self._last[place]}")
            self._last[place] = run.order
