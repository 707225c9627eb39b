"""What fills on a worker's machine, and is no news to Kubernetes: its scratch disk, and the memory of its GPUs.

Theory of operation. No kubelet watches the local NVMe disk, and none a GPU's memory: the node stays ready, the pod
runs, and what is asked of the worker fails. A worker without room for a bundle cannot start an attempt and refuses it;
one that registers meanwhile says that it has no disk. An attempt that wants a GPU on which somebody's process still
holds memory starts, and fails as the user's own code does, at the user's expense: nobody can tell the two apart. Either
is over when the room is given back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from iriscw.cloud.model import Capacity

if TYPE_CHECKING:
    from iriscw_sims.world import World

NO_SPACE = "the bundle cannot be written: [Errno 28] No space left on device"
NO_VIDEO_MEMORY = "torch.OutOfMemoryError: CUDA out of memory."
OUT_OF_MEMORY = "the kernel killed it: out of memory"
KILLED = -9
"""What a process ends with that the kernel kills."""


class Fills:
    """How full one worker's machine is; when all is repaired, it is empty."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._scratch_until = 0
        self._video_memory_until = 0

    def fill_scratch(self, span: int) -> None:
        """Fill the scratch disk for ``span`` ns."""
        self._scratch_until = self._world.simulation.now + span

    def hold_video_memory(self, span: int) -> None:
        """Have somebody's process hold the memory of all GPUs for ``span`` ns."""
        self._video_memory_until = self._world.simulation.now + span

    def left_of(self, capacity: Capacity) -> Capacity:
        """Return what of a machine's capacity there is now."""
        return attrs.evolve(capacity, disk_bytes=0) if self.refuses() else capacity

    def refuses(self) -> str:
        """Say why no attempt can be started; empty if one can."""
        return NO_SPACE if self._holds(self._scratch_until) else ""

    def fails(self, demand: Capacity) -> str:
        """Say why an attempt with this demand fails as soon as it runs; empty if nothing here is against it."""
        return NO_VIDEO_MEMORY if demand.gpu_count and self._holds(self._video_memory_until) else ""

    def _holds(self, until: int) -> bool:
        return self._world.simulation.now < until and not self._world.healed
