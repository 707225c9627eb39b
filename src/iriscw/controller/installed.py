"""Features of installed packages, found by the entry point group ``iriscw.features``.

What is installed beside iriscw is opened: whoever installs a feature wants it, and a name more in the configuration
would only be forgotten. A package that cannot be imported keeps a controller from starting, by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from iriscw._errors import UsageError

if TYPE_CHECKING:
    from iriscw.controller.feature import Feature

ENTRY_POINT_GROUP = "iriscw.features"


class AmbiguousFeature(UsageError):
    """Two installed packages offer a feature of the same name."""


class BrokenFeature(UsageError):
    """An installed package offers a feature that cannot be imported, or is no :class:`Feature`."""


def installed_features() -> Iterator[Feature]:
    """Yield the features of installed packages by their names.

    Raises:
        AmbiguousFeature: two packages offer one of the same name.
        BrokenFeature: one cannot be imported, or is no :class:`~iriscw.controller.feature.Feature`.
    """
    last = ""
    for each in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda each: (each.name, each.value)):
        if each.name == last:
            raise AmbiguousFeature(f"the feature {each.name!r} is offered by two installed packages")
        last = each.name
        yield load(each)


def load(offered: EntryPoint) -> Feature:
    """Import a feature.

    Raises:
        BrokenFeature: it cannot be imported, or is no :class:`~iriscw.controller.feature.Feature`.
    """
    from iriscw.controller.feature import Feature

    where = f"the feature {offered.name!r} ({offered.value})"
    try:
        feature = offered.load()
    except Exception as error:  # somebody else's module: whatever its import raises
        raise BrokenFeature(f"{where} cannot be imported: {type(error).__name__}: {error}") from error
    if not isinstance(feature, Feature):
        raise BrokenFeature(f"{where} is a {type(feature).__name__}, and must be a Feature")
    return feature
