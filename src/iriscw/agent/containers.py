"""From a container's id to its first process, by what its runtime wrote down.

``runc``, and whatever keeps its state as runc does, has a folder for each container with ``state.json`` in it::

    /run/runc/<id>/state.json
    /run/containerd/runc/<namespace>/<id>/state.json

It says which number the container's first process has (``init_process_pid``) and when that started
(``init_process_start``, in clock ticks since boot). The kernel says when the process with this number started: if that
is another time, the container's process has ended and its number belongs to somebody else, who is not touched.

``read_state`` is pure; :func:`container_of` reads the machine, and blocks.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from iriscw._errors import InvalidArgument
from iriscw.agent.errors import ContainerAmbiguous, ContainerRefused, ContainerUnknown
from iriscw.files import decode_json, read_bounded
from iriscw.freeze.model import TaskIdentity
from iriscw.processes.identity import ProcessGone, ProcessIdentity, identify

RUNTIME_ROOTS = (Path("/run/containerd/runc"), Path("/run/runc"))

MAX_STATE_BYTES = 4 << 20
"""Of one ``state.json``: it holds the whole specification of its container, some 50 KiB."""

_ID = re.compile(r"[A-Za-z0-9_+.-]{1,255}")
"""As runc takes them, as long as the name of a folder may be; not ``.`` and ``..``."""

_MAX_PID = 1 << 22
_MAX_TICKS = 1 << 63


@attrs.frozen
class ContainerState:
    """What is needed of a ``state.json``."""

    container_id: str
    pid: int
    start_ticks: int


@attrs.frozen
class FoundContainer:
    """A container that runs: its first process, and the folder in which its runtime keeps it (``runc --root``)."""

    task: TaskIdentity
    root: Path


def check_id(container_id: str) -> None:
    """Refuse what is not a container's id.

    Raises:
        InvalidArgument: it is none.
    """
    if not _ID.fullmatch(container_id) or container_id in (".", ".."):
        raise InvalidArgument(f"{container_id[:80]!a} is not a container id")


def read_state(data: bytes, container_id: str) -> ContainerState:
    """Read a ``state.json``, and believe nothing in it that cannot be.

    Raises:
        ContainerRefused: it is none, or that of another container.
        ContainerUnknown: the container has no process.
    """
    try:
        content = decode_json(data)
    except ValueError as error:
        raise ContainerRefused(f"the state of container {container_id} is not JSON: {error}") from error
    match content:
        case {"id": str(named), "init_process_pid": int(pid), "init_process_start": int(ticks)}:
            pass
        case _:
            raise ContainerRefused(f"the state of container {container_id} does not say which process it has")
    if named != container_id:
        raise ContainerRefused(f"the state of container {container_id} is that of {named[:80]!a}")
    if pid <= 0:
        raise ContainerUnknown(f"container {container_id} has no process")
    if not 1 < pid <= _MAX_PID or not 0 < ticks < _MAX_TICKS:
        raise ContainerRefused(f"the state of container {container_id} names no process: {pid}, started at {ticks}")
    return ContainerState(container_id, pid, ticks)


def checked_root(root: str, roots: Sequence[Path] = RUNTIME_ROOTS) -> Path:
    """Return the folder in which a caller's runtime keeps state, if it is one of ours, or a namespace's in one.

    Raises:
        ContainerRefused: it is none.
    """
    path = Path(root)
    if not path.is_absolute() or os.path.normpath(root) != str(path) or not {path, path.parent} & {*roots}:
        known = ", ".join(str(each) for each in roots)
        raise ContainerRefused(f"{root[:200]!a} is not a folder with a runtime's state: the agent knows {known}")
    return path


def has_own_numbers(task: TaskIdentity) -> bool:
    """Whether a process is in another PID namespace than we are; one that cannot be looked at is not."""
    try:
        return Path(f"/proc/{task.pid}/ns/pid").readlink() != Path("/proc/self/ns/pid").readlink()
    except OSError:
        return False


def container_of(
    container_id: str,
    roots: Sequence[Path] = RUNTIME_ROOTS,
    identify: Callable[[int], ProcessIdentity] = identify,
    *,
    within: Path | None = None,
) -> FoundContainer:
    """Find a container that runs.

    Args:
        container_id: as its runtime knows it.
        roots: where runtimes keep state: folders of containers, or of namespaces with those in them.
        identify: says who has a number now.
        within: the one folder to look in, if the caller knows it.

    Raises:
        InvalidArgument: the id is none.
        ContainerUnknown: no root has it, or its process has ended.
        ContainerAmbiguous: several have it.
        ContainerRefused: its state is not one of a runtime that root, or this user, runs, or cannot be read.
    """
    check_id(container_id)
    found = [state for root in roots for state in _states(root, container_id)]
    if within is not None:
        found = [state for state in dict.fromkeys(found) if state.parents[1] == within]
    if not found:
        looked = ", ".join(str(root) for root in ((within,) if within is not None else roots))
        raise ContainerUnknown(f"there is no container {container_id} below {looked}")
    if len(found) > 1:
        raise ContainerAmbiguous(f"{len(found)} containers are called {container_id}: {found[0]} and {found[1]}")
    state = read_state(_read(found[0], container_id), container_id)
    try:
        now = identify(state.pid)
    except ProcessGone as error:
        raise ContainerUnknown(f"the process of container {container_id} has ended") from error
    if now.start_ticks != state.start_ticks:
        raise ContainerUnknown(
            f"the process of container {container_id} has ended, and its number {state.pid} belongs to another one"
        )
    return FoundContainer(TaskIdentity(now.pid, now.start_ticks, now.boot_id), found[0].parents[1])


def process_of(
    container_id: str,
    roots: Sequence[Path] = RUNTIME_ROOTS,
    identify: Callable[[int], ProcessIdentity] = identify,
) -> TaskIdentity:
    """Return the first process of a container. Arguments and errors are those of :func:`container_of`."""
    return container_of(container_id, roots, identify).task


def _states(root: Path, container_id: str) -> list[Path]:
    """Return the state files of this name below a root, one folder or two below."""
    places = [root]
    try:
        with os.scandir(root) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        places += [root / name for name in names]
        return [path for place in places if _is_file(path := place / container_id / "state.json")]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise ContainerRefused(f"containers below {root} cannot be looked at: {error}") from error


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _read(path: Path, container_id: str) -> bytes:
    try:
        for each in (path.parent, path):
            found = os.lstat(each)
            if found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o022:
                raise ContainerRefused(f"the state of container {container_id} could be anybody's: see {each}")
        return read_bounded(path, MAX_STATE_BYTES)
    except FileNotFoundError as error:
        raise ContainerUnknown(f"container {container_id} is removed just now") from error
    except (OSError, ValueError) as error:
        raise ContainerRefused(f"the state of container {container_id} cannot be read: {error}") from error
