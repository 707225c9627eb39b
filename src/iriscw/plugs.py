"""What installed packages offer to iriscw under its entry points: platforms, tiers, features, object stores.

Names are listed without importing anything. What a name stands for is imported when it is asked for; whatever is wrong
with it is then an error that names it, so nothing that is installed is silently left out.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

import attrs

from iriscw._errors import UsageError

T = TypeVar("T")

MAX_NAME_CHARS = 80
"""Of a name that somebody asked for, in an error."""


@attrs.frozen(kw_only=True)
class Plugs(Generic[T]):
    """What packages offer of one kind.

    Args:
        group: the entry point group.
        thing: what one of them is called in errors.
        kind: the class that each has to be of.
        missing: the error for a name that nobody offers.
        ambiguous: for one that several offer.
        broken: for what cannot be imported, or is of another class.
        built_in: those that come with iriscw; a package must not offer one of their names.
    """

    group: str
    thing: str
    kind: type[T]
    missing: type[UsageError]
    ambiguous: type[UsageError]
    broken: type[UsageError]
    built_in: Mapping[str, T] = attrs.field(factory=dict)

    def names(self) -> tuple[str, ...]:
        """Return all names: the built-in ones in their order, then those of packages, sorted."""
        return (*self.built_in, *sorted({*offered(self.group)} - {*self.built_in}))

    def no_such(self, name: str) -> str:
        """Return what is said of a name that nobody offers."""
        there = self.names()
        known = f"there are {', '.join(there)}" if there else "no installed package has one"
        return f"there is no {self.thing} {name[:MAX_NAME_CHARS]!r}: {known}"

    def load(self, name: str) -> T:
        """Return what is offered under a name.

        Raises:
            UsageError: one of the three errors for what is missing, ambiguous or broken.
        """
        found = offered(self.group).get(name, ())
        if name in self.built_in and not found:
            return self.built_in[name]
        if not found:
            raise self.missing(self.no_such(name))
        if len(found) > 1 or name in self.built_in:
            packages = {str(each.dist.name if each.dist else each.value) for each in found}
            by = sorted({*packages, "iriscw"} if name in self.built_in else packages)
            raise self.ambiguous(f"the {self.thing} {name!r} is offered by: {', '.join(by)}")
        where = f"the {self.thing} {name!r} ({found[0].value})"
        try:
            plug = found[0].load()
        except Exception as error:  # somebody else's module: whatever its import raises
            raise self.broken(f"{where} cannot be imported: {type(error).__name__}: {error}") from error
        if not isinstance(plug, self.kind):
            raise self.broken(f"{where} is a {type(plug).__name__}, and must be a {self.kind.__name__}")
        return plug


@functools.cache  # what is installed stays, and looking through it takes 16 ms
def offered(group: str) -> Mapping[str, tuple[EntryPoint, ...]]:
    """Return what packages offer under a group, by name."""
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for each in entry_points(group=group):
        found[each.name] = (*found.get(each.name, ()), each)
    return found
