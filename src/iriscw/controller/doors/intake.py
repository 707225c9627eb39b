"""What workers say of attempts: whose word counts, what is stored of it, and which ends wait for it.

A worker is believed about the attempts that it was given (``HeldAttempts.owns``) and about no other: neither a log line
nor a result, which clients unpickle, nor an end of another worker's attempt comes from it.
What it says of strangers changes nothing, as the protocol demands, and the stream goes on: a worker that was told to
forget an attempt long ago may still have it. Its link hears that it has *something* of that name, and has it stopped or
forgotten; of an attempt that the link wants after all, it hears that nothing can be had of it any more.

An end waits for the rest of the log and for the result, because the worker is told to forget an attempt as soon as its
end has been passed on. It does not wait for ever: for a log of which nothing comes it waits a while; for a result not
at all, once it is known never to be kept because it is too big, is not what was announced, or does not come. A success
without its result is a failure of the task. Only for the object store, where a result belongs there, an end waits as
long as it takes: the attempt is held up by no fault of its own.
"""

from __future__ import annotations

import logging

import anyio

from iriscw._errors import InvalidArgument
from iriscw.controller.doors.rules import MAX_HELD_ATTEMPTS
from iriscw.controller.doors.streams import PendingEnd, WorkerConnection
from iriscw.controller.granted_attempts import HeldAttempts
from iriscw.controller.progress import ProgressBoard
from iriscw.controller.stores.logs import AttemptLog, LogStore
from iriscw.controller.stores.result_model import Reference, ResultVerdict
from iriscw.controller.stores.results import ResultStore
from iriscw.jobs import wire
from iriscw.jobs.model import AttemptEnd, Ending, Observation, Observed, Suspension, TaskState
from iriscw.jobs.traits import Fault
from iriscw.proto.iriscw import v1
from iriscw.rpc.limits import MAX_PROGRESS_CHARS, MAX_PROGRESS_MILLI
from iriscw.runtime.vocabulary import replace

log = logging.getLogger(__name__)

LOG_PATIENCE_S = 30.0
"""How long an end waits for a log of which nothing comes: as long as a worker waits for an acknowledgement."""

RESULT_PATIENCE_S = 300.0
"""How long an end waits for a result when nothing of the attempt comes: in the end it costs the attempt."""

LONGEST_STEP_S = 15.0
"""What one heartbeat adds to the wait at most, or their interval if that is longer: while this process stood still, no
worker could have been heard."""

MAX_UID_CHARS = 64
"""Characters of an attempt's name, as a worker says it; ours have 16."""

MAX_OFFSET_BYTES = 1 << 62
"""Where a piece may begin: what it makes of an offset must fit into one, too."""


class Intake:
    """Takes what all workers say of attempts.

    Args:
        logs: takes log chunks.
        results: takes result chunks.
        held: which attempts each worker was given.
        progress: takes how far they are.
    """

    def __init__(
        self, logs: LogStore, results: ResultStore, held: HeldAttempts, progress: ProgressBoard | None = None
    ) -> None:
        self._progress = progress or ProgressBoard()
        self._logs = logs
        self._results = results
        self._held = held
        self._awaited: dict[str, WorkerConnection] = {}
        """Where the ends wait whose results are on their way to the object store."""
        results.settled = self._settled
        self.strangers = 0
        """Messages that were not believed, since the start."""

    def _known(self, uid: str, connection: WorkerConnection) -> AttemptLog | None:
        """Return what is known of an attempt, if this worker was given it.

        Raises:
            InvalidArgument: there can be no attempt of this name.
        """
        if len(uid) > MAX_UID_CHARS:
            raise InvalidArgument(f"the name of an attempt has at most {MAX_UID_CHARS} characters, not {len(uid)}")
        known = self._logs.attempt(uid)
        if known is not None and self._held.owns(connection.key, uid):
            return known
        self.strangers += 1
        if not connection.strangers:
            text = "worker %s#%s speaks of attempt %r, which it was not given: not believed (said once a stream)"
            log.warning(text, *connection.key, uid)
        connection.strangers += 1
        return None

    def take_progress(self, sent: v1.ProgressReports, connection: WorkerConnection) -> None:
        """Take how far attempts say that they are.

        Raises:
            InvalidArgument: no task could have said so, or there are more attempts than a worker has.
        """
        if len(sent.reports) > MAX_HELD_ATTEMPTS:
            raise InvalidArgument(f"a worker holds at most {MAX_HELD_ATTEMPTS} attempts")
        for report in sent.reports:
            self._take_report(report, connection)

    def _take_report(self, report: v1.ProgressReport, connection: WorkerConnection) -> None:
        uid, said = report.attempt_uid, report.progress
        known = self._logs.attempt(uid)
        if known is None or not self._held.owns(connection.key, uid):
            return  # nothing to wonder at: it may have been told to forget the attempt while this was on its way
        if said is None:
            if len(report.doing) > MAX_PROGRESS_CHARS:
                raise InvalidArgument(f"what is done for an attempt has at most {MAX_PROGRESS_CHARS} characters")
            self._progress.put(known.job_id, known.index, known.uid, report.doing)
            return
        if not all(0 <= each <= MAX_PROGRESS_MILLI for each in (said.done_milli, said.total_milli)):
            raise InvalidArgument(f"progress is from 0 to {MAX_PROGRESS_MILLI} thousandths")
        if len(said.text) > MAX_PROGRESS_CHARS:
            raise InvalidArgument(f"progress has at most {MAX_PROGRESS_CHARS} characters of text, not {len(said.text)}")
        self._progress.put(known.job_id, known.index, known.uid, said)

    async def take_log(self, chunk: v1.LogChunk, connection: WorkerConnection) -> None:
        """Store a piece of a log, and acknowledge it; pass the end on that waited for it.

        Raises:
            InvalidArgument: it is not a piece of a log.
            LogStoreBroken: it cannot be stored.
            ResultStoreBroken: the result cannot be kept.
        """
        uid = chunk.attempt_uid
        _check_offset(chunk.offset)
        if self._known(uid, connection) is None:
            return
        waiting = _moved(uid, connection)
        end = await self._logs.append(uid, chunk.offset, chunk.data)
        if end is None:
            return
        await _acknowledge_log(uid, end, connection)
        if waiting is not None and end >= waiting.sent.log_end_offset:
            await self._pass_on(waiting, connection)

    async def take_result(self, chunk: v1.ResultChunk, connection: WorkerConnection) -> None:
        """Store a piece of a result, and acknowledge it; pass the end on that waited for it.

        A worker that outlived the controller sends what it has before the link orders anything, and only once.

        Raises:
            InvalidArgument: it is not a piece of a result.
            ResultStoreBroken: it cannot be stored.
        """
        uid = chunk.attempt_uid
        _check_offset(chunk.offset)
        known = self._known(uid, connection)
        if known is None:
            return
        waiting = _moved(uid, connection)
        self._results.begin(known.job_id, known.index, known.number, uid)
        end = await self._results.append(uid, chunk.offset, chunk.data)
        if end is None:
            return
        await _acknowledge_result(uid, end, connection)
        if waiting is not None and not await self._pass_on(waiting, connection):
            stored = self._results.stored(uid)
            if stored < end:  # all is wanted again, which a worker hears as less than before
                await _acknowledge_result(uid, stored, connection)

    def _settled(self, uid: str) -> None:
        connection = self._awaited.pop(uid, None)
        if connection is not None:
            connection.settled[uid] = None
            connection.settling.ring()

    async def pass_settled(self, connection: WorkerConnection) -> None:
        """Pass ends on whose results have come into the object store; until cancelled.

        Raises:
            ResultStoreBroken: see :meth:`take_result`.
        """
        while True:
            await connection.settling.wait()
            while connection.settled:
                uid = next(iter(connection.settled))
                del connection.settled[uid]
                async with connection.turn:
                    waiting = connection.pending_ends.get(uid)
                    if waiting is not None and not await self._pass_on(waiting, connection):
                        # The disk has spoilt it: what is wanted again, a worker hears as less than before.
                        await _acknowledge_result(uid, self._results.stored(uid), connection)

    async def _pass_on(self, waiting: PendingEnd, connection: WorkerConnection, *, patient: bool = True) -> bool:
        """Tell the link of an end, or a suspension, if it need not wait any longer. Gives which."""
        seen = await self.observation(waiting.sent, connection, patient=patient)
        settled = seen.ending is not None or seen.suspension is Suspension.SUSPENDED
        if settled:
            await connection.report(Observed((seen,)))
        return settled

    async def observation(
        self, sent: v1.AttemptObserved, connection: WorkerConnection, *, patient: bool = True
    ) -> Observation:
        """Read an observation; keep an end, or a suspension, back until the attempt's log and result are here.

        Args:
            sent: the observation.
            connection: of the worker whose it is.
            patient: whether to wait for the log.

        Raises:
            InvalidArgument: it is of no attempt, or of one more that the worker was not given than any can hold.
            ResultStoreBroken: the result cannot be kept.
        """
        uid = sent.attempt_uid
        known = self._known(uid, connection)
        if known is None:
            _note_stranger(uid, connection)
            return _of_a_stranger(sent)
        connection.note_process(sent)
        ended = wire.ending_of(sent) is not None
        verdict = await self._settle(sent.result, known) if ended and sent.result is not None else None
        whole = known.end >= sent.log_end_offset
        suspended = sent.suspension is v1.Suspension.SUSPENDED
        waits = verdict in (ResultVerdict.WANTED, ResultVerdict.WAITS) or (
            (ended or suspended) and not whole and patient
        )
        if verdict is ResultVerdict.WAITS:
            self._awaited[uid] = connection
        if not waits:
            connection.pending_ends.pop(uid, None)
        elif uid in connection.pending_ends:
            connection.pending_ends[uid].sent = sent
        else:
            connection.pending_ends[uid] = PendingEnd(sent)
            # Where the stores stand: a worker that knows better has to go back, because a machine lost what it had.
            await _acknowledge_log(uid, known.end, connection)
            if verdict is ResultVerdict.WANTED:
                await _acknowledge_result(uid, self._results.stored(uid), connection)
        if ended and whole:
            self._logs.finish(uid)
        seen = wire.read_observation(sent, logs_stored=known.end, with_end=not waits)
        if suspended and waits:  # whoever is told that it is lets its worker forget it, and the rest of its log
            return replace(seen, suspension=Suspension.SUSPENDING)
        if verdict is ResultVerdict.REFUSED and seen.end is not None and seen.end.ending is Ending.SUCCEEDED:
            refusal = self._results.refusal(uid)
            fault = Fault(type(refusal).__name__, str(refusal))
            return replace(seen, end=AttemptEnd(Ending.FAILED, seen.exit_code, fault), started=True)
        return seen

    async def _settle(self, sent: v1.ResultRef, known: AttemptLog) -> ResultVerdict:
        self._results.begin(known.job_id, known.index, known.number, known.uid)
        reference = Reference(sent.size_bytes, sent.sha256.hex(), sent.python_version)
        return await self._results.settle(known.uid, reference)

    async def pass_time(self, connection: WorkerConnection) -> None:
        """Take note of a heartbeat: an end that has waited too long waits no longer.

        Raises:
            ResultStoreBroken: what there is of the result cannot be removed.
        """
        now = anyio.current_time()
        step_s = min(now - connection.beat_at, max(LONGEST_STEP_S, connection.heartbeat_ms / 1000))
        connection.beat_at = now
        for uid, waiting in list(connection.pending_ends.items()):
            waiting.idle_s += step_s
            if waiting.idle_s >= RESULT_PATIENCE_S:
                await self._results.give_up(uid)
            if waiting.idle_s >= LOG_PATIENCE_S:
                await self._pass_on(waiting, connection, patient=False)


def _moved(uid: str, connection: WorkerConnection) -> PendingEnd | None:
    """Take note that something of an attempt came; give its end, if that waits."""
    waiting = connection.pending_ends.get(uid)
    if waiting is not None:
        waiting.idle_s = 0.0
    return waiting


async def _acknowledge_log(uid: str, offset: int, connection: WorkerConnection) -> None:
    await connection.send(v1.ControllerMessage(log_ack=v1.LogAck(attempt_uid=uid, offset=offset)))


async def _acknowledge_result(uid: str, offset: int, connection: WorkerConnection) -> None:
    await connection.send(v1.ControllerMessage(result_ack=v1.ResultAck(attempt_uid=uid, offset=offset)))


def _check_offset(offset: int) -> None:
    if not 0 <= offset <= MAX_OFFSET_BYTES:
        raise InvalidArgument(f"{offset} is not an offset")


def _note_stranger(uid: str, connection: WorkerConnection) -> None:
    """Take note of an attempt that the worker says it has and was not given, until the link says what becomes of it.

    Raises:
        InvalidArgument: these are more than a worker can hold, so they are made up.
    """
    connection.strange_uids[uid] = None
    if len(connection.strange_uids) > MAX_HELD_ATTEMPTS:
        raise InvalidArgument(f"a worker holds at most {MAX_HELD_ATTEMPTS} attempts, and was given none of these")


def _of_a_stranger(sent: v1.AttemptObserved) -> Observation:
    """Say no more than that there is something of this name: how it stands, or ended, is not believed.

    But that it is suspended: then the worker has not heard yet that it may let it go, and is told that again. It must
    not be told to stop it, because somebody else may have it by now.
    """
    if wire.ending_of(sent) is None:
        suspended = sent.suspension is v1.Suspension.SUSPENDED
        suspension = Suspension.SUSPENDED if suspended else Suspension.NONE
        return Observation(sent.attempt_uid, TaskState.ASSIGNED, suspension=suspension)
    reason = "it is over on a worker that is not known to have been given it"
    return Observation(sent.attempt_uid, TaskState.ASSIGNED, AttemptEnd(Ending.MISSING, fault=Fault("", reason)))
