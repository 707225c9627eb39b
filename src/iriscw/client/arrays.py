"""Array jobs: one function, many items, a task for each."""

from __future__ import annotations

import os
import re
import sys
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from iriscw.client.errors import InvalidJob
from iriscw.client.job import Job
from iriscw.client.submission import PAYLOAD_LIMIT_BYTES, Constraints, check_call, check_useful, is_own_file
from iriscw.jobs.model import MAX_REPLICAS
from iriscw.packages.requirements import DEFAULT_SETUP_TIMEOUT_S
from iriscw.resources import Resources
from iriscw.task.mapping import MappedCall


class ArrayJobs:
    """Of :class:`iriscw.Client`."""

    @abstractmethod
    async def submit(self, *args: Any, **options: Any) -> Job:
        """See :meth:`iriscw.Client.submit`."""

    async def map(
        self,
        function: Callable[[Any], Any],
        items: Iterable[Any],
        *,
        name: str | None = None,
        resources: Resources | None = None,
        environment: Mapping[str, str] | None = None,
        constraints: Constraints = (),
        priority: str = "interactive",
        timeout: float | None = None,
        scheduling_timeout: float | None = None,
        max_retries_failure: int = 0,
        max_retries_preemption: int = 100,
        max_task_failures: int = 0,
        preferred: Constraints = (),
        preemption: str = "kill",
        dependencies: Sequence[str] | str | os.PathLike[str] = (),
        setup: Sequence[Sequence[str]] = (),
        setup_timeout: float = DEFAULT_SETUP_TIMEOUT_S,
        existing: str = "error",
        bundle: str | os.PathLike[str] | None = None,
        bundle_exclude: Sequence[str] = (),
        image: str = "",
        freezable: bool = False,
        detached: bool = False,
    ) -> Job:
        """Have ``function(item)`` run for each item, in one job: task ``i`` gets item ``i``.

        ``job.result()`` gives the values in the order of the items, ``job.results()`` each as its task ends, and
        ``job.result(task=i)`` that of one item. The function travels once, however many items there are, and so do
        classes of the caller's own.

        Args:
            function: takes one item.
            items: 1 to 100,000, of which as many run at a time as there is room for; 4 MiB together, pickled.
            name: of the job; None: the function's name and some digits.
            resources: of each task; as the following ones, see :meth:`submit`.
            environment: of each task.
            constraints: of each task.
            priority: of the job.
            timeout: of each attempt.
            scheduling_timeout: of each task.
            max_retries_failure: of each task.
            max_retries_preemption: of each task.
            max_task_failures: how many items may fail for good before the job does.
            preferred: of each task.
            preemption: of each task.
            dependencies: of each task.
            setup: of each task.
            setup_timeout: of each task.
            existing: of a job of this name that has not ended.
            bundle: of each task.
            bundle_exclude: what it leaves out.
            image: of each task.
            freezable: of each task.
            detached: of a job that a task submits.

        Raises:
            TooManyItems: there are more items than a job may have tasks.
            PayloadTooLarge: they take too much: pass the names of files or objects.
            NotPicklable: the function or an item cannot travel; the text says which.
            InvalidArgument: there are no items, the function takes no item, or an option cannot be.
            IriscwError: as :meth:`submit`.
        """
        call = mapped_call(function, items)
        return await self.submit(
            call,
            name=map_name(function) if name is None else name,
            replicas=len(call.items),
            resources=resources,
            environment=environment,
            constraints=constraints,
            priority=priority,
            timeout=timeout,
            scheduling_timeout=scheduling_timeout,
            max_retries_failure=max_retries_failure,
            max_retries_preemption=max_retries_preemption,
            max_task_failures=max_task_failures,
            preferred=preferred,
            preemption=preemption,
            dependencies=dependencies,
            setup=setup,
            setup_timeout=setup_timeout,
            existing=existing,
            bundle=bundle,
            bundle_exclude=bundle_exclude,
            image=image,
            freezable=freezable,
            detached=detached,
        )


def mapped_call(function: Callable[[Any], Any], items: Iterable[Any]) -> MappedCall:
    """Check what ``map`` is given, and return the callable of its tasks.

    Raises:
        InvalidJob: it is not a callable of one argument, or there are no items.
        NotPicklable: an item cannot travel.
        TooManyItems, PayloadTooLarge: there are more items than a job may have tasks, or they take too much.
    """
    if not callable(function):
        raise InvalidJob(f"function: {function!r:.64} is not callable; for a program use submit(iriscw.Command([...]))")
    if not isinstance(items, Iterable):
        raise InvalidJob(f"items: {items!r:.64} cannot be iterated over")
    check_call(function, (None,), {})
    check_useful(function)
    module = sys.modules.get(str(getattr(function, "__module__", None)))
    own = ("__main__", *((module.__name__,) if module is not None and is_own_file(module) else ()))
    call = MappedCall(function, items, own=own, limit=MAX_REPLICAS, limit_bytes=PAYLOAD_LIMIT_BYTES)
    if not call.items:
        raise InvalidJob("items: there are none, and a job has one task at least")
    return call


def map_name(function: Callable[..., Any]) -> str:
    """Make up a name that no other job has."""
    shown = re.sub(r"[^\w.-]+", "", str(getattr(function, "__name__", None) or type(function).__name__))
    return f"{shown[:64] or 'map'}-{uuid.uuid4().hex[:8]}"
