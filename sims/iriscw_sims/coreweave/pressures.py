"""What a machine can run short of, and what its kubelet says of it then. Pure: names and sentences.

A kubelet that is short of something says so in a condition of its node, which becomes a taint that keeps new pods off,
and it ends pods until there is enough again. Both words and sentences are the kubelet's own.
"""

from __future__ import annotations

import attrs


@attrs.frozen
class Pressure:
    """One thing that a machine can run short of.

    Attributes:
        kind: The condition.
        resource: What there is too little of, as an eviction's message has it.
        taint: The key of the taint that follows.
        fine: Reason of the condition while there is enough.
        short: Reason of the condition while there is not.
        words: The sentence for ``fine``, and the one for ``short``.
    """

    kind: str
    resource: str
    taint: str
    fine: str
    short: str
    words: tuple[str, str]

    @property
    def evicts(self) -> str:
        """What a pod is told that is ended because of it."""
        return f"The node was low on resource: {self.resource}."


MEMORY = Pressure(
    "MemoryPressure",
    "memory",
    "node.kubernetes.io/memory-pressure",
    "KubeletHasSufficientMemory",
    "KubeletHasInsufficientMemory",
    ("kubelet has sufficient memory available", "kubelet has insufficient memory available"),
)
DISK = Pressure(
    "DiskPressure",
    "ephemeral-storage",
    "node.kubernetes.io/disk-pressure",
    "KubeletHasNoDiskPressure",
    "KubeletHasDiskPressure",
    ("kubelet has no disk pressure", "kubelet has disk pressure"),
)
PROCESSES = Pressure(
    "PIDPressure",
    "pids",
    "node.kubernetes.io/pid-pressure",
    "KubeletHasSufficientPID",
    "KubeletHasInsufficientPID",
    ("kubelet has sufficient PID available", "kubelet has insufficient PID available"),
)
PRESSURES: tuple[Pressure, ...] = (MEMORY, DISK, PROCESSES)
"""In the order of a node's conditions."""
