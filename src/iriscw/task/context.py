"""``iriscw.context()``: what a task knows of itself, from wherever in the task it is asked.

Two ways lead there. In a process of its own a task has one context for the whole process, read from the
files its worker left (``$IRIS_WORKDIR/.iris``) when it is first asked for. Several inline tasks share a
process; each runs in a context of its own (:mod:`contextvars`), which asyncio tasks and ``to_thread`` copy
by themselves. Plain threads begin with an empty context before Python 3.14, so :func:`entered` lets the
threads that a task starts inherit its own; threads started by anybody else are not touched. ``os.environ``
is never written.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from iriscw._errors import UsageError
from iriscw.files import read_bounded
from iriscw.task.environment import CONTEXT_FILE, PRIVATE_FOLDER, TOKEN_FILE, AttemptFacts, decode_facts

if TYPE_CHECKING:
    from iriscw.client.model import PeerAddress
    from iriscw.client.resolving import NamespacedResolver

MAX_CONTEXT_BYTES = 1 << 20
"""A context takes a few hundred bytes and 30 per port."""


class NotInTask(UsageError):
    """There is no task here: ``iriscw.context()`` works inside a task that iriscw runs."""


class InsideLoop(UsageError):
    """What would hold up an event loop was called where one runs: await its async form."""


class NoSuchPort(UsageError, LookupError):
    """The job did not ask for a port of this name."""


@attrs.frozen
class TaskContext:
    """What a task knows of itself."""

    facts: AttemptFacts
    workdir: Path

    @property
    def job_id(self) -> str:
        """The job this task belongs to."""
        return self.facts.job_id

    @property
    def task_id(self) -> str:
        """This task."""
        return self.facts.task_id

    @property
    def index(self) -> int:
        """Which of the job's tasks this is, from 0."""
        return self.facts.index

    @property
    def num_tasks(self) -> int:
        """How many tasks the job has."""
        return self.facts.num_tasks

    @property
    def attempt(self) -> int:
        """How many attempts of this task there were before."""
        return self.facts.attempt

    @property
    def attempt_uid(self) -> str:
        """The id of this attempt. No other attempt ever has it."""
        return self.facts.attempt_uid

    @property
    def worker_id(self) -> str:
        """The worker this attempt runs on."""
        return self.facts.worker_id

    @property
    def namespace(self) -> str:
        """The id of the job at the top of this one's parents, its own if it has none: all of one family share it."""
        return self.facts.namespace

    @property
    def parent_job_id(self) -> str | None:
        """The job whose task submitted this one; None for one that was submitted from outside."""
        return self.facts.parent_job_id

    @property
    def resolver(self) -> NamespacedResolver:
        """Finds hosted actors by the names of this job's namespace: ``await task.resolver.resolve("worker-0")``.

        Without an event loop: ``iriscw.blocking.BlockingResolver(task.resolver).resolve("worker-0")``.
        """
        from iriscw.client.resolving import NamespacedResolver
        from iriscw.proto.iriscw.v1 import JobRef

        return NamespacedResolver(None, JobRef(job_id=self.job_id))

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPUs that this attempt has, by UUID: those that CUDA shows it; empty if it has none.

        Empty, too, in a pod of its own: its node assigns them there, and says so in the pod's variables if anywhere.
        """
        return self.facts.gpus or ()

    @property
    def controller_address(self) -> str:
        """Where the controller listens."""
        return self.facts.controller_address

    @property
    def token_file(self) -> Path:
        """The file that holds the job's token."""
        return self.workdir / PRIVATE_FOLDER / TOKEN_FILE

    def port(self, name: str) -> int:
        """Return the port that was set aside for ``name``.

        Raises:
            NoSuchPort: the job did not ask for one.
        """
        try:
            return self.facts.ports[name]
        except KeyError as error:
            known = ", ".join(sorted(self.facts.ports)) or "none"
            raise NoSuchPort(f"the job has no port {name!r}; it has: {known}") from error

    @property
    def bind_host(self) -> str:
        """The address to listen on."""
        return self.facts.bind_host

    @property
    def advertise_host(self) -> str:
        """The address at which others reach what listens on :attr:`bind_host`."""
        return self.facts.advertise_host

    def peers(self, port: str, timeout_s: float | None = None) -> tuple[PeerAddress, ...]:
        """Wait until all replicas of this job run, and give where each listens to the named ``port``, by index.

        This one is among them. What is given is true at that moment, and a replica that runs may not listen yet: try
        for a while. One that is tried again has another address: ask again when it does not answer. In an asyncio
        task, use :meth:`peers_async`.

        Args:
            port: one of the names in the job's ``ports``.
            timeout_s: seconds; None waits for ever.

        Raises:
            NoSuchPort: the job did not ask for a port of this name.
            PeerOver: a replica has ended for good, so that never all of them will run.
            WaitTimeout: not all run in time.
            InsideLoop: an event loop runs here, which this would hold up.
            OperationError: the controller cannot be reached for minutes.
        """
        import asyncio

        import anyio

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return anyio.run(self.peers_async, port, timeout_s)
        raise InsideLoop("peers() would hold up the event loop that runs here: await peers_async()")

    async def peers_async(self, port: str, timeout_s: float | None = None) -> tuple[PeerAddress, ...]:
        """Return the same as :meth:`peers`, without holding up the event loop; errors as there."""
        from iriscw.client.client import connect

        self.port(port)
        async with connect() as client:
            job = await client.job(self.job_id)
            return await job.peers(port, timeout_s)


_current: contextvars.ContextVar[TaskContext] = contextvars.ContextVar("iriscw.task.context")


def context() -> TaskContext:
    """Return the context of the task that runs here.

    Raises:
        NotInTask: no task runs here, or its files were removed.
    """
    try:
        return _current.get()
    except LookupError:
        return _of_this_process()


_found: tuple[tuple[str, int, int], TaskContext] | None = None
"""What was read last, and of which file: the context is written anew when the task goes on with another worker."""


def _of_this_process() -> TaskContext:
    global _found  # noqa: PLW0603 - one process is one task
    workdir = os.environ.get("IRIS_WORKDIR")
    if not workdir:
        raise NotInTask("iriscw.context() works inside a task; this process is not one")
    path = Path(workdir) / PRIVATE_FOLDER / CONTEXT_FILE
    try:
        seen = path.stat()  # before it is read: what is written meanwhile is then read once more
        file = (workdir, seen.st_ino, seen.st_mtime_ns)
        if _found is not None and _found[0] == file:
            return _found[1]
        facts = decode_facts(read_bounded(path, MAX_CONTEXT_BYTES))
    except (OSError, ValueError) as error:
        if _found is not None and _found[0][0] == workdir:  # the task has removed or spoilt what it had read before
            return _found[1]
        raise NotInTask(f"the task's files in {workdir} cannot be read: {error}") from error
    # Where a task has a network of its own, only its environment knows its address; unless it has moved since.
    host = "" if facts.moved else os.environ.get("IRIS_ADVERTISE_HOST", "")
    found = TaskContext(attrs.evolve(facts, advertise_host=host or facts.advertise_host), Path(workdir))
    _found = file, found
    return found


@contextlib.contextmanager
def entered(task: TaskContext) -> Iterator[None]:
    """Let ``task`` be the context of this block and of the threads that are started in it."""
    endings: list[Callable[[], None]] = []
    token, leaving = _current.set(task), _leaving.set(endings)
    _inheritance.begin()
    try:
        yield
    finally:
        _inheritance.end()
        _current.reset(token)
        _leaving.reset(leaving)
        while endings:
            endings.pop()()


_leaving: contextvars.ContextVar[list[Callable[[], None]] | None] = contextvars.ContextVar(
    "iriscw.task.leaving", default=None
)


def when_left(function: Callable[[], None]) -> None:
    """Have a function called when the inline task that runs here is over. A task with a process ends with that."""
    endings = _leaving.get()
    if endings is not None:
        endings.append(function)


class _Inheritance:
    """While at least one inline task runs, a thread that is started inside a task begins with its context."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._original = threading.Thread.start

    def begin(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._original = threading.Thread.start
                setattr(threading.Thread, "start", self._replacement(self._original))  # noqa: B010  # a method is replaced on purpose

    def end(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                setattr(threading.Thread, "start", self._original)  # noqa: B010  # a method is replaced on purpose

    @staticmethod
    def _replacement(original: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
        @functools.wraps(original)
        def start(thread: threading.Thread) -> None:
            if _current.get(None) is not None:
                inherited, run = contextvars.copy_context(), thread.run
                thread.run = lambda: inherited.run(run)  # type: ignore[method-assign]
            original(thread)

        return start


_inheritance = _Inheritance()
