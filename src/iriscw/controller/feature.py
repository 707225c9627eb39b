"""The socket for features: what one offers, what it is given, and what it adds to a controller.

A controller is a list of features. Those that are built in are listed in :mod:`iriscw.controller.features.builtin`;
installed packages add theirs under the entry point group ``iriscw.features`` (:mod:`iriscw.controller.installed`). For
all of them the assembly does the same, in the order of the list::

    open(context)           nothing runs yet; parts of other features are not asked for
    prepare()               what has to be done on the disk before any actor starts
    children()              the tree: rest_for_one, so a child that is restarted takes those behind it along
    background()            tasks that run for as long as the controller does
    services(), routes()    the door, opened last and closed first
    sample()                now and then, for figures that only actors have
    figures()               whenever /metrics is read, from memory
    notice(event)           whatever actors publish

Features do not import each other. What one needs of another is a port, by its type: whoever carries it out names it in
``ports()``, and ``context.port(Freezer)`` finds it once all features are open, which is when ``children()`` is called.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import attrs

from iriscw._errors import InvalidArgument

if TYPE_CHECKING:
    from iriscw.config.model import ClusterConfig
    from iriscw.controller.doors.access import Access
    from iriscw.controller.doors.figures import Family
    from iriscw.controller.doors.streams import Switchboard
    from iriscw.controller.events import EventHub
    from iriscw.controller.platforms.opening import OpenPlatform
    from iriscw.controller.stores.stores import Stores
    from iriscw.controller.tokens import ControllerTokens
    from iriscw.fleet.model import FleetConfig
    from iriscw.journal.port import Journal
    from iriscw.rpc.http1 import Route
    from iriscw.rpc.server import Service
    from iriscw.runtime import ChildSpec

Port = TypeVar("Port")

Background: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


@attrs.frozen(kw_only=True, eq=False)
class FeatureContext:
    """What a feature is opened with.

    Attributes:
        config: the cluster's.
        state_dir: the controller's folder, mode 0700; a feature keeps files below a folder of its name.
        access: asks actors, and says what a caller may do. There are no actors before the tree stands.
        hub: passes on what actors publish; wakes who waits for news.
        tokens: of workers, attempts and agents.
        stores: logs, results and what jobs run; ``stores.bundles`` is the cluster's object store.
        workers: those that have a stream.
        platform: the drivers.
        fleet: the scale groups.
        journal: of durable actors; says whether work is taken.
    """

    config: ClusterConfig
    state_dir: Path
    access: Access
    hub: EventHub
    tokens: ControllerTokens
    stores: Stores
    workers: Switchboard
    platform: OpenPlatform
    fleet: FleetConfig
    journal: Journal
    _ports: dict[type, object] = attrs.field(factory=dict, init=False)

    def port(self, kind: type[Port]) -> Port:
        """Return what carries a port out, for the children of another feature.

        Raises:
            InvalidArgument: no feature does.
        """
        if kind not in self._ports:
            raise InvalidArgument(f"no feature of this controller carries out {kind.__name__}")
        return cast("Port", self._ports[kind])

    def offer(self, ports: Mapping[type, object]) -> None:
        """Take what a feature carries out.

        Raises:
            InvalidArgument: another one carries it out already.
        """
        for kind, port in ports.items():
            if self._ports.setdefault(kind, port) is not port:
                raise InvalidArgument(f"two features of this controller carry out {kind.__name__}")


class Parts:
    """What one feature adds to one controller. Each method has a default: that it adds nothing of the kind."""

    def ports(self) -> Mapping[type, object]:
        """Return what other features may ask for, by the port's type."""
        return {}

    async def prepare(self) -> None:
        """Do what has to be done before any actor starts."""

    def children(self) -> Sequence[ChildSpec]:
        """Return children of the tree's root. Those that never change are taken to be there always."""
        return ()

    def services(self) -> Sequence[Service]:
        """Return services of the door; ``method_rules`` of each say who may call what (:mod:`iriscw.rpc.rules`)."""
        return ()

    def routes(self) -> Mapping[str, Route]:
        """Return routes of the HTTP side, by their paths."""
        return {}

    def background(self) -> Sequence[Background]:
        """Return functions to run for as long as the controller does; what one raises ends the controller."""
        return ()

    async def sample(self) -> None:
        """Ask actors for figures, every few seconds. An ``OperationError`` is logged, and the next round comes."""

    def figures(self) -> Iterable[Family]:
        """Return families of metrics, from memory (:mod:`iriscw.controller.doors.figures` makes them)."""
        return ()

    def statistics(self) -> Mapping[str, Any]:
        """Return figures for programs: what ``ControllerStatistics.guests`` has by the feature's name.

        Of one that is built in they are fields of ``ControllerStatistics`` itself.
        """
        return {}

    def notice(self, event: Any) -> None:
        """Take note of what an actor published. Neither waits nor raises."""


@attrs.frozen(kw_only=True)
class Feature:
    """What a package offers.

    Attributes:
        name: what it is called in messages.
        open: makes its parts of one controller. It does not wait, and starts nothing.
        commands: commands of the command line, as ``module:attribute`` by their names; imported when they are called.
        simulated: makes its part of a simulated world (:class:`iriscw.testing.features.SimulatedFeature`); None: it has
            none.
    """

    name: str
    open: Callable[[FeatureContext], Parts]
    commands: Mapping[str, str] = attrs.field(factory=dict)
    simulated: Callable[[], Any] | None = None
