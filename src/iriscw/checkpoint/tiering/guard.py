"""What stands between a policy and the checkpoints: no policy loses one, whatever it proposes. Pure.

Theory of operation. A policy proposes, :func:`guarded` lets through what is harmless, and names and counts the rest:

* a copy goes only where another whole one lies in a slower tier, or comes to lie there first;
* nobody touches what is used, and no checkpoint is moved twice in a round;
* no tier gets more than its budget; what is only to be faster, not more than its high mark;
* at most ``limit`` moves run at once, and none begins while somebody waits for a thaw.

A round begins with something that happened outside: a freeze, a thaw, a removal, a start. Within it each checkpoint is
moved at most once, so a round ends whatever the policy is; with watermarks a good one has nothing more to propose long
before.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from itertools import islice

import attrs

from iriscw._errors import as_failure
from iriscw.checkpoint.tiering.model import (
    CheckpointView,
    MoveReason,
    MoveRefusal,
    Proposal,
    TieringPolicy,
    TieringView,
)

MAX_PROPOSALS = 1024
"""Of one answer; what comes after that is not looked at."""

MAX_ERROR_CHARS = 200
"""Of what a policy raised: one line of a log."""


@attrs.frozen
class Refused:
    """A proposal, and why it is not carried out."""

    proposal: Proposal
    refusal: MoveRefusal


@attrs.frozen
class Answer:
    """What came of asking a policy."""

    moves: tuple[tuple[Proposal, MoveReason], ...] = ()
    refused: tuple[Refused, ...] = ()
    error: str = ""
    """What the policy raised, or gave that is no answer; empty if nothing. Nothing is moved then."""


def ask(policy: TieringPolicy, view: TieringView, limit: int) -> Answer:
    """Ask a policy what to move, whatever it does."""
    try:
        given: tuple[object, ...] = tuple(islice(policy.balance(view), MAX_PROPOSALS))
        proposals = tuple(each for each in given if isinstance(each, Proposal))
        if len(proposals) < len(given):
            return Answer(error="it gave something that is no Proposal")
        return guarded(view, proposals, limit)
    except BaseException as raised:  # noqa: BLE001 - it is somebody else's code; what it raised is reported
        return Answer(error=_told(raised))


def admitted(policy: TieringPolicy, view: TieringView, size_bytes: int) -> tuple[str, str]:
    """Return the tier that a policy has something fetched into, and what it raised; no tier if that has no room."""
    try:
        tier = view.tier(policy.admit(view, size_bytes))
    except BaseException as raised:  # noqa: BLE001 - as above
        return "", _told(raised)
    roomy = tier is not None and tier.used_bytes + tier.reserved_bytes + size_bytes <= tier.budget_bytes
    return tier.name if tier is not None and roomy else "", ""


def guarded(view: TieringView, proposals: tuple[Proposal, ...], limit: int) -> Answer:
    """Let through what is harmless, beside what runs and what was let through before it."""
    known = {each.artifact: each for each in view.checkpoints}
    moves: list[tuple[Proposal, MoveReason]] = []
    refused: list[Refused] = []
    coming: dict[str, int] = {}
    for proposal in proposals:
        checkpoint = known.get(proposal.artifact)
        refusal = _refusal(view, proposal, checkpoint, coming)
        if refusal is None and view.moving + len(moves) >= limit:
            refusal = MoveRefusal.TOO_MANY
        if refusal is not None or checkpoint is None:
            refused.append(Refused(proposal, refusal or MoveRefusal.UNKNOWN))
            continue
        moves.append((proposal, reason_of(view, checkpoint, proposal)))
        known[proposal.artifact] = attrs.evolve(checkpoint, busy="it is about to be moved")
        if proposal.target not in checkpoint.tiers:
            coming[proposal.target] = coming.get(proposal.target, 0) + checkpoint.size_bytes
    return Answer(tuple(moves), tuple(refused))


def reason_of(view: TieringView, checkpoint: CheckpointView, proposal: Proposal) -> MoveReason:
    """Say what a proposal is."""
    slower = any(each.name == proposal.target for each in view.below(proposal.source))
    if proposal.keep:
        return MoveReason.COPY if slower else MoveReason.PROMOTE
    return MoveReason.DROP if proposal.target in checkpoint.tiers else MoveReason.DEMOTE


def _refusal(
    view: TieringView, proposal: Proposal, checkpoint: CheckpointView | None, coming: Mapping[str, int]
) -> MoveRefusal | None:
    target = view.tier(proposal.target)
    if checkpoint is None or target is None or proposal.source not in checkpoint.tiers:
        return MoveRefusal.UNKNOWN
    if view.tier(proposal.source) is None:
        return MoveRefusal.UNKNOWN
    there = proposal.target in checkpoint.tiers
    if proposal.source == proposal.target or (proposal.keep and there):
        return MoveRefusal.POINTLESS
    if checkpoint.busy:
        return MoveRefusal.IN_USE
    slower = any(each.name == proposal.target for each in view.below(proposal.source))
    if not (proposal.keep or slower):
        return MoveRefusal.LAST_COPY
    if not there:
        most = target.budget_bytes if slower else target.high_bytes
        holds = target.used_bytes + target.reserved_bytes + coming.get(target.name, 0)
        if holds + checkpoint.size_bytes > most:
            return MoveRefusal.NO_ROOM
    return MoveRefusal.DEMAND_FIRST if view.demands else None


def _told(raised: BaseException) -> str:
    return "".join(traceback.format_exception_only(as_failure(raised))).strip()[:MAX_ERROR_CHARS]
