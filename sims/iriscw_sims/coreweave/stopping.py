"""How a pod is ended: stop signal, grace, kill, and the last word to the API; and what a lost machine leaves undone.

Theory of operation. The API only marks a pod that is on a node. Its kubelet ends the processes, reports that they are
over, and deletes the object with no grace. A deletion without grace removes the object first, and the processes a
moment later; on a machine that is cut off, much later: when it is back, or without power.
"""

from __future__ import annotations

from iriscw_sims.coreweave.guests import KILLED_EXIT_CODE, Guest, Stage, with_condition
from iriscw_sims.coreweave.kubelet import Kubelets
from iriscw_sims.coreweave.machines import Machine
from iriscw_sims.coreweave.nodes import Follower
from iriscw_sims.coreweave.site import KUBELET, Key, Site
from iriscw_sims.coreweave.starting import Starting
from iriscw_sims.kube.kinds import Json

STOPPED_EXIT_CODE = 143
"""128 + SIGTERM."""


class Stopping(Follower):
    """Ends pods."""

    def __init__(self, site: Site, kubelets: Kubelets, starting: Starting) -> None:
        self._site = site
        self._kubelets = kubelets
        self._starting = starting
        self._rng = site.stream("stopping")
        kubelets.on_exit = self._exited

    # Deletions

    def stop(self, guest: Guest) -> None:
        """Begin to end a pod whose object says so, or hurry: its grace may have become shorter."""
        machine = guest.machine
        if machine is None or not machine.up or guest.finished:
            return
        deadline = guest.deadline
        if not guest.stopping:
            guest.stopping, guest.grace_end = True, deadline
            guest.turn()
            self._site.drop(("pod starts", guest.uid))
            self._begin(guest, deadline)
        elif guest.grace_end is not None and deadline < guest.grace_end:
            guest.grace_end = deadline
            if guest.alive:
                self._site.containers.ending(guest.uid, max(0, deadline - self._site.now))
            if not self._site.holds(self._key(guest)):
                self._site.later(max(0, deadline - self._site.now), self._stopped, guest)

    def _key(self, guest: Guest) -> Key:
        return ("pod deletion", guest.uid)

    def _begin(self, guest: Guest, deadline: int) -> None:
        site, settings = self._site, self._site.settings
        left = max(0, deadline - site.now)
        if site.chance("deletion stuck", f"pod/{guest.name}"):
            if self._rng.random() < 0.5:  # the processes end, and something else does not: a volume, a mount
                site.later(left, self._grace_over, guest)
            site.note("pod deletion stuck", guest.name)
            site.hold(self._key(guest), self._stopped, guest)
        elif site.chance("deletion slow", f"pod/{guest.name}"):
            site.later(left, self._grace_over, guest)
            site.later(max(left, settings.deletion_slow.draw(self._rng)), self._stopped, guest)
        elif guest.alive:
            site.later(min(left, settings.stop.draw(self._rng)), self._stopped, guest)
            site.containers.ending(guest.uid, left)
        else:
            site.after(settings.sync, self._rng, self._stopped, guest)

    def _exited(self, guest: Guest) -> None:
        """Take note that the processes of a pod that is being ended have ended by themselves."""
        if not self._site.holds(self._key(guest)):
            self._site.after(self._site.settings.sync, self._rng, self._stopped, guest)

    def _grace_over(self, guest: Guest) -> None:
        if guest.machine is not None and guest.machine.powered:
            self._kubelets.kill(guest, "its pod was deleted")

    def _stopped(self, guest: Guest) -> None:
        machine = guest.machine
        if guest.finished or guest.removed or machine is None or not machine.up:
            return
        guest.finished = True
        self._site.drop(self._key(guest))
        self._kubelets.kill(guest, "its pod was deleted")
        if guest.stage is not Stage.OVER:
            hurried = guest.grace_end is None or self._site.now >= guest.grace_end
            code = KILLED_EXIT_CODE if hurried or not guest.started else STOPPED_EXIT_CODE
            reason = "Error" if guest.started else "ContainerStatusUnknown"
            guest.ends(code, reason, self._site.stamp_of(machine))
            self._kubelets.publish(guest)
        self._kubelets.release(guest)
        self._site.delete(guest.path, guest.uid, KUBELET, grace_s=0)

    def removed(self, guest: Guest) -> None:
        """Take note that a pod's object is gone: whatever still runs is ended."""
        guest.removed = True
        guest.turn()
        self._site.drop(("pod starts", guest.uid))
        self._site.drop(self._key(guest))
        machine = guest.machine
        if machine is None or not guest.alive or not machine.powered:
            self._kubelets.part(guest)
        elif machine.up:
            self._site.note("pod forced away", guest.name)
            self._site.after(self._site.settings.kill, self._rng, self._reap, guest)

    def _reap(self, guest: Guest) -> None:
        if guest.machine is not None and guest.machine.up:
            self._kubelets.kill(guest, "its pod is gone")
            self._kubelets.part(guest)

    # Machines

    def node_off(self, machine: Machine, why: str) -> None:
        """End everything there; nobody is left to tell the API."""
        for guest in [*machine.guests.values()]:
            self._kubelets.kill(guest, why)
            guest.turn()
            self._site.drop(("pod starts", guest.uid))
            self._site.drop(self._key(guest))
            if guest.removed:
                self._kubelets.part(guest)

    def node_unready(self, machine: Machine) -> None:
        """Show the pods of a node that is silent, or not ready, as not ready."""
        for guest in [*machine.guests.values()]:
            if guest.removed or guest.shown_phase != "Running":
                continue
            guest.since["Ready"] = ("False", self._site.stamp)
            condition = {"type": "Ready", "status": "False", "lastTransitionTime": self._site.stamp}
            status: Json = {"conditions": with_condition(guest.item, condition)}
            guest.item = self._site.patch(f"{guest.path}/status", guest.item, {"status": status}, KUBELET)

    def node_back(self, machine: Machine) -> None:
        """Make up for what was missed: pods that are gone, or are to go, or are new; and reports."""
        for guest in [*machine.guests.values()]:
            if guest.removed:
                self._site.after(self._site.settings.kill, self._rng, self._reap, guest)
            elif guest.deleting and guest.stopping:
                if not self._site.holds(self._key(guest)):
                    self._site.after(self._site.settings.sync, self._rng, self._stopped, guest)
            elif guest.deleting:
                self.stop(guest)
            elif guest.stage is Stage.CREATING and not guest.begun:
                self._starting.soon(guest)
            else:
                self._kubelets.publish(guest)

    def node_drained(self, machine: Machine) -> None:
        """Ask all pods there to go."""
        for guest in [*machine.guests.values()]:
            if not guest.removed and not guest.deleting and guest.stage is not Stage.OVER:
                self._site.delete(guest.path, guest.uid)
