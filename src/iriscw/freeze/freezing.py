r"""The life of one freeze: a table of phases, and the decisions that walk it.

::

    NEW -> LOOKING -> RESERVING -> QUIESCING -> LOCKING -> CHECKPOINTING -> DUMPING
                                                                               |
                  to end:      SEALING -> PUBLISHING -> ENDING -> OVER <-------+
                  to leave it: RESUMING -> SEALING -> PUBLISHING -> OVER <-----+

    from any of them, on an error, a cancellation or a crash: UNDOING -> OVER

Theory of operation. The tree is judged twice by the same gates (``TREE_GATES``): before it is
touched, and when it is held, because a program may change while it is looked at. The tree is *held* from the dump on:
its images are complete and it makes no progress. One that
will end is killed only when its artifact is sealed and visible, so at every instant either it runs or its state is
whole on the disk (INV-C8). One that is to run on is let go at once, because the images do not change any more; where
its folder is carried that is packed before, because the program would change it. The artifact is pinned by its own
operation from before it is visible until that ends: nobody removes it meanwhile.

Entering a phase is a record, and the phase's effect leaves only when that record is on the disk. So the phase found
after a crash is the last one that may have been taken, and :data:`PHASES` says what is done about it. CRIU lets a held
tree run when whoever asked for it dies; CUDA does not, so the undoing reads its states (:mod:`iriscw.freeze.settling`).

After a crash in ENDING the tree may have been killed, in part too. CRIU, if it is still there, is ended first. The
first task is killed before all others, by CRIU as by us: if it lives, none was killed. The tree has run on since, and
who is missing has ended by itself; so the artifact is old, it is removed and they stay. If the first one is missing the
others are killed too: what ran on of them is not a whole, and the artifact is. The same is done when the tree cannot be
ended because CRIU was killed by somebody meanwhile, and the kernel has let the tree go.

Undoing never repeats what it does not know: :mod:`iriscw.freeze.settling`. What it cannot bring back to running within
its bound is killed and reported (INV-C6): a process that waits for ever for a GPU it will not get is worse than none.
If its images were complete by then they are sealed and published after all, because nothing newer is left. The same
goes for a tree that is gone when it is looked for, after a power cut perhaps, if its images were sealed: what was not
may not be on the disk. If they lay in memory they are gone as well, and it ends as lost. From then on nothing
cancels it. The same goes for one that ran again and is lost before its images were removed: what is removed ceases to
be sealed, and on the disk, before anything of it goes.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping

import attrs

from iriscw.freeze.deadlines import END_NS, LOOK_NS, STATE_NS, UNLOCK_NS, copy_ns, dump_ns
from iriscw.freeze.effects import (
    CheckpointCuda,
    Discard,
    Dump,
    Dumped,
    EndTree,
    LockCuda,
    Look,
    Looked,
    Publish,
    Quiesce,
    ReadStates,
    Release,
    Reserve,
    RestoreCuda,
    Seal,
    States,
    UnlockCuda,
    Unpin,
    Wake,
)
from iriscw.freeze.gates import FREEZE_GATES, TREE_GATES, first_shut, image_bytes, plan_trouble
from iriscw.freeze.messages import Again, CancelOperation, FreezeTree, OperationChanged, OperationEnded, Recover
from iriscw.freeze.model import (
    CudaTask,
    DumpRequest,
    FreezePhase as Phase,
    FreezePlan,
    FrozenTree,
    OperationEnding,
    Outcome,
    Room,
    Sealed,
    SweepRequest,
    TaskIdentity,
)
from iriscw.freeze.records import (
    FreezeAccepted,
    FreezeBegan,
    FreezeDumped,
    FreezeEnded,
    FreezeFateKnown,
    FreezeHoused,
    FreezeMeasured,
    FreezeSealed,
    FreezeUndoing,
    FreezeUnheard,
)
from iriscw.freeze.settling import READ_AGAIN_NS, Settled, SettlingEnd, WaitAndRead, settle
from iriscw.runtime.vocabulary import (
    SECOND,
    Cancel,
    CancelTimer,
    Command,
    Completed,
    Context,
    Continue,
    Decision,
    DecisionFunction,
    Emit,
    Failed,
    Outcome as Returned,
    Run,
    SetTimer,
)

KEY = "step"
"""All effects have one key: the next one starts only when the earlier one has really ended, cancelled or not."""

TRIES = 5
"""Of what should always work: letting go, killing, removing."""

AGAIN_NS = 2 * SECOND

STAYS_IN_USE = "the checkpoint stays in use, and cannot be removed"
"""What is said if an artifact could not be let go at the end; ``iriscw checkpoints --release`` does it later."""


class FreezeTurn(enum.Enum):
    """What is done about a phase that did not come to its end."""

    OVER = "over"
    """Nothing was touched: it ends."""
    UNDO = "undo"
    """What may have been done is undone."""
    AGAIN = "again"
    """The step is taken again: it may be repeated."""
    LOOK = "look"
    """Who lives says whether it is undone or finished."""


@attrs.frozen
class FreezeRow:
    """One phase: what is done in it, and what follows."""

    does: str
    then: Phase
    """After success, if the tree is to end."""
    then_running: Phase
    """After success, if it is to run on."""
    failed: FreezeTurn
    crashed: FreezeTurn
    crashed_running: FreezeTurn


_E, _U, _A, _L = FreezeTurn.OVER, FreezeTurn.UNDO, FreezeTurn.AGAIN, FreezeTurn.LOOK
_P = Phase
PHASES: Mapping[Phase, FreezeRow] = {
    _P.LOOKING: FreezeRow("reads the tree, CRIU and CUDA; the gates", _P.RESERVING, _P.RESERVING, _E, _E, _E),
    _P.RESERVING: FreezeRow("takes room for the artifact", _P.QUIESCING, _P.QUIESCING, _U, _U, _U),
    _P.QUIESCING: FreezeRow("brings the application to rest, if it has a hook", _P.LOCKING, _P.LOCKING, _U, _U, _U),
    _P.LOCKING: FreezeRow("locks every CUDA process", _P.CHECKPOINTING, _P.CHECKPOINTING, _U, _U, _U),
    _P.CHECKPOINTING: FreezeRow("moves device memory into the processes", _P.DUMPING, _P.DUMPING, _U, _U, _U),
    _P.DUMPING: FreezeRow("has CRIU write the images, and hold the tree", _P.SEALING, _P.RESUMING, _U, _U, _U),
    _P.RESUMING: FreezeRow("lets the tree run on", _P.SEALING, _P.SEALING, _A, _A, _A),
    _P.SEALING: FreezeRow("gives every byte a digest", _P.PUBLISHING, _P.PUBLISHING, _U, _U, _A),
    _P.PUBLISHING: FreezeRow("makes the artifact visible", _P.ENDING, _P.OVER, _U, _U, _A),
    _P.ENDING: FreezeRow("kills the tree", _P.OVER, _P.OVER, _A, _L, _L),
    _P.UNDOING: FreezeRow("brings the tree back to running, removes what was written", _P.OVER, _P.OVER, _A, _A, _A),
}
"""The life of a freeze. NEW and OVER owe nothing."""

NO_RETURN = (Phase.RESUMING, Phase.ENDING, Phase.UNDOING, Phase.OVER)
"""Phases in which a cancellation changes nothing: they come to their end within their bounds."""


@attrs.define(eq=False)
class Freeze:
    """One freeze, as its records say."""

    phase: Phase = Phase.NEW
    plan: FreezePlan | None = None
    frozen: FrozenTree | None = None
    reserved_bytes: int = 0
    room: Room | None = None
    dumped: FreezeDumped | None = None
    sealed: Sealed | None = None
    undoing: FreezeUndoing | None = None
    gone: str = ""
    """Why the tree does not run although it was to."""
    unheard: str = ""
    """Why the application could not be told to go on."""
    ended: FreezeEnded | None = None
    steps: tuple[Phase, ...] = ()
    """All phases that were entered."""

    @property
    def id(self) -> str:
        """The operation's, and the artifact's."""
        return self.asked.operation

    @property
    def asked(self) -> FreezePlan:
        """What was asked for."""
        assert self.plan is not None
        return self.plan

    @property
    def tasks(self) -> tuple[TaskIdentity, ...]:
        """Who is frozen, as far as it is known: those in the images, or those that were seen first.

        Who used CUDA is among them in any case: one that left the tree meanwhile was locked with it.
        """
        if self.dumped is not None:
            found = self.dumped.tree.identities
            return (*found, *(task for task in self.cuda_identities if task not in found))
        if self.frozen is not None:
            return tuple(task.identity for task in self.frozen.tasks)
        return (self.asked.root,)

    @property
    def cuda(self) -> tuple[CudaTask, ...]:
        """Who among them uses CUDA, as they were before the lock."""
        return self.frozen.cuda_tasks if self.frozen is not None else ()

    @property
    def cuda_identities(self) -> tuple[TaskIdentity, ...]:
        """Their identities."""
        return tuple(task.identity for task in self.cuda)

    @property
    def device_bytes(self) -> int:
        """What they held on GPUs."""
        return sum(task.device_bytes for task in self.cuda)


def evolve(freeze: Freeze, record: object) -> None:
    """Apply a record."""
    match record:
        case FreezeAccepted(plan=plan):
            freeze.plan = plan
            _enter(freeze, Phase.LOOKING)
        case FreezeMeasured(frozen=frozen, reserved_bytes=reserved):
            freeze.frozen, freeze.reserved_bytes = frozen, reserved
            _enter(freeze, Phase.RESERVING)
        case FreezeHoused(room=room):
            freeze.room = room
        case FreezeBegan(phase=phase):
            _enter(freeze, phase)
        case FreezeDumped():
            freeze.dumped = record
        case FreezeSealed(sealed=sealed):
            freeze.sealed = sealed
        case FreezeFateKnown(gone=gone):
            freeze.gone = gone
        case FreezeUnheard(text=text):
            freeze.unheard = text
        case FreezeUndoing():
            freeze.undoing = record
            _enter(freeze, Phase.UNDOING)
        case FreezeEnded():
            freeze.ended = record
            _enter(freeze, Phase.OVER)


def _enter(freeze: Freeze, phase: Phase) -> None:
    freeze.phase = phase
    freeze.steps = (*freeze.steps, phase)


def rules() -> dict[type, DecisionFunction]:
    """Return the decision for each message."""
    return {
        FreezeTree: accept,
        CancelOperation: cancel,
        Recover: recover,
        Again: again,
        Completed: completed,
        Failed: failed,
    }


def resume(freeze: Freeze, ctx: Context) -> tuple[Command, ...]:
    """Take up what an earlier life owes."""
    return () if freeze.phase in (Phase.NEW, Phase.OVER) else (Continue(Recover(freeze.phase)),)


def _look(plan: FreezePlan) -> Look:
    return Look(plan.root, plan.tier, LOOK_NS, plan.operation if plan.carries_folder else "")


# What is asked of it


def accept(freeze: Freeze, message: FreezeTree, ctx: Context) -> Returned:
    """Look at the target, once."""
    if freeze.phase is not Phase.NEW:
        return None
    if trouble := plan_trouble(message.plan):  # before a record of it: a secret in it would stand there
        return (Emit(OperationEnded(message.plan.operation, Outcome.UNDONE, "UnsafeRequest", trouble)),)
    records = (FreezeAccepted(message.plan, ctx.wall),)
    changed = Emit(OperationChanged(message.plan.operation, Phase.LOOKING))
    return Decision(records=records, commands=(Run(KEY, _look(message.plan)), changed))


def cancel(freeze: Freeze, message: CancelOperation, ctx: Context) -> Returned:
    """Undo it, unless it is past the point of no return: also where its images are all that there is of the tree."""
    if freeze.phase is Phase.NEW or freeze.phase in NO_RETURN or freeze.gone:
        return None
    turned = _turn(freeze, PHASES[freeze.phase].failed, "Cancelled", message.text, ctx)
    return attrs.evolve(turned, commands=(Cancel(KEY), CancelTimer(KEY), *turned.commands))


def recover(freeze: Freeze, message: Recover, ctx: Context) -> Returned:
    """Do what the table says about the phase in which an earlier life ended."""
    if freeze.phase is not message.phase:
        return None
    row = PHASES[freeze.phase]
    turn = row.crashed_running if freeze.asked.leave_running else row.crashed
    text = f"the process that froze it ended while it was {freeze.phase.value}"
    return _turn(freeze, turn, "Interrupted", text, ctx)


def again(freeze: Freeze, message: Again, ctx: Context) -> Returned:
    """Try an effect again."""
    return None if freeze.phase is Phase.OVER else (Run(KEY, message.effect),)


def _turn(freeze: Freeze, turn: FreezeTurn, kind: str, text: str, ctx: Context) -> Decision:
    match turn:
        case FreezeTurn.OVER:
            return _over(freeze, Outcome.UNDONE, kind, text, ctx)
        case FreezeTurn.AGAIN if freeze.phase in (Phase.UNDOING, Phase.RESUMING):
            return Decision(commands=(_let_go(freeze),))
        case FreezeTurn.AGAIN:
            return Decision(commands=(Run(KEY, _EFFECTS[freeze.phase](freeze)),))
        case FreezeTurn.LOOK:
            return Decision(commands=(_let_go(freeze),))
    return _undo(freeze, kind, text)


# From step to step


def _begin(freeze: Freeze, phase: Phase, *before: object) -> Decision:
    """Enter a phase, or the first one after it that there is something to do in; ``before`` are records of the last."""
    after = attrs.evolve(freeze)
    for record in before:
        evolve(after, record)
    while not _needed(after, phase):
        phase = PHASES[phase].then
    records = (*before, FreezeBegan(phase))
    command = _let_go(after) if phase is Phase.RESUMING else Run(KEY, _EFFECTS[phase](after))
    return Decision(records=records, commands=(command, Emit(OperationChanged(freeze.id, phase))))


def _needed(freeze: Freeze, phase: Phase) -> bool:
    if phase is Phase.QUIESCING:
        return freeze.asked.hook is not None
    return phase not in (Phase.LOCKING, Phase.CHECKPOINTING) or bool(freeze.cuda)


def _next(freeze: Freeze, *before: object) -> Decision:
    row = PHASES[freeze.phase]
    return _begin(freeze, row.then_running if freeze.asked.leave_running else row.then, *before)


def _dump(freeze: Freeze) -> Dump:
    assert freeze.room is not None
    within = dump_ns(freeze.reserved_bytes)
    plan = freeze.asked
    room = freeze.room
    request = DumpRequest(
        operation=plan.operation,
        root=plan.root,
        images=room.images,
        work=room.work,
        options=plan.options,
        within_ns=within,
        container=plan.container,
        most_bytes=freeze.reserved_bytes,
    )
    carried = freeze.frozen.carried if freeze.frozen is not None and plan.leave_running else None
    return Dump(request, ends=not plan.leave_running, carried=carried)


def _seal(freeze: Freeze) -> Seal:
    assert freeze.frozen is not None
    assert freeze.dumped is not None
    tree = freeze.dumped.tree
    frozen = attrs.evolve(
        freeze.frozen,
        tasks=tree.tasks,
        files=tree.files,
        namespaces=tree.namespaces,
        group=tree.group,
        frozen_wall_ns=freeze.dumped.wall_ns,
    )
    packed = freeze.dumped.folder
    if packed is not None:
        frozen = attrs.evolve(frozen, carried=packed)
    images = "" if freeze.room is None else freeze.room.images
    return Seal(freeze.id, frozen, freeze.asked.labels, images, freeze.reserved_bytes, packed is not None)


def _reserve(freeze: Freeze) -> Reserve:
    assert freeze.frozen is not None
    size, device = freeze.reserved_bytes, freeze.device_bytes
    return Reserve(freeze.id, freeze.asked.tier, size, device, freeze.frozen.group)


def _quiesce(freeze: Freeze) -> Quiesce:
    assert freeze.asked.hook is not None
    return Quiesce(freeze.asked.hook, freeze.asked.root)


_EFFECTS: Mapping[Phase, Callable[[Freeze], object]] = {
    _P.RESERVING: _reserve,
    _P.QUIESCING: _quiesce,
    _P.LOCKING: lambda freeze: LockCuda(freeze.cuda_identities, freeze.asked.lock_within_ns),
    _P.CHECKPOINTING: lambda freeze: CheckpointCuda(freeze.id, freeze.cuda_identities, copy_ns(freeze.device_bytes)),
    _P.DUMPING: _dump,
    _P.SEALING: _seal,
    _P.PUBLISHING: lambda freeze: Publish(freeze.id),
    _P.ENDING: lambda freeze: EndTree(freeze.id, freeze.tasks, END_NS),
}


def completed(freeze: Freeze, message: Completed, ctx: Context) -> Returned:
    """Take the next step."""
    match message.effect:
        case Look():
            return _seen(freeze, message.value, ctx)
        case Reserve():
            return _next(freeze, FreezeHoused(message.value))
        case Quiesce() | LockCuda() | CheckpointCuda():
            return _next(freeze)
        case Dump():
            return _dumped(freeze, message.value, ctx)
        case Seal():
            return _next(freeze, FreezeSealed(message.value))
        case Publish():
            return _published(freeze)
        case EndTree(tries=tries):
            return _killed(freeze, message.value, tries, ctx)
        case Release():
            return (_read(freeze, 0),)
        case ReadStates(reading=reading):
            return _settled(freeze, message.value, reading, ctx)
        case RestoreCuda(reading=reading) | UnlockCuda(reading=reading):
            return (_read(freeze, reading + 1),)
        case Wake():
            return _woken(freeze)
        case Discard():
            return _discarded(freeze, "", ctx)
        case Unpin(ending=ending):
            published = ending is not None and ending.outcome in (Outcome.FROZEN, Outcome.COPIED)
            return _vanished(freeze, ctx) if published and not message.value else _unpinned(freeze, ending, ctx)
    return None


def failed(freeze: Freeze, message: Failed, ctx: Context) -> Returned:
    """Undo, or try again what must succeed in the end."""
    kind, text = type(message.error).__name__, str(message.error)
    match message.effect:
        case Quiesce() if freeze.asked.force:
            return _next(freeze)
        case Release(sweep=sweep, tries=tries):
            if tries < TRIES:
                return (SetTimer(KEY, AGAIN_NS, Again(Release(sweep, tries + 1))),)
            return (_read(freeze, 0),) if freeze.phase is Phase.ENDING else _give_up(freeze, f"{kind}: {text}")
        case EndTree(tries=tries) if freeze.phase is Phase.ENDING and tries < TRIES:
            # CRIU may have been killed and have let the tree run on: who lives decides.
            return (_read(freeze, tries + 1),)
        case EndTree(tries=tries):
            return _killed(freeze, message.effect.tasks, tries, ctx)
        case ReadStates(reading=reading) if freeze.phase is Phase.ENDING:  # who lives decides, and nobody knows
            if reading < TRIES:
                return (SetTimer(KEY, AGAIN_NS, Again(_read_states(freeze, reading + 1))),)
            return _unpin(
                freeze, OperationEnding(Outcome.LEFT, kind, f"whether the tree was ended cannot be read: {text}")
            )
        case ReadStates(reading=reading):
            unknown = tuple((task, None) for task in freeze.cuda_identities)
            return _settled(freeze, States(freeze.tasks, unknown), reading, ctx)
        case RestoreCuda() | UnlockCuda() if kind == "CudaNoMemory":
            return _give_up(freeze, text)
        case RestoreCuda(reading=reading) | UnlockCuda(reading=reading):
            return (SetTimer(KEY, READ_AGAIN_NS, Again(_read_states(freeze, reading + 1))),)
        case Publish(tries=tries) if freeze.gone and tries < TRIES:
            return (SetTimer(KEY, AGAIN_NS, Again(Publish(freeze.id, tries + 1))),)
        case Publish() if freeze.gone and kind == "NoRoom":
            return _unpublished(freeze, text, ctx)
        case Wake(hook=hook, root=root, tries=tries) if tries < TRIES:
            return (SetTimer(KEY, AGAIN_NS, Again(Wake(hook, root, tries + 1))),)
        case Wake():
            return _woken(freeze, FreezeUnheard(text))
        case Discard(tries=tries) if tries < TRIES:
            return (SetTimer(KEY, AGAIN_NS, Again(Discard(freeze.id, tries + 1))),)
        case Discard():
            return _discarded(freeze, f"; what it wrote is left: {text}", ctx)
        case Unpin(artifact=artifact, operation=operation, ending=ending, tries=tries) if tries < TRIES:
            return (SetTimer(KEY, AGAIN_NS, Again(Unpin(artifact, operation, ending, tries + 1))),)
        case Unpin(ending=ending):
            return _unpinned(freeze, ending, ctx, f"{STAYS_IN_USE}: {text}")
    return _turn(freeze, PHASES[freeze.phase].failed, kind, text, ctx)


def _seen(freeze: Freeze, seen: Looked, ctx: Context) -> Returned:
    plan = freeze.asked
    shut = first_shut(TREE_GATES, plan, seen.tree) or first_shut(FREEZE_GATES, plan, seen)
    if shut is not None:
        return _over(freeze, Outcome.UNDONE, "GateRefused", f"{shut.gate}: {shut.text}", ctx)
    frozen = FrozenTree(
        host=seen.host,
        criu=seen.criu,
        options=plan.options,
        tasks=seen.tree.tasks,
        cuda_driver=seen.cuda.driver_version if seen.cuda_tasks else "",
        cuda_tasks=seen.cuda_tasks,
        gpus=seen.gpus if seen.cuda_tasks else (),
        hook=plan.hook,
        guard=plan.guard or seen.guard,
        left_running=plan.leave_running,
        container=plan.container,
        group=seen.tree.group,
        carried=seen.folder,
    )
    needed = image_bytes(seen)
    after = attrs.evolve(freeze, frozen=frozen, reserved_bytes=needed)
    commands = (Run(KEY, _EFFECTS[_P.RESERVING](after)), Emit(OperationChanged(freeze.id, Phase.RESERVING)))
    return Decision(records=(FreezeMeasured(frozen, needed),), commands=commands)


def _dumped(freeze: Freeze, dumped: Dumped, ctx: Context) -> Returned:
    record = FreezeDumped(attrs.evolve(dumped.tree, hindrances=()), dumped.cuda_tasks, ctx.wall, dumped.folder)
    if shut := first_shut(TREE_GATES, freeze.asked, dumped.tree):  # it may have changed since it was looked at
        return _undo(freeze, "TargetUnfit", f"{shut.gate}: {shut.text}", record)
    known = freeze.cuda_identities
    stranger = next((task for task in dumped.cuda_tasks if task.identity not in known), None)
    if stranger is not None:
        # It began to use CUDA behind our back, so its device memory is in no image.
        text = f"process {stranger.identity.pid} began to use CUDA while the tree was being frozen"
        return _undo(freeze, "TargetUnfit", text, record)
    found = dumped.tree.identities
    left = next((task for task in known if task not in found), None)
    if left is not None:
        # What it had on the GPU is in its own memory now, and it is in no image.
        return _undo(freeze, "TargetUnfit", f"process {left.pid} left the tree while it was being frozen", record)
    return _next(freeze, record)


def _published(freeze: Freeze) -> Returned:
    if freeze.asked.leave_running:
        if freeze.gone:
            return _unpin(freeze, OperationEnding(Outcome.FROZEN, "TargetGone", freeze.gone))
        return _unpin(freeze, OperationEnding(Outcome.COPIED, "HookFailed" if freeze.unheard else "", freeze.unheard))
    return _next(freeze)


def _unpin(freeze: Freeze, ending: OperationEnding) -> Decision:
    """Let others remove the artifact, and end: until then nobody does."""
    return Decision(commands=(Run(KEY, Unpin(freeze.id, freeze.id, ending)),))


def _unpinned(freeze: Freeze, ending: OperationEnding | None, ctx: Context, more: str = "") -> Returned:
    """End as it was to: that the artifact stays in use changes no outcome (INV-C15), but is said."""
    assert ending is not None
    return _over(freeze, ending.outcome, ending.kind, "; ".join(each for each in (ending.text, more) if each), ctx)


def _vanished(freeze: Freeze, ctx: Context) -> Returned:
    """End without the artifact that was published: it lay in memory, and the machine was started anew."""
    text = f"{freeze.gone}; then: " if freeze.gone else ""
    return _over(freeze, Outcome.LOST, "TargetGone", f"{text}its checkpoint is not there any more", ctx)


def _unpublished(freeze: Freeze, text: str, ctx: Context) -> Returned:
    """End with images that are whole and could not be made visible. Nothing newer is left, so they are not removed."""
    assert freeze.room is not None
    left = f"{freeze.gone}; its images are whole and stay in {freeze.room.images}: {text}"
    return _over(freeze, Outcome.LOST, "NoRoom", left, ctx)


def _lost_too(freeze: Freeze) -> bool:
    """Whether the images of a tree that is gone could not be published, and not for want of room: they are lost."""
    tried = bool(freeze.gone) and freeze.steps[-2:-1] == (Phase.PUBLISHING,)
    return tried and freeze.undoing is not None and freeze.undoing.kind != "Interrupted"


# Letting the tree run, or making sure that it does not


def _let_go(freeze: Freeze) -> Run:
    """Begin with whoever holds the tree; nobody can before the dump has begun."""
    if Phase.DUMPING in freeze.steps and freeze.room is not None:
        return Run(KEY, Release(SweepRequest(freeze.id, freeze.room.work, container=freeze.asked.container)))
    return _read(freeze, 0)


def _read_states(freeze: Freeze, reading: int) -> ReadStates:
    return ReadStates(freeze.tasks, freeze.cuda_identities, STATE_NS, reading)


def _read(freeze: Freeze, reading: int) -> Run:
    return Run(KEY, _read_states(freeze, reading))


def _kill(freeze: Freeze, tries: int = 0) -> Run:
    return Run(KEY, _end_tree(freeze, tries))


def _end_tree(freeze: Freeze, tries: int) -> EndTree:
    return EndTree(freeze.id, freeze.tasks, END_NS, tries, given_up=freeze.phase is not Phase.ENDING)


def _settled(freeze: Freeze, states: States, reading: int, ctx: Context) -> Returned:
    if freeze.phase is Phase.ENDING:
        if freeze.tasks[0] in states.living:
            return _undo(freeze, "Interrupted", "CRIU, or the process that froze it, ended before the tree was killed")
        # CRIU may have let the tree go: then there is nothing that it could end, and we kill what is left ourselves.
        return (Run(KEY, EndTree(freeze.id, freeze.tasks, END_NS, reading, given_up=True)),)
    if freeze.gone and states.living:
        return (_kill(freeze),)  # an earlier life gave the tree up, and may have killed a part of it
    step = settle(
        states,
        reading=reading,
        copy_ns=copy_ns(freeze.device_bytes),
        unlock_ns=UNLOCK_NS,
        only_locked=Phase.CHECKPOINTING not in freeze.steps,
    )
    match step:
        case WaitAndRead.READ_AGAIN:
            return (SetTimer(KEY, READ_AGAIN_NS, Again(_read_states(freeze, reading + 1))),)
        case Settled(end=SettlingEnd.HOPELESS, text=text):
            return _give_up(freeze, text)
        case Settled(end=SettlingEnd.GONE, text=text) if (
            freeze.phase is Phase.UNDOING and freeze.sealed is not None and not _lost_too(freeze)
        ):
            return _begin(freeze, Phase.PUBLISHING, FreezeFateKnown(freeze.gone or text))
        case Settled(end=end, text=text):
            return _rest(freeze, FreezeFateKnown((freeze.gone or text) if end is SettlingEnd.GONE else ""))
    return (Run(KEY, step),)


def _give_up(freeze: Freeze, text: str) -> Decision:
    """Kill a tree that cannot be brought back to running."""
    return Decision(records=(FreezeFateKnown(f"{text}; it was killed"),), commands=(_kill(freeze),))


def _rest(freeze: Freeze, fate: FreezeFateKnown) -> Decision:
    """Go on once the tree runs, or is gone for good."""
    hook = freeze.asked.hook
    if not fate.gone and Phase.QUIESCING in freeze.steps and hook is not None:
        return Decision(records=(fate,), commands=(Run(KEY, Wake(hook, freeze.asked.root)),))
    return _woken(freeze, fate)


def _woken(freeze: Freeze, *before: object) -> Decision:
    if freeze.phase is Phase.RESUMING:
        return _next(freeze, *before)
    return Decision(records=before, commands=(Run(KEY, Discard(freeze.id)),))


def _killed(freeze: Freeze, left: tuple[TaskIdentity, ...], tries: int, ctx: Context) -> Returned:
    if left and tries < TRIES:
        return (SetTimer(KEY, AGAIN_NS, Again(_end_tree(freeze, tries + 1))),)
    if left:
        named = ", ".join(str(task.pid) for task in left[:8])
        return _unpin(
            freeze, OperationEnding(Outcome.LEFT, "TreeLeft", f"these processes could not be killed: {named}")
        )
    match freeze.phase:
        case Phase.ENDING:
            return _unpin(freeze, OperationEnding(Outcome.FROZEN, "TargetGone" if freeze.gone else "", freeze.gone))
        case Phase.RESUMING:
            return _next(freeze)
        case Phase.UNDOING if freeze.dumped is not None:
            return _begin(freeze, Phase.SEALING)
    return (Run(KEY, Discard(freeze.id)),)


def _undo(freeze: Freeze, kind: str, text: str, *before: object) -> Decision:
    after = attrs.evolve(freeze)
    undoing = FreezeUndoing(kind, text)
    for record in (*before, undoing):
        evolve(after, record)
    touched = freeze.phase is not Phase.RESERVING
    command = _let_go(after) if touched else Run(KEY, Discard(freeze.id))
    changed = Emit(OperationChanged(freeze.id, Phase.UNDOING))
    return Decision(records=(*before, undoing), commands=(command, changed))


def _discarded(freeze: Freeze, more: str, ctx: Context) -> Returned:
    why = freeze.undoing or FreezeUndoing("Interrupted", "it was interrupted")
    if freeze.gone:
        return _over(freeze, Outcome.LOST, why.kind, f"{why.text}; then: {freeze.gone}{more}", ctx)
    unheard = f"; then: {freeze.unheard}" if freeze.unheard else ""
    return _over(freeze, Outcome.UNDONE, why.kind, f"{why.text}{unheard}{more}", ctx)


def _over(freeze: Freeze, outcome: Outcome, kind: str, text: str, ctx: Context) -> Decision:
    ended = Emit(OperationEnded(freeze.id, outcome, kind, text))
    return Decision(records=(FreezeEnded(outcome, kind, text, ctx.wall),), commands=(ended,))
