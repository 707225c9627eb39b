"""Logs and results on their way to the controller: from files, in pieces, within a window.

Each attempt has one *shipment* per stream: a task that reads its log from where the controller's store ends, a piece
at a time, waits while a window of bytes is unacknowledged, and sleeps until the file grows (:class:`FileWatch`). Then
comes its result. Memory is one piece per attempt, however long the log or a line of it is; what the controller does
not take waits in the file.

An acknowledgement names the end of what the store holds. One behind what was acknowledged before says that the store
lost bytes, one beyond what was sent that it had them already: both times sending goes on from there.

How far tasks say that they are (:mod:`iriscw.task.progress`) is sent beside that: of all that have said something new
in one message, as often as the controller allows, and neither acknowledged nor sent again.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import anyio
import anyio.abc
import anyio.to_thread
import attrs

from iriscw._errors import OperationError
from iriscw.jobs.model import Observation
from iriscw.jobs.traits import Fault
from iriscw.proto.iriscw import v1
from iriscw.rpc.limits import MAX_PROGRESS_CHARS
from iriscw.task.environment import PRIVATE_FOLDER, WORK_FOLDER
from iriscw.task.progress import INTERVAL_S, TaskProgress, read_progress
from iriscw.worker.drivers.desk import DeskEntry, result_facts, unreadable
from iriscw.worker.inotify import FileWatch, Growth
from iriscw.worker.ports import ResultUnreadable

log = logging.getLogger(__name__)

CHUNK_BYTES = 256 << 10
"""The largest piece, as the protocol says."""

DEFAULT_WINDOW_BYTES = 1 << 20
PROGRESS_EVERY_S = INTERVAL_S
"""Between two looks at what one attempt says, however often its program writes."""

STALLED_S = 30.0
"""How long an end waits for a log that the controller does not acknowledge: it may not want it any more."""

_NOT_A_LOG = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.ENXIO)
"""How the file system says that a log is gone, or that something else has its name."""


class LogUnreadable(OperationError):
    """An attempt's log is gone, or something else has its place."""


Send = Callable[[v1.WorkerMessage], Awaitable[None]]


@attrs.define(eq=False)
class Shipment:
    """How far one attempt's log and result are."""

    uid: str
    held: DeskEntry
    window_bytes: int
    log_sent: int = 0
    result_sent: int = 0
    moved: anyio.Event = attrs.field(factory=anyio.Event)
    """Set, and replaced, when an acknowledgement came."""
    sent: anyio.Event = attrs.field(factory=anyio.Event)
    """All of a log that has ended, and of the result, was sent."""
    acked: anyio.Event = attrs.field(factory=anyio.Event)
    """And acknowledged."""
    over: bool = False

    def finish(self) -> None:
        """Ship nothing more."""
        self.over = True
        self.sent.set()
        self.acked.set()
        self._wake()

    def log_ack(self, offset: int) -> None:
        """Take the end of what the log store holds."""
        self.log_sent = offset if offset < self.held.log_acked else max(self.log_sent, offset)
        self.held.log_acked = offset
        self._wake()

    def result_ack(self, offset: int) -> None:
        """Take the end of what the result store holds."""
        self.result_sent = offset if offset < self.held.result_acked else max(self.result_sent, offset)
        self.held.result_acked = offset
        self._wake()

    def _wake(self) -> None:
        self.moved.set()
        self.moved = anyio.Event()


class Shipping:
    """All shipments of one stream.

    Args:
        table: what runs here.
        watch: tells of files that grow.
        window_bytes: what of one log may be unacknowledged.
        send: puts a message on the stream; waits for room.
        tasks: where the shipments run.
        progress_s: between two messages that say how far attempts are; 0: none is wanted.
    """

    def __init__(
        self,
        table: Mapping[str, DeskEntry],
        watch: FileWatch,
        window_bytes: int,
        send: Send,
        tasks: anyio.abc.TaskGroup,
        progress_s: float = 0.0,
    ) -> None:
        self._progress_s = progress_s
        self._said: dict[str, TaskProgress | str] = {}
        """What attempts have said that was not sent yet; of one that has not begun, what is done for it."""
        self._says = anyio.Event()
        self._table = table
        self._watch = watch
        self._window_bytes = max(1, window_bytes or DEFAULT_WINDOW_BYTES)
        self._send = send
        self._tasks = tasks
        self._shipments: dict[str, Shipment] = {}

    def begin(self, seen: Observation) -> None:
        """Ship what there is of an attempt; once per stream."""
        uid = seen.uid
        held = self._table.get(uid)
        if held is None or uid in self._shipments:
            return
        held.result = held.result or seen.result  # of what ended in an earlier process of this worker
        shipment = Shipment(uid, held, self._window_bytes, held.log_acked, held.result_acked)
        self._shipments[uid] = shipment
        self._tasks.start_soon(self._ship, shipment, name=f"shipment of {uid}")
        if self._progress_s > 0:
            self._tasks.start_soon(self._hear_progress, shipment, name=f"progress of {uid}")

    def log_ack(self, uid: str, offset: int) -> None:
        """Pass an acknowledgement on."""
        if uid in self._shipments:
            self._shipments[uid].log_ack(offset)

    def result_ack(self, uid: str, offset: int) -> None:
        """Pass an acknowledgement on."""
        if uid in self._shipments:
            self._shipments[uid].result_ack(offset)

    async def until_sent(self, uid: str) -> None:
        """Wait until all of an ended attempt was sent; not for longer than ``STALLED_S`` without an
        acknowledgement.
        """
        shipment = self._shipments.get(uid)
        while shipment is not None and not shipment.sent.is_set():
            before = (shipment.log_sent, shipment.result_sent)
            with anyio.move_on_after(STALLED_S):
                await shipment.sent.wait()
            if before == (shipment.log_sent, shipment.result_sent):
                return

    async def until_acked(self) -> None:
        """Wait until the controller has all of every ended attempt."""
        for shipment in list(self._shipments.values()):
            if shipment.held.ended.is_set():
                await shipment.acked.wait()

    def as_found(self, seen: Observation) -> Observation:
        """Return an end as it is now that its result was looked for: what it says of that was true when it ended."""
        held = self._table.get(seen.uid)
        if seen.result is None:
            return seen
        if held is None:
            return seen.without_result(Fault("ResultMissing", "the attempt's files are gone, and its result with them"))
        if held.lost is None or held.result_acked >= seen.result.size_bytes:
            return seen
        return seen.without_result(held.lost)

    def forget(self, uid: str) -> None:
        """The attempt was released: nobody waits for the rest."""
        self._said.pop(uid, None)
        shipment = self._shipments.pop(uid, None)
        if shipment is not None:
            shipment.finish()

    async def _ship(self, shipment: Shipment) -> None:
        result: bytes | None = None
        while not shipment.over:
            moved = shipment.moved
            await self._ship_log(shipment, shipment.held.running.stdout)
            if result is None:
                result = await _result(shipment.held)
            await self._ship_result(shipment, result)
            shipment.sent.set()
            if shipment.held.log_acked >= shipment.log_sent and shipment.held.result_acked >= len(result):
                shipment.acked.set()
            await moved.wait()  # an acknowledgement may say that the store lost something

    async def _ship_log(self, shipment: Shipment, path: Path) -> None:
        """Ship a log to its end. A program can remove its log or put something else there: it then has none, but
        neither its result nor the other attempts of this stream suffer from that.
        """
        try:
            descriptor = await anyio.to_thread.run_sync(_open_log, path)
        except LogUnreadable as error:
            log.warning("the log of attempt %s cannot be read: %s", shipment.uid, error)
            await _first(shipment.held.ended.wait, shipment.sent.wait)  # finish() sets the latter
            return
        try:
            with self._watch.watching(path) as growth:
                await self._copy_log(shipment, descriptor, growth)
        finally:
            os.close(descriptor)

    async def _copy_log(self, shipment: Shipment, descriptor: int, growth: Growth) -> None:
        held = shipment.held
        while not shipment.over:
            growth.rearm()
            moved = shipment.moved
            last = held.ended.is_set()  # looked at before reading: what was written before it is read below
            room = min(CHUNK_BYTES, held.log_acked + shipment.window_bytes - shipment.log_sent)
            if room <= 0:
                await moved.wait()
                continue
            offset = shipment.log_sent
            data = await anyio.to_thread.run_sync(os.pread, descriptor, room, offset)
            if shipment.log_sent != offset:  # an acknowledgement moved it meanwhile
                continue
            if data:
                shipment.log_sent += len(data)
                chunk = v1.LogChunk(attempt_uid=shipment.uid, offset=offset, data=data)
                await self._send(v1.WorkerMessage(log=chunk))
            elif last:
                return
            else:
                await _first(growth.wait, held.ended.wait, moved.wait)

    def does(self, uid: str, what: str) -> None:
        """Tell what is done for an attempt that has not begun; empty: nothing that takes long."""
        if self._progress_s > 0:
            self._said[uid] = what[:MAX_PROGRESS_CHARS]
            self._says.set()

    async def tell_progress(self) -> None:
        """Send how far attempts are, until cancelled."""
        while True:
            await self._says.wait()
            self._says = anyio.Event()
            said, self._said = self._said, {}
            if not said:  # those that spoke were forgotten
                continue
            reports = [_report(uid, each) for uid, each in said.items()]
            await self._send(v1.WorkerMessage(progress=v1.ProgressReports(reports=reports)))
            await anyio.sleep(self._progress_s)

    async def _hear_progress(self, shipment: Shipment) -> None:
        """Take note of how far an attempt is, whenever it says so, until it has ended."""
        held, folder = shipment.held, shipment.held.running.stdout.parent
        work, last = folder / WORK_FOLDER, None
        try:
            with self._watch.watching(work / PRIVATE_FOLDER, arrivals=True) as arrivals:
                while not shipment.over:
                    arrivals.rearm()
                    ended = held.ended.is_set()  # looked at before reading: what was said before it is read below
                    said = await anyio.to_thread.run_sync(read_progress, folder, work)
                    if said is not None and said != last:
                        self._said[shipment.uid] = last = said
                        self._says.set()
                        with anyio.move_on_after(PROGRESS_EVERY_S):
                            await _first(held.ended.wait, shipment.acked.wait)
                    if ended:
                        return
                    await _first(arrivals.wait, held.ended.wait, shipment.acked.wait)  # finish() sets the latter
        except OSError as error:
            if error.errno not in _NOT_A_LOG:  # else the program has removed the folder
                log.warning("the progress of attempt %s cannot be told: %s", shipment.uid, error)

    async def _ship_result(self, shipment: Shipment, result: bytes) -> None:
        while not shipment.over and shipment.result_sent < len(result):
            moved = shipment.moved
            room = min(CHUNK_BYTES, shipment.held.result_acked + shipment.window_bytes - shipment.result_sent)
            if room <= 0:
                await moved.wait()
                continue
            offset = shipment.result_sent
            data = result[offset : offset + room]
            shipment.result_sent += len(data)
            chunk = v1.ResultChunk(attempt_uid=shipment.uid, offset=offset, data=data)
            await self._send(v1.WorkerMessage(result=chunk))


async def _result(held: DeskEntry) -> bytes:
    """Return what the callable left, as the attempt's end describes it.

    Nothing, if the end describes nothing; nothing as well, and that is noted, if it is not here as it was any more.
    """
    if held.result is None:
        return b""
    try:
        data = await held.running.result()
    except ResultUnreadable as error:
        held.lost = unreadable(error)
        return b""
    found = None if data is None else await anyio.to_thread.run_sync(result_facts, data)
    if found is None or (found.size_bytes, found.sha256) != (held.result.size_bytes, held.result.sha256):
        held.lost = Fault("ResultCorrupt", "the result is not what it was when the attempt ended")
        return b""
    return data or b""


def _open_log(path: Path) -> int:
    """Open a log to be read. Blocks, but not on a pipe that was put in its place.

    Raises:
        LogUnreadable: there is none, or something that is not a file.
        OSError: as the file system says it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in _NOT_A_LOG:
            raise LogUnreadable(str(error)) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise LogUnreadable(f"{path} is not a file")
    return descriptor


def _report(uid: str, said: TaskProgress | str) -> v1.ProgressReport:
    if isinstance(said, str):
        return v1.ProgressReport(attempt_uid=uid, doing=said)
    return v1.ProgressReport(attempt_uid=uid, progress=v1.Progress(**attrs.asdict(said)))


async def _first(*waits: Callable[[], Awaitable[object]]) -> None:
    """Wait until one of several has come."""
    async with anyio.create_task_group() as tasks:

        async def one(wait: Callable[[], Awaitable[object]]) -> None:
            await wait()
            tasks.cancel_scope.cancel()

        for wait in waits:
            tasks.start_soon(one, wait)
