"""What freezes and thaws on this machine: the drivers for what is there."""

from __future__ import annotations

import mmap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from iriscw.agent.local import Local, Machine, tiers_below
from iriscw.checkpoint.ports import Repository
from iriscw.freeze.drivers.criu.driver import CriuSwrk
from iriscw.freeze.drivers.cuda.driver import NvidiaCuda
from iriscw.freeze.drivers.cuda.nvml import NvmlGpus
from iriscw.freeze.drivers.hooks import ApplicationHooks
from iriscw.freeze.drivers.processes.driver import KernelProcesses

if TYPE_CHECKING:
    from iriscw.checkpoint.drivers.repository.key_files import KeyFiles

CRIU_ABILITY = "criu-ability.json"
"""In the state folder: what CRIU was found to be able to."""


def this_machine(
    state: Path,
    *,
    folders: Mapping[str, Path] | None = None,
    budgets: Mapping[str, int] | None = None,
    criu: Path | None = None,
    containers: bool = False,
    repository: str = "",
    keys: KeyFiles | None = None,
) -> Local:
    """Return the operations of this user on this machine.

    Args:
        state: see :mod:`iriscw.agent.local`.
        folders: of tiers that are to lie elsewhere than they say themselves, by name.
        budgets: of tiers, by name; 0: what a tier says itself.
        criu: the program, if it is to be a certain one.
        containers: whether there are containers of a runtime among the trees, as an agent is asked for.
        repository: the URL of the object store that keeps checkpoints beyond this machine; empty: there is none.
        keys: where the keys are for it; None: nothing is signed, and nothing has to be.

    Raises:
        NoSuchTier: a folder or a budget is of none.
        AmbiguousTier, BrokenTier: a package offers a tier that cannot be had.
        InvalidStoreUrl, NoSuchStore, AmbiguousStore, BrokenStore, StoreExtraMissing, StoreAccessDenied,
            StoreUnreachable: the repository is none that can be opened.
        KeyFileUnusable, InvalidKey, SignerNotTrusted, ProtectionExtraMissing: the keys cannot be used.
    """
    kept = _opened(repository, keys) if repository else None
    tiers = tiers_below(state, folders=folders, budgets=budgets, repository=kept)
    plain = CriuSwrk(criu, state / CRIU_ABILITY)
    runtime = None
    if containers:
        from iriscw.freeze.drivers.runtime.driver import RuntimeCriu  # a command has no use for it

        runtime = RuntimeCriu(plain, state / "agent" / "doors")
    hooks = ApplicationHooks()
    machine = Machine(KernelProcesses(), runtime or plain, NvidiaCuda(), NvmlGpus(), hooks, tiers, runtime)
    return Local(state, machine)


def _opened(url: str, keys: KeyFiles | None) -> Repository:
    from iriscw.checkpoint.drivers.repository.key_files import opened_keys
    from iriscw.checkpoint.drivers.repository.opening import open_repository
    from iriscw.checkpoint.drivers.repository.protection import PLAIN
    from iriscw.freeze.page_cuts import page_cuts
    from iriscw.objects.drivers.opening import open_store

    def cuts(pagemaps: Mapping[str, bytes], window_bytes: int) -> Mapping[str, Sequence[int]]:
        return page_cuts(pagemaps, page_size=mmap.PAGESIZE, window_bytes=window_bytes)

    return open_repository(url, cuts, open_store, opened_keys(keys) if keys is not None else PLAIN)
