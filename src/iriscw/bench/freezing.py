"""What freezing costs beside the program that does it: ``iriscw bench freeze``.

A process with some memory is frozen to RAM and thawed, by iriscw and by CRIU alone, in turns, and in turns either of
them begins. A freeze is compared with ``criu dump`` to the same file system and the same digests of what it wrote, by
as many threads; a thaw with those digests and ``criu restore``. What is more is iriscw's own: the gates, the journal,
the manifest. Ratios are of one round, in which everything is done after each other on the same machine, and of all
rounds the one in the middle counts.

Where the kernel has userfaultfd, the process is thawed lazily, too: by iriscw, which compares each piece before it
gives it out, and by CRIU and its own daemon, which do not. What counts is the time until the process makes a step.

CPU time is that of the event loop's thread in a freeze, in which all decisions are made and all records are written.
The journal lies on a disk, as it does in use.

A process of few megabytes says what is fixed of a freeze: it is frozen and thawed by the command, a program that has to
start first, and by an agent, which is there. Its CPU time is that of the whole command, with the CRIU that it runs.

What was promised is a time and no ratio: that of a thaw of 1 GiB from RAM, and from a disk, of which nothing is in the
kernel's cache. It is reported beside the promise.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import attrs

from iriscw.agent.client import AgentCaller
from iriscw.agent.daemon import Agent, AgentSettings
from iriscw.agent.local import Local, failure_of, new_id
from iriscw.agent.machine import this_machine
from iriscw.agent.operation_views import RunningOperation
from iriscw.bench.plane import Figures, MeasurementFailed
from iriscw.checkpoint.drivers.built_in import DISK, RAM
from iriscw.checkpoint.drivers.digests import listed, open_folder
from iriscw.checkpoint.drivers.store import default_reading
from iriscw.files import make_private_folder, remove_tree
from iriscw.freeze.gates import USERFAULTFD
from iriscw.freeze.messages import FreezeTree, ThawTree
from iriscw.freeze.model import FreezePlan, NoRoom, ThawPlan
from iriscw.processes.identity import ProcessGone, identify, pidfd_of

GOALS: Final[Figures] = {"freeze_ratio": 1.25, "thaw_ratio": 1.15, "own_cpu_ms": 50}
"""What each may be at most."""

SMALL_GOALS: Final[Figures] = {"command_freeze_ratio": 3.0, "command_cpu_ms": 300, "agent_freeze_ratio": 1.5}
"""Likewise, of a process of :data:`SMALL_MIB`."""

SMALL_MIB: Final = 3
COMMAND: Final = "import sys; from iriscw.cli import main; sys.exit(main())"

PROMISED_MIB: Final = 1024
PROMISED_S: Final = {RAM: 1.0, DISK: 5.0}
"""What a thaw of so much may take from each tier, as was promised."""

MIB: Final = 1 << 20
FULL_MIB: Final = (64, 512, 2048)
QUICK_MIB: Final = (64,)
ROUNDS: Final = 5

MEMORY: Final = Path("/dev/shm")  # noqa: S108  # what is made there has mode 0700
DISK_PLACE: Final = Path("/var/tmp")  # noqa: S108  # likewise
BESIDE_BYTES: Final = 256 * MIB
"""Memory that is wanted beside that of the process and its copy."""

PATIENCE_S: Final = 60.0

PROGRAM: Final = """
import os, signal, sys, time
signal.alarm(3600)
state = bytearray(os.urandom(1 << 20)) * int(sys.argv[1])
count = os.open(os.path.join(sys.argv[2], "count"), os.O_WRONLY | os.O_CREAT, 0o600)
number = 0
while True:
    number += 1
    os.pwrite(count, number.to_bytes(8, "big"), 0)
    if number == 1:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    time.sleep(0.001)
"""
"""Holds some MiB, lets go of its standard output when it does, counts in a file. It ends by itself after an hour."""

DUMP: Final = ("dump", "--file-locks", "--link-remap", "--ghost-limit", "512M", "--network-lock", "skip")
RESTORE: Final = ("restore", "--restore-detached", "--file-locks", "--link-remap")
"""As iriscw asks for it."""

COUNT: Final = "count"
COUNT_BYTES: Final = 8
LOOK_S: Final = 0.0002
"""Between two looks at whether the process has made a step: nobody is told."""

SOCKET: Final = "lazy-pages.socket"
"""What CRIU's daemon for pages listens on, when it is ready."""


@attrs.frozen
class FreezeRound:
    """One round; seconds."""

    freeze_s: float
    bare_freeze_s: float
    thaw_s: float
    bare_thaw_s: float
    own_cpu_s: float
    lazy_first_s: float = 0.0
    """From the order to the first step of a process that is thawed lazily; 0 where that cannot be."""
    bare_lazy_first_s: float = 0.0


def figures_of(mib: int, rounds: Sequence[FreezeRound]) -> Figures:
    """Return the figures of all rounds of one size."""

    def middle(figure: Callable[[FreezeRound], float]) -> float:
        return statistics.median(figure(each) for each in rounds)

    lazy = {
        "lazy_first_s": middle(lambda each: each.lazy_first_s),
        "bare_lazy_first_s": middle(lambda each: each.bare_lazy_first_s),
    }
    return {
        "mib": mib,
        "freeze_s": middle(lambda each: each.freeze_s),
        "bare_freeze_s": middle(lambda each: each.bare_freeze_s),
        "freeze_ratio": middle(lambda each: each.freeze_s / each.bare_freeze_s),
        "thaw_s": middle(lambda each: each.thaw_s),
        "bare_thaw_s": middle(lambda each: each.bare_thaw_s),
        "thaw_ratio": middle(lambda each: each.thaw_s / each.bare_thaw_s),
        "own_cpu_ms": middle(lambda each: each.own_cpu_s * 1000),
        **(lazy if all(lazy.values()) else {}),
    }


@attrs.frozen
class Ours:
    """One freeze and one thaw by iriscw; seconds."""

    freeze_s: float
    thaw_s: float
    own_cpu_s: float


@attrs.frozen
class Small:
    """One round with a small process: by CRIU alone, by the command, and by an agent; seconds."""

    bare_freeze_s: float
    bare_thaw_s: float
    command_freeze_s: float
    command_thaw_s: float
    command_cpu_s: float
    agent_freeze_s: float
    agent_thaw_s: float


def small_of(mib: float, rounds: Sequence[Small]) -> Figures:
    """Return the figures of all rounds of a small process. Of CPU time the least counts: others only ever add to it."""

    def middle(figure: Callable[[Small], float]) -> float:
        return statistics.median(figure(each) for each in rounds)

    return {
        "mib": mib,
        "bare_freeze_s": middle(lambda each: each.bare_freeze_s),
        "command_freeze_s": middle(lambda each: each.command_freeze_s),
        "command_freeze_ratio": middle(lambda each: each.command_freeze_s / each.bare_freeze_s),
        "command_cpu_ms": min(each.command_cpu_s * 1000 for each in rounds),
        "agent_freeze_s": middle(lambda each: each.agent_freeze_s),
        "agent_freeze_ratio": middle(lambda each: each.agent_freeze_s / each.bare_freeze_s),
        "bare_thaw_s": middle(lambda each: each.bare_thaw_s),
        "command_thaw_s": middle(lambda each: each.command_thaw_s),
        "command_thaw_ratio": middle(lambda each: each.command_thaw_s / each.bare_thaw_s),
        "agent_thaw_s": middle(lambda each: each.agent_thaw_s),
        "agent_thaw_ratio": middle(lambda each: each.agent_thaw_s / each.bare_thaw_s),
    }


def promise_of(mib: int, tier: str, rounds: Sequence[Ours]) -> Figures:
    """Return the figures of all rounds of a size of which something is promised."""
    return {
        "mib": mib,
        "freeze_s": statistics.median(each.freeze_s for each in rounds),
        "thaw_s": statistics.median(each.thaw_s for each in rounds),
        "promised_thaw_s": PROMISED_S[tier],
        "own_cpu_ms": statistics.median(each.own_cpu_s * 1000 for each in rounds),
    }


async def run(
    progress: Callable[[str], object],
    sizes_mib: Sequence[int],
    rounds: int,
    promised_mib: int = 0,
    small_mib: int = 0,
) -> dict[str, Any]:
    """Measure each size for which there is memory.

    Args:
        progress: gets a line now and then.
        sizes_mib: of the processes that are compared with CRIU alone.
        rounds: how often each is done.
        promised_mib: the size of one that is thawed from each tier for its time alone; 0: none.
        small_mib: the size of one that is frozen and thawed by the command and by an agent, too; 0: none.

    Raises:
        NoRoom: there is too little memory for any of them.
        CriuMissing, CriuUnfit, RightsMissing: nothing can be frozen here.
        MeasurementFailed: CRIU alone did not do it.
        IriscwError: iriscw did not do it.
    """
    found: list[Figures] = []
    for mib in sizes_mib:
        with _place(mib) as (folder, local):
            if not await _has_room(local, mib, MEMORY):
                progress(f"{mib} MiB: left out, there is too little memory")
                continue
            ability = await local.machine.criu.ability()
            program, lazy = Path(ability.path), USERFAULTFD in ability.features
            async with _process(folder, mib) as pid:
                each: list[FreezeRound] = []
                for number in range(rounds):
                    progress(f"{mib} MiB: round {number + 1} of {rounds}")
                    done = await _round(local, folder, program, pid, bare_first=bool(number % 2))
                    each.append(await _lazily(done, local, folder, program, pid) if lazy else done)
            found.append(figures_of(mib, each))
    if not found:
        raise NoRoom(f"there is too little memory free for {min(sizes_mib)} MiB and a copy of it in {MEMORY}")
    figures = {"to and from RAM": found}
    if small_mib:
        figures["by command and agent"] = [await _small(progress, small_mib, rounds)]
    for tier, place in ((RAM, MEMORY), (DISK, DISK_PLACE)) if promised_mib else ():
        with _place(promised_mib) as (folder, local):
            if not await _has_room(local, promised_mib, place):
                progress(f"{promised_mib} MiB in tier {tier}: left out, there is too little room in {place}")
                continue
            progress(f"{promised_mib} MiB in tier {tier}: {rounds} rounds")
            async with _process(folder, promised_mib) as pid:
                own = [await _ours(local, pid, tier) for _ in range(rounds)]
            figures[f"tier {tier}"] = [promise_of(promised_mib, tier, own)]
    return {"figures": figures, "goals": {**GOALS, **(SMALL_GOALS if small_mib else {})}, "rounds": rounds}


async def _small(progress: Callable[[str], object], mib: int, rounds: int) -> Figures:
    """Measure a small process: by CRIU alone, by the command and by an agent, after each other in each round."""
    found: list[Small] = []
    with _place(mib) as (folder, local):
        program = Path((await local.machine.criu.ability()).path)
        settings = AgentSettings(state=local.state / "of-agent", socket=folder / "agent" / "agent.sock")
        async with (
            Agent(settings, local.machine) as agent,
            AgentCaller(agent.settings.socket) as caller,
            _process(folder, mib) as pid,
        ):
            await _by_command(local, pid)  # one that is not counted: it remembers what CRIU can, as all after it find
            for number in range(rounds):
                progress(f"{mib} MiB, by command and agent: round {number + 1} of {rounds}")
                bare = await _bare(local, folder, program, pid)
                command = await _by_command(local, pid)
                by_agent = await _by_agent(local, caller, pid)
                found.append(Small(*bare, *command, *by_agent))
    return small_of(mib, found)


async def _by_command(local: Local, pid: int) -> tuple[float, float, float]:
    """Freeze and thaw with commands; give what each took, and the CPU time of the first with all that it ran.

    They keep the checkpoint in this user's own memory tier, as there is no way to tell a command of another.
    """
    freeze_s, cpu_s, said = await anyio.to_thread.run_sync(_command, local, "checkpoint", "--pid", str(pid))
    await _free(local, pid)
    artifact = str(json.loads(said)["checkpoint"])
    try:
        thaw_s, _, _ = await anyio.to_thread.run_sync(_command, local, "restore", artifact)
    finally:
        await this_machine(local.state).machine.tiers.remove(artifact)
    return freeze_s, thaw_s, cpu_s


def _command(local: Local, *arguments: str) -> tuple[float, float, bytes]:
    """Run a command to its end; give its wall and its CPU time, and what it said.

    Raises:
        MeasurementFailed: it did not end well.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPYCACHEPREFIX": str(local.state / "compiled")}  # as an installed package is
    argv = [sys.executable, "-c", COMMAND, *arguments, "--state-dir", str(local.state), "-o", "json"]
    began_s = time.perf_counter()
    with subprocess.Popen(  # noqa: S603  # a list of arguments
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        said, trouble = process.communicate()
        took_s, after = time.perf_counter() - began_s, resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode:
        raise MeasurementFailed(f"the command ended with {process.returncode}: {trouble[-500:].decode()}")
    return took_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, said


async def _by_agent(local: Local, caller: AgentCaller, pid: int) -> tuple[float, float]:
    """Freeze and thaw by an agent, which runs already; give what each took, from the order to the last word."""
    root = await local.machine.processes.identify(pid)
    began_s = time.perf_counter()
    view = await _followed(caller.freeze(FreezePlan("", root, RAM)))
    freeze_s = time.perf_counter() - began_s
    await _free(local, pid)
    began_s = time.perf_counter()
    await _followed(caller.thaw(ThawPlan("", view.artifact)))
    thaw_s = time.perf_counter() - began_s
    await caller.remove(view.artifact)
    return freeze_s, thaw_s


async def _followed(views: AsyncGenerator[RunningOperation, None]) -> RunningOperation:
    last: RunningOperation | None = None
    async with aclosing(views):
        async for view in views:
            last = view
    if last is None or last.end is None:
        raise MeasurementFailed("the agent did not say how it ended")
    if failure := failure_of(last.end):
        raise failure
    return last


@contextlib.contextmanager
def _place(mib: int) -> Iterator[tuple[Path, Local]]:
    """Yield a folder in memory, and what freezes and thaws processes of this size there or to a disk."""
    with contextlib.ExitStack() as made:
        folder, state = (_temporary(each, made) for each in (MEMORY, DISK_PLACE))
        budget = 2 * mib * MIB + BESIDE_BYTES
        folders = {RAM: folder / "memory"}
        yield folder, this_machine(state, folders=folders, budgets={RAM: budget, DISK: budget})


def _temporary(place: Path, until: contextlib.ExitStack) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="iriscw-bench-", dir=place))
    until.callback(remove_tree, folder)
    return folder


async def _has_room(local: Local, mib: int, place: Path) -> bool:
    there = os.statvfs(place)
    return (
        await local.machine.processes.free_memory_bytes() >= 2 * mib * MIB + BESIDE_BYTES
        and there.f_bavail * there.f_frsize >= mib * MIB + BESIDE_BYTES
    )


@contextlib.asynccontextmanager
async def _process(folder: Path, mib: int) -> AsyncIterator[int]:
    """Start the process; it is ended, whoever brought it back meanwhile."""
    process = subprocess.Popen(  # noqa: S603, ASYNC220  # a list of arguments; it takes two milliseconds
        [sys.executable, "-I", "-S", "-c", PROGRAM, str(mib), str(folder)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        await anyio.to_thread.run_sync(process.stdout.read, abandon_on_cancel=True)
        yield process.pid
    finally:
        process.poll()
        with contextlib.suppress(ProcessGone):
            _end(process.pid, folder)
        process.wait()
        process.stdout.close()


def _end(pid: int, folder: Path) -> None:
    """Kill the process that was told of this folder and has this number.

    Raises:
        ProcessGone: there is none.
    """
    identity = identify(pid)
    try:
        told = os.fsencode(folder) in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError) as error:
        raise ProcessGone(f"process {pid} has ended") from error
    if not told:
        raise ProcessGone(f"process {pid} is another one by now")
    with pidfd_of(identity) as descriptor:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        select.select([descriptor], [], [], PATIENCE_S)


async def _round(local: Local, folder: Path, program: Path, pid: int, *, bare_first: bool) -> FreezeRound:
    if bare_first:
        bare_freeze_s, bare_thaw_s = await _bare(local, folder, program, pid)
        ours = await _ours(local, pid, RAM)
    else:
        ours = await _ours(local, pid, RAM)
        bare_freeze_s, bare_thaw_s = await _bare(local, folder, program, pid)
    return FreezeRound(ours.freeze_s, bare_freeze_s, ours.thaw_s, bare_thaw_s, ours.own_cpu_s)


async def _ours(local: Local, pid: int, tier: str) -> Ours:
    artifact = new_id("ck")
    root = await local.machine.processes.identify(pid)
    began_s, cpu_s = time.perf_counter(), time.thread_time()
    failure = failure_of(await local.run(FreezeTree(FreezePlan(operation=artifact, root=root, tier=tier))))
    freeze_s, own_cpu_s = time.perf_counter() - began_s, time.thread_time() - cpu_s
    if failure is not None:
        raise failure
    await _free(local, pid)
    if tier == DISK:
        await anyio.to_thread.run_sync(_forget, local.machine.tiers.folders[DISK].images(artifact))
    began_s = time.perf_counter()
    failure = failure_of(await local.run(ThawTree(ThawPlan(new_id("th"), artifact))))
    thaw_s = time.perf_counter() - began_s
    if failure is not None:
        raise failure
    await local.machine.tiers.remove(artifact)
    return Ours(freeze_s, thaw_s, own_cpu_s)


def _forget(images: Path) -> None:
    """Have the kernel drop what it holds of files that are on the disk: a thaw may come long after."""
    for path in images.iterdir():
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


async def _bare(local: Local, folder: Path, program: Path, pid: int) -> tuple[float, float]:
    images = folder / "bare"
    make_private_folder(images)
    try:
        bare_freeze_s = await anyio.to_thread.run_sync(_bare_freeze, program, images, pid)
        await _free(local, pid)
        bare_thaw_s = await anyio.to_thread.run_sync(_bare_thaw, program, images)
    finally:
        remove_tree(images)
    return bare_freeze_s, bare_thaw_s


async def _lazily(done: FreezeRound, local: Local, folder: Path, program: Path, pid: int) -> FreezeRound:
    """Add to a round what lazy thaws take until the process makes a step."""
    artifact = new_id("ck")
    root = await local.machine.processes.identify(pid)
    if failure := failure_of(await local.run(FreezeTree(FreezePlan(operation=artifact, root=root, tier=RAM)))):
        raise failure
    await _free(local, pid)

    async def thaw() -> None:
        if failure := failure_of(await local.run(ThawTree(ThawPlan(new_id("th"), artifact, lazy=True)))):
            raise failure

    lazy_first_s = await _until_first_step(folder, thaw)
    await local.machine.tiers.remove(artifact)
    images = folder / "bare"
    make_private_folder(images)
    try:
        await anyio.to_thread.run_sync(_bare_dump, program, images, pid)
        await _free(local, pid)
        bare_lazy_first_s = await _until_first_step(
            folder, lambda: anyio.to_thread.run_sync(_bare_lazy_thaw, program, images)
        )
    finally:
        remove_tree(images)
    return attrs.evolve(done, lazy_first_s=lazy_first_s, bare_lazy_first_s=bare_lazy_first_s)


async def _until_first_step(folder: Path, thaw: Callable[[], Awaitable[None]]) -> float:
    """Thaw, and give how long it took until the process had counted on; return when the thaw is over.

    Raises:
        MeasurementFailed: it never did.
    """
    path = folder / COUNT
    before = _counted(path)
    began_s = time.perf_counter()
    failures: list[Exception] = []
    over = threading.Event()

    def look() -> float:
        while _counted(path) == before:
            if over.is_set() or time.perf_counter() - began_s > PATIENCE_S:
                raise MeasurementFailed("the process was thawed, and made no step")
            over.wait(LOOK_S)
        return time.perf_counter() - began_s

    async def thawing() -> None:
        try:
            await thaw()
        except Exception as error:  # noqa: BLE001 - raised below: a task group would wrap it
            failures.append(error)
            over.set()

    took: list[float] = []

    async def looking() -> None:
        try:
            took.append(await anyio.to_thread.run_sync(look))
        except MeasurementFailed as error:
            failures.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(looking)
        tasks.start_soon(thawing)
    if failures:
        raise failures[0]
    return took[0]


def _counted(path: Path) -> bytes:
    with path.open("rb", buffering=0) as file:
        return file.read(COUNT_BYTES)


async def _free(local: Local, pid: int) -> None:
    """Wait until whoever adopted the process has reaped it: how long that takes says nothing of a thaw."""
    with anyio.move_on_after(PATIENCE_S):
        while await local.machine.processes.taken([pid]):  # noqa: ASYNC110 - nobody but its parent is told
            await anyio.sleep(0.001)
        return
    raise MeasurementFailed(f"process {pid} is gone and nobody reaps it: it cannot be brought back")


def _bare_freeze(program: Path, images: Path, pid: int) -> float:
    began_s = time.perf_counter()
    _bare_dump(program, images, pid)
    _digests(images)
    return time.perf_counter() - began_s


def _bare_thaw(program: Path, images: Path) -> float:
    began_s = time.perf_counter()
    _digests(images)
    _criu(program, images, *RESTORE)
    return time.perf_counter() - began_s


def _bare_dump(program: Path, images: Path, pid: int) -> None:
    _criu(program, images, *DUMP, "--tree", str(pid))


def _bare_lazy_thaw(program: Path, images: Path) -> None:
    """Have CRIU's own daemon bring the pages; return when it has ended."""
    command = [str(program), "lazy-pages", "--no-default-config", "--images-dir", str(images)]
    with subprocess.Popen(  # noqa: S603  # a list of arguments
        [*command, "--work-dir", str(images), "--log-file", "lazy.log"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as daemon:
        ended = os.pidfd_open(daemon.pid)
        try:
            end_s = time.perf_counter() + PATIENCE_S
            while not (images / SOCKET).exists():
                if select.select([ended], [], [], LOOK_S)[0] or time.perf_counter() > end_s:
                    raise MeasurementFailed("CRIU's daemon for pages does not listen")
            _criu(program, images, *RESTORE, "--lazy-pages")
            daemon.wait(PATIENCE_S)
        except subprocess.TimeoutExpired as error:
            raise MeasurementFailed("CRIU's daemon for pages does not end") from error
        finally:
            os.close(ended)
            daemon.kill()


def _digests(images: Path) -> None:
    folder = open_folder(images)
    try:
        default_reading(lambda count: None).digests(folder, listed(folder))
    finally:
        os.close(folder)


def _criu(program: Path, images: Path, *arguments: str) -> None:
    """Run CRIU alone.

    Raises:
        MeasurementFailed: it did not do it.
    """
    command = [str(program), *arguments, "--no-default-config", "--images-dir", str(images), "--log-file", "bare.log"]
    done = subprocess.run(  # noqa: S603  # a list of arguments
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
    )
    if done.returncode:
        said = (images / "bare.log").read_bytes()[-500:].decode("utf-8", "replace").strip()
        raise MeasurementFailed(f"criu {arguments[0]} ended with {done.returncode}: {said}")
