"""The port :class:`~iriscw.freeze.ports.Artifacts` over tiers of folders, without blocking the event loop.

An artifact may lie in several tiers, and in the repository. What uses it uses the first copy that is as it should be.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread
import attrs

from iriscw.checkpoint.drivers.digests import DigestsStopped, Reading, best_algorithm
from iriscw.checkpoint.drivers.following import Following, following_threads
from iriscw.checkpoint.drivers.loading import REPOSITORY, NoRepository
from iriscw.checkpoint.drivers.store import default_reading
from iriscw.checkpoint.manifest import ARTIFACT_ID, open_manifest
from iriscw.checkpoint.messages import MoveCheckpoint
from iriscw.checkpoint.model import ArtifactCopy, Collected, ListedArtifact, TierUse
from iriscw.checkpoint.ports import Repository, Tier
from iriscw.freeze.messages import FreezeTree, ThawTree
from iriscw.freeze.model import (
    ArtifactInUse,
    ArtifactRefused,
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

_NO_REPOSITORY = "there is no repository here: say where it lies, with --repository or IRISCW_REPOSITORY"


@attrs.define(eq=False)
class Tiers:
    """All tiers of this machine, by name. An artifact lies in the tier that it was reserved in.

    A tier whose folder is not ours any more, or cannot be read, keeps nobody from what lies in another one. What is in
    none of the others may lie there: then its trouble is raised, because it is not known that nothing is there.
    """

    folders: Mapping[str, Tier]
    repository: Repository | None = None
    """What outlives this machine. It is asked only where no tier has a checkpoint."""
    _pinned: dict[str, Tier] = attrs.field(factory=dict, init=False)
    """Which copy of an artifact was pinned last: that one is used."""
    _followed: dict[str, Following] = attrs.field(factory=dict, init=False)
    """What was read of images while they were written, by operation, until they are sealed or discarded."""

    async def promised(self, tier: str = "") -> int | None:
        """See the port."""
        if not tier:
            volatile = [each for each in self.folders.values() if each.volatile]
            return sum([await anyio.to_thread.run_sync(each.promised_bytes) for each in volatile])
        folders = self.tier(tier)
        return await anyio.to_thread.run_sync(folders.promised_bytes) if folders.volatile else None

    async def reserve(self, operation: str, tier: str, size_bytes: int) -> Room:
        """See the port."""
        return await anyio.to_thread.run_sync(self.tier(tier).reserve, operation, size_bytes)

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
        count = ByteCount("sealing", report)
        reading = default_reading(count.add)
        followed = self._followed.pop(operation, None)
        if followed is not None and followed.algorithm == reading.algorithm:
            reading.known = followed.known
        try:
            return await stoppable([reading], lambda: folders.seal(operation, frozen, labels, reading, count.begin))
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
        trouble: ArtifactRefused | None = None
        for folders in await self._copies(artifact):
            try:
                kept = await anyio.to_thread.run_sync(folders.pin, artifact, operation)
            except ArtifactRefused as error:
                trouble = trouble or error
                continue
            except ArtifactUnknown:  # it was moved meanwhile
                continue
            self._pinned[artifact] = folders
            for each in await self._copies(artifact):
                if each is not folders:
                    more = await anyio.to_thread.run_sync(_returned, each, artifact, operation)
                    kept = attrs.evolve(kept, returned=tuple(dict.fromkeys((*kept.returned, *more))))
            return kept
        raise trouble or ArtifactUnknown(f"there is no checkpoint {artifact} here")

    async def came_back(self, artifact: str, tasks: Sequence[TaskIdentity]) -> None:
        """See the port. It is written down beside every copy, so that none of them is thawed a second time."""
        for folders in await self._copies(artifact):
            await anyio.to_thread.run_sync(folders.came_back, artifact, tasks)

    async def verify(self, artifact: str, report: Report) -> None:
        """See the port."""
        await self._verify(artifact, report, but_pages=False)

    async def verify_but_pages(self, artifact: str, report: Report) -> LazyPages:
        """See the port."""
        return await self._verify(artifact, report, but_pages=True)

    async def _verify(self, artifact: str, report: Report, *, but_pages: bool) -> LazyPages:
        return await self._verify_in(await self._holding(artifact), artifact, report, but_pages=but_pages)

    @staticmethod
    async def _verify_in(folders: Tier, artifact: str, report: Report, *, but_pages: bool) -> LazyPages:
        count = ByteCount("verifying", report)
        readings: list[Reading] = []

        def reader(algorithm: str, total: int) -> Reading:
            count.begin(total)
            readings.append(Reading(algorithm, max(1, os.cpu_count() or 1), count.add))
            return readings[-1]

        return await stoppable(readings, lambda: folders.verify(artifact, reader, but_pages=but_pages))

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

    async def check(self, message: FreezeTree | ThawTree | MoveCheckpoint) -> None:
        """Refuse an operation whose tier is a folder that is not ours alone: as yet there is nothing to undo in it.

        Raises:
            UnsafeRequest, OSError: it would write there; or what it reads is in no other tier.
        """
        if not isinstance(message, FreezeTree) and ARTIFACT_ID.fullmatch(message.plan.artifact):
            await self.holding(message.plan.artifact)
        if isinstance(message, MoveCheckpoint) and self.repository_named(message.plan.target) is None:
            await anyio.to_thread.run_sync(self.tier(message.plan.target).check)
        elif isinstance(message, FreezeTree) and message.plan.tier in self.folders:
            await anyio.to_thread.run_sync(self.folders[message.plan.tier].check)

    async def tiers_of(self, message: FreezeTree | ThawTree | MoveCheckpoint) -> list[Tier]:
        """Return the tiers that an operation has to do with.

        Raises:
            UnsafeRequest, OSError: what it reads is in no tier that can be looked at, and one cannot be.
        """
        if isinstance(message, FreezeTree):
            return [self.folders[message.plan.tier]] if message.plan.tier in self.folders else []
        artifact = message.plan.artifact
        found = await self.holding(artifact) if ARTIFACT_ID.fullmatch(artifact) else []
        if isinstance(message, MoveCheckpoint) and message.plan.target in self.folders:
            target = self.folders[message.plan.target]
            return found if target in found else [*found, target]
        return found

    async def asks_repository(self, message: FreezeTree | ThawTree | MoveCheckpoint) -> bool:
        """Say whether an operation reads or writes what is in the repository."""
        if not isinstance(message, MoveCheckpoint) or self.repository is None:
            return False
        plan = message.plan
        there = self.repository_named(plan.target) or self.repository_named(plan.source)
        return there is not None or not await self.holding(plan.artifact)

    async def find(self, artifact: str) -> ListedArtifact | None:
        """Return one artifact as a listing shows it; None if there is none.

        Raises:
            UnsafeRequest, OSError: it is in no tier that can be looked at, and one cannot be.
        """
        for folders in await self._those(lambda each: each.has(artifact)):
            return await anyio.to_thread.run_sync(folders.look_at, artifact)
        if self.repository is not None and ARTIFACT_ID.fullmatch(artifact):
            return await _stored(self.repository, artifact)
        return None

    async def holding(self, artifact: str) -> list[Tier]:
        """Return the tiers that have a copy of an artifact, in their order; none where the repository alone may.

        Raises:
            UnsafeRequest, OSError: it is in no tier that can be looked at, and one cannot be.
        """
        return await self._those(lambda each: each.has(artifact))

    async def listing(self) -> list[ListedArtifact]:
        """Return all artifacts of all tiers: each copy of one, and nothing of the repository."""
        found: list[ListedArtifact] = []
        for folders in self.folders.values():
            found += await anyio.to_thread.run_sync(folders.listing)
        return found

    async def stored(self) -> list[ListedArtifact]:
        """Return what the repository has; nothing where there is none.

        Raises:
            OperationError: it cannot be read: see :class:`~iriscw.checkpoint.ports.Repository`.
        """
        if self.repository is None:
            return []
        name = self.repository.name
        return [
            ListedArtifact(each.artifact, name, each.size_bytes, each.manifest, each.trouble)
            for each in await self.repository.listing()
        ]

    async def roomy(self, size_bytes: int) -> str:
        """Return the first tier that has so much room as of now, or the first of all."""
        for use in [await anyio.to_thread.run_sync(tier_use, folders) for folders in self.folders.values()]:
            if use is not None and size_bytes <= min(
                use.free_bytes, use.budget_bytes - use.artifacts_bytes - use.reserved_bytes
            ):
                return use.tier
        return next(iter(self.folders))

    async def use(self) -> list[TierUse]:
        """Say how full the tiers are that were ever used."""
        there = [folders for folders in self.folders.values() if folders.root.is_dir()]
        return [await anyio.to_thread.run_sync(folders.use) for folders in there]

    async def remove(self, artifact: str, *, here_only: bool = False) -> None:
        """Remove an artifact: every copy of it, that in the repository last; ``here_only``: not that one.

        Raises:
            ArtifactUnknown: there is none.
            ArtifactInUse: a thaw has one, or the freeze that made it has not ended; none was removed.
            OSError: some of it cannot be removed yet.
        """
        found = await self._those(lambda each: each.has(artifact))
        for folders in found[1:]:  # the first one says so itself
            await anyio.to_thread.run_sync(refuse_if_used, folders, artifact)
        for folders in found:
            await anyio.to_thread.run_sync(folders.remove, artifact)
        if self.repository is None or here_only:
            if not found:
                raise ArtifactUnknown(f"there is no checkpoint {artifact} here")
            return
        try:
            await self.repository.remove(artifact)
        except ArtifactUnknown:
            if not found:
                raise

    def tier(self, name: str) -> Tier:
        """Return a tier.

        Raises:
            NoRepository: it is the repository's name, and there is none.
            UnsafeRequest: there is none of this name.
        """
        folders = self.folders.get(name)
        if folders is None and name == REPOSITORY:
            raise NoRepository(_NO_REPOSITORY)
        if folders is None:
            raise UnsafeRequest(f"there is no tier {name!r}: there are {', '.join(self.folders)}")
        return folders

    async def verify_copies(self, artifact: str, report: Report) -> list[ArtifactCopy]:
        """Read every byte of every copy, and return the copies, each with its trouble if it is not whole.

        Raises:
            ArtifactUnknown: there is none.
            OperationError, OSError: one cannot be read: it may be whole.
        """
        found: list[ArtifactCopy] = []
        for folders in await self.holding(artifact):
            size = 0

            async def read(folders: Tier = folders) -> None:
                nonlocal size
                size = (await anyio.to_thread.run_sync(folders.manifest, artifact)).sealed.size_bytes
                await self._verify_in(folders, artifact, report, but_pages=False)

            trouble = await _trouble(read)  # before the size is looked at, which it finds out
            found.append(ArtifactCopy(folders.name, size, trouble))
        if self.repository is not None and ARTIFACT_ID.fullmatch(artifact):
            stored = await _stored(self.repository, artifact)
            if stored is not None:
                trouble = await _trouble(partial(self.repository.verify, artifact, report))
                found.append(ArtifactCopy(self.repository.name, stored.size_bytes, trouble or stored.trouble))
        if not found:
            raise ArtifactUnknown(f"there is no checkpoint {artifact} here")
        return found

    async def collect(self, grace_s: float) -> Collected:
        """Free what no checkpoint in the repository refers to: see :meth:`Repository.collect`.

        Raises:
            NoRepository: there is none.
        """
        if self.repository is None:
            raise NoRepository(_NO_REPOSITORY)
        return await self.repository.collect(grace_s=grace_s)

    async def aclose(self) -> None:
        """Give back what the repository holds open."""
        if self.repository is not None:
            await self.repository.aclose()

    def repository_named(self, name: str) -> Repository | None:
        """Return the repository, if this is its name."""
        return self.repository if self.repository is not None and self.repository.name == name else None

    async def _holding(self, artifact: str) -> Tier:
        found = await self._copies(artifact)
        return self._pinned[artifact] if self._pinned.get(artifact) in found else found[0]

    async def _copies(self, artifact: str) -> list[Tier]:
        found = await self._those(lambda each: each.has(artifact))
        if not found:
            raise ArtifactUnknown(f"there is no checkpoint {artifact} here")
        return found

    async def _writing(self, operation: str) -> Tier:
        for folders in await self._those(lambda each: each.has_room(operation) or each.has(operation)):
            return folders
        raise ArtifactUnknown(f"operation {operation} has no room in any tier")

    async def _those(self, hold: Callable[[Tier], bool]) -> list[Tier]:
        return await anyio.to_thread.run_sync(_those, tuple(self.folders.values()), hold)


async def _stored(repository: Repository, artifact: str) -> ListedArtifact | None:
    """Return what a repository has of an artifact; None if it has nothing."""
    try:
        manifest = open_manifest(await repository.manifest(artifact), artifact)
    except ArtifactUnknown:
        return None
    except ArtifactRefused as error:
        return ListedArtifact(artifact, repository.name, 0, trouble=str(error))
    return ListedArtifact(artifact, repository.name, manifest.sealed.size_bytes, manifest)


async def _trouble(read: Callable[[], Awaitable[object]]) -> str:
    """Return why a copy is not whole; empty if it is."""
    try:
        await read()
    except ArtifactRefused as error:
        return str(error)
    return ""


def tier_use(folders: Tier) -> TierUse | None:
    """Say how full a tier is; None where nobody can tell."""
    try:
        return folders.use()
    except (UnsafeRequest, OSError) as error:
        log.info("tier %s is passed over: %s", folders.name, error)
        return None


def refuse_if_used(folders: Tier, artifact: str, operation: str = "") -> None:
    """Refuse an artifact that another operation uses.

    Raises:
        ArtifactInUse: one does.
    """
    found = folders.look_at(artifact)
    users = [each for each in found.pinned_by if each != operation] if found is not None else []
    if users:
        raise ArtifactInUse(
            f"artifact {artifact} is used by operation {users[0]} in {folders.name}; if nothing is left of that "
            f"anywhere, `iriscw checkpoints --release {artifact}` lets it go"
        )


def _returned(folders: Tier, artifact: str, operation: str) -> tuple[TaskIdentity, ...]:
    """Return who came back from a copy that is not used; nobody where it cannot be."""
    try:
        returned = folders.pin(artifact, operation).returned
    except (ArtifactUnknown, ArtifactRefused):
        return ()
    finally:
        folders.unpin(artifact, operation)
    return returned


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
class ByteCount:
    """Adds up what threads have read or copied."""

    phase: str
    report: Report
    total: int = 0
    done: int = 0
    lock: threading.Lock = attrs.field(factory=threading.Lock)

    def begin(self, total: int) -> None:
        """Take note of how much there will be."""
        self.total = total

    def add(self, count: int) -> None:
        """Take note of some more."""
        with self.lock:
            self.done += count
            self.report(Progress(self.phase, self.done, self.total))


class Stops(Protocol):
    """What stops when it is told to."""

    stop: threading.Event


async def stoppable(readings: Sequence[Stops], work: Callable[[], T]) -> T:
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
