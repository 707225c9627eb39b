"""Taints: which of them a pod tolerates, and the eviction of those that do not tolerate one that executes.

Theory of operation. As the taint eviction controller does it: when a node's taints change, each pod there is looked at
anew. One that does not tolerate a ``NoExecute`` taint is deleted at once; one that tolerates it for a number of seconds
is deleted then, unless the taint is gone. On a dead node the deletion only marks the pod: nobody is there to end it.
"""

from __future__ import annotations

from collections.abc import Iterable

from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.coreweave.events import Events
from iriscw_sims.coreweave.guests import FINAL, Guest, with_condition
from iriscw_sims.coreweave.machines import Machine
from iriscw_sims.coreweave.nodes import Follower
from iriscw_sims.coreweave.site import KUBELET, Key, Site
from iriscw_sims.kube.frozen import EMPTY
from iriscw_sims.kube.kinds import Json


def tolerates(toleration: Json, taint: Json) -> bool:
    """Tell whether a toleration is for a taint."""
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key", "") not in ("", taint["key"]):
        return False
    exists: bool = toleration.get("operator", "Equal") == "Exists"
    return exists or (bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", ""))


def first_untolerated(spec: Json, taints: Iterable[Json], effects: tuple[str, ...]) -> Json | None:
    """Return the first of some taints that a pod does not tolerate, of those with one of these effects."""
    tolerations = spec.get("tolerations") or ()
    for taint in taints:
        if taint["effect"] in effects and not any(tolerates(each, taint) for each in tolerations):
            return taint
    return None


def patience(spec: Json, taints: Iterable[Json]) -> int | None:
    """Return for how many seconds a pod stays in spite of these ``NoExecute`` taints; None: for ever."""
    spans: list[int] = []
    for taint in taints:
        mine = next((each for each in spec.get("tolerations") or () if tolerates(each, taint)), None)
        if mine is None:
            return 0
        if mine.get("tolerationSeconds") is not None:
            spans.append(max(0, mine["tolerationSeconds"]))
    return min(spans, default=None)


class TaintEviction(Follower):
    """Drives pods off nodes with taints that they do not tolerate."""

    def __init__(self, site: Site, events: Events) -> None:
        self._site = site
        self._events = events
        self._executing: dict[str, list[Json]] = {}
        """The taints of each node that drive pods off."""
        self._timers: dict[str, Key] = {}

    def node_changed(self, machine: Machine) -> None:
        """Look at the pods of a node anew if its taints changed."""
        taints = [
            each for each in (machine.item.get("spec") or EMPTY).get("taints") or () if each["effect"] == "NoExecute"
        ]
        if taints == self._executing.get(machine.name, []):
            return
        self._executing[machine.name] = taints
        for guest in [*machine.guests.values()]:
            self.judge(guest)

    def node_left(self, machine: Machine, why: str) -> None:
        """Forget the node."""
        self._executing.pop(machine.name, None)

    def judge(self, guest: Guest) -> None:
        """Evict a pod from its node now, later, or not."""
        key: Key = ("taint eviction", guest.uid)
        machine = guest.machine
        taints = self._executing.get(machine.name, []) if machine is not None else []
        if guest.removed or guest.deleting or not taints:
            self._timers.pop(guest.uid, None)
            return
        seconds = patience(guest.item["spec"], taints)
        if seconds is None:
            self._timers.pop(guest.uid, None)
        elif seconds == 0:
            self._evict(guest)
        elif guest.uid not in self._timers:
            self._timers[guest.uid] = key
            self._site.later(seconds * SECOND // self._site.settings.toleration_divisor, self._due, guest, key)

    def _due(self, guest: Guest, key: Key) -> None:
        if self._timers.get(guest.uid) is key:
            del self._timers[guest.uid]
            if not guest.removed and not guest.deleting:
                self._evict(guest)

    def _evict(self, guest: Guest) -> None:
        site, machine = self._site, guest.machine
        site.note("pod driven off", guest.name)
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint",
            "lastTransitionTime": site.stamp,
        }
        status: Json = {"conditions": with_condition(guest.item, condition)}
        if machine is not None and machine.silent and guest.shown_phase not in FINAL:
            text = f"Node {machine.name} which was running pod {guest.name} is unresponsive"
            status |= {"reason": "NodeLost", "message": text}
        guest.item = site.patch(f"{guest.path}/status", guest.item, {"status": status}, KUBELET)
        namespace = (guest.item["metadata"] or EMPTY)["namespace"]
        text = f"Marking for deletion Pod {namespace}/{guest.name}"
        self._events.normal(guest.item, "TaintManagerEviction", text, "taint-eviction-controller")
        site.delete(guest.path, guest.uid, KUBELET)
