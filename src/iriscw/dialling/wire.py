"""What both streams to a controller have on the wire."""

from __future__ import annotations

from iriscw.dialling.messages import TurnedAway
from iriscw.proto.iriscw import v1
from iriscw.runtime.vocabulary import MILLISECOND


def turned_away(refused: v1.Refused | v1.AgentRefused) -> TurnedAway:
    """Read a refusal."""
    reason = refused.reason.name or f"reason {int(refused.reason)}"
    return TurnedAway(reason.lower(), refused.text, max(0, refused.retry_after_ms) * MILLISECOND)
