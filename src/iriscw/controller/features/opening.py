"""All features of one controller, opened: the loop that asks each for its children, services, figures and the rest."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import anyio

from iriscw._errors import InvalidArgument, OperationError
from iriscw.controller.feature import Background, Feature, FeatureContext, Parts
from iriscw.runtime.vocabulary import replace

if TYPE_CHECKING:
    from iriscw.controller.doors.figures import Family
    from iriscw.rpc.http1 import Route
    from iriscw.rpc.server import Service
    from iriscw.runtime import ChildSpec

log = logging.getLogger(__name__)

SAMPLE_INTERVAL_S = 5.0
"""Between two samples; Prometheus scrapes every 15 s or more by default."""


class OpenFeatures:
    """The parts of each feature, by its name and in the order of the list. Make it by :meth:`open`."""

    def __init__(self) -> None:
        self.parts: dict[str, Parts] = {}
        self._guests: dict[str, None] = {}
        """Those that are not built in."""

    @classmethod
    def open(cls, builtin: Iterable[Feature], guests: Sequence[Feature], context: FeatureContext) -> Self:
        """Open each feature, and let the others find what it carries out.

        Args:
            builtin: without these there is no controller.
            guests: come after them, and cannot end it by their actors: one that fails again and again is quarantined.
            context: what they are opened with.

        Raises:
            InvalidArgument: two features have one name, or carry out the same port.
        """
        opened = cls()
        opened._guests = dict.fromkeys(feature.name for feature in guests)
        for feature in (*builtin, *guests):
            if feature.name in opened.parts:
                raise InvalidArgument(f"two features of this controller are called {feature.name!r}")
            parts = opened.parts[feature.name] = feature.open(context)
            context.offer(parts.ports())
        return opened

    async def prepare(self) -> None:
        """Have each do what comes before all actors."""
        for parts in self.parts.values():
            await parts.prepare()

    def children(self) -> tuple[ChildSpec, ...]:
        """Return the children of the tree's root."""
        return tuple(
            replace(child, entity=child.entity or name in self._guests)
            for name, parts in self.parts.items()
            for child in parts.children()
        )

    def services(self) -> list[Service]:
        """Return the services of the door."""
        return [service for parts in self.parts.values() for service in parts.services()]

    def routes(self, own: Mapping[str, Route]) -> dict[str, Route]:
        """Return the routes of the HTTP side, the controller's own among them.

        Raises:
            InvalidArgument: a path has an answer already.
        """
        found = {**own}
        for parts in self.parts.values():
            for path, route in parts.routes().items():
                if found.setdefault(path, route) is not route:
                    raise InvalidArgument(f"{path} of this controller has an answer already")
        return found

    def background(self) -> list[Background]:
        """Return what runs for as long as the controller does, sampling included."""
        return [self._sample, *(each for parts in self.parts.values() for each in parts.background())]

    def figures(self) -> Iterator[Family]:
        """Yield the families of metrics."""
        for parts in self.parts.values():
            yield from parts.figures()

    def statistics(self) -> Mapping[str, Any]:
        """Return figures for programs: fields of ``ControllerStatistics``, and ``guests`` for those it has none for."""
        found = {name: parts.statistics() for name, parts in self.parts.items()}
        guests = {name: found.pop(name) for name in self._guests}
        return {"guests": guests, **{name: value for each in found.values() for name, value in each.items()}}

    def notice(self, event: Any) -> None:
        """Pass on what an actor published."""
        for parts in self.parts.values():
            parts.notice(event)

    async def _sample(self) -> None:
        while True:
            for name, parts in self.parts.items():
                try:
                    await parts.sample()
                except OperationError as error:
                    # A tree that restarts, or a disk that is full: the next round comes.
                    log.warning("figures of %s were put off: %s: %s", name, type(error).__name__, error)
            await anyio.sleep(SAMPLE_INTERVAL_S)
