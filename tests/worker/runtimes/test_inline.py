"""Attempts as threads: the contract, and what only threads do."""

import os
import threading
from pathlib import Path

import pytest

from iriscw._errors import InvalidArgument
from iriscw.processes.ends import EndKind
from iriscw.task.payload import make_payload
from iriscw.testing.conformance.task_runtime import TaskRuntimeConformance, facts
from iriscw.worker.ports import AttemptSpec, NotFreezable, ResultUnreadable, TaskRuntime
from iriscw.worker.runtimes import workdir
from iriscw.worker.runtimes.inline import InlineRuntime
from raised import that


@pytest.fixture
def runtime(tmp_path: Path) -> InlineRuntime:
    return InlineRuntime(tmp_path / "attempts")


class TestInlineRuntime(TaskRuntimeConformance):
    """The public suite."""

    @pytest.fixture
    def runtime(self, runtime: InlineRuntime) -> TaskRuntime:
        return runtime


async def test_programs_are_for_processes(runtime: InlineRuntime) -> None:
    """A thread runs callables."""
    with pytest.raises(InvalidArgument, check=that(comes_from="inline.InlineRuntime.start")):
        await runtime.start(AttemptSpec(facts(), argv=("true",)))


async def test_a_thread_cannot_be_freezable(runtime: InlineRuntime) -> None:
    """It is refused by name, and leaves nothing."""
    with pytest.raises(NotFreezable, check=that(comes_from="inline.InlineRuntime.start")):
        await runtime.start(AttemptSpec(facts(), payload=make_payload(dict, [], {}), freezable=True))
    assert not runtime.root.exists()


async def test_the_environment_of_the_process_is_not_touched(runtime: InlineRuntime) -> None:
    """Not even while an attempt runs."""
    before = dict(os.environ)
    spec = AttemptSpec(facts(), payload=make_payload(dict, [], {}), environment={"MINE": "1"})
    attempt = await runtime.start(spec)
    assert dict(os.environ) == before
    await attempt.wait()
    assert dict(os.environ) == before


async def test_a_result_that_is_too_big_fails_the_attempt(
    runtime: InlineRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It never gets smaller: a worker that took it for a passing trouble would try for ever."""
    monkeypatch.setattr(workdir, "MAX_RESULT_BYTES", 64)
    attempt = await runtime.start(AttemptSpec(facts(), payload=make_payload(bytes, [1000], {})))
    assert (await attempt.wait()).succeeded
    with pytest.raises(ResultUnreadable, check=that(comes_from="attempt.FolderAttempt.result", names="64")):
        await attempt.result()


RELEASE = threading.Event()


def released_late() -> str:
    RELEASE.wait()
    return "too late"


async def test_an_abandoned_thread_changes_nothing(runtime: InlineRuntime) -> None:
    """What it returns after its stop is not seen."""
    attempt = await runtime.start(AttemptSpec(facts(), payload=make_payload(released_late, [], {})))
    end = await attempt.stop(0)
    assert (end.kind, end.killed) == (EndKind.STOPPED, True)
    await attempt.remove()
    RELEASE.set()
    for thread in threading.enumerate():
        if thread.name == f"attempt {attempt.uid}":
            thread.join(0.2)
    assert await attempt.wait() == end
    assert not attempt.folder.path.exists()
