"""One attempt on its worker, as its records made it; :mod:`iriscw.worker.lifecycle` has what is decided about it."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from iriscw.jobs.model import Observation, Suspension, TaskState
from iriscw.runtime.vocabulary import replace
from iriscw.worker.messages import RunAttempt
from iriscw.worker.model import SEEN_AS, AttemptPhase as Phase, Order
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

TRANSITIONS: Mapping[Phase, Mapping[type, Phase]] = {
    Phase.NEW: {AttemptAccepted: Phase.FETCHING, AttemptGranted: Phase.RESUMING, AttemptEnded: Phase.ENDED},
    Phase.FETCHING: {AttemptStarting: Phase.STARTING, AttemptEnded: Phase.ENDED},
    Phase.STARTING: {
        AttemptStarted: Phase.RUNNING,
        AttemptStopping: Phase.WITHDRAWN,
        AttemptEnded: Phase.ENDED,
    },
    Phase.WITHDRAWN: {
        AttemptStarted: Phase.STOPPING,
        AttemptStopping: Phase.WITHDRAWN,
        AttemptEnded: Phase.ENDED,
    },
    Phase.RUNNING: {
        AttemptSuspending: Phase.SUSPENDING,
        AttemptStopping: Phase.STOPPING,
        AttemptEnded: Phase.ENDED,
    },
    Phase.SUSPENDING: {
        AttemptContinued: Phase.RUNNING,
        AttemptSuspended: Phase.SUSPENDED,
        AttemptStopping: Phase.STOPPING,
        AttemptEnded: Phase.ENDED,
    },
    Phase.SUSPENDED: {AttemptGranted: Phase.RESUMING, AttemptEnded: Phase.ENDED},
    Phase.RESUMING: {
        AttemptThawed: Phase.RUNNING,
        AttemptReturning: Phase.RETURNING,
        AttemptStopping: Phase.REVOKING,
        AttemptEnded: Phase.ENDED,
    },
    Phase.RETURNING: {
        AttemptThawed: Phase.RUNNING,
        AttemptReturned: Phase.SUSPENDED,
        AttemptStopping: Phase.REVOKING,
        AttemptEnded: Phase.ENDED,
    },
    Phase.REVOKING: {
        AttemptThawed: Phase.STOPPING,
        AttemptStopping: Phase.REVOKING,
        AttemptEnded: Phase.ENDED,
    },
    Phase.STOPPING: {AttemptStopping: Phase.STOPPING, AttemptEnded: Phase.ENDED},
    Phase.ENDED: {},
}
"""Which record may follow in which phase, and where it leads; ``AttemptEquipped`` leads nowhere."""


@attrs.define(eq=False)
class Attempt:
    """One attempt, as its records say."""

    uid: str
    task_id: str = ""
    phase: Phase = Phase.NEW
    stop: AttemptStopping | None = None
    started: AttemptStarted | None = None
    ended: AttemptEnded | None = None
    suspended: AttemptSuspended | None = None
    granted: AttemptGranted | None = None
    gpus: tuple[str, ...] = ()
    waiting: Order | None = None
    """What it was ordered, once all is here and only its gang's leader is missing. Lost with this life of the worker,
    as what is fetched is: then it has never begun."""
    released: Order | None = None
    """The order that need not wait for the leader, where it came while something was still being fetched."""
    wanted_gpus: int = 0
    """How many GPUs it asks for, known once all is here."""
    permitted: bool = False
    """Whether this life of the worker has offered what was granted."""
    why_returned: str = ""
    """Why its grant is taken back, or was, if this worker could not let it go on."""
    returned: str = ""
    """Of one that is SUSPENDED because its grant was taken back here: that grant."""
    revoked: bool = False
    """Whether it ended because its grant was taken back: frozen as it was, it may be granted again, here or elsewhere.
    """
    leaving: bool = False
    """Whether this life of the worker is letting it go, or has."""
    left: bool = False
    """Whether it has, so that this actor is about to end."""
    next_run: RunAttempt | None = None
    """The order by which it comes back, where that came meanwhile: for the actor that it gets after this one."""

    def observation(self) -> Observation:
        """Return what is reported of it."""
        started, ended = self.started, self.ended
        state, suspension = SEEN_AS.get(self.phase, (TaskState.ASSIGNED, Suspension.NONE))
        seen = Observation(
            uid=self.uid,
            state=state,
            suspension=suspension,
            started=started is not None,
            process_started_wall_ns=started.wall_ns if started else 0,
            ports=started.ports if started else (),
            gpus=self.gpus,
            host=started.host if started else "",
            rendezvous_port=started.rendezvous_port if started else 0,
            life="" if self.granted is None else self.granted.grant,
        )
        if self.phase is Phase.SUSPENDED:
            seen = replace(seen, withdrawn=self.returned, withdrawn_reason=self.why_returned if self.returned else "")
            left = self.suspended  # by this worker; else another one has told
            return seen if left is None else replace(seen, folder=left.folder, log_offset=left.log_bytes)
        if self.phase is Phase.RESUMING and self.granted is not None and self.permitted:
            return replace(seen, folder=self.granted.folder)
        if ended is None:
            return seen
        return replace(
            seen,
            state=TaskState.RUNNING if ended.was_started else TaskState.ASSIGNED,
            started=ended.was_started,
            end=ended.end,
            log_offset=ended.log_bytes,
            result=ended.result,
            process_ended_wall_ns=ended.wall_ns,
        )


def evolve(attempt: Attempt, record: object) -> None:
    """Apply a record."""
    if isinstance(record, AttemptEquipped):
        attempt.gpus = record.gpus
        return
    before = attempt.phase
    attempt.phase = TRANSITIONS[before][type(record)]
    match record:
        case AttemptAccepted():
            attempt.task_id = record.task_id
        case AttemptStarted():
            attempt.started = record
        case AttemptSuspended():
            attempt.suspended, attempt.returned = record, ""
        case AttemptGranted():
            attempt.task_id, attempt.granted, attempt.permitted = record.task_id, record, False
            attempt.returned, attempt.why_returned = "", ""
            attempt.started = AttemptStarted(record.started_wall_ns, record.timeout_ns, record.ports, record.host)
        case AttemptReturning(reason=reason):
            attempt.why_returned = reason
        case AttemptReturned():
            assert attempt.granted is not None
            attempt.returned = attempt.granted.grant
        case AttemptStopping():
            attempt.stop = sterner(attempt.stop, record)
        case AttemptEnded():
            attempt.ended, attempt.revoked = record, before is Phase.REVOKING


def sterner(before: AttemptStopping | None, after: AttemptStopping) -> AttemptStopping:
    """The first cause stays; the grace only gets shorter."""
    return after if before is None else AttemptStopping(before.cause, min(before.grace_ns, after.grace_ns))
