"""What is remembered of checkpoints between two questions to a policy, and the view that is made of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from iriscw.checkpoint.model import ListedArtifact, TierUse
from iriscw.checkpoint.tiering.model import NO_LIMIT, CheckpointView, Speed, TieringView, TierView, Watermarks

UNKNOWN_SPEED = Speed(0.02, 0.5e9)
"""Of a tier of which nothing is known, until something was measured."""

LEAST_MEASURED_BYTES = 16 << 20
"""A thaw of less says nothing of bytes per second."""

WEIGHT = 0.2
"""Of the last thaw in the speed of a tier: five of them make most of it."""


@attrs.frozen
class Usage:
    """What is remembered of one checkpoint."""

    uses: int = 0
    last_used_ns: int = 0
    floors: Mapping[str, float] = attrs.field(factory=dict)


NEVER = Usage()
"""Of what was not thawed, as far as anybody remembers."""


@attrs.frozen
class UsageLedger:
    """What is remembered of all: who used what, which tiers are being emptied, what thaws took."""

    usage: Mapping[str, Usage] = attrs.field(factory=dict)
    floors: Mapping[str, float] = attrs.field(factory=dict)
    """What the most valuable was worth that was demoted from each tier."""
    draining: tuple[str, ...] = ()
    speeds: Mapping[str, Speed] = attrs.field(factory=dict)
    """As measured, or as it is known beforehand."""

    def used(self, artifact: str, wall_ns: int) -> UsageLedger:
        """Return it after a thaw."""
        before = self.usage.get(artifact, NEVER)
        return attrs.evolve(self, usage={**self.usage, artifact: Usage(before.uses + 1, wall_ns, dict(self.floors))})

    def took(self, tier: str, size_bytes: int, seconds: float) -> UsageLedger:
        """Return it after a thaw from this tier took so long."""
        before = self.speed(tier)
        if size_bytes < LEAST_MEASURED_BYTES or seconds <= before.wait_s:
            return self
        now = size_bytes / (seconds - before.wait_s)
        speed = attrs.evolve(before, bytes_per_s=(1 - WEIGHT) * before.bytes_per_s + WEIGHT * now)
        return attrs.evolve(self, speeds={**self.speeds, tier: speed})

    def demoted(self, tier: str, worth: float) -> UsageLedger:
        """Return it after something of this worth went from this tier."""
        return attrs.evolve(self, floors={**self.floors, tier: max(worth, self.floors.get(tier, worth))})

    def only(self, artifacts: Iterable[str]) -> UsageLedger:
        """Return it without what does not exist any more."""
        return attrs.evolve(self, usage={each: self.usage[each] for each in artifacts if each in self.usage})

    def looked(self, tiers: Sequence[TierView]) -> UsageLedger:
        """Return it with those tiers as draining that are above their high mark, or were and are above the low one."""
        marked = [
            each.name
            for each in tiers
            if each.filled_bytes > (each.low_bytes if each.name in self.draining else each.high_bytes)
        ]
        return attrs.evolve(self, draining=tuple(marked))

    def speed(self, tier: str) -> Speed:
        """Return how fast a thaw from a tier is."""
        return self.speeds.get(tier, UNKNOWN_SPEED)


def tier_views(
    ledger: UsageLedger,
    uses: Sequence[TierUse],
    *,
    marks: Mapping[str, Watermarks],
    leaving: Mapping[str, int],
    repository: str = "",
) -> tuple[TierView, ...]:
    """Return the tiers as a policy sees them; ``repository``: the name of what lies behind them, if it can be read."""
    found = [
        TierView(
            each.tier,
            ledger.speed(each.tier),
            each.budget_bytes,
            each.artifacts_bytes,
            each.reserved_bytes,
            leaving.get(each.tier, 0),
            marks.get(each.tier, Watermarks()),
        )
        for each in uses
    ]
    if repository:
        found.append(TierView(repository, ledger.speed(repository), NO_LIMIT, 0))
    return tuple(found)


def view_of(
    ledger: UsageLedger,
    tiers: Sequence[TierView],
    listed: Iterable[ListedArtifact],
    *,
    moved: Sequence[str] = (),
    moving: int = 0,
    demands: int = 0,
) -> TieringView:
    """Return what a policy is shown: each checkpoint with its whole copies in these tiers.

    Args:
        ledger: what is remembered, after it has looked at these tiers.
        tiers: the fastest first.
        listed: each copy of each checkpoint.
        moved: checkpoints that this round has moved already, or tried to.
        moving: background moves that run.
        demands: thaws and moves that somebody waits for.
    """
    tiers = tuple(attrs.evolve(each, draining=each.name in ledger.draining) for each in tiers)
    copies: dict[str, list[ListedArtifact]] = {}
    for each in listed:
        copies.setdefault(each.artifact, []).append(each)
    checkpoints = [_checkpoint(ledger, tiers, artifact, copies[artifact], moved) for artifact in sorted(copies)]
    return TieringView(tiers, tuple(each for each in checkpoints if each.tiers), moving, demands)


def _checkpoint(
    ledger: UsageLedger, tiers: Sequence[TierView], artifact: str, copies: list[ListedArtifact], moved: Sequence[str]
) -> CheckpointView:
    whole = {each.tier: each for each in copies if each.manifest is not None and not each.trouble}
    users = [each for copy in copies for each in copy.pinned_by]
    used = ledger.usage.get(artifact, NEVER)
    made = max((each.manifest.sealed_wall_ns for each in whole.values() if each.manifest is not None), default=0)
    busy = f"operation {users[0]} uses it" if users else "it was moved in this round" if artifact in moved else ""
    return CheckpointView(
        artifact,
        max(each.size_bytes for each in copies),
        tuple(tier.name for tier in tiers if tier.name in whole),
        max(made, used.last_used_ns),
        used.uses,
        used.floors,
        busy,
    )
