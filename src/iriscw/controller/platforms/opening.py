"""The platform of a controller, opened: drivers by argument, or those of the platform that the configuration names."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from iriscw.cloud.drivers.loading import CloudDrivers
from iriscw.config.model import ClusterConfig, PlatformKind
from iriscw.controller.platforms import local
from iriscw.controller.platforms.plugin import open_plugin
from iriscw.controller.tokens import ControllerTokens

if TYPE_CHECKING:
    from iriscw.controller.platforms.agent_proofs import AgentProofs
    from iriscw.controller.platforms.notices import PoolNotices


@attrs.frozen(kw_only=True)
class OpenPlatform:
    """What a platform gives its controller.

    Attributes:
        drivers: of the cloud.
        cluster: the word by which they know whose a machine is.
        notices: tells on pools what becomes of their slices; None where there is no such place.
        proofs: says which node agents hold which tokens; None where it takes nobody else to know.
        leftovers: the folder in which workers of this machine leave things; None where they are elsewhere.
    """

    drivers: CloudDrivers
    cluster: str
    notices: PoolNotices | None = None
    proofs: AgentProofs | None = None
    leftovers: Path | None = None


@asynccontextmanager
async def open_platform(
    config: ClusterConfig,
    given: CloudDrivers | None,
    *,
    tokens: ControllerTokens,
    state_dir: Path,
    dialled: str,
    tls: bool,
    plaintext: bool,
    fence: Callable[[], None],
) -> AsyncIterator[OpenPlatform]:
    """Open the drivers.

    Args:
        config: the cluster's.
        given: drivers by argument; they are open already.
        tokens: of which workers are given theirs.
        state_dir: the controller's.
        dialled: where workers on this machine find the controller, unless the configuration says it.
        tls: whether the controller's door speaks TLS.
        plaintext: whether it is to be reached without, off loopback.
        fence: see :func:`iriscw.controller.platforms.coreweave.open_coreweave`.

    Raises:
        IriscwError: see the platforms.
    """
    if given is not None:
        yield OpenPlatform(drivers=given, cluster=config.name)
        return
    address = config.defaults.bootstrap.controller_address or dialled
    if config.platform.kind is PlatformKind.LOCAL:
        options = local.local_options(config, state_dir, address)
        containers = local.task_containers(config, os.environ)
        async with local.open_local(options, tokens, state_dir / "secrets" / "workers", containers) as drivers:
            leftovers = local.cache_dir(config, state_dir)
            yield OpenPlatform(drivers=drivers, cluster=config.name, leftovers=leftovers)
    elif config.platform.kind is PlatformKind.PLUGIN:
        async with open_plugin(config, tokens, state_dir / "platform", address) as drivers:
            yield OpenPlatform(drivers=drivers, cluster=config.name)
    else:
        from iriscw.controller.platforms.coreweave import open_coreweave  # its libraries are for those who use it

        opening = open_coreweave(config, tokens, state_dir, tls=tls, plaintext=plaintext, fence=fence)
        async with opening as there:
            yield OpenPlatform(drivers=there, cluster=there.cluster, notices=there.notices, proofs=there.proofs)
