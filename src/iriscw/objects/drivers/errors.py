"""Why no store is opened for a URL."""

from __future__ import annotations

import importlib.util

from iriscw._errors import UsageError


class InvalidStoreUrl(UsageError, ValueError):
    """The URL has no scheme, or is none that its driver understands."""


class NoSuchStore(UsageError, LookupError):
    """No driver takes this scheme."""


class AmbiguousStore(UsageError):
    """Several installed packages offer a driver for this scheme."""


class BrokenStore(UsageError):
    """A package offers a driver for this scheme that cannot be imported, or is no function."""


class StoreExtraMissing(NoSuchStore):
    """The scheme's driver needs a library that is not installed: an extra of iriscw's, which the text names."""


def is_installed(name: str) -> bool:
    """Whether a module can be imported, without importing it."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # nor is what it is in
        return False
