"""The inside of pods whose programs really run: their logs, and commands that are run beside them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio

from iriscw_sims.processes.containers import Life, ProcessContainers, variables_of
from iriscw_sims.processes.programs import LOOPBACK, loopback_of
from iriscw_sims.serve.streams import Command, Dialled, ExecStreams, LogLine

LINES_LIMIT = 10_000
"""Lines of a log that are told at once."""

LOOK_AGAIN = 100_000_000
"""ns until one who follows a log looks again: a file rings no bell."""

PIECE_BYTES = 1 << 15
NOT_FOUND = 127


class ProcessStreams:
    """Looks into pods that are processes.

    Args:
        containers: Who runs them.
        reachable: Tells of a node by its name whether its containers can be reached.
    """

    def __init__(self, containers: ProcessContainers, reachable: Callable[[str], bool] = lambda _node: True) -> None:
        self._containers = containers
        self._reachable = reachable

    def exec_ready(self, node: Mapping[str, Any], now: int) -> bool:
        """Tell whether a node's tunnel stands."""
        return self._reachable(node["metadata"]["name"])

    def log(self, pod: Mapping[str, Any], container: str, now: int, first: int = 0) -> Sequence[LogLine]:
        """Return what a pod has said; who said it when, nobody wrote down, so all of it was said just now."""
        life = self._containers.last.get(str(pod["metadata"]["uid"]))
        if life is None:
            return []
        try:
            with life.log.open("rb") as file:
                lines = list(itertools.islice(enumerate(file), first, first + LINES_LIMIT))
        except FileNotFoundError:
            return []
        whole = [(number, line) for number, line in lines if line.endswith(b"\n") or not self._runs(life)]
        return [LogLine(number, now, line.rstrip(b"\n")) for number, line in whole]

    def _runs(self, life: Life) -> bool:
        return self._containers.lives.get(str(life.pod["metadata"]["uid"])) is life

    def next_line(self, pod: Mapping[str, Any], container: str, now: int) -> int | None:
        """Return when it is worth looking again."""
        life = self._containers.last.get(str(pod["metadata"]["uid"]))
        return now + LOOK_AGAIN if life is not None and self._runs(life) else None

    async def dial(self, pod: Mapping[str, Any], port: int) -> Dialled | None:
        """Connect to a port of the loopback address that stands for a pod's; None: nothing listens there."""
        if str(pod["metadata"]["uid"]) not in self._containers.lives:
            return None
        try:
            return await asyncio.open_connection(loopback_of(str(pod["status"].get("podIP") or LOOPBACK)), port)
        except OSError:
            return None

    async def exec(self, command: Command, streams: ExecStreams, now: int) -> int:
        """Run a command with a pod's variables, in its folder. Whoever goes away ends it."""
        life = self._containers.lives.get(str(command.pod["metadata"]["uid"]))
        if life is None or life.program is None:
            await streams.stderr(b"the container does not run\n")
            return NOT_FOUND
        argv = [sys.executable if command.argv[0] in ("python", "python3") else command.argv[0], *command.argv[1:]]
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=life.folder / "work",
                env=dict(variables_of(life)),
                start_new_session=True,
            )
        except OSError as error:
            await streams.stderr(f"exec: {argv[0]}: {error.strerror or error}\n".encode())
            return NOT_FOUND
        return await _carried_out(process, streams)


async def _carried_out(process: asyncio.subprocess.Process, streams: ExecStreams) -> int:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_type, streams, process.stdin)
            async with anyio.create_task_group() as readers:
                readers.start_soon(_tell, process.stdout, streams.stdout)
                readers.start_soon(_tell, process.stderr, streams.stderr)
            code = await process.wait()
            tasks.cancel_scope.cancel()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with anyio.CancelScope(shield=True):  # bounded: it was killed
            await process.wait()
    return code if code >= 0 else 128 - code


async def _type(streams: ExecStreams, stdin: asyncio.StreamWriter) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        async for data in streams.stdin():
            stdin.write(data)
            await stdin.drain()
        stdin.close()


async def _tell(source: asyncio.StreamReader, tell: Callable[[bytes], Any]) -> None:
    while data := await source.read(PIECE_BYTES):
        await tell(data)
