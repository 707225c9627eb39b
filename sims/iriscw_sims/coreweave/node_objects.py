"""Node objects as CoreWeave writes them: labels, taints, conditions. Pure: a machine in, JSON out."""

from __future__ import annotations

from typing import Any

from iriscw_sims.coreweave.machines import CORDONED, TRIAGE, Machine
from iriscw_sims.coreweave.pressures import PRESSURES
from iriscw_sims.coreweave.settings import Settings
from iriscw_sims.coreweave.shapes import GPU, RACK_NODES, Shape
from iriscw_sims.kube.frozen import EMPTY
from iriscw_sims.kube.kinds import Json

LABEL_POOL = "compute.coreweave.com/node-pool"
LABEL_POOL_UID = "compute.coreweave.com/node-pool-uid"
LABEL_STATE = "node.coreweave.cloud/state"

INTERRUPTABLE = "qos.coreweave.cloud/interruptable"
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
OWN_TAINTS = (INTERRUPTABLE, NOT_READY, UNREACHABLE, UNSCHEDULABLE, *(each.taint for each in PRESSURES))

KUBELET_VERSION = "v1.36.3"
"""What a node says it runs: what the simulated API server is compared with."""

FABRIC_NODES = 64
"""Nodes to a leaf group, and leaf groups to a superpod: how far apart two nodes of a pool may be."""


def pool_labels(spec: Json, shape: Shape, settings: Settings) -> Json:
    """Return the labels that all nodes of a pool share, but for those that name the pool itself."""
    kind = spec["instanceType"]
    labels = {
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "arm64" if shape.arm else "amd64",
        "node.kubernetes.io/instance-type": kind,
        "topology.kubernetes.io/region": settings.region,
        "node.coreweave.cloud/type": kind,
        "node.coreweave.cloud/class": "gpu" if shape.gpus else "cpu",
        "node.coreweave.cloud/reserved": settings.organisation,
        "cks.coreweave.com/org-id": settings.organisation,
    }
    if shape.gpus:
        labels["gpu.nvidia.com/class"] = shape.gpu
        labels["gpu.nvidia.com/model"] = f"{shape.gpu}_{shape.gpu_gib}GB"
    if shape.infiniband:
        labels["backend.coreweave.cloud/flavor"] = "infiniband"
    return labels


def place_labels(machine: Machine, serial: int, settings: Settings) -> Json:
    """Return the labels that say where a machine stands: fabric, or rack."""
    labels = {"kubernetes.io/hostname": machine.name}
    if machine.shape.infiniband:
        leaf = serial // FABRIC_NODES
        labels["backend.coreweave.cloud/fabric"] = settings.region.lower()
        labels["backend.coreweave.cloud/superpod"] = str(leaf // FABRIC_NODES)
        labels["backend.coreweave.cloud/leafgroup"] = str(leaf)
    if machine.shape.rack:
        rack = f"{machine.pool_uid[:8]}-{machine.slot // RACK_NODES}"
        labels["node.coreweave.cloud/rack"] = rack
        labels["ds.coreweave.com/nvlink.domain"] = f"{rack}-{settings.region}"
        labels["nvidia.com/gpu.clique"] = f"{machine.pool_uid}.{machine.slot // RACK_NODES}"
    return labels


def new_node(machine: Machine, spec: Json, serial: int, taints: list[Json], settings: Settings, stamp: str) -> Json:
    """Return the body with which a machine joins the cluster, by its pool's specification: not ready yet."""
    shape = machine.shape
    labels = {
        **pool_labels(spec, shape, settings),
        **place_labels(machine, serial, settings),
        LABEL_POOL: machine.pool_name,
        LABEL_POOL_UID: machine.pool_uid,
        LABEL_STATE: machine.state,
        **(spec.get("nodeLabels") or EMPTY),
    }
    metadata: Json = {"name": machine.name, "labels": labels, "managedFields": []}
    if spec.get("nodeAnnotations"):
        metadata["annotations"] = spec["nodeAnnotations"]
    status = {
        "capacity": shape.quantities,
        "allocatable": shape.quantities,
        "addresses": [
            {"type": "InternalIP", "address": machine.address},
            {"type": "Hostname", "address": machine.name},
        ],
        "conditions": conditions(machine, stamp),
        "nodeInfo": {
            "architecture": labels["kubernetes.io/arch"],
            "operatingSystem": "linux",
            "kubeletVersion": KUBELET_VERSION,
        },
    }
    node_spec = {"providerID": f"coreweave:///{settings.region}/{machine.name}", "taints": taints}
    return {"metadata": metadata, "spec": node_spec, "status": status}


def closed(machine: Machine) -> bool:
    """Tell whether the cloud keeps new pods off a machine."""
    return machine.leaving or machine.state in (TRIAGE, CORDONED)


def own_taints(machine: Machine) -> list[Json]:
    """Return the taints that follow from a machine's state."""
    found: list[Json] = []

    def add(key: str, effect: str, **more: Any) -> None:
        found.append({"key": key, "effect": effect, **more})

    if machine.interruptable:
        add(INTERRUPTABLE, "NoExecute", value="true")
    if not machine.ready:
        key = UNREACHABLE if machine.silent else NOT_READY
        add(key, "NoSchedule")
        if machine.tainted:  # a new node, which was never ready, drives nobody off
            add(key, "NoExecute", timeAdded=machine.tainted)
    for pressure in PRESSURES:
        if pressure.kind in machine.pressures:
            add(pressure.taint, "NoSchedule")
    if closed(machine):
        add(UNSCHEDULABLE, "NoSchedule")
    return found


GPU_TAINT: Json = {"key": GPU, "effect": "NoSchedule"}


def _same_place(one: Json, other: Json) -> bool:
    """Tell whether a node cannot carry both of two taints."""
    return bool(one["key"] == other["key"] and one["effect"] == other["effect"])


def pool_taints(spec: Json, shape: Shape, settings: Settings) -> list[Json]:
    """Return the taints that all nodes of a pool carry."""
    found: list[Json] = [dict(taint) for taint in spec.get("nodeTaints") or ()]
    if shape.gpus and settings.gpu_taint and not any(_same_place(each, GPU_TAINT) for each in found):
        found.append({**GPU_TAINT})
    return found


UNHEARD = "Kubelet stopped posting node status."
STARTING = "container runtime network not ready: cni plugin not initialized"


def conditions(machine: Machine, stamp: str) -> list[Json]:
    """Return a node's conditions, each with the time of its last change, which the machine remembers.

    Args:
        machine: Whose.
        stamp: The time now, by the clock of who writes: the kubelet, or the node controller for a silent one.
    """
    found: list[Json] = []

    def add(kind: str, status: str, reason: str, message: str = "") -> None:
        if machine.silent:
            status, reason, message = "Unknown", "NodeStatusUnknown", UNHEARD
        if machine.since.get(kind, ("",))[0] != status:
            machine.since[kind] = (status, stamp)
        condition = {"type": kind, "status": status, "reason": reason, "lastTransitionTime": machine.since[kind][1]}
        if machine.heartbeat:
            condition["lastHeartbeatTime"] = machine.heartbeat
        found.append(condition | ({"message": message} if message else {}))

    for pressure in PRESSURES:
        if pressure.kind in machine.pressures:
            add(pressure.kind, "True", pressure.short, pressure.words[1])
        else:
            add(pressure.kind, "False", pressure.fine, pressure.words[0])
    add("KernelDeadlock", "False", "KernelHasNoDeadlock")
    if machine.ready:
        add("Ready", "True", "KubeletReady", "kubelet is posting ready status")
    else:
        add("Ready", "False", "KubeletNotReady", machine.unwell or STARTING)
    return found
