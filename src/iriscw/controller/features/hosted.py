"""The feature ``hosted``: where hosted actors are reached, who may call them, and who has which name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

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

    def services(self) -> tuple[Service, ...]:
        """Return what callers of hosted actors ask for."""
        return (self._door, self._names)

    def statistics(self) -> Mapping[str, Any]:
        """Return figures for programs."""
        return {"hosted": self._door.statistics()}

    def figures(self) -> Iterator[Family]:
        """Yield how many watch and find hosted actors."""
        return gauges("iriscw_hosted_actors", self._door.statistics())


HOSTED = Feature(name="hosted", open=HostedParts)
