"""The calls on node pools: what :class:`iriscw.cloud.ports.NodePoolDriver` promises, request by request."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from iriscw.cloud.kube import ownership
from iriscw.cloud.kube.calls import MalformedAnswer, collect
from iriscw.cloud.kube.joining import Join
from iriscw.cloud.kube.manifests import nodepool_manifest
from iriscw.cloud.kube.messages import Call
from iriscw.cloud.kube.parsing import MalformedObject, labels_of, pool_of
from iriscw.cloud.kube.paths import NODE_POOLS, NODES, Source, selector
from iriscw.cloud.kube.settings import KubeSettings
from iriscw.cloud.model import LABEL_SLICE, NodePool, NodePoolSpec


def create_pool(settings: KubeSettings, spec: NodePoolSpec, rng: Random) -> Call[NodePool]:
    """Ask for a pool; the contract is that of :meth:`iriscw.cloud.ports.NodePoolDriver.create`.

    Raises:
        QuotaExceeded: the quota is known to be used up already.
        InvalidSpec: the specification is not accepted.
        Conflict: another pool, or one that is being deleted, has this name.
        Forbidden: the credentials do not allow it.
        Throttled: too many calls.
        Unavailable: no answer; the pool may exist or appear later.
    """
    manifest = nodepool_manifest(settings, spec)
    found, new = yield from ownership.create(settings, NODE_POOLS, manifest, (LABEL_SLICE,), rng)
    nodes: tuple[Mapping[str, Any], ...] = ()
    if not new and labels_of(found).get(LABEL_SLICE):
        mine = Source(NODES, selector({LABEL_SLICE: labels_of(found)[LABEL_SLICE]}))
        nodes = yield from collect(settings, mine, rng)
    try:
        return Join.of((found,), nodes, settings.tolerated).pool(pool_of(found).name)
    except MalformedObject as malformed:
        raise MalformedAnswer(str(malformed)) from malformed


def delete_pool(settings: KubeSettings, name: str, uid: str, rng: Random) -> Call[None]:
    """Ask for a pool's deletion; the contract is that of :meth:`iriscw.cloud.ports.NodePoolDriver.delete`.

    Raises:
        Gone: there is no pool of this name, or another one with another uid.
        Conflict: it is not ours to delete.
        Forbidden: the credentials do not allow it.
        Throttled: too many calls.
        Unavailable: no answer; it may have been deleted.
    """
    yield from ownership.delete(settings, NODE_POOLS, name, uid, {"propagationPolicy": "Background"}, rng)


def list_pools(settings: KubeSettings, labels: Mapping[str, str], rng: Random) -> Call[tuple[NodePool, ...]]:
    """Read all pools with these labels, with their nodes, ordered by name.

    Raises:
        Forbidden: the credentials do not allow it.
        Throttled: too many calls.
        Unavailable: no answer.
    """
    pools = yield from collect(settings, Source(NODE_POOLS, selector(labels)), rng)
    if not pools:
        return ()
    # Nodes have the labels of their pool (``nodeLabels``).
    nodes = yield from collect(settings, Source(NODES, selector(labels)), rng)
    return Join.of(pools, nodes, settings.tolerated).all()
