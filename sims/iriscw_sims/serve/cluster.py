"""What stands behind a served API server: CoreWeave's simulated controllers, and the pools that are there already."""

from __future__ import annotations

import attrs

from iriscw.errors import InvalidArgument
from iriscw_sims.coreweave import crd
from iriscw_sims.coreweave.coreweave import CoreWeave
from iriscw_sims.coreweave.settings import FAITHFUL, QUICK, Settings
from iriscw_sims.kube.messages import Request
from iriscw_sims.kube.store import Store
from iriscw_sims.serve.containers import ScriptedContainers
from iriscw_sims.serve.settings import PoolToBegin, ServeSettings, Timing
from iriscw_sims.serve.surroundings import LiveSurroundings


def delays_of(settings: ServeSettings) -> Settings:
    """Give how long everything takes. People who watch want the events of type Normal, too."""
    delays = QUICK if settings.timing is Timing.QUICK else FAITHFUL
    return attrs.evolve(delays, normal_events=True, quotas=settings.quotas)


def build(settings: ServeSettings, store: Store, surroundings: LiveSurroundings) -> CoreWeave:
    """Put a CoreWeave cluster behind an empty store.

    Raises:
        InvalidArgument: a pool to begin with is none.
    """
    crd.install(store, surroundings.now)
    containers = ScriptedContainers(surroundings)
    coreweave = CoreWeave(store, surroundings, containers, delays_of(settings))
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
