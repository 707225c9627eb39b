"""What GPUs are doing, as ``nvidia-smi`` says it: pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from iriscw.worker.gpus import Gpu

QUERY: Final = (
    "nvidia-smi",
    "--query-gpu=uuid,utilization.gpu,memory.used,memory.total,temperature.gpu,power.draw",
    "--format=csv,noheader,nounits",
)
"""One call for all GPUs and all figures: percent, MiB, MiB, degrees Celsius, W."""

_NUMBER: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?")


@attrs.frozen
class GpuReading:
    """One GPU at one moment. What the machine does not say is None: an old driver, a card without a sensor."""

    uuid: str
    utilization_percent: int | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    temperature_c: int | None = None
    power_mw: int | None = None


@attrs.frozen
class GpuLook:
    """What is known of a worker's GPUs now."""

    gpus: tuple[Gpu, ...] = ()
    readings: Mapping[str, GpuReading] = attrs.field(factory=dict)
    """By UUID; of one that is not there nothing is known of now."""
    problem: str = ""
    """Why the last look came to nothing; empty: it did not."""
    failures: int = 0
    """Looks that came to nothing."""


def readings_of(text: str, gpus: Sequence[Gpu]) -> dict[str, GpuReading]:
    """Read the lines of :data:`QUERY` about these GPUs, by UUID.

    Of an instance of a GPU that is divided only the temperature is known: all else is said of the whole.
    """
    read = parse_readings(text, [gpu.whole or gpu.uuid for gpu in gpus])
    found: dict[str, GpuReading] = {}
    for gpu in gpus:
        if gpu.part and gpu.whole in read:
            found[gpu.uuid] = GpuReading(gpu.uuid, temperature_c=read[gpu.whole].temperature_c)
        elif gpu.uuid in read:
            found[gpu.uuid] = read[gpu.uuid]
    return found


def parse_readings(text: str, uuids: Sequence[str]) -> dict[str, GpuReading]:
    """Read the lines of :data:`QUERY` about these GPUs; what is no such line is left out."""
    readings: dict[str, GpuReading] = {}
    for line in text.splitlines():
        uuid, *rest = (word.strip() for word in line.split(","))
        if uuid in uuids and len(rest) == 5:
            percent, used, total, temperature, power = rest
            readings[uuid] = GpuReading(
                uuid,
                _times(percent, 1),
                _times(used, 1 << 20),
                _times(total, 1 << 20),
                _times(temperature, 1),
                _times(power, 1000),
            )
    return readings


def _times(word: str, factor: int) -> int | None:
    """Return a figure in whole units; None for ``[N/A]``, ``[Not Supported]`` and whatever else cannot be read."""
    return round(float(word) * factor) if _NUMBER.fullmatch(word) else None
