"""A callable that succeeded and whose result is no good, or is lost later: its attempt fails, by name, and at once."""

import os
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for worker_world

from worker_world import Controller, serving, settings, world

from iriscw.jobs.model import AttemptEnd, Ending, Observation, TaskState
from iriscw.jobs.traits import Fault, ResultFacts
from iriscw.processes.ends import ProcessEnd
from iriscw.proto.iriscw import v1
from iriscw.rpc.limits import MAX_RESULT_BYTES
from iriscw.task.result import (
    MAX_RESULT_BYTES as MAX_VALUE_BYTES,
    MAX_TEXT_CHARS,
    encode_exception,
    encode_value,
    load_result,
)
from iriscw.worker.assembly import Worker
from iriscw.worker.drivers.desk import finish
from iriscw.worker.effects import Finish
from iriscw.worker.judging import judge

FACTS = ResultFacts(3, "0" * 64, "3.11")
FAULT = Fault("ResultCorrupt", "it is not")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """The worker's folder."""
    return tmp_path / "cache"


def result_file(cache: Path) -> Path:
    """The one attempt's result."""
    return cache / "worker-1" / "life-1" / "attempts" / "a1" / "work" / ".iris" / "result"


# One limit


class Unpicklable(Exception):
    """An exception with a message that JSON writes as largely as any."""

    def __str__(self) -> str:
        return "\N{GRINNING FACE}" * MAX_TEXT_CHARS


def test_every_result_fits_the_limit() -> None:
    """The largest value, and the largest exception with the largest texts, are results for worker and controller."""
    assert len(encode_value(b"x" * (MAX_VALUE_BYTES - 64))) > MAX_VALUE_BYTES
    for made in (encode_value(b"x" * (MAX_VALUE_BYTES - 64)), encode_exception(Unpicklable(b"x" * (15 << 20)))):
        assert len(made) <= MAX_RESULT_BYTES
    texts = len(encode_exception(Unpicklable()))
    assert MAX_VALUE_BYTES + texts <= MAX_RESULT_BYTES


# What an end says


def test_a_success_without_its_result_is_none() -> None:
    """A fault is the result's, or that there is none: the exit code does not make up for it."""
    assert judge(Finish(ProcessEnd(code=0), 0, result=FACTS), None) is Ending.SUCCEEDED
    assert judge(Finish(ProcessEnd(code=0), 0), None) is Ending.SUCCEEDED, "a program has none"
    assert judge(Finish(ProcessEnd(code=0), 0, fault=FAULT), None) is Ending.FAILED
    assert judge(Finish(ProcessEnd(code=0), 0, result=FACTS, fault=FAULT), None) is Ending.FAILED


def test_what_is_no_result_is_not_described() -> None:
    """Damaged bytes do not travel; a good result's do, whatever it says."""
    told = finish(ProcessEnd(code=0), b"garbage", 1)
    assert told.result is None
    assert told.fault is not None
    assert told.fault.kind == "FrameCorrupt"
    assert finish(ProcessEnd(code=0), encode_value(1), 1).result is not None
    raised = finish(ProcessEnd(code=1), encode_exception(ValueError("bad")), 1)
    assert raised.result is not None
    assert raised.fault is not None


def test_an_end_whose_result_is_lost() -> None:
    """What succeeded has failed for that reason; what ended otherwise keeps its own."""
    good = Observation("a1", TaskState.RUNNING, AttemptEnd(Ending.SUCCEEDED), True, result=FACTS)
    lost = good.without_result(FAULT)
    assert (lost.ending, lost.end.fault, lost.result) == (Ending.FAILED, FAULT, None)
    own = Fault("ValueError", "bad")
    raised = Observation("a1", TaskState.RUNNING, AttemptEnd(Ending.FAILED, fault=own), True, result=FACTS)
    lost = raised.without_result(FAULT)
    assert (lost.ending, lost.end.fault, lost.result) == (Ending.FAILED, own, None)


# Over the real protocol


@pytest.mark.parametrize(
    ("size_bytes", "kind"), [(0, "FrameCorrupt"), (100, "FrameCorrupt"), (MAX_RESULT_BYTES + 1, "ResultUnreadable")]
)
async def test_a_result_that_is_no_good(cache: Path, size_bytes: int, kind: str) -> None:
    """Garbage, nothing, and too much: the attempt has failed, by name, and none of it travels."""

    def spoil() -> None:
        open(".iris/result", "wb").write(b"garbage")  # noqa: SIM115, PTH123 - it is pickled by value
        os.truncate(".iris/result", size_bytes)
        os._exit(0)

    async with world(cache) as (controller, _):
        await controller.run("a1", function=spoil)
        seen = await controller.ended("a1")
    assert (seen.state, seen.exit, seen.was_started) == (v1.TaskState.FAILED, v1.ProcessExit(code=0), True)
    assert seen.fault.kind == kind
    assert seen.result is None
    assert "a1" not in controller.results


@pytest.mark.parametrize("code", [0, 3])
async def test_a_callable_that_ends_its_process(cache: Path, code: int) -> None:
    """Without a result it has failed, whatever the exit code: nobody would have the value."""

    def leave() -> None:
        os._exit(code)

    async with world(cache) as (controller, _):
        await controller.run("a1", function=leave)
        seen = await controller.ended("a1")
    assert (seen.state, seen.exit, seen.was_started) == (v1.TaskState.FAILED, v1.ProcessExit(code=code), True)
    assert (seen.fault.kind, seen.result) == ("ResultMissing", None)
    assert f"exit code {code}" in seen.fault.text


@pytest.mark.parametrize("code", [None, 0])
async def test_a_callable_that_exits_well(cache: Path, code: int | None) -> None:
    """``sys.exit(0)`` is an end like any other: it leaves None as the value."""

    def leave() -> None:
        sys.exit(code)

    async with world(cache) as (controller, _):
        await controller.run("a1", function=leave)
        seen = await controller.ended("a1")
        await controller.until(lambda: "a1" in controller.results)
    assert (seen.state, load_result(bytes(controller.results["a1"]))) == (v1.TaskState.SUCCEEDED, None)


@pytest.mark.parametrize("left", ["file", "folder", "link", "failure"])
async def test_a_program_has_no_result(cache: Path, left: str) -> None:
    """Whatever it leaves where a callable's result would be is its own business; none of it travels."""
    content = encode_exception(ValueError("not mine")) if left == "failure" else b"garbage"
    code = {
        "folder": "import os; os.mkdir('.iris/result')",
        "link": "import os; os.symlink('/etc/passwd', '.iris/result')",
    }.get(left, f"open('.iris/result', 'wb').write({content!r})")
    async with world(cache) as (controller, _):
        await controller.run("a1", argv=code)
        seen = await controller.ended("a1")
    assert (seen.state, seen.fault, seen.result) == (v1.TaskState.SUCCEEDED, None, None)
    assert "a1" not in controller.results


async def test_a_callable_that_was_stopped_owes_no_result(cache: Path) -> None:
    """Its end says that it was stopped, not that its result is missing."""

    def never() -> None:
        time.sleep(600)

    async with world(cache) as (controller, _):
        await controller.run("a1", function=never)
        await controller.running("a1")
        await controller.stop("a1", grace_ms=0)
        seen = await controller.ended("a1")
    assert (seen.state, seen.fault.kind) == (v1.TaskState.KILLED, "AttemptStopped")


def damage(path: Path) -> None:
    """Turn one byte round."""
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def replace_by_folder(path: Path) -> None:
    """Put something else in its place."""
    path.unlink()
    path.mkdir()


class Deaf(Controller):
    """A controller that gets no results to see: they are on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces = 0

    async def _take(self, message: v1.WorkerMessage, outgoing) -> None:
        if message.result is None:
            await super()._take(message, outgoing)
        else:
            self.pieces += 1


@pytest.mark.sampled(3)
@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(
    ("harm", "kind"),
    [(damage, "ResultCorrupt"), (Path.unlink, "ResultMissing"), (replace_by_folder, "ResultUnreadable")],
)
async def test_a_result_that_is_lost_after_the_end(
    cache: Path, harm: Callable[[Path], None], kind: str, restart: bool
) -> None:
    """A worker that cannot deliver what it has announced says so, instead of leaving the controller waiting."""
    controller = Deaf()
    async with serving(controller) as server, AsyncExitStack() as stack:
        await stack.enter_async_context(Worker(settings(cache, server.address, flush_s=0.1)))
        await controller.until(lambda: controller.outgoing is not None)
        await controller.run("a1", function=sum, args=([1, 2, 3],))
        seen = await controller.ended("a1")
        assert (seen.state, controller.pieces) == (v1.TaskState.SUCCEEDED, 1)
        if restart:
            await stack.aclose()
        harm(result_file(cache))
        controller.observed.clear()
        if restart:
            await stack.enter_async_context(Worker(settings(cache, server.address, flush_s=0.1)))
        else:
            controller.cut()
        await controller.until(
            lambda: "a1" in controller.observed and controller.observed["a1"].state == v1.TaskState.FAILED
        )
        seen = controller.observed["a1"]
        assert (seen.fault.kind, seen.result, controller.pieces) == (kind, None, 1)
        assert controller.sets[-1].attempts[0].state == v1.TaskState.SUCCEEDED, "as it was written down"


async def test_a_result_that_was_delivered_is_not_lost(cache: Path) -> None:
    """What happens to its file afterwards changes nothing."""
    async with world(cache) as (controller, _):
        await controller.run("a1", function=sum, args=([1, 2, 3],))
        await controller.ended("a1")
        await controller.until(lambda: "a1" in controller.results)
        damage(result_file(cache))
        controller.history.clear()
        controller.cut()
        await controller.until(lambda: len(controller.history) >= 2)
        await controller.run("a2", argv="pass")
        await controller.ended("a2")
        assert {seen.state for seen in controller.history if seen.attempt_uid == "a1"} == {v1.TaskState.SUCCEEDED}
