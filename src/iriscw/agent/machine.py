"""What freezes and thaws on this machine: the drivers for what is there."""

from __future__ import annotations

from collections.abc import Mapping
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
    folders: Mapping[str, Path] | None = None,
    budgets: Mapping[str, int] | None = None,
    criu: Path | None = None,
    containers: bool = False,
) -> Local:
    """Return the operations of this user on this machine.

    Args:
        state: see :mod:`iriscw.agent.local`.
        folders: of tiers that are to lie elsewhere than they say themselves, by name.
        budgets: of tiers, by name; 0: what a tier says itself.
        criu: the program, if it is to be a certain one.
        containers: whether there are containers of a runtime among the trees, as an agent is asked for.

    Raises:
        NoSuchTier: a folder or a budget is of none.
        AmbiguousTier, BrokenTier: a package offers a tier that cannot be had.
    """
    tiers = tiers_below(state, folders=folders, budgets=budgets)
    plain = CriuSwrk(criu, state / CRIU_ABILITY)
    runtime = None
    if containers:
        from iriscw.freeze.drivers.runtime.driver import RuntimeCriu  # a command has no use for it

        runtime = RuntimeCriu(plain, state / "agent" / "doors")
    hooks = ApplicationHooks()
    machine = Machine(KernelProcesses(), runtime or plain, NvidiaCuda(), NvmlGpus(), hooks, tiers, runtime)
    return Local(state, machine)
