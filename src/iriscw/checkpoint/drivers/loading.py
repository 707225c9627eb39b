"""Which tiers there are: the built-in ones, and those of installed packages.

A package offers a :class:`~iriscw.checkpoint.drivers.plug.TierPlug` under the entry point group ``iriscw.tiers``. Its
module is imported when the tiers are opened, and not to list their names.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from iriscw._errors import IriscwError, UsageError
from iriscw.checkpoint.drivers.built_in import BUILT_IN
from iriscw.checkpoint.drivers.plug import TierContext, TierPlug
from iriscw.plugs import Plugs

if TYPE_CHECKING:  # the help of a command needs the names of tiers, and no tier
    from iriscw.checkpoint.ports import Tier

TIER_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")
"""What a tier may be called: it is a word of the wire, of metrics and of options, and the name of a file."""

JOURNAL = "journal"
"""What no tier may be called: it lies where an operation notes the places of tiers under their names."""

REPOSITORY = "repository"
"""What no tier may be called: users name the object store so that holds checkpoints."""


ARCHIVE = "archive"
"""What no tier may be called: a checkpoint that is imported comes from there, by the records of its move."""

REPOSITORY_VARIABLE = "IRISCW_REPOSITORY"
"""The environment variable that names one: a URL such as ``s3://bucket/prefix``."""


class NoSuchTier(UsageError, LookupError):
    """There is no tier of this name."""


class NoRepository(UsageError, LookupError):
    """A repository is asked for, and none was named."""


class AmbiguousTier(UsageError):
    """Several installed packages offer a tier of this name, or one offers a tier with the name of a built-in one."""


class BrokenTier(UsageError):
    """A package offers a tier of this name, but it cannot be imported or opened, or is no :class:`TierPlug`."""


TIERS = Plugs(
    group="iriscw.tiers",
    thing="tier",
    kind=TierPlug,
    missing=NoSuchTier,
    ambiguous=AmbiguousTier,
    broken=BrokenTier,
    built_in=BUILT_IN,
)


def tier_names() -> tuple[str, ...]:
    """Return the names of all tiers, in the order of preference: built-in ones, then those of packages by name."""
    return TIERS.names()


def default_tier() -> str:
    """Return the name of the tier that is meant where none is named."""
    return tier_names()[0]


def no_such_tier(name: str) -> str:
    """Return what is said of a name that no tier has."""
    return TIERS.no_such(name)


def named_tier(name: str) -> str:
    """Return the name of a tier that there is: the one given, or the default for none.

    Raises:
        NoSuchTier: there is none of this name; the error lists those there are.
    """
    name = name or default_tier()
    if name not in tier_names():
        raise NoSuchTier(no_such_tier(name))
    return name


def named_place(name: str) -> str:
    """Return the name of a tier that there is, or of the repository.

    Raises:
        NoSuchTier: there is none of this name; the error lists those there are.
    """
    return name if name == REPOSITORY else named_tier(name)


def load_tier(name: str) -> TierPlug:
    """Return what is offered as the tier ``name``.

    Raises:
        NoSuchTier: there is none; the error lists those there are.
        AmbiguousTier: several packages offer it, or it has the name of a built-in one.
        BrokenTier: it cannot be imported, or is no :class:`TierPlug`.
    """
    plug = TIERS.load(name)
    if not TIER_NAME.fullmatch(name) or name in (JOURNAL, REPOSITORY, ARCHIVE):
        raise BrokenTier(f"{name[:80]!a} is not a valid tier name: small letters, digits and '-'")
    return plug


def open_tier(context: TierContext) -> Tier:
    """Open the tier that a context names.

    Raises:
        NoSuchTier, AmbiguousTier: see :func:`load_tier`.
        BrokenTier: as there, or opening it failed, or it calls itself something else.
    """
    plug = load_tier(context.name)
    try:
        tier = plug.open(context)
    except IriscwError:
        raise
    except Exception as error:  # somebody else's module
        raise BrokenTier(f"the tier {context.name!r} cannot be opened: {type(error).__name__}: {error}") from error
    if tier.name != context.name:
        raise BrokenTier(f"the tier {context.name!r} calls itself {str(tier.name)[:80]!r}")
    return tier
