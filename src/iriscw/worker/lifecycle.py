r"""The life of one attempt on its worker: a table of phases, and the decisions that walk it.

::

    NEW --accepted--> FETCHING --starting--> STARTING --started--> RUNNING --stopping--> STOPPING
                         |                      | \                  |                      |
                         |                      |  stopping          |                      |
                         |                      |   \\               |                      |
                         |                      | WITHDRAWN --started--------------> STOPPING
                         v                      v     v              v                      v
                         +----------------------+-----+--ended-------+----------------------+--> ENDED

An attempt can be frozen (see :mod:`iriscw.freeze`) and brought back, here or on another worker of its machine::

    RUNNING <--continued/suspending--> SUSPENDING --suspended--> SUSPENDED --granted--> RESUMING --thawed--> RUNNING
    NEW --granted--> RESUMING --stopping--> REVOKING --thawed--> STOPPING
    RESUMING --returning--> RETURNING --returned--> SUSPENDED, or --thawed--> RUNNING

Freezing and thawing are others' doing. This worker says when they may: it is written down that the processes may be
gone without an end before anybody is told so, and the grant to come back is offered when that is on the disk.
From each of these phases it can end as well. One that is SUSPENDED neither ends with the lease nor with the worker,
because nothing of it runs.

Every step is a record, and a step's effect leaves only when its record is on disk. So the uid is written down before
the process can exist, and what a restarted worker owes follows from the phase alone (``resume``):

========================  ==========================================================================
found in                  so
========================  ==========================================================================
FETCHING                  it never ran; its token is gone with the old process: MISSING, not started
STARTING, WITHDRAWN       the process is looked for: adopted if it is there, otherwise MISSING
RUNNING, STOPPING         the same
SUSPENDING                it is looked for: adopted if it is there, otherwise SUSPENDED
SUSPENDED                 nothing
RESUMING                  its grant is offered again: that is once and the same
RETURNING, REVOKING       its grant is taken back
ENDED                     its log and its result are offered again, until it is released
========================  ==========================================================================

An attempt that needs GPUs asks ``/attempts`` for them when its specification is here, or before it is brought back, and
goes on when it has them. It says when nothing of it runs any more: once it is SUSPENDED or ENDED.

Nothing here ever starts a process for an attempt that left NEW before. An attempt is ENDED only when the runtime says
that nothing of it is left; if that cannot be had (processes that do not die), it is asked for again.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from iriscw.jobs.model import AttemptEnd, Ending, Resumption
from iriscw.jobs.traits import Fault
from iriscw.processes.ends import EndKind
from iriscw.runtime.vocabulary import (
    SECOND,
    Cancel,
    CancelTimer,
    Command,
    Completed,
    Context,
    Decision,
    DecisionFunction,
    Emit,
    Failed,
    Outcome as Returned,
    Run,
    SetTimer,
    Tell,
    Undelivered,
)
from iriscw.worker.attempt import Attempt, evolve, sterner
from iriscw.worker.effects import (
    Adopt,
    AwaitEnd,
    AwaitThaw,
    EndAttempt,
    Fetch,
    Finish,
    LetGo,
    Permit,
    Remove,
    Revoke,
    Start,
    Started,
    Withdraw,
)
from iriscw.worker.judging import SETUP_FAULTS, STOPPED, TOO_FEW_GPUS, fault_of, judge, kind_of_end, refusal, unstarted
from iriscw.worker.messages import (
    ATTEMPTS,
    SESSION,
    AttemptChanged,
    AttemptReleased,
    AttemptReport,
    ComesAnew,
    ContinueAttempt,
    Due,
    ForgetAttempt,
    GpusGiven,
    GpusLacking,
    GpusLeft,
    GpusWanted,
    ReportNow,
    RunAttempt,
    StopAttempt,
    SuspendAttempt,
    WithdrawGrant,
)
from iriscw.worker.model import (
    STOP_GRACE_NS,
    AttemptPhase as Phase,
    Order,
    StopCause,
)
from iriscw.worker.records import (
    AttemptAccepted,
    AttemptContinued,
    AttemptEnded,
    AttemptEquipped,
    AttemptGranted,
    AttemptReturned,
    AttemptReturning,
    AttemptStarted,
    AttemptStarting,
    AttemptStopping,
    AttemptSuspended,
    AttemptSuspending,
    AttemptThawed,
)

AGAIN_NS = 2 * SECOND
"""Before an effect that must succeed in the end is tried again."""

REFUSED_FAULTS = ("GrantRefused", "ResumeRefused", "InvalidArgument")
"""Errors of a grant that will not be had: what was suspended cannot go on here."""

MAX_REASON_CHARS = 1024
"""Of why it is returned, in the journal and to the controller."""

UNABLE = "ResumeRefused"
"""The one of them that is about this worker: it has other folders, say, or runs its attempts in another way."""

NOT_OF_THE_ATTEMPT = (StopCause.LEASE, StopCause.DRAINING)
"""Causes that are about what runs on a worker: of a suspended attempt nothing does."""

MAY_COME_BACK = (Phase.RESUMING, Phase.RETURNING, Phase.REVOKING)
"""It has a grant, and what was thawed under that may run."""

HOLDS_NOTHING = (Phase.SUSPENDED, Phase.ENDED)
"""Nothing of it runs, so its GPUs are free."""


def rules() -> dict[type, DecisionFunction]:
    """Return the decision for each message."""
    return {
        RunAttempt: run,
        StopAttempt: stop,
        SuspendAttempt: suspend,
        ContinueAttempt: go_on,
        WithdrawGrant: give_back,
        ForgetAttempt: forget,
        GpusGiven: gpus_given,
        GpusLacking: gpus_lacking,
        GpusWanted: ask_again,
        ReportNow: report_now,
        Completed: completed,
        Failed: failed,
        Due: due,
        Undelivered: undelivered,
        **{effect: again(key) for effect, key in RETRIED.items()},
    }


def resume(attempt: Attempt, ctx: Context) -> tuple[Command, ...]:
    """Take up what the phase owes: see the table above."""
    match attempt.phase:
        case Phase.NEW:
            return ()
        case Phase.RESUMING if attempt.granted is not None:
            return (_permit(attempt.uid, attempt.granted, attempt.gpus),)
        case Phase.RETURNING | Phase.REVOKING if attempt.granted is not None:
            return (_revoke(attempt.uid, attempt.granted),)
        case Phase.SUSPENDED:
            return (_leaves_gpus(attempt),) if attempt.gpus else ()
        case phase:  # in FETCHING too: the look for a process that is not there leads to MISSING
            leaves = (_leaves_gpus(attempt),) if phase is Phase.ENDED and attempt.gpus else ()
            return (*leaves, Run("adopt", Adopt(attempt.uid, ended=phase is Phase.ENDED)))


# From the controller


def run(attempt: Attempt, message: RunAttempt, ctx: Context) -> Returned:
    """Accept it, once; a repeated order is answered with a report. With a grant it is brought back, and not started.

    A grant brings back once: one that was suspended again since waits for another.
    """
    resumption = message.order.resumption
    if resumption is not None and _lives_anew(attempt, resumption):
        return _remove_first(attempt, message)
    if resumption is not None and _may_come_back(attempt, resumption.grant):
        if attempt.leaving:
            return _after_release(attempt, message)
        if resumption.gpus:
            return (_ask_for_gpus(message.order, len(resumption.gpus), resumption.gpus),)
        return _granted(attempt, message.order.task_id, resumption, ())
    if attempt.phase is Phase.FETCHING and attempt.waiting is not None and not message.order.waits:
        attempt.waiting = None
        return _begun(attempt, message.order)
    if attempt.phase is Phase.FETCHING and not message.order.waits:
        attempt.released = message.order
    if attempt.phase is not Phase.NEW or resumption is not None:
        return (_report(attempt),)
    accepted = Decision(
        records=(AttemptAccepted(message.order.task_id),),
        commands=(Run("fetch", Fetch(message.order)),),
    )
    return _reported(attempt, accepted)


def _after_release(attempt: Attempt, message: RunAttempt) -> Returned:
    """Have it begin as one that was never here, once it was let go: what lets it go would undo the grant."""
    if attempt.left:
        return (Tell(ATTEMPTS, message),)
    attempt.next_run = message
    return None


def _lives_anew(attempt: Attempt, resumption: Resumption) -> bool:
    """Whether what is here is an earlier life of an attempt that is to come back."""
    if not resumption.anew or attempt.phase in (Phase.NEW, Phase.SUSPENDED):
        return False
    return attempt.granted is None or attempt.granted.grant != resumption.grant


def _remove_first(attempt: Attempt, message: RunAttempt) -> Returned:
    """Have the earlier life be removed, once it is over, and be ordered again after that."""
    if attempt.phase is not Phase.ENDED:  # its lease is over: it is about to end
        return (SetTimer("anew", AGAIN_NS, message),)
    return (Tell(ATTEMPTS, ComesAnew(message)), Run("remove", Remove(attempt.uid)))


def _granted(attempt: Attempt, task_id: str, resumption: Resumption, gpus: tuple[str, ...]) -> Decision:
    record = AttemptGranted(
        task_id,
        resumption.grant,
        resumption.folder,
        resumption.started_wall_ns,
        resumption.timeout_ns,
        resumption.paused_ns,
        resumption.ports,
        resumption.host,
        resumption.anew,
        resumption.log_offset,
    )
    has = (AttemptEquipped(gpus),) if gpus else ()
    permit = _permit(attempt.uid, record, gpus)
    return _reported(attempt, Decision(records=(*has, record), commands=(permit,)))


def gpus_given(attempt: Attempt, message: GpusGiven, ctx: Context) -> Returned:
    """Go on with them: start, or come back. Who has no use for them any more leaves them."""
    order, gpus = message.order, message.gpus
    if attempt.phase is Phase.FETCHING and order.resumption is None:
        return _starting(attempt, order, gpus)
    if order.resumption is not None and _may_come_back(attempt, order.resumption.grant):
        if attempt.leaving:
            return _after_release(attempt, RunAttempt(order))
        return _granted(attempt, order.task_id, order.resumption, gpus)
    return (Tell(ATTEMPTS, GpusLeft(attempt.uid, order.grant)),) if attempt.phase in HOLDS_NOTHING else None


def gpus_lacking(attempt: Attempt, message: GpusLacking, ctx: Context) -> Returned:
    """End: another worker may have more. One that can come back only here waits for them."""
    wanted = message.wanted
    if wanted.order.resumption is not None:
        return (SetTimer("gpus", AGAIN_NS, wanted),)
    if attempt.phase is not Phase.FETCHING:
        return None
    text = f"it needs {wanted.count} GPUs, and {message.free} of this worker's are free"
    fault = Fault(TOO_FEW_GPUS, text, retryable=True)
    over = AttemptEnded(AttemptEnd(Ending.REFUSED, fault=fault), ctx.wall, was_started=False)
    return _reported(attempt, Decision(records=(over,)))


def ask_again(attempt: Attempt, message: GpusWanted, ctx: Context) -> Returned:
    """Ask for GPUs once more, if they are wanted still."""
    grant = message.order.grant
    waits = _may_come_back(attempt, grant) if grant else attempt.phase is Phase.FETCHING
    return (Tell(ATTEMPTS, message),) if waits else None


def _ask_for_gpus(order: Order, count: int, before: tuple[str, ...] = ()) -> Command:
    return Tell(ATTEMPTS, GpusWanted(order, count, before))


def _leaves_gpus(attempt: Attempt) -> Command:
    return Tell(ATTEMPTS, GpusLeft(attempt.uid, "" if attempt.granted is None else attempt.granted.grant))


def _may_come_back(attempt: Attempt, grant: str) -> bool:
    had = attempt.granted is not None and attempt.granted.grant == grant
    return attempt.phase is Phase.NEW or (attempt.phase is Phase.SUSPENDED and not had)


def stop(attempt: Attempt, message: StopAttempt, ctx: Context) -> Returned:
    """End it, whatever it is doing."""
    return _stop(attempt, message.cause, message.grace_ns, ctx)


def _stop(attempt: Attempt, cause: StopCause, grace_ns: int, ctx: Context) -> Returned:
    asked = AttemptStopping(cause, grace_ns)
    match attempt.phase:
        case Phase.NEW | Phase.FETCHING:
            over = AttemptEnded(AttemptEnd(unstarted(STOPPED[cause])), ctx.wall, was_started=False)
            return _reported(attempt, Decision(records=(over,), commands=(Cancel("fetch"),)))
        case Phase.STARTING:
            return Decision(records=(asked,), commands=(Run("withdraw", Withdraw(attempt.uid)),))
        case Phase.WITHDRAWN:
            return Decision(records=(asked,))
        case Phase.SUSPENDED if cause in NOT_OF_THE_ATTEMPT:
            return (_report(attempt),)
        case Phase.SUSPENDED:
            written = attempt.suspended.log_bytes if attempt.suspended is not None else 0
            over = AttemptEnded(AttemptEnd(STOPPED[cause]), ctx.wall, was_started=True, log_bytes=written)
            return _reported(attempt, Decision(records=(over,), commands=(_offer_what_is_left(attempt),)))
        case Phase.RETURNING:  # taking it back is under way
            return _reported(attempt, Decision(records=(asked,)))
        case Phase.RESUMING | Phase.REVOKING if attempt.granted is not None:
            shortest = sterner(attempt.stop, asked)
            if attempt.stop == shortest:
                return None
            revoke = (_revoke(attempt.uid, attempt.granted),) if attempt.permitted and attempt.stop is None else ()
            return _reported(attempt, Decision(records=(asked,), commands=(Cancel("thaw"), *revoke)))
        case Phase.RUNNING | Phase.STOPPING | Phase.SUSPENDING:
            shortest = sterner(attempt.stop, asked)
            if attempt.stop == shortest:
                return None
            end = Run("end", EndAttempt(attempt.uid, shortest.grace_ns))
            return _reported(attempt, Decision(records=(asked,), commands=(end, CancelTimer("timeout"))))
        case _:
            return (_report(attempt),)


def suspend(attempt: Attempt, message: SuspendAttempt, ctx: Context) -> Returned:
    """Let it be frozen, by whoever does that."""
    if attempt.phase is not Phase.RUNNING:
        return (_report(attempt),)
    return _reported(attempt, Decision(records=(AttemptSuspending(),)))


def go_on(attempt: Attempt, message: ContinueAttempt, ctx: Context) -> Returned:
    """It was not frozen."""
    if attempt.phase is not Phase.SUSPENDING:
        return (_report(attempt),)
    return _reported(attempt, Decision(records=(AttemptContinued(),)))


def give_back(attempt: Attempt, message: WithdrawGrant, ctx: Context) -> Returned:
    """Have it not come back here: take its grant back, unless somebody was faster."""
    if attempt.phase is not Phase.RESUMING or attempt.granted is None or attempt.granted.grant != message.grant:
        return (_report(attempt),)
    revoke = (_revoke(attempt.uid, attempt.granted),) if attempt.permitted else ()
    return Decision(records=(AttemptReturning(),), commands=(Cancel("thaw"), *revoke))


def _permit(uid: str, granted: AttemptGranted, gpus: tuple[str, ...]) -> Command:
    permit = Permit(uid, granted.grant, granted.folder, gpus, granted.host, granted.anew, granted.log_offset)
    return Run("permit", permit)


def _revoke(uid: str, granted: AttemptGranted) -> Command:
    return Run("revoke", Revoke(uid, granted.grant))


def _offer_what_is_left(attempt: Attempt) -> Command:
    """Have the log of one that is not written to any more be sent to its end."""
    return Run("adopt", Adopt(attempt.uid, ended=True))


def forget(attempt: Attempt, message: ForgetAttempt, ctx: Context) -> Returned:
    """Remove what is left of it; one that lives is not forgotten, and a frozen one is left to somebody else."""
    if attempt.phase is Phase.SUSPENDED or attempt.revoked:
        attempt.leaving = True
        return (Run("let-go", LetGo(attempt.uid)),)
    if attempt.phase is not Phase.ENDED:
        return (_report(attempt),)
    return (Run("remove", Remove(attempt.uid)),)


def report_now(attempt: Attempt, message: ReportNow, ctx: Context) -> Returned:
    """Report, and say again that its GPUs are free: that may not have been heard."""
    return (*((_leaves_gpus(attempt),) if attempt.phase in HOLDS_NOTHING else ()), _report(attempt))


# From the world


def completed(attempt: Attempt, message: Completed, ctx: Context) -> Returned:
    """Take the next step."""
    match message.effect:
        case Fetch(order=order):
            attempt.wanted_gpus = message.value
            return _fetched(attempt, order)
        case Start():
            return _started(attempt, message.value, ctx)
        case Adopt(ended=ended):
            return None if ended else _adopted(attempt, message.value, ctx)
        case AwaitEnd():
            return _finished(attempt, message.value)
        case Permit():
            return _permitted(attempt)
        case AwaitThaw():
            return _thawed(attempt, ctx) if attempt.phase is Phase.RESUMING else None
        case Revoke():
            return _revoked(attempt, message.value, ctx)
        case Remove() | LetGo():
            attempt.left, comes_back = True, attempt.next_run
            again = () if comes_back is None else (Tell(ATTEMPTS, comes_back),)
            return (Tell(ATTEMPTS, AttemptReleased(attempt.uid)), *again)
        case _:
            return None


def _fetched(attempt: Attempt, order: Order) -> Returned:
    """Begin, unless it waits for its gang's leader."""
    order = attempt.released or order
    if order.waits:
        attempt.waiting = order
        return None
    return _begun(attempt, order)


def _begun(attempt: Attempt, order: Order) -> Returned:
    """Start it, once it has its GPUs."""
    if attempt.wanted_gpus:
        return (_ask_for_gpus(order, attempt.wanted_gpus),)
    return _starting(attempt, order, ())


def _starting(attempt: Attempt, order: Order, gpus: tuple[str, ...]) -> Returned:
    has = (AttemptEquipped(gpus),) if gpus else ()
    start = Run("start", Start(order, gpus))
    return _reported(attempt, Decision(records=(*has, AttemptStarting()), commands=(start,)))


def _started(attempt: Attempt, value: Started, ctx: Context) -> Returned:
    record = AttemptStarted(value.wall_ns, value.timeout_ns, value.ports, value.host, value.rendezvous_port)
    commands: list[Command] = [Run("await", AwaitEnd(attempt.uid))]
    if attempt.stop is not None:
        commands.append(Run("end", EndAttempt(attempt.uid, attempt.stop.grace_ns)))
    elif value.timeout_ns:
        commands.append(SetTimer("timeout", value.timeout_ns, Due("timeout")))
    seen = (AttemptEquipped(value.gpus),) if value.gpus else ()
    return _reported(attempt, Decision(records=(*seen, record), commands=tuple(commands)))


def _permitted(attempt: Attempt) -> Returned:
    """The grant is on offer: whoever thaws it may begin."""
    if attempt.granted is None or attempt.phase not in MAY_COME_BACK:
        return None
    attempt.permitted = True
    if attempt.phase is not Phase.RESUMING:
        return (_revoke(attempt.uid, attempt.granted),)
    return (Run("thaw", AwaitThaw(attempt.uid, attempt.granted.grant)), _report(attempt))


def _thawed(attempt: Attempt, ctx: Context) -> Returned:
    """It runs: as one that was adopted."""
    commands: list[Command] = [Run("await", AwaitEnd(attempt.uid))]
    if attempt.stop is not None:
        commands.append(Run("end", EndAttempt(attempt.uid, attempt.stop.grace_ns)))
    commands += _timeout(attempt, ctx) if attempt.stop is None else []
    return _reported(attempt, Decision(records=(AttemptThawed(),), commands=tuple(commands)))


def _revoked(attempt: Attempt, too_late: bool, ctx: Context) -> Returned:
    if attempt.phase not in (Phase.RETURNING, Phase.REVOKING):
        return None
    if too_late:
        return _thawed(attempt, ctx)
    if attempt.stop is None:
        return _reported(attempt, Decision(records=(AttemptReturned(),)))
    over = AttemptEnded(AttemptEnd(STOPPED[attempt.stop.cause]), ctx.wall, was_started=True)
    return _reported(attempt, Decision(records=(over,), commands=(_offer_what_is_left(attempt),)))


def _timeout(attempt: Attempt, ctx: Context) -> list[Command]:
    """What is left of its time, on the wall clock; while it was suspended none of it went by."""
    if attempt.started is None or not attempt.started.timeout_ns:
        return []
    paused_ns = attempt.granted.paused_ns if attempt.granted is not None else 0
    left_ns = attempt.started.wall_ns + attempt.started.timeout_ns + paused_ns - ctx.wall
    return [SetTimer("timeout", max(0, left_ns), Due("timeout"))]


def _adopted(attempt: Attempt, found: bool, ctx: Context) -> Returned:
    if attempt.phase is Phase.ENDED:  # stopped before it was looked for to the end: it had not begun
        return None
    if not found and attempt.phase is Phase.SUSPENDING:  # it is another worker's by now
        return _reported(attempt, Decision(records=(AttemptSuspended(ctx.wall, ""),)))
    if not found:
        was_started = attempt.started is not None
        fault = Fault("AttemptLost", "the worker was restarted, and the attempt's process is gone without a trace")
        over = AttemptEnded(AttemptEnd(Ending.MISSING, fault=fault), ctx.wall, was_started)
        return _reported(attempt, Decision(records=(over,)))
    commands: list[Command] = [Run("await", AwaitEnd(attempt.uid))]
    records: tuple[object, ...] = ()
    stopping = attempt.stop
    if attempt.phase in (Phase.STARTING, Phase.WITHDRAWN):
        # Its process ran before that could be written down. Its timeout went with its order: it is ended instead.
        records = (AttemptStarted(ctx.wall, 0, ()),)
        stopping = stopping or AttemptStopping(StopCause.DRAINING, STOP_GRACE_NS)
        if attempt.stop is None:
            records += (stopping,)
    if stopping is not None:
        commands.append(Run("end", EndAttempt(attempt.uid, stopping.grace_ns)))
    else:
        commands += _timeout(attempt, ctx)
    return _reported(attempt, Decision(records=records, commands=tuple(commands)))


def _finished(attempt: Attempt, finish: Finish) -> Returned:
    if attempt.phase is Phase.ENDED:
        return None
    end, unseen = finish.end, finish.end.kind is EndKind.LOST
    if unseen and attempt.phase is Phase.SUSPENDING:
        frozen = AttemptSuspended(finish.wall_ns, finish.folder, end.log_bytes)
        return _reported(attempt, Decision(records=(frozen,), commands=(CancelTimer("timeout"),)))
    ending = judge(finish, attempt.stop.cause if attempt.stop else None)
    fault = finish.fault
    if fault is None and ending is not Ending.SUCCEEDED:
        fault = Fault(kind_of_end(end, ending), end.reason)
    left = (_offer_what_is_left(attempt),) if unseen else ()
    record = AttemptEnded(
        end=AttemptEnd(ending, end.exit_code, fault),
        wall_ns=finish.wall_ns,
        was_started=True,
        log_bytes=end.log_bytes,
        result=finish.result,
    )
    return _reported(attempt, Decision(records=(record,), commands=(CancelTimer("timeout"), Cancel("end"), *left)))


def failed(attempt: Attempt, message: Failed, ctx: Context) -> Returned:
    """A start that failed is the attempt's end; what must succeed in the end is tried again.

    What this worker cannot bring back is returned: another one may be able to.
    """
    kind = type(message.error).__name__
    refused = kind in REFUSED_FAULTS and attempt.phase in MAY_COME_BACK
    if isinstance(message.effect, Permit) and refused:
        if kind == UNABLE and attempt.stop is None and attempt.granted is not None:
            # An earlier life of this worker may have offered it: whether nothing came of that is for the files to say.
            reason = f"{kind}: {message.error}"[:MAX_REASON_CHARS]
            records = (AttemptReturning(reason),) if attempt.phase is Phase.RESUMING else ()
            revoke = _revoke(attempt.uid, attempt.granted)
            return _reported(attempt, Decision(records=records, commands=(revoke,)))
        ending = STOPPED[attempt.stop.cause] if attempt.stop else Ending.WORKER_LOST
        record = AttemptEnded(AttemptEnd(ending, fault=fault_of(message.error)), ctx.wall, was_started=True)
        return _reported(attempt, Decision(records=(record,)))
    if isinstance(message.effect, Fetch | Start):
        fault = fault_of(message.error)
        ending = unstarted(STOPPED[attempt.stop.cause]) if attempt.stop else refusal(fault)
        counts = fault.kind in SETUP_FAULTS and attempt.stop is None
        record = AttemptEnded(AttemptEnd(ending, fault=fault), ctx.wall, was_started=counts)
        return _reported(attempt, Decision(records=(record,)))
    return (SetTimer(("again", message.key), AGAIN_NS, message.effect),)


def again(key: str) -> DecisionFunction:
    """Return the decision that tries an effect again, under its key."""

    def decide(attempt: Attempt, message: object, ctx: Context) -> Returned:
        if attempt.phase is Phase.ENDED and key in ("await", "end"):
            return None
        if key in PHASES_OF and attempt.phase not in PHASES_OF[key]:
            return None
        return (Run(key, message),)

    return decide


RETRIED: Mapping[type, str] = {
    Adopt: "adopt",
    AwaitEnd: "await",
    AwaitThaw: "thaw",
    EndAttempt: "end",
    LetGo: "let-go",
    Permit: "permit",
    Remove: "remove",
    Revoke: "revoke",
    Withdraw: "withdraw",
}
"""Effects that are tried until they succeed, and their keys."""

PHASES_OF: Mapping[str, tuple[Phase, ...]] = {
    "withdraw": (Phase.WITHDRAWN,),
    "permit": MAY_COME_BACK,
    "thaw": (Phase.RESUMING,),
    "revoke": (Phase.RETURNING, Phase.REVOKING),
    "let-go": (Phase.SUSPENDED, Phase.ENDED),
}
"""Where an effect is tried again, if not everywhere."""


def due(attempt: Attempt, message: Due, ctx: Context) -> Returned:
    """Its time is up."""
    return _stop(attempt, StopCause.TIMEOUT, STOP_GRACE_NS, ctx)


def undelivered(attempt: Attempt, message: Undelivered, ctx: Context) -> Returned:
    """A mailbox was full: tell again, with what is true then."""
    if isinstance(message.message, AttemptReleased):
        return (SetTimer("again", AGAIN_NS, ForgetAttempt(attempt.uid)),)
    if isinstance(message.message, GpusWanted | RunAttempt):
        return (SetTimer("gpus", AGAIN_NS, message.message),)
    return (SetTimer("again", AGAIN_NS, ReportNow()),)


def _report(attempt: Attempt) -> Command:
    return Tell(SESSION, AttemptReport(attempt.observation()), conflate=attempt.uid)


def _reported(attempt: Attempt, decision: Decision) -> Decision:
    """Add the report of what the attempt is once the records were applied."""
    after = attrs.evolve(attempt)
    for record in decision.records:
        evolve(after, record)
    seen = after.observation()
    has = after.gpus or attempt.phase in (Phase.NEW, Phase.FETCHING)  # then they may be on their way
    leaves = (_leaves_gpus(after),) if after.phase in HOLDS_NOTHING and has else ()
    report = Tell(SESSION, AttemptReport(seen), conflate=attempt.uid)
    changed = Emit(AttemptChanged(after.task_id, after.phase, seen))
    return attrs.evolve(decision, commands=(*decision.commands, *leaves, report, changed))
