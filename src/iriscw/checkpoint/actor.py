"""The actor of one move: decisions bound to effects."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from iriscw.checkpoint import moving
from iriscw.checkpoint.moving import CheckpointMove
from iriscw.runtime import Behavior

Effects = Mapping[type, Callable[..., Awaitable[object]]]


def move(effects: Effects) -> Behavior:
    """Return the actor of one move. It is durable: another life takes it up where this one died."""
    return Behavior(
        initial=CheckpointMove,
        on=moving.rules(),
        resume=moving.resume,
        evolve=moving.evolve,
        effects=effects,
        name="move",
    )
