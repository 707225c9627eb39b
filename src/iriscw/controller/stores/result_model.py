"""What is said of results: how one stands, what it is, why it will never be kept, and how much may lie around."""

from __future__ import annotations

import enum

import anyio
import attrs

from iriscw._errors import OperationError


class ResultStoreBroken(OperationError):
    """The result store cannot read or write its files: a full disk, permissions, an I/O error."""

    retryable = True


class ResultStoreFull(ResultStoreBroken):
    """So many results wait for the object store that no more are taken; their workers have them and try again."""


class ResultRefused(OperationError, abstract=True):
    """An attempt's result will never be kept. The attempt failed: its user has no result."""


class ResultTooBig(ResultRefused):
    """It is larger than ``MAX_RESULT_BYTES``."""


class ResultCorrupt(ResultRefused):
    """It is not what its worker said it is."""


class ResultMissing(ResultRefused):
    """Its worker announced it and did not send it."""


class ResultVerdict(enum.Enum):
    """How a result stands whose worker has said what the whole is."""

    KEPT = "kept"
    WANTED = "wanted"
    """Bytes are missing, or all must be sent again."""
    WAITS = "waits"
    """It is here, verified, and is not in the object store yet."""
    REFUSED = "refused"
    """See :meth:`ResultStore.refusal`."""


@attrs.frozen
class ResultLimits:
    """How much of results that belong into an object store is on the disk."""

    waiting_results: int = 20_000
    waiting_bytes: int = 4 << 30
    cached_bytes: int = 1 << 30


@attrs.frozen
class ResultStatistics:
    """The store in figures."""

    known: int
    """Attempts with a result, or a part of one, that this controller has seen."""
    waiting: int
    """Of these, which are not where they belong yet, and those that are on their way from workers."""
    waiting_bytes: int
    cached_bytes: int
    """On the disk, of those in the object store."""
    archived: int
    """Results that were put into the object store since the start, or found there."""
    archive_failures: int
    """Tries of that that failed since the start."""
    archive_stalled: bool
    """Whether the last try failed."""


@attrs.frozen
class Reference:
    """A whole result: its size, the SHA-256 of its bytes in hex, and the Python (``3.11``) that pickled it."""

    size_bytes: int
    sha256: str
    python: str


@attrs.define(eq=False)
class AttemptResult:
    """One attempt's result. ``reference`` is None until the whole was verified."""

    job_id: str
    index: int
    number: int
    uid: str
    size_bytes: int = 0
    """What is stored, verified or not."""
    reference: Reference | None = None
    refused: ResultRefused | None = None
    """Why it will never be kept."""
    mismatches: int = 0
    archived: str = ""
    """Its key in the object store, once it is there."""
    stored_here: bool = True
    """Whether the disk has it: as long as it is not archived, and maybe later."""
    counted_bytes: int | None = None
    """As what it counts among those that wait; None if it does not."""
    _lock: anyio.Lock | None = None

    @property
    def lock(self) -> anyio.Lock:
        """Held while something is stored. Made late: most attempts that are ordered at once say nothing for a while."""
        if self._lock is None:
            self._lock = anyio.Lock()
        return self._lock

    @property
    def name(self) -> str:
        """The file that holds it now."""
        known = self.reference
        end = "part" if known is None else f"{known.python}.{known.sha256}.result"
        return f"{self.index}-{self.number}-{self.uid}.{end}"
