"""The simulated CoreWeave: everything behind the API server, and the faults that a world may strike it with.

Theory of operation. :class:`CoreWeave` reacts: :meth:`CoreWeave.react` takes in what the store tells of pools, nodes
and pods since the last call, lets the controllers act, and repeats until their own writes cause nothing further. Most
of what they decide happens later, through the surroundings. A call costs what changed, nothing else; while nothing is
to do, nothing is done.

A world calls :meth:`CoreWeave.react` after every write that reached the store. Faults and :meth:`CoreWeave.exited` do
it themselves.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from iriscw_sims.coreweave.ailments import Ailments
from iriscw_sims.coreweave.collecting import Collector
from iriscw_sims.coreweave.crd import POOLS
from iriscw_sims.coreweave.events import Events
from iriscw_sims.coreweave.filling import Filling, Pool
from iriscw_sims.coreweave.following import Following
from iriscw_sims.coreweave.guests import Guest
from iriscw_sims.coreweave.kubelet import Kubelets
from iriscw_sims.coreweave.machines import NODES, Machine
from iriscw_sims.coreweave.node_objects import closed
from iriscw_sims.coreweave.nodes import Nodes
from iriscw_sims.coreweave.pods import Pods
from iriscw_sims.coreweave.pools import Pools
from iriscw_sims.coreweave.pressures import DISK, MEMORY
from iriscw_sims.coreweave.scheduling import Scheduler
from iriscw_sims.coreweave.settings import QUICK, Settings
from iriscw_sims.coreweave.site import COREWEAVE, Site
from iriscw_sims.coreweave.starting import Starting
from iriscw_sims.coreweave.stopping import Stopping
from iriscw_sims.coreweave.surroundings import Api, Containers, NobodyObserves, Observer, Surroundings
from iriscw_sims.coreweave.taints import TaintEviction
from iriscw_sims.kube.kinds import Json

ALL_PODS = "/api/v1/pods"
TURNS = 10_000
"""Rounds of one reaction; more are two controllers that undo each other's work."""

Selects = Callable[[Json], bool]
"""Chooses objects."""


def every(item: Json) -> bool:
    """Choose all objects."""
    return True


@attrs.frozen
class Statistics:
    """How much there is."""

    pools: int
    nodes: int
    pods: int
    running: int
    """Pods whose processes run."""
    waiting: int
    """Pods that wait for a node."""


class CoreWeave:
    """Pool controller, nodes, scheduler and kubelets.

    Args:
        store: The API server, with NodePools installed (:func:`iriscw_sims.coreweave.crd.install`).
        surroundings: Time, chance and the trace.
        containers: Who runs what is in pods.
        settings: How long things take.
        observer: Whom to tell what checks want to know.
    """

    def __init__(
        self,
        store: Api,
        surroundings: Surroundings,
        containers: Containers,
        settings: Settings = QUICK,
        observer: Observer | None = None,
    ) -> None:
        self.site = site = Site(store, surroundings, containers, observer or NobodyObserves(), settings)
        site.react = self.react
        events = Events(site)
        self.nodes = nodes = Nodes(site, events)
        self.kubelets = kubelets = Kubelets(site, events, nodes)
        self.ailments = Ailments(site, nodes, kubelets)
        self._scheduler = scheduler = Scheduler(site, events, nodes)
        self._filling = filling = Filling(site, events, nodes)
        collector = Collector(site, nodes)
        starting = Starting(site, kubelets)
        stopping = Stopping(site, kubelets, starting)
        taints = TaintEviction(site, events)
        self.pools = Pools(site, events, nodes, filling, collector)
        self.pods = Pods(nodes, scheduler, starting, stopping, taints, collector)
        nodes.followers += [stopping, scheduler, taints, collector, filling]
        kubelets.on_release += [scheduler.wake, filling.released]
        self._seen = (
            (Following(site, POOLS), self.pools.seen),
            (Following(site, NODES), nodes.seen),
            (Following(site, ALL_PODS), self.pods.seen),
        )
        self._seen_revision = -1
        self._reacting = False
        self.react()

    def react(self) -> None:
        """Take in what changed in the store since the last call, and act on it, now or later."""
        store = self.site.store
        if self._reacting or (store.revision == self._seen_revision and not self._filling.dirty):
            return
        self._reacting = True
        try:
            for _ in range(TURNS):
                self._seen_revision = store.revision
                for following, seen in self._seen:
                    for event in following.take():
                        seen(event)
                self.pools.settle()
                if store.revision == self._seen_revision:
                    break
            else:
                raise AssertionError("the controllers never come to rest")
        finally:
            self._reacting = False

    # What the world tells and asks

    def exited(self, pod_uid: str, exit_code: int, reason: str = "") -> None:
        """Take note that a pod's processes ended by themselves.

        Args:
            pod_uid: Whose. Nothing happens if they do not run any more.
            exit_code: 0 is a success.
            reason: As the container's status will say; ``Completed`` or ``Error`` without one.
        """
        self.react()
        self.kubelets.exited(pod_uid, exit_code, reason)
        self.react()

    def exec_ready(self, node_name: str) -> bool:
        """Tell whether exec and port-forward reach pods on a node: not on a new one, nor one cut off."""
        machine = self.nodes.machines.get(node_name)
        if machine is None or not machine.up:
            return False
        return self.site.now - machine.joined_at >= self.site.settings.exec_after_join

    def pool(self, name: str) -> Pool | None:
        """Return a pool as its controller knows it."""
        return self.pools.by_name.get(name)

    def is_whole(self, pool_name: str) -> bool:
        """Tell whether all nodes that a pool wants are ready."""
        pool = self.pools.by_name.get(pool_name)
        return pool is not None and pool.ready_nodes >= pool.target

    def statistics(self) -> Statistics:
        """Count what there is."""
        return Statistics(
            pools=len(self.pools.by_name),
            nodes=len(self.nodes.machines),
            pods=len(self.pods.guests),
            running=len(self.kubelets.running),
            waiting=self._scheduler.waiting,
        )

    # Faults

    def _machine(self, node_name: str) -> Machine | None:
        self.react()
        return self.nodes.machines.get(node_name)

    def kill_node(self, node_name: str) -> bool:
        """Have a machine lose its power for good, with all that runs on it; False if there is none."""
        machine = self._machine(node_name)
        if machine is None or not machine.powered:
            return False
        self.nodes.die(machine)
        self.react()
        return True

    def lose_node_for(self, node_name: str, span: int) -> bool:
        """Cut a machine off for ``span`` ns; what runs there goes on. False if it is not there to be cut off."""
        machine = self._machine(node_name)
        if machine is None or not machine.up:
            return False
        self.nodes.lose(machine, span)
        self.react()
        return True

    def interrupt(self, node_name: str) -> bool:
        """Take a machine's capacity back, with a short notice; False if there is none, or it leaves anyway."""
        machine = self._machine(node_name)
        if machine is None or machine.leaving:
            return False
        self.nodes.interrupt(machine)
        self.react()
        return True

    def cordon(self, node_name: str, span: int | None = None) -> bool:
        """Keep new pods off a node for ``span`` ns, or for a drawn time; False if they are kept off."""
        machine = self._machine(node_name)
        if machine is None or closed(machine):
            return False
        self.nodes.cordon(machine, span)
        self.react()
        return True

    def triage(self, node_name: str) -> bool:
        """Take a node out of production for good; False if it is out already, or there is none."""
        machine = self._machine(node_name)
        if machine is None or closed(machine):
            return False
        self.nodes.triage(machine)
        self.react()
        return True

    def evict(self, pod_uid: str) -> bool:
        """Have a pod evicted because its node's disk is full; False if it does not run, or is about to end."""
        self.react()
        guest = self.kubelets.running.get(pod_uid)
        evicted = guest is not None and self.kubelets.evict(guest)
        self.react()
        return evicted

    def fill(self, node_name: str, span: int, *, memory: bool = False) -> bool:
        """Have a node run short of disk, or of memory, for ``span`` ns; False if it is, or nobody there acts."""
        machine, pressure = self._machine(node_name), MEMORY if memory else DISK
        if machine is None or not machine.up or not machine.was_ready or pressure.kind in machine.pressures:
            return False
        self.ailments.press(machine, pressure, span)
        self.ailments.reclaim(machine, pressure)
        self.react()
        return True

    def exhaust(self, pod_uid: str) -> bool:
        """Have a pod's container killed because it has used up its memory; False if it does not run."""
        self.react()
        guest = self.kubelets.running.get(pod_uid)
        killed = guest is not None and self.kubelets.exhausts(guest)
        self.react()
        return killed

    def unready(self, node_name: str, span: int) -> bool:
        """Have a kubelet call its node not ready for ``span`` ns; False if it does already, or is not heard."""
        machine = self._machine(node_name)
        if machine is None or not machine.up or not machine.ready:
            return False
        self.ailments.unwell(machine, span)
        self.react()
        return True

    def jump_clock(self, node_name: str, by: int) -> bool:
        """Set the clock of a node forward by ``by`` ns, or back; False if there is none."""
        machine = self._machine(node_name)
        if machine is None or not machine.powered:
            return False
        self.ailments.jump(machine, by)
        self.react()
        return True

    def jump_own_clock(self, by: int) -> None:
        """Set the clock of all controllers forward by ``by`` ns, or back."""
        self.site.clock_off += by
        self.site.note("controllers' clock jumps", by)

    def delete_pool_from_outside(self, name: str) -> bool:
        """Have somebody delete a pool; False if there is none."""
        self.react()
        pool = self.pools.by_name.get(name)
        if pool is None or pool.deleting:
            return False
        self.site.delete(f"{POOLS}/{name}", pool.uid, "admin")
        self.react()
        return True

    def delete_pod_from_outside(self, pod_uid: str, grace_s: int | None = None) -> bool:
        """Have somebody delete a pod, with its own grace or ``grace_s`` seconds; False if there is none."""
        self.react()
        guest = self.pods.guests.get(pod_uid)
        if guest is None:
            return False
        self.site.delete(guest.path, guest.uid, "admin", grace_s)
        self.react()
        return True

    def lose_pool(self, name: str) -> bool:
        """Have a pool gone at once, with all that ran there and without a trace; False if there is none."""
        self.react()
        pool = self.pools.by_name.get(name)
        if pool is None:
            return False
        guests = [guest for machine in pool.members.values() for guest in machine.guests.values()]
        if not pool.deleting:
            self.site.delete(f"{POOLS}/{name}", pool.uid)
            self.react()
        self.pools.dissolve(pool)
        self.react()
        if not pool.gone:
            self.site.patch(f"{POOLS}/{name}", pool.item, {"metadata": {"finalizers": None}})  # others', too
            self.react()
        for guest in guests:
            self._lose_pod(guest)
        return True

    def _lose_pod(self, guest: Guest) -> None:
        self.kubelets.kill(guest, "its pod was lost")
        if not guest.removed:
            self.site.patch(guest.path, guest.item, {"metadata": {"finalizers": None}})
            self.site.ask("DELETE", guest.path, {"gracePeriodSeconds": 0}, COREWEAVE, accept=(404,))
        self.react()

    def lose_everything(self, selects: Selects = every) -> int:
        """Have pools and pods gone at once and without a trace; give how many pools.

        Args:
            selects: Which objects: all of them by default.
        """
        self.react()
        lost = [pool.name for pool in [*self.pools.by_name.values()] if selects(pool.item)]
        for name in lost:
            self.lose_pool(name)
        self.lose_pods(selects)
        return len(lost)

    def lose_pods(self, selects: Selects = every) -> int:
        """Have pods gone at once, with what ran in them; their pools stay. Give how many."""
        self.react()
        lost = [guest for guest in self.pods.guests.values() if selects(guest.item)]
        for guest in lost:
            self._lose_pod(guest)
        return len(lost)

    def lose_machines(self, selects: Selects = every) -> int:
        """Have all machines of pools die; give how many. What ran there is shown for a while as if it did still."""
        self.react()
        lost = 0
        for pool in [*self.pools.by_name.values()]:
            if selects(pool.item):
                for machine in [*pool.members.values()]:
                    lost += self.kill_node(machine.name)
        return lost

    def heal(self) -> None:
        """Repair everything: machines come, quotas are raised, what is stuck goes on, nodes are back."""
        self.react()
        self.site.heal()
        self.react()
