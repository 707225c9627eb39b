"""Whose word about an attempt counts, and which ends wait for a result: without a network, with workers that lie."""

import hashlib
import math
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import attrs
import pytest
from hypothesis import given, strategies as st

from profiles import examples

sys.path.insert(0, str(Path(__file__).parents[1]))  # for away_store

from away_store import AwayStore

from iriscw._errors import InvalidArgument
from iriscw.cloud.model import Attributes, Capacity
from iriscw.controller.doors import intake as module
from iriscw.controller.doors.intake import LOG_PATIENCE_S, RESULT_PATIENCE_S, Intake
from iriscw.controller.doors.rules import MAX_HELD_ATTEMPTS
from iriscw.controller.doors.streams import WorkerConnection
from iriscw.controller.granted_attempts import HeldAttempts
from iriscw.controller.stores.archive import Archive
from iriscw.controller.stores.logs import LogStore
from iriscw.controller.stores.results import MAX_MISMATCHES, ResultStore
from iriscw.fleet.model import WorkerInfo
from iriscw.jobs.model import AttemptEnd, Ending, Observation, Suspension, TaskState
from iriscw.proto.iriscw import v1
from iriscw.rpc.limits import MAX_RESULT_BYTES
from raised import that

JOB = "job-aaaaaaaaaaaa"
MINE, OTHERS, NOBODYS = "1" * 16, "2" * 16, "f" * 16
VALUE = b"value"


@attrs.define
class Desk:
    """The intake of one worker's stream, with what it tells to both sides."""

    logs: LogStore
    results: ResultStore
    held: HeldAttempts
    intake: Intake
    connection: WorkerConnection

    @classmethod
    async def open(cls, root: Path, archive: Archive | None = None) -> "Desk":
        """Two workers with an attempt each, of the same job; the stream is the first one's."""
        logs = await LogStore.open(root / "logs")
        results = await ResultStore.open(root / "results", archive, archive_from_bytes=0)
        held = HeldAttempts(root / "held")
        for index, (worker_id, uid) in enumerate((("w-0", MINE), ("w-1", OTHERS))):
            await held.give((worker_id, "i"), [uid])
            await logs.begin(JOB, index, 0, uid)
        info = WorkerInfo("w-0", "i", "w", "g", Capacity(), Attributes(), "")
        return cls(logs, results, held, Intake(logs, results, held), WorkerConnection.make(v1.Hello(), info))

    def acks(self) -> list[v1.ControllerMessage]:
        """What the worker was told since the last call."""
        found = []
        while self.connection.outgoing.statistics().current_buffer_used:
            found.append(self.connection.outgoing.receive_nowait())
        return found

    def told(self) -> list[Observation]:
        """What the link was told since the last call, beside the answers to observations."""
        found: list[Observation] = []
        while self.connection.observed.statistics().current_buffer_used:
            found += self.connection.observed.receive_nowait().observations
        return found

    async def chunk(self, uid: str = MINE, data: bytes = VALUE, offset: int = 0) -> None:
        """Take a piece of a result."""
        await self.intake.take_result(v1.ResultChunk(attempt_uid=uid, offset=offset, data=data), self.connection)

    async def line(self, uid: str = MINE, data: bytes = b"line\n", offset: int = 0) -> None:
        """Take a piece of a log."""
        await self.intake.take_log(v1.LogChunk(attempt_uid=uid, offset=offset, data=data), self.connection)

    async def see(self, sent: v1.AttemptObserved) -> Observation:
        """Take an observation."""
        return await self.intake.observation(sent, self.connection)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    """A fresh desk."""
    desk = await Desk.open(tmp_path)
    yield desk
    desk.connection.end()


def ended(uid: str = MINE, data: bytes | None = VALUE, *, state=v1.TaskState.SUCCEEDED, **more) -> v1.AttemptObserved:
    """An end with a result, or with none."""
    reference = None
    if data is not None:
        digest = hashlib.sha256(data).digest()
        values = {"size_bytes": len(data), "sha256": digest, "python_version": "3.11", **more}
        reference = v1.ResultRef(**values)
    exit_ = v1.ProcessExit(code=0)
    return v1.AttemptObserved(attempt_uid=uid, state=state, exit=exit_, was_started=True, result=reference)


# Whose word counts


async def test_made_up_attempts_have_an_end(desk: Desk) -> None:
    """What a worker says it has and was not given is bounded by what it can hold; the same ones may be told again."""
    names = [f"{number:016x}" for number in range(MAX_HELD_ATTEMPTS)]
    for _ in range(2):
        for uid in names:
            await desk.see(v1.AttemptObserved(attempt_uid=uid, state=v1.TaskState.RUNNING))
    await desk.see(v1.AttemptObserved(attempt_uid=MINE, state=v1.TaskState.RUNNING))  # its own are none of these
    with pytest.raises(InvalidArgument, check=that(comes_from="intake._note_stranger", names="512")):
        await desk.see(v1.AttemptObserved(attempt_uid=NOBODYS, state=v1.TaskState.RUNNING))


@pytest.mark.parametrize("offset", [-1, -(1 << 63), (1 << 62) + 1, (1 << 63) - 1])
async def test_no_offset(desk: Desk, offset: int) -> None:
    """A piece that begins nowhere is refused by name, whosever it is; one beyond the end changes nothing."""
    for uid in (MINE, OTHERS):
        with pytest.raises(InvalidArgument, check=that(comes_from="intake._check_offset")):
            await desk.line(uid, offset=offset)
        with pytest.raises(InvalidArgument, check=that(comes_from="intake._check_offset")):
            await desk.chunk(uid, offset=offset)
    await desk.line(offset=1 << 62)
    await desk.chunk(offset=1 << 62)
    assert [(each.log_ack or each.result_ack).offset for each in desk.acks()] == [0, 0]


async def test_no_name(desk: Desk) -> None:
    """A name that no attempt can have is refused, and is never shown whole."""
    name = "u" * 65
    for take in (desk.chunk(name), desk.line(name), desk.see(v1.AttemptObserved(attempt_uid=name))):
        with pytest.raises(InvalidArgument, check=that(comes_from="intake.Intake._known", names=("64", "65"))):
            await take


@pytest.mark.parametrize("uid", [OTHERS, NOBODYS])
async def test_nothing_comes_from_strangers(desk: Desk, uid: str, caplog: pytest.LogCaptureFixture) -> None:
    """A worker's log lines, result and end of an attempt that is not its own change nothing; that is said once."""
    await desk.chunk(uid, b"planted")
    await desk.line(uid, b"planted\n")
    seen = await desk.see(ended(uid, b"planted"))
    assert seen == Observation(uid, TaskState.ASSIGNED, AttemptEnd(Ending.MISSING, fault=seen.end.fault))
    assert "given" in seen.reason
    await desk.chunk(uid, b"planted")
    assert (desk.acks(), desk.told(), desk.connection.pending_ends) == ([], [], {})
    assert (await desk.results.jobs(), desk.results.result(uid), desk.results.stored(uid)) == ([], None, 0)
    known = desk.logs.attempt(OTHERS)
    assert known is not None
    assert (known.end, known.over) == (0, False)
    assert (desk.intake.strangers, desk.connection.strangers) == (4, 4)
    [said] = [record.getMessage() for record in caplog.records]
    assert "w-0#i" in said
    assert uid in said


async def test_a_stranger_that_lives(desk: Desk) -> None:
    """Its link hears that there is something of that name, so that it can be stopped, and no more."""
    sent = v1.AttemptObserved(attempt_uid=OTHERS, state=v1.TaskState.RUNNING, was_started=True, log_end_offset=9)
    assert await desk.see(sent) == Observation(OTHERS, TaskState.ASSIGNED)


async def test_a_stranger_that_is_suspended(desk: Desk) -> None:
    """Its link hears that much: who has not heard yet that it may let one go must not be told to stop it."""
    sent = v1.AttemptObserved(
        attempt_uid=OTHERS,
        state=v1.TaskState.RUNNING,
        suspension=v1.Suspension.SUSPENDED,
        folder="/w",
        was_started=True,
    )
    assert await desk.see(sent) == Observation(OTHERS, TaskState.ASSIGNED, suspension=Suspension.SUSPENDED)


async def test_a_suspension_waits_for_the_log(desk: Desk) -> None:
    """Whoever hears of it lets the worker forget the attempt, and with it what the store has not got yet."""
    sent = v1.AttemptObserved(
        attempt_uid=MINE,
        state=v1.TaskState.RUNNING,
        suspension=v1.Suspension.SUSPENDED,
        folder="/w",
        was_started=True,
        log_end_offset=10,
    )
    assert (await desk.see(sent)).suspension is Suspension.SUSPENDING
    await desk.line()
    assert desk.told() == []
    await desk.line(offset=5)
    (seen,) = desk.told()
    assert (seen.suspension, seen.folder, seen.logs_stored) == (Suspension.SUSPENDED, "/w", 10)
    assert desk.connection.pending_ends == {}
    assert (await desk.see(sent)).suspension is Suspension.SUSPENDED


async def test_its_owner_is_believed(desk: Desk) -> None:
    """After a liar's attempts as before: the result is the owner's."""
    await desk.chunk(OTHERS, b"planted")
    await desk.see(ended(OTHERS, b"planted"))
    desk.connection.info = attrs.evolve(desk.connection.info, worker_id="w-1")
    await desk.chunk(OTHERS, VALUE)
    seen = await desk.see(ended(OTHERS))
    assert (seen.ending, seen.started, seen.exit_code) == (Ending.SUCCEEDED, True, 0)
    result = desk.results.result(OTHERS)
    assert result is not None
    assert [piece async for piece in desk.results.read(result)] == [VALUE]


async def test_another_incarnation_is_another_worker(desk: Desk) -> None:
    """What a worker's earlier life was given is not its own."""
    desk.connection.info = attrs.evolve(desk.connection.info, incarnation="j")
    await desk.line()
    await desk.chunk()
    assert (await desk.see(ended())).ending is Ending.MISSING
    assert desk.intake.strangers == 3


async def test_what_was_struck_out_may_still_be_flushed(desk: Desk) -> None:
    """The worker was told to forget an attempt while its last words were on the way: they are stored."""
    await desk.held.strike(("w-0", "i"), [MINE])
    await desk.line()
    [ack] = desk.acks()
    assert ack.log_ack == v1.LogAck(attempt_uid=MINE, offset=5)
    assert desk.intake.strangers == 0


@examples(40)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from("clse"), st.sampled_from([OTHERS, NOBODYS]), st.binary(max_size=8)), max_size=12
    )
)
async def test_any_lies(tmp_path_factory: pytest.TempPathFactory, steps: list) -> None:
    """Whatever a worker says of others' attempts, in whatever order: the stores are as they were."""
    desk = await Desk.open(tmp_path_factory.mktemp("desk"))
    await desk.line()
    for what, uid, data in steps:
        if what == "c":
            await desk.chunk(uid, data)
        elif what == "l":
            await desk.line(uid, data)
        elif what == "s":
            await desk.see(v1.AttemptObserved(attempt_uid=uid, state=v1.TaskState.RUNNING))
        else:
            assert (await desk.see(ended(uid, data))).ending is Ending.MISSING
    others = desk.logs.attempt(OTHERS)
    assert others is not None
    assert (others.end, others.over, await desk.results.jobs(), desk.told()) == (0, False, [], [])
    assert desk.logs.statistics().stored_bytes == 5
    assert desk.connection.strangers == len(steps)
    desk.connection.end()


# Which ends wait


async def test_end_waits_for_the_result(desk: Desk) -> None:
    """Until the last byte is here the attempt is seen as it was before it ended."""
    assert (await desk.see(ended())).ending is None
    assert [(ack.log_ack, ack.result_ack) for ack in desk.acks()] == [
        (v1.LogAck(attempt_uid=MINE, offset=0), None),
        (None, v1.ResultAck(attempt_uid=MINE, offset=0)),
    ], "its worker hears where to go on from"
    assert (await desk.see(ended())).ending is None
    assert desk.acks() == [], "once"
    await desk.chunk(data=VALUE[:2])
    assert desk.told() == []
    await desk.chunk(data=VALUE[2:], offset=2)
    [seen] = desk.told()
    assert (seen.ending, seen.reason) == (Ending.SUCCEEDED, "")
    assert [ack.result_ack.offset for ack in desk.acks() if ack.result_ack] == [2, 5]
    assert desk.connection.pending_ends == {}


async def test_a_result_that_is_too_big_holds_nothing_back(desk: Desk) -> None:
    """Whether it is announced as such or grows: the attempt has failed, by name, at once."""
    seen = await desk.see(ended(size_bytes=MAX_RESULT_BYTES + 1))
    assert (seen.ending, seen.started, seen.exit_code) == (Ending.FAILED, True, 0)
    assert seen.reason.startswith("ResultTooBig: ")
    assert str(MAX_RESULT_BYTES) in seen.reason
    assert desk.connection.pending_ends == {}


async def test_a_result_that_grows_too_big(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end does not wait for what cannot come, and its worker is not kept waiting for acknowledgements."""
    monkeypatch.setattr("iriscw.controller.stores.results.MAX_RESULT_BYTES", 8)
    assert (await desk.see(ended())).ending is None
    desk.acks()
    await desk.chunk(data=b"x" * 4)
    assert desk.told() == []
    await desk.chunk(data=b"x" * 100, offset=4)
    assert [ack.result_ack.offset for ack in desk.acks() if ack.result_ack] == [4, 104]
    [seen] = desk.told()
    assert (seen.ending, seen.reason.partition(":")[0]) == (Ending.FAILED, "ResultTooBig")


async def test_a_result_that_is_another_every_time(desk: Desk) -> None:
    """It is wanted again, in a way that a worker understands, and then no more."""
    assert (await desk.see(ended())).ending is None
    desk.acks()
    for _ in range(MAX_MISMATCHES - 1):
        await desk.chunk(data=b"wrong")
        assert desk.told() == []
        assert [ack.result_ack.offset for ack in desk.acks() if ack.result_ack] == [5, 0]
    await desk.chunk(data=b"wrong")
    [seen] = desk.told()
    assert (seen.ending, seen.reason.partition(":")[0]) == (Ending.FAILED, "ResultCorrupt")
    assert [ack.result_ack.offset for ack in desk.acks() if ack.result_ack] == [5]


@pytest.mark.parametrize("python", ["", "three", "3.11/../x"])
async def test_a_result_of_no_python(desk: Desk, python: str) -> None:
    """It could never be loaded."""
    seen = await desk.see(ended(python_version=python))
    assert (seen.ending, seen.reason.partition(":")[0]) == (Ending.FAILED, "ResultCorrupt")


@pytest.mark.parametrize(
    ("state", "ending"),
    [
        (v1.TaskState.FAILED, Ending.FAILED),
        (v1.TaskState.KILLED, Ending.KILLED),
        (v1.TaskState.PREEMPTED, Ending.PREEMPTED),
    ],
)
async def test_other_ends_stay_what_they_are(desk: Desk, state: v1.TaskState, ending: Ending) -> None:
    """A result that is refused spoils a success; whoever failed or was stopped did so for another reason."""
    sent = ended(state=state, size_bytes=MAX_RESULT_BYTES + 1)
    sent.fault = v1.Fault(kind="ValueError", text="ValueError: bad")
    seen = await desk.see(sent)
    assert (seen.ending, seen.reason) == (ending, "ValueError: bad")


async def test_a_command_has_no_result(desk: Desk) -> None:
    """An end without a result is not held against what was sent as one."""
    await desk.chunk(data=b"x")
    assert (await desk.see(ended(data=None))).ending is Ending.SUCCEEDED


@asynccontextmanager
async def archiving(root: Path) -> AsyncIterator[tuple[Desk, AwayStore]]:
    """A desk whose results belong into an object store, which does not answer yet."""
    store = AwayStore()
    desk = await Desk.open(root, Archive(store, ["f"]))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(desk.results.run)
        tasks.start_soon(desk.intake.pass_settled, desk.connection)
        yield desk, store
        tasks.cancel_scope.cancel()
    desk.connection.end()


async def observed(desk: Desk) -> Observation:
    """What the link is told next."""
    with anyio.fail_after(60):
        [seen] = (await desk.connection.observed.receive()).observations
    return seen


async def test_an_end_waits_for_the_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as that does not answer: it is not given up, and told once when the result is there."""
    async with archiving(tmp_path) as (desk, store):
        await desk.chunk()
        assert (await desk.see(ended())).ending is None
        await store.asked.wait()
        with monkeypatch.context() as patched:
            clock = Clock(anyio.current_time())
            patched.setattr(module.anyio, "current_time", clock)
            await beats(desk, clock, 10 * RESULT_PATIENCE_S)
        assert (desk.told(), list(desk.connection.pending_ends)) == ([], [MINE])
        assert (await desk.see(ended())).ending is None, "said again it waits on"
        store.come_back()
        seen = await observed(desk)
        assert (seen.uid, seen.ending, seen.reason) == (MINE, Ending.SUCCEEDED, "")
        assert (desk.connection.pending_ends, list(store.contents().values())) == ({}, [VALUE])
        assert (await desk.see(ended())).ending is Ending.SUCCEEDED, "it is there"
        assert desk.told() == []


async def test_an_end_whose_worker_dialled_again_meanwhile(tmp_path: Path) -> None:
    """It is passed on by the stream that said it last."""
    async with archiving(tmp_path) as (desk, store):
        await desk.chunk()
        await desk.see(ended())
        earlier, desk.connection = desk.connection, WorkerConnection.make(v1.Hello(), desk.connection.info)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(desk.intake.pass_settled, desk.connection)
            await desk.see(ended())
            store.come_back()
            assert (await observed(desk)).ending is Ending.SUCCEEDED
            tasks.cancel_scope.cancel()
        assert earlier.observed.statistics().current_buffer_used == 0
        earlier.end()


async def test_a_result_that_the_disk_spoils_while_it_waits(tmp_path: Path) -> None:
    """Its worker is asked for it again, and nothing wrong comes into the object store."""
    async with archiving(tmp_path) as (desk, store):
        await desk.chunk()
        await desk.see(ended())
        await store.asked.wait()
        [path] = (tmp_path / "results" / JOB).iterdir()
        path.write_bytes(b"eulav")
        desk.acks()
        store.come_back()
        with anyio.fail_after(60):
            ack = (await desk.connection.outgoing.receive()).result_ack
        assert (ack.attempt_uid, ack.offset, store.contents()) == (MINE, 0, {})
        await desk.chunk()
        assert (await observed(desk)).ending is Ending.SUCCEEDED
        assert list(store.contents().values()) == [VALUE]


class Clock:
    """The loop's clock, moved by hand. It begins at a whole second: what is added to it is exact then."""

    def __init__(self, start: float) -> None:
        self.now = float(math.ceil(start))

    def __call__(self) -> float:
        return self.now


async def beats(desk: Desk, clock: Clock, seconds: float, step: float = 5.0) -> None:
    """Let heartbeats come for so long."""
    for _ in range(round(seconds / step)):
        clock.now += step
        await desk.intake.pass_time(desk.connection)


async def test_a_result_that_does_not_come(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """An end waits as long as something of the attempt comes, and a bounded time after that."""
    clock = Clock(anyio.current_time())
    monkeypatch.setattr(module.anyio, "current_time", clock)
    assert (await desk.see(ended())).ending is None
    for offset in range(3):
        await beats(desk, clock, RESULT_PATIENCE_S - 5)
        await desk.chunk(data=VALUE[offset : offset + 1], offset=offset)
    await beats(desk, clock, RESULT_PATIENCE_S - 5)
    await desk.line()
    await beats(desk, clock, RESULT_PATIENCE_S - 5)
    assert (await desk.see(ended())).ending is None, "said again it waits on"
    assert desk.told() == []
    await beats(desk, clock, 5)
    [seen] = desk.told()
    assert (seen.ending, seen.reason.partition(":")[0]) == (Ending.FAILED, "ResultMissing")
    assert desk.connection.pending_ends == {}


async def test_an_end_waits_for_the_log(desk: Desk) -> None:
    """It is passed on with the last byte of the log, if the result is here as well."""
    for data in (None, VALUE):
        uid = MINE if data is None else "3" * 16
        await desk.held.give(("w-0", "i"), [uid])
        await desk.logs.begin(JOB, 2, 0, uid)
        sent = ended(uid, data)
        sent.log_end_offset = 10
        assert (await desk.see(sent)).ending is None
        await desk.line(uid)
        assert desk.told() == []
        await desk.line(uid, offset=5)
        if data is not None:
            assert desk.told() == []
            await desk.chunk(uid)
        [seen] = desk.told()
        assert (seen.ending, seen.log_offset, seen.logs_stored) == (Ending.SUCCEEDED, 10, 10)
        known = desk.logs.attempt(uid)
        assert known is not None
        assert known.over


async def test_a_log_that_does_not_come(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for while it grows, and a while after that; the end is what it was."""
    clock = Clock(anyio.current_time())
    monkeypatch.setattr(module.anyio, "current_time", clock)
    sent = ended(data=None)
    sent.log_end_offset = 100
    assert (await desk.see(sent)).ending is None
    for offset in (0, 5, 10):
        await beats(desk, clock, LOG_PATIENCE_S - 5)
        await desk.line(offset=offset)
    assert desk.told() == []
    await beats(desk, clock, LOG_PATIENCE_S)
    [seen] = desk.told()
    assert (seen.ending, seen.log_offset, seen.logs_stored) == (Ending.SUCCEEDED, 100, 15)
    known = desk.logs.attempt(MINE)
    assert known is not None
    assert not known.over


async def test_a_controller_that_stood_still(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """While this process did not run, no worker was late: its heartbeats of that time are read all at once."""
    clock = Clock(anyio.current_time())
    monkeypatch.setattr(module.anyio, "current_time", clock)
    await desk.see(ended())
    clock.now += 100 * RESULT_PATIENCE_S
    for _ in range(1000):
        await desk.intake.pass_time(desk.connection)
    assert desk.told() == []
    await desk.chunk()
    assert [seen.ending for seen in desk.told()] == [Ending.SUCCEEDED]


async def test_progress_is_believed_of_ones_own(desk: Desk) -> None:
    """What a worker says of others' attempts is passed over; what no task can have said ends its stream."""

    def report(uid: str, done: int, text: str = "", times: int = 1) -> v1.ProgressReports:
        progress = v1.Progress(done_milli=done, total_milli=9, text=text)
        return v1.ProgressReports(reports=[v1.ProgressReport(attempt_uid=uid, progress=progress)] * times)

    board = desk.intake._progress
    desk.intake.take_progress(report(OTHERS, 1), desk.connection)
    desk.intake.take_progress(report(NOBODYS, 1), desk.connection)
    nothing = v1.ProgressReport(attempt_uid=MINE)
    desk.intake.take_progress(v1.ProgressReports(reports=[nothing]), desk.connection)
    assert board.of_job(JOB) is None
    does = v1.ProgressReport(attempt_uid=MINE, doing="installs numpy")
    desk.intake.take_progress(v1.ProgressReports(reports=[does]), desk.connection)
    assert board.doing(JOB, 0, MINE) == "installs numpy"
    desk.intake.take_progress(report(MINE, 2, "x" * 200), desk.connection)
    said = board.of_task(JOB, 0, MINE)
    assert said is not None
    assert (said.done_milli, said.total_milli, len(said.text)) == (2, 9, 200)
    with pytest.raises(InvalidArgument, check=that(names=MAX_HELD_ATTEMPTS)):
        desk.intake.take_progress(report(MINE, 1, times=MAX_HELD_ATTEMPTS + 1), desk.connection)
    long = v1.ProgressReports(reports=[v1.ProgressReport(attempt_uid=MINE, doing="x" * 201)])
    for bad in (report(MINE, -1), report(MINE, 1 << 63), report(MINE, 1, "x" * 201), long):
        with pytest.raises(InvalidArgument, check=that(comes_from="intake.Intake._take_report")):
            desk.intake.take_progress(bad, desk.connection)
    assert desk.intake.strangers == 0, "a late word of an attempt that was forgotten is no lie"
