"""What a tiering policy is shown, and what it answers: see :mod:`iriscw.checkpoint.tiering.guard`."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Protocol

import attrs
from attrs import validators

NO_LIMIT = 1 << 62
"""The budget of a repository, in bytes: nobody knows one."""


@attrs.frozen
class Speed:
    """What it takes to thaw what lies in a tier, as it was measured."""

    wait_s: float
    """Before the first byte."""
    bytes_per_s: float = attrs.field(validator=validators.gt(0))

    def seconds(self, size_bytes: int) -> float:
        """Return how long it takes for so many bytes."""
        return self.wait_s + size_bytes / self.bytes_per_s


@attrs.frozen
class Watermarks:
    """Shares of a tier's budget: it is emptied from above ``high`` until it is no fuller than ``low``."""

    low: float = 0.7
    high: float = 0.9

    def __attrs_post_init__(self) -> None:
        """Refuse marks that would have it emptied for ever."""
        if not 0 <= self.low < self.high <= 1:
            raise ValueError(f"{self.low:g} and {self.high:g}: they must be 0 <= low < high <= 1")


@attrs.frozen
class TierView:
    """One tier, or the repository, as a policy sees it."""

    name: str
    speed: Speed
    budget_bytes: int
    used_bytes: int
    reserved_bytes: int = 0
    """What running operations may still write."""
    leaving_bytes: int = 0
    """What running moves are about to remove."""
    marks: Watermarks = Watermarks()
    draining: bool = False
    """It was fuller than its high mark, and is not down to its low one yet."""

    @property
    def filled_bytes(self) -> int:
        """What it holds once all that runs has come to its end."""
        return self.used_bytes + self.reserved_bytes - self.leaving_bytes

    @property
    def low_bytes(self) -> int:
        """The low mark."""
        return int(self.budget_bytes * self.marks.low)

    @property
    def high_bytes(self) -> int:
        """The high mark."""
        return int(self.budget_bytes * self.marks.high)


@attrs.frozen
class CheckpointView:
    """One checkpoint, as a policy sees it."""

    artifact: str
    size_bytes: int
    tiers: tuple[str, ...]
    """Where a whole copy lies, the fastest first."""
    last_used_ns: int
    """When it was thawed last, or made: the wall clock, since 1970."""
    uses: int = 0
    """How often it was thawed, as far as anybody remembers."""
    floors: Mapping[str, float] = attrs.field(factory=dict)
    """For each tier: what the most valuable was worth that had been demoted from there when this was used last."""
    busy: str = ""
    """Why it must be left alone: somebody uses it, or it was moved in this round. Empty: it need not."""


@attrs.frozen
class TieringView:
    """All that a policy knows."""

    tiers: tuple[TierView, ...]
    """The fastest first; the repository last, if it can be read."""
    checkpoints: tuple[CheckpointView, ...]
    moving: int = 0
    """Background moves that run."""
    demands: int = 0
    """Thaws, and moves that somebody asked for, that run or wait."""

    def tier(self, name: str) -> TierView | None:
        """Return a tier; None if there is none of this name."""
        return next((each for each in self.tiers if each.name == name), None)

    def below(self, name: str) -> tuple[TierView, ...]:
        """Return the tiers that are slower than this one, the fastest first."""
        names = [each.name for each in self.tiers]
        return self.tiers[names.index(name) + 1 :] if name in names else ()


@attrs.frozen
class Proposal:
    """That a checkpoint be copied from one tier to another; and removed from the first, unless it is kept there.

    Where the target has it, nothing is copied: what lies there is compared, and the source goes.
    """

    artifact: str
    source: str
    target: str
    keep: bool = False
    worth: float = 0.0
    """What the policy thought it worth in the source."""
    why: str = ""
    """For people."""


class MoveReason(enum.Enum):
    """What a proposal is, as metrics name it."""

    DEMOTE = "demote"
    """To a slower tier."""
    DROP = "drop"
    """A slower tier has it already."""
    PROMOTE = "promote"
    """To a faster tier, and it stays where it is."""
    COPY = "copy"
    """To a slower tier, and it stays where it is."""


class MoveRefusal(enum.Enum):
    """Why a proposal is not carried out."""

    UNKNOWN = "unknown"
    """There is no such checkpoint or tier, or no copy in the source."""
    POINTLESS = "pointless"
    """It would change nothing."""
    IN_USE = "in-use"
    """Somebody uses the checkpoint, or it was moved in this round."""
    LAST_COPY = "last-copy"
    """It would remove a copy, and leave none in a slower tier."""
    NO_ROOM = "no-room"
    """The target would have more than its budget; or, for what is only to be faster, more than its high mark."""
    DEMAND_FIRST = "demand-first"
    """Somebody waits for a thaw or a move."""
    TOO_MANY = "too-many"
    """As many moves run as may."""


WAITS = (MoveRefusal.DEMAND_FIRST, MoveRefusal.TOO_MANY)
"""No fault of the policy: it may propose the same later."""


class TieringPolicy(Protocol):
    """Decides what lies where. Both methods must be quick, and know nothing but their arguments.

    Whatever they answer, :mod:`iriscw.checkpoint.tiering.guard` stands before it.
    """

    def balance(self, view: TieringView) -> Sequence[Proposal]:
        """Return what should be moved, the most urgent first. Asked again after each move."""
        ...

    def admit(self, view: TieringView, size_bytes: int) -> str:
        """Return the tier that a checkpoint of this size is fetched into; empty: no opinion."""
        ...
