"""Freezing, thawing and moving here without a daemon: each command runs its own operation, and takes up dead ones.

::

    <state>/                       $IRISCW_STATE_DIR, else $XDG_STATE_HOME/iriscw, else ~/.local/state/iriscw
      operations/<id>/journal/     one operation: its records; the folder goes when nothing is owed
      operations/<id>/<tier>       where a tier lay that it has to do with, if that is not below this folder
      operations.lock              held for the moment in which such a folder is made, taken up or removed
      criu-ability.json            what CRIU was found to be able to, so that not each command asks it
      checkpoints/                 the tier on disk

An operation is an actor with a journal of its own, in an actor system of its own. If the command is killed, the folder
stays; the journal's lock is free then, and the next command of the same user finishes or undoes what is owed before it
does anything else. Two commands at the same time do not disturb each other: who holds the journal's lock lives, and it
is taken, and its folder removed, under one lock for all: a folder that is being made is not one that owes nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import attrs

from iriscw._errors import IriscwError, JournalLocked, OperationError
from iriscw.agent.claims import TargetBusy, claim, frozen_by_us, thawed_by_us
from iriscw.agent.order import Order
from iriscw.agent.state import check_state, usable
from iriscw.checkpoint import actor as moves
from iriscw.checkpoint.drivers.carrier import Carrier
from iriscw.checkpoint.drivers.loading import (
    ARCHIVE,
    JOURNAL,
    REPOSITORY,
    TIER_NAME,
    load_tier,
    named_tier,
    open_tier,
    tier_names,
)
from iriscw.checkpoint.drivers.plug import TierContext
from iriscw.checkpoint.drivers.tiers import Tiers
from iriscw.checkpoint.listing import together
from iriscw.checkpoint.messages import MoveCheckpoint
from iriscw.checkpoint.model import ListedArtifact, MovePlan
from iriscw.checkpoint.ports import Repository, Tier
from iriscw.checkpoint.records import MoveAccepted, MoveEnded
from iriscw.files import make_private_folder, read_bounded, remove_tree
from iriscw.freeze import actor
from iriscw.freeze.drivers.criu.network import forget
from iriscw.freeze.drivers.desk import Desk, unseen
from iriscw.freeze.gates import THAW_GATES, first_shut
from iriscw.freeze.messages import CancelOperation, FreezeTree, OperationChanged, OperationEnded, ThawTree
from iriscw.freeze.model import (
    ArtifactInUse,
    ArtifactUnknown,
    GateRefused,
    GuardRefused,
    Kept,
    NoRoom,
    Outcome,
    Room,
    TargetGone,
    ThawPlan,
    TreeLeft,
    UnsafeRequest,
)
from iriscw.freeze.ports import Criu, Cuda, Gpus, Hooks, Processes, Report
from iriscw.freeze.records import FreezeAccepted, FreezeEnded, ThawAccepted, ThawEnded
from iriscw.journal.port import JournalStatus
from iriscw.journal.sqlite import SqliteJournal
from iriscw.processes.identity import boot_id
from iriscw.runtime import ActorPath, ActorSystem

if TYPE_CHECKING:
    from iriscw.freeze.drivers.runtime.driver import RuntimeCriu

log = logging.getLogger(__name__)

UNDO_PATIENCE_S = 300.0
"""What a cancelled operation may take to undo: as long as the longest of its bounded steps and some."""

ALONE_PATIENCE_S = 60.0
"""For another command to make or remove the folder of an operation: milliseconds, but on a disk that hangs."""

ALONE_LOOK_S = 0.005

FULL_PATIENCE_S = 15.0
"""For room to write a record: the tree may be held meanwhile. The journal tries each 5 s."""

FULL_LOOK_S = 0.2

MAX_PLACE_BYTES = 4096
"""The longest path of Linux."""

FREEZE = "/freeze"
THAW = "/thaw"
MOVE = "/move"

Changed = Callable[[OperationChanged | OperationEnded], None]


class FreezeUndone(OperationError):
    """A freeze did not come to its end; the tree, if it lives, runs as before, and nothing of the freeze is left."""


class TreeLost(OperationError):
    """A freeze did not come to its end, and the tree does not run either; the text says what happened to it."""


class ThawFailed(OperationError):
    """A thaw did not come to its end; nothing of the tree runs here, and the checkpoint is as it was."""


class MoveUndone(OperationError):
    """A move did not come to its end; the checkpoint lies where it lay, and nothing of the move is left."""


class TierElsewhere(OperationError):
    """An operation was begun with another folder for its tier: with this one its images would not be found."""


class OperationStuck(OperationError):
    """An operation did not come to its end within the time for that. The next command takes it up."""

    retryable = True


@attrs.frozen
class Machine:
    """What freezes and thaws here: the ports of this machine."""

    processes: Processes
    criu: Criu
    cuda: Cuda
    gpus: Gpus
    hooks: Hooks
    tiers: Tiers
    runtime: RuntimeCriu | None = None
    """What brings containers back through their runtime: the same as ``criu``, where there is one."""

    def desk(self, report: Report) -> Desk:
        """Return what carries out one operation."""
        return Desk(self.processes, self.criu, self.cuda, self.gpus, self.hooks, self.tiers, report)

    async def check_gates(self, plan: ThawPlan, found: ListedArtifact) -> None:
        """Refuse a thaw that this machine cannot do, by the manifest alone: its images need not be here.

        What only those say is looked at once they are: the names and ports of its sockets.

        Raises:
            GateRefused: something is not as it has to be.
            IriscwError: what there is cannot be found out.
        """
        if found.manifest is None:  # whoever reads it says so
            return
        nowhere = Room(os.devnull, os.devnull)
        kept = Kept(found.manifest.frozen, nowhere, found.manifest.sealed)
        shut = first_shut(THAW_GATES, plan, await self.desk(unseen).compare(kept))
        if shut is not None:
            raise GateRefused(f"it was not thawed, and nothing was fetched: {shut.gate}: {shut.text}", shut.gate)

    def effects(self, report: Report) -> dict[type, Callable[..., Awaitable[object]]]:
        """Return the function for each effect of any operation."""
        return {**self.desk(report).effects(), **Carrier(self.tiers, report).effects()}


def state_folder(environment: Mapping[str, str]) -> Path:
    """Say where operations lie, and the tiers that have no place of their own."""
    if environment.get("IRISCW_STATE_DIR"):
        return Path(environment["IRISCW_STATE_DIR"]).absolute()
    if environment.get("XDG_STATE_HOME"):
        return Path(environment["XDG_STATE_HOME"]).absolute() / "iriscw"
    return Path.home() / ".local" / "state" / "iriscw"


def tiers_below(
    state: Path,
    *,
    folders: Mapping[str, Path] | None = None,
    budgets: Mapping[str, int] | None = None,
    repository: Repository | None = None,
) -> Tiers:
    """Return the tiers of this user.

    Args:
        state: where operations lie.
        folders: of tiers that are to lie elsewhere than they say themselves, by name.
        budgets: of tiers, by name; 0: what a tier says itself.
        repository: what outlives this machine; None: there is none.

    Raises:
        NoSuchTier: a folder or a budget is of none.
        AmbiguousTier, BrokenTier: a package offers a tier that cannot be had. It is not left out: what lies in it would
            count as nothing.
    """
    folders, budgets = folders or {}, budgets or {}
    for name in (*folders, *budgets):
        named_tier(name)
    opened = {}
    for name in tier_names():
        context = TierContext(
            name=name,
            state=state,
            environment=os.environ,
            folder=folders.get(name),
            budget_bytes=budgets.get(name, 0),
            boot_id=boot_id(),
            forget=forget,
        )
        opened[name] = open_tier(context)
    return Tiers(opened, repository)


_NOT_BEGUN = {kind.__name__: kind for kind in (ArtifactUnknown, ArtifactInUse)}
"""Errors of a move that did nothing."""


def failure_of(end: OperationEnded) -> IriscwError | None:
    """Return the error that the end of an operation is; None if it ended well."""
    why = f"{end.kind}: {end.text}" if end.kind else end.text
    if end.kind == GuardRefused.__name__:
        why = f"{why}; it is a task's, which is suspended: `iriscw resume JOB` has it go on"
    match end.outcome:
        case Outcome.FROZEN | Outcome.COPIED | Outcome.THAWED | Outcome.MOVED:
            return None
        case Outcome.STAYED if end.kind in _NOT_BEGUN:
            return _NOT_BEGUN[end.kind](end.text)
        case Outcome.STAYED:
            return MoveUndone(f"it was not moved, and lies where it lay: {why}")
        case Outcome.UNDONE if end.kind == TargetGone.__name__:  # it had ended, or its first process had, by itself
            return FreezeUndone(f"it was not frozen: {why}")
        case Outcome.UNDONE:
            return FreezeUndone(f"it was not frozen, and runs as before: {why}")
        case Outcome.LOST:
            return TreeLost(f"it was not frozen, and does not run any more: {why}")
        case Outcome.FAILED if end.kind == ArtifactUnknown.__name__:  # nothing began, and nothing is as it was
            return ArtifactUnknown(end.text)
        case Outcome.FAILED:
            return ThawFailed(f"it was not thawed, and the checkpoint is as it was: {why}")
        case Outcome.LEFT:
            return TreeLeft(end.text)


def new_id(prefix: str) -> str:
    """Return an id that no other call gives."""
    return f"{prefix}-{os.urandom(6).hex()}"


@attrs.define(eq=False)
class Local:
    """The operations of one user on one machine."""

    state: Path
    machine: Machine

    async def run(self, message: Order, *, report: Report = unseen, changed: Changed | None = None) -> OperationEnded:
        """Run a new operation to its end; when this is cancelled, undo it first, within a bound.

        Raises:
            TargetBusy: another operation freezes the same process, or thaws or moves the same artifact.
            OperationStuck: it did not come to its end in time after a cancellation.
            UnsafeStateFolder: somebody else could write to the state folder.
            StateUnusable: its folder cannot be written to; nothing was touched.
            NoRoom: the disk of its folder is full: before anything was touched, or for so long that it was given up.
            JournalLost: that disk failed on the way; the next command takes the operation up.
            UnsafeRequest: the folder of its tier is not ours alone, or there is no such tier.
        """
        await self.machine.tiers.check(message)
        tiers = await self.machine.tiers.tiers_of(message)
        with usable(self.state):
            folder = self._operations() / message.plan.operation
        match message:
            case FreezeTree(plan=plan):
                name, target = FREEZE, frozen_by_us(plan.root)
            case ThawTree(plan=plan):
                name, target = THAW, thawed_by_us(plan.artifact)
            case MoveCheckpoint(plan=plan):
                name, target = MOVE, thawed_by_us(plan.artifact)
        with claim(target):
            with usable(self.state):
                async with self._alone():
                    try:
                        make_private_folder(folder)
                        self._note_places(folder, tiers, repository=await self.machine.tiers.asks_repository(message))
                        journal = SqliteJournal.open(folder / JOURNAL)
                    except BaseException:
                        self._clean(folder)
                        raise
            return await self._run(folder, journal, name, message, report, changed)

    async def fetch(
        self, artifact: str, tier: str = "", *, report: Report = unseen, changed: Changed | None = None
    ) -> OperationEnded | None:
        """Have a checkpoint that only the repository has lie in a tier of this machine: in this one, or where room is.

        Give how that ended; None where there was nothing to do.

        Raises:
            OperationError: the repository cannot be read, or as :meth:`run`.
        """
        found = await self.machine.tiers.find(artifact)
        if found is None or found.tier in self.machine.tiers.folders:
            return None
        target = tier or await self.machine.tiers.roomy(found.size_bytes)
        plan = MovePlan(new_id("mv"), artifact, target, keep=True)
        return await self.run(MoveCheckpoint(plan), report=report, changed=changed)

    async def recover(self, changed: Changed | None = None) -> list[OperationEnded]:
        """Take up what commands left that were killed: finish it, or undo it. Give how each ended.

        What cannot be taken up (its journal is damaged, the disk is full) is logged and stays.

        Raises:
            UnsafeStateFolder: somebody else could write to the state folder.
            StateUnusable, NoRoom: there is none yet, and it cannot be made.
        """
        ends = []
        with usable(self.state):
            folders = sorted(self._operations().iterdir())
        for folder in folders:
            try:
                async with self._alone():
                    taken = self._take_up(folder)
                if taken is not None:
                    ends.append(await self._finish(folder, taken, changed))
            except (JournalLocked, TargetBusy):  # the command that runs it, or its target, lives
                continue
            except (IriscwError, OSError) as error:  # what one operation left must not stop all others for ever
                log.warning("operation %s cannot be taken up: %s: %s", folder.name, type(error).__name__, error)
        return ends

    async def release(self, artifact: str) -> tuple[str, ...]:
        """Have those operations let an artifact go of which nothing is left in this state; give them.

        A pin alone says that an operation uses an artifact. Where the rest of it is lost nobody takes it up, and the
        pin stays. Whoever calls this knows that no other state folder has it: one tier in memory may serve several.

        Raises:
            ArtifactUnknown: there is no such artifact.
            ArtifactInUse: an operation that is known here uses it: that is to be taken up.
            TargetBusy: somebody works on it, or an agent serves this state.
            UnsafeStateFolder: somebody else could write to the state folder.
            OSError: a pin cannot be removed.
        """
        tiers = self.machine.tiers
        copies = [tier.look_at(artifact) for tier in await tiers.holding(artifact)]
        found = together(each for each in copies if each is not None)
        if not found:
            raise ArtifactUnknown(f"there is no checkpoint {artifact} here")
        pinned_by = tuple(dict.fromkeys(operation for copy in found[0].copies for operation in copy.pinned_by))
        with contextlib.ExitStack() as held:
            held.enter_context(claim(thawed_by_us(artifact)))
            if found[0].manifest is not None:
                held.enter_context(claim(frozen_by_us(found[0].manifest.frozen.tasks[0].identity)))
            async with self._alone():
                known = await anyio.to_thread.run_sync(self._known)
                for operation in pinned_by:
                    if operation in known:
                        raise ArtifactInUse(f"operation {operation} uses {artifact}, and is not over: it is not lost")
                for operation in pinned_by:
                    await tiers.unpin(artifact, operation)
        return pinned_by

    def _known(self) -> set[str]:
        """Return the operations that are written down here: those of commands, and of an agent that does not run."""
        from iriscw.agent.operations import OPERATIONS  # the agent's half, which no other command needs

        known = {folder.name for folder in self._operations().iterdir()}
        agent = self.state / "agent" / "journal"
        if agent.exists():
            try:
                journal = SqliteJournal.open(agent)
            except JournalLocked as error:
                raise TargetBusy("an agent serves this state, and may know the operation: end it first") from error
            try:
                paths = map(ActorPath, journal.paths())
                known.update(path.name for path in paths if path.parent == OPERATIONS)
            finally:
                journal.close()
        return known

    def _operations(self) -> Path:
        folder = self.state / "operations"
        for each in (self.state, folder):
            check_state(each)
        return folder

    @contextlib.asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Be the only command of this user that makes, takes up or removes operations, for as long as the block lasts.

        Raises:
            TargetBusy: another command has been at it for longer than anything of this takes.
        """
        make_private_folder(self.state)
        place = self.state / "operations.lock"
        descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            try:
                with anyio.fail_after(ALONE_PATIENCE_S):
                    while not _locked(descriptor):  # noqa: ASYNC110 - the kernel tells nobody
                        await anyio.sleep(ALONE_LOOK_S)
            except TimeoutError:
                raise TargetBusy(f"another command has held {place} for {ALONE_PATIENCE_S:g} s") from None
            yield
        finally:
            os.close(descriptor)

    def _take_up(self, folder: Path) -> _Taken | None:
        """Take the journal of an operation that owes something; clean up and give nothing if it owes nothing."""
        if not folder.exists():  # another command has just finished it
            return None
        journal = SqliteJournal.open(folder / JOURNAL)
        try:
            taken = _owed(journal)
            if taken is not None:
                self._check_place(folder)
        except BaseException:
            journal.close()
            raise
        if taken is None:
            journal.close()
            self._clean(folder)
        return taken

    def _note_places(self, folder: Path, tiers: Sequence[Tier], *, repository: bool) -> None:
        """Write down where the tiers lie that an operation has to do with, and the repository, if that is one."""
        for tier in tiers:
            if not tier.root.is_relative_to(self.state):
                (folder / tier.name).write_bytes(os.fsencode(tier.root))
        known = self.machine.tiers.repository
        if repository and known is not None:
            (folder / known.name).write_bytes(os.fsencode(known.place))

    def _check_place(self, folder: Path) -> None:
        for name, place in _places(folder).items():
            if name == ARCHIVE:  # what is left of an import is undone, or ended, without its file
                continue
            if name == REPOSITORY:
                known = self.machine.tiers.repository
                if known is None or os.fsdecode(known.place) != place:
                    raise TierElsewhere(f"it was begun with the repository {place}: name that")
                continue
            tier = self.machine.tiers.folders.get(name)
            if tier is None:
                raise TierElsewhere(
                    f"its images are in {place}, of the tier {name!r}, which no installed package offers"
                )
            if tier.root != Path(place):
                variable = load_tier(name).variable
                how = f"run this with {variable}={place}" if variable else f"have the tier {name!r} lie there"
                raise TierElsewhere(f"its images are in {place}: {how}")

    async def _finish(self, folder: Path, taken: _Taken, changed: Changed | None) -> OperationEnded:
        """Bring what was taken up to its end."""
        try:
            with claim(taken.target):
                return await self._run(folder, taken.journal, taken.name, None, unseen, changed)
        finally:
            taken.journal.close()

    async def _clean_up(self, folder: Path) -> None:
        """Clean after an operation that has ended; a cancellation waits for that."""
        try:
            with anyio.CancelScope(shield=True):
                async with self._alone():
                    self._clean(folder)
        except (TargetBusy, OSError) as error:
            log.warning("what operation %s left could not be removed: %s", folder.name, error)

    def _clean(self, folder: Path) -> None:
        """Remove what an operation that owes nothing leaves; that some of it stays changes nothing (INV-C15)."""
        try:
            for tier in self.machine.tiers.folders.values():
                with contextlib.suppress(UnsafeRequest):  # what lies in a stranger's folder is none of ours
                    tier.tidy(folder.name)
            remove_tree(folder)
        except OSError as error:
            log.warning("what operation %s left could not be removed: %s", folder.name, error)

    async def _run(
        self,
        folder: Path,
        journal: SqliteJournal,
        name: str,
        message: Order | None,
        report: Report,
        changed: Changed | None,
    ) -> OperationEnded:
        ends: list[OperationEnded] = []
        woken = anyio.Event()

        def see(event: object) -> None:
            if isinstance(event, OperationEnded):
                ends.append(event)
                woken.set()
            if isinstance(event, OperationChanged | OperationEnded) and changed is not None:
                changed(event)

        failures: list[Exception] = []
        full: list[NoRoom] = []

        async def watch() -> None:
            """Wait until the disk of the journal has been full for so long that the tree must not wait for it."""
            since = None
            while since is None or anyio.current_time() - since < FULL_PATIENCE_S:
                await anyio.sleep(FULL_LOOK_S)  # its watchers are called in its thread, which may not wait for the loop
                if journal.status is not JournalStatus.FULL:
                    since = None
                elif since is None:
                    since = anyio.current_time()
            gave_up = f"the file system of {folder} is full, and {folder.name} could not write down what it does"
            full.append(NoRoom(f"{gave_up}: it let go of the tree, and the next command undoes or finishes it"))
            woken.set()

        async def host() -> None:
            nonlocal woken
            try:
                async with ActorSystem(journal=journal, on_event=see) as system:
                    system.spawn(name.removeprefix("/"), ACTORS[name](self.machine.effects(report)))
                    if message is not None:
                        system.tell(name, message)
                    async with anyio.create_task_group() as beside:
                        beside.start_soon(watch)
                        await woken.wait()
                        if not ends and not full:
                            woken = anyio.Event()
                            system.tell(name, CancelOperation("it was interrupted"))
                            with anyio.move_on_after(UNDO_PATIENCE_S):
                                await woken.wait()
                        beside.cancel_scope.cancel()
            except Exception as error:  # noqa: BLE001 - raised below: a task group would wrap it
                failures.append(error)

        async def shielded() -> None:
            # In a task of its own: Ctrl-C cancels the program's first task itself, whatever shields it has.
            with anyio.CancelScope(shield=True):
                await host()
            tasks.cancel_scope.cancel()

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(shielded)
                await _wake_when_cancelled(woken.set)
        finally:
            journal.close()
            if ends:
                await self._clean_up(folder)
        if not ends and full:
            raise full[0]
        if failures:
            raise _sole(failures[0])
        if not ends:
            raise OperationStuck(f"operation {folder.name} did not end; the next command takes it up")
        return ends[0]


@attrs.frozen
class _Taken:
    """An operation that owes something: its journal, which is ours, which actor owes it, and what it claims."""

    journal: SqliteJournal
    name: str
    target: str


ACTORS = {FREEZE: actor.freeze, THAW: actor.thaw, MOVE: moves.move}
"""What makes the actor of an operation, by its name."""


def _owed(journal: SqliteJournal) -> _Taken | None:
    """Say what an operation owes; None if nothing."""
    for name in ACTORS:
        records = journal.read(name)
        if records and not isinstance(records[-1], FreezeEnded | ThawEnded | MoveEnded):
            match records[0]:
                case FreezeAccepted(plan=plan):
                    return _Taken(journal, name, frozen_by_us(plan.root))
                case ThawAccepted(plan=plan) | MoveAccepted(plan=plan):
                    return _Taken(journal, name, thawed_by_us(plan.artifact))
    return None


def _places(folder: Path) -> dict[str, str]:
    """Return where the tiers lay that an operation has to do with; none that go with the state folder."""
    names = [each.name for each in folder.iterdir() if each.name != JOURNAL and TIER_NAME.fullmatch(each.name)]
    return {name: os.fsdecode(read_bounded(folder / name, MAX_PLACE_BYTES)) for name in names}


def _sole(error: Exception) -> Exception:
    """Return what a task group has wrapped, if it is one error."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _locked(descriptor: int) -> bool:
    """Take the lock of an open file, if nobody has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def _wake_when_cancelled(wake: Callable[[], object]) -> None:
    """Wait for a cancellation, and wake whoever goes on behind a shield and does not see it."""
    try:
        await anyio.sleep_forever()
    finally:
        wake()
