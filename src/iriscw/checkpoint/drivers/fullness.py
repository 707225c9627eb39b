"""How full each place is where checkpoints can lie."""

from __future__ import annotations

import anyio.to_thread

from iriscw._errors import IriscwError
from iriscw.checkpoint.drivers.tiers import Tiers
from iriscw.checkpoint.model import ShownTier
from iriscw.checkpoint.ports import Repository, Tier


async def fullness(tiers: Tiers) -> list[ShownTier]:
    """Return all tiers, and the repository last. The trouble with one hides none of the others."""
    found = [await anyio.to_thread.run_sync(_of_tier, tier) for tier in tiers.folders.values()]
    return [*found, await _of_repository(tiers.repository)] if tiers.repository is not None else found


def _of_tier(tier: Tier) -> ShownTier:
    try:
        use, listed = tier.use(), tier.listing()
    except (IriscwError, OSError) as error:
        return ShownTier(tier.name, str(tier.root), trouble=str(error))
    sizes = (use.artifacts_bytes, use.reserved_bytes, use.budget_bytes, use.free_bytes)
    return ShownTier(use.tier, use.folder, len(listed), *sizes)


async def _of_repository(repository: Repository) -> ShownTier:
    try:
        stored, used = await repository.listing(), await repository.used_bytes()
    except (IriscwError, OSError) as error:
        return ShownTier(repository.name, repository.place, trouble=str(error))
    return ShownTier(repository.name, repository.place, len(stored), used)
