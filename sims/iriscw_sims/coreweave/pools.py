"""The pool controller: NodePools are judged, filled, and dissolved.

Theory of operation. A new pool gets a finalizer at once and its judgement later: whether the specification is valid,
then whether quota and capacity allow it (:mod:`iriscw_sims.coreweave.filling`). Its deletion takes its time, or waits
for a repair; then all its machines lose their power, their objects go, and the finalizer with them. Who takes the
finalizer off by force has the pool gone at once, and the machines with it.

A status is written once a turn, and only if it changed, or if somebody else wrote over it.
"""

from __future__ import annotations

from iriscw_sims.coreweave.collecting import Collector
from iriscw_sims.coreweave.crd import POOLS
from iriscw_sims.coreweave.events import Events
from iriscw_sims.coreweave.filling import Filling, Pool
from iriscw_sims.coreweave.nodes import Nodes
from iriscw_sims.coreweave.pool_objects import complaint, shows, status_of, understood
from iriscw_sims.coreweave.site import COREWEAVE, INVALID, TOO_LATE, Key, Site
from iriscw_sims.kube.frozen import FrozenDict
from iriscw_sims.kube.kinds import Json

FINALIZER = "compute.coreweave.com/nodepool"


class Pools:
    """The controller of node pools."""

    def __init__(self, site: Site, events: Events, nodes: Nodes, filling: Filling, collector: Collector) -> None:
        self.by_name: dict[str, Pool] = {}
        """All pools whose objects are there."""
        self._site = site
        self._events = events
        self._nodes = nodes
        self._filling = filling
        self._collector = collector
        self._rng = site.stream("pool controller")

    def seen(self, event: Json) -> None:
        """Take in what a watch tells of pools."""
        item: FrozenDict = event["object"]
        name, uid = item["metadata"]["name"], item["metadata"]["uid"]
        pool = self._filling.pools.get(uid)
        if event["type"] == "DELETED":
            if pool is not None:
                self._gone(pool)
            return
        if pool is None:
            pool = self.by_name[name] = self._filling.pools[uid] = Pool(item, name, uid)
            pool.spec, pool.malformed = understood(item)
            self._appeared(pool)
        before, pool.item = pool.item, item
        if not shows(item, pool.told):
            self._filling.touch(pool)
        if not item["metadata"].get("deletionTimestamp"):
            self._guard(pool)
            self._changed(pool, before)
        elif not pool.deleting:
            self._deleted(pool)

    def settle(self) -> None:
        """Write the statuses that changed in this turn."""
        dirty = self._filling.dirty
        while dirty:
            uid = next(iter(dirty))
            pool = dirty.pop(uid)
            if pool.gone or not pool.judged:
                continue
            status = status_of(pool.standing, pool.spec, pool.told, self._site.settings, self._site.stamp)
            if status != pool.told or not shows(pool.item, status):
                pool.told = status
                pool.item = self._site.patch(f"{_path(pool)}/status", pool.item, {"status": status})

    # Judgement

    def _appeared(self, pool: Pool) -> None:
        site, settings = self._site, self._site.settings
        self._collector.pool_appeared(pool.uid)
        slow = site.chance("validation slow", f"pool/{pool.name}")
        span = settings.validation_slow if slow else settings.validation
        site.note("pool appears", pool.name, site.after(span, self._rng, self._judge, pool, True))

    def _guard(self, pool: Pool) -> None:
        finalizers = pool.item["metadata"].get("finalizers") or []
        if FINALIZER not in finalizers:
            body = {"metadata": {"finalizers": [*finalizers, FINALIZER]}}
            guarded = self._site.ask("PATCH", _path(pool), body, COREWEAVE, accept=(*TOO_LATE, INVALID))
            pool.item = guarded or pool.item  # gone already, or going: the watch tells it next

    def _judge(self, pool: Pool, new: bool) -> None:
        if pool.gone or pool.deleting:
            return
        site = self._site
        pool.judged, pool.why = True, pool.malformed or complaint(pool.name, pool.spec, site.settings)
        if not pool.why:
            pool.valid = pool.spec
        site.drop(_invalid(pool))
        if new and not pool.why and site.chance("pool invalid", f"pool/{pool.name}"):
            pool.why = f"instance type {pool.spec['instanceType']} is not available in zone {site.settings.region}"
            site.hold(_invalid(pool), self._judge, pool, False)
        site.note("pool judged", pool.name, pool.why)
        if pool.why:
            site.observer.refused(pool.name, "invalid")
            self._events.warning(pool.item, "Invalid", pool.why)
        self._filling.fill(pool)

    def _changed(self, pool: Pool, before: FrozenDict) -> None:
        if pool.item.get("spec") == before.get("spec"):
            return
        was = pool.target
        pool.spec, pool.malformed = understood(pool.item)
        if not pool.judged:
            return
        target = pool.target
        if was != target:
            reason = "CWNodePoolScaledUp" if target > was else "CWNodePoolScaledDown"
            self._events.normal(pool.item, reason, f"targetNodes changed from {was} to {target}")
        self._judge(pool, False)

    # Deletion

    def _deleted(self, pool: Pool) -> None:
        site, settings = self._site, self._site.settings
        pool.deleting = True
        site.drop(_invalid(pool))
        self._filling.abandon(pool)
        self._filling.touch(pool)
        if site.chance("deletion stuck", f"pool/{pool.name}"):
            site.note("pool deletion stuck", pool.name)
            site.hold(_deletion(pool), self.dissolve, pool)
            return
        slow = site.chance("deletion slow", f"pool/{pool.name}")
        span = settings.deletion_slow if slow else settings.deletion
        site.note("pool deleted", pool.name, site.after(span, self._rng, self.dissolve, pool))

    def dissolve(self, pool: Pool) -> None:
        """End a pool's deletion: its machines go, and then the finalizer."""
        if pool.dissolved:
            return
        self._end_machines(pool)
        if not pool.gone:
            finalizers = [each for each in pool.item["metadata"].get("finalizers") or () if each != FINALIZER]
            pool.item = self._site.patch(_path(pool), pool.item, {"metadata": {"finalizers": finalizers or None}})
            if not finalizers:
                pool.gone = True
                self._filling.dirty.pop(pool.uid, None)

    def _end_machines(self, pool: Pool) -> None:
        pool.dissolved = pool.deleting = True
        for machine in [*pool.members.values()]:
            self._nodes.retire(machine, "its pool is gone")

    def _gone(self, pool: Pool) -> None:
        pool.gone = pool.deleting = True
        self._site.note("pool gone", pool.name)
        for key in (_invalid(pool), _deletion(pool)):
            self._site.drop(key)
        self._filling.abandon(pool)
        self._end_machines(pool)
        self._filling.dirty.pop(pool.uid, None)
        del self._filling.pools[pool.uid]
        if self.by_name.get(pool.name) is pool:
            del self.by_name[pool.name]
        self._collector.pool_gone(pool.uid)
        self._filling.freed(pool.spec["instanceType"])


def _path(pool: Pool) -> str:
    return f"{POOLS}/{pool.name}"


def _invalid(pool: Pool) -> Key:
    return ("pool invalid", pool.uid)


def _deletion(pool: Pool) -> Key:
    return ("pool deletion", pool.uid)
