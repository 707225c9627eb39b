"""The GPUs of this machine behind the port ``iriscw.freeze.ports.Gpus``: by NVML, in a process of its own."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from iriscw._errors import OperationError
from iriscw.freeze.drivers.cuda.calling import ask
from iriscw.freeze.drivers.cuda.finding import nvml_library
from iriscw.freeze.model import CudaRefused, NvmlGpu

log = logging.getLogger(__name__)

WITHIN_NS: Final = 60_000_000_000
"""For one look at all GPUs. It takes 50 ms, and as long as the driver's start where that is not kept loaded."""


@attrs.frozen
class NvmlReading:
    """What NVML says of one machine at one moment."""

    driver_version: str = ""
    gpus: tuple[NvmlGpu, ...] = ()
    used: tuple[tuple[int, str, int | None], ...] = ()
    """Process, GPU, bytes at most; None: nobody tells."""
    unlisted: tuple[str, ...] = ()
    """GPUs that do not tell who uses them."""
    missing: str = ""
    """Why there is nothing, in NVML's words."""


class NvmlGpus:
    """The GPUs of this machine."""

    def __init__(self, library: str = "", within_ns: int = WITHIN_NS) -> None:
        """Take a library, or the one that belongs to the driver's (:mod:`iriscw.freeze.drivers.cuda.finding`)."""
        self._library = library
        self._within_ns = within_ns

    async def look(self) -> NvmlReading:
        """Look at everything at once. What cannot be seen is not there; why stands in ``missing``."""
        try:
            library = self._library or nvml_library()
            answers = await ask({"serve": "nvml", "library": library}, self._within_ns, "look at the GPUs")
        except OperationError as error:
            log.warning("the GPUs cannot be looked at: %s", error)
            return NvmlReading(missing=str(error))
        answer = answers[-1]
        if "missing" in answer:
            return NvmlReading(missing=str(answer["missing"]))
        return _seen(answer["value"])

    async def list(self) -> tuple[NvmlGpu, ...]:
        """Give them by index, with their memory (see the port)."""
        return (await self.look()).gpus

    async def used_by(self, pids: Sequence[int]) -> Mapping[int, Mapping[str, int]]:
        """Return for each process the bytes it holds by GPU, at most (see the port)."""
        seen = await self.look()
        if seen.missing:
            raise CudaRefused(f"what processes hold on GPUs cannot be looked at: {seen.missing}")
        if seen.unlisted:
            raise CudaRefused(f"GPU {seen.unlisted[0]} does not tell which processes use it")
        found: dict[int, dict[str, int]] = {}
        for pid, uuid, size in seen.used:
            if pid not in pids:
                continue
            if size is None:
                raise CudaRefused(f"GPU {uuid} tells neither what process {pid} holds on it, nor what all do")
            found.setdefault(pid, {})[uuid] = size
        return found


def _seen(value: dict[str, Any]) -> NvmlReading:
    gpus = value["gpus"]
    return NvmlReading(
        driver_version=value["driver"],
        gpus=tuple(
            NvmlGpu(each["uuid"], each["model"], each["index"], each["total_bytes"], each["used_bytes"])
            for each in gpus
        ),
        used=tuple((int(pid), each["uuid"], size) for each in gpus for pid, size in (each["processes"] or {}).items()),
        unlisted=tuple(each["uuid"] for each in gpus if each["processes"] is None),
    )
