"""A platform of an installed package as the controller opens it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio.to_thread

from iriscw._errors import IriscwError
from iriscw.cloud.drivers.loading import (
    BrokenPlatform,
    CloudDrivers,
    GroupPlace,
    Platform,
    PlatformContext,
    load_platform,
)
from iriscw.config.model import ClusterConfig
from iriscw.controller.tokens import ControllerTokens
from iriscw.files import StateUnusable, make_private_folder


def checked_platform(config: ClusterConfig) -> Platform:
    """Find the platform that a configuration names, and have it look at its settings.

    Raises:
        NoSuchPlatform, AmbiguousPlatform, BrokenPlatform: see :func:`load_platform`.
        InvalidSettings: the platform does not take what the configuration says.
    """
    plugin = config.platform.plugin
    assert plugin is not None
    platform = load_platform(plugin.name)
    try:
        platform.check(plugin.settings, _places(config))
    except IriscwError:
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise BrokenPlatform(f"the platform {plugin.name!r} could not check its settings: {why}") from error
    return platform


@asynccontextmanager
async def open_plugin(
    config: ClusterConfig, tokens: ControllerTokens, folder: Path, controller_address: str
) -> AsyncIterator[CloudDrivers]:
    """Open the platform that a configuration names.

    Args:
        config: the cluster's.
        tokens: of which workers are given theirs.
        folder: of the platform's own; it is made.
        controller_address: which workers dial.

    Raises:
        NoSuchPlatform, AmbiguousPlatform, BrokenPlatform, InvalidSettings: see :func:`checked_platform`.
        StateUnusable: the folder cannot be made.
    """
    platform = await anyio.to_thread.run_sync(checked_platform, config)
    try:
        await anyio.to_thread.run_sync(make_private_folder, folder)
    except OSError as error:
        raise StateUnusable(f"{folder}: {error.strerror or error}") from error
    plugin = config.platform.plugin
    assert plugin is not None

    bootstrap = config.defaults.bootstrap
    context = PlatformContext(
        cluster=config.name,
        settings=plugin.settings,
        groups=_places(config),
        folder=folder,
        controller_address=controller_address,
        worker_environment={"IRISCW_WORKER_PORT": str(bootstrap.worker_port), **tokens.told, **bootstrap.env_vars},
        cache_dir=bootstrap.cache_dir,
        worker_token=tokens.token_of_pod,
    )
    async with platform.open(context) as drivers:
        yield drivers


def _places(config: ClusterConfig) -> dict[str, GroupPlace]:
    places = {}
    for group in config.scale_groups.values():
        said = group.slice_template.plugin
        assert said is not None
        places[group.name] = GroupPlace(
            region=said.region, instance_type=said.instance_type, settings=dict(said.settings)
        )
    return places
