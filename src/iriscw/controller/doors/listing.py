"""Writes the pages of a listing: in parts, and each job only when something of it has changed.

A page of 1,000 jobs is a thousand messages within one. To write all of them in one go would keep everybody else waiting
for some 30 ms, and whoever shows a listing asks for the same page again and again. So a page is put together from its
jobs' encoded entries, with a turn of the loop for others after every few that had to be written, and entries are kept:
one whose job looks as it did is used as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import anyio.lowlevel
import attrs

from iriscw.jobs import wire
from iriscw.jobs.messages import MAX_PAGE, JobRow
from iriscw.proto.iriscw import v1
from iriscw.rpc.encoding import encode

DEFAULT_PAGE = 100

PART = 100
"""Entries that are written in one turn of the loop: about 3 ms."""

MAX_ENTRIES = 5 * MAX_PAGE
"""Entries that are kept, at about a kilobyte."""


def page_size(asked: int) -> int:
    """Return how many rows a page has: what was asked for, within the limit."""
    return min(asked, MAX_PAGE) if asked > 0 else DEFAULT_PAGE


class WrittenPage(v1.ListJobsResponse):
    """A page that is encoded already."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self._content = content

    def __bytes__(self) -> bytes:
        """Return the page as it travels."""
        return self._content


@attrs.frozen
class _Entry:
    row: JobRow
    version: int
    reason: str
    content: bytes


def _same(one: JobRow, other: JobRow) -> bool:
    return one is other or one == other  # mostly it is: the registry keeps rows, too


class JobPages:
    """Writes pages, and keeps the entries of the jobs that were listed last.

    Args:
        progress: gives how far a job is; another progress comes with another version of the job.
    """

    def __init__(self, progress: Callable[[str], v1.Progress | None] = lambda _: None) -> None:
        self._progress = progress
        self._entries: dict[str, _Entry] = {}
        self.written = 0
        """Entries that had to be written, since the start."""

    async def write(
        self, rows: Sequence[tuple[JobRow, int]], reasons: Mapping[str, str], next_token: str
    ) -> WrittenPage:
        """Write a page.

        Args:
            rows: the jobs, in order, each with its version when it was looked at.
            reasons: why tasks wait, by job.
            next_token: of the next page; empty: this is the last one.
        """
        parts = []
        before = self.written
        for row, version in rows:
            parts.append(self._entry(row, version, reasons.get(row.job_id, "")))
            if self.written - before >= PART:
                before = self.written
                await anyio.lowlevel.checkpoint()
        parts.append(encode(v1.ListJobsResponse(next_page_token=next_token)))
        return WrittenPage(b"".join(parts))

    def _entry(self, row: JobRow, version: int, reason: str) -> bytes:
        known = self._entries.get(row.job_id)
        if known is not None and known.version == version and known.reason == reason and _same(known.row, row):
            return known.content
        # A page of one job is what that job adds to any page: repeated fields of messages are joined end to end.
        content = encode(v1.ListJobsResponse(jobs=[wire.job_row(row, version, reason, self._progress(row.job_id))]))
        self.written += 1
        self._entries.pop(row.job_id, None)
        self._entries[row.job_id] = _Entry(row, version, reason, content)
        if len(self._entries) > MAX_ENTRIES:
            del self._entries[next(iter(self._entries))]
        return content
