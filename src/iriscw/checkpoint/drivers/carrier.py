"""The effects of a move, carried out over tiers and a repository, without blocking the event loop."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import anyio.to_thread
import attrs

from iriscw._errors import IriscwError
from iriscw.checkpoint.drivers.copying import Copying
from iriscw.checkpoint.drivers.digests import Reading
from iriscw.checkpoint.drivers.images import room_of
from iriscw.checkpoint.drivers.loading import ARCHIVE
from iriscw.checkpoint.drivers.tiers import ByteCount, Tiers, refuse_if_used, stoppable
from iriscw.checkpoint.effects import CopyOver, DropSource, OpenSource, PublishCopy, SourceOpened, UndoCopy
from iriscw.checkpoint.manifest import open_manifest
from iriscw.checkpoint.model import CopyLost
from iriscw.checkpoint.ports import Repository, Tier
from iriscw.freeze.model import (
    ArtifactInUse,
    ArtifactRefused,
    ArtifactUnknown,
    TaskIdentity,
)
from iriscw.freeze.ports import Report
from iriscw.processes.identity import ProcessIdentity, is_alive

SPARE_BYTES = 64 << 10
"""Room beside the files and the manifest of an artifact, for what is written down about it."""


@attrs.define(eq=False)
class Carrier:
    """What carries out one move."""

    tiers: Tiers
    report: Report

    def effects(self) -> dict[type, Callable[..., Awaitable[object]]]:
        """Return the function for each effect."""
        return {
            OpenSource: self.open,
            CopyOver: self.copy,
            PublishCopy: self.publish,
            DropSource: self.drop,
            UndoCopy: self.undo,
        }

    # Looking

    async def open(self, effect: OpenSource) -> SourceOpened:
        """Find a checkpoint: first in the tiers, and in the repository only if none of them has it.

        Raises:
            UnsafeRequest: there is no such tier.
            ArtifactUnknown: there is no such checkpoint.
            ArtifactInUse: an operation uses it.
            ArtifactRefused: no copy of it can be used.
        """
        artifact = effect.artifact
        target = None if self.tiers.repository_named(effect.target) else self.tiers.tier(effect.target)
        holding = await self.tiers.holding(artifact)
        for tier in holding:
            await anyio.to_thread.run_sync(refuse_if_used, tier, artifact, effect.operation)
        wanted = [tier for tier in holding if effect.source in ("", tier.name)]
        others = [tier for tier in wanted if tier is not target]
        if wanted:
            return await self._pinned(others or wanted, effect, there=target in holding)
        repository = self.tiers.repository
        if repository is None or effect.source:
            raise ArtifactUnknown(f"there is no checkpoint {artifact} in a tier of this machine")
        manifest = open_manifest(await repository.manifest(artifact), artifact)
        if target is None:  # it is where it is to go
            return SourceOpened("", manifest.sealed.size_bytes, manifest.sealed.digest, there=True)
        return SourceOpened(repository.name, manifest.sealed.size_bytes, manifest.sealed.digest)

    @staticmethod
    async def _pinned(sources: Sequence[Tier], effect: OpenSource, *, there: bool) -> SourceOpened:
        """Pin the first copy that can be used."""
        trouble: Exception | None = None
        for tier in sources:
            try:
                kept = await anyio.to_thread.run_sync(tier.pin, effect.artifact, effect.operation)
            except ArtifactRefused as error:
                trouble = trouble or error
                await anyio.to_thread.run_sync(tier.unpin, effect.artifact, effect.operation)
            else:
                source = "" if tier.name == effect.target else tier.name
                return SourceOpened(source, kept.sealed.size_bytes, kept.sealed.digest, there)
        assert trouble is not None
        raise trouble

    # Copying

    async def copy(self, effect: CopyOver) -> None:
        """Have the target hold a whole copy that was compared.

        Raises:
            NoRoom, StoreFull: the target has no room.
            ArtifactUnknown: it is not where it was, or the target is none.
            ArtifactRefused: it is not what its manifest says, or what the repository has stored is not.
        """
        if (repository := self.tiers.repository_named(effect.target)) is not None:
            source = self.tiers.tier(effect.source)
            text = await anyio.to_thread.run_sync(source.text, effect.artifact)
            await repository.store(effect.artifact, source.images(effect.artifact), text, self.report)
            if not effect.keep:  # chunks that it shares may have been damaged since others stored them
                await repository.verify(effect.artifact, self.report)
        elif (repository := self.tiers.repository_named(effect.source)) is not None:
            await self._fetch(repository, self.tiers.tier(effect.target), effect)
        else:
            await self._copy(self.tiers.tier(effect.source), self.tiers.tier(effect.target), effect)

    async def _copy(self, source: Tier, target: Tier, effect: CopyOver) -> None:
        artifact, operation = effect.artifact, effect.operation
        count = ByteCount("copying", self.report)
        threads = max(1, os.cpu_count() or 1)
        copying = Copying(threads, count.add)
        readings: list[Copying | Reading] = [copying]

        def reader(algorithm: str, total: int) -> Reading:
            made = Reading(algorithm, threads, count.add)
            readings.append(made)
            return made

        def work() -> None:
            kept = source.pin(artifact, operation)
            text = source.text(artifact)
            if target.has(artifact):
                count.begin(kept.sealed.size_bytes)
                target.pin(artifact, operation)
                target.verify(artifact, reader)
                if target.manifest(artifact).sealed != kept.sealed:
                    raise ArtifactRefused(f"tier {target.name} has another checkpoint by the name {artifact}")
                return
            count.begin(2 * kept.sealed.size_bytes)
            room = target.reserve(operation, kept.sealed.size_bytes + len(text) + SPARE_BYTES)
            files = open_manifest(text, artifact).files
            with room_of(target.root):
                copying.copy(source.images(artifact), Path(room.images), [(f.name, f.size_bytes) for f in files])
            target.adopt(operation, artifact, text, kept.returned, reader)

        await stoppable(readings, work)

    async def _fetch(self, source: Repository, target: Tier, effect: CopyOver) -> None:
        artifact, operation = effect.artifact, effect.operation
        text = await source.manifest(artifact)
        size = open_manifest(text, artifact).sealed.size_bytes
        room = await anyio.to_thread.run_sync(target.reserve, operation, size + len(text) + SPARE_BYTES)
        await source.fetch(artifact, Path(room.images), self.report, compare=False)  # `adopt` compares all of it
        count = ByteCount("verifying", self.report)
        readings: list[Reading] = []

        def reader(algorithm: str, total: int) -> Reading:
            count.begin(total)
            readings.append(Reading(algorithm, max(1, os.cpu_count() or 1), count.add))
            return readings[-1]

        try:
            await stoppable(readings, lambda: target.adopt(operation, artifact, text, (), reader))
        except ArtifactRefused:
            await source.verify(artifact, self.report)  # says which pack is damaged, and keeps others from sharing it
            raise

    async def publish(self, effect: PublishCopy) -> None:
        """Make it visible; a repository has done so.

        Raises:
            NoRoom: the file system is full.
            ArtifactUnknown: the copy is gone, as after a reboot.
        """
        if self.tiers.repository_named(effect.target) is None:
            target = self.tiers.tier(effect.target)
            await anyio.to_thread.run_sync(target.install, effect.operation, effect.artifact)

    # The end

    async def drop(self, effect: DropSource) -> str:
        """Remove what was copied, if nobody else uses it, and let both go; say why it stays, if it does.

        Raises:
            CopyLost: the target has no such checkpoint, so the source stays.
            OSError: something cannot be removed yet.
        """
        stays = effect.stays
        if not effect.source or stays or effect.source == ARCHIVE:  # a file stays with whoever has it
            pass
        elif (repository := self.tiers.repository_named(effect.source)) is None:
            stays = await self._drop(self.tiers.tier(effect.source), effect)
        elif not effect.keep:
            await self._check_copy(effect)
            with contextlib.suppress(ArtifactUnknown):  # an earlier life has removed it
                await repository.remove(effect.artifact)
        await self._let_go(effect.artifact, effect.operation, (effect.source, effect.target))
        return stays

    async def _drop(self, source: Tier, effect: DropSource) -> str:
        artifact, operation = effect.artifact, effect.operation
        if not await anyio.to_thread.run_sync(source.has, artifact):  # an earlier life has removed it from sight
            with contextlib.suppress(ArtifactUnknown):
                await anyio.to_thread.run_sync(source.drop, artifact, operation)
            return ""
        await self._check_copy(effect)
        target = None if self.tiers.repository_named(effect.target) else self.tiers.tier(effect.target)

        def work() -> str:
            living = tuple(task for task in source.pin(artifact, operation).returned if _lives(task))
            if living and target is not None:  # somebody may have thawed it since it was copied
                there = target.pin(artifact, operation).returned
                target.came_back(artifact, tuple(dict.fromkeys((*there, *living))))
            if effect.keep:
                return ""
            if living and target is None:
                return f"process {living[0].pid}, which came back from it, runs, and a repository does not say so"
            source.drop(artifact, operation)
            return ""

        try:
            return await anyio.to_thread.run_sync(work)
        except (ArtifactInUse, ArtifactRefused) as error:
            return str(error)

    async def _check_copy(self, effect: DropSource) -> None:
        """Refuse to remove what the target does not have."""
        try:
            if (repository := self.tiers.repository_named(effect.target)) is not None:
                there = open_manifest(await repository.manifest(effect.artifact), effect.artifact)
            else:
                target = self.tiers.tier(effect.target)
                there = await anyio.to_thread.run_sync(target.manifest, effect.artifact)
        except (ArtifactUnknown, ArtifactRefused) as error:
            raise CopyLost(f"{effect.target} has lost it: {error}") from error
        if there.sealed.digest != effect.digest:
            raise CopyLost(f"{effect.target} has another checkpoint by the name {effect.artifact}")

    async def undo(self, effect: UndoCopy) -> None:
        """Remove what was written at the target, unless nobody else has the checkpoint by now; let the source go.

        Raises:
            ArtifactInUse: somebody uses the copy.
            OSError: something cannot be removed yet.
        """
        artifact, operation = effect.artifact, effect.operation
        target = self.tiers.folders.get(effect.target)
        if target is not None:
            alone = await self._is_last(target, artifact, self.tiers.repository_named(effect.source))

            def work() -> None:
                if not alone and (target.has_of(operation) or target.has_pin(artifact, operation)):
                    target.abandon(operation, artifact)

            await anyio.to_thread.run_sync(work)
        known = (effect.source, effect.target) if effect.source else tuple(self.tiers.folders)
        await self._let_go(artifact, operation, known)

    async def _is_last(self, target: Tier, artifact: str, repository: Repository | None) -> bool:
        """Whether what can be seen at the target is all that there is of it, as far as anybody can tell.

        The repository that it was copied from has it no more if an earlier life has removed it there. That nobody can
        say so keeps the copy.
        """
        if not await anyio.to_thread.run_sync(target.has, artifact):
            return False
        if repository is not None:
            with contextlib.suppress(IriscwError, OSError):
                open_manifest(await repository.manifest(artifact), artifact)
                return False
        return await self.tiers.holding(artifact) == [target]

    async def _let_go(self, artifact: str, operation: str, names: Sequence[str]) -> None:
        """Unpin it in these tiers, where this operation has it."""
        tiers = [self.tiers.folders[name] for name in dict.fromkeys(names) if name in self.tiers.folders]

        def work() -> None:
            for tier in tiers:
                if tier.has_pin(artifact, operation):
                    tier.unpin(artifact, operation)

        await anyio.to_thread.run_sync(work)


def _lives(task: TaskIdentity) -> bool:
    return is_alive(ProcessIdentity(task.pid, task.start_ticks, task.boot_id))
