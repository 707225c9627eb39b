"""Folders of attempts behind the port ``iriscw.freeze.ports.AttemptFolders``: in threads, and given up when asked."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

from iriscw.freeze.drivers.folder import placing
from iriscw.freeze.drivers.folder.packing import PackStopped, measure, pack
from iriscw.freeze.drivers.folder.unpacking import UnpackStopped
from iriscw.freeze.model import Outcome, Progress
from iriscw.freeze.ports import Report
from iriscw.freeze.traits import CarriedFolder, FolderSight

GRANT_LOOK_S: Final = 0.005
"""Between two looks for a grant: the folder may be a mount of another machine's, which tells of no changes."""

T = TypeVar("T")


class DiskFolders:
    """Folders of attempts on the disks of this machine."""

    async def measure(self, folder: str, checkpoint: str) -> CarriedFolder:
        """Say how much a folder is (see the port)."""
        return await _stoppable(partial(measure, folder, checkpoint))

    async def pack(
        self, carried: CarriedFolder, images: str, most_bytes: int, report: Report, *, runs_on: bool = False
    ) -> CarriedFolder:
        """Write it into a file among the images (see the port)."""

        def told(done_bytes: int) -> None:
            report(Progress("pack", done_bytes, carried.size_bytes))

        return await _stoppable(lambda stop: pack(carried, Path(images), most_bytes, stop, told, runs_on=runs_on))

    async def look(self, carried: CarriedFolder) -> FolderSight:
        """Look at its place (see the port)."""
        return await anyio.to_thread.run_sync(placing.look, carried)

    async def place(self, carried: CarriedFolder, images: str, operation: str) -> None:
        """Put it in its place (see the port)."""
        await _stoppable(partial(placing.place, carried, Path(images), operation))

    async def granted(self, folder: str, within_ns: int) -> None:
        """Wait for a grant in a folder that has just come (see the port)."""
        with anyio.move_on_after(within_ns / 1e9):
            while not await anyio.to_thread.run_sync(placing.is_granted, Path(folder)):  # noqa: ASYNC110 - no event
                await anyio.sleep(GRANT_LOOK_S)

    async def leave(self, carried: CarriedFolder, operation: str, outcome: Outcome) -> None:
        """Decide what stays in its place (see the port)."""
        await anyio.to_thread.run_sync(placing.leave, carried, operation, outcome)


async def _stoppable(work: Callable[[threading.Event], T]) -> T:
    """Do it in a thread; when it is cancelled, have it stop and wait until it has."""
    stop = threading.Event()
    done: list[T] = []
    failure: Exception | None = None

    async def give_up() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            stop.set()  # also when it is over: then nobody looks

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(give_up)
        try:
            done.append(await anyio.to_thread.run_sync(work, stop))
        except Exception as error:  # noqa: BLE001 - raised below: a task group would wrap it
            failure = error
        tasks.cancel_scope.cancel()
    if isinstance(failure, PackStopped | UnpackStopped):
        await anyio.lowlevel.checkpoint()  # the cancellation that stopped it goes on
    if failure is not None:
        raise failure
    return done[0]
