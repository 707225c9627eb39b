"""What stands behind a served API server: CoreWeave's simulated controllers, and the pools that are there already."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol

import attrs

from iriscw._errors import InvalidArgument
from iriscw_sims.coreweave import crd
from iriscw_sims.coreweave.coreweave import CoreWeave
from iriscw_sims.coreweave.settings import FAITHFUL, QUICK, Settings, Span
from iriscw_sims.coreweave.surroundings import Containers
from iriscw_sims.kube.messages import Request
from iriscw_sims.kube.store import Store
from iriscw_sims.serve.containers import ScriptedContainers
from iriscw_sims.serve.settings import PoolToBegin, ServeSettings, Timing
from iriscw_sims.serve.surroundings import LiveSurroundings

WHOLE_GRACE = Span(86_400_000_000_000, 86_400_000_000_000)
"""How long processes take to end that really run: as long as they take, a day at most. A pod's grace is shorter."""

BLOCK_ADDRESSES = 1 << 12
BLOCKS = (1 << 24) // BLOCK_ADDRESSES
"""Blocks of addresses of loopback, of which each process that has such a cluster takes one: tests run side by side, and
workers listen at their nodes' addresses."""


def of_processes(delays: Settings) -> Settings:
    """Return the settings of a cluster whose pods really run on this machine, beside those of other processes."""
    return attrs.evolve(delays, stop=WHOLE_GRACE, first_address=os.getpid() % BLOCKS * BLOCK_ADDRESSES + 1)


def delays_of(settings: ServeSettings) -> Settings:
    """Return how long everything takes. People who watch want the events of type Normal, too."""
    delays = QUICK if settings.timing is Timing.QUICK else FAITHFUL
    return attrs.evolve(delays, normal_events=True, quotas=settings.quotas)


class Inhabitants(Containers, Protocol):
    """Who runs what is in pods, and tells of what ends by itself."""

    exited: Callable[[str, int, str], object]


def build(
    settings: ServeSettings, store: Store, surroundings: LiveSurroundings, containers: Inhabitants | None = None
) -> CoreWeave:
    """Put a CoreWeave cluster behind an empty store.

    Without ``containers`` nothing really runs in its pods.

    Raises:
        InvalidArgument: a pool to begin with is none.
    """
    crd.install(store, surroundings.now)
    delays = delays_of(settings)
    if containers is None:
        containers = ScriptedContainers(surroundings)
    else:
        delays = of_processes(delays)
    coreweave = CoreWeave(store, surroundings, containers, delays)
    containers.exited = coreweave.exited
    for pool in settings.pools:
        _create(store, pool, surroundings.now)
    return coreweave


def _create(store: Store, pool: PoolToBegin, now: int) -> None:
    body = {
        "apiVersion": f"{crd.GROUP}/{crd.VERSION}",
        "kind": "NodePool",
        "metadata": {"name": pool.name},
        "spec": {"instanceType": pool.instance_type, "targetNodes": pool.nodes},
    }
    answer = store.handle(Request("POST", crd.POOLS, body=body), now)
    if answer.code != 201:
        raise InvalidArgument(f"the pool {pool.name} cannot be: {answer.body['message']}")
