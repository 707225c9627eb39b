"""Which tiers there are: the built-in ones, and those of installed packages.

A package offers a :class:`~iriscw.checkpoint.drivers.plug.TierPlug` under the entry point group ``iriscw.tiers``. Its
module is imported when the tiers are opened, and not to list their names.
"""

from __future__ import annotations

import functools
import re
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from iriscw._errors import IriscwError, UsageError
from iriscw.checkpoint.drivers.built_in import BUILT_IN
from iriscw.checkpoint.drivers.plug import TierContext, TierPlug

if TYPE_CHECKING:  # the help of a command needs the names of tiers, and no tier
    from iriscw.checkpoint.ports import Tier

ENTRY_POINT_GROUP = "iriscw.tiers"

TIER_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")
"""What a tier may be called: it is a word of the wire, of metrics and of options, and the name of a file."""

JOURNAL = "journal"
"""What no tier may be called: it lies where an operation notes the places of tiers under their names."""


class NoSuchTier(UsageError, LookupError):
    """There is no tier of this name."""


class AmbiguousTier(UsageError):
    """Several installed packages offer a tier of this name, or one offers a tier with the name of a built-in one."""


class BrokenTier(UsageError):
    """A package offers a tier of this name, but it cannot be imported or opened, or is no :class:`TierPlug`."""


def tier_names() -> tuple[str, ...]:
    """Return the names of all tiers, in the order of preference: built-in ones, then those of packages by name."""
    return (*BUILT_IN, *sorted({*_offered()} - {*BUILT_IN}))


def default_tier() -> str:
    """Return the name of the tier that is meant where none is named."""
    return tier_names()[0]


def no_such_tier(name: str) -> str:
    """Return what is said of a name that no tier has."""
    return f"there is no tier {name[:80]!r}: there are {', '.join(tier_names())}"


def named_tier(name: str) -> str:
    """Return the name of a tier that there is: the one given, or the default for none.

    Raises:
        NoSuchTier: there is none of this name; the error lists those there are.
    """
    name = name or default_tier()
    if name not in tier_names():
        raise NoSuchTier(no_such_tier(name))
    return name


def load_tier(name: str) -> TierPlug:
    """Return what is offered as the tier ``name``.

    Raises:
        NoSuchTier: there is none; the error lists those there are.
        AmbiguousTier: several packages offer it, or it has the name of a built-in one.
        BrokenTier: it cannot be imported, or is no :class:`TierPlug`.
    """
    found = _offered().get(name, [])
    if name in BUILT_IN and not found:
        return BUILT_IN[name]
    if not found:
        raise NoSuchTier(no_such_tier(name))
    if len(found) > 1 or name in BUILT_IN:
        packages = {str(each.dist.name if each.dist else each.value) for each in found}
        both = sorted({*packages, "iriscw"} if name in BUILT_IN else packages)
        raise AmbiguousTier(f"the tier {name!r} is offered by: {', '.join(both)}")
    if not TIER_NAME.fullmatch(name) or name == JOURNAL:
        raise BrokenTier(f"{name[:80]!a} ({found[0].value}) is not a valid tier name: small letters, digits and '-'")
    try:
        plug = found[0].load()
    except Exception as error:  # somebody else's module: whatever its import raises
        why = f"{type(error).__name__}: {error}"
        raise BrokenTier(f"the tier {name!r} ({found[0].value}) cannot be imported: {why}") from error
    if not isinstance(plug, TierPlug):
        raise BrokenTier(f"the tier {name!r} ({found[0].value}) is a {type(plug).__name__}, and must be a TierPlug")
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


@functools.cache  # what is installed stays, and looking through it takes 16 ms
def _offered() -> dict[str, list[EntryPoint]]:
    found = dict[str, list[EntryPoint]]()
    for each in entry_points(group=ENTRY_POINT_GROUP):
        found.setdefault(each.name, []).append(each)
    return found
