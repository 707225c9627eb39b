"""The feature ``commands``: commands beside running tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from iriscw.controller.doors.commands import CommandsDoor
from iriscw.controller.doors.figures import gauges
from iriscw.controller.feature import Feature, FeatureContext, Parts

if TYPE_CHECKING:
    from iriscw.controller.doors.figures import Family
    from iriscw.rpc.server import Service


class CommandsParts(Parts):
    """See the module."""

    def __init__(self, context: FeatureContext) -> None:
        self._door = CommandsDoor(context.access, context.workers, context.platform.drivers)

    def services(self) -> tuple[Service, ...]:
        """Return what clients ask for."""
        return (self._door,)

    def statistics(self) -> Mapping[str, Any]:
        """Return figures for programs."""
        return {"commands": self._door.statistics()}

    def figures(self) -> Iterator[Family]:
        """Yield how many commands there were."""
        return gauges("iriscw_commands", self._door.statistics())


COMMANDS = Feature(name="commands", open=CommandsParts)
