"""Pods of a simulated cluster whose programs really run, as processes of this machine.

Theory of operation. CoreWeave's simulation decides when a container starts and when it must be gone
(:class:`~iriscw_sims.coreweave.surroundings.Containers`); here that is done to real processes, each group of them under
a supervisor of its own (:mod:`iriscw.processes`), which ends them all with their last lease if this process dies. What
ends by itself is told back with its exit code. Killing is ordered at once and takes some milliseconds; a pod that is
started anew waits until nothing of its last life is left.

What a pod's program says goes to a file, of which the last :data:`LOG_BYTES` are kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
import anyio.to_thread
import attrs

from iriscw._errors import OperationError
from iriscw.files import make_private_folder
from iriscw.processes.ends import ProcessEnd
from iriscw.processes.environment import basic_environment
from iriscw.processes.lease import LeaseFile
from iriscw.processes.supervised import Program, Supervised, launch
from iriscw.processes.sweep import SweepFailed
from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.kube.kinds import Json
from iriscw_sims.processes.programs import PodProgram, Read, Stage, program_of

log = logging.getLogger(__name__)

MARKER = "IRISCW_SIM_POD"
"""The variable by which all processes of a pod are found."""

CLAIMS = "claims"
"""The folder with what stands for claimed volumes."""

LOG_BYTES = 10 << 20
"""Of a pod's log; what came before is kept once, as large. The kubelet's limit for a container's log."""

LEASE_S = 20.0
"""For how long pods go on after this process was killed."""

START_ERROR_CODE = 128
START_ERROR = "StartError"


@attrs.define(eq=False)
class Life:
    """One life of a pod's container."""

    pod: Json
    folder: Path
    log: Path
    program: PodProgram | None = None
    running: Supervised | None = None
    begun: asyncio.Event = attrs.field(factory=asyncio.Event)
    """Set when it is known whether the program runs."""
    grace_s: float | None = None
    """What the program gets to end by itself, once it was asked to."""
    killed: bool = False


class ProcessContainers:
    """Runs what is in pods, as processes. An async context manager; leaving it ends them all.

    Args:
        folder: Where everything of theirs lies.
        stage: What stands for what.
    """

    def __init__(self, folder: Path, stage: Stage | None = None) -> None:
        self.folder = folder
        self.stage = stage or Stage()
        self.read: Read = lambda _path: None
        """Reads ConfigMaps and Secrets; set by who has the API."""
        self.environment: Callable[[Json], Mapping[str, str]] = lambda _pod: {}
        """Gives what a pod's program is given beside the stage's environment; asked in a thread, before each start."""
        self.exited: Callable[[str, int, str], object] = lambda _uid, _code, _reason: None
        """Is told of each end by itself: the pod's uid, the exit code, the reason."""
        self.real_s: Callable[[int], float] = lambda span: span / SECOND
        """How long so many simulated ns are; set by who has the clock."""
        self.lives: dict[str, Life] = {}
        """Of pods whose programs run or are about to, by uid."""
        self.last: dict[str, Life] = {}
        """The last life of each pod that was ever started, for its log."""
        self._count = 0
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._lease: LeaseFile | None = None
        self._renewal: asyncio.Task[None] | None = None

    @property
    def running(self) -> int:
        """How many pods have processes."""
        return len(self.lives)

    async def __aenter__(self) -> Self:
        """Make the folder, and hold the lease.

        Raises:
            OSError: the folder cannot be used.
        """
        await anyio.to_thread.run_sync(make_private_folder, self.folder)
        self._lease = LeaseFile(self.folder / "lease")
        self._hold()
        self._renewal = asyncio.get_running_loop().create_task(self._renew(), name="iriscw pods' lease")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill every pod, and wait until nothing of them is left."""
        assert self._lease is not None
        assert self._renewal is not None
        for uid in [*self.lives]:
            self.killed(uid, "the simulation ends")
        with anyio.CancelScope(shield=True):  # bounded: a kill waits for nobody
            while self._tasks:
                await asyncio.wait([*self._tasks.values()])
            self._renewal.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._renewal
        self._lease.close()

    def _hold(self) -> None:
        assert self._lease is not None
        self._lease.hold(time.monotonic_ns() + int(LEASE_S * SECOND))
        self._lease.write()

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(LEASE_S / 5)
            self._hold()

    # What the simulation orders

    def started(self, pod: Json, node: str) -> None:
        """Start a pod's program on a node."""
        uid = str(pod["metadata"]["uid"])
        self._count += 1
        folder = self.folder / "pods" / f"{pod['metadata']['name']}-{self._count}"
        life = Life(pod, folder, folder / "log")
        before = self._tasks.get(uid)
        self.lives[uid] = self.last[uid] = life
        task = asyncio.get_running_loop().create_task(self._live(uid, node, life, before), name=f"pod {uid}")
        self._tasks[uid] = task
        task.add_done_callback(lambda done: self._tasks.pop(uid) if self._tasks.get(uid) is done else None)

    def ending(self, pod_uid: str, grace_ns: int) -> None:
        """Ask a pod's program to end by itself within ``grace_ns``."""
        life = self.lives.get(pod_uid)
        if life is not None and not life.killed:
            self._stop(life, self.real_s(grace_ns))

    def killed(self, pod_uid: str, why: str) -> None:
        """End all of a pod's processes."""
        life = self.lives.pop(pod_uid, None)
        if life is not None:
            life.killed = True
            self._stop(life, 0.0)

    def _stop(self, life: Life, grace_s: float) -> None:
        life.grace_s = grace_s if life.grace_s is None else min(grace_s, life.grace_s)
        if life.running is not None:
            self._order(life, life.running)

    def _order(self, life: Life, running: Supervised) -> None:
        task = asyncio.get_running_loop().create_task(_stopped(running, life.grace_s or 0.0))
        key = f"{life.folder} ends after {life.grace_s}"
        self._tasks[key] = task
        task.add_done_callback(lambda _done: self._tasks.pop(key, None))

    # One life

    async def _live(self, uid: str, node: str, life: Life, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        try:
            own = await anyio.to_thread.run_sync(self.environment, life.pod)
            life.program = program_of(
                life.pod,
                self.read,
                attrs.evolve(self.stage, environment={**self.stage.environment, **own}),
                folder=self.folder / "roots" / uid,  # what a pod's container wrote is there when it starts again
                node_folder=self.folder / "nodes" / node,
                claims_folder=self.folder / CLAIMS,
            )
            life.running = await self._launch(life, life.program)
        except (OperationError, OSError, ValueError) as error:  # the last: what a Secret holds is not what it should
            log.warning("pod %s does not start: %s", life.pod["metadata"]["name"], error)
            await anyio.to_thread.run_sync(_say, life.log, f"{type(error).__name__}: {error}\n")
            self._over(uid, life, START_ERROR_CODE, START_ERROR)
            return
        finally:
            life.begun.set()
        if life.grace_s is not None:
            self._order(life, life.running)
        code, reason = judge(await _end_of(life.running))
        self._over(uid, life, code, reason)

    async def _launch(self, life: Life, program: PodProgram) -> Supervised:
        await anyio.to_thread.run_sync(_lay_out, life.folder, program)
        return await launch(
            Program(
                argv=program.argv,
                folder=life.folder / "status",
                workdir=life.folder / "work",
                stdout=life.log,
                stderr=life.log,
                markers={MARKER: str(life.folder)},
                environment={**basic_environment(os.environ), **program.environment},
                lease=self._lease.path if self._lease is not None else None,
                log_limit_bytes=LOG_BYTES,
            )
        )

    def _over(self, uid: str, life: Life, code: int, reason: str) -> None:
        if self.lives.get(uid) is life:
            del self.lives[uid]
            self.exited(uid, code, reason)


def judge(ending: ProcessEnd) -> tuple[int, str]:
    """Return exit code and reason of an end, as a kubelet tells them."""
    if ending.code is not None:
        return ending.code, "Completed" if ending.code == 0 else "Error"
    number = ending.signal if ending.signal is not None else signal.SIGKILL
    return 128 + number, "OOMKilled" if ending.out_of_memory else "Error"


async def _stopped(running: Supervised, grace_s: float) -> None:
    try:
        await running.stop(grace_s)
    except (SweepFailed, OSError) as error:
        log.warning("processes of a pod cannot be ended: %s", error)


async def _end_of(running: Supervised) -> ProcessEnd:
    while True:
        try:
            return await running.wait()
        except (SweepFailed, OSError) as error:
            log.warning("how a pod ended cannot be told yet: %s", error)
            await asyncio.sleep(1)


def _lay_out(folder: Path, program: PodProgram) -> None:
    """Make what a pod finds when it starts."""
    for each in (folder, folder / "work", *program.folders):
        make_private_folder(each)
    for path, content in program.files.items():
        make_private_folder(path.parent)
        path.write_bytes(content)
        path.chmod(0o600)


def _say(path: Path, text: str) -> None:
    make_private_folder(path.parent)
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def variables_of(life: Life) -> Mapping[str, str]:
    """Return the environment of a pod's program: what a command that is run beside it gets, too."""
    own = life.program.environment if life.program is not None else {}
    return {**basic_environment(os.environ), **own, MARKER: str(life.folder)}
