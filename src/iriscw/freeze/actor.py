"""The actors of one freeze and of one thaw: decisions bound to effects."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from iriscw.freeze import freezing, thawing
from iriscw.freeze.freezing import Freeze
from iriscw.freeze.thawing import Thaw
from iriscw.runtime import Behavior

Effects = Mapping[type, Callable[..., Awaitable[object]]]


def freeze(effects: Effects) -> Behavior:
    """Return the actor of one freeze. It is durable: another life takes it up where this one died."""
    return Behavior(
        initial=Freeze,
        on=freezing.rules(),
        resume=freezing.resume,
        evolve=freezing.evolve,
        effects=effects,
        name="freeze",
    )


def thaw(effects: Effects) -> Behavior:
    """Return the actor of one thaw, durable as well."""
    return Behavior(
        initial=Thaw, on=thawing.rules(), resume=thawing.resume, evolve=thawing.evolve, effects=effects, name="thaw"
    )
