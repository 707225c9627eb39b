"""What a machine suffers from and still runs: too little memory or disk, a network that is not ready, a wrong clock.

Theory of operation. Each ailment is a fact about a machine, shown by its kubelet at once: a condition, and the taint
that a controller makes of it. Ailments end by themselves after a time, or with the repair of everything. But for
clocks: nobody sets them, because nothing may wait for that.

A kubelet that is short of memory or disk ends pods, one after the other, the one first that was started last, until
there is enough. Before that it removes the images that no container uses, if it is the disk.
"""

from __future__ import annotations

from iriscw_sims.coreweave.guests import Guest
from iriscw_sims.coreweave.kubelet import Kubelets
from iriscw_sims.coreweave.machines import Machine
from iriscw_sims.coreweave.nodes import Nodes
from iriscw_sims.coreweave.pressures import DISK, Pressure
from iriscw_sims.coreweave.site import Key, Site

NETWORK = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady"
"""Why a kubelet calls its node not ready that goes on with its pods."""


class Ailments:
    """Has machines fall ill, and recover."""

    def __init__(self, site: Site, nodes: Nodes, kubelets: Kubelets) -> None:
        self._site = site
        self._nodes = nodes
        self._kubelets = kubelets
        self._rng = site.stream("ailments")
        kubelets.on_pressure = self.press

    # Too little

    def press(self, machine: Machine, pressure: Pressure, span: int | None = None) -> None:
        """Have a machine run short of something for ``span`` ns, or for a time that is drawn."""
        if machine.retired or not machine.up or pressure.kind in machine.pressures:
            return
        site = self._site
        machine.pressures[pressure.kind] = None
        self._nodes.write(machine)
        site.note("node short", machine.name, pressure.resource)
        events = self._nodes.events
        text = f"Attempting to reclaim {pressure.resource}"
        events.warning(machine.item, "EvictionThresholdMet", text, "kubelet")
        if pressure is DISK:
            self._collect_images(machine)
        span = site.settings.pressure.draw(self._rng) if span is None else span
        site.hold(_pressed(machine, pressure), self._relieve, machine, pressure, after=span)

    def reclaim(self, machine: Machine, pressure: Pressure) -> None:
        """Have a kubelet end a pod because it is short of something, and another one soon, while it is."""
        if pressure.kind not in machine.pressures or machine.retired:
            return
        victim = _last_started(machine)
        if victim is not None:
            self._kubelets.evict(victim, pressure)
        self._site.after(self._site.settings.reclaim, self._rng, self.reclaim, machine, pressure)

    def _collect_images(self, machine: Machine) -> None:
        used = {each["image"]: None for guest in machine.guests.values() for each in guest.item["spec"]["containers"]}
        machine.images = {image: None for image in machine.images if image in used}

    def _relieve(self, machine: Machine, pressure: Pressure) -> None:
        machine.pressures.pop(pressure.kind, None)
        if not machine.retired and machine.up:
            self._nodes.write(machine)

    # Not ready

    def unwell(self, machine: Machine, span: int) -> None:
        """Have a kubelet say for ``span`` ns that its node is not ready, while it goes on with its pods."""
        machine.unwell = NETWORK
        self._site.note("node not ready", machine.name, span)
        self._site.hold(("node not ready", machine.name), self._well, machine, after=span)
        self._nodes.shows_readiness(machine)

    def _well(self, machine: Machine) -> None:
        machine.unwell = ""
        if not machine.retired and machine.up:
            self._nodes.shows_readiness(machine)

    # Clocks

    def jump(self, machine: Machine, by: int) -> None:
        """Set a machine's clock forward by ``by`` ns, or back; its kubelet's next report says so."""
        machine.clock_off += by
        self._site.note("node clock jumps", machine.name, by)
        if machine.up and not machine.retired:
            self._nodes.write(machine)


def _last_started(machine: Machine) -> Guest | None:
    alive = [guest for guest in machine.guests.values() if guest.alive and not guest.stopping]
    return max(alive, key=lambda guest: guest.started_at, default=None)


def _pressed(machine: Machine, pressure: Pressure) -> Key:
    return ("node short", pressure.kind, machine.name)
