"""Calls to the controller, carried over its restarts.

A unary call is repeated by the channel when it may be (it changes nothing, or carries an idempotency key). A stream is
opened again where it broke: whoever reads it says from where. What ends the patience is time without progress, so a
stream that moves may break as often as it likes.

What the controller itself says while a call is repeated (its disk is full, say) is logged once per reason, as a warning
of ``iriscw.client``: whoever waits should know for what. That nobody is there is told by :mod:`iriscw.client.contact`.
"""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Final, TypeVar

import anyio

from iriscw._errors import OperationError
from iriscw.client import wire
from iriscw.client.arguments import check_request
from iriscw.client.contact import Contact, Keeper
from iriscw.client.model import JobStatus
from iriscw.proto.iriscw.v1 import (
    FetchLogsRequest,
    GetResultsRequest,
    JobRef,
    JobStatus as WireJobStatus,
    LogBatch,
    ResultPart,
    WatchJobRequest,
)
from iriscw.rpc.client import BACKOFF_FIRST_S, BACKOFF_LONGEST_S, RpcChannel
from iriscw.rpc.errors import RpcCancelled, RpcDeadline, RpcUnavailable

log = logging.getLogger("iriscw.client")
"""Not configured by iriscw: without a program's own settings Python writes warnings to standard error."""

SERVICE: Final = "/iriscw.v1.ControllerService/"
INSPECTION: Final = "/iriscw.v1.InspectionService/"
"""What workers and node agents answer as well."""

CALL_TIMEOUT_S: Final = 60.0
"""Of a unary call with all its repetitions: a controller restarts in seconds, Kubernetes moves one in half a minute."""

PATIENCE_S: Final = 120.0
"""How long a stream is tried without any progress."""

Request = TypeVar("Request")
Reply = TypeVar("Reply")


class MethodCalls:
    """The controller's methods, as far as they need more than one line.

    Args:
        channel: the connection; closed by whoever made it.
        patience_s: see ``PATIENCE_S``.
        keeper: the process of this machine that keeps the cluster up, if one is known to.
        refused_s: how long connections may be refused before the first answer; None: as long as the patience lasts.
    """

    def __init__(
        self,
        channel: RpcChannel,
        *,
        patience_s: float = PATIENCE_S,
        keeper: Keeper | None = None,
        refused_s: float | None = None,
    ) -> None:
        self.channel = channel
        self._contact = Contact(str(channel.address), keeper, refused_s=refused_s)
        self._patience_s = patience_s
        self._rng = random.Random()  # noqa: S311 - spreads retries, keeps no secret

    async def ask(
        self, method: str, request: object, reply_type: type[Reply], *, key: str = "", service: str = SERVICE
    ) -> Reply:
        """Make a unary call: one that changes nothing, or one that its ``key`` lets be repeated.

        Raises:
            InvalidArgument: the request holds what it cannot.
            RpcUnavailable: the controller cannot be reached.
            RpcDeadline: it did not answer in time.
            IriscwError: what it says.
        """
        check_request(request)
        reasons, began_s = RetryReasons(method, CALL_TIMEOUT_S), anyio.current_time()
        useless: OperationError | None = None

        def repeated(error: OperationError) -> None:
            nonlocal useless
            reasons.tell(error)
            try:
                self._contact.lost(error, CALL_TIMEOUT_S, began_s)
            except OperationError as found:  # the channel asks for no opinion here: it is stopped from outside
                useless = found
                scope.cancel()

        with self._contact.awaited(CALL_TIMEOUT_S):
            with anyio.CancelScope() as scope:
                return await self.channel.unary(
                    service + method,
                    request,
                    reply_type,
                    timeout_s=CALL_TIMEOUT_S,
                    safe=not key,
                    idempotency_key=key,
                    on_retry=repeated,
                )
            assert useless is not None
            raise useless  # inside: who leaves the block without an error was answered

    async def stream(
        self, method: str, request: Callable[[], Request], reply_type: type[Reply]
    ) -> AsyncGenerator[Reply, None]:
        """Iterate over a stream's answers, and open it again with a fresh ``request()`` whenever it breaks.

        Raises:
            InvalidArgument: the request holds what it cannot.
            OperationError: it breaks for longer than the patience lasts.
            IriscwError: what the controller says.
        """
        check_request(request())
        patience = RetryPatience(self._patience_s, self._rng, method, self._contact)
        while True:
            try:
                async with self.channel.server_stream(SERVICE + method, request(), reply_type) as replies:
                    async for reply in replies:
                        patience.restored()
                        self._contact.settled()
                        yield reply
            except OperationError as error:
                await patience.spend(error)
            else:
                return

    async def send(
        self,
        method: str,
        requests: Callable[[], AsyncIterator[Request]],
        request_type: type[Request],
        reply_type: type[Reply],
        *,
        timeout_s: float,
    ) -> Reply:
        """Send a stream and give its answer; whenever it breaks, send fresh ``requests()``, which must be harmless.

        Raises:
            OperationError: it breaks for longer than the patience lasts.
            IriscwError: what the controller says.
        """
        patience = RetryPatience(self._patience_s, self._rng, method, self._contact)
        while True:
            try:
                reply = await self.channel.client_stream(
                    SERVICE + method, requests(), request_type, reply_type, timeout_s=timeout_s
                )
            except OperationError as error:
                await patience.spend(error)
            else:
                self._contact.settled()
                return reply

    async def watch(self, job: JobRef) -> AsyncGenerator[JobStatus, None]:
        """Iterate over a job's statuses, the last of which is terminal.

        A restarted controller is asked for the present state, whatever its count of versions says; what is the same
        is not given again.
        """
        last: JobStatus | None = None
        patience = RetryPatience(self._patience_s, self._rng, "WatchJob", self._contact)
        while True:
            stream = self.stream("WatchJob", lambda: WatchJobRequest(job=job), WireJobStatus)
            async with aclosing(stream) as statuses:
                async for sent in statuses:
                    status = wire.job_status(sent)
                    patience.restored()
                    if status != last:
                        last = status
                        yield status
                    if status.is_over:
                        return
            await patience.spend(RpcUnavailable(f"the watch of {job.job_id} ended before the job did"))

    def logs(self, request: Callable[[], FetchLogsRequest]) -> AsyncGenerator[LogBatch, None]:
        """Iterate over batches of logs."""
        return self.stream("FetchLogs", request, LogBatch)

    def results(
        self, job: JobRef, *, task: int | None = None, as_they_come: bool = False
    ) -> AsyncGenerator[ResultPart, None]:
        """Iterate over the parts of a job's values; after a break they begin anew."""
        request = GetResultsRequest(job=job, task_index=task, as_they_come=as_they_come)
        return self.stream("GetResults", lambda: request, ResultPart)


class RetryReasons:
    """Why a call is repeated, told to its user: each reason once."""

    def __init__(self, method: str, patience_s: float) -> None:
        self._method = method
        self._patience_s = patience_s
        self._told: dict[str, None] = {}

    def tell(self, error: OperationError) -> None:
        """Log what the controller said, unless it was said before. That it is away is told by ``Contact``."""
        name = type(error).__name__
        if name in self._told or isinstance(error, RpcUnavailable | RpcDeadline | RpcCancelled):
            return
        self._told[name] = None
        text = str(error)
        log.warning(
            "iriscw: %s has to wait: %s: %s; trying again for up to %g s",
            self._method,
            name,
            text if text.isprintable() else ascii(text),  # a peer's words must not command a terminal
            self._patience_s,
        )


class RetryPatience:
    """Pauses between tries, growing with full jitter, until too long nothing has moved."""

    def __init__(self, patience_s: float, rng: random.Random, method: str, contact: Contact) -> None:
        self._patience_s = patience_s
        self._contact = contact
        self._rng = rng
        self._method = method
        self.restored()

    def restored(self) -> None:
        """Note that something moved."""
        self._pause_s = BACKOFF_FIRST_S
        self._until_s: float | None = None
        self._reasons = RetryReasons(self._method, self._patience_s)

    async def spend(self, error: OperationError) -> None:
        """Pause before the next try.

        Raises:
            OperationError: ``error`` itself, if another try is of no use or the patience is over.
            RpcUnavailable: what kept the cluster up has ended, and nothing takes its place.
        """
        if not error.retryable:
            raise error
        self._contact.lost(error, self._patience_s)
        now_s = anyio.current_time()
        if self._until_s is None:
            self._until_s = now_s + self._patience_s
        pause_s = self._rng.uniform(0, self._pause_s)
        if now_s + pause_s > self._until_s:
            self._contact.settled(answered=False)
            raise error
        self._reasons.tell(error)
        await anyio.sleep(pause_s)
        self._pause_s = min(2 * self._pause_s, BACKOFF_LONGEST_S)
