"""A tier of a package of its own: a loft, which is where ``$LOFT_DIR`` says, or below the state folder."""

from __future__ import annotations

from pathlib import Path

from iriscw.checkpoint.drivers.plug import TierContext, TierPlug, share_of
from iriscw.checkpoint.drivers.store import Folders
from iriscw.checkpoint.ports import Tier

SHARE = 0.25
"""Of its file system, for checkpoints."""


def _open(context: TierContext) -> Tier:
    said = context.environment.get("LOFT_DIR")
    place = context.folder or (Path(said).absolute() if said else context.state / context.name)
    return Folders(context.name, place, context.budget_bytes or share_of(place, SHARE), forget=context.forget)


loft = TierPlug(open=_open, variable="LOFT_DIR")
