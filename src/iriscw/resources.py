"""What a task asks for, as people write it.

``Resources(cpu=0.5, memory="1GiB")`` is a plain value: it is checked and normalised when it is made, so that all
below counts in integers (thousandths of a core, bytes) and equal amounts are equal however they were spelled.
"""

from __future__ import annotations

import re
from typing import Final

import attrs

from iriscw._errors import InvalidArgument
from iriscw.config.quantities import CpuError, SizeError, format_cpu, format_size, parse_cpu, parse_size

GPU_LIMIT: Final = 1024
"""GPUs that one task may ask for. The largest nodes have 8: the limit only catches slips."""

_GPU_CLASS = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", re.ASCII)  # a Kubernetes label value


class InvalidResources(InvalidArgument):
    """An amount that no task can ask for. The message names the field and what would be right."""


def _cores(value: float | str) -> float:
    try:
        cpu_milli = parse_cpu(value)
    except CpuError as error:
        raise InvalidResources(f"cpu: {error}") from None
    return cpu_milli / 1000 if cpu_milli % 1000 else cpu_milli // 1000


def _memory(value: int | str) -> int:
    return _size("memory", value)


def _disk(value: int | str) -> int:
    return _size("disk", value)


def _size(name: str, value: int | str) -> int:
    try:
        return parse_size(value)
    except SizeError as error:
        raise InvalidResources(f"{name}: {error}") from None


def _gpus(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidResources(f"gpu: GPUs are counted in whole numbers, not {value!r:.64}")
    if not 0 <= value <= GPU_LIMIT:
        raise InvalidResources(f"gpu: not between 0 and {GPU_LIMIT}")
    return value


def _gpu_class(value: object) -> str | None:
    if value is None or (isinstance(value, str) and _GPU_CLASS.fullmatch(value)):
        return value
    raise InvalidResources(f"gpu_class: {value!r:.64} is not a name such as 'H100'")


@attrs.frozen(repr=False)
class Resources:
    """What each task of a job needs on its worker.

    Args:
        cpu: CPU cores: ``4``, ``0.5`` or ``"500m"``; to a thousandth.
        memory: bytes, or text such as ``"1GiB"`` (2^30) or ``"1GB"`` (10^9). More than 0.
        disk: likewise; 0 asks for none in particular.
        gpu: whole GPUs.
        gpu_class: which, such as ``"H100"``; None takes any.

    Raises:
        InvalidResources: an amount is malformed, negative or too large, or a ``gpu_class`` has no ``gpu``.
    """

    cpu: float = attrs.field(default=1, converter=_cores)
    memory: int = attrs.field(default=2**30, converter=_memory)
    disk: int = attrs.field(default=0, converter=_disk)
    gpu: int = attrs.field(default=0, converter=_gpus)
    gpu_class: str | None = attrs.field(default=None, converter=_gpu_class)

    def __attrs_post_init__(self) -> None:
        """Refuse what is well-formed but cannot be meant."""
        if self.cpu == 0 and self.gpu == 0:
            raise InvalidResources("cpu: a task without a GPU needs some CPU; the least is '1m'")
        if self.memory == 0:
            raise InvalidResources("memory: a task needs some; the default is '1GiB'")
        if self.gpu_class is not None and self.gpu == 0:
            raise InvalidResources(f"gpu_class: {self.gpu_class!r} without a GPU; say gpu=1 or more")

    @property
    def cpu_milli(self) -> int:
        """Thousandths of a CPU core."""
        return round(self.cpu * 1000)

    @property
    def memory_bytes(self) -> int:
        """Memory in bytes."""
        return self.memory

    @property
    def disk_bytes(self) -> int:
        """Disk space in bytes."""
        return self.disk

    @property
    def gpu_count(self) -> int:
        """Whole GPUs."""
        return self.gpu

    def __repr__(self) -> str:
        """Show amounts as people write them: the text makes an equal value."""
        parts = [f"cpu={self.cpu if self.cpu_milli % 1000 else format_cpu(self.cpu_milli)}"]
        parts.append(f"memory={format_size(self.memory)!r}")
        if self.disk:
            parts.append(f"disk={format_size(self.disk)!r}")
        if self.gpu:
            parts.append(f"gpu={self.gpu}")
        if self.gpu_class is not None:
            parts.append(f"gpu_class={self.gpu_class!r}")
        return f"Resources({', '.join(parts)})"
