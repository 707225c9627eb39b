"""A context for decisions that a test calls directly: every clock is the test's own.

A decision is a function of state, message and context, so a test of one needs no dispatcher::

    ctx = FakeContext()
    decision = on_asked(state, Asked(), ctx)
    decision = on_timer(state, Timer(), ctx.later(30))
"""

from __future__ import annotations

from random import Random
from typing import Self

import attrs

from iriscw.runtime.vocabulary import SECOND, ActorPath, ReplyTo

_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"


@attrs.define
class FakeContext:
    """What the runtime hands to a decision, set by hand.

    Args:
        path: of the actor that decides.
        incarnation: which life of the actor this is.
        now: the monotonic clock, in nanoseconds.
        attentive: the clock that stands still while the process does, in nanoseconds.
        wall: nanoseconds since the epoch.
        rng: what the decision draws from.
        reply_to: who waits for an answer to the message.
        sim: whether the decision runs in a simulation.
        serial: how many ids were given.
    """

    path: ActorPath = attrs.field(default=ActorPath("/actor"), converter=ActorPath)
    incarnation: int = 0
    now: int = 1_000 * SECOND
    attentive: int = 500 * SECOND
    wall: int = 10_000 * SECOND
    rng: Random = attrs.field(factory=lambda: Random(0))  # noqa: S311 - a test repeats itself
    reply_to: ReplyTo | None = None
    sim: bool = True
    serial: int = 0

    def await_journal(self) -> None:
        """Go on: this journal takes everything."""

    def new_id(self, prefix: str = "") -> str:
        """Return the next id: as long as the runtime's, and the same in each run of a test."""
        number, self.serial = self.serial, self.serial + 1
        return prefix + "".join(_LETTERS[number >> 5 * place & 31] for place in range(12))

    def later(self, seconds: float) -> Self:
        """Let time pass on all three clocks, and return the context."""
        span = round(seconds * SECOND)
        self.now, self.attentive, self.wall = self.now + span, self.attentive + span, self.wall + span
        return self
