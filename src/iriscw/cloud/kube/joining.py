"""Which nodes are which pool's.

Theory of operation. A node carries the labels that its pool asked for (``nodeLabels``), so our own slice label says
where it belongs; CoreWeave's label with the pool's name stands in for pools that have no slice label. CoreWeave's
label with the pool's uid is not asked: ids of slices are never used twice, and what that uid is of is written down
nowhere.

Both sides name *homes*: a node has one at most, a pool one or two. So one dictionary from home to nodes, and one from
home to pools, tell in one step whose a node is and which nodes a pool has, and whatever changes touches only the
pools at that home.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import attrs

from iriscw.cloud.kube.exchange import Thing
from iriscw.cloud.kube.parsing import label_of, node_of, pool_of
from iriscw.cloud.model import LABEL_GROUP, LABEL_SLICE, Node, NodePool

POOL_NAME_LABEL = "compute.coreweave.com/node-pool"


def home_of(node: Thing) -> str:
    """Return where a node belongs, comparable with :func:`homes_of`; empty if it does not say."""
    slice_id = label_of(node, LABEL_SLICE)
    if slice_id:
        return f"slice {slice_id}"
    pool = label_of(node, POOL_NAME_LABEL)
    return f"pool {pool}" if pool else ""


def homes_of(name: str, labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return where nodes of the pool with this name and these labels belong."""
    slice_id = labels.get(LABEL_SLICE, "")
    return (f"slice {slice_id}", f"pool {name}") if slice_id else (f"pool {name}",)


@attrs.frozen
class _Homed:
    home: str
    node: Node


class Join:
    """Pools and nodes as they were last seen, joined. Methods give the names of the pools that look different now.

    Args:
        tolerated: Taints that pods tolerate, by scale group, where they are not the usual ones.
    """

    def __init__(self, tolerated: Mapping[str, tuple[str, ...]] = MappingProxyType({})) -> None:
        self._tolerated = tolerated
        self._pools: dict[str, tuple[NodePool, tuple[str, ...]]] = {}
        """By name: each without its nodes, and its homes."""
        self._owners: dict[str, dict[str, None]] = {}
        """By home: the names of its pools."""
        self._homed: dict[str, _Homed] = {}
        """By name of a node."""
        self._nodes: dict[str, dict[str, Node]] = {}
        """By home and name of a node."""

    @classmethod
    def of(
        cls,
        pools: Iterable[Thing],
        nodes: Iterable[Thing],
        tolerated: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    ) -> Join:
        """Join two lists."""
        join = cls(tolerated)
        for node in nodes:
            join.node_seen(node)
        for pool in pools:
            join.pool_seen(pool)
        return join

    def all(self) -> tuple[NodePool, ...]:
        """Return all pools with their nodes, ordered by name."""
        return tuple(self.pool(name) for name in sorted(self._pools))

    def pool(self, name: str) -> NodePool:
        """Return one pool with its nodes."""
        alone, homes = self._pools[name]
        nodes = [node for home in homes for node in self._nodes.get(home, {}).values()]
        return attrs.evolve(alone, nodes=tuple(sorted(nodes, key=lambda node: node.name))) if nodes else alone

    def pool_seen(self, thing: Thing) -> tuple[str, ...]:
        """Take in a pool."""
        alone = pool_of(thing)
        self._leave(alone.name)
        homes = homes_of(alone.name, alone.labels)
        self._pools[alone.name] = (alone, homes)
        for home in homes:
            self._owners.setdefault(home, {})[alone.name] = None
        return (alone.name,)

    def pool_gone(self, thing: Thing) -> NodePool:
        """Let a pool go, and give it as it was last seen, with the nodes that it had."""
        (name,) = self.pool_seen(thing)
        last = self.pool(name)
        self._leave(name)
        return last

    def _leave(self, name: str) -> None:
        _, homes = self._pools.pop(name, (None, ()))
        for home in homes:
            del self._owners[home][name]
            if not self._owners[home]:
                del self._owners[home]

    def node_seen(self, thing: Thing) -> tuple[str, ...]:
        """Take in a node."""
        tolerated = self._tolerated.get(label_of(thing, LABEL_GROUP)) if self._tolerated else None
        node, home = node_of(thing) if tolerated is None else node_of(thing, tolerated), home_of(thing)
        before = self._homed.get(node.name)
        if before == _Homed(home, node):
            return ()
        touched = self.node_gone(node.name)
        self._homed[node.name] = _Homed(home, node)
        if home:
            self._nodes.setdefault(home, {})[node.name] = node
        return tuple(dict.fromkeys((*touched, *self._owners.get(home, ()))))

    def node_gone(self, name: str) -> tuple[str, ...]:
        """Let a node go."""
        before = self._homed.pop(name, None)
        if before is None or not before.home:
            return ()
        del self._nodes[before.home][name]
        if not self._nodes[before.home]:
            del self._nodes[before.home]
        return tuple(self._owners.get(before.home, ()))
