"""A machine without an NVIDIA driver: the ports say so, and nothing more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from iriscw.freeze.model import CudaAbility, CudaMissing, CudaState, CudaTask, Gpu, TaskIdentity

REASON = "there is no NVIDIA driver here that can checkpoint (570 or later)"


class NoCuda:
    """The port :class:`~iriscw.freeze.ports.Cuda` where there is no driver."""

    async def ability(self) -> CudaAbility:
        """Say that there is none."""
        return CudaAbility(available=False, reason=REASON)

    async def tasks(self, identities: Sequence[TaskIdentity], within_ns: int) -> tuple[CudaTask, ...]:
        """Nobody uses what is not there."""
        return ()

    async def state(self, task: TaskIdentity, within_ns: int) -> CudaState:
        """Refuse."""
        raise CudaMissing(REASON)

    async def lock(self, task: TaskIdentity, within_ns: int) -> None:
        """Refuse."""
        raise CudaMissing(REASON)

    async def checkpoint(self, task: TaskIdentity, within_ns: int) -> None:
        """Refuse."""
        raise CudaMissing(REASON)

    async def restore(self, task: TaskIdentity, within_ns: int, gpus: Mapping[str, str]) -> None:
        """Refuse."""
        raise CudaMissing(REASON)

    async def unlock(self, task: TaskIdentity, within_ns: int) -> None:
        """Refuse."""
        raise CudaMissing(REASON)


class NoGpus:
    """The port :class:`~iriscw.freeze.ports.Gpus` where there is no driver."""

    async def list(self) -> tuple[Gpu, ...]:
        """There are none."""
        return ()

    async def used_by(self, pids: Sequence[int]) -> Mapping[int, Mapping[str, int]]:
        """Nobody uses any."""
        return {}
