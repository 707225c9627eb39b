"""The tiers that come with iriscw. No other module has their names: ``loading.py`` says which tiers there are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from iriscw.checkpoint.drivers.plug import TierContext, TierPlug, share_of
from iriscw.checkpoint.tiering.model import Speed

if TYPE_CHECKING:  # the help of a command needs the names of tiers, and no tier
    from iriscw.checkpoint.ports import Tier

RAM_SHARE = 0.5
"""Of the memory file system, for artifacts: the rest is everybody else's."""

DISK_SHARE = 0.8

RAM_VARIABLE = "IRISCW_RAM_DIR"


def _ram(context: TierContext) -> Tier:
    from iriscw.checkpoint.drivers.store import Folders

    said = context.environment.get(RAM_VARIABLE)
    place = context.folder or (
        Path(said).absolute() if said else Path("/dev/shm") / f"iriscw-{os.getuid()}"  # noqa: S108 - ours, mode 0700
    )
    budget = context.budget_bytes or share_of(place, RAM_SHARE)
    return Folders(context.name, place, budget, volatile=True, boot_id=context.boot_id, forget=context.forget)


def _disk(context: TierContext) -> Tier:
    from iriscw.checkpoint.drivers.store import Folders

    place = context.folder or context.state / "checkpoints"
    budget = context.budget_bytes or share_of(place, DISK_SHARE)
    return Folders(context.name, place, budget, forget=context.forget)


RAM: Final = "ram"
DISK: Final = "disk"

BUILT_IN: Final = {
    RAM: TierPlug(open=_ram, variable=RAM_VARIABLE),
    DISK: TierPlug(open=_disk),
}
"""By name; the first one is the default."""

BUILT_IN_SPEEDS: Final = {RAM: Speed(0.02, 1.02e9), DISK: Speed(0.02, 0.8e9)}
"""What a thaw from them takes until it was measured: docs/performance.md."""

DEFAULT_ROOM: Final = {RAM: "half of /dev/shm", DISK: "80% of its disk"}
"""What their budgets are if nobody says it, for the help."""
