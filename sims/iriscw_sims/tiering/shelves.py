"""A machine's tiers in memory, beside the real ledger and the real guard: what property tests and replays move in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from iriscw.checkpoint.drivers.loading import REPOSITORY
from iriscw.checkpoint.drivers.policies import first_ledger
from iriscw.checkpoint.model import ListedArtifact, Manifest, TierUse
from iriscw.checkpoint.tiering.guard import Answer, ask
from iriscw.checkpoint.tiering.model import MoveReason, Proposal, TieringPolicy, TieringView, Watermarks
from iriscw.checkpoint.tiering.usage import UsageLedger, tier_views, view_of
from iriscw.freeze.model import CriuAbility, CriuOptions, FrozenTree, ImageHost, Sealed

_TREE = FrozenTree(
    host=ImageHost("boot-1", "x86_64", 4096, "6.1", "node-1", ()),
    criu=CriuAbility("criu", "4.2"),
    options=CriuOptions(),
    tasks=(),
)
MANIFEST = Manifest("ck", (), "", 0, "sha256", _TREE, (), Sealed(0, "", 0))
"""What all of them are: nothing here looks into one."""


@attrs.define
class Shelves:
    """Which tiers hold a copy of which checkpoint.

    ``budgets`` are in the order of speed; ``backed``: there is a repository behind them.
    """

    budgets: Mapping[str, int]
    sizes: Mapping[str, int]
    copies: dict[str, list[str]]
    backed: bool = True
    marks: Mapping[str, Watermarks] = attrs.field(factory=dict)
    ledger: UsageLedger = attrs.field(factory=first_ledger)
    used_by: dict[str, str] = attrs.field(factory=dict)
    reserved: dict[str, int] = attrs.field(factory=dict)
    """What somebody waits to have fetched into a tier."""
    moved: list[str] = attrs.field(factory=list)
    """In this round."""

    def used_bytes(self, tier: str) -> int:
        """Return what a tier holds."""
        return sum(self.sizes[each] for each, tiers in self.copies.items() if tier in tiers)

    def view(self, *, moving: int = 0, demands: int = 0) -> TieringView:
        """Look, as an agent does."""
        uses = [
            TierUse(tier, "", budget, self.used_bytes(tier), self.reserved.get(tier, 0), budget)
            for tier, budget in self.budgets.items()
        ]
        repository = REPOSITORY if self.backed else ""
        tiers = tier_views(self.ledger, uses, marks=self.marks, leaving={}, repository=repository)
        self.ledger = self.ledger.looked(tiers)
        listed = [
            ListedArtifact(each, tier, self.sizes[each], MANIFEST, pinned_by=self._pins(each))
            for each, tiers in self.copies.items()
            for tier in tiers
        ]
        return view_of(self.ledger, tiers, listed, moved=self.moved, moving=moving, demands=demands)

    def _pins(self, artifact: str) -> tuple[str, ...]:
        return (self.used_by[artifact],) if artifact in self.used_by else ()

    def carry_out(self, proposal: Proposal, reason: MoveReason) -> None:
        """Move at once."""
        copies = self.copies[proposal.artifact]
        if proposal.target not in copies:
            copies.append(proposal.target)
        if not proposal.keep:
            copies.remove(proposal.source)
            self.ledger = self.ledger.demoted(proposal.source, proposal.worth)
        self.moved.append(proposal.artifact)

    def round(self, policy: TieringPolicy, limit: int = 1) -> Sequence[Answer]:
        """Ask and move until nothing is let through; return all answers."""
        self.moved.clear()
        answers = [ask(policy, self.view(), limit)]
        while answers[-1].moves:
            for proposal, reason in answers[-1].moves:
                self.carry_out(proposal, reason)
            answers.append(ask(policy, self.view(), limit))
        return answers
