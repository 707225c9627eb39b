"""The session to the controller: one call, dialled by the worker, that carries everything between the two.

What is state (orders, observations, heartbeats) goes between the stream and ``/session``; what is data
(specifications, logs, results and their acknowledgements) ends here. Two rules join them:

* The end of an attempt is passed on only when its log and its result were sent before it; one that was told at the
  stream's beginning is told again if its result cannot be had any more.
* A specification is on disk before the order that names it is passed to the actors.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version

import anyio.abc
import anyio.to_thread
import attrs

from iriscw.cloud.model import Attributes, Capacity
from iriscw.cloud.wire import amount, attributes
from iriscw.dialling.messages import Dial
from iriscw.dialling.stream import STREAM_TIMEOUT_S, NotWelcomed, alongside, first_answer
from iriscw.dialling.wire import turned_away
from iriscw.jobs.model import Observation
from iriscw.jobs.wire import observation
from iriscw.processes.identity import ProcessIdentity, pid_namespace
from iriscw.proto.iriscw import v1
from iriscw.rpc.client import BidiCall, RpcChannel
from iriscw.runtime.edge.session import SessionPort
from iriscw.task.framing import python_name, this_python
from iriscw.worker import wire
from iriscw.worker.drivers.desk import AttemptDesk
from iriscw.worker.drivers.shipping import Shipping
from iriscw.worker.drivers.specifications import Specifications, SpecificationsFull
from iriscw.worker.inotify import FileWatch
from iriscw.worker.messages import Flush, Flushed, Goodbye, HeldChanged, ObservedAll

CONNECT = "/iriscw.v1.WorkerService/Connect"

_HAVE_PROCESSES = (v1.Suspension.UNSPECIFIED, v1.Suspension.SUSPENDING)
"""Of one that is suspended, or about to come back, no process is known that lives."""

Call = BidiCall[v1.WorkerMessage, v1.ControllerMessage]


@attrs.frozen
class Identity:
    """Who dials and what it has."""

    worker_id: str
    incarnation: str
    capacity: Capacity
    attributes: Attributes
    node: str = ""


class ControllerStream:
    """Opens streams. ``address`` gives where the worker's own door is, which is known once that listens."""

    def __init__(
        self,
        channel: RpcChannel,
        identity: Identity,
        address: Callable[[], str],
        specifications: Specifications,
        desk: AttemptDesk,
        watch: FileWatch,
    ) -> None:
        self._channel = channel
        self._identity = identity
        self._address = address
        self._specifications = specifications
        self._desk = desk
        self._watch = watch

    async def serve(self, session: Dial, port: SessionPort) -> None:
        """Carry one stream from its Hello to its end.

        Raises:
            NotWelcomed, SpecificationsFull, MalformedSpecification: see there.
            IriscwError: as the controller or the connection says it.
            OSError: the disk does not take a specification.
        """
        async with self._channel.bidi(
            CONNECT, v1.WorkerMessage, v1.ControllerMessage, timeout_s=STREAM_TIMEOUT_S
        ) as call:
            first = await first_answer(call, v1.WorkerMessage(hello=self._hello()))
            if first.refused is not None:
                await port.send(turned_away(first.refused))
                return
            if first.welcome is None:
                raise NotWelcomed("the controller answered the worker's hello with neither a welcome nor a refusal")
            async with alongside() as tasks:
                progress_s = max(0, first.welcome.progress_interval_ms) / 1000
                window = first.welcome.window_bytes
                shipping = Shipping(self._desk.held, self._watch, window, call.send, tasks, progress_s)
                tasks.start_soon(shipping.tell_progress)
                tasks.start_soon(self._upward, call, port, shipping, tasks)
                await port.send(wire.welcomed(first.welcome))
                self._desk.on_doing = shipping.does  # that of an earlier stream is read by nobody any more
                for uid, what in self._desk.doing.items():
                    shipping.does(uid, what)
                await self._downward(call, port, shipping)

    def _hello(self) -> v1.Hello:
        identity = self._identity
        return v1.Hello(
            protocol_version=wire.PROTOCOL_VERSION,
            worker_id=identity.worker_id,
            incarnation=identity.incarnation,
            iriscw_version=version("iriscw"),
            python_version=python_name(this_python()),
            capacity=amount(identity.capacity),
            attributes=attributes(identity.attributes),
            address=self._address(),
            specification_hashes=[bytes.fromhex(name) for name in self._specifications.hashes],
            node=identity.node,
            takes_batches=True,
        )

    async def _downward(self, call: Call, port: SessionPort, shipping: Shipping) -> None:
        async for message in call:
            for each in message.batch.messages if message.batch is not None else (message,):
                await self._take(each, port, shipping)

    async def _take(self, message: v1.ControllerMessage, port: SessionPort, shipping: Shipping) -> None:
        if message.log_ack is not None:
            shipping.log_ack(message.log_ack.attempt_uid, message.log_ack.offset)
        elif message.result_ack is not None:
            shipping.result_ack(message.result_ack.attempt_uid, message.result_ack.offset)
        elif message.specification is not None:
            await self._keep(message.specification)
        else:
            if message.forget is not None:
                shipping.forget(message.forget.attempt_uid)
            item = wire.down(message)
            if item is not None:
                await port.send(item)

    async def _keep(self, sent: v1.Specification) -> None:
        try:
            await anyio.to_thread.run_sync(self._specifications.put, sent.hash.hex(), sent.content)
        except SpecificationsFull:
            await anyio.to_thread.run_sync(self._specifications.clear)
            raise

    async def _upward(self, call: Call, port: SessionPort, shipping: Shipping, tasks: anyio.abc.TaskGroup) -> None:
        async for item in port:
            match item:
                case HeldChanged(observation=seen) if seen.ending is not None:
                    shipping.begin(seen)
                    tasks.start_soon(self._end, call, shipping, seen, None)
                    continue
                case HeldChanged(observation=seen) if seen.started:
                    shipping.begin(seen)
                case Flush():
                    tasks.start_soon(self._flush, port, shipping)
            message = wire.up(item)
            if message is not None:
                self._name_processes(message)
                await call.send(message)
            if isinstance(item, ObservedAll):
                for seen in item.observations:
                    shipping.begin(seen)
                    if seen.result is not None:
                        tasks.start_soon(self._end, call, shipping, seen, seen)
            if isinstance(item, Goodbye):
                await call.end()

    def _name_processes(self, message: v1.WorkerMessage) -> None:
        """Say of each attempt that runs which processes it is, for the agent of this machine."""
        told = message.observed_set.attempts if message.observed_set is not None else [message.observed]
        for each in told:
            held = self._desk.held.get(each.attempt_uid) if each is not None else None
            if each is None or held is None or each.state is not v1.TaskState.RUNNING:
                continue
            if each.suspension in _HAVE_PROCESSES:
                each.process = _process(held.running.process)
                each.supervisor = _process(held.running.supervisor)
                # told already: this worker may be gone when it is frozen, or brought back from a checkpoint
                each.folder = str(held.running.stdout.parent)

    async def _end(self, call: Call, shipping: Shipping, seen: Observation, told: Observation | None) -> None:
        """Tell an end, once its log and its result were sent, and unless that was ``told``."""
        await shipping.until_sent(seen.uid)
        found = shipping.as_found(seen)
        if found != told:
            await call.send(v1.WorkerMessage(observed=observation(found)))

    async def _flush(self, port: SessionPort, shipping: Shipping) -> None:
        await shipping.until_acked()
        await port.send(Flushed())


def _process(process: ProcessIdentity | None) -> v1.ProcessRef | None:
    if process is None:
        return None
    return v1.ProcessRef(
        pid=process.pid,
        start_ticks=process.start_ticks,
        boot_id=process.boot_id,
        pid_namespace=pid_namespace(),
    )
