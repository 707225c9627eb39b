"""Find and kill what a killed supervisor left behind, by a marker in the environment.

A supervisor that was killed with SIGKILL cannot sweep. What it had started is recognised by an environment
variable that it was given and that children inherit: ``/proc/<pid>/environ`` shows the environment a program
began with, and ours begin with ``IRISCW_POD_UID`` or ``IRIS_ATTEMPT_UID``. A program that clears its
environment *and* leaves its parent *after* its supervisor was killed escapes; nothing short of a cgroup of
its own would hold it.
"""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

import anyio
import anyio.to_thread

from iriscw._errors import InvalidArgument, OperationError
from iriscw.processes.identity import (
    ProcessGone,
    ProcessIdentity,
    identify,
    is_alive,
    open_pidfd,
    read_environment,
    send_signal,
)

MAX_ROUNDS = 50
"""How often a sweep starts again because new marked processes appeared: a fork bomb that outruns it is
reported.
"""


class SweepFailed(OperationError):
    """Marked processes are still there: they do not die, or multiply faster than they are killed."""

    retryable = True


def marked_processes(markers: Mapping[str, str]) -> tuple[ProcessIdentity, ...]:
    """List the live processes whose environment began with all of ``markers``, this one excepted.

    Blocks for one pass over ``/proc``. Processes of other users are not seen.
    """
    if not markers:
        raise InvalidArgument("without a marker every process would be meant")
    wanted = [f"{name}={value}".encode() for name, value in markers.items()]
    return _processes(lambda began_with: all(marker in began_with for marker in wanted))


def carries(process: ProcessIdentity, markers: Mapping[str, str]) -> bool:
    """Whether this very process lives, and its environment began with all of ``markers``. Blocks.

    Raises:
        PermissionError: it is another user's.
    """
    try:
        environment = read_environment(process.pid)
        alive = is_alive(process)  # afterwards: what was read belongs to this process, or to nobody's
    except (FileNotFoundError, ProcessLookupError):
        return False
    return alive and all(f"{name}={value}".encode() in environment for name, value in markers.items())


def processes_told_of(variable: str, folder: Path) -> tuple[ProcessIdentity, ...]:
    """List the live processes in whose environment ``variable`` names ``folder`` or something below it.

    This one is excepted. Blocks for one pass over ``/proc``. Processes of other users are not seen.
    """
    if folder == Path("/") or not folder.is_absolute():
        raise InvalidArgument(f"{folder} is not a folder of ours: too many processes would be meant")
    itself = f"{variable}=".encode() + os.fsencode(folder)
    below = itself + b"/"
    return _processes(lambda began_with: any(each == itself or each.startswith(below) for each in began_with))


def environments_with(variable: str) -> tuple[dict[str, str], ...]:
    """Return the environments that began with ``variable``, of all live processes but this one.

    Blocks for one pass over ``/proc``. Processes of other users are not seen.
    """
    name = f"{variable}=".encode()
    found: list[dict[str, str]] = []

    def noted(began_with: list[bytes]) -> bool:
        if any(each.startswith(name) for each in began_with):
            pairs = (os.fsdecode(each).partition("=") for each in began_with)
            found.append({key: value for key, _, value in pairs})
        return False

    _processes(noted)
    return tuple(found)


def _processes(wanted: Callable[[list[bytes]], bool]) -> tuple[ProcessIdentity, ...]:
    found: list[ProcessIdentity] = []
    for path in Path("/proc").iterdir():
        if not path.name.isdigit() or int(path.name) == os.getpid():
            continue
        try:
            # The identity first: what is read after it can only belong to this process or to a later one,
            # and send_signal refuses the later one.
            identity = identify(int(path.name))
            environment = read_environment(identity.pid)
        except (ProcessGone, FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if wanted(environment):
            found.append(identity)
    return tuple(found)


async def sweep(markers: Mapping[str, str], *, timeout_s: float = 10.0) -> int:
    """Kill every process that carries all of ``markers`` and wait until none is left; give how many there were.

    Raises:
        SweepFailed: some are left after ``timeout_s``, or new ones kept appearing.
    """
    marked = ", ".join(f"{name}={value}" for name, value in markers.items())
    return await _sweep(functools.partial(marked_processes, markers), marked, timeout_s)


async def sweep_told_of(variable: str, folder: Path, *, timeout_s: float = 10.0) -> int:
    """Kill every process in whose environment ``variable`` names ``folder`` or something below it.

    Waits until none is left, and gives how many there were.

    Raises:
        SweepFailed: some are left after ``timeout_s``, or new ones kept appearing.
    """
    return await _sweep(functools.partial(processes_told_of, variable, folder), f"{variable}={folder}/*", timeout_s)


async def sweep_whose(variable: str, whose: Callable[[Path], bool], marked: str, *, timeout_s: float = 10.0) -> int:
    """Kill every process in whose environment ``variable`` names a path that is meant; wait until none is left.

    Whose a path is may change at any time: it is asked after the process was found, and again in each round.

    Args:
        variable: of the environment.
        whose: says whether a path, as it stands there, is meant. Called in a thread: it may block, and raise
            ``OSError``.
        marked: says in an error who was meant.
        timeout_s: for all of it.

    Raises:
        SweepFailed: some are left after ``timeout_s``, or new ones kept appearing.
        OSError: it cannot be told whose one is.
    """
    name = f"{variable}=".encode()

    def meant(began_with: list[bytes]) -> bool:
        return any(each.startswith(name) and whose(Path(os.fsdecode(each[len(name) :]))) for each in began_with)

    return await _sweep(functools.partial(_processes, meant), marked, timeout_s)


async def _sweep(find: Callable[[], tuple[ProcessIdentity, ...]], marked: str, timeout_s: float) -> int:
    killed = 0
    with anyio.move_on_after(timeout_s):
        for _ in range(MAX_ROUNDS):
            found = await anyio.to_thread.run_sync(find)
            if not found:
                return killed
            killed += len(found)
            for identity in found:
                await _kill(identity)
    raise SweepFailed(f"processes marked {marked} do not end")


async def _kill(identity: ProcessIdentity) -> None:
    try:
        descriptor = open_pidfd(identity)
    except ProcessGone:
        return
    try:
        send_signal(identity, signal.SIGKILL)
        await anyio.wait_readable(descriptor)
    except ProcessGone:
        return
    finally:
        os.close(descriptor)
