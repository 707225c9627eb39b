"""The effects of attempts: what is done when an attempt's actor asks, and the table of what runs here.

The table holds each attempt's running process, its log, and how far the controller has its log and its result. The
stream's side (:mod:`iriscw.worker.drivers.shipping`) reads from the same table: logs never pass through mailboxes.
"""

from __future__ import annotations

import hashlib
import random
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import anyio
import anyio.to_thread
import attrs

from iriscw._errors import OperationError
from iriscw.jobs.traits import Fault, ResultFacts
from iriscw.packages.cache import DependenciesConflict, EnvironmentCache, Installed, PackagesUnavailable
from iriscw.processes.ends import EndKind, ProcessEnd
from iriscw.processes.supervised import Limits
from iriscw.runtime.vocabulary import SECOND, replace
from iriscw.task.environment import GPU_ORDER, GPU_ORDER_VARIABLE, AttemptFacts, GangFacts
from iriscw.task.framing import FrameCorrupt, UnknownFormat, python_name, this_python
from iriscw.task.result import read_result_summary
from iriscw.worker.drivers.specifications import Specifications
from iriscw.worker.effects import (
    Adopt,
    AwaitEnd,
    AwaitThaw,
    DropStrangers,
    EndAttempt,
    Fetch,
    Finish,
    HoldLease,
    LetGo,
    Permit,
    Remove,
    Revoke,
    Start,
    Started,
    Withdraw,
)
from iriscw.worker.gpus import GpuOffer
from iriscw.worker.model import MAX_FAULT_CHARS, Order, Specification
from iriscw.worker.ports import (
    AttemptSpec,
    AttemptWithdrawn,
    PayloadRefused,
    ResultMissing,
    ResultUnreadable,
    RunningAttempt,
    TaskRuntime,
    Whereabouts,
)

LOWEST_PORT = 10_240
"""Of those that are picked for gangs to meet at: below are the ports of known services."""

MEETING_TRIES = 64

PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""The ports that the kernel gives to who asks for none by number."""


class TooFewPorts(OperationError):
    """The machine has no free ports left."""

    retryable = True


class Bundles(Protocol):
    """Where unpacked bundles come from; see :class:`iriscw.bundles.cache.BundleCache`."""

    async def fetch(self, bundle_id: str) -> Path:
        """Return the folder of a bundle."""


@attrs.define(eq=False)
class DeskEntry:
    """One attempt of the table."""

    running: RunningAttempt
    ended: anyio.Event = attrs.field(factory=anyio.Event)
    """Set when nothing writes to its log any more."""
    log_acked: int = 0
    result_acked: int = 0
    result: ResultFacts | None = None
    """What its end says of its result; None until it has ended, or if it has none."""
    lost: Fault | None = None
    """Why that result cannot be had any more."""


@attrs.frozen
class TaskSurroundings:
    """What attempts are told of where they run. ``bound_memory`` holds each to the memory it asked for, by bounding
    its address space; not for attempts with GPUs, because CUDA reserves more than it uses. ``environment`` is
    that of each, and may hold secrets; the job's own variables win.
    """

    worker_id: str
    controller_address: str
    bind_host: str
    advertise_host: str
    bound_memory: bool = False
    environment: Mapping[str, str] = attrs.field(factory=dict, repr=False)


def _nobody(uid: str, what: str) -> None:
    """No stream is up."""


class AttemptDesk:
    """Carries out the effects of attempts."""

    def __init__(
        self,
        runtime: TaskRuntime,
        specifications: Specifications,
        bundles: Bundles,
        place: TaskSurroundings,
        offer: GpuOffer | None = None,
    ) -> None:
        """Take what there is. ``offer``: the GPUs that are divided among attempts; None where the node does that."""
        self.offer = offer
        self.packages: EnvironmentCache | None = None
        """What installs packages for attempts; None: nothing does."""
        self.doing: dict[str, str] = {}
        """What is done for attempts before they begin, where it takes long."""
        self.on_doing: Callable[[str, str], None] = _nobody
        """Told when that changes: of which attempt, and what it is now; empty: nothing."""
        self._runtime = runtime
        self._specifications = specifications
        self._bundles = bundles
        self._place = place
        self._unwanted: set[str] = set()
        self.held: dict[str, DeskEntry] = {}

    def effects(self) -> Mapping[type, Callable[[Any], Awaitable[Any]]]:
        """Return the function for each effect of an attempt."""
        return {
            Fetch: self.fetch,
            Start: self.start,
            Withdraw: self.withdraw,
            Adopt: self.adopt,
            AwaitEnd: self.await_end,
            Permit: self.permit,
            AwaitThaw: self.await_thaw,
            Revoke: self.revoke,
            LetGo: self.let_go,
            EndAttempt: self.end,
            Remove: self.remove,
        }

    async def find(self) -> None:
        """Fill the table with what an earlier process of this worker started. Once, before anything else.

        Raises:
            WorkerTrouble: the folder of the attempts cannot be read.
        """
        for running in await self._runtime.adopt():
            self.held[running.uid] = DeskEntry(running)

    async def fetch(self, effect: Fetch) -> int:
        """Bring specification and bundle here; give how many GPUs of this worker's it needs.

        Raises:
            SpecificationUnknown, MalformedSpecification, PayloadRefused: it cannot run here.
            BundleCorrupt, BundleHarmful, IriscwError, OSError: see ``ControllerBundles.fetch``.
        """
        spec = await self._specification(effect.order)
        ours = python_name(this_python())
        if spec.payload and spec.python and spec.python != ours:
            raise PayloadRefused(f"the callable was pickled by Python {spec.python}; this worker has {ours}")
        if spec.bundle_id:
            await self._bundles.fetch(spec.bundle_id)
        await self._install(effect.order, spec)
        return 0 if self.offer is None else spec.demand.gpu_count

    async def start(self, effect: Start) -> Started:
        """Start the process.

        Raises:
            TooFewPorts: see there.
            AttemptWithdrawn: it was stopped before.
            AttemptNotStarted, InvalidArgument, InvalidPortName: see ``TaskRuntime.start``.
        """
        order = effect.order
        spec = await self._specification(order)
        source = await self._bundles.fetch(spec.bundle_id) if spec.bundle_id else None
        installed = await self._install(order, spec)
        ports = free_ports(spec.ports, self._place.bind_host)
        gang = self._gang(order)
        if order.uid in self._unwanted:
            raise AttemptWithdrawn(f"{order.uid} was stopped before it began")
        running = await self._runtime.start(
            AttemptSpec(
                facts=self._facts(order, spec, ports, effect.gpus, gang),
                argv=spec.argv,
                payload=spec.payload,
                environment={**self._defaults(), **dict(spec.environment), **dict(order.environment)},
                token=order.token,
                limits=self._limits(spec),
                demand=spec.demand,
                image=spec.image,
                source=source,
                freezable=spec.freezable,
                installed=installed,
                setup=spec.setup,
            )
        )
        self.held[order.uid] = DeskEntry(running)
        return Started(
            time.time_ns(),
            spec.timeout_ns,
            tuple(sorted(ports.items())),
            gpus=running.gpus,
            host=running.host or self._place.advertise_host,
            rendezvous_port=gang.leader_port if gang is not None and gang.leads else 0,
        )

    async def withdraw(self, effect: Withdraw) -> None:
        """Give up a start: one that the runtime has, and one that has not come to it yet."""
        self._unwanted.add(effect.uid)
        self._runtime.withdraw(effect.uid)

    async def adopt(self, effect: Adopt) -> bool:
        """Say whether the attempt is here."""
        held = self.held.get(effect.uid)
        if held is not None and effect.ended:
            held.ended.set()
        return held is not None

    async def await_end(self, effect: AwaitEnd) -> Finish:
        """Wait until nothing of the attempt runs.

        Raises:
            SweepFailed: see ``RunningAttempt.wait``.
            WorkerTrouble: its result cannot be read now.
        """
        held = self.held[effect.uid]
        end = await held.running.wait()
        try:
            told = finish(end, await held.running.result(), time.time_ns())
        except ResultUnreadable as error:  # the program's own doing: the attempt has ended all the same
            told = finish(end, None, time.time_ns(), lost_result(error, end))
        if end.kind is EndKind.EXITED and end.code and (failure := await held.running.setup_failure()) is not None:
            told = replace(told, fault=failure)
        told = replace(told, folder=str(held.running.stdout.parent))
        held.result = told.result
        if end.kind is not EndKind.LOST:  # it may have been frozen: whoever knows better says that it has ended
            held.ended.set()
        return told

    async def permit(self, effect: Permit) -> None:
        """Let a suspended attempt be brought back.

        Raises:
            ResumeRefused, GrantRefused, WorkerTrouble: see ``TaskRuntime.permit``.
        """
        place = self._place
        gpus, indices = self._divided(effect.gpus)
        # Where its machine is the same, so is the address at which it listens.
        host = effect.host or place.advertise_host
        where = Whereabouts(
            place.worker_id,
            place.controller_address,
            host,
            gpus,
            indices,
            anew=effect.anew,
            log_offset=effect.log_offset,
        )
        running = await self._runtime.permit(effect.uid, Path(effect.folder), effect.grant, where)
        self._hold(running)

    async def await_thaw(self, effect: AwaitThaw) -> None:
        """Wait until it runs.

        Raises:
            ResumeRefused, WorkerTrouble: see ``TaskRuntime.thawed``.
        """
        self._hold(await self._runtime.thawed(effect.uid, effect.grant))

    async def revoke(self, effect: Revoke) -> bool:
        """Take the grant back, or say that it runs.

        Raises:
            WorkerTrouble: see ``TaskRuntime.revoke``.
        """
        running = await self._runtime.revoke(effect.uid, effect.grant)
        if running is not None:
            self._hold(running)
        return running is not None

    async def let_go(self, effect: LetGo) -> None:
        """Leave it to somebody else.

        Raises:
            WorkerTrouble: see ``TaskRuntime.let_go``.
        """
        await self._runtime.let_go(effect.uid)
        self.held.pop(effect.uid, None)

    def _hold(self, running: RunningAttempt) -> None:
        """Have it in the table; one that is there already keeps how far its log is."""
        held = self.held.setdefault(running.uid, DeskEntry(running))
        held.running = running

    async def end(self, effect: EndAttempt) -> None:
        """Ask it to end; kill it after the grace.

        Raises:
            SweepFailed: see ``RunningAttempt.stop``.
        """
        await self.held[effect.uid].running.stop(effect.grace_ns / SECOND)

    async def remove(self, effect: Remove) -> None:
        """Remove its files, and its place in the table.

        Raises:
            WorkerTrouble: the disk does not let go of them.
        """
        self._unwanted.discard(effect.uid)
        held = self.held.get(effect.uid)
        if held is not None:
            await held.running.remove()
            del self.held[effect.uid]

    async def hold_lease(self, effect: HoldLease) -> None:
        """Say until when attempts may run.

        Raises:
            WorkerTrouble: see ``TaskRuntime.hold``.
        """
        await self._runtime.hold(effect.until_ns)

    async def drop_strangers(self, effect: DropStrangers) -> int:
        """End what runs here and is not known.

        Raises:
            SweepFailed, WorkerTrouble: see ``RunningAttempt``.
        """
        strangers = [held for uid, held in self.held.items() if uid not in effect.known]
        for held in strangers:
            await held.running.stop(0)
            await held.running.remove()
            del self.held[held.running.uid]
        return len(strangers)

    async def _install(self, order: Order, spec: Specification) -> Installed | None:
        """Have the packages that it asks for; None if it asks for none."""
        wanted, timeout_s = spec.setup.dependencies, spec.setup.timeout_ns / SECOND
        if not wanted:
            return None
        if self.packages is None:
            raise PackagesUnavailable("this worker installs no packages: its tasks have what is here, or images")
        try:
            installed = await self.packages.provide(wanted, order.uid, timeout_s, partial(self._does, order.uid))
        finally:
            self._does(order.uid, "")
        if spec.payload and installed.hindrance:
            raise DependenciesConflict(
                f"iriscw, which makes the call, does not run beside these packages: {installed.hindrance}"
            )
        return installed

    def _does(self, uid: str, what: str) -> None:
        if what:
            self.doing[uid] = what
        elif self.doing.pop(uid, None) is None:
            return
        self.on_doing(uid, what)

    async def _specification(self, order: Order) -> Specification:
        return await anyio.to_thread.run_sync(self._specifications.get, order.specification)

    def _defaults(self) -> dict[str, str]:
        """Return the variables of every attempt; the job's own win."""
        order = {} if self.offer is None else {GPU_ORDER_VARIABLE: GPU_ORDER}
        return {**order, **self._place.environment}

    def _divided(self, gpus: tuple[str, ...]) -> tuple[tuple[str, ...] | None, tuple[int, ...]]:
        """Return an attempt's GPUs and their numbers as its context has them; None where the node says which."""
        return (None, ()) if self.offer is None else (gpus, self.offer.indices(gpus))

    def _gang(self, order: Order) -> GangFacts | None:
        """Say where it stands in its gang; for the leader of one, set a port aside at which the others meet.

        Raises:
            TooFewPorts: see there.
        """
        place = order.gang
        if place is None:
            return None
        host, port = place.leader_host, place.leader_port
        if place.leads:
            host, port = self._place.advertise_host, meeting_port()
        return GangFacts(
            place.local_rank, place.local_world_size, place.node_rank, place.nodes, place.leads, host, port
        )

    def _facts(
        self,
        order: Order,
        spec: Specification,
        ports: Mapping[str, int],
        gpus: tuple[str, ...],
        gang: GangFacts | None,
    ) -> AttemptFacts:
        own, indices = self._divided(gpus)
        return AttemptFacts(
            job_id=spec.job_id,
            task_id=order.task_id,
            attempt_uid=order.uid,
            index=order.index,
            num_tasks=spec.num_tasks,
            attempt=order.number,
            worker_id=self._place.worker_id,
            namespace=spec.namespace,
            parent_job_id=spec.parent_job_id or None,
            controller_address=self._place.controller_address,
            bind_host=self._place.bind_host,
            advertise_host=self._place.advertise_host,
            ports=ports,
            gpus=own,
            gpu_indices=indices,
            gang=gang,
        )

    def _limits(self, spec: Specification) -> Limits:
        bounded = self._place.bound_memory and spec.demand.memory_bytes and not spec.demand.gpu_count
        return Limits(address_space_bytes=spec.demand.memory_bytes if bounded else None)


def free_ports(names: tuple[str, ...], host: str) -> dict[str, int]:
    """Pick a free TCP port for each name; all different.

    They are free now, not kept: another program may take one before the attempt does. The kernel gives out ports in a
    random order, so that takes bad luck.

    Raises:
        TooFewPorts: see there.
    """
    sockets: list[socket.socket] = []
    try:
        for _ in names:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            sockets.append(socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC))
            sockets[-1].bind((host, 0))
        return {name: each.getsockname()[1] for name, each in zip(names, sockets, strict=True)}
    except OSError as error:
        raise TooFewPorts(f"no free port on {host}: {error}") from error
    finally:
        for each in sockets:
            each.close()


def meeting_port() -> int:
    """Pick a TCP port that is free on all addresses, as programs listen to it that know no IRIS_BIND_HOST.

    It is free now, not kept. It is none of those that the kernel gives out by itself (``ip_local_port_range``), so
    nobody gets it who has not asked for it by its number, however long the program takes to listen.

    Raises:
        TooFewPorts: see there.
    """
    first, last = _unasked_ports()
    numbers: list[int] = [*range(LOWEST_PORT, first), *range(last + 1, 1 << 16)]
    for number in random.sample(numbers, min(MEETING_TRIES, len(numbers))):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as door:
            try:
                door.bind(("", number))
            except OSError:
                continue
            return number
    raise TooFewPorts(f"{MEETING_TRIES} ports outside of {first} to {last} are all in use")


def _unasked_ports() -> tuple[int, int]:
    try:
        first, last = PORT_RANGE.read_text(encoding="ascii").split()
        return int(first), int(last)
    except (OSError, ValueError):  # not mounted: as Linux has it
        return 32_768, 60_999


def finish(end: ProcessEnd, result: bytes | None, wall_ns: int, fault: Fault | None = None) -> Finish:
    """Say how a process ended and what it left; ``fault`` is that of a result which cannot be read.

    Bytes that are no result are not described: nobody could read them. What is left of them is the fault.
    """
    facts = None
    if result is not None:
        facts, fault = read_result(result)
    return Finish(end, wall_ns, facts, fault)


def result_facts(result: bytes) -> ResultFacts:
    """Describe a result."""
    return ResultFacts(len(result), hashlib.sha256(result).hexdigest(), python_name(this_python()))


def read_result(result: bytes) -> tuple[ResultFacts | None, Fault | None]:
    """Describe a result, and say what the callable raised, if it did; what is no result has only a fault."""
    try:
        summary = read_result_summary(result)
    except (FrameCorrupt, UnknownFormat) as error:
        return None, Fault(type(error).__name__, str(error))
    facts = result_facts(result)
    if summary.succeeded:
        return facts, None
    return facts, Fault(summary.error_type[:256], (summary.traceback or summary.message)[-MAX_FAULT_CHARS:])


def lost_result(error: ResultUnreadable, end: ProcessEnd) -> Fault | None:
    """Say why an attempt that has ended has no result; None where it was ended from outside, and owes none."""
    if not isinstance(error, ResultMissing):
        return unreadable(error)
    if end.kind is not EndKind.EXITED:
        return None
    return Fault(type(error).__name__, f"{end.reason}, and no result: the call neither returned nor raised")


def unreadable(error: ResultUnreadable) -> Fault:
    """Say that a result cannot be read."""
    return Fault(type(error).__name__, str(error)[-MAX_FAULT_CHARS:])
