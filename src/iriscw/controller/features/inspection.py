"""The feature ``inspection``: the controller's actors, shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iriscw.controller.feature import Feature, FeatureContext, Parts
from iriscw.inspection.doors import InspectionDoor
from iriscw.rpc.tokens import Role

if TYPE_CHECKING:
    from iriscw.rpc.server import Service


class InspectionParts(Parts):
    """See the module."""

    def __init__(self, context: FeatureContext) -> None:
        self._door = InspectionDoor(lambda: context.access.system, Role.ADMIN, Role.LOCAL)

    def services(self) -> tuple[Service, ...]:
        """Return the door."""
        return (self._door,)


INSPECTION = Feature(name="inspection", open=InspectionParts)
