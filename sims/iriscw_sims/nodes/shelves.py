"""The tiers of a simulated machine: what operations reserved, wrote, sealed and published, and what of it is durable.

A shelf that is memory loses everything with its machine. One that is a disk keeps, through a power cut, what was
synced, and of the rest a prefix in the order in which it was done: what a file system with a journal promises.
"""

from __future__ import annotations

from random import Random

import attrs

from iriscw.freeze.model import FrozenTree, TaskIdentity


@attrs.frozen
class Image:
    """One process as it is in the images."""

    pid: int
    progress: int
    stopped: bool


@attrs.frozen
class Kept:
    """What is on the disk of one operation. ``images_bytes`` counts what CRIU wrote, whole or not."""

    reserved: int = 0
    images_bytes: int = 0
    snapshot: tuple[Image, ...] = ()
    """Who is in the images; empty until they are complete."""
    sealed: bool = False
    published: bool = False
    damaged: bool = False
    """A byte is not what it was when it was sealed."""
    in_pages: bool = False
    """That byte is one of its pages: a lazy thaw meets it late."""
    trash: bool = False
    """A caller removed it; the next removal takes what is left of it on the disk."""
    returned: tuple[TaskIdentity, ...] = ()
    """Who came back from it."""
    pins: tuple[str, ...] = ()
    work: tuple[str, ...] = ()
    """Operations that have a folder of their own beside it."""


def _read(kept: Kept) -> tuple[object, ...]:
    return kept.images_bytes, kept.snapshot, kept.sealed, kept.published, kept.damaged


@attrs.define(eq=False)
class Artifact:
    """What one operation wrote."""

    operation: str
    volatile: bool = True
    now: Kept = Kept()
    frozen: tuple[object, ...] = ()
    """The processes as they were when the images were complete."""
    facts: FrozenTree | None = None
    by_pieces: bool = True
    """Whether its manifest has a digest for each piece of its pages."""
    tree: str = ""
    _unsynced: list[Kept] = attrs.field(factory=list)

    def change(self, **fields: object) -> None:
        """Do something that a power cut may undo."""
        if not self.volatile:
            self._unsynced.append(self.now)
        self.now = attrs.evolve(self.now, **fields)  # type: ignore[arg-type]

    def sync(self) -> None:
        """Have all of it on the disk."""
        self._unsynced.clear()

    @property
    def durable(self) -> bool:
        """Whether no power cut changes what a reader gets of it."""
        return all(_read(each) == _read(self.now) for each in self._unsynced)

    @property
    def synced(self) -> bool:
        """Whether all of it is on the disk."""
        return not self._unsynced

    def cut(self, rng: Random) -> None:
        """The power goes: some of what was not synced is as it was before."""
        states = [*self._unsynced, self.now]
        self.now = states[rng.randrange(len(states))]
        self._unsynced.clear()

    @property
    def visible(self) -> bool:
        """Whether readers see it."""
        return self.now.published

    @property
    def whole(self) -> bool:
        """Whether a thaw of it would give the tree back."""
        now = self.now
        return now.published and now.sealed and not now.damaged and bool(now.snapshot)

    @property
    def empty(self) -> bool:
        """Whether nothing of it is left."""
        now = self.now
        return not (now.reserved or now.images_bytes or now.published or now.pins or now.work)


@attrs.define(eq=False)
class Shelf:
    """One tier. ``capacity_bytes`` is what its file system holds, ``foreign_bytes`` what others put there."""

    name: str
    budget_bytes: int
    volatile: bool = True
    capacity_bytes: int = 1 << 50
    foreign_bytes: int = 0
    artifacts: dict[str, Artifact] = attrs.field(factory=dict)

    @property
    def bytes(self) -> int:
        """What artifacts take, seen or not."""
        return sum(each.now.images_bytes for each in self.artifacts.values())

    @property
    def charged_bytes(self) -> int:
        """What counts against the budget: artifacts, and what is reserved for those that become one."""
        return sum(each.now.reserved or each.now.images_bytes for each in self.artifacts.values())

    @property
    def promised_bytes(self) -> int:
        """What running operations have reserved and not written yet."""
        return sum(max(0, each.now.reserved - each.now.images_bytes) for each in self.artifacts.values())

    @property
    def free_bytes(self) -> int:
        """What its file system has left."""
        return max(0, self.capacity_bytes - self.foreign_bytes - self.bytes)

    def open(self, operation: str) -> Artifact:
        """Return what an operation writes; make it if there is none."""
        if operation not in self.artifacts:
            self.artifacts[operation] = Artifact(operation, self.volatile)
        return self.artifacts[operation]

    def tidy(self) -> None:
        """Forget those of which nothing is left for good."""
        for name in [name for name, each in self.artifacts.items() if each.empty and each.synced]:
            del self.artifacts[name]

    def cut(self, rng: Random) -> None:
        """The power goes."""
        for each in self.artifacts.values():
            each.cut(rng)
        self.tidy()
