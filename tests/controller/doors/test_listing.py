"""Pages of a listing: the same bytes as a page that is written in one go, with less of it done anew, and in turns."""

import anyio
import attrs
import pytest

from iriscw.controller.doors import listing
from iriscw.controller.doors.listing import PART, JobPages, WrittenPage
from iriscw.jobs import wire
from iriscw.jobs.messages import JobRow, JobTally
from iriscw.jobs.model import JobState, TaskState
from iriscw.proto.iriscw import v1
from iriscw.rpc.limits import RpcLimits
from iriscw.rpc.transport import BoundedCodec


def job(number: int, **more: object) -> JobRow:
    """A row of a listing."""
    tally = JobTally(counts=((TaskState.PENDING, 1),))
    row = JobRow(f"job-{number:012}", f"uid{number}", f"name-{number}", JobState.PENDING, "", 1, 10**15, 0, tally)
    return attrs.evolve(row, **more)


def read(page: WrittenPage) -> v1.ListJobsResponse:
    """The page as it arrives."""
    codec = BoundedCodec(RpcLimits())
    return codec.decode(codec.encode(page, v1.ListJobsResponse), v1.ListJobsResponse)


def at(version: int, rows: list[JobRow]) -> list[tuple[JobRow, int]]:
    """The rows as they were looked at, all at one version."""
    return [(row, version) for row in rows]


async def test_a_page_is_what_its_jobs_say() -> None:
    """The page that arrives has all jobs in order, their versions and reasons, and where the next one begins."""
    rows = [job(number) for number in range(3)]
    pages = JobPages()
    seen = [(row, number) for number, row in enumerate(rows)]
    reasons = {rows[1].job_id: "no room"}
    for _ in range(2):
        jobs = [wire.job_row(row, number, reasons.get(row.job_id, "")) for number, row in enumerate(rows)]
        assert read(await pages.write(seen, reasons, "more")) == v1.ListJobsResponse(jobs=jobs, next_page_token="more")
    assert read(await pages.write([], {}, "")) == v1.ListJobsResponse()


async def test_only_what_changed_is_written() -> None:
    """A page that is asked for again costs no entry; a job whose row, version or reason changed costs its own."""
    rows = [job(number) for number in range(50)]
    pages = JobPages()
    reasons = {rows[0].job_id: "no room"}
    first = await pages.write(at(1, rows), reasons, "")
    assert pages.written == 50
    assert bytes(await pages.write(at(1, [job(number) for number in range(50)]), dict(reasons), "")) == bytes(first)
    assert pages.written == 50
    rows[3] = job(3, state=JobState.RUNNING)
    seen = at(1, rows)
    seen[7] = (rows[7], 2)
    reasons[rows[0].job_id] = "still no room"
    page = read(await pages.write(seen, reasons, ""))
    assert pages.written == 53
    told = page.jobs
    assert (told[3].state, told[7].version, told[0].reason) == (v1.JobState.RUNNING, 2, "still no room")


async def test_others_have_their_turn() -> None:
    """While a page is written, the loop goes round after every hundred entries at least; not for entries it has."""
    pages = JobPages()
    rows = [job(number) for number in range(10 * PART)]
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    for expected in (10, 0):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(count)
            await anyio.lowlevel.checkpoint()
            turns = 0
            await pages.write(at(1, rows), {}, "")
            assert turns == expected
            tasks.cancel_scope.cancel()


async def test_entries_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were written longest ago are dropped, and written anew when their jobs are listed again."""
    monkeypatch.setattr(listing, "MAX_ENTRIES", 10)
    pages = JobPages()
    rows = [job(number) for number in range(15)]
    await pages.write(at(1, rows), {}, "")
    await pages.write(at(1, rows[5:]), {}, "")
    assert pages.written == 15
    await pages.write(at(1, rows[:1]), {}, "")
    assert pages.written == 16
