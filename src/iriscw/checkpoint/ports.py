"""The port of a tier: a place on a machine where artifacts lie. Built-in tiers and those of packages have it alike.

CRIU writes into the folder that a tier gives it, and reads the images where they lie, so a tier is a folder of a
mounted file system, or stands behind one. ``iriscw.testing.conformance.tier`` has its contract as tests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from iriscw.checkpoint.model import Collected, ImageFile, ListedArtifact, Manifest, StoredCheckpoint, TierUse
from iriscw.freeze.model import FrozenTree, Kept, LazyPages, Room, Sealed, TaskIdentity
from iriscw.freeze.ports import Report


class ImageReader(Protocol):
    """Reads images and returns their digests; whoever made it reports progress and may stop it."""

    @property
    def algorithm(self) -> str:
        """What the digests are."""

    def digests(self, folder: int, sizes: Sequence[tuple[str, int]]) -> list[ImageFile]:
        """Read the files of an open folder, which have these sizes.

        Raises:
            ArtifactRefused: one is not a plain file, has another size, or ends early.
            OSError: one cannot be read.
        """
        ...


class Tier(Protocol):
    """Where artifacts lie, within a budget, whichever processes of this user ask at the same time.

    Its methods block and are called from threads. What has returned is durable: after a power cut a tier that is not
    volatile has it. What was cut off in the middle shows as nothing or as a whole, and the same call does the rest.
    ``operation`` is the id of the freeze that writes an artifact, of the thaw that reads one or of the move that copies
    one; an artifact has the id of its freeze, in each tier that it lies in.

    Every method but :meth:`images` refuses a folder that somebody else made, may write to or may read: images are run,
    and hold secrets. It raises :class:`~iriscw.freeze.model.UnsafeRequest` then, as it does for an id that is not made
    of small letters, digits and '-'. It raises :class:`OSError` where the file system fails in another way than below.
    """

    @property
    def name(self) -> str:
        """What users call it."""

    @property
    def root(self) -> Path:
        """Where it lies. An operation that was begun with one place is not taken up with another."""

    @property
    def volatile(self) -> bool:
        """Whether it is memory: it counts as that, and what was written in another boot is refused."""

    def check(self) -> None:
        """Refuse a folder that is not ours alone; one that is not there is made when something is written.

        Raises:
            UnsafeRequest: it is such a one.
            OSError: it cannot be looked at.
        """
        ...

    # Writing

    def reserve(self, operation: str, size_bytes: int) -> Room:
        """Take room before anything is written. The same operation gets the same room again.

        Raises:
            NoRoom: the budget, the file system or, where the tier is memory, the machine has less.
        """
        ...

    def seal(
        self,
        operation: str,
        frozen: FrozenTree,
        labels: tuple[tuple[str, str], ...],
        reading: ImageReader,
        begin: Callable[[int], None],
    ) -> Sealed:
        """Check that the images are whole, put them on the disk with their digests, and the manifest last.

        ``begin`` is told first how many bytes will be read. May be repeated.

        Raises:
            NoRoom: the file system is full.
            ArtifactRefused: what CRIU left is not an image.
        """
        ...

    def publish(self, operation: str) -> None:
        """Make the artifact visible, as a whole and pinned by its own operation; return what was reserved.

        May be repeated.

        Raises:
            NoRoom: the file system is full.
            ArtifactUnknown: it was never sealed.
        """
        ...

    def discard(self, operation: str) -> None:
        """Remove all that an operation wrote, published or not, and return what it reserved. May be repeated.

        Raises:
            ArtifactInUse: a thaw has it.
            OSError: something cannot be removed yet; it counts against the budget until it is.
        """
        ...

    def tidy(self, operation: str) -> None:
        """Remove logs and sockets of an operation that owes nothing any more. May be repeated.

        Raises:
            OSError: something cannot be removed yet.
        """
        ...

    # Copies of artifacts that lie elsewhere, too. Room is reserved for the move, and has its id until it is installed.

    def text(self, artifact: str) -> bytes:
        """Return the manifest of an artifact as it was sealed, for :meth:`adopt` of another tier.

        Raises:
            ArtifactUnknown: there is none.
            ArtifactRefused: it is none of ours, or was written in another boot and the tier is volatile.
        """
        ...

    def adopt(
        self,
        operation: str,
        artifact: str,
        manifest: bytes,
        returned: Sequence[TaskIdentity],
        reader: Callable[[str, int], ImageReader],
    ) -> Sealed:
        """Take what was copied into the room of a move as this artifact, and who came back from it so far.

        Every byte is compared with the manifest, as :meth:`verify` does, and put on the disk; the manifest last. A copy
        in a volatile tier was written in this boot, whenever the tree was frozen. May be repeated.

        Raises:
            ArtifactUnknown: the move has no room here.
            ArtifactRefused: the manifest is none of ours, or a file is not what it says.
            NoRoom: the file system is full.
        """
        ...

    def install(self, operation: str, artifact: str) -> None:
        """Make an adopted copy visible, as a whole and pinned by its move; return what was reserved.

        Where the tier has this artifact by now that one is pinned, and the copy goes. May be repeated.

        Raises:
            ArtifactUnknown: it was never adopted.
            ArtifactRefused: the one that the tier has cannot be used.
            NoRoom: the file system is full.
        """
        ...

    def abandon(self, operation: str, artifact: str) -> None:
        """Remove what a move wrote, installed or not, and its pin; what images hold elsewhere stays. May be repeated.

        Raises:
            ArtifactInUse: somebody else uses the copy.
            OSError: something cannot be removed yet; it counts against the budget until it is.
        """
        ...

    def drop(self, artifact: str, operation: str) -> None:
        """Remove an artifact that lies elsewhere, too, and its pin of a move; what images hold elsewhere stays.

        Raises:
            ArtifactUnknown: there is none; what was left of one that was cut off is gone.
            ArtifactInUse: somebody else uses it.
            OSError: some of it cannot be removed yet; it counts against the budget until it is.
        """
        ...

    # Using

    def pin(self, artifact: str, operation: str) -> Kept:
        """Keep an artifact from being removed, and read what it says of itself. May be repeated.

        Raises:
            ArtifactUnknown: there is none.
            ArtifactRefused: it is none of ours, or was made in another boot and the tier is volatile.
            NoRoom: the file system is full.
        """
        ...

    def unpin(self, artifact: str, operation: str) -> None:
        """Let an artifact be removed again, and remove what its operation left beside it. May be repeated."""
        ...

    def came_back(self, artifact: str, tasks: Sequence[TaskIdentity]) -> None:
        """Write down who came back from an artifact, in place of what is there; :meth:`pin` returns it.

        Raises:
            ArtifactUnknown: there is none.
            NoRoom: the file system is full, or there are too many.
        """
        ...

    def verify(self, artifact: str, reader: Callable[[str, int], ImageReader], *, but_pages: bool = False) -> LazyPages:
        """Read every byte and compare; ``but_pages``: not those of files whose every piece has a digest; return these.

        ``reader`` is asked for what reads, once: it is given the algorithm, and how many bytes there are.

        Raises:
            ArtifactUnknown: there is none.
            ArtifactRefused: it is none of ours, of another boot (if volatile), or a byte differs.
        """
        ...

    def remove(self, artifact: str) -> None:
        """Remove an artifact: first from sight, then from the disk.

        Raises:
            ArtifactUnknown: there is none.
            ArtifactInUse: a thaw has it, or the freeze that made it has not ended.
            OSError: some of it cannot be removed yet; it counts against the budget until it is.
        """
        ...

    # Looking

    def images(self, artifact: str) -> Path:
        """Return the folder with the images of an artifact."""
        ...

    def manifest(self, artifact: str) -> Manifest:
        """Read what an artifact says of itself.

        Raises:
            ArtifactUnknown: there is none.
            ArtifactRefused: it is none of ours, or was made in another boot and the tier is volatile.
        """
        ...

    def has(self, artifact: str) -> bool:
        """Whether there is a visible artifact with this id."""
        ...

    def has_room(self, operation: str) -> bool:
        """Whether an operation writes here."""
        ...

    def has_of(self, operation: str) -> bool:
        """Whether anything of an operation is here, published or not, or a part of it."""
        ...

    def has_pin(self, artifact: str, operation: str) -> bool:
        """Whether an operation uses an artifact here, or has left something beside it."""
        ...

    def listing(self) -> list[ListedArtifact]:
        """Return all visible artifacts, the trouble with those that are none of ours included."""
        ...

    def look_at(self, artifact: str) -> ListedArtifact | None:
        """Return one artifact as :meth:`listing` does; None if it was removed meanwhile."""
        ...

    def use(self) -> TierUse:
        """Say how full it is."""
        ...

    def promised_bytes(self) -> int:
        """Return what running operations have reserved and not written yet."""
        ...


class Repository(Protocol):
    """Where checkpoints lie that outlive their machine: an object store, which every machine of a fleet can read.

    What is stored is whole or not there: a reader never sees a part (INV-C8). Memory in flight is bounded (INV-C13).
    Every method may raise the troubles of :class:`~iriscw.objects.ports.ObjectStore`; neither refusal nor silence is
    ever taken for absence (INV-C11).
    """

    @property
    def name(self) -> str:
        """What users call it."""

    @property
    def place(self) -> str:
        """Where it lies: a URL without secrets."""

    async def store(self, artifact: str, images: Path, manifest: bytes, report: Report) -> StoredCheckpoint:
        """Store the images of this folder with their manifest, and return what it took. May be repeated.

        ``manifest`` is the text that the tier sealed. Files that it does not name are not stored.

        Raises:
            ArtifactRefused: a file is not what the manifest says, or another checkpoint has this id.
            StoreFull: no room; nothing of it can be seen.
        """
        ...

    async def manifest(self, artifact: str) -> bytes:
        """Return the manifest with which a checkpoint was stored.

        Raises:
            ArtifactUnknown: there is none.
            ArtifactRefused: what is stored is none of ours, or damaged.
        """
        ...

    async def fetch(self, artifact: str, images: Path, report: Report, *, compare: bool = True) -> None:
        """Write the files of a checkpoint into this folder, which is empty or holds a part of them; verify each byte.

        Without ``compare`` the bytes are what came: whoever calls compares them with :meth:`manifest`, as
        :meth:`Tier.adopt` does, before anything else reads them. If they differ, :meth:`verify` says what is damaged.

        Raises:
            ArtifactUnknown: there is none.
            ArtifactRefused: what is stored is none of ours, or damaged.
            NoRoom: the file system of the folder is full.
        """
        ...

    async def verify(self, artifact: str, report: Report) -> None:
        """Read every byte of a checkpoint and compare.

        Raises:
            ArtifactUnknown: there is none.
            ArtifactRefused: what is stored is none of ours, or damaged.
        """
        ...

    async def listing(self) -> list[StoredCheckpoint]:
        """Return all checkpoints, the trouble with those that are none of ours included."""
        ...

    async def used_bytes(self) -> int:
        """Return what all checkpoints take together, and what a collection has not freed yet."""
        ...

    async def remove(self, artifact: str) -> None:
        """Remove a checkpoint from sight; a collection frees what nobody else shares.

        Raises:
            ArtifactUnknown: there is none.
        """
        ...

    async def collect(self, *, grace_s: float) -> Collected:
        """Free what no checkpoint refers to, in one pass; others may store, fetch and collect at the same time.

        What was found so by an earlier pass, at least ``grace_s`` seconds ago, is removed; what is found so now is
        marked for a later one. Whoever fetches a checkpoint that is removed has that long.

        Raises:
            ArtifactRefused: it cannot be told what refers to what. Nothing is removed.
        """
        ...

    async def aclose(self) -> None:
        """Give back what it holds open."""
        ...
