"""Nodes: machines join, fall silent, come back, are cordoned, taken into triage, and leave.

Theory of operation. A machine joins with a Node object that is not ready, and is ready soon after. When it dies or is
cut off, its object says so only after a while (nothing is heard of it: ``Unknown``), and if it stays silent it is
removed: the pool orders another. What happens to a machine is told to all who follow it, at once, because it is true at
once; what the API shows comes later.

Nothing here happens periodically: leases are renewed without being written (:mod:`iriscw_sims.coreweave.leases`), and
silence is an event, which the node controller notices as late as it would notice the missing lease.
"""

from __future__ import annotations

from iriscw_sims.coreweave.events import Events
from iriscw_sims.coreweave.leases import Leases
from iriscw_sims.coreweave.machines import CORDONED, NODES, PRODUCTION, TRIAGE, Addresses, Machine
from iriscw_sims.coreweave.node_objects import (
    LABEL_STATE,
    OWN_TAINTS,
    closed,
    conditions,
    new_node,
    own_taints,
    pool_taints,
)
from iriscw_sims.coreweave.pressures import PRESSURES
from iriscw_sims.coreweave.shapes import Shape
from iriscw_sims.coreweave.site import KUBELET, Site
from iriscw_sims.kube.frozen import EMPTY
from iriscw_sims.kube.kinds import Json

NAME_DIGITS = 6
"""Hexadecimal digits in the name of a node: as CoreWeave's own, which tell nothing of the pool."""


class Follower:
    """Somebody who follows what happens to machines; each call is the truth of now."""

    def node_ready(self, machine: Machine) -> None:
        """A machine takes pods for the first time."""

    def node_changed(self, machine: Machine) -> None:
        """A Node object changed: taints, cordon, readiness."""

    def node_off(self, machine: Machine, why: str) -> None:
        """A machine has no power any more, and nothing runs on it."""

    def node_unready(self, machine: Machine) -> None:
        """The API shows that nothing is heard of a machine, or that it is not ready any more."""

    def node_back(self, machine: Machine) -> None:
        """A machine that was cut off reaches the API server again."""

    def node_drained(self, machine: Machine) -> None:
        """A machine is about to leave: its pods should go."""

    def node_left(self, machine: Machine, why: str) -> None:
        """A machine has left for good, and its object with it."""

    def object_gone(self, name: str) -> None:
        """It was seen that there is no Node object of this name any more: later than its machine left, if at all."""


class Nodes:
    """All machines of the cluster that have joined."""

    def __init__(self, site: Site, events: Events) -> None:
        self.site = site
        self.events = events
        self.machines: dict[str, Machine] = {}
        self._objects: dict[str, None] = {}
        """The names of all Node objects, also of those that others made."""
        self.followers: list[Follower] = []
        self._rng = site.stream("nodes")
        self._clocks = site.stream("clocks")
        self._leases = Leases(site)
        self._addresses = Addresses(first=site.settings.first_address)
        self._serial = 0

    # Joining

    def join(self, pool: str, uid: str, spec: Json, slot: int, shape: Shape) -> Machine:
        """Have a new machine join a pool of this name, uid and specification."""
        site = self.site
        name = self._new_name()
        address = self._addresses.take()
        machine = Machine(name, pool, uid, slot, shape, address, joined_at=site.now, free=dict(shape.amounts))
        machine.interruptable = site.chance("node interruptable", f"slot/{pool}/{slot}")
        if site.chance("node clock off", f"node/{name}"):
            machine.clock_off = site.settings.clock_off.draw(self._clocks) * self._clocks.choice((-1, 1))
        self.machines[name] = machine
        site.note("node joins", pool, slot, name)
        taints = pool_taints(spec, shape, site.settings) + own_taints(machine)
        machine.heartbeat = site.stamp_of(machine)
        body = new_node(machine, spec, self._serial, taints, site.settings, machine.heartbeat)
        machine.item = site.create(NODES, body)
        machine.uid = machine.item["metadata"]["uid"]
        self._leases.renew(machine)
        site.after(site.settings.node_ready, self._rng, self._ready, machine)
        return machine

    def _new_name(self) -> str:
        self._serial += 1
        return f"g{self._rng.randrange(16**NAME_DIGITS):0{NAME_DIGITS}x}-{self._serial:x}"

    def _ready(self, machine: Machine) -> None:
        if machine.retired or not machine.up or machine.was_ready:
            return
        machine.ready = machine.was_ready = True
        self.write(machine)
        self.site.observer.booted(machine.pool_name)
        self._draw_fate(machine)
        for follower in self.followers:
            follower.node_ready(machine)

    def _draw_fate(self, machine: Machine) -> None:
        site, span = self.site, self.site.settings.early_death
        for name, function in (
            ("node dies early", self.die),
            ("node triaged", self.triage),
            ("node cordoned", self.cordon),
        ):
            if site.chance(name, f"node/{machine.name}"):
                site.note(name, machine.name, site.doom(span, self._rng, function, machine))

    # Silence

    def die(self, machine: Machine, why: str = "its node died") -> None:
        """Have a machine lose its power for good."""
        if not machine.powered:
            return
        self.site.note("node dies", machine.name, why)
        self._last_word(machine)
        self._off(machine, why)
        self._falls_silent(machine)

    def lose(self, machine: Machine, span: int) -> None:
        """Cut a machine off for ``span`` ns; what runs there goes on."""
        if not machine.up:
            return
        self._last_word(machine)
        machine.reachable = False
        self.site.note("node lost", machine.name, span)
        self.site.hold(("node lost", machine.name), self._back, machine, after=span)
        self._falls_silent(machine)

    def _off(self, machine: Machine, why: str) -> None:
        machine.powered = False
        for follower in self.followers:
            follower.node_off(machine, why)

    def _last_word(self, machine: Machine) -> None:
        if machine.up:
            self._leases.renew(machine)

    def _falls_silent(self, machine: Machine) -> None:
        machine.outages += 1
        self.site.after(self.site.settings.detection, self._rng, self._show_silence, machine, machine.outages)

    def _show_silence(self, machine: Machine, outage: int) -> None:
        if machine.retired or machine.outages != outage:
            return
        machine.silent = True
        self.shows_readiness(machine)
        self.site.after(self.site.settings.repair, self._rng, self._replace, machine, outage)

    def _replace(self, machine: Machine, outage: int) -> None:
        if machine.outages == outage:
            self.retire(machine, "its node was replaced")

    def _back(self, machine: Machine) -> None:
        if machine.retired or not machine.powered:
            return
        machine.reachable = True
        machine.outages += 1
        self.site.note("node back", machine.name)
        self._leases.renew(machine)
        if not machine.was_ready:
            self._ready(machine)
        else:
            machine.silent = False
            self.shows_readiness(machine)
        for follower in self.followers:
            follower.node_back(machine)

    # Leaving

    def triage(self, machine: Machine) -> None:
        """Take a machine out of production: its pods are asked to go, then it leaves."""
        if machine.retired or closed(machine):
            return
        machine.state = TRIAGE
        self._leave(machine, "its node went into triage")

    def remove(self, machine: Machine, why: str) -> None:
        """Have a machine leave in order: cordoned, drained, then gone."""
        if not machine.retired and not machine.leaving:
            self._leave(machine, why)

    def _leave(self, machine: Machine, why: str) -> None:
        site = self.site
        machine.leaving = True
        self._write_spec(machine)
        self.events.normal(machine.item, "CWNodeCordoned", f"Node {machine.name} is cordoned")
        for follower in self.followers:
            follower.node_drained(machine)
        span = site.settings.triage if machine.state == TRIAGE else site.settings.drain
        site.note("node leaves", machine.name, why, site.after(span, self._rng, self.retire, machine, why))

    def interrupt(self, machine: Machine) -> None:
        """Take a machine's capacity back: its pods are driven off, and soon it is gone."""
        if machine.retired or machine.leaving:
            return
        machine.interruptable = machine.leaving = True
        self._write_spec(machine)
        why = "its node was interrupted"
        site = self.site
        site.note(why, machine.name, site.after(site.settings.interruption, self._rng, self.retire, machine, why))

    def cordon(self, machine: Machine, span: int | None = None) -> None:
        """Keep new pods off a machine for ``span`` ns, or for a time that is drawn."""
        if machine.retired or closed(machine):
            return
        span = self.site.settings.cordon.draw(self._rng) if span is None else span
        machine.state = CORDONED
        self._write_spec(machine)
        self.events.normal(machine.item, "CWNodeCordoned", f"Node {machine.name} is cordoned")
        self.site.note("node cordoned", machine.name, span)
        self.site.hold(("node cordoned", machine.name), self._uncordon, machine, after=span)

    def _uncordon(self, machine: Machine) -> None:
        if machine.retired or machine.state != CORDONED:
            return
        machine.state = PRODUCTION
        self._write_spec(machine)
        self.events.normal(machine.item, "CWNodeUncordoned", f"Node {machine.name} is uncordoned")

    def retire(self, machine: Machine, why: str, *, object_gone: bool = False) -> None:
        """Have a machine leave for good, now: nothing runs on it any more, and its object goes."""
        if machine.retired:
            return
        machine.retired = True
        self.site.note("node gone", machine.name, why)
        if machine.powered:
            self._off(machine, why)
        for reason in ("node lost", "node cordoned", "node not ready"):
            self.site.drop((reason, machine.name))
        for pressure in PRESSURES:
            self.site.drop(("node short", pressure.kind, machine.name))
        del self.machines[machine.name]
        self._addresses.give(machine.address)
        if not object_gone:
            self.site.delete(machine.path, machine.uid)
        self._leases.end(machine)
        for follower in self.followers:
            follower.node_left(machine, why)

    # The objects

    def exists(self, name: str) -> bool:
        """Tell whether there is a node of this name."""
        return name in self.machines or name in self._objects

    def seen(self, event: Json) -> None:
        """Take in what a watch tells of nodes."""
        item = event["object"]
        name = item["metadata"]["name"]
        if event["type"] == "DELETED":
            self._objects.pop(name, None)
            for follower in self.followers:
                follower.object_gone(name)
        else:
            self._objects[name] = None
        machine = self.machines.get(name)
        if machine is None or machine.uid != item["metadata"]["uid"]:
            return
        if event["type"] == "DELETED":
            self.retire(machine, "its Node object was removed", object_gone=True)
            return
        machine.item = item
        for follower in self.followers:
            follower.node_changed(machine)

    def shows_readiness(self, machine: Machine) -> None:
        """Have a machine's object say whether it is ready, and tell who follows if it is not any more."""
        ready = not machine.silent and not machine.unwell
        lost, machine.ready = machine.ready and not ready, ready
        machine.tainted = "" if ready else self.site.stamp
        self.write(machine)
        if lost:
            text = f"Node {machine.name} status is now: NodeNotReady"
            self.events.normal(machine.item, "NodeNotReady", text)
            for follower in self.followers:
                follower.node_unready(machine)

    def write(self, machine: Machine) -> None:
        """Write a machine's status and what follows from it."""
        self._write_status(machine)
        self._write_spec(machine)

    def _write_status(self, machine: Machine) -> None:
        """Write the conditions, as the kubelet does by its clock; of a silent one, as the node controller does."""
        if not machine.silent:
            machine.heartbeat = self.site.stamp_of(machine)
        status = {"conditions": conditions(machine, self.site.stamp if machine.silent else machine.heartbeat)}
        machine.item = self.site.patch(f"{machine.path}/status", machine.item, {"status": status}, KUBELET)

    def _write_spec(self, machine: Machine) -> None:
        spec = machine.item.get("spec") or EMPTY
        others = [taint for taint in spec.get("taints") or () if taint["key"] not in OWN_TAINTS]
        change: Json = {"taints": [*others, *own_taints(machine)]}
        if closed(machine) != machine.cordoned:
            machine.cordoned = closed(machine)
            change["unschedulable"] = True if machine.cordoned else None
        body: Json = {"spec": change}
        labels = machine.item["metadata"].get("labels") or EMPTY
        if labels.get(LABEL_STATE) != machine.state:
            body["metadata"] = {"labels": {LABEL_STATE: machine.state}}
        machine.item = self.site.patch(machine.path, machine.item, body)
