"""``checkpoint``, ``restore``, ``checkpoints``, ``move`` and ``tiers`` with no daemon: this command does it itself."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from iriscw.checkpoint.drivers.loading import named_place, named_tier
from iriscw.cli.balancing import BALANCED_COLUMNS, How, balance
from iriscw.cli.freeze_shown import (
    STEPS,
    Done,
    Ended,
    Listing,
    Shown,
    decimal_size,
    finish,
    progress,
    refuse_options,
    show_listing,
    tell,
)
from iriscw.cli.interrupts import as_interrupts
from iriscw.cli.outcome import run_async, silence_output
from iriscw.cli.output import OutputLost, age, cell, emit, labels_cell, plain, show, to_json, to_yaml, visible
from iriscw.cli.retaining import refuse_needed, retain
from iriscw.cli.tier_options import budgets_of, keys_of, repository_of

if TYPE_CHECKING:
    from pathlib import Path

    from iriscw._errors import IriscwError
    from iriscw.agent.local import Local
    from iriscw.checkpoint.drivers.exporting import Exported
    from iriscw.checkpoint.messages import MoveCheckpoint
    from iriscw.checkpoint.model import ArtifactCopy, ListedArtifact, MovePlan, ShownTier
    from iriscw.freeze.messages import FreezeTree, OperationChanged, OperationEnded, ThawTree
    from iriscw.freeze.model import FreezePlan, ThawPlan

T = TypeVar("T")

OF_A_CLUSTER = ("address", "token_file", "node", "task")
"""What says where a controller is, where none is asked."""


@attrs.frozen
class AtHere:
    """See :class:`~iriscw.cli.freeze_shown.Backend`. ``given``: the options of the command."""

    given: Mapping[str, Any]

    def refuse(self, given: Mapping[str, Any]) -> None:
        """Refuse what is of a cluster."""
        refuse_options(given, OF_A_CLUSTER, "of a cluster only: name a JOB, or say --cluster")

    def checkpoint(self, plan: FreezePlan, form: str) -> None:
        """Freeze a tree."""
        plan = attrs.evolve(plan, tier=named_tier(plan.tier))

        async def freeze(local: Local, shown: Shown) -> Ended:
            from iriscw.agent.local import new_id
            from iriscw.freeze.messages import FreezeTree

            root = await local.machine.processes.identify(plan.root.pid)
            named = attrs.evolve(plan, operation=new_id("ck"), root=root)
            return await _ended(local, FreezeTree(named), named.operation, shown)

        _run(self.given, freeze, form)

    def restore(self, plan: ThawPlan, form: str) -> int:
        """Bring a tree back, and stay in front of it if it has a terminal."""
        return _thaw_here(self.given, plan, form)

    def checkpoints(self, asked: Listing, form: str) -> None:
        """List what this machine has, and take up what killed commands left."""

        async def listed() -> None:
            async with _opened(self.given) as local:
                await _recover(local)
                if asked.released is not None:
                    for operation in await local.release(asked.released):
                        lost = f"operation {operation}, which is lost, uses {asked.released} no more"
                        sys.stderr.write(f"iriscw: {lost}\n")
                there = await _listing(local)
                for checkpoint in asked.removed:
                    _check_needed(there, checkpoint)
                    await local.machine.tiers.remove(checkpoint)
                    sys.stderr.write(f"iriscw: removed {checkpoint}\n")
                found = await _listing(local) if asked.removed else there
                if asked.policy is not None:
                    from iriscw.agent.retaining import candidates

                    await local.machine.tiers.stored()  # that it cannot be read is an error here: nothing is removed
                    selected = [each for each in found if _has(each, asked)]
                    remove = partial(local.machine.tiers.remove, here_only=True)
                    await retain(candidates(selected), asked.policy, dry_run=asked.dry_run, remove=remove)
                    found = await _listing(local)
            show_listing([each for each in found if _has(each, asked)], form, _COLUMNS, _fields)

        run_async(listed)

    def move(self, plan: MovePlan, form: str) -> None:
        """Bring a checkpoint to another tier."""

        async def move(local: Local, shown: Shown) -> Ended:
            from iriscw.agent.local import new_id
            from iriscw.checkpoint.messages import MoveCheckpoint

            named = attrs.evolve(plan, operation=new_id("mv"), target=named_place(plan.target))
            return await _ended(local, MoveCheckpoint(named), named.artifact, shown, tier=named.target)

        _run(self.given, move, form)

    def verify(self, checkpoint: str, form: str) -> None:
        """Read and compare every copy of a checkpoint.

        Raises:
            ArtifactRefused: one is not whole; all of them were told.
        """

        async def verified() -> None:
            from iriscw.freeze.model import ArtifactRefused

            async with _opened(self.given) as local:
                with progress() as shown:
                    copies = await local.machine.tiers.verify_copies(checkpoint, shown.report)
            show(copies, form, _COPIES)
            bad = [copy for copy in copies if copy.trouble]
            if bad:
                raise ArtifactRefused(f"{len(bad)} of {len(copies)} copies of {checkpoint} cannot be used")

        with as_interrupts():
            run_async(verified)

    def export(self, checkpoint: str, target: Path, form: str, *, tier: str, over: bool) -> None:
        """Write a checkpoint into a file; one that only the repository has comes to a tier first."""

        async def exported() -> Exported:
            from iriscw.checkpoint.drivers.exporting import export, refuse_existing

            async with _opened(self.given) as local:
                await _recover(local)
                if not over:
                    refuse_existing(target)
                with progress() as shown:
                    if not await local.machine.tiers.holding(checkpoint):
                        await _fetch(local, checkpoint, tier, shown)
                    shown.step(STEPS["exporting"])
                    return await export(local.machine.tiers, checkpoint, target, shown.report, over=over)

        with as_interrupts():
            done = run_async(exported)
        if form == "table":
            emit(f"{done.checkpoint}: exported, {decimal_size(done.size_bytes)} in {visible(done.file)}\n")
        else:
            emit((to_json if form == "json" else to_yaml)(plain(done)))

    def take_in(self, source: Path, form: str, *, tier: str) -> None:
        """Have a checkpoint that was exported lie in a tier."""
        from iriscw.checkpoint.drivers.archive import ExportedFile, ImportUndone, check_new, refuse_unprotected

        async def take_in(local: Local, shown: Shown) -> Ended:
            from iriscw.agent.local import new_id
            from iriscw.checkpoint.drivers.tiers import Tiers
            from iriscw.checkpoint.messages import MoveCheckpoint
            from iriscw.checkpoint.model import MovePlan

            refuse_unprotected(keys_of(self.given))
            archive = ExportedFile.open(source)
            await check_new(local.machine.tiers, archive)
            content, folders = archive.content, local.machine.tiers.folders
            target = named_tier(tier) if tier else await local.machine.tiers.roomy(content.sealed.size_bytes)
            machine = attrs.evolve(local.machine, tiers=Tiers(folders, archive))
            message = MoveCheckpoint(MovePlan(new_id("im"), content.artifact, target, keep=True))
            done, interrupted = await _ended(Local(local.state, machine), message, content.artifact, shown, target)
            if isinstance(done, MoveUndone):
                assert shown.end is not None
                done = ImportUndone(f"nothing of {source} is left here: {shown.end.kind}: {shown.end.text}")
            return (attrs.evolve(done, outcome="imported") if isinstance(done, Done) else done), interrupted

        from iriscw.agent.local import Local, MoveUndone

        _run(self.given, take_in, form)

    def tiers(self, form: str, grace_s: float | None) -> None:
        """List the tiers of this machine, and the repository; with a grace, free what that need not have. Take up
        what killed commands left.
        """
        from iriscw.checkpoint.drivers.fullness import fullness

        async def listed() -> None:
            async with _opened(self.given) as local:
                await _recover(local)
                if grace_s is not None:
                    done = await local.machine.tiers.collect(grace_s)
                    removed = f"removed {done.removed} objects of {decimal_size(done.removed_bytes)}"
                    sys.stderr.write(f"iriscw: {removed}; {done.marked} are marked for a later pass\n")
                found = await fullness(local.machine.tiers)
            show(found, form, TIER_COLUMNS)

        run_async(listed)

    def balance(self, how: How, form: str) -> None:
        """Have a policy move what it wants to, and list that."""

        async def balanced() -> None:
            async with _opened(self.given) as local:
                await _recover(local)
                found = await balance(local, how)
            show(found, form, BALANCED_COLUMNS)

        with as_interrupts():
            run_async(balanced)


_COPIES: dict[str, Callable[[ArtifactCopy], object]] = {
    "TIER": lambda each: each.tier,
    "SIZE": lambda each: decimal_size(each.size_bytes),
    "TROUBLE": lambda each: cell(each.trouble),
}

TIER_COLUMNS: dict[str, Callable[[ShownTier], object]] = {
    "TIER": lambda each: each.tier,
    "WHERE": lambda each: cell(each.where),
    "CHECKPOINTS": lambda each: each.checkpoints if not each.trouble else "?",
    "USED": lambda each: decimal_size(each.used_bytes) if not each.trouble else "?",
    "RESERVED": lambda each: decimal_size(each.reserved_bytes),
    "BUDGET": lambda each: decimal_size(each.budget_bytes) if each.budget_bytes is not None else "",
    "FREE": lambda each: decimal_size(each.free_bytes) if each.free_bytes is not None else "",
    "TROUBLE": lambda each: cell(each.trouble),
}


async def _listing(local: Local) -> list[ListedArtifact]:
    """Return each checkpoint once. That the repository cannot be read hides nothing of this machine, and is said."""
    from iriscw._errors import IriscwError
    from iriscw.checkpoint.listing import together

    found = await local.machine.tiers.listing()
    try:
        found += await local.machine.tiers.stored()
    except (IriscwError, OSError) as error:
        sys.stderr.write(f"iriscw: what the repository has is not listed: {visible(str(error))}\n")
    return together(found)


def _has(each: ListedArtifact, asked: Listing) -> bool:
    from iriscw.checkpoint.selecting import read_selector

    labels = dict(each.manifest.labels) if each.manifest is not None else None
    return read_selector(asked.selector).matches(labels) and dict(asked.labels).items() <= (labels or {}).items()


def _check_needed(there: Sequence[ListedArtifact], checkpoint: str) -> None:
    """Refuse to remove the state of a suspended task.

    Raises:
        CheckpointNeeded: its attempt is still there, or is a part of it.
    """
    from iriscw.agent.retaining import needed_by

    for each in there:
        if each.artifact == checkpoint and each.manifest is not None:
            frozen = each.manifest.frozen
            refuse_needed(checkpoint, needed_by(frozen.guard, (), carried=frozen.carried is not None))


_COLUMNS: dict[str, Callable[[ListedArtifact], object]] = {
    "CHECKPOINT": lambda each: each.artifact,
    "TIER": lambda each: (
        ", ".join(copy.tier + (" (unusable)" if copy.trouble else "") for copy in each.copies) or each.tier
    ),
    "SIZE": lambda each: decimal_size(each.size_bytes),
    "PID": lambda each: each.manifest.frozen.tasks[0].identity.pid if each.manifest else "",
    "PROCESSES": lambda each: len(each.manifest.frozen.tasks) if each.manifest else "",
    "PROGRAM": lambda each: cell(each.manifest.frozen.tasks[0].name) if each.manifest else "",
    "AGE": lambda each: (
        age(each.manifest.sealed_wall_ns // 1_000_000, time.time_ns() // 1_000_000) if each.manifest else ""
    ),
    "LABELS": lambda each: labels_cell(
        dict(each.manifest.labels if each.manifest else ()),
        "" if each.manifest else each.trouble,
        [(copy.tier, copy.trouble) for copy in each.copies],
    ),
}


def _fields(each: ListedArtifact) -> dict[str, Any]:
    """Return a checkpoint for programs: the manifest without its list of files."""
    content: dict[str, Any] = plain(each)
    if content["manifest"] is not None:
        content["manifest"].pop("files")
    return content


@contextlib.asynccontextmanager
async def _opened(given: Mapping[str, Any]) -> AsyncIterator[Local]:
    """Open what freezes and thaws here, by the options of a command."""
    from anyio import CancelScope

    from iriscw.agent.local import state_folder
    from iriscw.agent.machine import this_machine

    state = given["state_dir"].absolute() if given["state_dir"] is not None else state_folder(os.environ)
    local = this_machine(state, budgets=budgets_of(given), repository=repository_of(given), keys=keys_of(given))
    try:
        yield local
    finally:
        with CancelScope(shield=True):
            await local.machine.tiers.aclose()


async def _recover(local: Local) -> None:
    """Take up what killed commands left, and say so."""
    from iriscw.freeze.messages import OperationEnded

    def changed(event: OperationChanged | OperationEnded) -> None:
        if isinstance(event, OperationEnded):  # at once: whoever interrupts the command hears of it, too
            note = f" ({visible(event.text)})" if event.text else ""
            what = f"took up operation {event.operation}, which was left: {event.outcome.value}{note}"
            sys.stderr.write(f"iriscw: {what}\n")

    await local.recover(changed)


def _run(given: Mapping[str, Any], work: Callable[[Local, Shown], Coroutine[Any, Any, Ended]], form: str) -> None:
    """Do the work, and say how it ended: below the bars, and to who has interrupted it, too."""
    begun: list[Shown] = []

    async def run() -> None:
        async with _opened(given) as local:
            await _recover(local)
            with progress() as shown:
                begun.append(shown)
                done, interrupted = await work(local, shown)
        tell(done, form, interrupted)

    with as_interrupts():
        _interruptible(run, begun)


def _interruptible(run: Callable[[], Coroutine[Any, Any, T]], begun: list[Shown]) -> T:
    """Run until it is over or interrupted, and name the operation that is left unfinished."""
    try:
        return run_async(run)
    except KeyboardInterrupt:  # a second one waits for nothing, and the first not for ever
        for shown in begun:
            if shown.operation and shown.end is None:
                what = f"operation {shown.operation} is not over: the next command undoes or finishes it"
                sys.stderr.write(f"iriscw: {what}\n")
        raise


async def _ended(
    local: Local, message: FreezeTree | ThawTree | MoveCheckpoint, artifact: str, shown: Shown, tier: str = ""
) -> Ended:
    """Run an operation; give how it ended, and what has interrupted it meanwhile. ``tier``: of a move, where to."""
    from anyio import get_cancelled_exc_class

    interrupted = None
    try:
        await local.run(message, report=shown.report, changed=shown.changed)
    except get_cancelled_exc_class() as error:
        interrupted = error
    if shown.end is None and interrupted is not None:
        raise interrupted
    assert shown.end is not None
    return await _done(local, artifact, shown.end, shown, tier), interrupted


def _thaw_here(given: Mapping[str, Any], plan: ThawPlan, form: str) -> int:
    """Thaw a tree, and stay in front of it if it has a terminal. Give the exit code."""
    from iriscw.agent.local import new_id
    from iriscw.freeze.drivers.terminal import holding_back_sigttou, lendable
    from iriscw.freeze.messages import ThawTree

    begun: list[Shown] = []

    async def run() -> Done | None:
        """Return what is to be told when the tree has its terminal; None: all was told."""
        async with _opened(given) as local:
            await _recover(local)
            found = await local.machine.tiers.find(plan.artifact)
            frozen = found.manifest.frozen if found is not None and found.manifest is not None else None
            stays = frozen is not None and frozen.options.shell_job and frozen.container is None
            with progress(until=STEPS["starting"] if stays else "") as shown:
                begun.append(shown)
                thaw = ThawTree(attrs.evolve(plan, operation=new_id("th"), terminal=terminal is not None))
                if found is not None and found.tier not in local.machine.tiers.folders:
                    await local.machine.check_gates(thaw.plan, found)
                    await _fetch(local, plan.artifact, given["tier"], shown)
                done, interrupted = await _ended(local, thaw, plan.artifact, shown)
        if stays and terminal is not None and isinstance(done, Done) and interrupted is None:
            return done
        tell(done, form, interrupted)
        return None

    terminal = lendable()
    if terminal is None:
        with as_interrupts():
            _interruptible(run, begun)
        return 0
    done = None
    try:
        with holding_back_sigttou(), as_interrupts():  # it is the tree's terminal before the last word was said
            done = _interruptible(run, begun)
        if done is None:
            return 0
        from iriscw.cli.foreground import attend

        return attend(terminal, done.pid, partial(_finish_anyway, done, form))
    finally:
        if done is not None or terminal.foreground() != terminal.group:
            terminal.put_back()
        terminal.close()


async def _fetch(local: Local, artifact: str, tier: str, shown: Shown) -> None:
    """Have a checkpoint that only the repository has lie here.

    Raises:
        IriscwError: it does not; nothing of it is left here.
    """
    from iriscw.agent.local import failure_of

    end = await local.fetch(artifact, named_tier(tier) if tier else "", report=shown.report, changed=shown.changed)
    failure = failure_of(end) if end is not None else None
    if failure is not None:
        raise failure
    shown.end = None  # what comes next has its own


def _finish_anyway(done: Done, form: str) -> None:
    """Say what was done. The tree runs, and is stayed with, whether anybody hears of it or not."""
    try:
        finish(done, form)
    except BrokenPipeError:
        silence_output()
    except OutputLost as error:
        silence_output()
        sys.stderr.write(f"iriscw: {error}\n")


async def _done(local: Local, artifact: str, end: OperationEnded, shown: Shown, tier: str) -> Done | IriscwError:
    from iriscw._errors import IriscwError
    from iriscw.agent.local import failure_of

    failure = failure_of(end)
    if failure is not None:
        return failure
    try:
        found = await local.machine.tiers.find(artifact)
    except (IriscwError, OSError):  # it was done; that a repository does not answer now changes nothing of that
        found = None
    tasks = found.manifest.frozen.tasks if found is not None and found.manifest is not None else ()
    return Done(
        checkpoint=artifact,
        outcome=end.outcome.value,
        pid=0 if tier else end.root or (tasks[0].identity.pid if tasks else 0),
        processes=len(tasks),
        tier=tier or (found.tier if found is not None else ""),
        size_bytes=found.size_bytes if found is not None else 0,
        seconds=round(sum(shown.phases.values()), 6),
        phases=shown.phases,
        note=end.text,
    )
