"""The news of pods, passed to whoever acts on it: scheduler, kubelets, garbage collector."""

from __future__ import annotations

from iriscw_sims.coreweave.collecting import Collector
from iriscw_sims.coreweave.guests import FINAL, Guest, Stage
from iriscw_sims.coreweave.nodes import Nodes
from iriscw_sims.coreweave.scheduling import Scheduler
from iriscw_sims.coreweave.starting import Starting
from iriscw_sims.coreweave.stopping import Stopping
from iriscw_sims.coreweave.taints import TaintEviction
from iriscw_sims.kube.frozen import FrozenDict
from iriscw_sims.kube.kinds import Json


class Pods:
    """All pods that the API has, by uid."""

    def __init__(
        self,
        nodes: Nodes,
        scheduler: Scheduler,
        starting: Starting,
        stopping: Stopping,
        taints: TaintEviction,
        collector: Collector,
    ) -> None:
        self.guests: dict[str, Guest] = {}
        self._nodes = nodes
        self._scheduler = scheduler
        self._starting = starting
        self._stopping = stopping
        self._taints = taints
        self._collector = collector

    def seen(self, event: Json) -> None:
        """Take in what a watch tells of pods."""
        item: FrozenDict = event["object"]
        uid = item["metadata"]["uid"]
        guest = self.guests.get(uid)
        if event["type"] == "DELETED":
            if guest is not None:
                self._gone(guest)
            return
        if guest is None:
            guest = self.guests[uid] = Guest.of(item)
            self._collector.pod_appeared(guest)
        guest.item = item
        self._advance(guest)

    def _advance(self, guest: Guest) -> None:
        name = guest.item["spec"].get("nodeName")
        if not name:
            if not guest.deleting:
                self._scheduler.add(guest)
            return
        if guest.machine is None and guest.stage is Stage.UNBOUND:
            self._bound(guest, name)
        if guest.deleting and guest.machine is not None:
            self._stopping.stop(guest)

    def _bound(self, guest: Guest, name: str) -> None:
        self._scheduler.forget(guest)
        machine = self._nodes.machines.get(name)
        if guest.shown_phase in FINAL:
            guest.stage = Stage.OVER
        elif machine is not None:
            self._starting.take_on(guest, machine)
            self._taints.judge(guest)
            return
        guest.stage = Stage.OVER
        if not self._nodes.exists(name):
            self._collector.soon(guest)

    def _gone(self, guest: Guest) -> None:
        del self.guests[guest.uid]
        self._scheduler.forget(guest)
        self._collector.pod_gone(guest)
        self._stopping.removed(guest)
