r"""The life of one thaw: the mirror of a freeze, with its gates first.

::

    NEW -> OPENING -> VERIFYING -> RESTORING -> PROVING -> STARTING -> [PAGING ->] [CONFIRMING ->] LEAVING -> OVER
                                       |           |           |           |            |
                                       +-----------+-----------+-----------+------------+-> KILLING -> OVER

Theory of operation. The artifact is pinned, the gates look at it and at this machine, cheapest first, and every byte is
read and compared before CRIU sees one (INV-C9). What CRIU brings back is *stopped*: until it is known by name, and that
is written down, it has not run. So what is left of a restore of unknown outcome may be killed, and nothing is lost; the
artifact is as it was. In PROVING, what CRIU lost is set again, all of it is compared with what was frozen, and who it
is is written down beside the artifact, so that nobody makes a second one. From STARTING on the tree runs, and is
brought to its end as a freeze that is undone: by reading the states of CUDA (:mod:`iriscw.freeze.settling`), whatever
happened before.

Where the artifact carries the folder of its supervisor, that is put in its place in RESTORING, before CRIU begins. When
the thaw is over it is decided what stays there (``LeaveFolder``): the new folder, once a grant was taken in it, else
what was there before.

What cannot be brought to running is killed (INV-C6): a CUDA restore that ran out of memory ruins the process for good.

A lazy thaw lets the tree run while most of its memory is still to come (PAGING). Who brings it is a process of its own
and outlives us; a tree that has lost it cannot go on, whatever it did meanwhile, and is killed. So after a crash of
ours the pages are waited for *first*, and only then is anything let run or left alone.

Where the user has named somebody who knows whether the tree is what it was, that one is asked before the tree is let go
(CONFIRMING): if the answer is no, it is killed, and the artifact can be thawed again.

In STARTING, children run before their parents, and the parents are traced for a moment. Whoever is killed then leaves
a process that is dead or was changed, so until all but the last process runs, and that is written down, a crash ends
as one in PROVING does: all of it is killed. What its children did in that moment is lost, and the artifact is as it
was.

From LEAVING on the tree is not ours: whatever became of it since, nothing of it is killed. Who finds a thaw in STARTING
after a crash does not know for how long the tree has run, so that is written down, and then a missing process is no
failure any more: the others go on. Only what CUDA still holds, and will not let go, is killed (INV-C1).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import attrs

from iriscw.freeze.deadlines import END_NS, LOOK_NS, STATE_NS, UNLOCK_NS, copy_ns, paging_ns, restore_ns
from iriscw.freeze.effects import (
    AwaitPages,
    Confirm,
    EndTree,
    LeaveFolder,
    OpenArtifact,
    Opened,
    Proceed,
    Prove,
    ReadStates,
    Restore,
    RestoreCuda,
    States,
    SweepRestore,
    UnlockCuda,
    Unpin,
    Verify,
    Wake,
)
from iriscw.freeze.freezing import AGAIN_NS, KEY, STAYS_IN_USE, TRIES
from iriscw.freeze.gates import LAZY_GATES, THAW_GATES, first_shut, fresh_numbers, whole_map
from iriscw.freeze.messages import Again, CancelOperation, OperationChanged, OperationEnded, Recover, ThawTree
from iriscw.freeze.model import (
    CudaState,
    OperationEnding,
    Outcome,
    RestoreReport,
    RestoreRequest,
    SweepRequest,
    TaskIdentity,
    ThawPhase as Phase,
    ThawPlan,
)
from iriscw.freeze.records import (
    ThawAccepted,
    ThawConfirming,
    ThawEnded,
    ThawEnding,
    ThawLetGo,
    ThawMade,
    ThawOpened,
    ThawPaging,
    ThawReady,
    ThawRestored,
    ThawRestoring,
    ThawTakenUp,
    ThawUnheard,
)
from iriscw.freeze.settling import READ_AGAIN_NS, Settled, SettlingEnd, WaitAndRead, settle
from iriscw.runtime.vocabulary import (
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


class ThawTurn(enum.Enum):
    """What is done about a phase that did not come to its end."""

    OVER = "over"
    """Nothing was touched: it ends."""
    KILL = "kill"
    """Whatever came back is killed."""
    FINISH = "finish"
    """It is brought to its end, by the states it is found in."""


@attrs.frozen
class ThawRow:
    """One phase: what is done in it, and what follows."""

    does: str
    then: tuple[Phase, ...]
    """PAGING if it is lazy, CONFIRMING if the user named whom to ask."""
    failed: ThawTurn
    crashed: ThawTurn


PHASES: Mapping[Phase, ThawRow] = {
    Phase.OPENING: ThawRow("pins the artifact; the gates", (Phase.VERIFYING,), ThawTurn.OVER, ThawTurn.OVER),
    Phase.VERIFYING: ThawRow("reads every byte and compares", (Phase.RESTORING,), ThawTurn.OVER, ThawTurn.OVER),
    Phase.RESTORING: ThawRow("has CRIU bring the tree back, stopped", (Phase.PROVING,), ThawTurn.KILL, ThawTurn.KILL),
    Phase.PROVING: ThawRow(
        "sets again what CRIU lost, compares it with what was frozen", (Phase.STARTING,), ThawTurn.KILL, ThawTurn.KILL
    ),
    Phase.STARTING: ThawRow(
        "lets it run, its first process last (until then, a crash is as one before); restores and unlocks CUDA",
        (Phase.PAGING, Phase.CONFIRMING, Phase.LEAVING),
        ThawTurn.KILL,
        ThawTurn.FINISH,
    ),
    Phase.PAGING: ThawRow(
        "tells the application; waits until all its pages are there",
        (Phase.CONFIRMING, Phase.LEAVING),
        ThawTurn.KILL,
        ThawTurn.FINISH,
    ),
    Phase.CONFIRMING: ThawRow(
        "tells the application; asks whom the user named whether it is what it was",
        (Phase.LEAVING,),
        ThawTurn.KILL,
        ThawTurn.FINISH,
    ),
    Phase.LEAVING: ThawRow(
        "tells the application; unpins the artifact", (Phase.OVER,), ThawTurn.FINISH, ThawTurn.FINISH
    ),
    Phase.KILLING: ThawRow("kills whatever came back", (Phase.OVER,), ThawTurn.KILL, ThawTurn.KILL),
}
"""The life of a thaw. NEW and OVER owe nothing."""

CANCELLABLE = (Phase.OPENING, Phase.VERIFYING, Phase.RESTORING, Phase.PROVING)
"""Later than that the tree may have run, and killing it would lose what it did: it comes to its end."""


PAGES_LOST = ("ArtifactRefused", "PagingFailed")
"""Errors that say that pages will never come. After any other the tree may be whole."""


@attrs.define(eq=False)
class Thaw:
    """One thaw, as its records say."""

    phase: Phase = Phase.NEW
    plan: ThawPlan | None = None
    opened: ThawOpened | None = None
    request: RestoreRequest | None = None
    tasks: tuple[TaskIdentity, ...] = ()
    ready: bool = False
    """Whether all but one process was let run, and that one may have been."""
    taken_up: bool = False
    """Whether the tree may have run for long, because another life let it run."""
    notes: tuple[str, ...] = ()
    """What whoever asked for it should know, although the tree runs."""
    unheard: bool = False
    ending: ThawEnding | None = None
    ended: ThawEnded | None = None

    @property
    def asked(self) -> ThawPlan:
        """What was asked for."""
        assert self.plan is not None
        return self.plan

    @property
    def id(self) -> str:
        """The operation's."""
        return self.asked.operation

    @property
    def cuda(self) -> tuple[TaskIdentity, ...]:
        """Who uses CUDA among those that came back, which have the order of those that were frozen."""
        if self.opened is None or not self.tasks:
            return ()
        frozen = self.opened.kept.frozen
        pids = tuple(task.identity.pid for task in frozen.cuda_tasks)
        return tuple(now for was, now in zip(frozen.tasks, self.tasks, strict=False) if was.identity.pid in pids)

    @property
    def lazy(self) -> bool:
        """Whether pages come while the tree runs."""
        return self.request is not None and self.request.lazy

    @property
    def device_bytes(self) -> int:
        """What has to come back to GPUs."""
        return self.opened.kept.frozen.device_bytes if self.opened is not None else 0


def evolve(thaw: Thaw, record: object) -> None:
    """Apply a record."""
    match record:
        case ThawAccepted(plan=plan):
            thaw.phase, thaw.plan = Phase.OPENING, plan
        case ThawOpened():
            thaw.phase, thaw.opened = Phase.VERIFYING, record
            thaw.notes = (record.eager,) if record.eager else ()
        case ThawRestoring(request=request):
            thaw.phase, thaw.request = Phase.RESTORING, request
        case ThawMade(tasks=tasks):
            thaw.phase, thaw.tasks = Phase.PROVING, tasks
        case ThawRestored(tasks=tasks, differs=differs):
            thaw.phase, thaw.tasks = Phase.STARTING, tasks
            thaw.notes = (*thaw.notes, differs) if differs else thaw.notes
            if thaw.opened is not None and thaw.opened.fresh:
                thaw.notes = (*thaw.notes, _FRESH.format(tasks[0].pid, thaw.opened.kept.frozen.tasks[0].number))
        case ThawReady():
            thaw.ready = True
        case ThawPaging():
            thaw.phase = Phase.PAGING
        case ThawConfirming():
            thaw.phase = Phase.CONFIRMING
        case ThawTakenUp():
            thaw.taken_up = True
        case ThawLetGo(note=note):
            thaw.phase, thaw.notes = Phase.LEAVING, (*thaw.notes, note) if note else thaw.notes
        case ThawUnheard(text=text):
            thaw.unheard, thaw.notes = True, (*thaw.notes, text)
        case ThawEnding():
            thaw.phase, thaw.ending = Phase.KILLING, record
        case ThawEnded():
            thaw.phase, thaw.ended = Phase.OVER, record


def rules() -> dict[type, DecisionFunction]:
    """Return the decision for each message."""
    return {
        ThawTree: accept,
        CancelOperation: cancel,
        Recover: recover,
        Again: again,
        Completed: completed,
        Failed: failed,
    }


def resume(thaw: Thaw, ctx: Context) -> tuple[Command, ...]:
    """Take up what an earlier life owes."""
    return () if thaw.phase in (Phase.NEW, Phase.OVER) else (Continue(Recover(thaw.phase)),)


def accept(thaw: Thaw, message: ThawTree, ctx: Context) -> Returned:
    """Open the artifact, once."""
    if thaw.phase is not Phase.NEW:
        return None
    plan = message.plan
    changed = Emit(OperationChanged(plan.operation, Phase.OPENING))
    look = Run(KEY, OpenArtifact(plan.artifact, plan.operation, LOOK_NS))
    return Decision(records=(ThawAccepted(plan, ctx.wall),), commands=(look, changed))


def cancel(thaw: Thaw, message: CancelOperation, ctx: Context) -> Returned:
    """Give it up, unless the tree may have run."""
    if thaw.phase not in CANCELLABLE:
        return None
    turned = _turn(thaw, PHASES[thaw.phase].failed, "Cancelled", message.text, ctx)
    return attrs.evolve(turned, commands=(Cancel(KEY), CancelTimer(KEY), *turned.commands))


def recover(thaw: Thaw, message: Recover, ctx: Context) -> Returned:
    """Do what the table says about the phase in which an earlier life ended."""
    if thaw.phase is not message.phase:
        return None
    text = f"the process that thawed it ended while it was {thaw.phase.value}"
    if thaw.phase is Phase.STARTING and not thaw.ready:
        return _kill(thaw, "Interrupted", text)
    turned = _turn(thaw, PHASES[thaw.phase].crashed, "Interrupted", text, ctx)
    may_run = (Phase.STARTING, Phase.PAGING, Phase.CONFIRMING)
    taken_up = (ThawTakenUp(ctx.wall),) if thaw.phase in may_run else ()
    return attrs.evolve(turned, records=(*turned.records, *taken_up))


def again(thaw: Thaw, message: Again, ctx: Context) -> Returned:
    """Try an effect again."""
    return None if thaw.phase is Phase.OVER else (Run(KEY, message.effect),)


def _turn(thaw: Thaw, turn: ThawTurn, kind: str, text: str, ctx: Context) -> Decision:
    match turn:
        case ThawTurn.OVER:
            return _end_untouched(thaw, kind, text)
        case ThawTurn.FINISH if thaw.phase is Phase.LEAVING:
            return Decision(commands=(_tell(thaw),))
        case ThawTurn.FINISH if thaw.phase is Phase.CONFIRMING:
            return _unconfirmed(thaw)
        case ThawTurn.FINISH if thaw.lazy:
            return Decision(commands=(_await_pages(thaw),))
        case ThawTurn.FINISH:
            return Decision(commands=(_read(thaw, 0),))
    return _kill(thaw, kind, text)


def completed(thaw: Thaw, message: Completed, ctx: Context) -> Returned:
    """Take the next step."""
    match message.effect:
        case OpenArtifact():
            return _opened(thaw, message.value)
        case Verify(lazy=lazy):
            return _verified(thaw, lazy=lazy)
        case Restore():
            return _restored(thaw, message.value)
        case Prove():
            return _proven(thaw, message.value)
        case Confirm():
            return _confirmed(thaw)
        case Proceed(below=True):
            return Decision(records=(ThawReady(ctx.wall),), commands=(_proceed(thaw),))
        case Proceed() if thaw.lazy and thaw.phase is Phase.STARTING:
            return _paging(thaw, ctx)
        case Proceed():
            return (_read(thaw, 1),)
        case AwaitPages():
            return (_read(thaw, 0 if thaw.phase is Phase.STARTING else 1),)
        case ReadStates(reading=reading):
            return _settled(thaw, message.value, reading, ctx)
        case RestoreCuda(reading=reading) | UnlockCuda(reading=reading):
            return (_read(thaw, reading + 1),)
        case LeaveFolder(ending=ending):
            return (Run(KEY, Unpin(thaw.asked.artifact, thaw.id, ending)),)
        case Wake() | Unpin():
            return _finish(thaw, message.effect, ctx)
        case SweepRestore():
            return (Run(KEY, _end_tree(thaw)),)
        case EndTree(tries=tries):
            return _killed(thaw, message.value, tries, ctx)
    return None


def failed(thaw: Thaw, message: Failed, ctx: Context) -> Returned:
    """Kill what came back, or try again what must succeed in the end."""
    kind, text = type(message.error).__name__, str(message.error)
    match message.effect:
        case Proceed() if kind == "GuardRefused":  # what it guards has not run, in no life of this thaw
            return _kill(thaw, kind, text)
        case Proceed(tries=tries) as proceed if thaw.taken_up and tries < TRIES:
            once_more = Proceed(proceed.tasks, tries + 1, proceed.guard, proceed.tree, proceed.below, proceed.carried)
            return (SetTimer(KEY, AGAIN_NS, Again(once_more)),)
        case AwaitPages(operation=operation, work=work, within_ns=within_ns, tries=tries) if (
            kind not in PAGES_LOST and tries < TRIES
        ):  # nobody could tell how they are
            return (SetTimer(KEY, AGAIN_NS, Again(AwaitPages(operation, work, within_ns, tries + 1))),)
        case AwaitPages():
            return _kill(thaw, kind, text)
        case Proceed() | ReadStates() if thaw.taken_up:
            return _leave_alone(thaw, kind, text)
        case Proceed() | ReadStates():
            return _kill(thaw, kind, text)
        case RestoreCuda() | UnlockCuda() if kind == "CudaNoMemory":
            return _kill(thaw, kind, text)
        case RestoreCuda(reading=reading) | UnlockCuda(reading=reading):
            return (SetTimer(KEY, READ_AGAIN_NS, Again(_read_states(thaw, reading + 1))),)
        case Wake(hook=hook, root=root, tries=tries) if tries < TRIES:
            return (SetTimer(KEY, AGAIN_NS, Again(Wake(hook, root, tries + 1))),)
        case Wake():
            return Decision(records=(ThawUnheard(text),), commands=(_told(thaw),))
        case LeaveFolder(carried=carried, outcome=outcome, ending=ending, tries=tries) if tries < TRIES:
            leave = LeaveFolder(carried, thaw.id, outcome, ending, tries + 1)
            return (SetTimer(KEY, AGAIN_NS, Again(leave)),)
        case LeaveFolder(carried=carried, outcome=outcome, ending=ending):
            ending = ending or _ending(thaw, outcome)
            left = f"what it left beside {carried.path} stays there: {text}"
            more = attrs.evolve(ending, text="; ".join(each for each in (ending.text, left) if each))
            return (Run(KEY, Unpin(thaw.asked.artifact, thaw.id, more)),)
        case Unpin(artifact=artifact, operation=operation, ending=ending, tries=tries) if tries < TRIES:
            return (SetTimer(KEY, AGAIN_NS, Again(Unpin(artifact, operation, ending, tries + 1))),)
        case Unpin():
            return _finish(thaw, message.effect, ctx, f"{STAYS_IN_USE}: {text}")
        case SweepRestore(request=request, tries=tries) if tries < TRIES:
            return (SetTimer(KEY, AGAIN_NS, Again(SweepRestore(request, tries + 1))),)
        case SweepRestore():
            return (_unpin(thaw, OperationEnding(Outcome.LEFT, kind, text)),)
        case EndTree(tries=tries):
            return _killed(thaw, message.effect.tasks, tries, ctx)
    return _turn(thaw, PHASES[thaw.phase].failed, kind, text, ctx)


def _opened(thaw: Thaw, opened: Opened) -> Returned:
    shut = first_shut(THAW_GATES, thaw.asked, opened)
    if shut is not None:
        return _end_untouched(thaw, "GateRefused", f"{shut.gate}: {shut.text}")
    changed = Emit(OperationChanged(thaw.id, Phase.VERIFYING))
    lacking = first_shut(LAZY_GATES, thaw.asked, opened) if thaw.asked.lazy else None
    eager = f"all of its memory was read before it ran: {lacking.text}" if lacking is not None else ""
    verify = Run(KEY, Verify(thaw.asked.artifact, lazy=thaw.asked.lazy and lacking is None))
    fresh = fresh_numbers(thaw.asked, opened)
    return Decision(records=(ThawOpened(opened.kept, opened.ticks, eager, fresh),), commands=(verify, changed))


def _verified(thaw: Thaw, *, lazy: bool) -> Returned:
    assert thaw.opened is not None
    kept = thaw.opened.kept
    request = RestoreRequest(
        operation=thaw.id,
        images=kept.room.images,
        work=kept.room.work,
        options=kept.frozen.options,
        pids=tuple(task.number for task in kept.frozen.tasks),
        started_after=thaw.opened.ticks,
        within_ns=restore_ns(kept.sealed.size_bytes),
        new_pid_namespace=thaw.opened.fresh,
        container=thaw.asked.container,
        inner_pids=tuple(task.inner_pid for task in kept.frozen.tasks),
        lazy=lazy,
        paging_ns=paging_ns(kept.sealed.size_bytes) if lazy else 0,
    )
    restore = Run(KEY, Restore(request, kept.sealed.size_bytes, kept.frozen.group, kept.frozen.carried))
    changed = Emit(OperationChanged(thaw.id, Phase.RESTORING))
    return Decision(records=(ThawRestoring(request),), commands=(restore, changed))


def _restored(thaw: Thaw, report: RestoreReport) -> Returned:
    assert thaw.opened is not None
    changed = Emit(OperationChanged(thaw.id, Phase.PROVING))
    plan, kept = thaw.asked, thaw.opened.kept
    prove = Prove(thaw.id, plan.artifact, kept.frozen.tasks, report.tasks, kept.returned, plan.force)
    return Decision(records=(ThawMade(report.tasks),), commands=(Run(KEY, prove), changed))


def _proven(thaw: Thaw, differs: str) -> Returned:
    changed = Emit(OperationChanged(thaw.id, Phase.STARTING))
    return Decision(records=(ThawRestored(thaw.tasks, differs),), commands=(_proceed(thaw, below=True), changed))


def _proceed(thaw: Thaw, *, below: bool = False) -> Run:
    """Let run all but those that were stopped when they were frozen; first who guards the others, if somebody does.

    All but one run first (``below``): the first of them, or of those whose guard runs already. It is the last one.
    """
    assert thaw.opened is not None
    frozen = thaw.opened.kept.frozen
    runs = tuple(now for was, now in zip(frozen.tasks, thaw.tasks, strict=False) if not was.stopped)
    if frozen.guard:  # it runs already, also if somebody had stopped it
        runs = tuple(task for task in runs if task != thaw.tasks[0]) or runs
    if not below:
        return Run(KEY, Proceed(runs[:1]))
    tree = thaw.tasks if frozen.guard else ()
    return Run(KEY, Proceed(runs, guard=frozen.guard, tree=tree, below=True, carried=frozen.carried is not None))


def _paging(thaw: Thaw, ctx: Context) -> Returned:
    """Tell the application at once, and wait for the pages."""
    changed = Emit(OperationChanged(thaw.id, Phase.PAGING))
    after = attrs.evolve(thaw, phase=Phase.PAGING)
    return Decision(records=(ThawPaging(ctx.wall),), commands=(_tell(after), changed))


def _await_pages(thaw: Thaw) -> Run:
    assert thaw.request is not None
    return Run(KEY, AwaitPages(thaw.id, thaw.request.work, thaw.request.paging_ns + END_NS))


# From here on the states say what is done


def _read_states(thaw: Thaw, reading: int) -> ReadStates:
    return ReadStates(thaw.tasks, thaw.cuda, STATE_NS, reading)


def _read(thaw: Thaw, reading: int) -> Run:
    return Run(KEY, _read_states(thaw, reading))


def _settled(thaw: Thaw, states: States, reading: int, ctx: Context) -> Returned:
    if thaw.phase is Phase.PAGING and not states.living:
        return _let_go(thaw, states, ctx)
    if thaw.tasks[0] not in states.living and not thaw.taken_up and thaw.phase is not Phase.PAGING:
        return _kill(thaw, "TargetGone", "the tree came back, and its first process ended at once")
    if not states.living:  # it was let run and has come to its end since, or it ended with the machine
        note = _ENDED_SINCE.format(f"all of its {len(thaw.tasks)}")
        return Decision(records=(ThawLetGo(note),), commands=(_unpin(thaw),))
    if reading == 0:  # after a crash: whether it was let run is not known, and doing it again does no harm
        return (_proceed(thaw),)
    copy = copy_ns(thaw.device_bytes)
    gpus = whole_map(thaw.opened.kept.frozen, thaw.asked.gpus) if thaw.opened is not None else ()
    step = settle(states, reading=reading, copy_ns=copy, unlock_ns=UNLOCK_NS, gpus=gpus)
    match step:
        case WaitAndRead.READ_AGAIN:
            return (SetTimer(KEY, READ_AGAIN_NS, Again(_read_states(thaw, reading + 1))),)
        case Settled(end=SettlingEnd.RUNNING):
            return _let_go(thaw, states, ctx)
        case Settled(text=text) if thaw.taken_up and all(state in _MAY_RUN for _, state in states.cuda):
            return _leave_alone(thaw, "CudaFailed", text)
        case Settled(text=text):
            return _kill(thaw, "CudaFailed", text)
    return (Run(KEY, step),)


_FRESH = "it has a PID namespace of its own: its first process is {} here, and {} in there"

_ENDED_SINCE = "{} processes have ended since it was brought back"


def _let_go(thaw: Thaw, states: States, ctx: Context) -> Decision:
    """All of it runs, or has ended by itself: it is not ours any more, unless somebody is to be asked about it."""
    if thaw.asked.verify is not None and not thaw.taken_up and states.living:
        changed = Emit(OperationChanged(thaw.id, Phase.CONFIRMING))
        after = attrs.evolve(thaw, phase=Phase.CONFIRMING)
        return Decision(records=(ThawConfirming(ctx.wall),), commands=(_tell(after), changed))
    missing = len(thaw.tasks) - len(states.living)
    note = _ENDED_SINCE.format(f"{missing} of its {len(thaw.tasks)}") if missing else ""
    changed = Emit(OperationChanged(thaw.id, Phase.LEAVING))
    after = attrs.evolve(thaw, phase=Phase.LEAVING)
    return Decision(records=(ThawLetGo(note),), commands=(_tell(after), changed))


def _confirmed(thaw: Thaw) -> Decision:
    """It is what it was: it is not ours from here on."""
    changed = Emit(OperationChanged(thaw.id, Phase.LEAVING))
    return Decision(records=(ThawLetGo(""),), commands=(_unpin(thaw), changed))


def _unconfirmed(thaw: Thaw) -> Decision:
    """It may have run for long, so it is not ended any more; whether the application was told is not known."""
    changed = Emit(OperationChanged(thaw.id, Phase.LEAVING))
    after = attrs.evolve(thaw, phase=Phase.LEAVING)
    return Decision(records=(ThawLetGo(_UNASKED),), commands=(_tell(after), changed))


_UNASKED = "nobody was asked whether it is what it was: who thawed it was ended before"


_MAY_RUN = (CudaState.RUNNING, None)
"""States of a process that runs, as far as anybody can tell."""


def _tell(thaw: Thaw) -> Run:
    """Tell the application, if it has a hook and was not told before its pages came."""
    assert thaw.opened is not None
    hook = thaw.opened.kept.frozen.hook
    told = thaw.phase in (Phase.LEAVING, Phase.CONFIRMING) and thaw.lazy and not thaw.taken_up
    return Run(KEY, Wake(hook, thaw.tasks[0])) if hook is not None and not told else _told(thaw)


def _told(thaw: Thaw) -> Run:
    """Wait for its pages, or ask who is to be asked; else there is only the artifact to let go."""
    if thaw.phase is Phase.CONFIRMING and thaw.asked.verify is not None:
        return Run(KEY, Confirm(thaw.asked.verify, thaw.tasks[0]))
    return _await_pages(thaw) if thaw.phase is Phase.PAGING else _unpin(thaw)


def _leave_alone(thaw: Thaw, kind: str, text: str) -> Decision:
    """End with a tree that cannot be judged: it may have run for long, and killing it would lose what it did."""
    named = ", ".join(str(task.pid) for task in thaw.tasks[:8])
    left = f"{text}; what it brought back may have run since, and was left alone: processes {named}"
    return Decision(commands=(_unpin(thaw, OperationEnding(Outcome.LEFT, kind, left)),))


def _unpin(thaw: Thaw, ending: OperationEnding | None = None) -> Run:
    """Let the artifact go, after the place of the folder that it carries, if it may have been put there."""
    carried = thaw.opened.kept.frozen.carried if thaw.opened is not None else None
    if carried is None or thaw.request is None:
        return Run(KEY, Unpin(thaw.asked.artifact, thaw.id, ending))
    outcome = Outcome.THAWED if thaw.ending is None else Outcome.FAILED
    return Run(KEY, LeaveFolder(carried, thaw.id, outcome if ending is None else ending.outcome, ending))


def _ending(thaw: Thaw, outcome: Outcome) -> OperationEnding:
    """Return how it ends, as its records say."""
    if thaw.ending is not None:
        return OperationEnding(outcome, thaw.ending.kind, thaw.ending.text)
    return OperationEnding(outcome, "HookFailed" if thaw.unheard else "", "; ".join(thaw.notes))


def _finish(thaw: Thaw, effect: Wake | Unpin, ctx: Context, *more: str) -> Returned:
    """End as it was to: that the artifact stays in use changes no outcome (INV-C15), but is said."""
    if isinstance(effect, Wake):
        return (_told(thaw),)
    ending = effect.ending or _ending(thaw, Outcome.THAWED if thaw.ending is None else Outcome.FAILED)
    text = "; ".join(each for each in (ending.text, *more) if each)
    return _over(thaw, ending.outcome, ending.kind, text, ctx)


# Nothing of it stays


def _end_untouched(thaw: Thaw, kind: str, text: str) -> Decision:
    return Decision(records=(ThawEnding(kind, text),), commands=(_unpin(thaw),))


def _kill(thaw: Thaw, kind: str, text: str) -> Decision:
    """Kill whatever came back; in KILLING once more, with the reason that is known already."""
    records = () if thaw.phase is Phase.KILLING else (ThawEnding(kind, text),)
    if thaw.request is None:
        return Decision(records=records, commands=(_unpin(thaw),))
    request = thaw.request
    new = request.container is not None or request.new_pid_namespace  # its numbers here say nothing
    pids = () if new else request.pids
    sweep = SweepRequest(thaw.id, request.work, pids, request.started_after, END_NS, request.container)
    return Decision(
        records=records, commands=(Run(KEY, SweepRestore(sweep)), Emit(OperationChanged(thaw.id, Phase.KILLING)))
    )


def _end_tree(thaw: Thaw, tries: int = 0) -> EndTree:
    return EndTree(thaw.id, thaw.tasks, END_NS, tries, thawed=True)


def _killed(thaw: Thaw, left: tuple[TaskIdentity, ...], tries: int, ctx: Context) -> Returned:
    if left and tries < TRIES:
        return (SetTimer(KEY, AGAIN_NS, Again(_end_tree(thaw, tries + 1))),)
    if left:
        named = ", ".join(str(task.pid) for task in left[:8])
        return (
            _unpin(thaw, OperationEnding(Outcome.LEFT, "TreeLeft", f"these processes could not be killed: {named}")),
        )
    return (_unpin(thaw),)


def _over(thaw: Thaw, outcome: Outcome, kind: str, text: str, ctx: Context) -> Decision:
    root = thaw.tasks[0].pid if outcome is Outcome.THAWED else 0
    ended = Emit(OperationEnded(thaw.id, outcome, kind, text, root))
    return Decision(records=(ThawEnded(outcome, kind, text, ctx.wall),), commands=(ended,))
