"""The feature ``hosted``: where hosted actors are reached, who may call them, their names and their snapshots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import anyio.to_thread

from iriscw.controller.doors.actor_states import ActorStatesDoor
from iriscw.controller.doors.figures import gauges
from iriscw.controller.doors.hosted import HostedDoor
from iriscw.controller.doors.names import NamesDoor
from iriscw.controller.feature import Feature, FeatureContext, Parts

if TYPE_CHECKING:
    from iriscw.controller.doors.figures import Family
    from iriscw.rpc.server import Service


class HostedParts(Parts):
    """See the module."""

    def __init__(self, context: FeatureContext) -> None:
        self._door = HostedDoor(context.access, context.hub, context.tokens)
        self._names = NamesDoor(context.access, context.hub, context.tokens, self._door.figures)
        self._states = ActorStatesDoor(context.access, context.stores, context.state_dir / "states")

    async def prepare(self) -> None:
        """Remove what was on its way when an earlier controller ended."""
        await anyio.to_thread.run_sync(self._states.clear)

    def services(self) -> tuple[Service, ...]:
        """Return what callers of hosted actors ask for, and what actors do."""
        return (self._door, self._names, self._states)

    def statistics(self) -> Mapping[str, Any]:
        """Return figures for programs."""
        return {"hosted": self._door.statistics(), "actor_states": self._states.statistics()}

    def figures(self) -> Iterator[Family]:
        """Yield how many watch and find hosted actors, and how many snapshots of them were kept."""
        yield from gauges("iriscw_hosted_actors", self._door.statistics())
        yield from gauges("iriscw_actor_states", self._states.statistics())


HOSTED = Feature(name="hosted", open=HostedParts)
