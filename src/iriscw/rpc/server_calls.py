"""The life of a served call, between grpclib's request task and the service's method.

grpclib runs a method in a task that it cancels natively, and twice when a deadline passes (its own timer,
then the client's reset), which interrupts clean-up even under a shield. Here the method runs in a task of its
own inside an anyio scope; grpclib's task only waits for the outcome, and whatever happens to it becomes one
cancellation of that scope::

    request task  --admit-->  refuse (token, role, version, draining)
                  --start-->  method task: scope(deadline) { set context; run method }
                  <-outcome-  None | error          -> trailers: status, text, class name
    cancelled (deadline, reset, connection lost, drain) -> scope.cancel(), once

So a method's ``finally`` runs to its end, under a shield if it waits, after the caller has long been
answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, cast

import anyio
import attrs
from betterproto2.grpclib import ServiceBase
from grpclib._typing import IServable
from grpclib.const import Cardinality, Handler
from grpclib.exceptions import GRPCError, StreamTerminatedError
from grpclib.protocol import Stream as ProtocolStream
from grpclib.server import Handler as GrpclibTasks, Stream
from h2.exceptions import ProtocolError

from iriscw._errors import OperationError, StrayExit, UsageError, as_failure, is_stray
from iriscw.rpc.context import PROTOCOL_KEY, PROTOCOL_VERSION, CallContext, enter_call
from iriscw.rpc.errors import (
    PermissionDenied,
    RpcCancelled,
    RpcDeadline,
    RpcUnavailable,
    Unauthenticated,
    VersionMismatch,
)
from iriscw.rpc.limits import RpcLimits
from iriscw.rpc.rules import MethodRule, ServicePart, rule_of
from iriscw.rpc.status import WireError, to_wire
from iriscw.rpc.tokens import Principal, Role
from iriscw.rpc.transport import BoundedCodec, BoundedConnection, BoundedStream

log = logging.getLogger(__name__)

Authenticate = Callable[[str], Principal | None]
"""Says who holds a token; None if nobody does. Called in the event loop for every call: it must not block."""

Prove = Callable[[str], Awaitable[Principal | None]]
"""Asks somebody else who holds a token that :data:`Authenticate` does not know; None if nobody does. What it raises
ends the call. It bounds by itself how long that takes and how many may ask at once: whoever has a connection can have
it asked, by calls of methods whose rule says ``proven``."""

AnyStream = Stream[Any, Any]
Method = Callable[[AnyStream], Awaitable[None]]


class RequestTasks(GrpclibTasks):
    """The request tasks of one connection, and what they leave.

    grpclib gives a call's stream and its share of the window back at the end of the task. A task that is cancelled
    before its first step has no end: a caller that left at once, in the same read, cost the connection both for good.
    And a task whose call was reset is forgotten: if it waited for room to write when the connection ended, it waited
    for good.
    """

    def accept(
        self, stream: ProtocolStream, headers: list[tuple[str, str]], release_stream: Callable[[], None]
    ) -> None:
        """Start the task of a call; ``release_stream`` may be called twice."""
        super().accept(stream, headers, release_stream)
        self._tasks[stream].add_done_callback(lambda _: release_stream())

    def close(self) -> None:
        """Cancel every task, those of calls that were reset before too."""
        forgotten = [task for task in self._cancelled if not task.done()]
        super().close()
        for task in forgotten:
            task.cancel()


class _Call:
    """One call under way."""

    def __init__(self, context: CallContext, method: Method, stream: AnyStream) -> None:
        self._context = context
        self._method = method
        self._stream = stream
        self._scope = anyio.CancelScope(deadline=context.deadline_s)
        self.outcome: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        """What the caller is told. Set once, by the method or by whoever gave up on it."""

    async def run(self) -> None:
        """Run the method and set the outcome; an error that comes after it is logged, since nobody else hears
        it.
        """
        enter_call(self._context)
        error: BaseException | None = None
        try:
            with self._scope:
                await self._method(self._stream)
        except BaseException as raised:
            if isinstance(raised, asyncio.CancelledError) and not is_stray(raised):  # the whole process is ended
                raise
            failure = as_failure(raised)
            error = RpcCancelled(f"the caller left: {_sole(failure)}") if _caller_left(failure) else _sole(failure)
        if self._scope.cancelled_caught and error is None:
            error = RpcDeadline(f"{self._context.method} took longer than its deadline")
        known = isinstance(error, UsageError | OperationError | GRPCError) and not isinstance(error, StrayExit)
        if error is not None and not known:
            log.error("%s failed", self._context.method, exc_info=error)
        if not self.outcome.done():
            self.outcome.set_result(error)

    def give_up(self, error: BaseException) -> None:
        """Tell the caller ``error`` now, and cancel the method."""
        if not self.outcome.done():
            self.outcome.set_result(error)
        self._scope.cancel()

    def cancel(self) -> None:
        """Cancel the method; nobody waits for its outcome any more."""
        self._scope.cancel()


@attrs.frozen(eq=False)
class _Gate:
    """What stands before one method."""

    route: str
    method: Handler
    rule: MethodRule | None
    codec: BoundedCodec
    max_message_bytes: int

    @classmethod
    def make(cls, route: str, method: Handler, rule: MethodRule | None, limits: RpcLimits) -> _Gate:
        if rule is None:
            return cls(route, method, None, BoundedCodec(limits), limits.max_message_bytes)
        codec = BoundedCodec(limits, rule.request, method.request_type)
        return cls(route, method, rule, codec, min(rule.request.max_bytes, limits.max_message_bytes))

    def bound(self, stream: AnyStream) -> None:
        """Bound the messages of a call that is let in; none was read so far."""
        stream._codec = self.codec
        cast("BoundedStream", stream._stream).max_message_bytes = self.max_message_bytes


class Calls:
    """Every call of one server that is under way, and the rules by which one is let in.

    Args:
        authenticate: see :data:`Authenticate`.
        limits: see :class:`~iriscw.rpc.limits.RpcLimits`.
        prove: see :data:`Prove`; None: nobody else is asked.
    """

    def __init__(self, authenticate: Authenticate, limits: RpcLimits, prove: Prove | None = None) -> None:
        self._authenticate = authenticate
        self._prove = prove
        self._limits = limits
        self._live: dict[_Call, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._none_live = asyncio.Event()
        self._none_live.set()
        self.draining = False
        self.started = 0
        self.failed = 0
        self.refused = 0

    @property
    def in_flight(self) -> int:
        """Calls that have not been answered yet."""
        return len(self._live)

    def table(self, service: IServable) -> dict[str, Handler]:
        """Return grpclib's table of a service's methods, each behind its gate.

        Raises:
            InvalidArgument: the service has rules (:mod:`iriscw.rpc.rules`), and they do not fit its methods.
        """
        if isinstance(service, ServiceBase):
            # The generated loop leaves a method's generator to the garbage collector, which closes it in a
            # foreign task, where its scopes and task groups cannot be left.
            service._call_rpc_handler_server_stream = _send_all  # type: ignore[method-assign, assignment]
        mapping: Mapping[str, Handler] = service.__mapping__()
        if isinstance(service, ServicePart):
            mapping = {route: mapping[route] for route in mapping if route.rpartition("/")[2] in service.method_rules}
        return {
            route: self._behind_gate(_Gate.make(route, method, rule_of(service, route), self._limits))
            for route, method in mapping.items()
        }

    async def wait_until_none(self) -> None:
        """Wait until every call was answered."""
        await self._none_live.wait()

    def give_up_all(self, error: BaseException) -> int:
        """Answer every call with ``error`` and cancel its method. Gives their number."""
        calls = list(self._live)
        for call in calls:
            call.give_up(error)
        return len(calls)

    async def wait_for_methods(self, timeout_s: float) -> int:
        """Wait for methods that still clean up. Gives the number of those that did not end in time."""
        if not self._tasks:
            return 0
        _, pending = await asyncio.wait(self._tasks, timeout=timeout_s)
        return len(pending)

    def _behind_gate(self, gate: _Gate) -> Handler:
        async def serve(stream: AnyStream) -> None:
            await self._serve(gate, stream)

        return gate.method._replace(func=serve)

    async def _serve(self, gate: _Gate, stream: AnyStream) -> None:
        connection = cast("BoundedConnection", stream._stream.connection)
        try:
            context = await self._admit(gate, stream, connection)
        except (UsageError, OperationError) as refusal:
            self.refused += 1
            await _end(stream, refusal)
            if connection.refusals >= self._limits.max_stranger_refusals and not connection.authenticated:
                connection.goodbye("too many calls with a wrong token")
            return
        gate.bound(stream)
        error = await self._run(_Call(context, gate.method.func, stream))
        if error is not None:
            self.failed += 1
            await _end(stream, error)

    async def _run(self, call: _Call) -> BaseException | None:
        self.started += 1
        self._live[call] = None
        self._none_live.clear()
        task = asyncio.get_running_loop().create_task(call.run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await call.outcome
        finally:
            call.cancel()
            del self._live[call]
            if not self._live:
                self._none_live.set()

    async def _admit(self, gate: _Gate, stream: AnyStream, connection: BoundedConnection) -> CallContext:
        """Judge a call by its head: none of its messages has been read.

        Raises:
            Unauthenticated: no token, or a wrong one.
            OperationError: whoever else was to be asked whose the token is gave no answer.
            PermissionDenied: the method is not for such callers.
            VersionMismatch: the caller speaks another version of the protocol.
            RpcUnavailable: the server is stopping.
        """
        assert stream.metadata is not None
        metadata = dict(stream.metadata)
        tokens = stream.metadata.getall("authorization", [])
        metadata.pop("authorization", None)
        if connection.is_local:
            principal = Principal(Role.LOCAL)
        else:
            try:
                principal = await self._caller(gate, [str(token) for token in tokens], connection)
            except (UsageError, OperationError):
                connection.refusals += 1
                raise
        if principal.role is Role.METRICS:  # whatever the rules of a service say, or do not say
            connection.refusals += 1
            raise PermissionDenied(f"a token for metrics reads /metrics, and calls nothing: not {gate.route}")
        connection.authenticated = True
        if gate.rule is not None:
            gate.rule.admit(principal, gate.route)
        version = metadata.get(PROTOCOL_KEY, PROTOCOL_VERSION)
        if version != PROTOCOL_VERSION:
            raise VersionMismatch(f"this side speaks protocol {PROTOCOL_VERSION}, the caller {str(version)[:32]!r}")
        if self.draining:
            raise RpcUnavailable("the server is stopping")
        return CallContext(
            method=gate.route,
            peer=connection.peer_name,
            principal=principal,
            deadline_s=anyio.current_time() + self._timeout_s(gate.method.cardinality, stream),
            metadata=metadata,
            answering=functools.partial(setattr, stream._stream, "at_once"),
        )

    async def _caller(self, gate: _Gate, authorizations: list[str], connection: BoundedConnection) -> Principal:
        """Say who calls over TCP.

        Raises:
            Unauthenticated: nobody knows him.
            OperationError: whoever else was to be asked gave no answer.
        """
        found: Principal | None = None
        scheme, _, rest = authorizations[0].partition(" ") if len(authorizations) == 1 else ("", "", "")
        token = rest.strip()
        if scheme.lower() == "bearer":
            found = self._authenticate(token)
            if found is None and self._prove is not None and gate.rule is not None and gate.rule.proven:
                found = await self._proven(token, self._prove, connection)
        if found is None:
            text = "the token is not one of this cluster" if authorizations else "the call carries no token"
            raise Unauthenticated(text)
        return found

    async def _proven(self, token: str, prove: Prove, connection: BoundedConnection) -> Principal | None:
        """Have a token looked at by somebody else: one of a connection at a time, whoever that is."""
        if connection.proving:
            raise RpcUnavailable("another token of this connection is being looked at")
        connection.proving = True
        try:
            return await prove(token)
        finally:
            connection.proving = False

    def _timeout_s(self, shape: Cardinality, stream: AnyStream) -> float:
        if stream.deadline is not None:
            return stream.deadline.time_remaining()
        unary = shape is Cardinality.UNARY_UNARY
        return self._limits.unary_timeout_s if unary else self._limits.stream_timeout_s


def _caller_left(error: BaseException) -> bool:
    """Whether nothing went wrong but that the caller is gone: its method may have met that in several tasks."""
    if isinstance(error, BaseExceptionGroup):
        return all(_caller_left(each) for each in error.exceptions)
    return isinstance(error, ProtocolError | StreamTerminatedError)


def _sole(error: BaseException) -> BaseException:
    """Return the one error inside a task group's wrapping; a group of several stays one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


async def _end(stream: AnyStream, error: BaseException) -> None:
    """End the call with an error's status, text and name."""
    if isinstance(error, GRPCError):
        wire = WireError(error.status, error.message or error.status.name)
    else:
        wire = to_wire(error)
    try:
        await stream.send_trailing_metadata(status=wire.status, status_message=wire.text, metadata=wire.metadata)
    except (ProtocolError, StreamTerminatedError):
        log.debug("the caller left before it was told %s", wire.status.name)


async def _send_all(method: Callable[[Any], Any], stream: AnyStream, request: object) -> None:
    """Send what a streaming method yields, and close it in the task that ran it."""
    replies = method(request)
    if not isinstance(replies, AsyncIterable):
        await replies  # a method that returns without a single yield is a plain coroutine
        return
    async with aclosing(cast("AsyncGenerator[Any, None]", replies)) as replies:
        async for reply in replies:
            try:
                await stream.send_message(reply)
            except BaseException as error:
                # A yield is the sending, also for a method that yields inside a scope or a task group: these are left
                # with the caller's end or the cancellation, where a GeneratorExit would come out of them wrapped.
                with contextlib.suppress(StopAsyncIteration):
                    await replies.athrow(error)
                raise
