"""``checkpoint`` and ``restore``: the agent does them, and the runtime its part.

A checkpoint is the agent's as a whole; it calls the real ``runc`` itself. A restore has the agent verify the images
first; then the real ``runc`` is started here, because it passes its own standard input and outputs on to the container
and whoever started us adopts it, and the agent stands between that ``runc`` and CRIU.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from typing import Any

import anyio

from iriscw._errors import IriscwError
from iriscw.agent import wire
from iriscw.agent.errors import AgentUnreachable, OperationPutAside
from iriscw.agent.local import ThawFailed, failure_of
from iriscw.agent.shim_caller import ShimCaller
from iriscw.freeze.drivers.runtime.finding import real_runc
from iriscw.proto.iriscw import v1
from iriscw.rpc.errors import RpcUnavailable
from iriscw.shim.agent_queries import agent_socket
from iriscw.shim.runc_messages import fail, say
from iriscw.shim.runc_options import RuncCommand, check

DEFAULT_IMAGES = "checkpoint"
"""Where ``runc`` has images, below the working folder, when nobody says where."""

RESTORING = "restoring"
REPLACED = ("image-path", "work-path")

END_S = 30.0
"""For the runtime to end when it is told to."""


def checkpoint(asked: RuncCommand) -> int:
    """Have a container frozen."""
    return _told(asked, lambda caller: _checkpoint(asked, caller))


def restore(asked: RuncCommand) -> int:
    """Have a container brought back."""
    return _told(asked, lambda caller: _restore(asked, caller))


def stop(path: str, container: str, root: str, within_s: float) -> str:
    """Have what runs on a container undone; say what went wrong, or nothing."""

    async def ask() -> str:
        try:
            with anyio.fail_after(within_s):
                async with ShimCaller(path) as caller:
                    left = await caller.operations(container, root, stop=True)
        except (IriscwError, TimeoutError) as error:
            return f"{type(error).__name__}: {error}"
        return f"operation {left[0].operation_id} runs on" if left else ""

    return anyio.run(ask)


def _told(asked: RuncCommand, doing: Callable[[ShimCaller], Coroutine[Any, Any, int]]) -> int:
    check(asked)

    async def run() -> int:
        async with ShimCaller(agent_socket(os.environ)) as caller:
            try:
                return await _interruptible(doing(caller))
            except RpcUnavailable as error:
                raise AgentUnreachable(f"no agent answers at {agent_socket(os.environ)}: {error}") from error

    try:
        return anyio.run(run)
    except IriscwError as error:
        return fail(asked, f"{type(error).__name__}: {error}")


async def _interruptible(doing: Coroutine[Any, Any, int]) -> int:
    """Do it; a signal that ends a program has it given up, and what was begun is undone."""
    got: list[int] = []
    failures: list[Exception] = []

    async def run() -> None:
        try:
            got.append(await doing)
        except Exception as error:  # noqa: BLE001 - raised below: a task group would wrap it
            failures.append(error)
        tasks.cancel_scope.cancel()

    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            async for number in signals:
                got[:] = [128 + number]
                tasks.cancel_scope.cancel()
    if failures and not got:
        raise failures[0]
    return got[0]


async def _checkpoint(asked: RuncCommand, caller: ShimCaller) -> int:
    request = v1.CheckpointContainerRequest(
        container_id=asked.container,
        runtime_root=asked.root(os.environ, os.geteuid()),
        image_path=_images(asked),
        leave_running=asked.flag("leave-running"),
        tcp_established=asked.flag("tcp-established"),
        external_unix_sockets=asked.flag("ext-unix-sk"),
        shell_job=asked.flag("shell-job"),
        file_locks=asked.flag("file-locks"),
        link_remap=asked.flag("link-remap"),
        cgroups_mode=asked.option("manage-cgroups-mode"),
        empty_namespaces=[*asked.all_of("empty-ns")],
    )
    last = v1.OperationView()
    async with aclosing(caller.checkpoint(request)) as views:
        async for view in views:
            last = view.operation or last
    failure = _failure(last)
    if failure is not None:
        raise failure
    return 0


async def _restore(asked: RuncCommand, caller: ShimCaller) -> int:
    request = v1.RestoreContainerRequest(
        container_id=asked.container,
        runtime_root=asked.root(os.environ, os.geteuid()),
        image_path=_images(asked),
    )
    last = v1.OperationView()
    runtime: Runc | None = None
    failures: list[Exception] = []
    try:
        async with anyio.create_task_group() as tasks:
            try:
                async with aclosing(caller.restore(request)) as views:
                    async for view in views:
                        last = view.operation or last
                        restoring = any(step.phase == RESTORING for step in last.steps) and last.end is None
                        if runtime is None and restoring and view.turn is not None:
                            runtime = Runc(asked, view.turn)
                            tasks.start_soon(_watch, runtime, tasks.cancel_scope)
            except Exception as error:  # noqa: BLE001 - raised below: a task group would wrap it
                failures.append(error)
    finally:
        if runtime is not None:
            with anyio.CancelScope(shield=True):
                await runtime.end()
    if runtime is not None and runtime.code and last.end is None and not failures:
        return runtime.code  # and it said why
    failure = failures[0] if failures else _failure(last)
    if failure is None:
        return 0
    if runtime is not None and runtime.made_it and isinstance(_failure(last), ThawFailed):
        _forget(asked)  # the agent has killed what came back; of any other end it is not known that nothing runs
    raise failure


async def _watch(runtime: Runc, scope: anyio.CancelScope) -> None:
    """Wait until the runtime has ended; if it failed there is nothing to wait for, and what was begun is undone."""
    await runtime.ended()
    if runtime.code:
        scope.cancel()


class Runc:
    """The real ``runc`` while it restores: with our standard input and outputs, and the agent's CRIU in its path."""

    def __init__(self, asked: RuncCommand, turn: v1.RuntimeTurn) -> None:
        words = [real_runc(os.environ), *asked.before, "restore", "--image-path", turn.images]
        words += ["--work-path", turn.criu_folder]
        for name, value in asked.options:
            if name not in REPLACED:
                words.append(f"--{name}={value}")
        environment = {**os.environ, **turn.environment}
        environment["PATH"] = f"{turn.criu_folder}{os.pathsep}{os.environ.get('PATH') or os.defpath}"
        self.made_it = not _is_there(os.path.join(asked.root(os.environ, os.geteuid()), asked.container))  # noqa: PTH118
        """Whether a container of this id is this runtime's, because there was none before."""
        self._process = subprocess.Popen([*words, "--", *asked.words], env=environment)  # noqa: S603 - a list
        self._pidfd = os.pidfd_open(self._process.pid)
        self._over = False

    @property
    def code(self) -> int:
        """Its exit code; 0 while it runs."""
        return (self._process.poll() or 0) if self._process.returncode is None else self._process.returncode

    async def ended(self) -> None:
        """Wait until it has ended."""
        if not self._over:
            await anyio.wait_readable(self._pidfd)
            self._process.wait()

    async def end(self) -> None:
        """Tell it to end, if it has not, and wait for that within a bound."""
        if self._over:
            return
        if self._process.poll() is None:
            self._process.terminate()
            with anyio.move_on_after(END_S):
                await anyio.wait_readable(self._pidfd)
            self._process.kill()
        self._process.wait()
        self._over = True
        os.close(self._pidfd)


def _images(asked: RuncCommand) -> str:
    return os.path.normpath(os.path.join(os.getcwd(), asked.option("image-path") or DEFAULT_IMAGES))  # noqa: PTH109, PTH118


def _is_there(path: str) -> bool:
    """Whether there is, or may be, something."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return True


def _failure(last: v1.OperationView) -> Exception | None:
    """Say what an operation that ended ended with; None if it did what it was to do."""
    view = wire.read_view(last)
    if view.aside:
        return OperationPutAside(view.aside)
    if view.end is None:
        return AgentUnreachable("the agent went away before the end; the next one takes it up")
    return failure_of(view.end)


def _forget(asked: RuncCommand) -> None:
    """Have the runtime forget a container that did not come back: what is left of it was killed."""
    words = [real_runc(os.environ), *asked.before, "delete", "--force", "--", asked.container]
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=END_S)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        say(asked, "warning", f"container {asked.container} is not forgotten: {error}")
        return
    if done.returncode and b"does not exist" not in done.stderr:
        say(asked, "warning", f"container {asked.container} is not forgotten: {done.stderr.decode(errors='replace')}")
