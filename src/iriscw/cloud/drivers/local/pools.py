"""The NodePoolDriver of the local platform."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping

import attrs

from iriscw.cloud.drivers.local.platform import LocalPlatform
from iriscw.cloud.drivers.local.records import PoolRecord, pool_seen
from iriscw.cloud.drivers.watching import carries
from iriscw.cloud.labels import check_name, check_ours, our_labels
from iriscw.cloud.model import LABEL_SLICE, Conflict, Gone, InvalidSpec, NodePool, NodePoolSpec, WatchEvent

MAX_NODES = 1000
"""Nodes in one pool of one machine: each takes a loopback address and at least one process."""


@attrs.frozen
class LocalNodePoolDriver:
    """Pools as folders and shares of a budget; see :class:`~iriscw.cloud.ports.NodePoolDriver`."""

    platform: LocalPlatform

    async def create(self, spec: NodePoolSpec) -> NodePool:
        """Ask for a pool. Whether the budget has room for it is told by its ``Quota`` condition."""
        check_name(spec.name)
        if not 0 < spec.target_nodes <= MAX_NODES:
            raise InvalidSpec(f"a pool has 1 to {MAX_NODES} nodes, not {spec.target_nodes}")
        platform = self.platform
        async with platform.lock:
            present = platform.pools.get(spec.name)
            if present is not None:
                if present.deleting or present.spec.labels.get(LABEL_SLICE) != spec.labels.get(LABEL_SLICE):
                    raise Conflict(f"another pool has the name {spec.name!r}, or it is being deleted")
                return pool_seen(present)
            labels = our_labels(platform.options.cluster, spec.labels)
            record = PoolRecord(attrs.evolve(spec, labels=labels), uuid.uuid4().hex, 0)
            acknowledged = pool_seen(await platform.change_pool(record))
            await platform.grant()
        return acknowledged

    async def delete(self, name: str, uid: str) -> None:
        """Ask for the deletion of a pool; its pods go first."""
        async with self.platform.lock:
            record = self.platform.pools.get(name)
            if record is None or record.uid != uid:
                raise Gone(f"there is no pool {name!r} with the uid {uid}")
            check_ours(self.platform.options.cluster, record.spec.labels)
            await self.platform.end_pool(record)

    async def list(self, labels: Mapping[str, str]) -> tuple[NodePool, ...]:
        """Return all pools with these labels."""
        return tuple(pool for pool in self.platform.pools_seen() if carries(pool, labels))

    def watch(self, labels: Mapping[str, str]) -> AsyncIterator[WatchEvent]:
        """Return what there is, then every change."""
        return self.platform.pool_watchers.watch(labels)
