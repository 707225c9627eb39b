"""INV-C7, C9, C11 and P1 at the moments of a thaw: when CRIU is asked, when a tree is let run, when it is over.

Part of :class:`~iriscw_sims.nodes.checks.Checks`, which calls them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from iriscw.freeze.freezing import TRIES
from iriscw.freeze.model import CudaState, LazyPages, RestoreRequest

if TYPE_CHECKING:
    from iriscw_sims.nodes.checks import Watched
    from iriscw_sims.nodes.machine import Machine, Process
    from iriscw_sims.nodes.shelves import Artifact


def unverified(
    known: Watched, artifact: Artifact, request: RestoreRequest, pages: LazyPages | None, life: int
) -> Iterator[str]:
    """Say how bytes that nobody has compared come to CRIU, or to the process (INV-C9)."""
    verified = known.verified
    if (verified.artifact, verified.life) != (artifact.operation, life):
        yield "CRIU gets images that were not verified by this life"
    elif verified.but_pages and not request.lazy:
        yield "CRIU reads pages that nobody verified"
    elif request.lazy and pages is None:
        yield "nobody can compare its pages"
    elif artifact.now.damaged and not (request.lazy and artifact.now.in_pages):
        yield "CRIU gets images with a byte that differs"


def unfit_gpus(machine: Machine, known: Watched, artifact: Artifact) -> Iterator[str]:
    """Say why the GPUs of this machine cannot take the tree, although it is restored (INV-C7).

    What somebody takes of a GPU after it was looked at is nobody's fault.
    """
    facts = artifact.facts
    if facts is None or not facts.cuda_tasks:
        return
    if machine.driver != facts.cuda_driver:
        yield f"it was frozen under driver {facts.cuda_driver}, and this is {machine.driver}"
    models = {gpu.uuid: gpu.model for gpu in facts.gpus}
    here = {gpu.uuid: gpu for gpu in machine.gpus_now()}
    for uuid in {uuid: None for task in facts.cuda_tasks for uuid in task.gpus}:
        gpu = here.get(uuid)
        if gpu is None or gpu.model != models[uuid]:
            yield f"GPU {uuid} is not here, or another one: {gpu}"
            continue
        needed = sum(task.device_bytes for task in facts.cuda_tasks if uuid in task.gpus)
        if gpu.free_bytes < needed and machine.vram_taken_at < known.began_at:
            yield f"GPU {uuid} has {gpu.free_bytes >> 20} MiB free, and {needed >> 20} are needed"


def let_run_too_early(machine: Machine, known: Watched, process: Process) -> Iterator[tuple[str, str]]:
    """Say why a process that came back must not be let run yet, with the invariant.

    A pager that is lost in the moment in which its tree is let run is noticed a moment later; who takes up a thaw asks
    for its pages first.
    """
    if known.thaws and not any(process.identity in each.now.returned for each in machine.hosted.values()):
        yield "P1", f"process {process.pid} is let run, and nobody wrote down that it came back"
    mine = [each for each in machine.processes if each.made_by == known.name]
    first = next((each for each in mine if each.supervises), None)
    guarded = known.thaws and first is not None and process is not first
    if guarded and first is not None and first.identity not in machine.vouched:
        yield "P1", f"process {process.pid} is let run, and {first.pid}, which guards it, has no grant"
    if known.taken_up and process.pager is not None and process.pager.lost:
        yield "C9", f"process {process.pid} is let run, and nobody brings its pages"


def killed_wrongly(machine: Machine, known: Watched, process: Process) -> tuple[str, str]:
    """Say what is broken by the kill of a process that has run: a doubt may have been taken for a loss (INV-C11)."""
    pager = machine.pager_of(known.name)
    if pager is not None and not pager.lost and 0 < known.failures["AwaitPages"] <= TRIES:
        return "C11", f"process {process.pid} is killed, and it could only not be told how its pages are"
    return "C6", f"process {process.pid} is killed, which has run again"


def pages_lost(machine: Machine, known: Watched) -> bool:
    """Whether pages of a lazy thaw will never come, or it was asked for long enough how they are."""
    pager = machine.pager_of(known.name)
    return (pager is not None and pager.lost) or known.failures["AwaitPages"] > TRIES


def came_back_wrongly(machine: Machine, process: Process) -> Iterator[tuple[str, str]]:
    """Say what is missing of a process whose thaw says that it is back."""
    if process.progress < process.came_back_at:
        yield "C8", f"process {process.pid} came back with less than it had"
    if process.pager is not None:
        yield "C9", f"process {process.pid} is said to be back, and pages of it are missing"
    if process.cuda is CudaState.FAILED:
        yield "C6", f"process {process.pid} is said to be back, and CUDA has given it up"
