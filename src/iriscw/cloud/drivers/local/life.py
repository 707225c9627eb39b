"""What the tasks that lead pods are made of: what they share, how they wait for the disk, how they judge an
end.

A step on the disk is done in a thread and to its end, because memory must follow it. Calls from outside are
refused when the disk does not take a step; the platform's own tasks insist, so a full disk delays the
platform and does not end it.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
import anyio.to_thread
import attrs

from iriscw.cloud.model import PodPhase, Unavailable
from iriscw.processes.ends import ProcessEnd
from iriscw.processes.supervised import Supervised
from iriscw.processes.sweep import SweepFailed

_A = TypeVar("_A")

RETRY_S = 1.0
"""How long the platform waits before it repeats what a disk or a process that does not die refused."""


@attrs.define(eq=False)
class PodLife:
    """What a pod's task shares with those who change the pod."""

    woken: anyio.Event = attrs.field(factory=anyio.Event)
    """The pod got a node, or is to be deleted."""
    deleted: anyio.Event = attrs.field(factory=anyio.Event)
    over: anyio.Event = attrs.field(factory=anyio.Event)
    running: Supervised | None = None
    loss: str = ""
    """Why the platform itself ended the pod, if it did."""


async def on_disk(function: Callable[[_A], None], argument: _A) -> None:
    """Do one thing on the disk, in a thread and to its end: memory must follow it.

    Raises:
        Unavailable: the disk did not take it.
    """
    try:
        with anyio.CancelScope(shield=True):  # bounded: one record, or one pod's files
            await anyio.to_thread.run_sync(function, argument)
    except OSError as error:
        raise Unavailable(f"the local platform's disk: {error}") from error


async def insist(step: Callable[[], Awaitable[None]]) -> None:
    """Repeat a step until the disk takes it: a full disk delays the platform, and does not end it."""
    while True:
        try:
            return await step()
        except Unavailable:
            await anyio.sleep(RETRY_S)


async def stop_pod(running: Supervised, grace_s: float) -> None:
    """Stop a pod's processes; whoever waits for their end deals with those that do not die, or whose end cannot be
    read.
    """
    with contextlib.suppress(SweepFailed, OSError):
        await running.stop(grace_s)


def judge(ending: ProcessEnd, loss: str) -> tuple[PodPhase, str]:
    if loss:
        return PodPhase.FAILED, loss
    if ending.code == 0:
        return PodPhase.SUCCEEDED, "Completed"
    if ending.code is not None:
        return PodPhase.FAILED, f"Error: exit code {ending.code}"
    if ending.out_of_memory:
        return PodPhase.FAILED, "OOMKilled"
    if ending.signal is not None:
        perhaps = ", perhaps for memory" if ending.perhaps_out_of_memory else ""
        return PodPhase.FAILED, f"Error: killed by {signal.Signals(ending.signal).name}{perhaps}"
    return PodPhase.FAILED, "Error: ended unobserved"
