"""What an agent that died left in its journal: operations that are owed, and such that only have to be cleaned up."""

from __future__ import annotations

import logging

import attrs

from iriscw.agent.claims import frozen_by_us, thawed_by_us
from iriscw.agent.operations import OPERATIONS, Asked, OperationKind
from iriscw.checkpoint.model import MovePlan
from iriscw.checkpoint.records import MoveAccepted, MoveEnded
from iriscw.freeze.messages import OperationEnded
from iriscw.freeze.model import Container, FreezePlan, Outcome, ThawPlan
from iriscw.freeze.records import FreezeAccepted, FreezeEnded, ThawAccepted, ThawEnded, ThawRestored
from iriscw.journal.errors import UnreadableRecord
from iriscw.journal.port import Journal

log = logging.getLogger(__name__)


@attrs.frozen
class Known:
    """An operation, its artifact, and the tier that it writes to, or that it was told to read from.

    A move has a place of a caller that it was told to read from beside.
    """

    asked: Asked
    artifact: str
    tier: str
    container: Container | None = None
    """What it freezes or brings back, if that is one."""
    source: str = ""
    ended: OperationEnded | None = None
    """How it ended, where only the cleaning up is left."""


@attrs.frozen
class AgentLeftovers:
    """What an earlier agent left."""

    owed: tuple[Known, ...] = ()
    over: tuple[Known, ...] = ()
    """It ended, and nobody has cleaned up after it."""


def known_of(plan: FreezePlan | ThawPlan | MovePlan) -> Known:
    """Say what is known of an operation by its plan."""
    if isinstance(plan, FreezePlan):
        asked = Asked(plan.operation, OperationKind.FREEZE, frozen_by_us(plan.root))
        return Known(asked, plan.operation, plan.tier, plan.container)
    if isinstance(plan, MovePlan):
        asked = Asked(plan.operation, OperationKind.MOVE, thawed_by_us(plan.artifact))
        return Known(asked, plan.artifact, plan.target, source=plan.source)
    return Known(
        Asked(plan.operation, OperationKind.THAW, thawed_by_us(plan.artifact)), plan.artifact, plan.tier, plan.container
    )


def left_in(journal: Journal) -> AgentLeftovers:
    """Read it off the journal. What cannot be read is logged and stays: it must not keep the others.

    Raises:
        JournalCorrupt, JournalLost, JournalClosed: nothing can be read.
    """
    left = AgentLeftovers()
    for path in journal.paths():
        above, _, name = path.rpartition("/")
        if above != OPERATIONS:
            continue
        try:
            left = _with(left, journal.read(path), name)
        except UnreadableRecord as error:
            log.warning("operation %s cannot be taken up: %s", name, error)
    return left


def _with(left: AgentLeftovers, records: list[object], name: str) -> AgentLeftovers:
    match records:
        case [FreezeAccepted(plan=plan) | ThawAccepted(plan=plan) | MoveAccepted(plan=plan), *_]:
            known = known_of(plan)
        case _:
            log.warning("operation %s cannot be taken up: its records have no beginning", name)
            return left
    if isinstance(last := records[-1], FreezeEnded | ThawEnded | MoveEnded):
        tasks = next((each.tasks for each in records if isinstance(each, ThawRestored)), ())
        root = tasks[0].pid if tasks and last.outcome is Outcome.THAWED else 0
        ended = OperationEnded(known.asked.operation, last.outcome, last.kind, last.text, root)
        return attrs.evolve(left, over=(*left.over, attrs.evolve(known, ended=ended)))
    return attrs.evolve(left, owed=(*left.owed, known))
