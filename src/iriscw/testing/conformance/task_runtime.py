"""What every TaskRuntime must do. Subclass it in a test module and give a ``runtime`` fixture, fresh for
each test.

The suite runs callables, which every runtime can; a runtime's own tests run programs.
"""

from __future__ import annotations

import threading
import time

import anyio
import pytest

from iriscw._errors import InvalidArgument
from iriscw.processes.ends import EndKind
from iriscw.task.context import context
from iriscw.task.environment import AttemptFacts
from iriscw.task.payload import make_payload
from iriscw.task.result import load_result, read_result_summary
from iriscw.worker.ports import AttemptExists, AttemptSpec, PayloadRefused, RunningAttempt, TaskRuntime

HOUR_NS = 3600 * 10**9


def facts(uid: str = "attempt-1", **changes: object) -> AttemptFacts:
    """Return the facts of an attempt."""
    values: dict[str, object] = {
        "job_id": "/ada/j", "task_id": "/ada/j/2", "attempt_uid": uid, "index": 2, "num_tasks": 4,
        "attempt": 1, "worker_id": "w-0", "namespace": "/ada", "parent_job_id": "/ada",
        "ports": {"http": 30001}, **changes,
    }  # fmt: skip
    return AttemptFacts(**values)  # type: ignore[arg-type]


def _seen() -> tuple[object, ...]:
    """Run inside a task: what it sees of itself, also in a thread of its own."""
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(context().attempt_uid))
    thread.start()
    thread.join()
    task = context()
    return (task.job_id, task.index, task.num_tasks, task.attempt, task.worker_id, task.namespace,
            task.parent_job_id, task.port("http"), task.token_file.read_text(), found[0])  # fmt: skip


def _add(left: int, right: int) -> int:
    return left + right


def _fail() -> None:
    raise ValueError("no such word")


def _never() -> None:
    threading.Event().wait()


class TaskRuntimeConformance:
    """The contract of :class:`~iriscw.worker.ports.TaskRuntime`, as tests."""

    async def test_a_callable_gives_its_value(self, runtime: TaskRuntime) -> None:
        """Started, ended by itself, with the value for whoever submitted it."""
        attempt = await runtime.start(AttemptSpec(facts(), payload=make_payload(_add, [1], {"right": 2})))
        end = await attempt.wait()
        assert (end.kind, end.code, end.succeeded) == (EndKind.EXITED, 0, True)
        assert load_result(await _result(attempt)) == 3
        assert await attempt.wait() == end

    async def test_a_failure_is_an_end_with_a_code(self, runtime: TaskRuntime) -> None:
        """The attempt started and failed: code 1, the exception, and its traceback in the log."""
        attempt = await runtime.start(AttemptSpec(facts(), payload=make_payload(_fail, [], {})))
        end = await attempt.wait()
        assert (end.kind, end.code, end.succeeded) == (EndKind.EXITED, 1, False)
        assert read_result_summary(await _result(attempt)).message == "no such word"
        log = await anyio.Path(attempt.stderr).read_bytes()
        assert b"ValueError: no such word" in log
        assert end.log_bytes == len(log)

    async def test_a_task_knows_itself(self, runtime: TaskRuntime) -> None:
        """``iriscw.context()`` and the token file, in the task and in its threads."""
        attempt = await runtime.start(AttemptSpec(facts(), payload=make_payload(_seen, [], {}), token="t0ken"))  # noqa: S106
        await attempt.wait()
        seen = load_result(await _result(attempt))
        assert seen == ("/ada/j", 2, 4, 1, "w-0", "/ada", "/ada", 30001, "t0ken", "attempt-1")

    async def test_a_stop_ends_what_does_not_end(self, runtime: TaskRuntime) -> None:
        """However it does it: after the grace the attempt has ended, and the end says that it was stopped."""
        attempt = await runtime.start(AttemptSpec(facts(), payload=make_payload(_never, [], {})))
        with anyio.fail_after(60):
            end = await attempt.stop(0.05)
        assert end.kind is EndKind.STOPPED
        assert not end.succeeded
        assert await attempt.stop(0) == end

    async def test_an_attempt_that_runs_is_not_withdrawn(self, runtime: TaskRuntime) -> None:
        """Nor is one that nobody knows: only a start can be given up."""
        attempt = await runtime.start(AttemptSpec(facts(), payload=make_payload(_add, [1, 1], {})))
        runtime.withdraw(attempt.uid)
        runtime.withdraw("nobody's")
        assert (await attempt.wait()).succeeded

    async def test_a_uid_is_used_once(self, runtime: TaskRuntime) -> None:
        """A second attempt with it is refused, and the first is not disturbed."""
        spec = AttemptSpec(facts(), payload=make_payload(_add, [1, 1], {}))
        attempt = await runtime.start(spec)
        with pytest.raises(AttemptExists):
            await runtime.start(spec)
        assert (await attempt.wait()).succeeded

    @pytest.mark.parametrize("uid", ["", "../x", "a/b", ".hidden", "x" * 200, "a\0"])
    async def test_a_uid_is_the_name_of_a_folder(self, runtime: TaskRuntime, uid: str) -> None:
        """Nothing that could lead elsewhere."""
        with pytest.raises(InvalidArgument):
            await runtime.start(AttemptSpec(facts(uid), payload=make_payload(_add, [1, 1], {})))

    async def test_a_program_or_a_callable(self, runtime: TaskRuntime) -> None:
        """Neither and both are mistakes."""
        payload = make_payload(_add, [1, 1], {})
        for spec in (AttemptSpec(facts()), AttemptSpec(facts(), argv=("true",), payload=payload)):
            with pytest.raises(InvalidArgument):
                await runtime.start(spec)

    async def test_a_damaged_callable_is_not_started(self, runtime: TaskRuntime) -> None:
        """It is refused before anything runs, and leaves nothing that could be adopted."""
        payload = bytearray(make_payload(_add, [1, 1], {}))
        payload[-1] ^= 1
        with pytest.raises(PayloadRefused):
            await runtime.start(AttemptSpec(facts(), payload=bytes(payload)))
        assert await runtime.adopt() == ()

    async def test_removed_attempts_are_gone(self, runtime: TaskRuntime) -> None:
        """No file is left, and removing twice is fine."""
        attempt = await runtime.start(AttemptSpec(facts(), payload=make_payload(_add, [1, 1], {})))
        await attempt.wait()
        await attempt.remove()
        await attempt.remove()
        assert not await anyio.Path(attempt.stdout).exists()
        assert await runtime.adopt() == ()

    async def test_a_lease_that_is_renewed_ends_nothing(self, runtime: TaskRuntime) -> None:
        """However often it is said until when attempts may run: those that run go on, and others start."""
        await runtime.hold(_from_now(HOUR_NS))
        attempt = await runtime.start(AttemptSpec(facts("first"), payload=make_payload(_never, [], {})))
        for hours in (3, 2):  # sooner than was said before, too
            await runtime.hold(_from_now(hours * HOUR_NS))
        later = await runtime.start(AttemptSpec(facts("second"), payload=make_payload(_add, [1, 2], {})))
        assert (await later.wait()).succeeded
        with anyio.fail_after(60):
            assert (await attempt.stop(0.05)).kind is EndKind.STOPPED

    async def test_no_attempt_outlives_worker_and_lease(self, runtime: TaskRuntime) -> None:
        """Once the lease is over, the next worker adopts none that still runs, and no attempt ended well for it."""
        await runtime.hold(_from_now(HOUR_NS))
        attempt = await runtime.start(AttemptSpec(facts(), payload=make_payload(_never, [], {})))
        await runtime.hold(_from_now(0))
        with anyio.fail_after(60):
            ends = [await each.wait() for each in await runtime.adopt()]
            ends.append(await attempt.stop(0))
        assert {end.kind for end in ends} <= {EndKind.LEASE_OVER, EndKind.STOPPED}
        assert not any(end.succeeded for end in ends)

    async def test_many_at_once(self, runtime: TaskRuntime) -> None:
        """Attempts do not get into each other's way."""
        values: dict[int, object] = {}

        async def run(number: int) -> None:
            spec = AttemptSpec(facts(f"a{number}"), payload=make_payload(_add, [number, 100], {}))
            attempt = await runtime.start(spec)
            await attempt.wait()
            values[number] = load_result(await _result(attempt))

        async with anyio.create_task_group() as group:
            for number in range(3):
                group.start_soon(run, number)
        assert values == {number: number + 100 for number in range(3)}


def _from_now(duration_ns: int) -> int:
    return time.monotonic_ns() + duration_ns


async def _result(attempt: RunningAttempt) -> bytes:
    result = await attempt.result()
    assert result is not None
    return result
