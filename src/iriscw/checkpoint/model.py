"""Values of artifacts: what a manifest says, and where artifacts are kept."""

from __future__ import annotations

import enum

import attrs

from iriscw._errors import OperationError
from iriscw.freeze.model import ArtifactRefused, FrozenTree, Sealed


@attrs.frozen
class ImageFile:
    """One file of an artifact."""

    name: str
    size_bytes: int
    digest: str
    """Hexadecimal; how it is made stands in the manifest."""
    pieces: bytes = attrs.field(default=b"", eq=False, repr=False)
    """The digests of its pieces, of 32 bytes each; the digest is that of these. Empty if the manifest has none."""


@attrs.frozen
class Manifest:
    """What an artifact is."""

    artifact: str
    """Its id: that of the operation that made it."""
    labels: tuple[tuple[str, str], ...]
    software: str
    """The version of iriscw that wrote it."""
    sealed_wall_ns: int
    algorithm: str
    frozen: FrozenTree
    files: tuple[ImageFile, ...]
    sealed: Sealed


@attrs.frozen
class ArtifactCopy:
    """Where an artifact lies."""

    tier: str
    size_bytes: int
    trouble: str = ""
    """Why this copy cannot be used; empty if it can."""
    pinned_by: tuple[str, ...] = ()


@attrs.frozen
class ListedArtifact:
    """An artifact as a listing shows it. One whose manifest is none of ours has a ``trouble`` and no manifest."""

    artifact: str
    tier: str
    size_bytes: int
    manifest: Manifest | None = None
    trouble: str = ""
    pinned_by: tuple[str, ...] = ()
    copies: tuple[ArtifactCopy, ...] = ()
    """All places where it lies, the first one first; none where only one was looked at."""


@attrs.frozen
class TierUse:
    """How full a tier is."""

    tier: str
    folder: str
    budget_bytes: int
    artifacts_bytes: int
    reserved_bytes: int
    free_bytes: int
    """Of its file system."""


@attrs.frozen
class ShownTier:
    """A place where checkpoints can lie, as ``iriscw tiers`` shows it. Of a repository nobody knows a budget."""

    tier: str
    where: str
    checkpoints: int = 0
    used_bytes: int = 0
    reserved_bytes: int = 0
    budget_bytes: int | None = None
    free_bytes: int | None = None
    trouble: str = ""
    """Why it cannot be read; empty if it can."""


@attrs.frozen
class StoredCheckpoint:
    """A checkpoint as a repository has it."""

    artifact: str
    size_bytes: int
    """Of its files."""
    stored_bytes: int
    """What its chunks take in the repository, those that it shares with other checkpoints included."""
    added_bytes: int
    """What was written for it: its chunks that the repository did not have, and its manifest."""
    manifest: Manifest | None = None
    """Without its files."""
    trouble: str = ""
    """Why it cannot be read; empty if it can."""


@attrs.frozen
class MovePlan:
    """Which checkpoint is to lie where."""

    operation: str
    artifact: str
    target: str
    """The name of a tier, or of the repository."""
    keep: bool = False
    """Whether it is to lie where it lay, too."""
    source: str = ""
    """The tier that it is to be copied from; empty: the first that has it."""


class MovePhase(enum.Enum):
    """Which step of a move may have been taken: see :mod:`iriscw.checkpoint.moving`."""

    NEW = "new"
    OPENING = "opening"
    COPYING = "copying"
    PUBLISHING = "publishing"
    DROPPING = "dropping"
    UNDOING = "undoing"
    OVER = "over"


@attrs.frozen
class Collected:
    """What one pass over a repository did."""

    checkpoints: int
    """That can be seen."""
    kept_bytes: int
    """Of packs that something refers to."""
    marked: int
    """Objects that nothing refers to, marked for a later pass."""
    removed: int
    removed_bytes: int


class ChunkDamaged(ArtifactRefused):
    """A chunk in a repository is not what it should be, or its pack is cut off or missing. ``pack`` says which."""

    def __init__(self, text: str, pack: str) -> None:
        super().__init__(text)
        self.pack = pack


class SignatureMissing(ArtifactRefused):
    """A checkpoint in a repository has no signature of a key that this machine trusts. Nothing of it was read."""


class SignatureWrong(ArtifactRefused):
    """A checkpoint in a repository was changed after it was signed, or the signature is another one's."""


class KeyMissing(ArtifactRefused):
    """A checkpoint in a repository is encrypted, and this machine has not its key. The text has the key's id."""


class NotEncrypted(ArtifactRefused):
    """A checkpoint in a repository is not encrypted, and this machine takes only what is. Nothing of it was read."""


class CopyLost(OperationError):
    """The tier that a checkpoint was moved to has not got it, as after a reboot. It lies where it lay."""
