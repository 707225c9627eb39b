"""Where the tasks of a job are reached, told as it changes: all there is first, then what is new.

A job is asked for all of it at each news of it, a page at a time; news that come meanwhile are one. What was told stays
here, so a caller that reads slowly costs nobody anything, and hears of the last state only.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable

from iriscw.jobs.meeting.messages import EndpointPage, EndpointRow, ListEndpoints
from iriscw.jobs.messages import MAX_PAGE
from iriscw.proto.iriscw import v1

Ask = Callable[[str, ListEndpoints], Awaitable[EndpointPage]]


class EndpointWatch:
    """One call of WatchEndpoints.

    Args:
        job_id: whose.
        num_tasks: how many tasks it has.
        ask: asks the job's actor, by its path.
    """

    def __init__(self, job_id: str, num_tasks: int, ask: Ask) -> None:
        self._path = f"/jobs/{job_id}"
        self._num_tasks = num_tasks
        self._ask = ask
        self._known: dict[int, EndpointRow] = {}
        self._over: dict[int, None] = {}
        self._begun = False
        self.ended = False
        """Whether the job is over, and all was told."""

    async def news(self) -> AsyncGenerator[v1.EndpointsUpdate, None]:
        """Yield what has changed since the last time; at first all there is, even if that is nothing."""
        start, ended = 0, False
        pending: v1.EndpointsUpdate | None = None
        while start >= 0:
            page = await self._ask(self._path, ListEndpoints(start, MAX_PAGE))
            end = page.next if page.next >= 0 else self._num_tasks
            update = self._changes(page, range(start, end))
            start, ended = page.next, page.ended
            if not self._begun or update.endpoints or update.gone or update.over:
                if pending is not None:
                    pending.more = True
                    yield pending
                pending = update
        self._begun, self.ended = True, ended
        if pending is not None:
            yield pending

    def _changes(self, page: EndpointPage, indexes: range) -> v1.EndpointsUpdate:
        rows = {row.index: row for row in page.rows}
        changed = [row for row in page.rows if self._known.get(row.index) != row]
        over = [index for index in page.over if index not in self._over]
        lost = [index for index in indexes if index in self._known and index not in rows]
        self._over.update(dict.fromkeys(over))
        self._known.update(rows)
        for index in lost:
            del self._known[index]
        return v1.EndpointsUpdate(
            endpoints=[_endpoint(row) for row in changed],
            gone=[index for index in lost if index not in self._over],
            over=over,
            num_tasks=self._num_tasks,
        )


def _endpoint(row: EndpointRow) -> v1.Endpoint:
    return v1.Endpoint(task_index=row.index, attempt_uid=row.uid, host=row.host, ports=dict(row.ports))
