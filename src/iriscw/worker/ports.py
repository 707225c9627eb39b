"""The port to whatever runs attempts: processes, threads, and later pods and containers.

The words: an *attempt* is one run of one task. It was *started* once the program itself runs; an attempt
that could not be started is a different thing from one that failed, and counts against no retry budget
(INV-J5). It has *ended* once nothing of it runs any more (INV-J2).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import attrs

from iriscw._errors import OperationError, UsageError
from iriscw.cloud.model import Capacity
from iriscw.jobs.traits import Fault
from iriscw.packages.cache import Installed
from iriscw.packages.requirements import Setup
from iriscw.processes.ends import ProcessEnd
from iriscw.processes.identity import ProcessIdentity
from iriscw.processes.supervised import Limits
from iriscw.task.environment import AttemptFacts


class AttemptNotStarted(OperationError, abstract=True):
    """The attempt never ran: nothing of the user's was executed."""


class ProgramMissing(AttemptNotStarted):
    """There is no such program on the worker, or it may not be executed there."""


class WorkerTrouble(AttemptNotStarted):
    """The worker could not start anything just now: disk, memory or process numbers are used up."""

    retryable = True


class ResultUnreadable(OperationError):
    """What an attempt left as its result can never be read: it is too large, a link, a folder."""


class ResultMissing(ResultUnreadable):
    """A callable left no result: its process ended within the call, or its files were removed."""


class PayloadRefused(AttemptNotStarted):
    """The callable cannot be loaded here: it is damaged, or was written by another Python."""


class ImageUnavailable(AttemptNotStarted):
    """The image that the job names for itself cannot be had, or is not an image."""


class NotFreezable(AttemptNotStarted):
    """It was to be started so that it can be frozen (``freezable=True``), and that cannot be done here."""


class AttemptWithdrawn(AttemptNotStarted):
    """It was told to end before it began, and never will."""


class ResumeRefused(OperationError):
    """A suspended attempt cannot be brought back by this worker: its files are not here, or not as they were."""


class AttemptExists(UsageError):
    """There is an attempt with this uid already: uids are never used again."""


@attrs.frozen
class Whereabouts:
    """What changes for an attempt that goes on with another worker, and that it can ask for (``iriscw.context()``)."""

    worker_id: str
    controller_address: str
    advertise_host: str
    gpus: tuple[str, ...] | None = None
    gpu_indices: tuple[int, ...] = ()
    anew: bool = False
    """Its folder is to come in an earlier state than it was in last: what is in its place is of a life that is over."""
    log_offset: int = 0
    """With that: where its log goes on, at least."""


@attrs.frozen
class AttemptSpec:
    """What to run: exactly one of ``argv`` (a program) and ``payload`` (a callable, see
    ``iriscw.task.payload``).

    ``environment`` is the user's; iriscw's variables win over it. ``demand`` is what it was placed for, and ``image``
    the job's own: they mean something where attempts have containers. ``source`` is an unpacked bundle that is
    copied into the working folder. One that is ``freezable`` gets no io_uring, so that a program which would use one
    can be frozen (see :mod:`iriscw.processes.syscall_filter`).
    """

    facts: AttemptFacts
    argv: tuple[str, ...] = ()
    payload: bytes = attrs.field(default=b"", repr=False)
    environment: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    token: str = attrs.field(default="", repr=False)
    limits: Limits = attrs.field(factory=Limits)
    demand: Capacity = attrs.field(factory=Capacity)
    image: str = ""
    source: Path | None = None
    freezable: bool = False
    installed: Installed | None = None
    """The environment whose Python and packages it has; None: its worker's."""
    setup: Setup = attrs.field(factory=Setup)
    """Its steps are run first."""

    @property
    def uid(self) -> str:
        """The attempt's uid."""
        return self.facts.attempt_uid


class RunningAttempt(Protocol):
    """An attempt that was started. Its files stay until ``remove``."""

    @property
    def uid(self) -> str:
        """The attempt's uid."""

    @property
    def host(self) -> str:
        """Where others reach it, if it has an address of its own; empty: its worker's."""

    @property
    def process(self) -> ProcessIdentity | None:
        """Its first process, where it is one of this worker's own PID namespace; else None."""

    @property
    def supervisor(self) -> ProcessIdentity | None:
        """The process above it, with which it can be frozen and brought back; None if it cannot be."""

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPUs that it was given by others than its worker, by UUID, as far as that is known."""

    @property
    def stdout(self) -> Path:
        """The file that takes its standard output; see ``iriscw.worker.logs`` for reading it as it grows."""

    @property
    def stderr(self) -> Path:
        """The file that takes its standard error."""

    async def wait(self) -> ProcessEnd:
        """Wait until it has ended. Several may wait, and again later.

        Raises:
            SweepFailed: it is over, but processes of it are left that do not die.
        """

    async def stop(self, grace_s: float) -> ProcessEnd:
        """Ask it to end, end it by force after ``grace_s``, and wait until it has ended.

        Raises:
            SweepFailed: processes of it are left that do not die.
        """

    async def result(self) -> bytes | None:
        """Return what its callable returned or raised (see ``iriscw.task.result``); None for a program, whatever lies
        where a result would be.

        Raises:
            ResultMissing: it is a callable, and there is none.
            ResultUnreadable: it is larger than any result is, or no file.
            WorkerTrouble: it cannot be read just now.
        """

    async def setup_failure(self) -> Fault | None:
        """Return which of the steps failed that are run before its program, after it has ended; None: none did."""

    async def remove(self) -> None:
        """Remove its files, after it has ended; repeating it is fine.

        Raises:
            WorkerTrouble: the disk does not let go of them.
        """


class TaskRuntime(Protocol):
    """Runs attempts on this worker."""

    async def start(self, spec: AttemptSpec) -> RunningAttempt:
        """Start an attempt, and return once the program itself runs.

        Raises:
            ProgramMissing, WorkerTrouble, PayloadRefused, ImageUnavailable, NotFreezable, AttemptWithdrawn: it did not
                start, and nothing of it is left.
            AttemptExists: there is one with this uid.
            InvalidArgument: not exactly one of program and callable is given, or a name cannot be.
            InvalidPortName: see ``iriscw.task.environment``.
        """

    def withdraw(self, uid: str) -> None:
        """Say that an attempt that is being started need not begin any more. Returns at once, and raises nothing.

        Where a start may take long, it ends soon: with ``AttemptWithdrawn``, or with the attempt if that had begun.
        Anything else goes on as before.
        """

    async def adopt(self) -> tuple[RunningAttempt, ...]:
        """Find the attempts that an earlier worker process started here: running, or ended and not removed.

        None of them is older than its lease: those whose lease is over were ended.

        Raises:
            WorkerTrouble: the folder of the attempts cannot be read.
            SweepFailed: what is older than its lease does not die.
        """

    async def permit(self, uid: str, folder: Path, grant: str, where: Whereabouts) -> RunningAttempt:
        """Let a suspended attempt be brought back, once, as one of this worker's. It lives by this worker's lease then.

        Repeating it is fine: a grant that was used is not given again.

        Args:
            uid: of the attempt.
            folder: where its files are, absolute.
            grant: names this one thaw (see :mod:`iriscw.processes.grants`).
            where: what it finds in its context afterwards.

        Raises:
            ResumeRefused: its files are not there, or are not its own.
            GrantRefused: somebody else may let it go on, or this grant was taken back.
            WorkerTrouble: the disk does not take it now.
        """

    async def thawed(self, uid: str, grant: str) -> RunningAttempt:
        """Wait until a permitted attempt runs, and give it.

        Raises:
            WorkerTrouble: its files cannot be read now.
            ResumeRefused: it was never permitted here.
        """

    async def revoke(self, uid: str, grant: str) -> RunningAttempt | None:
        """Take a grant back. Give the attempt if that is too late: then it runs, or has run. Repeating it is fine.

        Raises:
            WorkerTrouble: its files cannot be read now.
        """

    async def let_go(self, uid: str) -> None:
        """Leave a suspended attempt, with its files, to whoever is permitted next. Repeating it is fine.

        Raises:
            WorkerTrouble: the disk does not take it now.
        """

    async def hold(self, until_ns: int) -> None:
        """Say until when all attempts may run, those to come included, on the monotonic clock of this machine.

        Where attempts outlive their worker, they end by themselves then, unless this was called again.

        Raises:
            WorkerTrouble: it cannot be told to them; what they were told last holds on.
        """
