"""What this machine has for freezing and thawing: CRIU and its rights, NVIDIA's driver, GPUs, and how to get the rest.

That something is missing is wrong with nothing: a machine that freezes no process needs none of it. Wrong is what is
there and does not work.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from iriscw.doctor.findings import Finding, ok, warning, wrong
from iriscw.freeze.drivers.criu.ability import probe
from iriscw.freeze.drivers.criu.finding import how_to_install
from iriscw.freeze.drivers.cuda.driver import NvidiaCuda
from iriscw.freeze.drivers.cuda.nvml import NvmlGpus
from iriscw.freeze.model import CriuAbility, CriuMissing, CriuUnfit, CudaAbility, NoRoom, RightsMissing
from iriscw.freeze.ports import Cuda

NETWORK: Final = "network_lock_nftables"
LAZY: Final = "uffd-noncoop"
CHANGES: Final = "mem_dirty_track"

STATUS: Final = Path("/proc/self/status")
OTHER_USERS: Final = 1 << 24
"""CAP_SYS_RESOURCE, in the sets of capabilities that the kernel shows."""

TRACING: Final = Path("/proc/sys/kernel/yama/ptrace_scope")
NOBODY_TRACES: Final = "3"


async def look_at_freezing(criu: Path | None = None, cuda: Cuda | None = None) -> list[Finding]:
    """Look at everything that freezing needs. Raises nothing, and changes nothing.

    Args:
        criu: The CRIU to look at, instead of the one that is found.
        cuda: The driver to ask, instead of NVIDIA's.
    """
    found: dict[str, list[Finding]] = {}

    async def look_at_criu() -> None:
        found["criu"] = await anyio.to_thread.run_sync(_criu, criu)

    async def look_at_cuda() -> None:
        found["cuda"] = [judge_cuda(await (NvidiaCuda(gpus=NvmlGpus()) if cuda is None else cuda).ability())]

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(look_at_criu)
        tasks.start_soon(look_at_cuda)
    return [*found["criu"], *found["cuda"]]


def _criu(program: Path | None) -> list[Finding]:
    try:
        ability = probe(program)
    except CriuMissing:
        text = "not installed: no process can be frozen"
        return [warning("criu", text, f"{how_to_install()} installs it for this user")]
    except RightsMissing as error:
        advice = "run iriscw as root, or as a privileged container that shares the machine's PID namespace"
        return [wrong("criu", f"rights are missing: {error}", advice)]
    except NoRoom as error:
        return [wrong("criu", str(error), "try again when less runs here")]
    except CriuUnfit as error:
        return [wrong("criu", str(error), f"{how_to_install()} installs one that works on current kernels")]
    return judge_criu(ability, _tracing(), _effective())


def judge_criu(ability: CriuAbility, tracing: str, effective: int = OTHER_USERS) -> list[Finding]:
    """Judge a CRIU that works: what it can do here, and what it cannot.

    Args:
        ability: What it said of itself.
        tracing: What the kernel says who may trace others (yama's ``ptrace_scope``); empty if it does not say.
        effective: The capabilities that we have, as a set of bits.
    """
    findings = [ok("criu", f"{ability.version} at {ability.path}: it works on this kernel")]
    if tracing == NOBODY_TRACES:
        text = "nobody may trace a process (yama/ptrace_scope is 3)"
        findings.append(wrong("criu tracing", text, "set it to 0, 1 or 2 where it is set, and reboot"))
    if not effective & OTHER_USERS:
        text = "CAP_SYS_RESOURCE is missing: programs of other users cannot be frozen"
        findings.append(warning("criu rights", text, "run iriscw with that capability"))
    if NETWORK not in ability.features:
        text = "established connections break: there is no nftables to keep their peers silent"
        findings.append(warning("criu tcp", text, "load the kernel's nf_tables, and use a CRIU that is built with it"))
    named = (("lazy restores", LAZY), ("dumps of changes", CHANGES))
    lacking = [name for name, feature in named if feature not in ability.features]
    if lacking:
        text = f"this kernel allows no {' and no '.join(lacking)}; iriscw does without"
        findings.append(ok("criu features", text))
    return findings


def judge_cuda(ability: CudaAbility) -> Finding:
    """Judge what the GPU's driver can do. Without one, processes without a GPU can be frozen all the same."""
    if not ability.available:
        return ok("cuda checkpoint", f"none: {ability.reason}")
    moves = "a thaw may move to other GPUs" if ability.can_map_gpus else "a thaw needs the same GPUs"
    return ok("cuda checkpoint", f"driver {ability.driver_version} by its {ability.interface}; {moves}")


def _effective() -> int:
    for line in STATUS.read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("CapEff:"):
            return int(line.partition(":")[2], 16)
    return OTHER_USERS  # the kernel does not say


def _tracing() -> str:
    try:
        return TRACING.read_text(encoding="ascii").strip()
    except OSError:
        return ""
