"""What is known of the suspensions of one attempt, as records make it, and what others are told of it. Pure.

The checkpoint of a suspension has no use once the attempt runs again or has ended: it is *due* to be removed then, and
that is remembered until somebody has done it. See :mod:`iriscw.jobs.suspension.model` for how a suspension goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from iriscw.jobs.keeping.records import CopyKept, WentBack
from iriscw.jobs.model import Observation, Resumption, Suspension
from iriscw.jobs.suspension.effects import DropCheckpoint
from iriscw.jobs.suspension.messages import PhaseOver, SuspendedAttempt, SuspensionView
from iriscw.jobs.suspension.model import MARKED, SUSPENDING, TOLD, Labels, Stage
from iriscw.jobs.suspension.records import (
    AttemptDeserted,
    AttemptFreezing,
    AttemptFrozen,
    AttemptGivenUp,
    AttemptResumed,
    AttemptResuming,
    AttemptStored,
    AttemptSuspended,
    AttemptThawing,
    AttemptUnplaced,
    AttemptVacated,
    AttemptYields,
    ResumptionWanted,
    StoreBegun,
    StoreFailed,
    SuspensionAsked,
    SuspensionKept,
    SuspensionUndone,
    ThawRefused,
    ThawUndone,
)

THAWS = 3
"""Tries to bring an attempt back before it is given up."""

_SUSPEND = "suspend-"
_STORE = "store-"
_RESUME = "resume-"


@attrs.frozen
class Move:
    """What is known of the suspensions of an attempt: of the latest, and of all ``number`` and ``paused_ns``."""

    number: int = 0
    """How many there were, this one included."""
    stage: Stage = Stage.RUNS
    since_wall_ns: int = 0
    """When what is told of it began to be so."""
    key: str = ""
    """What whoever asked for it called it."""
    tier: str = ""
    force: bool = False
    labels: Labels = ()
    folder: str = ""
    vacated: bool = False
    """Whether its worker has said that nothing of it runs."""
    ports: tuple[tuple[str, int], ...] = ()
    host: str = ""
    process_started_wall_ns: int = 0
    log_offset: int = 0
    """The bytes of its log, final while it is suspended."""
    checkpoint: str = ""
    node: str = ""
    reason: str = ""
    wanted: bool = False
    """Whether it is to go on as soon as it can."""
    resume_key: str = ""
    """What whoever asked last that it goes on called that."""
    grant: str = ""
    """The grant that its worker has; empty if it began there."""
    thawing: bool = False
    """Whether somebody may be bringing it back."""
    tries: int = 0
    """Thaws that were undone."""
    paused_ns: int = 0
    """How long it was suspended altogether, until it last ran again."""
    suspended_wall_ns: int = 0
    given_up: str = ""
    """Why it is being stopped; empty if it is not."""
    away: bool = False
    """Whether it has no worker."""
    gpus: tuple[tuple[str, str], ...] = ()
    """While it is brought back: which of its GPUs become others, by UUID."""
    returning: bool = False
    """Whether its worker's machine cannot bring it back, so that its grant is being taken back."""
    returns: int = 0
    """How often in this suspension it was SUSPENDED again because a machine did not take it."""
    doubts: tuple[tuple[str, int, int], ...] = ()
    """Machines that did not take it in this suspension: which, how often, and until when they are not to be tried."""
    store: bool = False
    """Whether its checkpoint is to come to the repository."""
    storing: bool = False
    """Whether it is on its way there."""
    repository: str = ""
    """The URL of the repository that has it, and that no machine has it."""
    at: str = ""
    """The machine on which it is brought back, or was last; empty: the one that has the checkpoint."""
    stores_failed: int = 0
    """How often its checkpoint did not come to the repository in this suspension."""
    back: int = 0
    """Of one that has gone back to a checkpoint that was made while it ran: the number of that; else 0. Such a
    checkpoint is kept, and has no part in what a suspension leaves behind."""
    yields_to: str = ""
    """Of one that has to give way to a task of a higher band: the job of that, for people; empty once it comes back."""
    stopped_to_yield: bool = False
    """Whether it is being stopped for that."""
    yielding: bool = False
    """Whether the latest suspension is for that, and nobody's order."""
    life_lost: bool = False
    """Whether a worker was lost that had it to bring it back: it may have lived there, beyond its checkpoint."""

    @property
    def anew(self) -> bool:
        """Whether it has lived on after its checkpoint was made, as far as anybody knows, and that life is over."""
        return self.back > 0 or self.life_lost


def freeze_key(uid: str, move: Move) -> str:
    """Name a suspension, for ever: by its attempt, and how many that had before."""
    return f"{_SUSPEND}{uid}-{move.number}"


def store_key(freeze: str, failed: int) -> str:
    """Name the move to the repository of what the suspension called ``freeze`` (:func:`freeze_key`) made.

    ``failed``: how many were made before, and came to nothing.
    """
    return _STORE + freeze.removeprefix(_SUSPEND) + (f"-{failed}" if failed else "")


def thaw_key(uid: str, move: Move) -> str:
    """Name one try to bring it back."""
    return f"{_RESUME}{uid}-{move.number}-{move.returns * THAWS + move.tries + 1}"


def thaw_keys(freeze: str, returns: int) -> tuple[str, ...]:
    """Name the tries there may be to bring back what the suspension called ``freeze`` (:func:`freeze_key`) made.

    Those under the latest grant, and the one before that: a machine that was given up because it took too long may be
    at it still. The others (``returns`` machines did not take it) have ended.
    """
    suspension, end = freeze.removeprefix(_SUSPEND), (returns + 1) * THAWS + 1
    return tuple(f"{_RESUME}{suspension}-{number}" for number in range(max(1, end - 2 * THAWS), end))


def grant_of(uid: str, move: Move) -> str:
    """Name the grant to go on: one for each suspension and each time it was taken back, since none is offered twice.

    Those that earlier versions gave begin otherwise; nothing reads a name.
    """
    return f"grant-{uid}-{move.number}" + (f"-{move.returns}" if move.returns else "")


def drop_of(uid: str, move: Move | None) -> DropCheckpoint | None:
    """Say what is to be removed when an attempt ends, or runs again; None: nothing."""
    if move is None or move.stage not in MARKED or move.back:
        return None
    tried = dict.fromkeys((*(node for node, _, _ in move.doubts), *((move.at,) if move.at else ())))
    return DropCheckpoint(
        freeze_key(uid, move),
        move.checkpoint,
        move.node,
        move.returns,
        move.repository,
        tuple(tried),
        move.stores_failed,
    )


def log_end_unknown(move: Move, seen: Observation) -> bool:
    """Tell whether nobody can say how long the log of an attempt that ends now is.

    Its worker went before it said so, and no other one can: there is none yet, or it only has a grant to bring the
    attempt back. One that ran tells how its process ended, or of bytes.
    """
    if move.vacated or not (move.away or move.stage is Stage.RESUMING):
        return False
    return move.away or (seen.exit_code is None and not seen.log_offset)


def resumption_of(move: Move, gpus: tuple[str, ...]) -> Resumption | None:
    """Return the grant by which the worker of an attempt has it.

    None if it began there. ``gpus``: those that it had.
    """
    if not move.grant:
        return None
    host = "" if move.repository else move.host  # on another machine it is reached at another address
    return Resumption(
        move.grant,
        move.folder,
        move.process_started_wall_ns,
        move.paused_ns,
        move.ports,
        gpus,
        host,
        anew=move.anew,
        log_offset=move.log_offset if move.anew else 0,
    )


def waits_for_worker(move: Move) -> bool:
    """Tell whether a worker is wanted for it."""
    return move.stage is Stage.SUSPENDED and move.wanted and not move.storing


def to_be_stored(move: Move) -> bool:
    """Tell whether its checkpoint should be in the repository, and is not on its way there: one more try is to come."""
    return move.stage is Stage.SUSPENDED and move.store and not (move.repository or move.storing or move.wanted)


def thawed_on(move: Move) -> str:
    """Return the machine on which it is brought back."""
    return move.at or move.node


def waiting_for(uid: str, index: int, move: Move, wall_ns: int) -> SuspendedAttempt:
    """Say what a worker is wanted for, as of this moment."""
    return SuspendedAttempt(uid, index, move.node, doubted(move, wall_ns), move.repository)


def doubted(move: Move, wall_ns: int) -> tuple[str, ...]:
    """Return the machines that are not to be tried at this moment."""
    return tuple(node for node, _, until_ns in move.doubts if until_ns > wall_ns)


def times_doubted(move: Move, node: str) -> int:
    """Return how often this machine did not take it."""
    return next((times for each, times, _ in move.doubts if each == node), 0)


def view_of(index: int, uid: str, move: Move) -> SuspensionView:
    """Return what is told of it."""
    return SuspensionView(
        index=index,
        uid=uid,
        phase=TOLD[move.stage],
        key=move.key,
        checkpoint=move.checkpoint,
        node=_lies_on(move),
        reason=_sentence(move),
        since_wall_ns=move.since_wall_ns,
        resuming=move.wanted,
        repository=move.repository,
        storing=move.storing,
    )


def _lies_on(move: Move) -> str:
    if move.stage is Stage.RESUMING:
        return thawed_on(move)
    return "" if move.repository else move.node


def left(before: Move | None, then: Move | None, wall_ns: int) -> PhaseOver | None:
    """Say which phase was left between two moments (``then`` None: its attempt ended); None: it is in the same."""
    phase = Suspension.NONE if before is None else TOLD[before.stage]
    if then is not None and TOLD[then.stage] is phase:
        return None
    if before is None or phase is Suspension.NONE:
        return None if then is None else PhaseOver(phase, "asked", 0)
    outcome = "ended" if then is None else _OUTCOMES[phase, TOLD[then.stage]]
    return PhaseOver(phase, outcome, max(0, wall_ns - before.since_wall_ns))


_OUTCOMES: Mapping[tuple[Suspension, Suspension], str] = {
    (Suspension.SUSPENDING, Suspension.SUSPENDED): "suspended",
    (Suspension.SUSPENDING, Suspension.NONE): "undone",
    (Suspension.SUSPENDED, Suspension.RESUMING): "resuming",
    (Suspension.RESUMING, Suspension.NONE): "resumed",
    (Suspension.RESUMING, Suspension.SUSPENDED): "unplaced",
}


def _sentence(move: Move) -> str:
    """Say what the phase and the checkpoint do not say already: readers see those beside it."""
    if move.given_up:
        return f"given up: {move.given_up}"
    if move.yielding and move.yields_to and move.stage in (*SUSPENDING, Stage.SUSPENDED):
        return "; ".join(each for each in (f"it gives way to {move.yields_to}", _sentence_of_stage(move)) if each)
    return _sentence_of_stage(move)


def _sentence_of_stage(move: Move) -> str:
    match move.stage:
        case Stage.RUNS:
            return move.reason
        case Stage.SUSPENDED if move.back and move.wanted:
            return f"{move.reason}; waits for a worker with room on {move.node}, to go on from its checkpoint there"
        case Stage.ASKED:
            return "its worker prepares it"
        case Stage.FREEZING if move.away:
            return f"{move.reason}; nobody has said yet what became of its freeze"
        case Stage.FROZEN:
            return "it is frozen, and its worker has not said so yet"
        case Stage.SUSPENDED if move.storing:
            return "its checkpoint is on its way to the repository" + ("; it goes on after that" if move.wanted else "")
        case Stage.SUSPENDED if move.wanted:
            where = f"a machine that has {move.repository}" if move.repository else move.node
            waits = f"waits for a worker with room on {where}"
            return f"{waits}; {move.reason}" if move.reason else waits
        case Stage.SUSPENDED:
            return move.reason
        case Stage.RESUMING if move.returning:
            return f"{move.reason}; its worker gives it back"
        case Stage.RESUMING if move.tries:
            return f"try {move.tries} of {THAWS} did not bring it back: {move.reason}"
    return ""


def after(move: Move | None, records: Iterable[Any]) -> Move:
    """Return what a suspension is once these records were applied."""
    move = Move() if move is None else move
    for record in records:
        then = _APPLY[type(record)](move, record)
        same = TOLD[then.stage] is TOLD[move.stage]
        move = then if same else attrs.evolve(then, since_wall_ns=record.wall_ns)
    return move


def _asked(move: Move, record: SuspensionAsked) -> Move:
    return Move(
        number=move.number + 1,
        stage=Stage.ASKED,
        since_wall_ns=move.since_wall_ns,
        key=record.key,
        tier=record.tier,
        force=record.force,
        labels=record.labels,
        store=record.store,
        yields_to=move.yields_to,
        yielding=record.yields,
        folder=move.folder,
        ports=move.ports,
        host=move.host,
        process_started_wall_ns=move.process_started_wall_ns,
        resume_key=move.resume_key,
        grant=move.grant,
        paused_ns=move.paused_ns,
    )


def _freezing(move: Move, record: AttemptFreezing) -> Move:
    return attrs.evolve(
        move,
        stage=Stage.FREEZING,
        folder=record.folder or move.folder,
        ports=record.ports or move.ports,
        host=record.host or move.host,
        process_started_wall_ns=record.process_started_wall_ns or move.process_started_wall_ns,
    )


def _vacated(move: Move, record: AttemptVacated) -> Move:
    return attrs.evolve(
        move,
        vacated=True,
        folder=record.folder or move.folder,
        ports=record.ports or move.ports,
        host=record.host or move.host,
        process_started_wall_ns=record.process_started_wall_ns or move.process_started_wall_ns,
        log_offset=record.log_offset,
    )


def _frozen(move: Move, record: AttemptFrozen) -> Move:
    return attrs.evolve(move, stage=Stage.FROZEN, checkpoint=record.checkpoint, node=record.node)


def _deserted(move: Move, record: AttemptDeserted) -> Move:
    return attrs.evolve(move, away=True, reason=record.reason, grant="")


def _suspended(move: Move, record: AttemptSuspended) -> Move:
    wall_ns = record.wall_ns
    return attrs.evolve(
        move,
        stage=Stage.SUSPENDED,
        away=True,
        reason="",
        grant="",
        suspended_wall_ns=wall_ns,
        storing=move.store,
    )


def _stored(move: Move, record: AttemptStored) -> Move:
    return attrs.evolve(move, storing=False, repository=record.repository)


def _store_failed(move: Move, record: StoreFailed) -> Move:
    return attrs.evolve(move, storing=False, reason=record.reason, stores_failed=move.stores_failed + 1)


def _store_begun(move: Move, record: StoreBegun) -> Move:
    return attrs.evolve(move, storing=True, reason="")


def _undone(move: Move, record: SuspensionUndone) -> Move:
    return attrs.evolve(move, stage=Stage.RUNS, reason=record.reason, wanted=False, checkpoint="", node="")


def _wanted(move: Move, record: ResumptionWanted) -> Move:
    return attrs.evolve(move, wanted=record.wanted, resume_key=record.key if record.wanted else move.resume_key)


def _resuming(move: Move, record: AttemptResuming) -> Move:
    return attrs.evolve(
        move,
        stage=Stage.RESUMING,
        away=False,
        wanted=False,
        yields_to="",
        yielding=False,
        grant=record.grant,
        gpus=(),
        thawing=False,
        at=record.node,
        reason="",
        tries=0,
        paused_ns=_paused_until(move, record.wall_ns),
        suspended_wall_ns=record.wall_ns,
    )


def _thawing(move: Move, record: AttemptThawing) -> Move:
    return attrs.evolve(move, thawing=True, gpus=record.gpus)


def _thaw_undone(move: Move, record: ThawUndone) -> Move:
    return attrs.evolve(move, tries=move.tries + 1, reason=record.reason)


def _refused(move: Move, record: ThawRefused) -> Move:
    return attrs.evolve(move, returning=True, reason=record.reason)


def _unplaced(move: Move, record: AttemptUnplaced) -> Move:
    others = tuple(doubt for doubt in move.doubts if doubt[0] != record.node)
    doubt = (record.node, times_doubted(move, record.node) + 1, record.until_wall_ns)
    return attrs.evolve(
        move,
        stage=Stage.SUSPENDED,
        away=True,
        wanted=True,
        grant="",
        gpus=(),
        thawing=False,
        returning=False,
        tries=0,
        returns=move.returns + 1,
        doubts=(*others, doubt),
        reason=record.reason or move.reason,
        life_lost=move.life_lost or record.lost,
    )


def _resumed(move: Move, record: AttemptResumed) -> Move:
    return attrs.evolve(
        move,
        stage=Stage.RUNS,
        reason="",
        thawing=False,
        returning=False,
        returns=0,
        doubts=(),
        repository="",
        at="",
        vacated=False,
        checkpoint="",
        node="",
        paused_ns=_paused_until(move, record.wall_ns),
    )


def went_back(before: Move | None, kept: CopyKept, record: WentBack) -> Move:
    """Return what an attempt is that goes back to a checkpoint: suspended, as of when that was made."""
    ending = record.end.ending.value
    reason = record.end.reason
    return Move(
        number=1 if before is None else before.number + 1,
        stage=Stage.SUSPENDED,
        since_wall_ns=record.wall_ns,
        folder=kept.folder,
        vacated=True,
        ports=kept.ports,
        host=kept.host,
        process_started_wall_ns=kept.process_started_wall_ns,
        log_offset=record.log_offset,
        checkpoint=kept.checkpoint,
        node=kept.node,
        reason=f"it ended as {ending}: {reason}" if reason else f"it ended as {ending}",
        wanted=True,
        resume_key="" if before is None else before.resume_key,
        paused_ns=kept.paused_ns,
        suspended_wall_ns=kept.taken_wall_ns,
        away=True,
        back=kept.number,
    )


def _given_up(move: Move, record: AttemptGivenUp) -> Move:
    return attrs.evolve(move, given_up=record.reason)


def _yields(move: Move, record: AttemptYields) -> Move:
    return attrs.evolve(move, yields_to=record.to, stopped_to_yield=record.kill)


def _paused_until(move: Move, wall_ns: int) -> int:
    return move.paused_ns + max(0, wall_ns - move.suspended_wall_ns)


_APPLY: Mapping[type, Callable[[Move, Any], Move]] = {
    SuspensionAsked: _asked,
    AttemptFreezing: _freezing,
    AttemptVacated: _vacated,
    AttemptFrozen: _frozen,
    AttemptDeserted: _deserted,
    AttemptSuspended: _suspended,
    SuspensionUndone: _undone,
    ResumptionWanted: _wanted,
    AttemptResuming: _resuming,
    AttemptThawing: _thawing,
    ThawUndone: _thaw_undone,
    ThawRefused: _refused,
    AttemptUnplaced: _unplaced,
    AttemptStored: _stored,
    StoreFailed: _store_failed,
    StoreBegun: _store_begun,
    AttemptResumed: _resumed,
    AttemptGivenUp: _given_up,
    AttemptYields: _yields,
}

CHANGES = tuple(_APPLY)
"""The records that change what is known of an attempt's suspensions."""

_FIELDS = tuple(field.name for field in attrs.fields(Move))


def keep(index: int, move: Move) -> SuspensionKept:
    """Return what a snapshot holds of it."""
    return SuspensionKept(index=index, **{name: getattr(move, name) for name in _FIELDS})


def kept(record: SuspensionKept) -> Move:
    """Return what :func:`keep` was given."""
    return Move(**{name: getattr(record, name) for name in _FIELDS})
