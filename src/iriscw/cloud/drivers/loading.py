"""Platforms of installed packages: what they give, what they are given, and how they are found.

A package offers a :class:`Platform` under the entry point group ``iriscw.platforms``; its module is imported only when
a configuration names it (``platform: {plugin: {name: ...}}``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

import attrs

from iriscw._errors import UsageError
from iriscw.cloud.model import Pod, PodSpec
from iriscw.cloud.ports import Connection, NodePoolDriver, PodDriver
from iriscw.plugs import Plugs
from iriscw.rpc.tokens import Secret


class NoSuchPlatform(UsageError, LookupError):
    """No installed package offers a platform of this name."""


class AmbiguousPlatform(UsageError):
    """Several installed packages offer a platform of this name."""


class BrokenPlatform(UsageError):
    """A package offers a platform of this name, but it cannot be imported, or is no :class:`Platform`."""


class InvalidSettings(UsageError, ValueError):
    """The configuration says something that the platform does not take; raised by the platform, with the key."""


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
        """Return the connection to one incarnation of a pod; nothing is dialled before it is used."""


@runtime_checkable
class TaskConnections(Protocol):
    """What drivers have beside, where tasks have pods or containers of their own."""

    async def task_connection(self, worker: Pod, attempt_uid: str) -> Connection:
        """Return the connection to what an attempt runs in. ``worker`` is its worker's pod.

        Raises:
            Gone: there is nothing of the attempt, or not any more.
            Forbidden: the credentials do not allow it.
            Throttled: too many calls.
            Unavailable: no answer.
        """
        ...


@attrs.frozen(kw_only=True)
class GroupPlace:
    """What the configuration says of a scale group's machines, for the platform alone.

    Attributes:
        region: ``slice_template.plugin.region``; empty if it is not said.
        instance_type: likewise.
        settings: likewise; what the platform itself reads.
    """

    region: str = ""
    instance_type: str = ""
    settings: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class PlatformContext:
    """What a platform is opened with.

    Attributes:
        cluster: the cluster's name.
        settings: ``platform.plugin.settings``, which :attr:`Platform.check` let pass.
        groups: what the configuration says of each scale group's machines; a pool's group is its label
            ``iris-scale-group`` (:data:`iriscw.cloud.model.LABEL_GROUP`).
        folder: a folder that is the platform's own, mode 0700; it is there, and lasts as long as the cluster's state.
        controller_address: ``host:port`` that workers dial.
        worker_environment: variables that workers are given: ``defaults.bootstrap.env_vars``, ``worker_port``, and how
            the controller is trusted.
        cache_dir: where a worker keeps bundles and logs, on its machine.
        worker_token: gives the token of the worker in a pod. It is a secret: it is handed over in a file of mode 0600,
            never on a command line or in a pod's description.
    """

    cluster: str
    settings: Mapping[str, str]
    groups: Mapping[str, GroupPlace]
    folder: Path
    controller_address: str
    worker_environment: Mapping[str, str]
    cache_dir: str
    worker_token: Callable[[PodSpec], Secret] = attrs.field(repr=False)


Opening: TypeAlias = Callable[[PlatformContext], AbstractAsyncContextManager[CloudDrivers]]
Checking: TypeAlias = Callable[[Mapping[str, str], Mapping[str, GroupPlace]], None]


def _no_settings(settings: Mapping[str, str], groups: Mapping[str, GroupPlace]) -> None:
    """Take no settings at all: a misspelt one would be ignored."""
    for where, said in {"platform.plugin": settings, **{name: each.settings for name, each in groups.items()}}.items():
        if said:
            raise InvalidSettings(f"{where}: this platform has no settings, and {', '.join(sorted(said))} was said")


@attrs.frozen(kw_only=True)
class Platform:
    """What a package offers.

    Attributes:
        open: opens the drivers. Leaving the context manager must not stop anything that runs in the cloud: the next
            controller finds it by listing.
        check: raises :class:`InvalidSettings` for settings, of the platform or of a group, that cannot be; does nothing
            else. ``iriscw config check`` calls it, too. Default: there are no settings.
    """

    open: Opening
    check: Checking = _no_settings


PLATFORMS = Plugs(
    group="iriscw.platforms",
    thing="platform",
    kind=Platform,
    missing=NoSuchPlatform,
    ambiguous=AmbiguousPlatform,
    broken=BrokenPlatform,
)


def load_platform(name: str) -> Platform:
    """Return the platform that an installed package offers as ``name``.

    Raises:
        NoSuchPlatform: there is none; the error lists those there are.
        AmbiguousPlatform: several packages offer it.
        BrokenPlatform: it cannot be imported, or is no :class:`Platform`.
    """
    return PLATFORMS.load(name)
