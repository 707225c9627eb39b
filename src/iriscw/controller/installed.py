"""Features of installed packages, found by the entry point group ``iriscw.features``.

What is installed beside iriscw is opened: whoever installs a feature wants it, and a name more in the configuration
would only be forgotten. A package that cannot be imported keeps a controller from starting, by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from iriscw._errors import UsageError
from iriscw.plugs import Plugs

if TYPE_CHECKING:
    from iriscw.controller.feature import Feature


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
    from iriscw.controller.feature import Feature

    features = Plugs(
        group="iriscw.features",
        thing="feature",
        kind=Feature,
        missing=BrokenFeature,  # only names that are offered are asked for
        ambiguous=AmbiguousFeature,
        broken=BrokenFeature,
    )
    for name in features.names():
        yield features.load(name)
