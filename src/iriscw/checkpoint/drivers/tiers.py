"""The port :class:`~iriscw.freeze.ports.Artifacts` over tiers of folders, without blocking the event loop."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread
import attrs

from iriscw.checkpoint.drivers.digests import DigestsStopped, Reading, best_algorithm
from iriscw.checkpoint.drivers.following import Following, following_threads
from iriscw.checkpoint.drivers.store import default_reading
from iriscw.checkpoint.manifest import ARTIFACT_ID
from iriscw.checkpoint.model import ListedArtifact, TierUse
from iriscw.checkpoint.ports import Tier
from iriscw.freeze.messages import FreezeTree, ThawTree
from iriscw.freeze.model import (
    ArtifactUnknown,
    FrozenTree,
    Kept,
    LazyPages,
    Progress,
    Room,
    Sealed,
    TaskIdentity,
    UnsafeRequest,
)
from iriscw.freeze.ports import Report

log = logging.getLogger(__name__)

T = TypeVar("T")


@attrs.define(eq=False)
class Tiers:
    """All tiers of this machine, by name. An artifact lies in the tier that it was reserved in.

    A tier whose folder is not ours any more, or cannot be read, keeps nobody from what lies in another one. What is in
    none of the others may lie there: then its trouble is raised, because it is not known that nothing is there.
    """

    folders: Mapping[str, Tier]
    _followed: dict[str, Following] = attrs.field(factory=dict, init=False)
    """What was read of images while they were written, by operation, until they are sealed or discarded."""

    async def promised(self, tier: str = "") -> int | None:
        """See the port."""
        if not tier:
            volatile = [each for each in self.folders.values() if each.volatile]
            return sum([await anyio.to_thread.run_sync(each.promised_bytes) for each in volatile])
        folders = self._tier(tier)
        return await anyio.to_thread.run_sync(folders.promised_bytes) if folders.volatile else None

    async def reserve(self, operation: str, tier: str, size_bytes: int) -> Room:
        """See the port."""
        return await anyio.to_thread.run_sync(self._tier(tier).reserve, operation, size_bytes)

    @contextlib.contextmanager
    def following(self, operation: str, images: str) -> Iterator[None]:
        """See the port."""
        followed = None
        try:
            followed = self._followed[operation] = Following(Path(images), best_algorithm(), following_threads())
        except RuntimeError as error:  # there is no room for one more thread
            log.info("images of %s are not read while they are written: %s", operation, error)
        try:
            yield
        except BaseException:
            if followed is not None:
                followed.stop()
            raise
        if followed is not None:
            followed.written()

    async def seal(
        self, operation: str, frozen: FrozenTree, labels: tuple[tuple[str, str], ...], report: Report
    ) -> Sealed:
        """See the port."""
        folders = await self._writing(operation)
        count = _Count("sealing", report)
        reading = default_reading(count.add)
        followed = self._followed.pop(operation, None)
        if followed is not None and followed.algorithm == reading.algorithm:
            reading.known = followed.known
        try:
            return await _stoppable([reading], lambda: folders.seal(operation, frozen, labels, reading, count.begin))
        finally:
            if followed is not None:
                followed.stop()

    async def publish(self, operation: str) -> None:
        """See the port."""
        folders = await self._writing(operation)
        await anyio.to_thread.run_sync(folders.publish, operation)

    async def discard(self, operation: str) -> None:
        """See the port."""
        if (followed := self._followed.pop(operation, None)) is not None:
            followed.stop()
        for folders in await self._those(lambda each: each.has_of(operation)):
            await anyio.to_thread.run_sync(folders.discard, operation)

    async def pin(self, artifact: str, operation: str) -> Kept:
        """See the port."""
        folders = await self._holding(artifact)
        return await anyio.to_thread.run_sync(folders.pin, artifact, operation)

    async def came_back(self, artifact: str, tasks: Sequence[TaskIdentity]) -> None:
        """See the port."""
        folders = await self._holding(artifact)
        await anyio.to_thread.run_sync(folders.came_back, artifact, tasks)

    async def verify(self, artifact: str, report: Report) -> None:
        """See the port."""
        await self._verify(artifact, report, but_pages=False)

    async def verify_but_pages(self, artifact: str, report: Report) -> LazyPages:
        """See the port."""
        return await self._verify(artifact, report, but_pages=True)

    async def _verify(self, artifact: str, report: Report, *, but_pages: bool) -> LazyPages:
        folders = await self._holding(artifact)
        count = _Count("verifying", report)
        readings: list[Reading] = []

        def reader(algorithm: str, total: int) -> Reading:
            count.begin(total)
            readings.append(Reading(algorithm, max(1, os.cpu_count() or 1), count.add))
            return readings[-1]

        return await _stoppable(readings, lambda: folders.verify(artifact, reader, but_pages=but_pages))

    async def unpin(self, artifact: str, operation: str) -> bool:
        """See the port."""
        if not ARTIFACT_ID.fullmatch(artifact):  # there is none of that name, and nobody has it
            return False
        there = False
        for folders in await self._those(lambda each: each.has_pin(artifact, operation) or each.has(artifact)):
            there = there or await anyio.to_thread.run_sync(folders.has, artifact)  # as long as nobody may remove it
            await anyio.to_thread.run_sync(folders.unpin, artifact, operation)
        return there

    # Beside the port

    async def check(self, message: FreezeTree | ThawTree) -> None:
        """Refuse an operation whose tier is a folder that is not ours alone: as yet there is nothing to undo in it.

        Raises:
            UnsafeRequest, OSError: a freeze would write there; or what is to be thawed is in no other tier.
        """
        if isinstance(message, ThawTree):
            artifact = message.plan.artifact
            if ARTIFACT_ID.fullmatch(artifact):
                await self._those(lambda each: each.has(artifact))
        elif message.plan.tier in self.folders:
            await anyio.to_thread.run_sync(self.folders[message.plan.tier].check)

    async def tier_of(self, message: FreezeTree | ThawTree) -> Tier | None:
        """Return the tier that an operation has to do with; None if there is none.

        Raises:
            UnsafeRequest, OSError: what is to be thawed is in no tier that can be looked at, and one cannot be.
        """
        if isinstance(message, FreezeTree):
            return self.folders.get(message.plan.tier)
        artifact = message.plan.artifact
        if ARTIFACT_ID.fullmatch(artifact):
            for folders in await self._those(lambda each: each.has(artifact)):
                return folders
        return None

    async def find(self, artifact: str) -> ListedArtifact | None:
        """Return one artifact as a listing shows it; None if there is none.

        Raises:
            UnsafeRequest, OSError: it is in no tier that can be looked at, and one cannot be.
        """
        for folders in await self._those(lambda each: each.has(artifact)):
            return await anyio.to_thread.run_sync(folders.look_at, artifact)
        return None

    async def listing(self) -> list[ListedArtifact]:
        """Return all artifacts of all tiers."""
        found: list[ListedArtifact] = []
        for folders in self.folders.values():
            found += await anyio.to_thread.run_sync(folders.listing)
        return found

    async def use(self) -> list[TierUse]:
        """Say how full the tiers are that were ever used."""
        there = [folders for folders in self.folders.values() if folders.root.is_dir()]
        return [await anyio.to_thread.run_sync(folders.use) for folders in there]

    async def remove(self, artifact: str) -> None:
        """Remove an artifact.

        Raises:
            ArtifactUnknown: there is none.
            ArtifactInUse: a thaw has it, or the freeze that made it has not ended.
            OSError: some of it cannot be removed yet.
        """
        folders = await self._holding(artifact)
        await anyio.to_thread.run_sync(folders.remove, artifact)

    def _tier(self, name: str) -> Tier:
        folders = self.folders.get(name)
        if folders is None:
            raise UnsafeRequest(f"there is no tier {name!r}: there are {', '.join(self.folders)}")
        return folders

    async def _holding(self, artifact: str) -> Tier:
        for folders in await self._those(lambda each: each.has(artifact)):
            return folders
        raise ArtifactUnknown(f"there is no checkpoint {artifact} here")

    async def _writing(self, operation: str) -> Tier:
        for folders in await self._those(lambda each: each.has_room(operation) or each.has(operation)):
            return folders
        raise ArtifactUnknown(f"operation {operation} has no room in any tier")

    async def _those(self, hold: Callable[[Tier], bool]) -> list[Tier]:
        return await anyio.to_thread.run_sync(_those, tuple(self.folders.values()), hold)


def _those(tiers: Sequence[Tier], hold: Callable[[Tier], bool]) -> list[Tier]:
    """Return the tiers that hold something.

    Raises:
        UnsafeRequest, OSError: none does of those that can be looked at, and this one cannot be.
    """
    found, trouble = list[Tier](), None
    for folders in tiers:
        try:
            if hold(folders):
                found.append(folders)
        except (UnsafeRequest, OSError) as error:
            trouble = trouble or error
    if not found and trouble is not None:
        raise trouble
    return found


@attrs.define(eq=False)
class _Count:
    """Adds up what threads have read."""

    phase: str
    report: Report
    total: int = 0
    done: int = 0
    lock: threading.Lock = attrs.field(factory=threading.Lock)

    def begin(self, total: int) -> None:
        self.total = total

    def add(self, count: int) -> None:
        with self.lock:
            self.done += count
            self.report(Progress(self.phase, self.done, self.total))


async def _stoppable(readings: list[Reading], work: Callable[[], T]) -> T:
    """Do it in a thread; when it is cancelled, have it stop and wait until it has."""
    over = False
    done: list[T] = []
    failure: Exception | None = None

    async def stop() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            for reading in readings if not over else ():
                reading.stop.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stop)
        try:
            done.append(await anyio.to_thread.run_sync(work))
        except Exception as error:  # noqa: BLE001 - raised below: a task group would wrap it
            failure = error
        over = True
        tasks.cancel_scope.cancel()
    if isinstance(failure, DigestsStopped):
        await anyio.lowlevel.checkpoint()  # the cancellation that stopped it goes on
    if failure is not None:
        raise failure
    return done[0]
