"""What is stored, for the doors: they put it there and give it out."""

from __future__ import annotations

import attrs

from iriscw.bundles.cache import bundle_key
from iriscw.controller.stores.archive import Archive
from iriscw.controller.stores.logs import LogStore
from iriscw.controller.stores.payloads import Payloads
from iriscw.controller.stores.results import ResultStore
from iriscw.objects.ports import ObjectStore


@attrs.frozen
class Stores:
    """The stores of one controller."""

    logs: LogStore
    """What attempts wrote."""
    results: ResultStore
    """What callables returned."""
    payloads: Payloads
    """What jobs run."""
    bundles: ObjectStore
    """The object store with the bundles."""
    bundle_prefix: str
    """Of their keys."""
    states: Archive
    """Snapshots of hosted actors."""

    def bundle_key(self, bundle_id: str) -> str:
        """Return the key of a bundle in its object store."""
        return bundle_key(self.bundle_prefix, bundle_id)
