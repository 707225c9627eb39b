"""The facts that a worker keeps over its own death: which attempts it had, how far each got, how it ended.

They stand below the worker's cache folder, and are worth as much as the processes they speak of: a machine that lost
one has lost the other. No token, environment or payload is ever among them.
"""

from __future__ import annotations

from iriscw.jobs.model import AttemptEnd, Ending
from iriscw.jobs.traits import ResultFacts
from iriscw.journal.records import record, upcaster
from iriscw.runtime.vocabulary import message
from iriscw.worker.model import StopCause

# Of /attempts


@record("worker.attempt_known")
@message
class AttemptKnown:
    """An attempt was given to this worker."""

    uid: str


@record("worker.attempt_dropped")
@message
class AttemptDropped:
    """An attempt was released. Its uid is remembered for a while: it must not start again."""

    uid: str


@record("worker.gpus_assigned")
@message
class GpusAssigned:
    """These GPUs, by UUID, are this attempt's own. ``grant``: of its grant to come back; empty for its start."""

    uid: str
    gpus: tuple[str, ...]
    grant: str = ""


@record("worker.gpus_returned")
@message
class GpusReturned:
    """The GPUs of this attempt are free again: nothing of it runs."""

    uid: str


# Of /attempts/<uid>


@record("worker.attempt_accepted")
@message
class AttemptAccepted:
    """It is being prepared."""

    task_id: str


@record("worker.attempt_equipped")
@message
class AttemptEquipped:
    """It has these GPUs, by UUID. Durable before anything of it can use one."""

    gpus: tuple[str, ...]


@record("worker.attempt_starting")
@message
class AttemptStarting:
    """Its process is being started. Durable before that begins: the uid is never started again."""


@record("worker.attempt_started")
@message
class AttemptStarted:
    """Its process runs."""

    wall_ns: int
    timeout_ns: int
    ports: tuple[tuple[str, int], ...]
    host: str = ""
    rendezvous_port: int = 0


@record("worker.attempt_suspending")
@message
class AttemptSuspending:
    """It is being frozen, by whoever does that. Durable before anybody is told that it may be."""


@record("worker.attempt_continued")
@message
class AttemptContinued:
    """It was not frozen after all."""


@record("worker.attempt_suspended")
@message
class AttemptSuspended:
    """Nothing of it runs any more, and it has not ended."""

    wall_ns: int
    folder: str
    log_bytes: int = 0


@record("worker.attempt_granted")
@message
class AttemptGranted:
    """It may be brought back. Durable before it is granted: from here on it may run."""

    task_id: str
    grant: str
    folder: str
    started_wall_ns: int
    timeout_ns: int
    paused_ns: int
    ports: tuple[tuple[str, int], ...]
    host: str = ""
    anew: bool = False
    log_offset: int = 0


@record("worker.attempt_returning")
@message
class AttemptReturning:
    """Its grant is to be taken back, so that it may come back elsewhere. Durable before that is done.

    ``reason``: why this worker cannot let it go on; empty: it was told to.
    """

    reason: str = ""


@record("worker.attempt_returned")
@message
class AttemptReturned:
    """Its grant was taken back before anybody had taken it: it is suspended, as before."""


@record("worker.attempt_thawed")
@message
class AttemptThawed:
    """It runs again."""


@record("worker.attempt_stopping")
@message
class AttemptStopping:
    """It was told to end."""

    cause: StopCause
    grace_ns: int


@record("worker.attempt_ended", version=3)
@message
class AttemptEnded:
    """It has ended; nothing of it runs."""

    end: AttemptEnd
    wall_ns: int
    was_started: bool
    log_bytes: int = 0
    result: ResultFacts | None = None


@upcaster("worker.attempt_ended", from_version=1)
def name_the_ending(fields: dict[str, object]) -> dict[str, object]:
    """Version 1 had words of the worker's own, and one for both ends that are the worker's doing."""
    outcome = str(fields.pop("outcome")).upper()
    if outcome == "WORKER_FAILED":
        outcome = (Ending.WORKER_LOST if fields["was_started"] else Ending.REFUSED).value
    return {**fields, "ending": outcome}


@upcaster("worker.attempt_ended", from_version=2)
def gather_the_end(fields: dict[str, object]) -> dict[str, object]:
    """Version 2 had the parts of an end beside each other, and a signal in a field of its own."""
    signal, code = fields.pop("exit_signal", None), fields.pop("exit_code", None)
    end = {"ending": fields.pop("ending"), "fault": fields.pop("fault", None)}
    return {**fields, "end": {**end, "exit_code": -signal if isinstance(signal, int) else code}}
