"""Pods as the cloud knows them, and the statuses that kubelets write about them. Pure but for what a guest remembers.

A :class:`Guest` is the truth of one pod: where it is, how far its start has come, whether its processes live. The
status that the API shows is computed from it, whole, each time; so a kubelet that was cut off shows what happened
meanwhile with one write when it is back.
"""

from __future__ import annotations

import enum
from typing import Any

import attrs

from iriscw_sims.coreweave.machines import Machine
from iriscw_sims.coreweave.shapes import Amounts, requested
from iriscw_sims.kube.clock import parsed
from iriscw_sims.kube.frozen import EMPTY, FrozenDict
from iriscw_sims.kube.kinds import Json

OOM_KILLED = "OOMKilled"
EVICTED = "Evicted"
KILLED_EXIT_CODE = 137
"""128 + SIGKILL."""

START_ERROR_CODE = 128
"""What a runtime says of a container that it could not start."""


FINAL = ("Succeeded", "Failed")
"""Phases that a pod does not leave."""


class Stage(enum.Enum):
    """How far a pod has come."""

    UNBOUND = "unbound"
    CREATING = "creating"
    """On a node, with no container yet."""
    RUNNING = "running"
    WAITING = "waiting"
    """Its container ended, and will be started again."""
    OVER = "over"


@attrs.frozen
class End:
    """How a container ended."""

    exit_code: int
    reason: str
    started: str
    finished: str


@attrs.define(eq=False)
class Guest:
    """One pod."""

    item: FrozenDict
    """The object as it was last seen."""
    wanted: Amounts
    machine: Machine | None = None
    stage: Stage = Stage.UNBOUND
    alive: bool = False
    """Whether its processes run."""
    removed: bool = False
    """Whether its object is gone."""
    holds: bool = False
    """Whether it holds resources of its machine."""
    stopping: bool = False
    """Whether its kubelet is ending it."""
    finished: bool = False
    """Whether its kubelet is done with it: the API may remove it."""
    step: int = 0
    """Counts its turns: a timer of an earlier one does nothing."""
    grace_end: int | None = None
    """When its grace is over, ns since 1970; None: nobody asked it to go."""
    ready: bool = True
    """Whether its readiness probe, if it has one, has succeeded since its container was started."""
    waiting: str = "ContainerCreating"
    """Why it waits, as its container's status says."""
    message: str = ""
    failed: str = ""
    """Why the pod as a whole failed (``Evicted``), beyond how its container ended."""
    restarts: int = 0
    crashes: int = 0
    """Ends in a row that count for the pause before the next start."""
    begun: str = ""
    """When its kubelet took it on."""
    started: str = ""
    """When its container was started last."""
    started_at: int = 0
    end: End | None = None
    last_end: End | None = None
    since: dict[str, tuple[str, str]] = attrs.field(factory=dict)
    """Status of each condition, and since when."""

    @classmethod
    def of(cls, item: FrozenDict) -> Guest:
        """Begin to know a pod."""
        return cls(item, requested(item["spec"]))

    @property
    def uid(self) -> str:
        """The object's uid."""
        uid: str = self.item["metadata"]["uid"]
        return uid

    @property
    def name(self) -> str:
        """The object's name."""
        name: str = self.item["metadata"]["name"]
        return name

    @property
    def path(self) -> str:
        """The object's path."""
        return f"/api/v1/namespaces/{self.item['metadata']['namespace']}/pods/{self.name}"

    @property
    def deleting(self) -> bool:
        """Whether the object says that the pod is to go."""
        return bool(self.item["metadata"].get("deletionTimestamp"))

    @property
    def deadline(self) -> int:
        """When the grace of its deletion ends, ns since 1970."""
        return parsed(self.item["metadata"]["deletionTimestamp"]) or 0

    @property
    def phase(self) -> str:
        """The phase that is true of it."""
        if self.stage is Stage.OVER:
            good = self.end is not None and self.end.exit_code == 0 and not self.failed
            return "Succeeded" if good else "Failed"
        return "Running" if self.stage in (Stage.RUNNING, Stage.WAITING) else "Pending"

    @property
    def shown_phase(self) -> str:
        """The phase that the API shows."""
        phase: str = (self.item.get("status") or EMPTY).get("phase", "Pending")
        return phase

    @property
    def restart_policy(self) -> str:
        """When its container is started again."""
        policy: str = self.item["spec"].get("restartPolicy", "Always")
        return policy

    def probe(self, kind: str) -> Json | None:
        """Return the probe of its first container that has one of this kind (``livenessProbe``)."""
        return next((each[kind] for each in self.item["spec"]["containers"] if each.get(kind)), None)

    def turn(self) -> int:
        """Begin a new turn, and give its number."""
        self.step += 1
        return self.step

    def ends(self, exit_code: int, reason: str, stamp: str) -> None:
        """Be over, with a container that ended so."""
        self.end = End(exit_code, reason, self.started, stamp)
        self.stage = Stage.OVER


SCATTER = 2_654_435_761
"""An odd number, about 2 to the 32nd by the golden ratio: its multiples lie far apart."""

OWN_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")


def status_of(guest: Guest, machine: Machine, stamp: str, first_address: int = 1) -> Json:
    """Return the status that a kubelet writes, as a merge patch of it; ``first_address`` is that of the cluster."""
    status: Json = {
        "phase": guest.phase,
        "conditions": _conditions(guest, stamp),
        "hostIP": machine.address,
        "hostIPs": [{"ip": machine.address}],
        "startTime": guest.begun or None,
        "containerStatuses": [_container(guest, each) for each in guest.item["spec"]["containers"]],
        "reason": guest.failed or None,
        "message": guest.message if guest.failed else None,
    }
    if guest.stage is not Stage.CREATING and guest.started:
        address = machine.address if guest.item["spec"].get("hostNetwork") else pod_address(guest.uid, first_address)
        status |= {"podIP": address, "podIPs": [{"ip": address}]}
    return status


def pod_address(uid: str, first_address: int) -> str:
    """Return the address of a pod that has a network of its own. Clusters whose nodes begin elsewhere give others: a
    pod's uid is drawn from the seed, so clusters of one seed have the same.
    """
    digest = int(uid[:8], 16) + (first_address - 1) * SCATTER & 0xFFFFFFFF
    return f"10.{200 + digest % 50}.{digest >> 8 & 255}.{digest >> 16 & 255}"


def _conditions(guest: Guest, stamp: str) -> list[Json]:
    before = (guest.item.get("status") or EMPTY).get("conditions") or ()
    found: list[Any] = [each for each in before if each.get("type") not in OWN_CONDITIONS]

    def add(kind: str, holds: bool, reason: str) -> None:
        status = "True" if holds else "False"
        if guest.since.get(kind, ("",))[0] != status:
            guest.since[kind] = (status, stamp)
        condition = {"type": kind, "status": status, "lastTransitionTime": guest.since[kind][1]}
        if not holds and reason:
            condition["reason"] = reason
        found.append(condition)

    reason = "PodCompleted" if guest.phase == "Succeeded" else "PodFailed" if guest.phase == "Failed" else ""
    unready = reason or "ContainersNotReady"
    add("PodReadyToStartContainers", bool(guest.started) and guest.stage is not Stage.OVER, "")
    add("Initialized", True, "")
    ready = guest.stage is Stage.RUNNING and guest.ready
    add("Ready", ready, unready)
    add("ContainersReady", ready, unready)
    if guest.failed == EVICTED:
        about = {"status": "True", "reason": "TerminationByKubelet", "message": guest.message}
        found = [each for each in found if each.get("type") != "DisruptionTarget"]
        found.append({"type": "DisruptionTarget", **about, "lastTransitionTime": guest.since["Ready"][1]})
    return found


def _container(guest: Guest, spec: Json) -> Json:
    running = guest.stage is Stage.RUNNING
    state: Json
    if running:
        state = {"running": {"startedAt": guest.started}}
    elif guest.stage is Stage.OVER and guest.end is not None:
        state = {"terminated": _end(guest.end)}
    else:
        state = {"waiting": {"reason": guest.waiting} | ({"message": guest.message} if guest.message else {})}
    status = {
        "name": spec["name"],
        "image": spec["image"],
        "imageID": spec["image"] if guest.started else "",
        "ready": running and guest.ready,
        "started": running,
        "restartCount": guest.restarts,
        "state": state,
        "lastState": {"terminated": _end(guest.last_end)} if guest.last_end is not None else {},
    }
    if guest.started:
        status["containerID"] = f"containerd://{guest.uid}-{guest.restarts}"
    return status


def _end(end: End) -> Json:
    return {
        "exitCode": end.exit_code,
        "reason": end.reason,
        "startedAt": end.started or None,
        "finishedAt": end.finished,
    }


def with_condition(item: Json, condition: Json) -> list[Any]:
    """Return an object's conditions with one of them set anew."""
    before = (item.get("status") or EMPTY).get("conditions") or ()
    return [*(each for each in before if each.get("type") != condition["type"]), condition]
