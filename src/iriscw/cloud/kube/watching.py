"""What ``WatchNodePools`` and ``WatchPods`` are: reflectors underneath, values of the model on top.

Theory of operation. :class:`PodWatch` reads what its reflector shows and passes it on. :class:`PoolWatch` has two
reflectors, of pools and of nodes, and joins them: a pool counts as changed when one of its nodes does. Nothing is
shown until both have listed, so the first ``Relisted`` has the nodes in it. From then on only differences are shown,
after a relist too: what vanished in a gap is ``Removed`` as it was last seen.

What is shown is compared as the value it is read as: nodes write a heartbeat every few seconds and conditions come
and go; what means nothing to the model is shown to nobody.

The shell is given :class:`~iriscw.cloud.kube.exchange.FetchObjects`, ``OpenWatch``, ``CloseWatch``, ``WakeAfter``,
``Show`` and ``Fail``; after a ``Fail`` nothing more comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random

import attrs

from iriscw.cloud.kube.exchange import Action, Event, Fail, ItemChanged, Listed, Show, Thing, Vanished
from iriscw.cloud.kube.joining import Join
from iriscw.cloud.kube.parsing import node_of, pod_of, unknown_words
from iriscw.cloud.kube.paths import NODE_POOLS, NODES, Source, pods_of, selector
from iriscw.cloud.kube.reflector import Reflector, ReflectorStatistics
from iriscw.cloud.kube.settings import KubeSettings
from iriscw.cloud.model import NodePool, Pod, Relisted, Removed, Upserted

MAX_UNKNOWN = 100
"""Different unknown words that are counted one by one; those beyond are counted together."""

OTHERS = "others"


@attrs.frozen
class WatchStatistics:
    """What a watch has done so far. ``unknown``: words that no table here knows, each with how often it was told."""

    sources: Mapping[str, ReflectorStatistics]
    shown: int = 0
    suppressed: int = 0
    """Changes that mean nothing to the model."""
    unknown: tuple[tuple[str, int], ...] = ()


class _Words:
    """Counts unknown words, in bounded memory."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def hear(self, thing: Thing) -> None:
        for word in unknown_words(thing):
            known = word in self.counts or len(self.counts) < MAX_UNKNOWN
            name = word if known else OTHERS
            self.counts[name] = self.counts.get(name, 0) + 1


class PodWatch:
    """Watches the pods with some labels.

    Args:
        settings: The cluster.
        labels: What the pods have.
    """

    def __init__(self, settings: KubeSettings, labels: Mapping[str, str]) -> None:
        source = Source(pods_of(settings.namespace), selector(labels))
        self._reflector = Reflector("pods", source, settings)
        self._words = _Words()
        self._shown: dict[str, Pod] = {}
        """What was shown last, by name."""
        self._counts = {"shown": 0, "suppressed": 0}

    @property
    def shown(self) -> dict[str, Pod]:
        """What was shown last, by name."""
        return dict(self._shown)

    @property
    def statistics(self) -> WatchStatistics:
        """What was done so far."""
        sources = {self._reflector.name: self._reflector.statistics}
        return WatchStatistics(sources, **self._counts, unknown=tuple(sorted(self._words.counts.items())))

    def start(self, now: int, rng: Random) -> list[Action]:
        """Begin. ``now`` is monotonic, in ns."""
        return self._read(self._reflector.start(now, rng))

    def on(self, event: Event, now: int, rng: Random) -> list[Action]:
        """Take in what the shell tells. ``now`` is monotonic, in ns."""
        return self._read(self._reflector.on(event, now, rng))

    def stop(self) -> list[Action]:
        """End, and let go of connections."""
        return self._reflector.stop()

    def _read(self, actions: list[Action]) -> list[Action]:
        read: list[Action] = []
        for action in actions:
            match action:
                case Listed(objects=objects):
                    pods = sorted((self._heard(each) for each in objects), key=lambda pod: pod.name)
                    self._shown = {pod.name: pod for pod in pods}
                    self._counts["shown"] += 1
                    read.append(Show(Relisted(tuple(pods))))
                case ItemChanged(object=thing):
                    read += self._changed(self._heard(thing))
                case Vanished(object=thing):
                    pod = self._heard(thing)
                    self._shown.pop(pod.name, None)
                    self._counts["shown"] += 1
                    read.append(Show(Removed(pod)))
                case _:
                    read.append(action)
        return read

    def _heard(self, thing: Thing) -> Pod:
        self._words.hear(thing)
        return pod_of(thing)

    def _changed(self, pod: Pod) -> list[Action]:
        if self._shown.get(pod.name) == pod:
            self._counts["suppressed"] += 1
            return []
        self._shown[pod.name] = pod
        self._counts["shown"] += 1
        return [Show(Upserted(pod))]


class PoolWatch:
    """Watches the pools with some labels, with their nodes.

    Args:
        settings: The cluster.
        labels: What the pools have, and their nodes with them.
    """

    def __init__(self, settings: KubeSettings, labels: Mapping[str, str]) -> None:
        self._pools = Reflector("pools", Source(NODE_POOLS, selector(labels)), settings)
        self._nodes = Reflector("nodes", Source(NODES, selector(labels)), settings)
        self._listed = {"pools": False, "nodes": False}
        self._told = False
        """Whether the first ``Relisted`` was shown."""
        self._words = _Words()
        self._join = Join(settings.tolerated)
        self._shown: dict[str, NodePool] = {}
        """What was shown last, by name."""
        self._counts = {"shown": 0, "suppressed": 0}

    @property
    def shown(self) -> dict[str, NodePool]:
        """What was shown last, by name."""
        return dict(self._shown)

    @property
    def statistics(self) -> WatchStatistics:
        """What was done so far."""
        sources = {each.name: each.statistics for each in (self._pools, self._nodes)}
        return WatchStatistics(sources, **self._counts, unknown=tuple(sorted(self._words.counts.items())))

    def start(self, now: int, rng: Random) -> list[Action]:
        """Begin. ``now`` is monotonic, in ns."""
        return [*self._read("pools", self._pools.start(now, rng)), *self._read("nodes", self._nodes.start(now, rng))]

    def on(self, event: Event, now: int, rng: Random) -> list[Action]:
        """Take in what the shell tells; the token says which reflector it is for. ``now`` is monotonic, in ns."""
        reflector = self._pools if event.token[0] == self._pools.name else self._nodes
        return self._read(reflector.name, reflector.on(event, now, rng))

    def stop(self) -> list[Action]:
        """End, and let go of connections."""
        return [*self._pools.stop(), *self._nodes.stop()]

    def _read(self, source: str, actions: list[Action]) -> list[Action]:
        read: list[Action] = []
        touched: dict[str, None] = {}
        for action in actions:
            match action:
                case Listed(objects=objects):
                    self._listed[source] = True
                    for thing in objects:
                        touched.update(dict.fromkeys(self._seen(source, thing)))
                case ItemChanged(object=thing):
                    touched.update(dict.fromkeys(self._seen(source, thing)))
                case Vanished(object=thing) if source == "pools":
                    read += self._gone(thing)
                case Vanished(object=thing):
                    touched.update(dict.fromkeys(self._join.node_gone(node_of(thing).name)))
                case Fail():
                    read += [*self.stop(), action]
                case _:
                    read.append(action)
        return [*read, *self._show(touched)]

    def _seen(self, source: str, thing: Thing) -> tuple[str, ...]:
        self._words.hear(thing)
        return self._join.pool_seen(thing) if source == "pools" else self._join.node_seen(thing)

    def _gone(self, thing: Thing) -> list[Action]:
        pool = self._join.pool_gone(thing)
        if not self._told:
            return []
        self._shown.pop(pool.name, None)
        self._counts["shown"] += 1
        return [Show(Removed(pool))]

    def _show(self, touched: Iterable[str]) -> list[Action]:
        """Show the pools that were touched and are different now; all of them, once both sides have listed."""
        if not all(self._listed.values()):
            return []
        if not self._told:
            self._told = True
            pools = self._join.all()
            self._shown = {pool.name: pool for pool in pools}
            self._counts["shown"] += 1
            return [Show(Relisted(pools))]
        shown: list[Action] = []
        for name in touched:
            pool = self._join.pool(name)
            if self._shown.get(name) == pool:
                self._counts["suppressed"] += 1
            else:
                self._shown[name] = pool
                shown.append(Show(Upserted(pool)))
        self._counts["shown"] += len(shown)
        return shown
