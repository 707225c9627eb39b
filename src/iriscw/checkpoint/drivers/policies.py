"""Which tiering policies there are by name, and what the tiers look like to one."""

from __future__ import annotations

import logging
import pkgutil
from collections.abc import Mapping
from typing import Final

import anyio.to_thread
import attrs

from iriscw._errors import IriscwError, OperationError, UsageError
from iriscw.checkpoint.drivers.built_in import BUILT_IN_SPEEDS
from iriscw.checkpoint.drivers.loading import REPOSITORY
from iriscw.checkpoint.drivers.tiers import Tiers, tier_use
from iriscw.checkpoint.model import ListedArtifact, TierUse
from iriscw.checkpoint.ports import Tier
from iriscw.checkpoint.tiering.model import Speed, TieringPolicy, TieringView, Watermarks
from iriscw.checkpoint.tiering.policies import GreedyDual, LeastRecentlyUsed
from iriscw.checkpoint.tiering.usage import UsageLedger, tier_views, view_of

log = logging.getLogger(__name__)

POLICIES: Final[Mapping[str, type[TieringPolicy]]] = {"greedy-dual": GreedyDual, "lru": LeastRecentlyUsed}
"""Those that come with iriscw."""

SPEEDS: Final[Mapping[str, Speed]] = {**BUILT_IN_SPEEDS, REPOSITORY: Speed(0.5, 0.15e9)}
"""Until something was measured; that of an object store is a guess."""


class NoTieringPolicy(UsageError, LookupError):
    """There is no tiering policy of this name, or what is there is none."""


class TieringPolicyFailed(OperationError):
    """A tiering policy raised, or gave what is no answer. Nothing is moved for it."""


def first_ledger() -> UsageLedger:
    """Return what is known before anything happened."""
    return UsageLedger(speeds=dict(SPEEDS))


def tiering_policy(name: str) -> TieringPolicy:
    """Return a policy by its name, or by ``module:attribute``: an object, or a class that is called with nothing.

    Raises:
        NoTieringPolicy: there is none of this name, it cannot be imported, or has not both methods.
    """
    made: object
    if name in POLICIES:
        made = POLICIES[name]
    elif ":" not in name:
        raise NoTieringPolicy(
            f"there is no tiering policy {name[:80]!r}: there are {', '.join(POLICIES)}, or MODULE:NAME"
        )
    else:
        try:
            made = pkgutil.resolve_name(name)
        except Exception as error:  # somebody else's module: whatever its import raises
            why = f"{type(error).__name__}: {error}"
            raise NoTieringPolicy(f"the tiering policy {name[:80]!r} cannot be imported: {why}") from error
    try:
        policy = made() if isinstance(made, type) else made
    except Exception as error:  # likewise
        why = f"{type(error).__name__}: {error}"
        raise NoTieringPolicy(f"the tiering policy {name[:80]!r} cannot be made: {why}") from error
    if not (callable(getattr(policy, "balance", None)) and callable(getattr(policy, "admit", None))):
        raise NoTieringPolicy(f"{name[:80]!r} is no tiering policy: it needs the methods balance and admit")
    return policy  # type: ignore[return-value]  # as far as anybody can tell


@attrs.frozen(kw_only=True)
class Under:
    """What is under way while the tiers are looked at. See :func:`~iriscw.checkpoint.tiering.usage.view_of`."""

    moved: tuple[str, ...] = ()
    moving: int = 0
    demands: int = 0
    leaving: Mapping[str, int] = attrs.field(factory=dict)
    """What running moves are about to remove, by tier."""
    wanted: Mapping[str, int] = attrs.field(factory=dict)
    """What somebody waits to have fetched into a tier."""


async def look(
    tiers: Tiers, ledger: UsageLedger, marks: Mapping[str, Watermarks], under: Under
) -> tuple[UsageLedger, TieringView]:
    """Look at all tiers, and at the repository; return what is remembered now, and what a policy is shown.

    What cannot be read is not there for a policy: nothing goes to it, and a copy in it is no reason to drop another.
    """
    uses, listed = list[TierUse](), list[ListedArtifact]()
    for folders in tiers.folders.values():
        use = await anyio.to_thread.run_sync(tier_use, folders)
        copies = await anyio.to_thread.run_sync(_copies, folders) if use is not None else None
        if use is not None and copies is not None:
            wanted = use.reserved_bytes + under.wanted.get(use.tier, 0)
            uses.append(attrs.evolve(use, reserved_bytes=wanted))
            listed += copies
    repository = ""
    if tiers.repository is not None:
        try:
            listed += await tiers.stored()
            repository = tiers.repository.name
        except (IriscwError, OSError) as error:
            log.warning("the repository is passed over: %s", error)
    seen = tier_views(ledger, uses, marks=marks, leaving=under.leaving, repository=repository)
    now = ledger.only(dict.fromkeys(each.artifact for each in listed)) if _all_read(tiers, uses, repository) else ledger
    now = now.looked(seen)
    view = view_of(now, seen, listed, moved=under.moved, moving=under.moving, demands=under.demands)
    return now, view


def _all_read(tiers: Tiers, uses: list[TierUse], repository: str) -> bool:
    return len(uses) == len(tiers.folders) and bool(repository) == (tiers.repository is not None)


def _copies(folders: Tier) -> list[ListedArtifact] | None:
    try:
        return folders.listing()
    except (IriscwError, OSError) as error:
        log.info("tier %s is passed over: %s", folders.name, error)
        return None
