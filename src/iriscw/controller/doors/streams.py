"""Where the connection of a worker meets the session of its link, however late either of them is.

A worker dials when it likes; its link's session waits for it, and is opened again after each connection. Here the two
are matched by worker and incarnation. A later connection of the same incarnation supersedes the earlier one.

A :class:`WorkerConnection` is the door's side of one stream: what the worker said about attempts (``observed``,
bounded: its reader waits for room, and with it the worker) and what it is to be told (``outgoing``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import anyio
import attrs
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from iriscw.controller.events import Subscription
from iriscw.fleet.model import WorkerInfo, worker_path
from iriscw.jobs.model import Ending, UpItem
from iriscw.proto.iriscw import v1
from iriscw.runtime.vocabulary import ROOT, ActorPath

Item = TypeVar("Item")

MAX_OBSERVED = 64
"""Observations that wait for the link; the session's own bound is 16."""

MAX_BATCH = 256
"""Orders in one message: as many attempts as a worker runs."""

MAX_OUTGOING = 256
"""Messages that wait for the worker, beside what HTTP/2's window takes."""


@attrs.define(eq=False)
class PendingEnd:
    """An end that is kept back until the attempt's log and result are here."""

    sent: v1.AttemptObserved
    idle_s: float = 0.0
    """How long nothing of the attempt has come."""


@attrs.define(eq=False)
class WorkerConnection:
    """One stream of one worker."""

    hello: v1.Hello
    info: WorkerInfo
    observed_in: MemoryObjectSendStream[UpItem]
    observed: MemoryObjectReceiveStream[UpItem]
    outgoing_in: MemoryObjectSendStream[v1.ControllerMessage]
    outgoing: MemoryObjectReceiveStream[v1.ControllerMessage]
    place: ActorPath
    """The actor of the fleet that answers for the worker."""
    specifications: dict[str, bytes] = attrs.field(factory=dict)
    """By job, the hash under which the worker was sent its specification on this stream."""
    pending_ends: dict[str, PendingEnd] = attrs.field(factory=dict)
    strangers: int = 0
    """Messages about attempts that the worker was not given."""
    strange_uids: dict[str, None] = attrs.field(factory=dict)
    """The names of those that it says it has, until the link has answered."""
    believed: dict[str, None] = attrs.field(factory=dict)
    """What the worker was thought to hold when the stream began; empty once it has said what it does."""
    desired: dict[str, None] = attrs.field(factory=dict)
    """What it was told to run on this stream."""
    stops: dict[str, Ending] = attrs.field(factory=dict)
    """What it was told to stop on this stream, and why."""
    processes: dict[str, v1.ProcessRef | None] = attrs.field(factory=dict)
    """Of the attempts that run, as the worker says; None for one that is no process of its machine's own."""
    supervisors: dict[str, v1.ProcessRef | None] = attrs.field(factory=dict)
    """Of the attempts that run: the process to freeze, with all below it; None for one that cannot be."""
    suspending: dict[str, tuple[v1.ProcessRef | None, str]] = attrs.field(factory=dict)
    """Of the attempts that may be frozen: the process to freeze, and the folder of the attempt, as the worker says."""
    suspended: dict[str, None] = attrs.field(factory=dict)
    """The attempts that are: when the worker is told to forget one, it is let go."""
    seen_at: float = 0.0
    """When the fleet was last told of a sign of life, on the loop's clock."""
    beat_at: float = attrs.field(factory=anyio.current_time)
    """When the last heartbeat came, or the stream began, on the loop's clock."""
    heartbeat_ms: int = 0
    """How often the worker beats, as it was told last."""
    over: anyio.Event = attrs.field(factory=anyio.Event)
    settled: dict[str, None] = attrs.field(factory=dict)
    """Attempts whose results have waited for the object store, and wait no longer."""
    settling: Subscription = attrs.field(factory=Subscription)
    """Rung when there is one more."""
    turn: anyio.Lock = attrs.field(factory=anyio.Lock)
    """Held while something of the worker is taken or passed on: an end is told once."""

    @classmethod
    def make(cls, hello: v1.Hello, info: WorkerInfo) -> WorkerConnection:
        """Return a connection with empty queues."""
        observed_in, observed = anyio.create_memory_object_stream[UpItem](MAX_OBSERVED)
        outgoing_in, outgoing = anyio.create_memory_object_stream[v1.ControllerMessage](MAX_OUTGOING)
        place = worker_path(ROOT / "fleet", info.group, info.worker_id)
        return cls(hello, info, observed_in, observed, outgoing_in, outgoing, place)

    @property
    def key(self) -> tuple[str, str]:
        """Which incarnation of which worker it is."""
        return self.info.worker_id, self.info.incarnation

    def note_process(self, sent: v1.AttemptObserved) -> None:
        """Remember which process an attempt is, for as long as it runs, and whether it is being suspended."""
        if sent.state is v1.TaskState.RUNNING:
            self.processes[sent.attempt_uid] = sent.process
            self.supervisors[sent.attempt_uid] = sent.supervisor
        else:
            self.processes.pop(sent.attempt_uid, None)
            self.supervisors.pop(sent.attempt_uid, None)
        for table in (self.suspending, self.suspended):
            table.pop(sent.attempt_uid, None)
        if sent.suspension is v1.Suspension.SUSPENDING:
            self.suspending[sent.attempt_uid] = (sent.supervisor, sent.folder)
        elif sent.suspension is v1.Suspension.SUSPENDED:
            self.suspended[sent.attempt_uid] = None

    async def send(self, message: v1.ControllerMessage) -> None:
        """Queue a message for the worker; waits for room, gives up when the stream is over."""
        try:
            await _put(self.outgoing_in, message)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self.over.set()

    async def send_all(self, messages: Sequence[v1.ControllerMessage]) -> None:
        """Queue messages that belong together: as one, for a worker that takes that. Waits as :meth:`send` does."""
        if not self.hello.takes_batches or len(messages) == 1:
            for message in messages:
                await self.send(message)
            return
        for first in range(0, len(messages), MAX_BATCH):
            batch = v1.Batch(messages=list(messages[first : first + MAX_BATCH]))
            await self.send(v1.ControllerMessage(batch=batch))

    def send_last(self, message: v1.ControllerMessage) -> None:
        """Queue a message and nothing after it. A worker that does not read is not waited for: it is told nothing."""
        try:
            self.outgoing_in.send_nowait(message)
        except (anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            self.over.set()
        self.outgoing_in.close()

    async def report(self, item: UpItem) -> None:
        """Queue what the worker said for its link; waits for room."""
        try:
            await _put(self.observed_in, item)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self.over.set()

    def end(self) -> None:
        """End both sides."""
        self.over.set()
        for stream in (self.observed_in, self.outgoing_in, self.observed, self.outgoing):
            stream.close()


async def _put(stream: MemoryObjectSendStream[Item], item: Item) -> None:
    """Queue an item: at once if there is room, without the turns of the loop that a send takes in any case."""
    try:
        stream.send_nowait(item)
    except anyio.WouldBlock:
        await stream.send(item)


class Switchboard:
    """All connections of one controller, and the sessions that wait for one."""

    def __init__(self) -> None:
        self._connections: dict[tuple[str, str], WorkerConnection] = {}
        self._of_worker: dict[str, dict[str, WorkerConnection]] = {}
        """The same by worker and then by incarnation: who asks for all workers of a fleet, asks for each."""
        self._waiting: dict[tuple[str, str], anyio.Event] = {}
        self._claimed: dict[tuple[str, str], WorkerConnection] = {}
        self._news = anyio.Event()

    def plug(self, connection: WorkerConnection) -> WorkerConnection | None:
        """Take a new connection; give the one that it supersedes."""
        older = self._connections.get(connection.key)
        self._connections[connection.key] = connection
        worker_id, incarnation = connection.key
        self._of_worker.setdefault(worker_id, {})[incarnation] = connection
        waiting = self._waiting.get(connection.key)
        if waiting is not None:
            waiting.set()
        self.ring()
        return older

    def ring(self) -> None:
        """Wake whoever waits for a worker to say that an attempt may be frozen: one has dialled, or said so."""
        self._news.set()
        self._news = anyio.Event()

    async def suspending(self, key: tuple[str, str], uid: str) -> tuple[WorkerConnection, v1.ProcessRef | None, str]:
        """Wait until this incarnation is connected and says that the attempt may be frozen.

        Gives its connection, the process that is to be frozen (None if it names none), and the attempt's folder.
        """
        while True:
            news, connection = self._news, self._connections.get(key)
            if connection is not None and uid in connection.suspending and not connection.over.is_set():
                return connection, *connection.suspending[uid]
            await news.wait()

    def running(self, key: tuple[str, str], uid: str) -> tuple[WorkerConnection, v1.ProcessRef] | None:
        """Return the connection of a worker that runs an attempt, and the process to freeze; None: nobody says so."""
        connection = self._connections.get(key)
        supervisor = None if connection is None else connection.supervisors.get(uid)
        if connection is None or supervisor is None or connection.over.is_set():
            return None
        return connection, supervisor

    def unplug(self, connection: WorkerConnection) -> bool:
        """Forget a connection; whether it was still the latest of its worker."""
        latest = self._connections.get(connection.key) is connection
        if latest:
            del self._connections[connection.key]
            worker_id, incarnation = connection.key
            del self._of_worker[worker_id][incarnation]
            if not self._of_worker[worker_id]:
                del self._of_worker[worker_id]
        if self._claimed.get(connection.key) is connection:
            del self._claimed[connection.key]
        return latest

    async def connected(self, key: tuple[str, str]) -> WorkerConnection:
        """Wait for a connection that no session served yet."""
        while True:
            connection = self._connections.get(key)
            if connection is not None and self._claimed.get(key) is not connection and not connection.over.is_set():
                self._claimed[key] = connection
                return connection
            event = self._waiting.setdefault(key, anyio.Event())
            try:
                await event.wait()
            finally:
                if self._waiting.get(key) is event:
                    del self._waiting[key]

    def find(self, worker_id: str) -> WorkerConnection | None:
        """Return the connection of a worker, whatever its incarnation; the latest one."""
        found = self._of_worker.get(worker_id)
        return found[next(reversed(found))] if found else None

    def __iter__(self) -> Iterator[WorkerConnection]:
        return iter(self._connections.values())

    def __len__(self) -> int:
        return len(self._connections)
