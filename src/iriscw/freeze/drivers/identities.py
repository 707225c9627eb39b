"""From the port's names of processes to those of :mod:`iriscw.processes.identity`, and pidfds that mean them."""

from __future__ import annotations

import os
from collections.abc import Iterable

import anyio

from iriscw.freeze.model import TargetGone, TaskIdentity
from iriscw.processes.identity import ProcessGone, ProcessIdentity, identify, is_alive, open_pidfd


def to_process(task: TaskIdentity) -> ProcessIdentity:
    """Return the same identity as ``iriscw.processes`` names it."""
    return ProcessIdentity(task.pid, task.start_ticks, task.boot_id)


def to_task(process: ProcessIdentity) -> TaskIdentity:
    """Return the same identity as the ports of freezing name it."""
    return TaskIdentity(process.pid, process.start_ticks, process.boot_id)


def identify_task(pid: int) -> TaskIdentity:
    """Say who has this number now.

    Raises:
        TargetGone: nobody, or a zombie.
    """
    try:
        return to_task(identify(pid))
    except ProcessGone as error:
        raise TargetGone(str(error)) from error


def open_task(task: TaskIdentity) -> int:
    """Open a pidfd that is certain to mean this process.

    Raises:
        TargetGone: it has ended, or its number means another one now.
    """
    try:
        return open_pidfd(to_process(task))
    except ProcessGone as error:
        raise TargetGone(str(error)) from error


def lives(task: TaskIdentity) -> bool:
    """Whether this very process still runs. A zombie does not."""
    return is_alive(to_process(task))


class Watched:
    """Pidfds of processes, for waiting until all of them have ended. What had ended before is left out."""

    def __init__(self, tasks: Iterable[TaskIdentity]) -> None:
        self._open: dict[TaskIdentity, int] = {}  # closed at the latest when nobody has them any more
        try:
            for task in tasks:
                try:
                    self._open[task] = open_task(task)
                except TargetGone:
                    continue
        except BaseException:
            self.close()
            raise

    @property
    def descriptors(self) -> tuple[tuple[TaskIdentity, int], ...]:
        """Return each process with its pidfd, in the order given."""
        return tuple(self._open.items())

    async def all_ended(self, within_ns: int) -> tuple[TaskIdentity, ...]:
        """Wait until all have ended; give those that have not within this time."""
        with anyio.move_on_after(within_ns / 1e9):
            for descriptor in self._open.values():
                await anyio.wait_readable(descriptor)
        return tuple(task for task in self._open if lives(task))

    def close(self) -> None:
        """Close the pidfds. May be repeated."""
        while self._open:
            os.close(self._open.popitem()[1])

    def __del__(self) -> None:
        self.close()
