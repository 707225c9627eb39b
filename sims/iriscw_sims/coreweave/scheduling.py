"""The scheduler: which node a pod goes to, and what is said of one that finds none.

Theory of operation. A pod that finds no node waits under one of the labels that it selects by, so that a node's change
wakes only those that may now fit: the cost follows what changed, not how many wait. Among the nodes that fit, the one
with the fewest pods is taken, as the default scoring spreads pods, too.

Understood are nodeSelector, required node affinity by labels, taints, resources and host ports; pod affinity is not.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

from iriscw_sims.coreweave.events import Events
from iriscw_sims.coreweave.guests import Guest, Stage, with_condition
from iriscw_sims.coreweave.machines import Machine
from iriscw_sims.coreweave.nodes import Follower, Nodes
from iriscw_sims.coreweave.site import KUBELET, TOO_LATE, Site
from iriscw_sims.coreweave.taints import first_untolerated
from iriscw_sims.kube.frozen import EMPTY
from iriscw_sims.kube.kinds import Json, nested

SCHEDULER = "default-scheduler"

Pair: TypeAlias = tuple[str, str]
WHOLE = re.compile(r"[-+]?[0-9]{1,19}")
"""What Gt and Lt compare."""

ANYWHERE: Pair = ("", "")
"""Where pods wait that select nothing."""


class Scheduler(Follower):
    """Binds pods to nodes."""

    def __init__(self, site: Site, events: Events, nodes: Nodes) -> None:
        self._site = site
        self._events = events
        self._nodes = nodes
        self._rng = site.stream("scheduler")
        self._waiting: dict[Pair, dict[str, Guest]] = {}
        self._where: dict[str, Pair] = {}
        """Under which label a pod waits, by uid."""
        self._due: dict[str, Guest] = {}
        """Pods whose turn comes soon."""
        self._labelled: dict[Pair, dict[str, Machine]] = {}
        """Nodes by label."""
        self._labels: dict[str, dict[str, str]] = {}
        """The labels under which a node is found, by its name."""

    # Pods

    def add(self, guest: Guest) -> None:
        """Take a pod that has no node, unless it is not for this scheduler or not now."""
        spec = guest.item["spec"]
        if spec.get("schedulerName", SCHEDULER) != SCHEDULER or spec.get("schedulingGates"):
            return
        if guest.uid not in self._due and guest.uid not in self._where:
            self._soon(guest)

    def forget(self, guest: Guest) -> None:
        """Let go of a pod: it has a node, or is gone."""
        self._due.pop(guest.uid, None)
        where = self._where.pop(guest.uid, None)
        if where is not None:
            self._waiting[where].pop(guest.uid)
            if not self._waiting[where]:
                del self._waiting[where]

    @property
    def waiting(self) -> int:
        """How many pods wait for a node."""
        return len(self._where) + len(self._due)

    def _soon(self, guest: Guest) -> None:
        self._due[guest.uid] = guest
        self._site.after(self._site.settings.scheduling, self._rng, self._attempt, guest)

    def _attempt(self, guest: Guest) -> None:
        if self._due.pop(guest.uid, None) is None or guest.machine is not None or guest.deleting:
            return
        machine = self._choose(guest)
        if machine is None:
            self._waits(guest)
            return
        self._site.note("pod bound", guest.name, machine.name)
        target = {"apiVersion": "v1", "kind": "Node", "name": machine.name}
        metadata = {"name": guest.name, "uid": guest.uid}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        if self._site.ask("POST", f"{guest.path}/binding", body, KUBELET, accept=TOO_LATE) is None:
            return  # gone, or bound by somebody else: the watch tells it next
        text = f"Successfully assigned {guest.item['metadata']['namespace']}/{guest.name} to {machine.name}"
        self._events.normal(guest.item, "Scheduled", text, SCHEDULER)

    def _choose(self, guest: Guest) -> Machine | None:
        best: Machine | None = None
        for machine in self._candidates(guest)[1].values():
            if self._refusal(guest, machine) or (best is not None and best.holding <= machine.holding):
                continue
            best = machine
        return best

    def _candidates(self, guest: Guest) -> tuple[Pair, dict[str, Machine]]:
        """Return the rarest label that a pod selects by, and the nodes that have it."""
        selector = guest.item["spec"].get("nodeSelector") or EMPTY
        found: tuple[Pair, dict[str, Machine]] | None = None
        for pair in selector.items():
            machines = self._labelled.get(pair, {})
            if found is None or len(machines) < len(found[1]):
                found = pair, machines
        return found if found is not None else (ANYWHERE, self._nodes.machines)

    def _refusal(self, guest: Guest, machine: Machine) -> str:
        """Say why a pod does not fit on a node, in the scheduler's words; empty if it does."""
        spec, labels = guest.item["spec"], machine.item["metadata"].get("labels") or EMPTY
        node = machine.item.get("spec") or EMPTY
        if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or EMPTY).items()):
            return MISMATCH
        if not _affine(spec, labels):
            return MISMATCH
        if node.get("unschedulable"):
            return "node(s) were unschedulable"
        taint = first_untolerated(spec, node.get("taints") or (), ("NoSchedule", "NoExecute"))
        if taint is not None:
            return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
        if not machine.usable:
            return "node(s) were not ready"
        lacking = machine.lacking(guest.wanted)
        if lacking:
            return f"Insufficient {lacking[0]}"
        if _ports(guest) and any(port in _ports(guest) for other in machine.guests.values() for port in _ports(other)):
            return "node(s) didn't have free ports for the requested pod ports"
        return ""

    def _waits(self, guest: Guest) -> None:
        """Have a pod wait for a node, and say why there is none."""
        pair, machines = self._candidates(guest)
        self._where[guest.uid] = pair
        self._waiting.setdefault(pair, {})[guest.uid] = guest
        said = Counter(self._refusal(guest, machine) for machine in machines.values())
        others = len(self._nodes.machines) - len(machines)
        if others:
            said[MISMATCH] += others
        reasons = ", ".join(sorted(f"{times} {reason}" for reason, times in said.items()))
        count = len(self._nodes.machines)
        text = f"0/{count} nodes are available: {reasons}." if count else "no nodes available to schedule pods"
        known = _scheduled(guest.item)
        if known is not None and known.get("reason") == "Unschedulable":
            return  # the message may be out of date: a write for each node that joins would cost too much
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": text,
            "lastProbeTime": None,
            "lastTransitionTime": self._site.stamp,
        }
        status = {"conditions": with_condition(guest.item, condition)}
        guest.item = self._site.patch(f"{guest.path}/status", guest.item, {"status": status}, KUBELET)
        self._events.warning(guest.item, "FailedScheduling", text, SCHEDULER)

    # Nodes

    def node_changed(self, machine: Machine) -> None:
        """Find the node by its labels, and wake who may fit now."""
        labels = dict(machine.item["metadata"].get("labels") or EMPTY)
        if self._labels.get(machine.name) != labels:
            self._unlabel(machine)
            self._labels[machine.name] = labels
            for pair in labels.items():
                self._labelled.setdefault(pair, {})[machine.name] = machine
        if machine.usable:
            self.wake(machine)

    def wake(self, machine: Machine) -> None:
        """Give the pods that may fit on a node their turn."""
        if not self._where:
            return
        for pair in [ANYWHERE, *self._labels.get(machine.name, {}).items()]:
            for guest in [*self._waiting.get(pair, {}).values()]:
                self.forget(guest)
                self._soon(guest)

    def node_left(self, machine: Machine, why: str) -> None:
        """Forget the node."""
        self._unlabel(machine)
        self._labels.pop(machine.name, None)

    def _unlabel(self, machine: Machine) -> None:
        for pair in self._labels.get(machine.name, {}).items():
            del self._labelled[pair][machine.name]
            if not self._labelled[pair]:
                del self._labelled[pair]


MISMATCH = "node(s) didn't match Pod's node affinity/selector"


def _scheduled(item: Json) -> Json | None:
    for each in nested(item, "status", "conditions") or ():
        if each.get("type") == "PodScheduled":
            condition: Json = each
            return condition
    return None


def _ports(guest: Guest) -> list[int]:
    """Return the ports of its node that a pod takes while it is there."""
    if guest.stage is Stage.OVER:
        return []
    containers = guest.item["spec"]["containers"]
    return [port["hostPort"] for each in containers for port in each.get("ports") or () if port.get("hostPort")]


def _affine(spec: Json, labels: Json) -> bool:
    path = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
    terms = nested(spec, *path)
    if not terms:
        return True
    return any(all(_holds(each, labels) for each in term.get("matchExpressions") or ()) for term in terms)


def _holds(expression: Json, labels: Json) -> bool:
    key, values = expression["key"], expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case operator:
            return _compares(operator, labels.get(key, ""), values)


def _compares(operator: str, label: str, values: Sequence[str]) -> bool:
    if not WHOLE.fullmatch(label) or len(values) != 1 or not WHOLE.fullmatch(values[0]):
        return False
    return int(label) > int(values[0]) if operator == "Gt" else int(label) < int(values[0])
