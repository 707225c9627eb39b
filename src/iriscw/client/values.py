"""What tasks returned, as it comes: put together from parts, checked, and unpickled."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from iriscw._errors import as_failure
from iriscw.client.calls import MethodCalls
from iriscw.client.errors import ResultDamaged, TaskFailed, ValuesUnreadable
from iriscw.client.hosted import at_home, hosted_calls
from iriscw.client.model import TaskStatus
from iriscw.proto.iriscw.v1 import ResultPart
from iriscw.task.framing import PythonMismatch
from iriscw.task.result import load_result


async def arrived(parts: AsyncGenerator[ResultPart, None]) -> AsyncGenerator[tuple[int, bytes], None]:
    """Yield each value's bytes with the index of its task, once, whatever comes again because the stream broke.

    Raises:
        ResultDamaged: a value did not arrive as it was stored.
    """
    received: dict[int, bytearray] = {}
    given: dict[int, None] = {}
    async with aclosing(parts):
        async for part in parts:
            index = part.task_index
            if index in given:
                continue
            data = received.setdefault(index, bytearray())
            if part.offset == 0:
                data.clear()  # the stream was opened again
            if part.offset != len(data):
                raise ResultDamaged(f"the value of task {index} goes on at byte {part.offset}, not {len(data)}")
            data += part.data
            stored = part.result
            if stored is not None and len(data) >= stored.size_bytes:
                if len(data) != stored.size_bytes or hashlib.sha256(data).digest() != stored.sha256:
                    raise ResultDamaged(f"the value of task {index} is not what was stored")
                given[index] = None
                yield index, bytes(received.pop(index))


class ValueReader:
    """Unpickles the values of one job, and notes which of them cannot be.

    Args:
        calls: of the client, which handles of hosted actors among the values make their calls with.
        job: how the job is called in an error.
    """

    def __init__(self, calls: MethodCalls, job: str) -> None:
        self._calls = calls
        self._job = job
        self._causes: dict[int, Exception] = {}

    def read(self, index: int, data: bytes) -> Any:
        """Return the value of a task; None if it is unreadable, or there is none.

        Raises:
            PythonMismatch: another Python wrote it.
        """
        try:
            with at_home(hosted_calls(self._calls)):
                return load_result(data) if data else None
        except PythonMismatch:
            raise
        except BaseException as raised:  # noqa: BLE001 - a user's pickle may raise anything
            self._causes[index] = as_failure(raised)
            return None

    def could_read(self, index: int) -> bool:
        """Whether the value of a task was read."""
        return index not in self._causes

    def check(self, values: list[Any]) -> None:
        """Refuse to go on if a value was unreadable.

        Raises:
            ValuesUnreadable: that is so. It has the ``values``, and what each of the others raised.
        """
        if not self._causes:
            return
        causes = dict(sorted(self._causes.items()))
        index, first = next(iter(causes.items()))
        text = f"{self._job}: the value of task {index} cannot be unpickled here"
        others = f", nor can those of {len(causes) - 1} others" if len(causes) > 1 else ""
        text = f"{text}{others}: {type(first).__name__}: {first}"
        raise ValuesUnreadable(text, values=values, causes=causes) from first


def failure_of(job_id: str, task: TaskStatus) -> TaskFailed:
    """Return what stands for the value of a task that ended otherwise than well."""
    last = task.attempts[0] if task.attempts else None
    reason, fault = (task.reason, "") if last is None else (last.reason or task.reason, last.fault)
    text = f"task {task.index} of {job_id} ended {task.state.value}" + (f": {reason}" if reason else "")
    if fault and fault not in text:
        text += f"\n{fault}"
    return TaskFailed(text, job_id=job_id, task_index=task.index, state=task.state.value)
