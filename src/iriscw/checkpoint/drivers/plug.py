"""What a tier is offered as, and what it is opened with: the same for built-in tiers and those of packages."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import attrs

if TYPE_CHECKING:  # the help of a command needs the names of tiers, and no tier
    from iriscw.checkpoint.ports import Tier


@attrs.frozen(kw_only=True)
class TierContext:
    """What a tier is opened with.

    Attributes:
        name: under which the tier is offered, and which it has.
        state: the state folder of this user's operations; what is the tier's own there has its name.
        environment: of the process.
        folder: where the caller wants the tier to lie; None: where the tier itself says.
        budget_bytes: what its artifacts may take; 0: what the tier itself says.
        boot_id: of the machine, for a tier that does not outlive a boot.
        forget: told of images that are being removed, and of where CRIU's logs are: what they hold elsewhere is to go,
            too.
    """

    name: str
    state: Path
    environment: Mapping[str, str]
    folder: Path | None
    budget_bytes: int
    boot_id: str
    forget: Callable[[Path, Path], None]


Opening: TypeAlias = "Callable[[TierContext], Tier]"


@attrs.frozen(kw_only=True)
class TierPlug:
    """What a module or a package offers.

    Attributes:
        open: returns the tier. It makes and changes nothing, and does not wait for a file system: every command opens
            all tiers.
        variable: the environment variable that says where the tier lies; empty: there is none.
    """

    open: Opening
    variable: str = ""


def share_of(place: Path, share: float) -> int:
    """Return a share of the file system that a folder is on, or will be on once it is made."""
    while not place.exists():
        place = place.parent
    found = os.statvfs(place)
    return int(found.f_blocks * found.f_frsize * share)
