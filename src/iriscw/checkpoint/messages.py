"""What the actor of a move accepts, beside what every operation does (:mod:`iriscw.freeze.messages`)."""

from __future__ import annotations

from iriscw.checkpoint.model import MovePlan
from iriscw.runtime.vocabulary import message


@message
class MoveCheckpoint:
    """Bring a checkpoint to another tier. A second one is ignored."""

    plan: MovePlan
