"""What the actors of freezing accept, and what they and those of moves tell the world."""

from __future__ import annotations

import enum

from iriscw.freeze.model import FreezePlan, Outcome, ThawPlan
from iriscw.runtime.vocabulary import message


@message
class FreezeTree:
    """Freeze a tree. A second one is ignored."""

    plan: FreezePlan


@message
class ThawTree:
    """Bring a tree back. A second one is ignored."""

    plan: ThawPlan


@message
class CancelOperation:
    """Give it up: what was done is undone. One that is past the point of no return comes to its end."""

    text: str


@message
class Recover:
    """The process that ran this operation died in this phase: finish or undo, unless a cancellation came before."""

    phase: enum.Enum


@message
class Again:
    """It is time to try this effect again."""

    effect: object


@message
class OperationChanged:
    """An operation took a step. Published, for progress and metrics."""

    operation: str
    phase: enum.Enum


@message
class OperationEnded:
    """An operation ended, and owes nothing. Published once its last record is on the disk."""

    operation: str
    outcome: Outcome
    kind: str
    """The class of the error that turned it round; empty if none did."""
    text: str
    root: int = 0
    """The number of the first process of what was thawed, as it is seen here; 0 if nothing was."""
