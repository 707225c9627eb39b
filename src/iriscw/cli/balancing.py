"""``tiers --balance``: what a tiering policy would move, and moving it; and the options that say by which policy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from iriscw.checkpoint.drivers.loading import tier_names
from iriscw.cli.freeze_shown import decimal_size, progress, refuse_options
from iriscw.cli.output import cell

if TYPE_CHECKING:
    from iriscw.agent.local import Local
    from iriscw.checkpoint.tiering.guard import Answer
    from iriscw.checkpoint.tiering.model import Proposal, TieringPolicy, TieringView, Watermarks
    from iriscw.checkpoint.tiering.usage import UsageLedger

DEFAULT_POLICY: Final = "greedy-dual"

MOST_SHOWN = 1024
"""Moves of a dry run: as many as a policy may propose."""


class MarksType(click.ParamType["tuple[str, Watermarks]"]):
    """Text such as ``ram=70-90`` to a tier and its watermarks."""

    name = "marks"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Watermarks]:
        """Read it."""
        from iriscw.checkpoint.tiering.model import Watermarks

        if isinstance(value, tuple):
            return value
        tier, _, marks = str(value).partition("=")
        low, _, high = marks.partition("-")
        if tier not in tier_names():
            self.fail(f"{value!r}: there is no tier {tier!r}: there are {', '.join(tier_names())}", param, ctx)
        try:
            return tier, Watermarks(int(low) / 100, int(high) / 100)
        except ValueError:
            self.fail(f"{value!r} is not like ram=70-90: percents of its budget, the lower one first", param, ctx)


def policy_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say by which policy tiers are balanced, and between which marks."""
    function = click.option(
        "--watermarks",
        "marks",
        metavar="TIER=LOW-HIGH",
        type=MarksType(),
        multiple=True,
        help="With --balance: a tier that is fuller than HIGH percent of its budget is emptied to LOW. May "
        "be repeated. Default: 70-90.",
    )(function)
    return click.option(
        "--policy",
        metavar="NAME",
        help=f"With --balance: greedy-dual, lru, or MODULE:ATTRIBUTE.  [default: {DEFAULT_POLICY}]",
    )(function)


def refuse_without_balance(policy: str | None, marks: Sequence[object], *, dry_run: bool = False) -> None:
    """Refuse what says how tiers are balanced where nobody asked for that.

    Raises:
        click.UsageError: one of them was given.
    """
    given = {"policy": policy, "watermarks": marks, "dry_run": dry_run}
    refuse_options(given, tuple(given), "only with --balance")


@attrs.frozen
class How:
    """How tiers are balanced by hand."""

    policy: str
    marks: Mapping[str, Watermarks]
    dry_run: bool


@attrs.frozen
class BalancedCheckpoint:
    """A checkpoint that a policy would have moved, and what became of that."""

    checkpoint: str
    move: str
    """``demote``, ``drop``, ``promote`` or ``copy``."""
    source: str
    target: str
    size_bytes: int
    why: str
    """What the policy says."""
    outcome: str
    """``moved``, ``copied`` or ``stayed``; ``planned`` in a dry run; why it was refused."""


BALANCED_COLUMNS: dict[str, Callable[[BalancedCheckpoint], object]] = {
    "CHECKPOINT": lambda each: each.checkpoint,
    "MOVE": lambda each: each.move,
    "FROM": lambda each: each.source,
    "TO": lambda each: each.target,
    "SIZE": lambda each: decimal_size(each.size_bytes),
    "OUTCOME": lambda each: cell(each.outcome),
    "WHY": lambda each: cell(each.why),
}


async def balance(local: Local, how: How) -> list[BalancedCheckpoint]:
    """Have a policy move what it wants to, one after the other, each checkpoint once; or only say what that would be.

    Raises:
        NoTieringPolicy: there is none of this name.
        TieringPolicyFailed: it raised; what was moved before is told.
    """
    from iriscw.agent.balancing import remembered
    from iriscw.checkpoint.drivers.policies import tiering_policy

    policy = tiering_policy(how.policy)
    ledger = remembered(local.state / "agent" / "usage.json")
    done: dict[str, BalancedCheckpoint] = {}
    while True:
        ledger, view, answer = await _asked(local, policy, how, ledger, tuple(done))
        rows = _rows(view, answer)
        if how.dry_run:
            return rows
        if not answer.moves:
            return [*done.values(), *(each for each in rows if each.checkpoint not in done)]
        for row, (proposal, _) in zip(rows, answer.moves, strict=False):
            outcome = await _moved(local, proposal)
            done[row.checkpoint] = attrs.evolve(row, outcome=outcome)
            sys.stderr.write(f"iriscw: {row.move} of {row.checkpoint} from {row.source} to {row.target}: {outcome}\n")
            if not proposal.keep:
                ledger = ledger.demoted(proposal.source, proposal.worth)


async def _asked(
    local: Local, policy: TieringPolicy, how: How, ledger: UsageLedger, moved: tuple[str, ...]
) -> tuple[UsageLedger, TieringView, Answer]:
    from iriscw.checkpoint.drivers.policies import TieringPolicyFailed, Under, look
    from iriscw.checkpoint.tiering.guard import ask

    ledger, view = await look(local.machine.tiers, ledger, how.marks, Under(moved=moved))
    answer = ask(policy, view, MOST_SHOWN if how.dry_run else 1)
    if answer.error:
        raise TieringPolicyFailed(f"the tiering policy {how.policy} failed: {answer.error}")
    return ledger, view, answer


def _rows(view: TieringView, answer: Answer) -> list[BalancedCheckpoint]:
    """Return what is let through, then what is refused for good."""
    from iriscw.checkpoint.tiering.model import WAITS

    sizes = {each.artifact: each.size_bytes for each in view.checkpoints}

    def row(proposal: Proposal, move: str, outcome: str) -> BalancedCheckpoint:
        size = sizes.get(proposal.artifact, 0)
        return BalancedCheckpoint(
            proposal.artifact, move, proposal.source, proposal.target, size, proposal.why, outcome
        )

    planned = [row(proposal, reason.value, "planned") for proposal, reason in answer.moves]
    refused = [
        row(each.proposal, "", f"refused: {each.refusal.value}") for each in answer.refused if each.refusal not in WAITS
    ]
    return [*planned, *refused]


async def _moved(local: Local, proposal: Proposal) -> str:
    """Move one; return how that ended. That somebody uses it by now is no reason to end."""
    from iriscw._errors import OperationError
    from iriscw.agent.local import new_id
    from iriscw.checkpoint.messages import MoveCheckpoint
    from iriscw.checkpoint.model import MovePlan

    plan = MovePlan(new_id("mv"), proposal.artifact, proposal.target, proposal.keep, proposal.source)
    try:
        with progress() as shown:
            end = await local.run(MoveCheckpoint(plan), report=shown.report, changed=shown.changed)
    except OperationError as error:
        return f"stayed: {error}"
    return f"{end.outcome.value}: {end.text}" if end.text else end.outcome.value
