"""The kubelets: containers run, end, are started again, are evicted; and what the API is told of it.

Theory of operation. Truth and report are two things. Processes begin and end here, and the world is told at that moment
(:class:`~iriscw_sims.coreweave.surroundings.Containers`); the report is written only while the machine is up, and made
up for when it is back. A machine without power runs nothing and reports nothing: its pods look as they last did until
somebody else removes them.

How a container comes to be started is in :mod:`iriscw_sims.coreweave.starting`, how a pod is ended in
:mod:`iriscw_sims.coreweave.stopping`.
"""

from __future__ import annotations

from collections.abc import Callable

from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.coreweave.events import Events
from iriscw_sims.coreweave.guests import (
    EVICTED,
    KILLED_EXIT_CODE,
    OOM_KILLED,
    START_ERROR_CODE,
    End,
    Guest,
    Stage,
    status_of,
)
from iriscw_sims.coreweave.machines import Machine
from iriscw_sims.coreweave.nodes import Nodes
from iriscw_sims.coreweave.pressures import DISK, Pressure
from iriscw_sims.coreweave.site import KUBELET, Site
from iriscw_sims.kube.kinds import nested

CALM = 600 * SECOND
"""A container that ran so long starts its pauses from the least again (``MaxContainerBackOff`` doubled, upstream)."""

UNHEALTHY = "liveness probe failed"
STORAGE = "ephemeral-storage"


class Kubelets:
    """All kubelets: what runs on which machine."""

    def __init__(self, site: Site, events: Events, nodes: Nodes) -> None:
        self.site = site
        self.events = events
        self.nodes = nodes
        self.rng = site.stream("kubelets")
        self.running: dict[str, Guest] = {}
        """Every pod whose processes run, by uid: the truth."""
        self.on_release: list[Callable[[Machine], None]] = []
        """Told of each machine on which a pod let go of resources."""
        self.on_exit: Callable[[Guest], None] | None = None
        """Told of each pod that is being ended, and whose processes have ended by themselves."""
        self.on_pressure: Callable[[Machine, Pressure], None] | None = None
        """Told of each machine that has to end a pod because it is short of something."""

    # Resources

    def admit(self, guest: Guest, machine: Machine) -> bool:
        """Take a pod that is bound to a machine, if there is room for it."""
        guest.machine, guest.stage = machine, Stage.CREATING
        machine.guests[guest.uid] = guest
        lacking = machine.lacking(guest.wanted)
        if lacking:
            return self._reject(guest, machine, f"OutOf{lacking[0]}", f"Node didn't have enough resource: {lacking[0]}")
        if DISK.kind in machine.pressures:  # of the others, only pods without any request would be kept off
            return self._reject(guest, machine, EVICTED, f"The node had condition: [{DISK.kind}].")
        machine.take(guest.wanted)
        guest.holds = True
        return True

    def _reject(self, guest: Guest, machine: Machine, reason: str, why: str) -> bool:
        guest.stage, guest.failed, guest.message = Stage.OVER, reason, f"Pod was rejected: {why}"
        guest.begun = self.site.stamp_of(machine)
        self.publish(guest)
        self.events.warning(guest.item, reason, why, "kubelet")
        return False

    def release(self, guest: Guest) -> None:
        """Give back what a pod held."""
        machine = guest.machine
        if machine is not None and guest.holds:
            guest.holds = False
            machine.give(guest.wanted)
            for told in self.on_release:
                told(machine)

    def part(self, guest: Guest) -> None:
        """Forget a pod that is gone from the API and from its machine."""
        self.release(guest)
        if guest.machine is not None:
            guest.machine.guests.pop(guest.uid, None)

    # Reports

    def publish(self, guest: Guest) -> None:
        """Write a pod's status, if its kubelet is heard."""
        machine = guest.machine
        if machine is None or guest.removed or not machine.up:
            return
        status = status_of(guest, machine, self.site.stamp_of(machine), self.site.settings.first_address)
        guest.item = self.site.patch(f"{guest.path}/status", guest.item, {"status": status}, KUBELET)

    # Containers

    def start(self, guest: Guest, step: int) -> None:
        """Start a pod's container."""
        machine = guest.machine
        if guest.step != step or machine is None or not machine.powered:
            return
        fails = self.site.chance("pod fails", f"pod/{guest.name}")
        if fails and self.rng.random() < 0.5:
            self.site.note("container does not start", guest.name)
            self._ended(guest, START_ERROR_CODE, "StartError")
            return
        guest.stage, guest.alive, guest.message = Stage.RUNNING, True, ""
        guest.started, guest.started_at = self.site.stamp_of(machine), self.site.now
        self.running[guest.uid] = guest
        self.site.note("container starts", guest.name, machine.name, guest.restarts)
        turn = guest.turn()
        self._probe(guest, turn)
        self.publish(guest)
        self.events.normal(guest.item, "Started", f"Started container {_container_of(guest)}", "kubelet")
        self._draw_fate(guest, turn, fails)
        self.site.containers.started(guest.item, machine.name)

    def _probe(self, guest: Guest, turn: int) -> None:
        """Have a pod wait for its readiness probe, which succeeds as soon as it is asked."""
        probe = guest.probe("readinessProbe")
        guest.ready = probe is None
        if probe is not None:
            rounds = probe.get("successThreshold", 1) - 1
            delay = probe.get("initialDelaySeconds", 0) + rounds * probe.get("periodSeconds", 10)
            self.site.later(max(0, delay) * SECOND, self._succeeds, guest, turn)

    def _succeeds(self, guest: Guest, turn: int) -> None:
        if guest.step == turn:
            guest.ready = True
            self.publish(guest)

    def _draw_fate(self, guest: Guest, turn: int, fails: bool) -> None:
        """Draw what befalls a container that was started just now."""
        site = self.site
        if fails:
            site.doom(site.settings.failing, self.rng, self._fails, guest, turn, OOM_KILLED)
        elif site.chance("pod evicted", f"pod/{guest.name}"):
            site.doom(site.settings.eviction, self.rng, self._evict, guest, turn)
        elif _storage_limit(guest) and site.chance("pod over its storage", f"pod/{guest.name}"):
            site.doom(site.settings.eviction, self.rng, self._overruns, guest, turn)
        elif guest.probe("livenessProbe") is not None and site.chance("liveness probe fails", f"pod/{guest.name}"):
            site.doom(site.settings.eviction, self.rng, self._fails, guest, turn, UNHEALTHY)

    def kill(self, guest: Guest, why: str) -> None:
        """End a pod's processes, if they run."""
        if guest.alive:
            self._gone(guest)
            self.site.note("container killed", guest.name, why)
            self.site.containers.killed(guest.uid, why)

    def _gone(self, guest: Guest) -> None:
        guest.alive = False
        guest.turn()
        del self.running[guest.uid]

    def exited(self, uid: str, exit_code: int, reason: str) -> None:
        """Take note that a pod's processes have ended by themselves; nothing happens if they do not run."""
        guest = self.running.get(uid)
        if guest is None:
            return
        self._gone(guest)
        self.site.note("container exits", guest.name, exit_code, reason)
        self._ended(guest, exit_code, reason or ("Error" if exit_code else "Completed"))

    def _fails(self, guest: Guest, turn: int, why: str) -> None:
        if guest.step != turn or not guest.alive:
            return
        self.kill(guest, why)
        if why == UNHEALTHY:
            self.events.warning(guest.item, "Unhealthy", f"Liveness probe failed: {_container_of(guest)}", "kubelet")
        self._ended(guest, KILLED_EXIT_CODE, "Error" if why == UNHEALTHY else why)

    def _ended(self, guest: Guest, exit_code: int, reason: str) -> None:
        policy = guest.restart_policy
        final = guest.stopping or policy == "Never" or (policy == "OnFailure" and exit_code == 0)
        machine = guest.machine
        if final or guest.removed or machine is None:
            guest.ends(exit_code, reason, self.site.stamp if machine is None else self.site.stamp_of(machine))
            guest.turn()
            self.release(guest)
            self.publish(guest)
            if guest.removed:
                self.part(guest)
            elif guest.stopping and self.on_exit is not None:
                self.on_exit(guest)
            return
        calm = guest.stage is Stage.RUNNING and self.site.now - guest.started_at > CALM
        guest.crashes = 1 if calm else guest.crashes + 1
        guest.last_end = End(exit_code, reason, guest.started, self.site.stamp_of(machine))
        self._start_again(guest)

    def _start_again(self, guest: Guest) -> None:
        settings = self.site.settings
        doublings = min(guest.crashes - 2, 16)
        pause = 0 if guest.crashes < 2 else min(settings.restart_backoff << doublings, settings.restart_backoff_most)
        guest.stage, guest.waiting = Stage.WAITING, "CrashLoopBackOff"
        text = f"back-off {pause // SECOND}s restarting failed container={_container_of(guest)} pod={guest.name}"
        guest.message = text
        self.publish(guest)
        if pause:
            self.events.warning(guest.item, "BackOff", f"Back-off restarting failed container {_container_of(guest)}")
        self.site.later(pause, self._restart, guest, guest.turn())

    def _restart(self, guest: Guest, step: int) -> None:
        if guest.step == step:
            guest.restarts += 1
            self.start(guest, step)

    # Evictions

    def _evict(self, guest: Guest, turn: int) -> None:
        if guest.step == turn and guest.alive:
            self.evict(guest)

    def evict(self, guest: Guest, pressure: Pressure = DISK) -> bool:
        """End a pod for good because its machine is short of something.

        False if it is about to end, or nobody there acts.
        """
        machine = guest.machine
        if machine is None or not machine.up or guest.stage is Stage.OVER or guest.stopping:
            return False
        if self.on_pressure is not None:
            self.on_pressure(machine, pressure)
        self._evicted(guest, machine, pressure.evicts)
        return True

    def _evicted(self, guest: Guest, machine: Machine, why: str) -> None:
        self.site.note("pod evicted", guest.name)
        self.kill(guest, EVICTED)
        guest.failed, guest.message = EVICTED, why
        guest.ends(KILLED_EXIT_CODE, "Error", self.site.stamp_of(machine))
        guest.turn()
        self.release(guest)
        self.publish(guest)
        self.events.warning(guest.item, EVICTED, why, "kubelet")

    def _overruns(self, guest: Guest, turn: int) -> None:
        machine = guest.machine
        if guest.step == turn and guest.alive and machine is not None and machine.up and not guest.stopping:
            limit = _storage_limit(guest)
            why = f'Container {_container_of(guest)} exceeded its local ephemeral storage limit "{limit}".'
            self._evicted(guest, machine, why)

    def exhausts(self, guest: Guest) -> bool:
        """End a container because it has used up its memory; False if it does not run, or is about to end."""
        if not guest.alive or guest.stopping:
            return False
        self._fails(guest, guest.step, OOM_KILLED)
        return True


def _storage_limit(guest: Guest) -> str:
    """Return how much disk a pod's first container may use, as its specification says it; empty: any."""
    return str(nested(guest.item["spec"]["containers"][0], "resources", "limits", STORAGE) or "")


def _container_of(guest: Guest) -> str:
    name: str = guest.item["spec"]["containers"][0]["name"]
    return name
