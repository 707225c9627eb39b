"""The log store: idempotent, bounded, readable while it grows, the same after a restart."""

import errno
import os
import tempfile
import threading
from pathlib import Path

import anyio
import anyio.from_thread
import pytest
from hypothesis import given, strategies as st

from iriscw.controller.stores import logs
from iriscw.controller.stores.logs import LINE_SHARE, ROLL, AttemptLog, LogLimits, LogStore, LogStoreBroken, Named
from iriscw.jobs.model import AwaitLogs
from iriscw.runtime.vocabulary import SECOND
from profiles import examples
from raised import that

JOB = "job-aaaaaaaaaaaa"
OTHER = "job-bbbbbbbbbbbb"
UID = "0" * 16


def left(folder: Path) -> list[str]:
    """What lies in a folder."""
    return [path.name for path in folder.iterdir()]


async def everything(store: LogStore, attempt: AttemptLog, offset: int = 0) -> tuple[int, bytes]:
    """Read to the end; give where it began and the bytes."""
    begin, data = await store.read(attempt, offset, 7)
    first = begin
    parts = [data]
    while data:
        begin, data = await store.read(attempt, begin + len(data), 7)
        parts.append(data)
    return first, b"".join(parts)


def known(store: LogStore, uid: str = UID) -> AttemptLog:
    """The attempt, which is there."""
    attempt = store.attempt(uid)
    assert attempt is not None
    return attempt


async def test_append(tmp_path: Path) -> None:
    """Repeated, overlapping and early chunks give the end of what is stored, and change nothing else."""
    store = await LogStore.open(tmp_path / "logs")
    assert await store.append(UID, 0, b"x") is None, "nobody opened this attempt"
    await store.begin(JOB, 3, 0, UID)
    assert [
        await store.append(UID, *chunk) for chunk in ((0, b"abc"), (0, b"abc"), (5, b"z"), (2, b"cd"), (0, b""))
    ] == [
        3,
        3,
        3,
        4,
        4,
    ]
    assert await everything(store, known(store)) == (0, b"abcd")
    files = sorted((tmp_path / "logs" / JOB).iterdir())
    assert [file.name for file in files] == [f"3-0-{UID}.0.log", ROLL]
    assert [file.stat().st_mode & 0o777 for file in files] == [0o600, 0o600]


@examples(30)
@given(
    text=st.binary(min_size=1, max_size=200),
    cuts=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 60)), max_size=20),
    segment=st.integers(1, 50),
    reopen=st.booleans(),
)
async def test_any_chunks_give_the_log(text: bytes, cuts: list, segment: int, reopen: bool) -> None:
    """Whatever pieces of a log arrive in whatever order, the store holds a prefix of it; in order, all of it."""
    with tempfile.TemporaryDirectory() as folder:
        limits = LogLimits(segment_bytes=segment)
        store = await LogStore.open(Path(folder), limits)
        await store.begin(JOB, 0, 0, UID)
        for start, size in cuts:
            await store.append(UID, min(start, len(text)), text[start : start + size])
            assert await everything(store, known(store)) == (0, text[: known(store).end])
        if reopen:
            store = await LogStore.open(Path(folder), limits)
        while known(store).end < len(text):
            await store.append(UID, known(store).end, text[known(store).end :][:9])
        assert await everything(store, known(store)) == (0, text)
        again = await LogStore.open(Path(folder), limits)
        assert await everything(again, known(again)) == (0, text)
        assert again.statistics().stored_bytes == len(text)


async def test_limit_of_an_attempt(tmp_path: Path) -> None:
    """Beyond an attempt's limit its oldest segment goes, and a reader sees a gap, after a restart too."""
    limits = LogLimits(segment_bytes=10, attempt_bytes=25)
    store = await LogStore.open(tmp_path, limits)
    await store.begin(JOB, 0, 0, UID)
    for number in range(10):
        await store.append(UID, number * 10, bytes([65 + number]) * 10)
    for each in (store, await LogStore.open(tmp_path, limits)):
        assert (known(each).begin, known(each).end) == (80, 100)
        assert await everything(each, known(each)) == (80, b"I" * 10 + b"J" * 10)
    assert store.statistics().dropped_bytes == 80


@pytest.mark.sampled(2)
@pytest.mark.parametrize("chunk", [1, 13, 777, 20_000])
async def test_segments_begin_with_lines(tmp_path: Path, chunk: int) -> None:
    """What is left of a log that was cut begins with a whole line, wherever its chunks were cut."""
    store = await LogStore.open(tmp_path, LogLimits(segment_bytes=LINE_SHARE * 20, attempt_bytes=LINE_SHARE * 60))
    await store.begin(JOB, 0, 0, UID)
    lines = {1: 330, 13: 700}.get(chunk, 7_000)  # an append is of one chunk
    text = b"".join(b"%d" % number * 7 + b"\n" for number in range(lines))
    for start in range(0, len(text), chunk):
        await store.append(UID, start, text[start : start + chunk])
    begin, data = await everything(store, known(store))
    assert data == text[begin:]
    assert begin > 0 or len(known(store).segments) > 1
    for start, _ in known(store).segments:
        assert text[max(0, start - 1) : start] in (b"", b"\n")


async def test_a_line_without_an_end_is_cut(tmp_path: Path) -> None:
    """A segment does not wait for ever for the end of its line."""
    store = await LogStore.open(tmp_path, LogLimits(segment_bytes=LINE_SHARE * 4))
    await store.begin(JOB, 0, 0, UID)
    for start in range(0, 3000, 3):
        await store.append(UID, start, b"xxx")
    assert [size for _, size in known(store).segments][:-1] == [LINE_SHARE * 4 + 5] * 2
    assert await everything(store, known(store)) == (0, b"x" * 3000)


async def test_limit_in_total(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Beyond the total the logs of the job that finished first go, which is said; the running job's stay."""
    limits = LogLimits(total_bytes=100)
    store = await LogStore.open(tmp_path, limits)
    await store.begin(JOB, 0, 0, UID)
    await store.begin(OTHER, 0, 0, "1" * 16)
    await store.append(UID, 0, b"a" * 60)
    store.job_finished(JOB)
    await store.append("1" * 16, 0, b"b" * 60)
    assert f"dropped 60 bytes of logs of {JOB}" in caplog.text
    for each in (store, await LogStore.open(tmp_path, limits)):
        assert await everything(each, known(each)) == (60, b"")
        assert await everything(each, known(each, "1" * 16)) == (0, b"b" * 60)


@pytest.mark.parametrize(
    ("text", "lines", "found"),
    [(b"a\nb\nc\n", 1, b"c\n"), (b"a\nb\nc", 2, b"b\nc"), (b"a\n", 5, b"a\n"), (b"", 3, b""), (b"\n\n", 1, b"\n")],
)
async def test_tail(tmp_path: Path, text: bytes, lines: int, found: bytes) -> None:
    """The last lines are found from the end, with or without a last line feed."""
    store = await LogStore.open(tmp_path)
    await store.begin(JOB, 0, 0, UID)
    await store.append(UID, 0, text)
    offset = await store.tail(known(store), lines)
    assert text[offset:] == found


async def test_await_logs(tmp_path: Path) -> None:
    """Waiting ends with the byte that is waited for, or with the bound; an unknown attempt has none."""
    store = await LogStore.open(tmp_path)
    await store.begin(JOB, 0, 0, UID)
    assert await store.await_logs(AwaitLogs("f" * 16, 5, SECOND)) == 0
    assert await store.await_logs(AwaitLogs(UID, 5, SECOND // 100)) == 0
    async with anyio.create_task_group() as tasks:

        async def write() -> None:
            for number in range(5):
                await store.append(UID, number, b"x")

        tasks.start_soon(write)
        assert await store.await_logs(AwaitLogs(UID, 5, 60 * SECOND)) == 5


async def test_follower(tmp_path: Path) -> None:
    """A follower is rung for its own job, told which attempts grew, and forgotten afterwards."""
    store = await LogStore.open(tmp_path)
    await store.begin(JOB, 0, 0, UID)
    await store.begin(OTHER, 0, 0, "1" * 16)
    with store.following(JOB) as follower:
        await store.append("1" * 16, 0, b"x")
        await store.append(UID, 0, b"x")
        store.finish(UID)
        await follower.wait()
        assert follower.take() == [UID]
        assert follower.take() == []
    assert not store._followers


async def test_forget(tmp_path: Path) -> None:
    """A forgotten job leaves nothing, and forgetting it again is fine."""
    store = await LogStore.open(tmp_path)
    await store.begin(JOB, 0, 0, UID)
    await store.append(UID, 0, b"x")
    for _ in range(2):
        await store.forget(JOB)
    assert (store.statistics().stored_bytes, store.jobs(), left(tmp_path)) == (0, [], [])


async def test_broken_disk(tmp_path: Path) -> None:
    """What the disk refuses is a named, retryable error."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(LogStoreBroken):
        await LogStore.open(tmp_path / "file")
    store = await LogStore.open(tmp_path / "logs")
    (tmp_path / "logs" / JOB).write_text("x")
    with pytest.raises(LogStoreBroken):
        await store.begin(JOB, 0, 0, UID)


class FullDisk:
    """An ``os.open`` or ``os.write`` that fails for the files of logs until ``over``."""

    def __init__(self, call) -> None:
        self.call = call
        self.over = False

    def __call__(self, what, *more):
        name = what if isinstance(what, int) else str(what)
        if not self.over and (isinstance(name, int) or name.endswith((".log", ROLL))):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.call(what, *more)


async def test_an_attempt_is_known_when_it_is_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full when an attempt is opened leaves it unknown; opened again, it survives a restart."""
    store = await LogStore.open(tmp_path)
    disk = FullDisk(os.open)
    monkeypatch.setattr(os, "open", disk)
    with pytest.raises(LogStoreBroken, check=that(names=os.strerror(errno.ENOSPC))):
        await store.begin(JOB, 0, 0, UID)
    assert (store.attempt(UID), store.attempts(JOB), store.jobs(), store.statistics().attempts) == (None, [], [], 0)
    assert await store.append(UID, 0, b"x") is None
    disk.over = True
    await store.begin(JOB, 0, 0, UID)
    for each in (store, await LogStore.open(tmp_path)):
        assert known(each).segments == [[0, 0]]
    assert await store.append(UID, 0, b"x") == 1


async def test_many_attempts_are_opened_by_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds are one write to one file, and none where all are known; each has a file once it says something."""
    store = await LogStore.open(tmp_path)
    writes = []
    append_whole = logs.append_whole
    monkeypatch.setattr(logs, "append_whole", lambda path, data: (writes.append(path.name), append_whole(path, data)))
    some = [Named(index, 0, f"{index:016x}") for index in range(300)]
    for _ in range(2):
        await store.begin_all(JOB, some)
    await store.begin_all(JOB, [*some[:5], Named(1, 1, "f" * 16)])
    assert writes == [ROLL, ROLL]
    await store.append("f" * 16, 0, b"here\n")
    assert writes == [ROLL, ROLL, f"1-1-{'f' * 16}.0.log"]
    again = await LogStore.open(tmp_path)
    assert [(each.index, each.number, each.uid, each.segments) for each in again.attempts(JOB)] == [
        (each.index, each.number, each.uid, each.segments) for each in store.attempts(JOB)
    ]
    assert again.statistics().attempts == 301


async def test_attempts_that_are_opened_at_once_are_one_write(tmp_path: Path) -> None:
    """A job that begins on a hundred workers is not handed to the disk a hundred times."""
    store = await LogStore.open(tmp_path)
    async with anyio.create_task_group() as tasks:
        for index in range(100):
            tasks.start_soon(store.begin, JOB, index, 0, f"{index:016x}")
    assert store.rolls[JOB].writes <= 2
    again = await LogStore.open(tmp_path)
    assert sorted(each.index for each in again.attempts(JOB)) == list(range(100))


async def test_half_a_line_of_the_roll(tmp_path: Path) -> None:
    """What was being written when the machine stopped is nobody's name, nor is what begins behind it."""
    store = await LogStore.open(tmp_path)
    await store.begin(JOB, 0, 0, UID)
    with (tmp_path / JOB / ROLL).open("a", encoding="ascii") as roll:
        roll.write("1-0-00")
    store = await LogStore.open(tmp_path)
    assert [each.uid for each in store.attempts(JOB)] == [UID]
    await store.begin(JOB, 1, 0, "1" * 16)
    store = await LogStore.open(tmp_path)
    assert [(each.index, each.uid) for each in store.attempts(JOB)] == [(0, UID), (1, "1" * 16)]


@pytest.mark.parametrize("spoil", ["bytes", "folder", "link"])
async def test_a_roll_that_cannot_be_read(tmp_path: Path, caplog: pytest.LogCaptureFixture, spoil: str) -> None:
    """It names nobody, or the lines that are whole, and is told of; who has written something is known all the same."""
    store = await LogStore.open(tmp_path)
    await store.begin(JOB, 0, 0, UID)
    await store.append(UID, 0, b"said\n")
    roll = tmp_path / JOB / ROLL
    if spoil == "bytes":
        roll.write_bytes(b"\xff\xfe\n" + roll.read_bytes())
    else:
        roll.rename(tmp_path / "elsewhere")
        roll.mkdir() if spoil == "folder" else roll.symlink_to(tmp_path / "elsewhere")
    again = await LogStore.open(tmp_path)
    assert known(again).end == 5
    assert str(roll) in caplog.text


async def test_a_slow_disk_holds_up_one_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The roll of another job is written meanwhile."""
    store = await LogStore.open(tmp_path)
    written, held, go_on = logs.append_whole, anyio.Event(), threading.Event()

    def append(path: Path, data: bytes) -> None:
        if JOB in str(path):
            anyio.from_thread.run_sync(held.set)
            assert go_on.wait(60)
        written(path, data)

    monkeypatch.setattr(logs, "append_whole", append)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(store.begin, JOB, 0, 0, UID)
        await held.wait()
        await store.begin(OTHER, 0, 0, "fedcba9876543210")
        assert store.attempt(UID) is None
        go_on.set()
    assert store.attempt(UID) is not None


async def test_attempts_of_an_older_release(tmp_path: Path) -> None:
    """A folder without a roll has a file for each attempt, empty ones too."""
    (tmp_path / JOB).mkdir()
    (tmp_path / JOB / f"4-1-{UID}.0.log").touch()
    store = await LogStore.open(tmp_path)
    assert [(each.index, each.number, each.segments) for each in store.attempts(JOB)] == [(4, 1, [[0, 0]])]


async def test_a_segment_is_known_when_its_file_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full when a log goes on in a new file loses nothing, then or later."""
    store = await LogStore.open(tmp_path, LogLimits(segment_bytes=3))
    await store.begin(JOB, 0, 0, UID)
    await store.append(UID, 0, b"abc")
    disk = FullDisk(os.write)
    monkeypatch.setattr(os, "write", disk)
    with pytest.raises(LogStoreBroken):
        await store.append(UID, 3, b"def")
    assert known(store).segments == [[0, 3]]
    disk.over = True
    assert await store.append(UID, 3, b"def") == 6
    for each in (store, await LogStore.open(tmp_path)):
        assert await everything(each, known(each)) == (0, b"abcdef")
