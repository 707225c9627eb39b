"""The policies that come with iriscw, and the one that others are made of in a few lines. Pure.

A policy that is a :class:`ByWorth` says only what a checkpoint is worth where it lies::

    class SmallOnes(ByWorth):
        def worth(self, view, checkpoint, tier):
            return -checkpoint.size_bytes
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import attrs

from iriscw.checkpoint.tiering.model import NO_LIMIT, CheckpointView, Proposal, TieringView, TierView


class ByWorth(ABC):
    """What is worth least goes to a slower tier, and what is worth most comes to a faster one.

    A tier that is fuller than its high mark is emptied to its low one. What was thawed comes to a faster tier if it
    fits beneath the high mark there, or instead of what is worth less: that goes first, in the same round.
    """

    @abstractmethod
    def worth(self, view: TieringView, checkpoint: CheckpointView, tier: TierView) -> float:
        """Return what it is worth to have this checkpoint in this tier and not in a slower one; any scale will do."""

    def admit(self, view: TieringView, size_bytes: int) -> str:
        """Return the fastest tier that stays below its high mark, or else the first that has room at all."""
        here = [tier for tier in view.tiers if tier.budget_bytes < NO_LIMIT]
        taken = [(tier, tier.used_bytes + tier.reserved_bytes + size_bytes) for tier in here]
        below = next((tier.name for tier, bytes_ in taken if bytes_ <= tier.high_bytes), "")
        return below or next((tier.name for tier, bytes_ in taken if bytes_ <= tier.budget_bytes), "")

    def balance(self, view: TieringView) -> list[Proposal]:
        """Return what should be moved, the most urgent first."""
        filled = {tier.name: tier.filled_bytes for tier in view.tiers}
        plan = _Plan(view, filled, {tier.name: tier.used_bytes + tier.reserved_bytes for tier in view.tiers})
        for tier in view.tiers:
            if tier.draining:
                self._empty(plan, tier)
        for tier in view.tiers[:-1]:
            if not tier.draining:
                self._fill(plan, tier)
        return list(plan.found.values())

    def _empty(self, plan: _Plan, tier: TierView) -> None:
        for each in self._ranked(plan, tier):
            if plan.filled[tier.name] <= tier.low_bytes:
                return
            plan.down(each, tier, self.worth(plan.view, each, tier), f"{tier.name} is above its low mark")

    def _fill(self, plan: _Plan, tier: TierView) -> None:
        """Bring what was thawed from slower tiers, the most valuable first, until one has to wait for room."""
        slower = [each.name for each in plan.view.below(tier.name)]
        wanted = [each for each in plan.free() if each.uses and each.tiers[0] in slower]
        kept = self._ranked(plan, tier)
        for each in sorted(wanted, key=lambda one: (-self.worth(plan.view, one, tier), one.artifact)):
            worth = self.worth(plan.view, each, tier)
            missing = plan.filled[tier.name] + each.size_bytes - tier.high_bytes
            if missing <= 0:
                plan.up(each, tier, worth)
            elif less := self._less(plan, tier, kept, worth, missing):
                for other, its in less:
                    plan.down(other, tier, its, f"{each.artifact} is worth more in {tier.name}")
                return

    def _less(
        self, plan: _Plan, tier: TierView, kept: list[CheckpointView], worth: float, missing: int
    ) -> list[tuple[CheckpointView, float]]:
        """Return what is worth less than this and takes so many bytes together; nothing if there is not so much."""
        found: list[tuple[CheckpointView, float]] = []
        for other in kept:
            its = self.worth(plan.view, other, tier)
            if its >= worth:
                return []
            found.append((other, its))
            missing -= other.size_bytes
            if missing <= 0:
                return found
        return []

    def _ranked(self, plan: _Plan, tier: TierView) -> list[CheckpointView]:
        """Return what may go from a tier, the least valuable first."""
        there = [each for each in plan.free() if tier.name in each.tiers]
        return sorted(there, key=lambda one: (self.worth(plan.view, one, tier), one.artifact))


@attrs.define
class _Plan:
    """What is proposed so far, each checkpoint once."""

    view: TieringView
    filled: dict[str, int]
    """How full the tiers would be after it."""
    taken: dict[str, int]
    """How full they may be on the way: what is to go is there for a while."""
    found: dict[str, Proposal] = attrs.field(factory=dict)

    def free(self) -> list[CheckpointView]:
        """Return what may be moved, and is not to be moved yet."""
        return [
            each for each in self.view.checkpoints if each.tiers and not each.busy and each.artifact not in self.found
        ]

    def up(self, each: CheckpointView, tier: TierView, worth: float) -> None:
        """Propose a copy in a faster tier, as soon as there is room."""
        self.filled[tier.name] += each.size_bytes
        if self.taken[tier.name] + each.size_bytes <= tier.high_bytes:
            self.taken[tier.name] += each.size_bytes
            self.found[each.artifact] = Proposal(each.artifact, each.tiers[0], tier.name, True, worth, "it was thawed")

    def down(self, each: CheckpointView, tier: TierView, worth: float, why: str) -> None:
        """Propose that it goes to the next tier that has it, or has room."""
        for one in self.view.below(tier.name):
            there = one.name in each.tiers
            if there or self.taken[one.name] + each.size_bytes <= one.budget_bytes:
                coming = 0 if there else each.size_bytes
                self.filled[one.name] += coming
                self.taken[one.name] += coming
                self.filled[tier.name] -= each.size_bytes
                self.found[each.artifact] = Proposal(each.artifact, tier.name, one.name, False, worth, why)
                return


class LeastRecentlyUsed(ByWorth):
    """What was used last is worth most."""

    def worth(self, view: TieringView, checkpoint: CheckpointView, tier: TierView) -> float:
        """Return when it was used last."""
        return float(checkpoint.last_used_ns)


class GreedyDual(ByWorth):
    """What saves most seconds for each byte that it takes is worth most; more, if it was thawed often.

    Greedy-Dual-Size with frequency (Cherkasova 1998), with measured seconds as costs: what was demoted raises the
    floor that is under the worth of everything used after that, so what was popular once makes room in the end. Of the
    frequency it takes the root: in simulation that costs little where popularity lasts, and helps where it does not.
    """

    def worth(self, view: TieringView, checkpoint: CheckpointView, tier: TierView) -> float:
        """Return the floor of its last use, and the seconds saved for each byte since."""
        slower = view.below(tier.name)
        if not slower:
            return float("inf")
        size = max(1, checkpoint.size_bytes)
        saved = slower[0].speed.seconds(size) - tier.speed.seconds(size)
        often = math.sqrt(1 + checkpoint.uses)
        return checkpoint.floors.get(tier.name, 0.0) + often * max(0.0, saved) / size
