"""What the simulated CoreWeave needs of the world around it, and what it tells that world: protocols only.

Time, chance and randomness come from :class:`Surroundings`. What really runs in a pod is the world's business: it is
told by :class:`Containers` when a container's processes begin and when they are all gone, whatever the API shows.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from iriscw_sims.kube.kinds import Json
from iriscw_sims.kube.messages import Request, Response


class Surroundings(Protocol):
    """Time, chance and a trace."""

    @property
    def now(self) -> int:
        """The time in ns since 1970: what the store is told, too."""
        ...

    def rng(self, name: str) -> Random:
        """Return a stream of random numbers of its own; asked for once a name."""
        ...

    def after(self, delay_ns: int, function: Callable[..., Any], *args: Any) -> None:
        """Call a function later, never before this call has returned."""
        ...

    def chance(self, name: str, about: str = "") -> bool:
        """Tell whether a fault point comes true now (:data:`iriscw_sims.coreweave.fault_points.FAULT_POINTS`).

        ``about`` is whom it would hit: ``pool/NAME``, ``slot/POOL/NUMBER``, ``node/NAME`` or ``pod/NAME``.
        """
        ...

    def note(self, *what: object) -> None:
        """Write a decision into the trace."""
        ...


class Watching(Protocol):
    """What was opened to be told of all objects of a kind, and of every change."""

    @property
    def closed(self) -> bool:
        """Whether nothing more comes."""
        ...

    def take(self, now: int) -> list[Json]:
        """Return what came since the last call: events, with frozen objects."""
        ...


class Api(Protocol):
    """The API server: the simulated store, or a real one with its face."""

    @property
    def revision(self) -> int:
        """Grows whenever something changed."""
        ...

    def handle(self, request: Request, now: int) -> Response:
        """Answer a request that is not a watch."""
        ...

    def watch(self, request: Request, now: int) -> Watching | Response:
        """Open a watch, or say why not."""
        ...


class Containers(Protocol):
    """Who runs what is in pods. Every ``started`` is ended by exactly one ``killed``, or by ``exited`` before it."""

    def started(self, pod: Json, node: str) -> None:
        """Take note that a pod's processes have begun on a node. ``pod`` is the API's object, and frozen.

        A pod that is restarted in its place begins again, with the same uid.
        """
        ...

    def ending(self, pod_uid: str, grace_ns: int) -> None:
        """Take note that a pod's processes are asked to end by themselves, within ``grace_ns`` from now.

        They are killed then, unless ``exited`` was told before.
        """
        ...

    def killed(self, pod_uid: str, why: str) -> None:
        """Take note that no process of a pod runs any more, as of now."""
        ...


class Observer(Protocol):
    """A hook for a world's checks: told before the API shows it."""

    def booted(self, pool_name: str) -> None:
        """A node of a pool became ready."""
        ...

    def refused(self, pool_name: str, why: str) -> None:
        """The API is about to show that a pool gets no nodes: for ``quota``, ``capacity`` or ``invalid``."""
        ...


class NobodyObserves:
    """The observer of worlds without checks of their own."""

    def booted(self, pool_name: str) -> None:
        """Ignore it."""

    def refused(self, pool_name: str, why: str) -> None:
        """Ignore it."""
