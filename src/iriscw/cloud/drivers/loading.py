"""Find a platform's drivers by name: those that were given as an argument, or an installed package's entry
point.

A platform is a function that takes the platform's section of the configuration and gives an asynchronous
context manager of :class:`CloudDrivers`. A package offers one under the entry point group
``iriscw.platforms``; its module is imported only when a configuration names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from importlib.metadata import entry_points
from typing import Any, Protocol, TypeAlias, runtime_checkable

from iriscw.cloud.ports import Connection, NodePoolDriver, PodDriver
from iriscw.errors import UsageError

ENTRY_POINT_GROUP = "iriscw.platforms"

BUILT_IN = ("coreweave", "local")
"""The platforms that need no package: whoever opens one knows more of it than its section says."""


class NoSuchPlatform(UsageError, LookupError):
    """No driver has this name: not among the arguments, and no installed package offers it."""


class AmbiguousPlatform(UsageError):
    """Several installed packages offer drivers of this name."""


class BrokenPlatform(UsageError):
    """A package offers drivers of this name, but they cannot be imported."""


@runtime_checkable
class CloudDrivers(Protocol):
    """All drivers of one platform."""

    @property
    def node_pools(self) -> NodePoolDriver:
        """The driver of node pools."""

    @property
    def pods(self) -> PodDriver:
        """The driver of worker pods."""

    def connection(self, pod: str, uid: str) -> Connection:
        """Give the connection to one incarnation of a pod; nothing is dialled before it is used."""


PlatformFactory: TypeAlias = Callable[[Any], AbstractAsyncContextManager[CloudDrivers]]
"""Takes the platform's section of the configuration."""


def load_platform(name: str, given: Mapping[str, PlatformFactory] | None = None) -> PlatformFactory:
    """Give the platform called ``name``: from ``given`` first, then from the entry points.

    Raises:
        NoSuchPlatform: there is none; the error lists those there are.
        AmbiguousPlatform: several packages offer it.
        BrokenPlatform: it cannot be imported.
    """
    if given is not None and name in given:
        return given[name]
    offered = entry_points(group=ENTRY_POINT_GROUP)
    found = list(offered.select(name=name))
    if not found:
        known = ", ".join(sorted({*(given or {}), *offered.names, *BUILT_IN}))
        raise NoSuchPlatform(f"nothing installed runs the platform {name!r}; there are: {known}")
    if len(found) > 1:
        packages = ", ".join(sorted(str(each.dist.name if each.dist else each.value) for each in found))
        raise AmbiguousPlatform(f"the platform {name!r} is offered by: {packages}")
    try:
        factory: PlatformFactory = found[0].load()
    except (ImportError, AttributeError) as error:
        raise BrokenPlatform(f"the platform {name!r} ({found[0].value}) cannot be imported: {error}") from error
    return factory
