"""Attempts as pods: each in a container of its own, on the worker's node.

The pod runs the supervisor that an attempt as a process has (:mod:`iriscw.processes.supervisor`), as the first process
of its container. The attempt's folder is on the node's disk, and both sides see it under the same path: orders,
reports, ends, logs and results are files there (:mod:`iriscw.processes.contained`), so that an attempt outlives its
worker, is adopted by the next process of it, and is ended by its lease if there is none. The API is needed to begin an
attempt, to learn what became of a container that was killed as a whole, and to end one that does not end by itself;
while it is away, all others go on.

GPUs that the worker divides are the container's alone. In a pod the node's device plugin gives them: nothing is said of
them to the program, and what the pod's own variables say of them is told on.

The program's environment is: what the image and the pod say, then the user's variables, then iriscw's, which win; the
address by which others reach it is the pod's own.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import attrs

from iriscw._errors import InvalidArgument
from iriscw.cloud.kube.tasks import OWN_HOST, TaskPod
from iriscw.cloud.model import CloudError, InvalidSpec
from iriscw.processes.contained import command, look, provide_supervisor, withdraw, write_order
from iriscw.processes.ends import ProcessEnd
from iriscw.processes.lease import LeaseFile
from iriscw.processes.status import write_stop
from iriscw.processes.supervised import STUCK_MARGIN_S, BinaryRefused, FilterRefused, MissingBinary, Program
from iriscw.processes.sweep import SweepFailed
from iriscw.runtime.vocabulary import SECOND
from iriscw.task.environment import AttemptFacts, gang_environment, task_environment
from iriscw.worker.inotify import FileWatch, Growth
from iriscw.worker.ports import (
    AttemptNotStarted,
    AttemptSpec,
    AttemptWithdrawn,
    ImageUnavailable,
    NotFreezable,
    ProgramMissing,
    WorkerTrouble,
)
from iriscw.worker.runtimes.attempt import FolderAttempt, prepare
from iriscw.worker.runtimes.input_checks import PROGRAM_DEFAULTS, argv_of, check_contained, check_environment, filter_of
from iriscw.worker.runtimes.not_suspendable import Unmoved
from iriscw.worker.runtimes.pod_life import (
    Course,
    GiveUp,
    Never,
    PodPatience,
    PodSight,
    ProgramRefused,
    Runs,
    WaitMore,
    judge_end,
    judge_start,
)
from iriscw.worker.runtimes.pod_view import PodView, TaskPodDriver, ViewStatistics
from iriscw.worker.runtimes.workdir import AttemptFolder, folders_below

log = logging.getLogger(__name__)

INTERPRETER = "python3"
"""What an image must have: any Python 3.11 or later runs a supervisor."""

CALLABLE_ARGV = ("python", "-m", "iriscw.task")

LOOK_S = 10.0
"""Between two looks for which nothing happened: not every sandbox tells of what is written inside of it."""

DELETION_S = 60.0
"""What an ordered deletion may take until the API says that the pod is gone."""

DELETION_GRACE_S = 1.0


@attrs.define(eq=False)
class PodAttempt(FolderAttempt):
    """An attempt that is a pod; see :class:`~iriscw.worker.ports.RunningAttempt`."""

    name: str
    argv: tuple[str, ...]
    view: PodView
    driver: TaskPodDriver
    files: FileWatch
    patience: PodPatience
    host: str = ""
    """Where others reach it, once it has begun."""
    unwanted: anyio.Event = attrs.field(factory=anyio.Event)
    """Set when it need not begin any more."""
    seen_gpus: tuple[str, ...] = ()
    """What its pod says of its GPUs."""
    _ordered: bool = False
    _end: ProcessEnd | None = None
    _lock: anyio.Lock = attrs.field(factory=anyio.Lock)

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPUs that its node gave it, as far as its pod says so."""
        return self.seen_gpus

    async def begun(self) -> Runs | ProgramRefused | Never:
        """Wait until it is known whether the program runs. If it does not, nothing of it ever will."""
        asked = time.monotonic_ns()
        course = Course(asked)
        given_up: GiveUp | None = None
        with self._noticing() as wait:
            while True:
                seen = await self._look()
                now = time.monotonic_ns()
                course = course.seen(seen, now)
                verdict = judge_start(seen, now - asked, now - course.since, self.patience)
                if self.unwanted.is_set() and isinstance(verdict, WaitMore):
                    verdict = GiveUp("it was stopped before it began")
                match verdict:
                    case Runs() | ProgramRefused():
                        self.host = "" if seen.found.report is None else seen.found.report.host
                        return verdict
                    case Never():
                        await anyio.to_thread.run_sync(withdraw, self.folder.path)
                        return verdict
                    case GiveUp() if given_up is None:
                        given_up = verdict
                        if await anyio.to_thread.run_sync(withdraw, self.folder.path):
                            return Never(verdict.reason, verdict.of_image)
                        await wait(LOOK_S)  # it was taken meanwhile: the supervisor is about to report
                    case GiveUp():
                        await wait(LOOK_S)
                    case WaitMore(span=span):
                        await wait(span / SECOND)

    async def wait(self) -> ProcessEnd:
        """Wait until it has ended."""
        async with self._lock:
            if self._end is None:
                self._end = await self._ended()
            return self._end

    async def _ended(self) -> ProcessEnd:
        known_since: int | None = None
        with self._noticing() as wait:
            while True:
                seen = await self._look()
                now = time.monotonic_ns()
                if seen.found.ending is not None and known_since is None:
                    known_since = now
                settled = 0 if known_since is None else now - known_since
                verdict = judge_end(seen, settled, self._ordered or seen.found.stopping, self.patience)
                if isinstance(verdict, ProcessEnd):
                    return attrs.evolve(verdict, log_bytes=await anyio.to_thread.run_sync(self.folder.log_bytes))
                await wait(LOOK_S if verdict is None else verdict.span / SECOND)

    async def stop(self, grace_s: float) -> ProcessEnd:
        """Ask it to end, by a file; delete its pod if it does not."""
        self._ordered = True
        try:
            await anyio.to_thread.run_sync(write_stop, self.folder.path, grace_s)
        except OSError as error:
            log.info("the order to end %s cannot be written: its pod is deleted: %s", self.uid, error)
        else:
            with anyio.move_on_after(grace_s + STUCK_MARGIN_S):
                return await self.wait()
        return await self._force()

    async def _force(self) -> ProcessEnd:
        pod, gone = self.view.state(self.name)
        try:
            if pod is None and not gone:
                pod = await self.driver.look(self.name)
            if pod is not None and not gone:
                await self.driver.delete(self.name, pod.uid, DELETION_GRACE_S)
        except CloudError as error:
            raise SweepFailed(f"the pod of {self.uid} cannot be deleted: {error}") from error
        with anyio.move_on_after(DELETION_S):
            return await self.wait()
        raise SweepFailed(f"the pod {self.name} of {self.uid} was deleted, and is still there")

    async def remove(self) -> None:
        """Remove its files; its pod goes by and by."""
        self.view.release(self.name)
        await super().remove()

    async def _look(self) -> PodSight:
        pod, gone = self.view.state(self.name)  # before the files: what was written last is then among them
        found = await anyio.to_thread.run_sync(look, self.folder.path, self.argv, self.folder.work)
        return PodSight(found=found, pod=pod, gone=gone)

    @contextmanager
    def _noticing(self) -> Iterator[Callable[[float], Awaitable[None]]]:
        """Yield what waits until something happened since it was given, or was called last, or for so many seconds."""
        with contextlib.ExitStack() as stack:
            growth: Growth | None = None
            try:
                growth = stack.enter_context(self.files.watching(self.folder.path, arrivals=True))
            except OSError as error:  # as many files are watched as may be: every few seconds will do
                log.info("the files of %s are looked at from time to time: %s", self.uid, error)
            bell = self.view.bell(self.name)

            async def wait(span_s: float) -> None:
                nonlocal bell
                with anyio.move_on_after(min(span_s, LOOK_S)):
                    async with anyio.create_task_group() as group:

                        async def one(event: Callable[[], Awaitable[object]]) -> None:
                            await event()
                            group.cancel_scope.cancel()

                        group.start_soon(one, bell.wait)
                        if growth is not None:
                            group.start_soon(one, growth.wait)
                        if not self.unwanted.is_set():
                            group.start_soon(one, self.unwanted.wait)
                bell = self.view.bell(self.name)
                if growth is not None:
                    growth.rearm()

            yield wait


@attrs.frozen(eq=False)
class PodRuntime(Unmoved):
    """Runs attempts as pods; see :class:`~iriscw.worker.ports.TaskRuntime`. Made by :func:`open_pod_runtime`.

    ``cache_dir`` is what node and pods share: ``root``, where attempts are, and ``shared``, where the lease is and the
    supervisor's copy, are below it. With ``one_log`` both outputs of an attempt go to one file.
    """

    root: Path
    shared: Path
    cache_dir: Path
    lease: LeaseFile
    driver: TaskPodDriver
    view: PodView
    files: FileWatch
    patience: PodPatience
    one_log: bool = False
    _starting: dict[str, PodAttempt] = attrs.field(factory=dict, init=False)

    async def start(self, spec: AttemptSpec) -> PodAttempt:
        """Start an attempt."""
        check_contained(spec)
        argv = argv_of(spec, CALLABLE_ARGV)
        folder = AttemptFolder(self.root, spec.uid, self.one_log)
        own = spec.facts.gpus or ()
        facts = attrs.evolve(spec.facts, gpu_indices=range(len(own)))  # it sees these alone, and counts them from 0
        variables = task_environment(facts, folder.work)
        for name in ("IRIS_ADVERTISE_HOST", *(name for name, _ in _of_own_host(spec.facts))):
            del variables[name]  # its pod's own, which nobody knows yet
        check_environment(spec.environment)
        syscall_filter = filter_of(spec)
        await prepare(folder, spec, argv)
        program = Program(
            argv=folder.steps(INTERPRETER) if spec.setup.steps else argv,
            folder=folder.path,
            workdir=folder.work,
            stdout=folder.stdout,
            stderr=folder.stderr,
            environment={**PROGRAM_DEFAULTS, **spec.environment, **variables},
            markers={},
            limits=spec.limits,
            lease=self.lease.path,
            syscall_filter=syscall_filter,
        )
        self._starting[spec.uid] = attempt = self._attempt(folder, argv)
        try:
            await self._ask(program, spec)
            verdict = await attempt.begun()
        except BaseException:
            if withdraw(folder.path):  # a rename: nothing else is awaited any more
                self.view.release(attempt.name)
                folder.discard()
            raise
        finally:
            del self._starting[spec.uid]
        if isinstance(verdict, Runs):
            attempt.seen_gpus = verdict.gpus
            return attempt
        self.view.release(attempt.name)
        await anyio.to_thread.run_sync(folder.discard)
        if isinstance(verdict, Never) and attempt.unwanted.is_set():
            raise AttemptWithdrawn(f"{spec.uid} did not start: {verdict.reason}")
        raise _error(verdict, spec)

    def withdraw(self, uid: str) -> None:
        """Give up a start: its pod may take half an hour to begin."""
        if (attempt := self._starting.get(uid)) is not None:
            attempt.unwanted.set()

    async def _ask(self, program: Program, spec: AttemptSpec) -> None:
        """Write the order, and have the pod made.

        Raises:
            WorkerTrouble, ImageUnavailable: there is none, and no order any more.
        """
        try:
            await anyio.to_thread.run_sync(self.lease.write)
            await anyio.to_thread.run_sync(write_order, program)
        except OSError as error:
            raise WorkerTrouble(f"the order for {spec.uid} cannot be written: {error}") from error
        task = TaskPod(
            attempt_uid=spec.uid,
            task_id=spec.facts.task_id,
            folder=str(program.folder.relative_to(self.cache_dir)),
            shared=str(self.shared.relative_to(self.cache_dir)),
            command=command(INTERPRETER, self.shared / "supervisor.py", program.folder),
            demand=spec.demand,
            image=spec.image,
            gpus=spec.facts.gpus or (),
            environment=_of_own_host(spec.facts),
        )
        try:
            self.view.told(await self.driver.create(task))
        except CloudError as error:
            if await anyio.to_thread.run_sync(withdraw, program.folder):
                kind = ImageUnavailable if spec.image and isinstance(error, InvalidSpec) else WorkerTrouble
                raise kind(f"no pod for {spec.uid}: {error}") from error
            log.info("nobody said so, but the pod of %s was made: %s", spec.uid, error)

    async def adopt(self) -> tuple[PodAttempt, ...]:
        """Find the attempts of an earlier worker process; remove what never began."""
        try:
            attempts = await anyio.to_thread.run_sync(self._found)
        except OSError as error:
            raise WorkerTrouble(f"the attempts in {self.root} cannot be read: {error}") from error
        if self.lease.over:  # their supervisors end them, too: whoever comes first
            for attempt in attempts:
                await attempt.stop(0)
        self.view.settle()
        return attempts

    async def hold(self, until_ns: int) -> None:
        """Write down until when attempts may run; the kernel tells their supervisors."""
        self.lease.hold(until_ns)
        try:
            await anyio.to_thread.run_sync(self.lease.write)
        except OSError as error:
            raise WorkerTrouble(f"the lease cannot be written: {error}") from error

    def statistics(self) -> ViewStatistics:
        """Return figures of its pods now."""
        return self.view.statistics()

    def _found(self) -> tuple[PodAttempt, ...]:
        attempts: list[PodAttempt] = []
        for path in folders_below(self.root):
            try:
                folder = AttemptFolder(self.root, path.name, self.one_log)
            except InvalidArgument as error:
                log.warning("not looked at: %s", error)
                continue
            if folder.began() and not withdraw(path):
                report = look(path, (folder.uid,), folder.work).report
                if report is None or report.failure is None:
                    attempts.append(self._attempt(folder, (folder.uid,), expected=True))
                    continue
            folder.discard()  # its pod, if it has one, is a stray
        return tuple(attempts)

    def _attempt(self, folder: AttemptFolder, argv: tuple[str, ...], *, expected: bool = False) -> PodAttempt:
        name = self.driver.name(folder.uid)
        self.view.hold(name, expected=expected)
        return PodAttempt(folder, name, argv, self.view, self.driver, self.files, self.patience)


def _of_own_host(facts: AttemptFacts) -> tuple[tuple[str, str], ...]:
    """Return the variables that hold the attempt's own address: those of a gang's leader say where it is reached."""
    if facts.gang is None or not facts.gang.leads:
        return ()
    of_pod = attrs.evolve(facts, gang=attrs.evolve(facts.gang, leader_host=OWN_HOST))
    return tuple((name, text) for name, text in gang_environment(of_pod).items() if OWN_HOST in text)


def _error(verdict: ProgramRefused | Never, spec: AttemptSpec) -> AttemptNotStarted:
    match verdict:
        case ProgramRefused(failure=MissingBinary() | BinaryRefused() as failure):
            return ProgramMissing(str(failure))
        case ProgramRefused(failure=FilterRefused() as failure):
            return NotFreezable(str(failure))
        case ProgramRefused(failure=failure):
            return WorkerTrouble(str(failure))
        case Never(reason=reason, of_image=of_image):
            kind = ImageUnavailable if of_image and spec.image else WorkerTrouble
            return kind(f"{spec.uid} did not start: {reason}")


@asynccontextmanager
async def open_pod_runtime(
    driver: TaskPodDriver,
    lease: LeaseFile,
    *,
    root: Path,
    cache_dir: Path,
    one_log: bool = False,
    patience: PodPatience | None = None,
) -> AsyncIterator[PodRuntime]:
    """Yield the runtime. Its pods go on when the block is left.

    Args:
        driver: The API's side.
        lease: Until when attempts may run. Its folder is shown to all of them, and nothing else may be in it.
        root: Where attempts are.
        cache_dir: What node and pods share; ``root`` and the lease are below it.
        one_log: Whether both outputs of an attempt go to one file.
        patience: For how long to wait for pods that do not begin.

    Raises:
        OSError: the folders cannot be used, or no more files can be watched.
    """
    shared = lease.path.parent
    await anyio.to_thread.run_sync(provide_supervisor, shared)
    view, files = PodView(driver), FileWatch()
    with contextlib.closing(files):
        async with anyio.create_task_group() as tasks:
            for task in (files.serve, view.follow, view.sweep):
                tasks.start_soon(task)
            try:
                yield PodRuntime(
                    root, shared, cache_dir, lease, driver, view, files, patience or PodPatience(), one_log
                )
            finally:
                tasks.cancel_scope.cancel()
