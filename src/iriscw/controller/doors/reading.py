"""Streams of what is stored: logs as they grow, results when a job has ended, or each when its task has.

A follower sleeps until the log store or a job's event rings; it never polls. The order at the end is what INV-J8
asks for: a job is shown as over only when its last log lines are stored, so a follower that has seen the end reads
once more what there is, and has read everything.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

import anyio

from iriscw.controller.events import EventHub
from iriscw.controller.stores.logs import AttemptLog, LogStore
from iriscw.controller.stores.results import ResultStore
from iriscw.jobs.messages import MAX_PAGE, ListTasks, TaskPage
from iriscw.jobs.model import TASK_TERMINAL, TaskState
from iriscw.proto.iriscw import v1

BATCH_BYTES = 256 << 10
"""Of one message of a stream."""

Ask = Callable[[ListTasks], Awaitable[TaskPage]]
IsOver = Callable[[], Awaitable[bool]]


class LogReading:
    """One call of FetchLogs.

    Args:
        store: where the logs are.
        job_id: whose.
        request: what is wanted of them.
    """

    def __init__(self, store: LogStore, job_id: str, request: v1.FetchLogsRequest) -> None:
        self._store = store
        self._job_id = job_id
        self._request = request
        self._positions = {cursor.attempt_uid: max(0, cursor.offset) for cursor in request.cursors}
        self._ended: dict[str, None] = {}
        self._tailed: dict[str, None] = {}
        if request.tail_lines > 0:
            self._leave_out_earlier()

    def _leave_out_earlier(self) -> None:
        """Begin near the end of each task's latest attempt, or of the one that was read before the stream broke.

        Attempts that begin later are read from their starts, those before it not at all.
        """
        wanted = [each for each in self._store.attempts(self._job_id) if self._wanted(each)]
        latest: dict[int, AttemptLog] = {}
        for attempt in wanted:  # those of a task by their numbers
            known = latest.get(attempt.index)
            if known is None or known.uid not in self._positions or attempt.uid in self._positions:
                latest[attempt.index] = attempt
        for attempt in wanted:
            if attempt.uid not in self._positions:
                if attempt.number < latest[attempt.index].number:
                    self._ended[attempt.uid] = None
                elif attempt is latest[attempt.index]:
                    self._tailed[attempt.uid] = None

    def _wanted(self, attempt: AttemptLog) -> bool:
        request = self._request
        return (request.task_index is None or request.task_index == attempt.index) and (
            request.attempt_number is None or request.attempt_number == attempt.number
        )

    async def present(self, *, over: bool) -> AsyncGenerator[v1.LogBatch, None]:
        """Yield what there is of all attempts, in the order of tasks. ``over``: no attempt writes any more."""
        for attempt in self._store.attempts(self._job_id):
            if self._wanted(attempt):
                async for batch in self._rest(attempt, over=over):
                    yield batch

    async def follow(self, hub: EventHub, is_over: IsOver) -> AsyncGenerator[v1.LogBatch, None]:
        """Yield what there is and what comes, until the job is over."""
        with self._store.following(self._job_id) as follower, hub.subscribed(self._job_id) as events:
            over = await is_over()
            async for batch in self.present(over=over):
                yield batch
            while not over:
                await _first_of(follower.wait, events.wait)
                over = await is_over()
                if over:
                    break
                for uid in follower.take():
                    attempt = self._store.attempt(uid)
                    if attempt is not None and self._wanted(attempt):
                        async for batch in self._rest(attempt, over=False):
                            yield batch
            async for batch in self.present(over=True):
                yield batch

    async def _rest(self, attempt: AttemptLog, *, over: bool) -> AsyncGenerator[v1.LogBatch, None]:
        """Yield what one attempt has beyond what was given; the last batch of an ended one says so."""
        if attempt.uid in self._ended:
            return
        position = self._positions.get(attempt.uid)
        if position is None:
            tail = self._request.tail_lines
            position = await self._store.tail(attempt, tail) if attempt.uid in self._tailed else 0
        while True:
            ended = over or attempt.over  # looked at before reading: what was stored before it is read below
            offset, data = await self._store.read(attempt, position, BATCH_BYTES)
            position = offset + len(data)
            self._positions[attempt.uid] = position
            last = ended and position >= attempt.end
            if data or last:
                yield v1.LogBatch(
                    task_index=attempt.index,
                    attempt_number=attempt.number,
                    attempt_uid=attempt.uid,
                    offset=offset,
                    data=data,
                    at_end=last,
                )
            if last:
                self._ended[attempt.uid] = None
            if last or not data:
                return


async def _first_of(*waits: Callable[[], Awaitable[None]]) -> None:
    """Wait until one of them returns."""
    async with anyio.create_task_group() as tasks:

        async def wait(one: Callable[[], Awaitable[None]]) -> None:
            await one()
            tasks.cancel_scope.cancel()

        for each in waits:
            tasks.start_soon(wait, each)


async def results(store: ResultStore, job_id: str, ask: Ask) -> AsyncGenerator[v1.ResultPart, None]:
    """Yield the results of a job's tasks, in order; a task whose last attempt has none is left out.

    Raises:
        ResultStoreBroken, StoredDamaged, StoreAccessDenied, StoreUnreachable: see ``ResultStore.read``.
    """
    start = 0
    while start >= 0:
        page = await ask(ListTasks(start, MAX_PAGE))
        for row in page.rows:
            async with aclosing(_result(store, job_id, row.index, row.uid)) as parts:
                async for part in parts:
                    yield part
        start = page.next


async def results_as_tasks_end(
    store: ResultStore, hub: EventHub, job_id: str, ask: Ask, is_over: IsOver, only: int | None = None
) -> AsyncGenerator[v1.ResultPart, None]:
    """Yield the result of each task that succeeds, each once, up to the job's end; with ``only`` that task's alone.

    Raises:
        ResultStoreBroken, StoredDamaged, StoreAccessDenied, StoreUnreachable: see ``ResultStore.read``.
    """
    given: dict[int, None] = {}
    start, size = (0, MAX_PAGE) if only is None else (only, 1)
    with hub.ends(job_id, only) as ends:
        ends.over = await is_over()  # those before it are found by the look below, and later ones told
        while start >= 0:
            page = await ask(ListTasks(start, size))
            for row in page.rows:
                if row.state in TASK_TERMINAL:
                    given[row.index] = None
                if row.state is TaskState.SUCCEEDED:
                    async with aclosing(_result(store, job_id, row.index, row.uid)) as parts:
                        async for part in parts:
                            yield part
            start = page.next if only is None else -1
        while only not in given:
            over = ends.over
            for end in ends.take():
                if end.index not in given:
                    given[end.index] = None
                    if end.state is TaskState.SUCCEEDED:
                        async with aclosing(_result(store, job_id, end.index, end.uid)) as parts:
                            async for part in parts:
                                yield part
            if over:
                return
            await ends.wait()


async def _result(store: ResultStore, job_id: str, index: int, uid: str) -> AsyncGenerator[v1.ResultPart, None]:
    """Yield the result of an attempt, if it has one."""
    result = await store.find(job_id, uid) if uid else None
    if result is None or result.reference is None:
        return
    known = result.reference
    reference = v1.ResultRef(
        size_bytes=known.size_bytes, sha256=bytes.fromhex(known.sha256), python_version=known.python
    )
    offset = 0
    async with aclosing(store.read(result)) as data:
        async for piece in data:
            for begin in range(0, max(1, len(piece)), BATCH_BYTES):  # also of none there is one part
                batch = piece[begin : begin + BATCH_BYTES]
                yield v1.ResultPart(task_index=index, offset=offset, data=batch, result=reference)
                offset += len(batch)
