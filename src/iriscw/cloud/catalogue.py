"""The instance types of CoreWeave: what one machine of each has, as far as it is published.

Theory of operation. The table is advice, not authority: CoreWeave adds types all the time, and only its own API says
which ones an organisation may have. So what the table *knows* and a configuration contradicts is an error before
anything costs money (a node with 4 GPUs never carries a pod that asks for 8), and a type that it does not know is a
warning at most. A field that nobody has published is None, and judges nothing.

Names are compared as they are written; CoreWeave writes them in lower case.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import attrs

from iriscw.cloud.model import Capacity

GB = 10**9

SHARE_PERCENT = 90
"""What pods may request of a machine's CPU and memory. The rest is the kubelet's, the system's and that of the pods
which CoreWeave runs on every node: a pod that requests a whole machine is never scheduled."""

RACK_TYPES = ("gb200", "gb300", "verarubin")
"""How instance types begin that are sold by the rack."""

RACK_NODES = 18
"""Nodes of one NVL72 rack."""


@attrs.frozen
class InstanceType:
    """One type of machine.

    Attributes:
        name: As in ``spec.instanceType``.
        gpus: Whole GPUs; 0 for none.
        gpu_class: The value of the nodes' label ``gpu.nvidia.com/class``; None where it is not published.
        vcpu: Threads.
        memory_gb: Of 10^9 bytes.
        infiniband: Whether its nodes offer ``rdma/ib``; None where it is not published.
        arm: Whether its CPU is an ARM: images must be built for it.
    """

    name: str
    gpus: int
    gpu_class: str | None
    vcpu: int
    memory_gb: int
    infiniband: bool | None = False
    arm: bool = False

    @property
    def for_pods(self) -> Capacity:
        """What of CPU and memory pods may request; other quantities are 0, and mean nothing."""
        cpu_milli = self.vcpu * 1000 * SHARE_PERCENT // 100
        return Capacity(cpu_milli=cpu_milli, memory_bytes=self.memory_gb * GB * SHARE_PERCENT // 100)


_TYPES = (
    # GPUs. Racks first: ``-e`` is RoCE, whose resource on nodes is not published.
    InstanceType("verarubin-4x-e", 4, None, 352, 1536, infiniband=None, arm=True),
    InstanceType("gb300-4x", 4, "GB300", 144, 960, infiniband=True, arm=True),
    InstanceType("gb300-4x-e", 4, "GB300", 144, 960, infiniband=None, arm=True),
    InstanceType("gb200-4x", 4, "GB200", 144, 960, infiniband=True, arm=True),
    InstanceType("b300-8x", 8, "B300", 192, 4096, infiniband=True),
    InstanceType("b200-8x", 8, "B200", 128, 2048, infiniband=True),
    InstanceType("gd-8xh200ib-i128", 8, "H200", 128, 2048, infiniband=True),
    InstanceType("gd-8xh100ib-i128", 8, "H100", 128, 2048, infiniband=True),
    InstanceType("gd-8xa100-i128", 8, "A100", 128, 2048, infiniband=None),
    InstanceType("rtxp6000-8x", 8, None, 128, 1024, infiniband=None),
    InstanceType("rtxp6000-8x-v2", 8, None, 128, 512, infiniband=None),
    InstanceType("gd-8xl40s-i128", 8, "L40S", 128, 1024),
    InstanceType("gd-8xl40-i128", 8, "L40", 128, 1024),
    InstanceType("gd-1xgh200", 1, "GH200", 72, 480, infiniband=None, arm=True),
    # CPUs.
    InstanceType("cd-hp-a96-genoa", 0, "", 96, 768),
    InstanceType("cd-gp-a192-genoa", 0, "", 192, 1536),
    InstanceType("cd-gp-l-a192-genoa", 0, "", 192, 1536),
    InstanceType("cd-hc-a384-genoa", 0, "", 384, 1536),
    InstanceType("cd-hc-a384ib-genoa", 0, "", 384, 1536, infiniband=True),
    InstanceType("turin-gp", 0, "", 192, 1536),
    InstanceType("turin-gp-l", 0, "", 192, 1536),
    InstanceType("turin-gp-v2", 0, "", 192, 768),
    InstanceType("cd-gp-i64-erapids", 0, "", 64, 512),
    InstanceType("cd-gp-i64-erapids-v2", 0, "", 64, 256),
    InstanceType("cd-gp-l-i64-erapids", 0, "", 64, 512),
    InstanceType("cd-gp-i96-icelake", 0, "", 96, 384),
)

CATALOGUE: Mapping[str, InstanceType] = MappingProxyType({each.name: each for each in _TYPES})
"""All known types, by name (CoreWeave's documentation of October 2026)."""


def instance_type(name: str) -> InstanceType | None:
    """Return what is known of a type; None if nothing is."""
    return CATALOGUE.get(name)
