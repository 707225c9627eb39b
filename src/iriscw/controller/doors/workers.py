"""The workers' door: one stream each, up with what is seen and written, down with what is wanted.

The stream of a worker, in order::

    Hello -> wait for a turn (:mod:`iriscw.controller.admission`), or Refused and the end
    ask the fleet (WorkerDialled) -> Welcome, or Refused and the end
    what it may hold (:mod:`~iriscw.controller.granted_attempts`) -> the link answers: DesiredSet -> ObservedSet
    -> deltas both ways

The door keeps three promises to the actors behind it:

* A log chunk is stored before anything that the worker sent after it is passed on, so ``logs_stored`` is true.
* An end is passed on only when the attempt's log is here, and what it returned, whole and verified, or known never to
  be (:mod:`iriscw.controller.doors.intake`).
* An attempt's log is opened, and its specification sent, before the worker is told to run it.

and one to everybody else: a worker is believed about the attempts that it was given, and about no other.

Flow control: each chunk is acknowledged when it is stored; the worker keeps at most a window of bytes unacknowledged.
Chunks do not pass through mailboxes. Contact is told to the fleet at most twice a second and conflated.

A heartbeat that says nothing new is answered where it is read, and its answer may overtake others: it says that the
worker was heard of, and nothing of what it sent before.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial

import anyio
import attrs

from iriscw._errors import (
    ActorRestarted,
    ActorStopped,
    AskTimeout,
    InvalidArgument,
    MailboxFull,
    NoSuchActor,
    SystemClosed,
)
from iriscw.cloud.wire import read_amount, read_attributes
from iriscw.controller.admission import RETRY_AFTER_MS, AdmissionGate
from iriscw.controller.doors.intake import Intake
from iriscw.controller.doors.rules import CHUNK_BYTES, MAX_HELD_ATTEMPTS, WORKER_RULES
from iriscw.controller.doors.streams import Switchboard, WorkerConnection
from iriscw.controller.errors import NoSuchBundle
from iriscw.controller.granted_attempts import HeldAttempts
from iriscw.controller.heartbeats import Heartbeats
from iriscw.controller.progress import ProgressBoard
from iriscw.controller.stores.logs import Named
from iriscw.controller.stores.stores import Stores
from iriscw.controller.tokens import ControllerTokens, WorkerPrincipal
from iriscw.fleet.messages import Accepted, WorkerDialled, WorkerHungUp, WorkerSeen
from iriscw.fleet.model import GroupConfig, WorkerRefused, slice_name, worker_path
from iriscw.jobs import wire
from iriscw.jobs.model import (
    AttemptEnd,
    Ending,
    Observation,
    Observed,
    Orders,
    Redial,
    RunOrder,
    StopOrder,
    StreamUp,
    TaskState,
    WorkerStream,
)
from iriscw.jobs.traits import Fault
from iriscw.objects.drivers.s3_place import with_own
from iriscw.objects.ports import ObjectNotFound
from iriscw.proto.iriscw import v1
from iriscw.rpc.context import call_context
from iriscw.rpc.errors import PermissionDenied, VersionMismatch
from iriscw.rpc.pacing import Turnstile
from iriscw.rpc.tokens import Role
from iriscw.runtime import ActorSystem
from iriscw.runtime.edge.session import SessionPort
from iriscw.runtime.vocabulary import MILLISECOND, ROOT, ActorPath, replace

log = logging.getLogger(__name__)

PROTOCOL_VERSION = 1

HELLO_TIMEOUT_S = 10.0
"""From the call to the Hello."""

SEEN_INTERVAL_S = 0.5
"""Between two signs of life that the fleet is told of: a worker that streams logs sends hundreds of messages."""


ORDERS_PER_TURN = 32
"""Attempts that workers are ordered to run in a turn of the loop, at 0.15 to 0.4 ms each; an order without any counts
as one. A round of the scheduler places on a hundred workers at once, and one write to the disk lets them all go on."""


@attrs.frozen
class WelcomeSettings:
    """What workers are told in the Welcome."""

    cluster: str
    groups: Mapping[str, GroupConfig]
    task_environment: Mapping[str, str] = attrs.field(repr=False)
    heartbeats: Heartbeats
    lease_ms: int
    window_bytes: int = 1 << 20


class WorkerDoor(v1.WorkerServiceBase):
    """WorkerService, and :class:`iriscw.jobs.ports.Streams` for the links behind it.

    Args:
        settings: what workers are told.
        stores: what is stored.
        held: which attempts each worker was given.
        tokens: derives the tokens of attempts.
        actors: gives the actors, once the door is open.
        switchboard: where the streams of workers meet the sessions of their links.
        gate: how many shake hands at a time. Default: one with the usual bounds.
        progress: takes how far attempts are.
    """

    method_rules = WORKER_RULES

    def __init__(
        self,
        settings: WelcomeSettings,
        stores: Stores,
        *,
        held: HeldAttempts,
        tokens: ControllerTokens,
        actors: Callable[[], ActorSystem],
        switchboard: Switchboard | None = None,
        gate: AdmissionGate | None = None,
        progress: ProgressBoard | None = None,
    ) -> None:
        self._settings = settings
        self._stores = stores
        self._held = held
        self._tokens = tokens
        self.intake = Intake(stores.logs, stores.results, held, progress)
        self.gate = gate or AdmissionGate()
        self.switchboard = Switchboard() if switchboard is None else switchboard
        self.ordering = Turnstile(ORDERS_PER_TURN)
        self._actors = actors

    # The service

    async def connect(self, messages: AsyncIterator[v1.WorkerMessage]) -> AsyncIterator[v1.ControllerMessage]:
        """Serve one stream of one worker."""
        call = call_context()
        principal = call.require(Role.WORKER)
        first = None
        with anyio.move_on_after(HELLO_TIMEOUT_S):
            first = await anext(messages, None)
        hello = first.hello if first is not None else None
        if hello is None:
            raise InvalidArgument("the first message of a worker's stream is a Hello")
        self._check(hello, principal)
        connection = await self._shake_hands(hello)
        if isinstance(connection, v1.Refused):
            yield v1.ControllerMessage(refused=connection)
            return
        self._supersede(connection)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._read, messages, connection)
                tasks.start_soon(self.intake.pass_settled, connection)
                yield v1.ControllerMessage(welcome=self._welcome(connection))
                call.answer_at_once(partial(self._beat, connection))
                async for message in connection.outgoing:
                    yield message
                tasks.cancel_scope.cancel()
        finally:
            latest = self.switchboard.unplug(connection)
            connection.end()
            if latest:
                self._tell_fleet(connection, WorkerHungUp(*connection.key))

    async def get_bundle(self, message: v1.GetBundleRequest) -> AsyncIterator[v1.BundleChunk]:
        """Yield the bytes of a bundle from an offset on."""
        call_context().require(Role.WORKER, Role.ADMIN)
        key = self._stores.bundle_key(message.bundle_id)
        try:
            async with self._stores.bundles.get(key, start=message.offset) as reading:
                offset, total = message.offset, reading.info.size_bytes
                async for chunk in reading:
                    for begin in range(0, len(chunk), CHUNK_BYTES):
                        piece = bytes(chunk[begin : begin + CHUNK_BYTES])
                        yield v1.BundleChunk(offset=offset, data=piece, total_bytes=total)
                        offset += len(piece)
        except ObjectNotFound:
            raise NoSuchBundle(f"there is no bundle {message.bundle_id}") from None

    # Who dials

    def _check(self, hello: v1.Hello, principal: object) -> None:
        if hello.protocol_version != PROTOCOL_VERSION:
            raise VersionMismatch(
                f"this controller speaks version {PROTOCOL_VERSION} with workers, the worker {hello.protocol_version}"
            )
        bound = (principal.worker_id, principal.incarnation) if isinstance(principal, WorkerPrincipal) else None
        if bound != (hello.worker_id, hello.incarnation):
            raise PermissionDenied(f"the token is that of {principal}, not of {hello.worker_id}#{hello.incarnation}")

    def _path(self, worker_id: str) -> tuple[ActorPath, GroupConfig] | None:
        """Find the actor that answers for a worker: its group's name is in its id, shortened."""
        for group in self._settings.groups.values():
            if worker_id.startswith(slice_name(group.name, "")):
                path = worker_path(ROOT / "fleet", group.name, worker_id)
                if self._alive(path):
                    return path, group
        return None

    def _alive(self, path: str) -> bool:
        try:
            return self._actors().ref(path).alive
        except NoSuchActor:
            return False

    async def _shake_hands(self, hello: v1.Hello) -> WorkerConnection | v1.Refused:
        """Wait for a turn, then ask the fleet, and read what the worker may hold."""
        async with self.gate.handshake() as later:
            if later is not None:
                text = "too many workers dial at once"
                return v1.Refused(reason=v1.RefusalReason.BUSY, text=text, retry_after_ms=later.retry_after_ms)
            answer = await self._register(hello)
            if isinstance(answer, v1.Refused):
                return answer
            connection = WorkerConnection.make(hello, answer.info)
            connection.believed = dict.fromkeys(await self._held.of(connection.key))
            held = tuple(Observation(uid, TaskState.ASSIGNED) for uid in connection.believed)
            await connection.report(StreamUp(held))
            return connection

    async def _register(self, hello: v1.Hello) -> Accepted | v1.Refused:
        """Ask the fleet whether this worker is one of its own."""
        found = self._path(hello.worker_id)
        if found is None:
            text = f"the fleet expects no worker {hello.worker_id!r}"
            return v1.Refused(reason=v1.RefusalReason.UNKNOWN_WORKER, text=text, retry_after_ms=RETRY_AFTER_MS)
        path, group = found
        offered = read_amount(hello.capacity)
        attributes = read_attributes(hello.attributes)
        dial = WorkerDialled(hello.worker_id, hello.incarnation, offered, attributes, hello.address, hello.node)
        try:
            accepted = await self._actors().ask(path, dial)
        except WorkerRefused as refused:
            log.info("worker %s#%s refused: %s", hello.worker_id, hello.incarnation, refused)
            if refused.fenced:
                return v1.Refused(reason=v1.RefusalReason.UNKNOWN_WORKER, text=str(refused))
            short = bool(offered.lacking(group.per_worker))
            reason = v1.RefusalReason.CAPACITY if short else v1.RefusalReason.BUSY
            return v1.Refused(reason=reason, text=str(refused), retry_after_ms=RETRY_AFTER_MS)
        except (ActorStopped, ActorRestarted, AskTimeout, NoSuchActor) as error:
            return v1.Refused(reason=v1.RefusalReason.BUSY, text=str(error), retry_after_ms=RETRY_AFTER_MS)
        assert isinstance(accepted, Accepted)
        return accepted

    def _supersede(self, connection: WorkerConnection) -> None:
        older = self.switchboard.plug(connection)
        if older is not None:
            refusal = v1.Refused(reason=v1.RefusalReason.SUPERSEDED, text="a later stream took this one's place")
            older.send_last(v1.ControllerMessage(refused=refusal))
            older.over.set()

    def _welcome(self, connection: WorkerConnection) -> v1.Welcome:
        settings = self._settings
        connection.heartbeat_ms = settings.heartbeats.interval_ms(len(self.switchboard))
        return v1.Welcome(
            protocol_version=PROTOCOL_VERSION,
            session_id=secrets.token_hex(8),
            cluster=settings.cluster,
            heartbeat_interval_ms=connection.heartbeat_ms,
            lease_ms=settings.lease_ms,
            window_bytes=settings.window_bytes,
            progress_interval_ms=settings.heartbeats.progress_ms(len(self.switchboard)),
        )

    def _tell_fleet(self, connection: WorkerConnection, message: WorkerSeen | WorkerHungUp) -> None:
        """Tell the worker's actor, if it takes it: the next beat or its liveness timer makes up for what is lost."""
        try:
            self._actors().ref(connection.place).tell_latest(message, type(message).__name__)
        except (MailboxFull, NoSuchActor, SystemClosed) as error:
            told = type(message).__name__
            log.debug("the fleet was not told %s of worker %s: %s", told, connection.info.worker_id, error)

    # Up

    async def _read(self, messages: AsyncIterator[v1.WorkerMessage], connection: WorkerConnection) -> None:
        """Take what the worker sends until its stream ends; then end the connection."""
        try:
            async for message in messages:
                if connection.over.is_set():
                    return
                self._seen(connection)
                if message.goodbye is not None:
                    return
                async with connection.turn:
                    await self._take(message, connection)
        finally:
            connection.over.set()
            connection.outgoing_in.close()

    def _seen(self, connection: WorkerConnection) -> float:
        """Tell the fleet of a sign of life, unless it was just told of one; give the time."""
        now = asyncio.get_running_loop().time()  # anyio's is for tasks only
        if now - connection.seen_at >= SEEN_INTERVAL_S:
            connection.seen_at = now
            self._tell_fleet(connection, WorkerSeen(*connection.key))
        return now

    def _beat(self, connection: WorkerConnection, data: bytes) -> bytes | None:
        """Answer a heartbeat that says nothing new, as bytes: it is all that a fleet at rest sends."""
        answer = wire.heartbeat_ack(data)
        if answer is None or connection.pending_ends or connection.over.is_set() or self._other_interval_ms(connection):
            return None
        connection.beat_at = self._seen(connection)  # nothing waits for the time that has passed
        return answer

    def _other_interval_ms(self, connection: WorkerConnection) -> int:
        """Return the interval of heartbeats that the worker is to be told; 0: the one that it knows will do."""
        return self._settings.heartbeats.news_ms(connection.heartbeat_ms, len(self.switchboard))

    async def _take(self, message: v1.WorkerMessage, connection: WorkerConnection) -> None:
        intake = self.intake
        if message.log is not None:
            await intake.take_log(message.log, connection)
        elif message.result is not None:
            await intake.take_result(message.result, connection)
        elif message.heartbeat is not None:
            await self._acknowledge(message.heartbeat, connection)
            await intake.pass_time(connection)
        elif message.progress is not None:
            intake.take_progress(message.progress, connection)
        elif message.observed is not None:
            await connection.report(Observed((await intake.observation(message.observed, connection),)))
            self._tell_of_suspensions([message.observed])
        elif message.observed_set is not None:
            if len(message.observed_set.attempts) > MAX_HELD_ATTEMPTS:
                raise InvalidArgument(f"a worker holds at most {MAX_HELD_ATTEMPTS} attempts")
            seen = [await intake.observation(each, connection) for each in message.observed_set.attempts]
            await connection.report(Observed((*seen, *_absent(message.observed_set, connection))))
            self._tell_of_suspensions(message.observed_set.attempts)

    async def _acknowledge(self, beat: v1.Heartbeat, connection: WorkerConnection) -> None:
        other_ms = self._other_interval_ms(connection)
        connection.heartbeat_ms = other_ms or connection.heartbeat_ms
        ack = v1.HeartbeatAck(sequence=beat.sequence, heartbeat_interval_ms=other_ms)
        await connection.send(v1.ControllerMessage(heartbeat_ack=ack))

    def _tell_of_suspensions(self, said: Iterable[v1.AttemptObserved]) -> None:
        if any(each.suspension is v1.Suspension.SUSPENDING for each in said):
            self.switchboard.ring()

    # Down: the port of jobs

    async def serve(self, session: WorkerStream, port: object) -> None:
        """Carry items between a link and its worker; see :class:`iriscw.jobs.ports.Streams`."""
        assert isinstance(port, SessionPort)
        connection = await self.switchboard.connected((session.worker_id, session.incarnation))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._carry_up, connection, port)
            tasks.start_soon(self._carry_down, connection, port)
            await connection.over.wait()
            tasks.cancel_scope.cancel()
        connection.outgoing_in.close()

    async def _carry_up(self, connection: WorkerConnection, port: SessionPort) -> None:
        try:
            async for item in connection.observed:
                await port.send(item)
        except anyio.ClosedResourceError:
            connection.over.set()

    async def _carry_down(self, connection: WorkerConnection, port: SessionPort) -> None:
        try:
            while True:
                item = await port.receive()
                if isinstance(item, Redial):
                    await self._dial_again(connection)
                else:
                    assert isinstance(item, Orders)
                    await self._order(connection, item)
        finally:
            connection.over.set()

    async def _dial_again(self, connection: WorkerConnection) -> None:
        answer = await self._register(connection.hello)
        if isinstance(answer, v1.Refused):
            connection.send_last(v1.ControllerMessage(refused=answer))

    async def _order(self, connection: WorkerConnection, orders: Orders) -> None:
        """Send what a link orders as one message, once it is written down what the worker may hold; stops go before."""
        stops = []
        for stop in orders.stop:
            connection.strange_uids.pop(stop.uid, None)
            if self._held.owns(connection.key, stop.uid):  # there is no end to names that a worker can make up
                connection.stops[stop.uid] = stop.ending
            stops.append(v1.ControllerMessage(stop=_stop(stop)))
        await connection.send_all(stops)  # they do not wait for what the others need from a disk or an object store
        await self.ordering.passed(weight := max(1, len(orders.run)))
        runs = await self._prepare(connection, orders.run)
        uids = [run.attempt_uid for run in runs]
        connection.desired.update(dict.fromkeys(uids))
        await self._held.give(connection.key, uids)
        await self.ordering.passed(weight)  # the message is written now
        sent = []
        if orders.complete:
            # What must be stopped was named before with its reason; here it is merely absent.
            sent.append(v1.ControllerMessage(desired_set=v1.DesiredSet(round=1, attempts=runs)))
        else:
            sent += [v1.ControllerMessage(run=run) for run in runs]
        sent += [v1.ControllerMessage(suspend=v1.SuspendAttempt(attempt_uid=uid)) for uid in orders.suspend]
        sent += [v1.ControllerMessage(continue_=v1.ContinueAttempt(attempt_uid=uid)) for uid in orders.go_on]
        sent += [
            v1.ControllerMessage(withdraw=v1.WithdrawGrant(attempt_uid=uid, grant=grant))
            for uid, grant in orders.withdraw
        ]
        for uid in orders.release:
            for table in (connection.pending_ends, connection.desired, connection.stops, connection.strange_uids):
                table.pop(uid, None)
            sent.append(v1.ControllerMessage(forget=v1.ForgetAttempt(attempt_uid=uid)))
        await connection.send_all(sent)
        suspended = [uid for uid in orders.release if uid in connection.suspended]
        await self._held.let_go(connection.key, suspended)
        await self._held.strike(connection.key, orders.release)

    async def _prepare(self, connection: WorkerConnection, orders: Sequence[RunOrder]) -> list[v1.RunAttempt]:
        """Open the attempts' logs, send the jobs' specifications if the worker has not got them; leave the lost out."""
        ready: list[v1.RunAttempt] = []
        opened: dict[str, list[Named]] = {}
        for order in orders:
            digest = await self._specified(connection, order)
            if digest is None:
                continue
            number = wire.attempt_number(order.number)
            opened.setdefault(order.job_id, []).append(Named(order.index, number, order.uid))
            token = self._tokens.job_token(order.job_id, order.uid).reveal()
            ready.append(wire.run_attempt(self._begun_again(order), digest, token))
        for job_id, attempts in opened.items():
            await self._stores.logs.begin_all(job_id, attempts)
            for each in attempts:
                self._stores.results.begin(job_id, each.index, each.number, each.uid)
        return ready

    def _begun_again(self, order: RunOrder) -> RunOrder:
        """Have the log and the result of an attempt that goes back to a checkpoint be taken further."""
        given = order.resumption
        if given is None or not given.anew:
            return order
        end = self._stores.logs.reopen(order.uid)
        return replace(order, resumption=replace(given, log_offset=max(given.log_offset, end)))

    async def _specified(self, connection: WorkerConnection, order: RunOrder) -> bytes | None:
        """Return the hash of a job's specification, which the worker has now; None if it is lost."""
        digest = connection.specifications.get(order.job_id)
        if digest is not None:
            return digest
        try:
            document = await self._stores.payloads.load(order.spec.entrypoint.payload_sha256)
        except ObjectNotFound as error:
            # Nobody could begin it: that is not this worker's fault.
            fault = Fault("", str(error))
            life = "" if order.resumption is None else order.resumption.grant
            end = AttemptEnd(Ending.REFUSED, fault=fault)
            refused = Observation(order.uid, TaskState.ASSIGNED, end, unstartable=True, life=life)
            await connection.report(Observed((refused,)))
            return None
        # A job that says where s3:// is, by whichever variable, is not told where the cluster has it.
        environment = with_own(self._settings.task_environment, dict(order.spec.environment))
        content = bytes(wire.specification(order, document, environment))
        digest = hashlib.sha256(content).digest()
        if digest not in connection.hello.specification_hashes:
            message = v1.Specification(hash=digest, content=content)
            await connection.send(v1.ControllerMessage(specification=message))
        connection.specifications[order.job_id] = digest
        return digest


def _absent(observed: v1.ObservedSet, connection: WorkerConnection) -> list[Observation]:
    """Say that attempts are over which the worker was thought to hold, does not, and was not told to run."""
    if observed.round == 0:
        return []
    present = {each.attempt_uid for each in observed.attempts}
    believed, connection.believed = connection.believed, {}
    return [
        Observation(uid, TaskState.ASSIGNED, AttemptEnd(connection.stops.get(uid, Ending.KILLED)))
        for uid in believed
        if uid not in present and uid not in connection.desired
    ]


def _stop(order: StopOrder) -> v1.StopAttempt:
    return v1.StopAttempt(
        attempt_uid=order.uid,
        reason=wire.stop_reason(order.ending),
        grace_ms=order.grace_ns // MILLISECOND,
    )
