"""The GPUs of this machine behind the port ``iriscw.freeze.ports.Gpus``: by NVML, in a process of its own."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from iriscw.errors import OperationError
from iriscw.freeze.drivers.cuda.calling import ask
from iriscw.freeze.model import Gpu

log = logging.getLogger(__name__)

NVML: Final = "libnvidia-ml.so.1"
WITHIN_NS: Final = 20_000_000_000
"""For one look at all GPUs. It takes 50 ms, and seconds where the driver is not kept loaded."""


@attrs.frozen
class Seen:
    """What NVML says of one machine at one moment."""

    driver_version: str = ""
    gpus: tuple[Gpu, ...] = ()
    used: tuple[tuple[int, str, int], ...] = ()
    """Process, GPU, bytes."""
    missing: str = ""
    """Why there is nothing, in NVML's words."""


class NvmlGpus:
    """The GPUs of this machine."""

    def __init__(self, library: str = NVML, within_ns: int = WITHIN_NS) -> None:
        self._library = library
        self._within_ns = within_ns

    async def look(self) -> Seen:
        """Look at everything at once. What cannot be seen is not there; why stands in ``missing``."""
        try:
            answers = await ask({"serve": "nvml", "library": self._library}, self._within_ns, "look at the GPUs")
        except OperationError as error:
            log.warning("the GPUs cannot be looked at: %s", error)
            return Seen(missing=str(error))
        answer = answers[-1]
        if "missing" in answer:
            return Seen(missing=str(answer["missing"]))
        return _seen(answer["value"])

    async def list(self) -> tuple[Gpu, ...]:
        """Give them by index, with their memory (see the port)."""
        return (await self.look()).gpus

    async def used_by(self, pids: Sequence[int]) -> Mapping[int, Mapping[str, int]]:
        """Give for each process the bytes it holds by GPU (see the port)."""
        found: dict[int, dict[str, int]] = {}
        for pid, uuid, size in (await self.look()).used:
            if pid in pids:
                found.setdefault(pid, {})[uuid] = size
        return found


def _seen(value: dict[str, Any]) -> Seen:
    gpus = value["gpus"]
    return Seen(
        driver_version=value["driver"],
        gpus=tuple(
            Gpu(each["uuid"], each["model"], each["index"], each["total_bytes"], each["used_bytes"]) for each in gpus
        ),
        used=tuple((int(pid), each["uuid"], size) for each in gpus for pid, size in each["processes"].items()),
    )
