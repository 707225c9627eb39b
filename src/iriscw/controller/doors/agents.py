"""The agents' door: one stream each, up with what there is on its node, down with orders.

The stream of an agent, in order::

    AgentHello -> is the token that of the node, does another agent serve it -> AgentRefused and the end
    ask /nodes/agent (AgentDialled) -> AgentWelcome, or AgentRefused and the end
    the mirror's session takes the stream: reports up, orders and acknowledgements down

An agent is believed about the node that its token names, and about no other; where that is a token that ends (on
Kubernetes), the stream ends with it, and the agent dials anew with the next one. One stream of a node counts: a later
one of the same agent ends the earlier; one of another agent is refused for as long as the earlier lasts.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator

import anyio
import attrs
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from iriscw._errors import (
    ActorRestarted,
    ActorStopped,
    AskTimeout,
    InvalidArgument,
    JournalUnavailable,
    MailboxFull,
    NoSuchActor,
    OutcomeUnknown,
)
from iriscw.controller.doors.rules import AGENT_RULES
from iriscw.controller.tokens import AgentPrincipal
from iriscw.nodes import wire
from iriscw.nodes.errors import AgentFenced, NodeSaysTooMuch, TooManyNodes
from iriscw.nodes.messages import AGENTS, AgentDialled
from iriscw.nodes.model import (
    MAX_SAID_BYTES,
    ORDER,
    Abilities,
    AgentIdentity,
    AgentReport,
    AgentStream,
    AgentUp,
    FactKey,
    Orders,
    ReportAcked,
    key_of,
    size_of,
)
from iriscw.proto.iriscw import v1
from iriscw.rpc.context import call_context
from iriscw.rpc.errors import PermissionDenied, VersionMismatch
from iriscw.rpc.tokens import Role
from iriscw.runtime import ActorSystem
from iriscw.runtime.edge.session import SessionPort

log = logging.getLogger(__name__)

HELLO_TIMEOUT_S = 10.0
"""From the call to the hello."""

HEARTBEAT_MS = 10_000

LEAST_STREAM_S = 60.0
"""What a stream lasts, however soon its token ends: clocks differ."""

RETRY_AFTER_MS = 1_000
OTHER_AGENT_RETRY_MS = 15_000
"""For an agent of a node that another one serves: that one may be going."""

MAX_OUTGOING = 64
"""Messages that wait for the agent, beside what HTTP/2's window takes."""

_BUSY = (ActorStopped, ActorRestarted, AskTimeout, NoSuchActor, JournalUnavailable, MailboxFull, OutcomeUnknown)


@attrs.define(eq=False)
class AgentConnection:
    """One stream of one agent."""

    identity: AgentIdentity
    abilities: Abilities
    reports_in: MemoryObjectSendStream[AgentReport]
    reports: MemoryObjectReceiveStream[AgentReport]
    outgoing_in: MemoryObjectSendStream[v1.NodeMessage]
    outgoing: MemoryObjectReceiveStream[v1.NodeMessage]
    over: anyio.Event = attrs.field(factory=anyio.Event)

    @classmethod
    def make(cls, identity: AgentIdentity, abilities: Abilities) -> AgentConnection:
        """Return a connection with empty queues. An agent has one report on its way at a time."""
        reports_in, reports = anyio.create_memory_object_stream[AgentReport](1)
        outgoing_in, outgoing = anyio.create_memory_object_stream[v1.NodeMessage](MAX_OUTGOING)
        return cls(identity, abilities, reports_in, reports, outgoing_in, outgoing)

    async def send(self, message: v1.NodeMessage) -> None:
        """Queue a message; waits for room, gives up when the stream is over."""
        try:
            await self.outgoing_in.send(message)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self.over.set()

    def send_last(self, message: v1.NodeMessage) -> None:
        """Queue a message and nothing after it. An agent that does not read is told nothing."""
        with contextlib.suppress(anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            self.outgoing_in.send_nowait(message)
        self.outgoing_in.close()

    def end(self) -> None:
        """End both sides."""
        self.over.set()
        for stream in (self.reports_in, self.reports, self.outgoing_in, self.outgoing):
            stream.close()


class AgentBoard:
    """The streams that are up, by node, and the sessions of mirrors that wait for one."""

    def __init__(self) -> None:
        self._connections: dict[str, AgentConnection] = {}
        self._served: dict[str, AgentConnection] = {}
        self._rung: dict[str, anyio.Event] = {}
        self._shaking: dict[str, None] = {}

    @contextlib.contextmanager
    def handshake(self, node: str) -> Iterator[bool]:
        """Shake hands with one agent of a node at a time: give whether it is this one's turn."""
        if node in self._shaking:
            yield False
            return
        self._shaking[node] = None
        try:
            yield True
        finally:
            del self._shaking[node]

    def find(self, node: str) -> AgentConnection | None:
        """Return the stream of a node."""
        return self._connections.get(node)

    def plug(self, connection: AgentConnection) -> AgentConnection | None:
        """Take a new stream; give the one that it supersedes."""
        node = connection.identity.node
        older = self._connections.get(node)
        self._connections[node] = connection
        if node in self._rung:
            self._rung.pop(node).set()
        return older

    def unplug(self, connection: AgentConnection) -> None:
        """Forget a stream."""
        node = connection.identity.node
        for table in (self._connections, self._served):
            if table.get(node) is connection:
                del table[node]

    async def connected(self, node: str) -> AgentConnection:
        """Wait for a stream that no session has served yet."""
        while True:
            found = self._connections.get(node)
            if found is not None and self._served.get(node) is not found and not found.over.is_set():
                self._served[node] = found
                return found
            await self._rung.setdefault(node, anyio.Event()).wait()

    def __len__(self) -> int:
        return len(self._connections)


class AgentDoor(v1.AgentServiceBase):
    """AgentService, and :class:`iriscw.nodes.ports.AgentStreams` for the mirrors behind it.

    Args:
        cluster: what agents are told that they dialled.
        actors: gives the actors, once the door is open.
    """

    method_rules = AGENT_RULES

    def __init__(self, cluster: str, actors: Callable[[], ActorSystem]) -> None:
        self._cluster = cluster
        self._actors = actors
        self.board = AgentBoard()
        self.refused = 0
        """Hellos that were refused, since the start."""

    async def connect(self, messages: AsyncIterator[v1.AgentMessage]) -> AsyncIterator[v1.NodeMessage]:
        """Serve one stream of one agent."""
        principal = call_context().require(Role.AGENT)
        first = None
        with anyio.move_on_after(HELLO_TIMEOUT_S):
            first = await anext(messages, None)
        hello = first.hello if first is not None else None
        if hello is None:
            raise InvalidArgument("the first message of an agent's stream is an AgentHello")
        identity, abilities, expires_s = _check(hello, principal)
        connection = AgentConnection.make(identity, abilities)
        try:
            refusal = await self._shake_hands(connection)
            if refusal is not None:
                self.refused += 1
                log.info("agent %s of %s refused: %s", identity.agent_id, identity.node, refusal.text)
                yield v1.NodeMessage(refused=refusal)
                return
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_read, messages, connection)
                if expires_s:
                    tasks.start_soon(_end_at, connection, expires_s)
                yield v1.NodeMessage(welcome=self._welcome())
                async for message in connection.outgoing:
                    yield message
                tasks.cancel_scope.cancel()
        finally:
            self.board.unplug(connection)
            connection.end()

    def _welcome(self) -> v1.AgentWelcome:
        return v1.AgentWelcome(
            protocol_version=wire.PROTOCOL_VERSION,
            session_id=secrets.token_hex(8),
            cluster=self._cluster,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )

    async def _shake_hands(self, connection: AgentConnection) -> v1.AgentRefused | None:
        """Have ``/nodes/agent`` know the agent, and plug its stream in; or say why not."""
        identity = connection.identity
        with self.board.handshake(identity.node) as turn:
            if not turn:
                return _refused(v1.AgentRefusal.BUSY, "an agent of this node is shaking hands", RETRY_AFTER_MS)
            serving = self.board.find(identity.node)
            if serving is not None and serving.identity.agent_id != identity.agent_id:
                text = f"agent {serving.identity.agent_id} serves {identity.node}: one agent speaks for a node"
                return _refused(v1.AgentRefusal.OTHER_AGENT, text, OTHER_AGENT_RETRY_MS)
            try:
                await self._actors().ask(AGENTS, AgentDialled(identity))
            except AgentFenced as error:
                return _refused(v1.AgentRefusal.FENCED, str(error), 0)
            except (TooManyNodes, *_BUSY) as error:
                return _refused(v1.AgentRefusal.BUSY, f"{type(error).__name__}: {error}", RETRY_AFTER_MS)
            older = self.board.plug(connection)
            if older is not None:
                text = "a later stream took this one's place"
                older.send_last(v1.NodeMessage(refused=_refused(v1.AgentRefusal.SUPERSEDED, text, 0)))
                older.over.set()
            return None

    # The mirror's side

    async def serve(self, session: AgentStream, port: object) -> None:
        """Carry items between a mirror and its agent; see :class:`iriscw.nodes.ports.AgentStreams`."""
        assert isinstance(port, SessionPort)
        connection = await self.board.connected(session.node)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_carry_up, connection, port)
            tasks.start_soon(_carry_down, connection, port)
            await connection.over.wait()
            tasks.cancel_scope.cancel()
        connection.outgoing_in.close()


def _check(hello: v1.AgentHello, principal: object) -> tuple[AgentIdentity, Abilities, int]:
    """Read who dials, if his token says so, too; and when that ends."""
    if hello.protocol_version != wire.PROTOCOL_VERSION:
        raise VersionMismatch(
            f"this controller speaks version {wire.PROTOCOL_VERSION} with agents, the agent {hello.protocol_version}"
        )
    if not isinstance(principal, AgentPrincipal) or principal.node != hello.node:
        raise PermissionDenied(f"the token is that of the {principal}, not of the agent of {hello.node[:80]!a}")
    return *wire.read_hello(hello), principal.expires_s


def _refused(reason: v1.AgentRefusal, text: str, retry_after_ms: int) -> v1.AgentRefused:
    return v1.AgentRefused(reason=reason, text=text, retry_after_ms=retry_after_ms)


class _Said:
    """How much of one stream's facts holds. Ends of orders are not kept by node: they are told on at once."""

    def __init__(self) -> None:
        self._sizes: dict[FactKey, int] = {}
        self._bytes = 0

    def take(self, report: AgentReport) -> None:
        """Count a report.

        Raises:
            NodeSaysTooMuch: with this one it is more than is kept.
        """
        for fact in report.facts:
            key = key_of(fact)
            if key[0] != ORDER:
                self._bytes += size_of(fact) - self._sizes.get(key, 0)
                self._sizes[key] = size_of(fact)
        for key in report.gone:
            self._bytes -= self._sizes.pop(key, 0)
        if self._bytes > MAX_SAID_BYTES:
            raise NodeSaysTooMuch(f"the agent told of {self._bytes} bytes: at most {MAX_SAID_BYTES} of one node")


async def _read(messages: AsyncIterator[v1.AgentMessage], connection: AgentConnection) -> None:
    """Take what the agent sends until its stream ends; then end the connection."""
    said = _Said()
    try:
        async for message in messages:
            if connection.over.is_set() or message.goodbye is not None:
                return
            if message.report is not None:
                report = wire.read_report(message.report)
                said.take(report)
                await connection.reports_in.send(report)
            elif message.heartbeat is not None:
                ack = v1.HeartbeatAck(sequence=message.heartbeat.sequence)
                await connection.send(v1.NodeMessage(heartbeat_ack=ack))
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        log.debug("the agent of %s spoke after its stream was over", connection.identity.node)
    finally:
        connection.over.set()
        connection.outgoing_in.close()


async def _end_at(connection: AgentConnection, expires_s: int) -> None:
    """End a stream when what proved its agent ends."""
    await anyio.sleep(max(LEAST_STREAM_S, expires_s - time.time()))
    log.debug("the token of the agent of %s has ended, and its stream with it", connection.identity.node)
    connection.over.set()
    connection.outgoing_in.close()


async def _carry_up(connection: AgentConnection, port: SessionPort) -> None:
    await port.send(AgentUp(connection.identity, connection.abilities))
    try:
        async for report in connection.reports:
            await port.send(report)
    except anyio.ClosedResourceError:
        connection.over.set()


async def _carry_down(connection: AgentConnection, port: SessionPort) -> None:
    try:
        while True:
            item = await port.receive()
            if isinstance(item, ReportAcked):
                ack = v1.AgentReportAck(sequence=item.sequence)
                await connection.send(v1.NodeMessage(report_ack=ack))
            else:
                assert isinstance(item, Orders)
                await connection.send(v1.NodeMessage(orders=wire.orders(item)))
    finally:
        connection.over.set()
