"""The tiers as the agent sees them: the port over :mod:`iriscw_sims.nodes.shelves`.

What a call syncs is what the real store syncs, and in its order (:mod:`iriscw.checkpoint.drivers.store`), so that a
power cut undoes here what it would undo there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from iriscw.freeze.model import (
    ArtifactInUse,
    ArtifactRefused,
    ArtifactUnknown,
    FrozenTree,
    Kept,
    LazyPages,
    NoRoom,
    Room,
    Sealed,
    TaskIdentity,
    UnsafeRequest,
)
from iriscw.freeze.ports import Report
from iriscw_sims.nodes.criu import images_of
from iriscw_sims.nodes.ports import Port
from iriscw_sims.nodes.shelves import Artifact, Shelf
from iriscw_sims.nodes.stepping import Await


class SimArtifacts(Port):
    """The tiers of one machine."""

    def _shelf(self, tier: str) -> Shelf:
        shelf = self.machine.shelves.get(tier)
        if shelf is None:
            raise UnsafeRequest(f"there is no tier {tier!r}")
        return shelf

    def _written(self, operation: str) -> tuple[Shelf, Artifact]:
        for shelf in self.machine.shelves.values():
            found = shelf.artifacts.get(operation)
            if found is not None and (found.now.images_bytes or found.now.reserved or found.now.published):
                return shelf, found
        raise ArtifactUnknown(f"operation {operation} has no room in any tier")

    def _visible(self, artifact: str) -> tuple[Shelf, Artifact]:
        for shelf in self.machine.shelves.values():
            found = shelf.artifacts.get(artifact)
            if found is not None and found.visible:
                return shelf, found
        raise ArtifactUnknown(f"there is no checkpoint {artifact} here")

    async def _pause(self) -> None:
        await Await(self.machine.fate.lasts("disk", 0))

    async def _given_back(self, artifact: Artifact) -> None:
        """Have on the disk that something is gone: once its operation is over nobody removes it again."""
        await self._pause()
        artifact.sync()

    # The port

    async def promised(self, tier: str = "") -> int | None:
        """See the port."""
        if not tier:
            return sum(shelf.promised_bytes for shelf in self.machine.shelves.values() if shelf.volatile)
        shelf = self._shelf(tier)
        return shelf.promised_bytes if shelf.volatile else None

    async def reserve(self, operation: str, tier: str, size_bytes: int) -> Room:
        """See the port."""
        await self._step("reserve")
        shelf = self._shelf(tier)
        known = shelf.artifacts.get(operation)
        if known is None or not known.now.reserved:
            left = shelf.budget_bytes - shelf.charged_bytes
            free = min(shelf.free_bytes, self.machine.free_for_tiers()) if shelf.volatile else shelf.free_bytes
            if size_bytes > min(left, free - shelf.promised_bytes):
                raise NoRoom(f"tier {tier} has too little room for {size_bytes >> 20} MiB")
            artifact = shelf.open(operation)
            artifact.change(reserved=size_bytes, work=(operation,))
            artifact.sync()
            self.checks.tier(shelf)
        await self._pause()
        return Room(images_of(shelf.open(operation)), f"/tier/work/{operation}")

    def following(self, operation: str, images: str) -> contextlib.AbstractContextManager[None]:
        """See the port: here nothing is read, and nobody counts on it."""
        return contextlib.nullcontext()

    async def seal(
        self, operation: str, frozen: FrozenTree, labels: tuple[tuple[str, str], ...], report: Report
    ) -> Sealed:
        """See the port."""
        _, artifact = self._written(operation)
        await self._step("seal", artifact.now.images_bytes)
        if not artifact.now.snapshot:
            raise ArtifactRefused(f"CRIU left no inventory.img for {operation}")
        artifact.change(sealed=True)
        artifact.facts = frozen
        artifact.by_pieces = not self.machine.fate.may("an older iriscw sealed it", f"artifact/{operation}")
        artifact.sync()
        await self._pause()
        return Sealed(artifact.now.images_bytes, "d", 3)

    async def publish(self, operation: str) -> None:
        """See the port."""
        await self._step("publish")
        _, artifact = self._written(operation)
        if not artifact.now.published:
            if not artifact.now.sealed:
                raise ArtifactUnknown(f"artifact {operation} was never sealed")
            self.checks.published(self.operation, artifact)
            artifact.change(pins=(*artifact.now.pins, operation))
            artifact.sync()
            await self._pause()
            artifact.change(published=True)
            await self._pause()
            artifact.sync()
        artifact.change(reserved=0)
        await self._given_back(artifact)

    async def discard(self, operation: str) -> None:
        """See the port."""
        await self._step("discard")
        for shelf in self.machine.shelves.values():
            artifact = shelf.artifacts.get(operation)
            if artifact is None:
                continue
            others = [pin for pin in artifact.now.pins if pin != operation]
            if artifact.now.published and others:
                raise ArtifactInUse(f"artifact {operation} is used by operation {others[0]}")
            self.checks.removed(artifact, self.operation)
            artifact.change(published=False)
            await self._given_back(artifact)
            artifact.change(pins=())
            artifact.change(sealed=False)
            await self._given_back(artifact)
            artifact.change(images_bytes=0, snapshot=())
            await self._pause()
            artifact.change(reserved=0)
            await self._given_back(artifact)
            artifact.change(work=())
            shelf.tidy()
        await self._pause()

    async def pin(self, artifact: str, operation: str) -> Kept:
        """See the port."""
        await self._step("pin")
        _, found = self._visible(artifact)
        if operation not in found.now.pins:
            found.change(pins=(*found.now.pins, operation), work=(*found.now.work, operation))
            found.sync()
        facts = found.facts
        assert facts is not None
        if found.volatile and facts.host.boot_id != self.machine.boot_id:
            raise ArtifactRefused(f"artifact {artifact} lay in memory, and this is another boot of the machine")
        sealed = Sealed(found.now.images_bytes, "d", 3)
        room = Room(images_of(found), f"/tier/work/{operation}")
        return Kept(facts, room, sealed, found.by_pieces, found.now.returned)

    async def came_back(self, artifact: str, tasks: Sequence[TaskIdentity]) -> None:
        """See the port."""
        await self._step("came_back")
        _, found = self._visible(artifact)
        found.change(returned=tuple(tasks))
        found.sync()
        await self._pause()

    async def verify(self, artifact: str, report: Report) -> None:
        """See the port."""
        _, found = self._visible(artifact)
        await self._step("verify", found.now.images_bytes)
        if found.now.damaged:
            raise ArtifactRefused(f"artifact {artifact}: pages-1.img was changed: its digest is another one")
        self.checks.verified(self.operation, artifact, self.life)

    async def verify_but_pages(self, artifact: str, report: Report) -> LazyPages:
        """See the port."""
        _, found = self._visible(artifact)
        await self._step("verify")
        if found.now.damaged and not found.now.in_pages:
            raise ArtifactRefused(f"artifact {artifact}: core-1.img was changed: its digest is another one")
        self.checks.verified(self.operation, artifact, self.life, but_pages=True)
        return LazyPages("sha256-8m", 8 << 20, ())

    async def unpin(self, artifact: str, operation: str) -> bool:
        """See the port."""
        await self._step("unpin")
        is_there = False
        for shelf in self.machine.shelves.values():
            found = shelf.artifacts.get(artifact)
            if found is not None:
                is_there = is_there or found.visible
                found.change(pins=tuple(pin for pin in found.now.pins if pin != operation))
                await self._given_back(found)
                found.change(work=tuple(each for each in found.now.work if each != operation))
            shelf.tidy()
        return is_there

    # Beside the port

    async def remove(self, artifact: str) -> None:
        """Remove an artifact for a caller: see ``Tiers.remove``."""
        await self._step("remove")
        shelf, found = self._visible(artifact)
        if found.now.pins:
            raise ArtifactInUse(f"artifact {artifact} is used by operation {found.now.pins[0]}")
        self.checks.removed(found, "")
        found.change(published=False, trash=True)
        await self._pause()
        for each in shelf.artifacts.values():
            if each.now.trash:
                each.change(images_bytes=0, snapshot=(), sealed=False)
        shelf.tidy()

    async def clean(self, operation: str) -> None:
        """Remove the folder that an operation had beside its artifact: the end of ``CleanUp``."""
        await self._step("clean")
        for shelf in self.machine.shelves.values():
            for found in shelf.artifacts.values():
                if operation in found.now.work:
                    found.change(work=tuple(each for each in found.now.work if each != operation))
            shelf.tidy()
