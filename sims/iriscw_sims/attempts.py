"""Attempts in the simulated world: what workers say of them, and the programs that really run.

Theory of operation. A :class:`Program` is the user's code of one attempt. It has so long to run, and then ends in a way
that was drawn when it was started; while it is frozen none of that time goes by. It belongs to one worker at a time: a
:class:`SimAttempt` is what a worker has of an attempt, with the program if that runs there.
"""

from __future__ import annotations

from typing import Any, cast

import attrs

from iriscw.jobs.model import Ending, Observation, RunOrder, Suspension

_OBSERVATION = tuple(field.name for field in attrs.fields(cast("Any", Observation)))


def changed(seen: Observation, **changes: Any) -> Observation:
    """Return an observation with some fields changed."""
    # As attrs.evolve does, without looking the fields up each time: observations are changed all the time.
    fields = {name: getattr(seen, name) for name in _OBSERVATION}
    fields.update(changes)
    return Observation(**fields)


@attrs.frozen
class Program:
    """The user's code of an attempt: for how long it has still to run, ns, and how it ends then."""

    ending: Ending | None
    """None: it never ends by itself."""
    left: int
    exit_code: int | None = None
    reason: str = ""


@attrs.define(eq=False)
class Running:
    """A program that runs, since a moment."""

    program: Program
    since: int

    def frozen(self, now: int) -> Program:
        """Return what is left of it."""
        return attrs.evolve(self.program, left=max(0, self.program.left - (now - self.since)))


@attrs.define(eq=False)
class SimAttempt:
    """One attempt on one worker: what runs, and what is said of it."""

    order: RunOrder
    seen: Observation
    alive: bool = True
    """Whether it has not ended here: its process runs, or is about to; or it is suspended, or on its way back."""
    log_bytes: int = 0
    running: Running | None = None
    """What runs of it here; None before it begins, when it has ended, and while it is frozen."""
    held: bool = False
    """Whether it waits for the leader of its gang, and for nothing else."""
    revoked: bool = False
    """Whether it ended here because its grant to come back was taken away: it may be frozen still."""

    @property
    def suspended(self) -> bool:
        """Whether its worker says that nothing of it runs."""
        return self.alive and self.seen.suspension is Suspension.SUSPENDED

    @property
    def returning(self) -> bool:
        """Whether its worker has a grant to have it brought back."""
        return self.alive and self.seen.suspension is Suspension.RESUMING
