"""What this machine has: CPU, memory, disk, GPUs, and the address by which others reach it.

Each figure has a pure function that parses text (tested with the texts of real machines) and a thin reader.
What the kernel bounds (a cgroup) counts, not what the hardware has: a worker pod may be a small part of a
machine. On the local platform no cgroup bounds a pod; there ``IRISCW_CPU_MILLI``, ``IRISCW_MEMORY_BYTES``
and ``IRISCW_DISK_BYTES`` say its share. The least of all bounds is what is reported.

Of the GPUs those count that ``CUDA_VISIBLE_DEVICES`` names, if it is set: whoever started the worker has bounded it so.
How many of them it may offer is another question (see :mod:`iriscw.worker.drivers.gpus`).
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import attrs

from iriscw._errors import OperationError
from iriscw.cloud.model import Capacity
from iriscw.task.environment import GPUS_VARIABLE
from iriscw.worker.gpus import Gpu, Links, divided, parse_topology

NVIDIA_SMI_TIMEOUT_S = 20.0
"""A healthy one answers in 1 s; with eight GPUs and no persistence mode it may take 10 s; a broken one never
does.
"""

_NVIDIA_SMI = ("nvidia-smi", "--query-gpu=name,uuid,memory.total,index", "--format=csv,noheader,nounits")
_LIST = ("nvidia-smi", "-L")
_TOPOLOGY = ("nvidia-smi", "topo", "-m")
_NUMBER = re.compile("[0-9]{1,9}")
_PROC = Path("/proc")
_CGROUP = Path("/sys/fs/cgroup")


class AddressUnknown(OperationError):
    """No address of this machine is known: it has no route to the controller, and IRIS_VM_ADDRESS is not
    set.
    """

    retryable = True


@attrs.frozen
class ProbedMachine:
    """What was found."""

    capacity: Capacity
    gpus: tuple[Gpu, ...]
    address: str
    links: Links = attrs.field(factory=dict)
    unbounded: Capacity = attrs.field(factory=Capacity)
    """What the hardware has, whatever bounds this process: for those who do not run things below it."""


def probe(
    *, disk: Path, controller_host: str, environment: Mapping[str, str] | None = None, with_gpus: bool = True
) -> ProbedMachine:
    """Look at this machine. Blocks for as long as ``nvidia-smi`` takes.

    Args:
        disk: a folder on the disk whose free space counts.
        controller_host: to which a route must exist; nothing is sent there.
        environment: instead of ``os.environ``.
        with_gpus: whether to look for GPUs.

    Raises:
        AddressUnknown: see there.
        OSError: ``/proc`` cannot be read.
    """
    variables = os.environ if environment is None else environment
    found = read_gpus() if with_gpus else ()
    if found:
        found = divided(_asked(_LIST, NVIDIA_SMI_TIMEOUT_S), found)
    gpus = visible(found, variables.get(GPUS_VARIABLE))
    links = parse_topology(_asked(_TOPOLOGY, NVIDIA_SMI_TIMEOUT_S), gpus) if len(gpus) > 1 else {}
    kinds = {gpu.kind for gpu in gpus}
    capacity = Capacity(
        cpu_milli=_least([len(os.sched_getaffinity(0)) * 1000, _cpu_bound(), _number(variables, "IRISCW_CPU_MILLI")]),
        memory_bytes=_least([_total_memory(), _memory_bound(), _number(variables, "IRISCW_MEMORY_BYTES")]),
        disk_bytes=_least([shutil.disk_usage(disk).free, _number(variables, "IRISCW_DISK_BYTES")]),
        gpu_count=len(gpus),
        gpu_class=kinds.pop() if len(kinds) == 1 else "",
    )
    unbounded = attrs.evolve(
        capacity,
        cpu_milli=(os.cpu_count() or 1) * 1000,
        memory_bytes=_total_memory(),
        disk_bytes=shutil.disk_usage(disk).free,
    )
    return ProbedMachine(capacity, gpus, find_address(controller_host, variables), links, unbounded)


# Parsing: pure.


def parse_meminfo(text: str) -> int:
    """Return ``MemTotal`` of ``/proc/meminfo`` in bytes.

    Raises:
        ValueError: it is not in there.
    """
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name == "MemTotal":
            return int(value.split()[0]) * 1024
    raise ValueError("/proc/meminfo has no MemTotal")


def parse_cgroup_path(text: str, controller: str) -> tuple[str, bool] | None:
    """Find the group of ``controller`` in ``/proc/self/cgroup``: its path, and whether it is of version 2."""
    version_2 = None
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3:
            continue
        if controller in parts[1].split(","):
            return parts[2], False
        if parts[1] == "":
            version_2 = parts[2]
    return None if version_2 is None else (version_2, True)


def parse_cpu_max(text: str) -> int | None:
    """Return the bound of a ``cpu.max`` (``200000 100000``) in thousandths of a CPU; None if there is none."""
    quota, _, period = text.strip().partition(" ")
    if quota == "max" or not quota:
        return None
    return max(1, int(quota) * 1000 // int(period or 100_000))


def parse_cfs(quota: str, period: str) -> int | None:
    """Return the bound of ``cpu.cfs_quota_us`` and ``cpu.cfs_period_us``, as :func:`parse_cpu_max` does."""
    return None if int(quota) <= 0 else max(1, int(quota) * 1000 // int(period))


def parse_memory_limit(text: str) -> int | None:
    """Return the bound of ``memory.max`` or ``memory.limit_in_bytes``; None for ``max`` and for its old
    spelling.
    """
    value = text.strip()
    if value == "max" or not value:
        return None
    return None if int(value) >= 1 << 60 else int(value)


def parse_gpus(text: str) -> tuple[Gpu, ...]:
    """Read ``nvidia-smi``'s lines ``name, uuid, MiB, index``, in the order of the indexes.

    A line that is none is a GPU that cannot be used.
    """
    gpus = []
    for line in text.splitlines():
        name, *rest = (word.strip() for word in line.split(","))
        if len(rest) == 3 and rest[0] and all(_NUMBER.fullmatch(each) for each in rest[1:]):
            gpus.append(Gpu(name, rest[0], int(rest[1]) << 20, int(rest[2])))
    return tuple(sorted(gpus, key=lambda gpu: gpu.index))


def visible(gpus: Sequence[Gpu], bound: str | None) -> tuple[Gpu, ...]:
    """Return the GPUs that ``CUDA_VISIBLE_DEVICES`` leaves to us: all if it is not set (None).

    It names indexes, or beginnings of UUIDs. As in CUDA, what follows the first that is none does not count.
    """
    if bound is None:
        return tuple(gpus)
    named: dict[str, Gpu] = {}
    for word in (each.strip() for each in bound.split(",")):
        if _NUMBER.fullmatch(word):
            meant = [gpu for gpu in gpus if gpu.index == int(word)]
        else:
            meant = [gpu for gpu in gpus if word and gpu.uuid.startswith(word)]
        if len(meant) != 1:
            break
        named[meant[0].uuid] = meant[0]
    return tuple(gpu for gpu in gpus if gpu.uuid in named)


# Reading.


def read_gpus(command: Iterable[str] = _NVIDIA_SMI, timeout_s: float = NVIDIA_SMI_TIMEOUT_S) -> tuple[Gpu, ...]:
    """Ask ``nvidia-smi``; a machine where it is missing, fails or hangs has no GPU that could be used."""
    return parse_gpus(_asked(command, timeout_s))


def _asked(command: Iterable[str], timeout_s: float) -> str:
    """Return what a program says, and nothing if it cannot say it."""
    try:
        done = subprocess.run(  # noqa: S603  # a fixed command, no shell
            tuple(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=True,
            text=True,
            errors="replace",
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def find_address(controller_host: str, environment: Mapping[str, str]) -> str:
    """Return ``IRIS_VM_ADDRESS``, or the address from which packets to the controller leave; nothing is sent.

    Raises:
        AddressUnknown: there is no such route.
    """
    given = environment.get("IRIS_VM_ADDRESS")
    if given:
        return given
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(controller_host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe_socket:
            probe_socket.connect(target)
            return str(probe_socket.getsockname()[0])
    except OSError as error:
        raise AddressUnknown(
            f"no route to {controller_host!r} ({error}); set IRIS_VM_ADDRESS to this machine's address"
        ) from error


def _total_memory() -> int:
    return parse_meminfo((_PROC / "meminfo").read_text(encoding="ascii"))


def _cpu_bound() -> int | None:
    found = parse_cgroup_path((_PROC / "self/cgroup").read_text(encoding="utf-8"), "cpu")
    if found is None:
        return None
    path, version_2 = found
    bounds = []
    for folder in _folders(_CGROUP if version_2 else _CGROUP / "cpu", path):
        if version_2:
            text = _read(folder / "cpu.max")
            bounds.append(parse_cpu_max(text) if text else None)
            continue
        quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
        bounds.append(parse_cfs(quota, period) if quota and period else None)
    return _least(bounds) if any(bounds) else None


def _memory_bound() -> int | None:
    found = parse_cgroup_path((_PROC / "self/cgroup").read_text(encoding="utf-8"), "memory")
    if found is None:
        return None
    path, version_2 = found
    root, name = (_CGROUP, "memory.max") if version_2 else (_CGROUP / "memory", "memory.limit_in_bytes")
    texts = [_read(folder / name) for folder in _folders(root, path)]
    bounds = [parse_memory_limit(text) for text in texts if text]
    return _least(bounds) if any(bounds) else None


def _folders(root: Path, path: str) -> list[Path]:
    """Return the group's folder and those above it: each of them may bound. In a container the root is its
    own.
    """
    parts = [part for part in path.split("/") if part not in {"", ".."}]
    return [root.joinpath(*parts[:count]) for count in range(len(parts), -1, -1)]


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii")
    except OSError:  # a controller that is not mounted bounds nothing
        return None


def _number(environment: Mapping[str, str], name: str) -> int | None:
    value = environment.get(name, "")
    return int(value) if value.isdigit() and int(value) > 0 else None


def _least(bounds: Iterable[int | None]) -> int:
    return min(bound for bound in bounds if bound is not None)
