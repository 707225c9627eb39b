"""What freezes and thaws on this machine: the drivers for what is there."""

from __future__ import annotations

from pathlib import Path

from iriscw.agent.local import Local, Machine, tiers_below
from iriscw.freeze.drivers.criu.driver import CriuSwrk
from iriscw.freeze.drivers.cuda.driver import NvidiaCuda
from iriscw.freeze.drivers.cuda.nvml import NvmlGpus
from iriscw.freeze.drivers.hooks import ApplicationHooks
from iriscw.freeze.drivers.processes.driver import KernelProcesses

CRIU_ABILITY = "criu-ability.json"
"""In the state folder: what CRIU was found to be able to."""


def this_machine(
    state: Path,
    *,
    memory: Path | None = None,
    ram_bytes: int = 0,
    disk_bytes: int = 0,
    criu: Path | None = None,
    containers: bool = False,
) -> Local:
    """Return the operations of this user on this machine.

    Args:
        state: see :mod:`iriscw.agent.local`.
        memory: the folder of the tier "ram", if it is to be another one.
        ram_bytes: the budget of the tier "ram"; 0: a share of the memory file system.
        disk_bytes: the budget of the tier "disk"; 0: a share of the disk.
        criu: the program, if it is to be a certain one.
        containers: whether there are containers of a runtime among the trees, as an agent is asked for.
    """
    tiers = tiers_below(state, memory=memory, ram_bytes=ram_bytes, disk_bytes=disk_bytes)
    plain = CriuSwrk(criu, state / CRIU_ABILITY)
    runtime = None
    if containers:
        from iriscw.freeze.drivers.runtime.driver import RuntimeCriu  # a command has no use for it

        runtime = RuntimeCriu(plain, state / "agent" / "doors")
    hooks = ApplicationHooks()
    machine = Machine(KernelProcesses(), runtime or plain, NvidiaCuda(), NvmlGpus(), hooks, tiers, runtime)
    return Local(state, machine)
