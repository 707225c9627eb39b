"""A tree whose images are complete, held by a CRIU that waits for an answer to its ``post-dump`` notification."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import anyio

from iriscw.freeze.criu_rpc import read_dump_statistics
from iriscw.freeze.drivers.criu.network import unlock_network
from iriscw.freeze.drivers.criu.swrk import Swrk
from iriscw.freeze.drivers.identities import Watched, lives
from iriscw.freeze.drivers.processes.driver import lives_on
from iriscw.freeze.drivers.processes.reading import read_text
from iriscw.freeze.model import DumpReport, TaskIdentity, TreeLeft
from iriscw.freeze.proc_text import parse_status
from iriscw.processes.identity import ProcessGone, read_stat

FIRST_LOOK_S: Final = 0.0002
LOOK_S: Final = 0.005
"""Between two looks at whether a task is traced still, or stopped: the kernel has no event for that. Mostly it is a
matter of microseconds, so it begins with the first, and each is twice as long as the one before."""

GRACE_NS: Final = 5_000_000_000
"""For a CRIU that was answered, to end; it takes milliseconds."""


async def untraced(tasks: Sequence[TaskIdentity], within_ns: int) -> tuple[TaskIdentity, ...]:
    """Wait until nobody traces these processes; give those that are traced after this time."""
    return await _still(is_traced, tasks, within_ns)


async def stopped(tasks: Sequence[TaskIdentity], within_ns: int) -> tuple[TaskIdentity, ...]:
    """Wait until these processes are stopped: CRIU sends the signal, and they have to run to take it.

    Returns:
        Those that are not stopped after this time. What has ended is none of them.
    """
    return await _still(lambda task: not is_stopped(task), tasks, within_ns)


async def _still(
    holds: Callable[[TaskIdentity], bool], tasks: Sequence[TaskIdentity], within_ns: int
) -> tuple[TaskIdentity, ...]:
    """Wait until this holds for none of these processes; give those for which it does after this time."""
    left, pause_s = tuple(tasks), FIRST_LOOK_S
    with anyio.move_on_after(within_ns / 1e9):
        while left := tuple(task for task in left if holds(task)):
            await anyio.sleep(pause_s)
            pause_s = min(2 * pause_s, LOOK_S)
    return left


def is_stopped(task: TaskIdentity) -> bool:
    """Whether this very process is stopped, or has ended."""
    try:
        return read_stat(task.pid).state == "T" or not lives(task)
    except ProcessGone:
        return True


def is_traced(task: TaskIdentity) -> bool:
    """Whether somebody traces this very process."""
    try:
        return bool(parse_status(read_text(task.pid, "status")).traced_by) and lives(task)
    except (FileNotFoundError, ProcessLookupError):
        return False


class CriuHeldTree:
    """The tree, as the port ``iriscw.freeze.ports.HeldTree`` has it.

    Theory of operation. HELD -(resume: answer no)-> RUNNING, HELD -(end: answer yes)-> ENDED. The first of the two
    decides, and the second call of the same does nothing. A CRIU that ended by itself while the tree was held, because
    somebody killed it, has let the tree go: then :meth:`end` does not kill what has run on since. It may be killed just
    before it hears the answer, too: when it has ended, and the first task was not killed, it did not.
    """

    def __init__(self, run: Swrk, tasks: Sequence[TaskIdentity], report: DumpReport, *, silenced: bool = False) -> None:
        self._run = run
        self._watched = Watched(tasks)
        self._tasks = tuple(tasks)
        self._report = report
        self._silenced = silenced
        self._decided = ""
        self._over = False

    @property
    def tasks(self) -> tuple[TaskIdentity, ...]:
        """Return those that are held, the root first."""
        return self._tasks

    @property
    def report(self) -> DumpReport:
        """What CRIU said of the dump: its statistics when the tree has ended, until then what its images say."""
        return self._report

    async def resume(self, within_ns: int) -> None:
        """Let the tree run on (see the port)."""
        if self._decided == "end":
            raise TreeLeft("the tree was ended; nothing of it can run on")
        if not self._decided:
            self._decided = "resume"
            self._run.reply(success=False)
        await self._finish(within_ns)
        if left := await untraced(self._tasks, within_ns):
            raise TreeLeft(f"processes do not run again, they are traced still: {_named(left)}")
        if self._silenced:
            await unlock_network(self._run.work, self._tasks[0])
        self._watched.close()

    async def end(self, within_ns: int) -> None:
        """Kill the tree (see the port)."""
        if self._decided == "resume":
            raise TreeLeft(f"the tree was let run on: {_named(self._tasks)}")
        if not self._decided:
            if await self._run.ended(0):
                raise self._let_go()
            self._decided = "end"
            self._run.reply(success=True)
        deadline = anyio.current_time() + within_ns / 1e9
        if await self._run.ended(within_ns) and lives_on(self._tasks[0]):
            raise self._let_go()
        left = await self._watched.all_ended(max(0, round((deadline - anyio.current_time()) * 1e9)))
        await self._finish(GRACE_NS)
        if left:
            raise TreeLeft(f"processes do not end: {_named(left)}")
        if statistics := self._run.statistics("stats-dump"):
            self._report = read_dump_statistics(statistics)
        self._watched.close()

    def _let_go(self) -> TreeLeft:
        self._decided = "resume"
        return TreeLeft(f"CRIU was ended by somebody, and let the tree run on: {_named(self._tasks)}")

    async def _finish(self, within_ns: int) -> None:
        if not self._over:
            self._over = await self._run.close(min(within_ns, GRACE_NS))


def _named(tasks: Sequence[TaskIdentity]) -> str:
    return ", ".join(str(task.pid) for task in tasks)
