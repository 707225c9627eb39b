"""Looking at the GPUs of a worker: one question each period, beside all else that the worker does.

``nvidia-smi`` hangs where the driver does, and then not even a kill ends it. So nobody waits for it: it is asked by a
task of its own, which kills it after a while and lets it be. No other one is started before that one is gone, so that a
broken machine has one such process and not one each period. What was read is shown for a few periods, and then nothing
is: a figure of an hour ago would be taken for one of now.
"""

from __future__ import annotations

import logging
import os
import subprocess
import time
from collections.abc import Sequence
from typing import Final

import anyio

from iriscw.worker.gpu_readings import QUERY, GpuLook, GpuReading, readings_of
from iriscw.worker.gpus import Gpu

log = logging.getLogger(__name__)

PERIOD_S: Final = 15.0
"""Between two questions: as often as Prometheus usually reads. One takes some 50 ms of a processor, by the driver."""

ANSWER_S: Final = 10.0
"""For an answer: with eight GPUs and no persistence mode a healthy machine may take that long."""

GONE_S: Final = 1.0
"""For a program that was killed, to be gone."""

PERIODS_SHOWN: Final = 3
"""How long a figure is shown, in periods."""

MAX_ANSWER_BYTES: Final = 1 << 20
"""A GPU takes 80 bytes."""


class GpuWatch:
    """What the GPUs of a worker were doing when they were last looked at.

    Args:
        gpus: those that the worker hands out.
        command: what tells of them.
        period_s: between two looks.
        answer_s: how long one may take.
    """

    def __init__(
        self,
        gpus: Sequence[Gpu],
        *,
        command: Sequence[str] = QUERY,
        period_s: float | None = None,
        answer_s: float = ANSWER_S,
    ) -> None:
        self._gpus = tuple(gpus)
        self._command = tuple(command)
        self._period_s = PERIOD_S if period_s is None else period_s
        self._answer_s = answer_s
        self._readings: dict[str, GpuReading] = {}
        self._read_at_s = 0.0
        self._hung: subprocess.Popen[bytes] | None = None
        self._failures = 0
        self._problem = "they were not looked at yet"

    def last(self) -> GpuLook:
        """Return what is known now."""
        young = time.monotonic() - self._read_at_s <= PERIODS_SHOWN * self._period_s
        return GpuLook(self._gpus, self._readings if young else {}, self._problem, self._failures)

    async def serve(self) -> None:
        """Look at the GPUs again and again, until cancelled."""
        while True:
            await self.look()
            await anyio.sleep(self._period_s)

    async def look(self) -> None:
        """Ask once; a machine that does not answer is a problem that is told, and no error."""
        problem = await self._ask()
        if problem:
            self._failures += 1
            if problem != self._problem:
                log.warning("GPUs are not looked at: %s", problem)
        self._problem = problem

    async def _ask(self) -> str:
        """Ask; give what was wrong."""
        if self._hung is not None and self._hung.poll() is None:
            return f"the {self._command[0]} that was killed has not ended yet"
        self._hung = None
        try:
            process = subprocess.Popen(  # noqa: S603, ASYNC220 - a fixed list; it takes two milliseconds
                self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except OSError as error:
            return f"{self._command[0]} does not start: {error.strerror or error}"
        said: list[bytes] = []
        answered = False
        try:
            answered = await self._read(process, said)
        finally:
            self._let_go(process)
        if not answered:
            return f"{self._command[0]} did not answer within {self._answer_s:g} s, and was killed"
        if process.returncode:
            return f"{self._command[0]} ended with {process.returncode}"
        self._readings = readings_of(b"".join(said).decode(errors="replace"), self._gpus)
        self._read_at_s = time.monotonic()
        return "" if self._readings else f"{self._command[0]} says nothing of these GPUs"

    async def _read(self, process: subprocess.Popen[bytes], said: list[bytes]) -> bool:
        """Read what a program says, until it has ended or its time is over; tell which."""
        assert process.stdout is not None
        descriptor, ended = process.stdout.fileno(), os.pidfd_open(process.pid)
        answered = False
        try:
            os.set_blocking(descriptor, False)
            with anyio.move_on_after(self._answer_s):
                while not answered and sum(map(len, said)) <= MAX_ANSWER_BYTES:
                    await anyio.wait_readable(descriptor)
                    said.append(os.read(descriptor, 1 << 16))
                    if not said[-1]:
                        await anyio.wait_readable(ended)
                        answered = True
        finally:
            if not answered:  # also where the worker ends meanwhile
                process.kill()
                with anyio.move_on_after(GONE_S, shield=True):
                    await anyio.wait_readable(ended)
            os.close(ended)
        return answered

    def _let_go(self, process: subprocess.Popen[bytes]) -> None:
        """Let go of a program: one that has not ended is killed, and remembered until it has."""
        assert process.stdout is not None
        process.stdout.close()
        if process.poll() is None:
            process.kill()
            self._hung = process
