"""A container whose images are complete, held by a CRIU that waits for an answer to its ``post-dump`` notification."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio

from iriscw.freeze.criu_rpc import POST_DUMP, NotUnderstood
from iriscw.freeze.drivers.criu.held import untraced
from iriscw.freeze.drivers.identities import Watched
from iriscw.freeze.drivers.processes.driver import lives_on
from iriscw.freeze.drivers.runtime.door import CriuCall, CriuDoor
from iriscw.freeze.drivers.runtime.runc import Runtime
from iriscw.freeze.model import CriuFailed, DumpReport, TaskIdentity, TreeLeft

log = logging.getLogger(__name__)

GRACE_NS: Final = 20_000_000_000
"""For CRIU and the runtime to come to their end: the runtime removes control groups, which may be busy for seconds."""


class HeldContainer:
    """The container, as the port ``iriscw.freeze.ports.HeldTree`` has it.

    Theory of operation: as :class:`~iriscw.freeze.drivers.criu.held.CriuHeldTree`, with the runtime between. To end it,
    the notification is passed on to the runtime, CRIU kills the tree, and the runtime forgets the container as after
    any checkpoint. To let it run, CRIU hears no, and the runtime that the checkpoint failed: it forgets nothing. A CRIU
    that was killed before it heard has let the container go, which then is never ended.

    Args:
        notification: CRIU's own message, which the runtime gets if the tree ends.
        awaken: lets the container's control group run, if CRIU was killed and left it frozen.
    """

    def __init__(
        self,
        call: CriuCall,
        runtime: Runtime,
        door: CriuDoor,
        notification: bytes,
        tasks: Sequence[TaskIdentity],
        report: DumpReport,
        awaken: Callable[[], Awaitable[None]],
    ) -> None:
        self._call = call
        self._runtime = runtime
        self._door = door
        self._notification = notification
        self._tasks = tuple(tasks)
        self._watched = Watched(tasks)
        self._report = report
        self._awaken = awaken
        self._decided = ""
        self._over = False

    @property
    def report(self) -> DumpReport:
        """What is known of the dump by its images."""
        return self._report

    async def resume(self, within_ns: int) -> None:
        """Let the container run on (see the port)."""
        if self._decided == "end":
            raise TreeLeft("the container was ended; nothing of it can run on")
        if not self._decided:
            self._decided = "resume"
            self._call.reply(success=False)
        await self._finish(within_ns)
        if left := await untraced(self._tasks, within_ns):
            raise TreeLeft(f"processes do not run again, they are traced still: {_named(left)}")
        try:
            await self._awaken()
        except CriuFailed as error:
            raise TreeLeft(f"the container does not run again: {error}") from error
        self._watched.close()

    async def end(self, within_ns: int) -> None:
        """Kill the container (see the port)."""
        if self._decided == "resume":
            raise TreeLeft(f"the container was let run on: {_named(self._tasks)}")
        if not self._decided:
            if await self._call.ended(0):
                raise self._let_go()
            self._decided = "end"
            with anyio.move_on_after(GRACE_NS / 1e9) as scope:
                told = await self._tell_runtime()
            if scope.cancelled_caught or not told:  # a runtime that is gone or hangs changes nothing of what is decided
                log.warning("the container's runtime did not hear that its checkpoint is complete")
                self._call.reply(success=True)
        deadline = anyio.current_time() + within_ns / 1e9
        if await self._call.ended(within_ns) and lives_on(self._tasks[0]):
            raise self._let_go()
        left = await self._watched.all_ended(max(0, round((deadline - anyio.current_time()) * 1e9)))
        await self._finish(within_ns)
        if left:
            raise TreeLeft(f"processes do not end: {_named(left)}")
        self._watched.close()

    def _let_go(self) -> TreeLeft:
        self._decided = "resume"
        return TreeLeft(f"CRIU was ended by somebody, and let the container run on: {_named(self._tasks)}")

    async def _tell_runtime(self) -> bool:
        self._call.tell(self._notification)
        said = await self._call.request()
        if said:
            self._call.ask(said)
        return bool(said)

    async def _finish(self, within_ns: int) -> None:
        """Pass on how CRIU ended, and see both of them end; once."""
        if self._over:
            return
        within_ns = min(within_ns, GRACE_NS)
        try:
            with anyio.move_on_after(within_ns / 1e9):
                answer, data = await self._call.until(POST_DUMP)
                if answer is not None:
                    self._call.tell(data)
                    await self._call.ended(within_ns)
                    await self._runtime.ended(within_ns)
        except (NotUnderstood, OSError) as error:
            log.warning("the end of a container's checkpoint was not understood: %s", error)
        self._over = await self._call.close(within_ns)
        await self._runtime.close(within_ns)
        try:
            self._door.close()
        except OSError as error:  # the next life removes it
            log.warning("%s cannot be removed: %s", self._door.folder, error)


def _named(tasks: Sequence[TaskIdentity]) -> str:
    return ", ".join(str(task.pid) for task in tasks)
