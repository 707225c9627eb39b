"""Garbage: pods whose node has left, and pods whose pool has.

Theory of operation. As the pod garbage collector does it, a pod of a node that is no more is reported as failed and
removed without grace: nobody is left to end it. As the garbage collector of owners does it, a pod that a pool owns is
deleted once the pool is gone, also one that was created too late, when its pool was gone already.
"""

from __future__ import annotations

from iriscw_sims.coreweave.guests import FINAL, Guest, with_condition
from iriscw_sims.coreweave.machines import Machine
from iriscw_sims.coreweave.nodes import Follower, Nodes
from iriscw_sims.coreweave.site import KUBELET, Site
from iriscw_sims.kube.kinds import Json


class Collector(Follower):
    """Removes pods that nothing holds any more."""

    def __init__(self, site: Site, nodes: Nodes) -> None:
        self._site = site
        self._nodes = nodes
        self._rng = site.stream("collector")
        self._pools: dict[str, None] = {}
        """The uids of all pools that are there."""
        self._owned: dict[str, dict[str, Guest]] = {}
        """Pods by the uid of the pool that owns them."""
        self._kept: dict[str, list[Guest]] = {}
        """Pods of machines that have left, by the name of a Node object that was still there, as far as was known."""

    # Pods of nodes

    def node_left(self, machine: Machine, why: str) -> None:
        """Remove the pods of a node that is no more, soon."""
        for guest in [*machine.guests.values()]:
            if not guest.removed:
                self.soon(guest)

    def object_gone(self, name: str) -> None:
        """Remove pods that were kept for a Node object, soon."""
        for guest in self._kept.pop(name, ()):
            self.soon(guest)

    def soon(self, guest: Guest) -> None:
        """Remove a pod whose node is no more, soon."""
        self._site.after(self._site.settings.collection, self._rng, self._collect, guest)

    def _collect(self, guest: Guest) -> None:
        if guest.removed:
            return
        name = guest.item["spec"]["nodeName"]
        if self._nodes.exists(name):  # a real server may be long in telling that it is not
            self._kept.setdefault(name, []).append(guest)
            return
        self._site.note("pod collected", guest.name)
        if guest.shown_phase not in FINAL:
            condition = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "DeletionByPodGC",
                "message": "PodGC: node no longer exists",
                "lastTransitionTime": self._site.stamp,
            }
            status: Json = {"phase": "Failed", "conditions": with_condition(guest.item, condition)}
            guest.item = self._site.patch(f"{guest.path}/status", guest.item, {"status": status}, KUBELET)
        self._site.delete(guest.path, guest.uid, KUBELET, grace_s=0)

    # Pods of pools

    def pool_appeared(self, uid: str) -> None:
        """Take note of a pool."""
        self._pools[uid] = None

    def pool_gone(self, uid: str) -> None:
        """Delete what a pool owned, soon."""
        self._pools.pop(uid, None)
        for guest in [*self._owned.get(uid, {}).values()]:
            self._site.after(self._site.settings.collection, self._rng, self._orphaned, guest)

    def pod_appeared(self, guest: Guest) -> None:
        """Take note of who owns a pod."""
        owners = _pools_that_own(guest)
        for uid in owners:
            self._owned.setdefault(uid, {})[guest.uid] = guest
        if owners and not any(uid in self._pools for uid in owners):
            self._site.after(self._site.settings.collection, self._rng, self._orphaned, guest)

    def pod_gone(self, guest: Guest) -> None:
        """Forget a pod."""
        for uid in _pools_that_own(guest):
            owned = self._owned.get(uid, {})
            owned.pop(guest.uid, None)
            if not owned:
                self._owned.pop(uid, None)

    def _orphaned(self, guest: Guest) -> None:
        owners = _pools_that_own(guest)
        if guest.removed or guest.deleting or not owners or any(uid in self._pools for uid in owners):
            return
        self._site.note("pod without owner", guest.name)
        self._site.delete(guest.path, guest.uid)


def _pools_that_own(guest: Guest) -> list[str]:
    """Return the uids of the pools that own a pod; none if anything else owns it, too."""
    owners = guest.item["metadata"].get("ownerReferences") or ()
    if any(each["kind"] != "NodePool" for each in owners):
        return []
    return [each["uid"] for each in owners]
