"""The instance types of CoreWeave as data: what one machine of each offers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import TypeAlias

import attrs

from iriscw_sims.kube import quantity
from iriscw_sims.kube.frozen import EMPTY
from iriscw_sims.kube.kinds import Json

RACK_NODES = 18
"""Machines in an NVL72 rack: they are sold, and come, together."""

GPU = "nvidia.com/gpu"
INFINIBAND = "rdma/ib"
GIB = 1 << 30

Amounts: TypeAlias = dict[str, int]
"""Quantities by resource: CPU in thousandths, all else in whole units (bytes, devices, pods)."""


@attrs.frozen
class Shape:
    """One machine: ``gpu`` is the class of its GPUs, ``""`` without any."""

    cpu: int
    memory_gib: int
    gpus: int = 0
    gpu: str = ""
    gpu_gib: int = 0
    disk_gib: int = 7_000
    infiniband: bool = False
    rack: bool = False
    arm: bool = False
    pods: int = 110

    @property
    def quantities(self) -> Json:
        """What a Node object says it has."""
        found = {
            "cpu": str(self.cpu),
            "memory": f"{self.memory_gib}Gi",
            "ephemeral-storage": f"{self.disk_gib}Gi",
            "pods": str(self.pods),
        }
        if self.gpus:
            found[GPU] = str(self.gpus)
        if self.infiniband:
            found[INFINIBAND] = "64"
        return found

    @property
    def amounts(self) -> Amounts:
        """The same as numbers."""
        return amounts(self.quantities)


GENERIC = Shape(cpu=192, memory_gib=1536)
"""What small worlds get for a type that CoreWeave does not have."""

SHAPES: Mapping[str, Shape] = {
    "verarubin-4x-e": Shape(352, 1536, 4, "VR200", 288, 30_720, infiniband=True, rack=True, arm=True),
    "gb300-4x": Shape(144, 960, 4, "GB300", 279, 30_720, infiniband=True, rack=True, arm=True),
    "gb300-4x-e": Shape(144, 960, 4, "GB300", 279, 30_720, infiniband=True, rack=True, arm=True),
    "gb200-4x": Shape(144, 960, 4, "GB200", 186, 15_360, infiniband=True, rack=True, arm=True),
    "b300-8x": Shape(192, 4096, 8, "B300", 270, 30_720, infiniband=True),
    "b200-8x": Shape(128, 2048, 8, "B200", 180, 30_720, infiniband=True),
    "gd-8xh200ib-i128": Shape(128, 2048, 8, "H200", 141, 30_720, infiniband=True),
    "gd-8xh100ib-i128": Shape(128, 2048, 8, "H100", 80, 30_720, infiniband=True),
    "gd-8xa100-i128": Shape(128, 2048, 8, "A100", 80, 7_680),
    "rtxp6000-8x": Shape(128, 1024, 8, "RTXP6000", 96, 7_680),
    "gd-8xl40s-i128": Shape(128, 1024, 8, "L40S", 48, 7_680),
    "gd-8xl40-i128": Shape(128, 1024, 8, "L40", 48, 7_680),
    "gd-1xgh200": Shape(72, 480, 1, "GH200", 96, 7_680, arm=True),
    "cd-hp-a96-genoa": Shape(96, 768),
    "cd-gp-a192-genoa": Shape(192, 1536, disk_gib=7_680),
    "cd-gp-l-a192-genoa": Shape(192, 1536, disk_gib=30_720),
    "cd-hc-a384-genoa": Shape(384, 1536, pods=300),
    "cd-hc-a384ib-genoa": Shape(384, 1536, infiniband=True),
    "turin-gp": Shape(192, 1536),
    "turin-gp-l": Shape(192, 1536),
    "turin-gp-v2": Shape(192, 768),
    "cd-gp-i64-erapids": Shape(64, 512),
    "cd-gp-i96-icelake": Shape(96, 384),
}
"""Public instance types (the documentation's table of October 2026)."""


@lru_cache(maxsize=4096)
def _whole(text: str, thousandths: bool) -> int:
    value = quantity.amount(text)
    return math.ceil(value * 1000 if thousandths else value)


def amounts(quantities: Json) -> Amounts:
    """Return quantities as numbers."""
    return {name: _whole(str(text), name == "cpu") for name, text in quantities.items()}


def requested(spec: Json) -> Amounts:
    """Sum what a pod's containers request; a pod is one pod."""
    total: Amounts = {"pods": 1}
    for each in spec.get("containers") or ():
        resources = each.get("resources") or EMPTY
        wanted = {**(resources.get("limits") or EMPTY), **(resources.get("requests") or EMPTY)}
        for name, amount in amounts(wanted).items():
            total[name] = total.get(name, 0) + amount
    return total
