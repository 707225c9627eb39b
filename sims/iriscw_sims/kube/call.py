"""One request on its way through the store: what it is about, and what the store lends its verbs."""

from __future__ import annotations

from random import Random
from typing import Protocol

import attrs

from iriscw_sims.kube.collection import Collection
from iriscw_sims.kube.frozen import FrozenDict
from iriscw_sims.kube.kinds import Kind
from iriscw_sims.kube.messages import Request
from iriscw_sims.kube.paths import Route
from iriscw_sims.kube.refusals import Cause, Refused, invalid, not_found


class Ground(Protocol):
    """What the verbs need of the store."""

    revision: int
    rng: Random

    def collection(self, kind: Kind) -> Collection:
        """Return a kind's objects."""

    def named_collection(self, group: str, plural: str) -> Collection:
        """Return the objects of a resource by its name."""

    def version_of(self, kind: Kind, api_version: str) -> Kind | None:
        """Return another version of a kind, ``None`` if it is not served."""

    def namespace(self, name: str) -> FrozenDict | None:
        """Return a namespace, ``None`` if there is none."""

    def commit(self, collection: Collection, key: str, new: FrozenDict) -> FrozenDict:
        """Write an object at the next revision and give it as it was written."""

    def erase(self, collection: Collection, key: str) -> FrozenDict:
        """Remove an object at the next revision and give it as it was stored last."""


@attrs.define(eq=False)
class Call:
    """One request, resolved: its kind, its objects, and the warnings its answer will carry."""

    ground: Ground
    request: Request
    route: Route
    kind: Kind
    objects: Collection
    now: int
    warnings: list[str] = attrs.Factory(list)
    hollow: bool = False
    """Whether an apply is about to write metadata with empty parts; see :attr:`Collection.hollow`."""

    @property
    def key(self) -> str:
        """The key of the object that the path names."""
        return self.key_of(self.route.name)

    def key_of(self, name: str) -> str:
        """Return the key of an object beside the one that the path names."""
        return f"{self.route.namespace}/{name}" if self.kind.namespaced else name

    def key_in(self, item: FrozenDict) -> str:
        """Return the key of an object of this kind."""
        metadata = item["metadata"]
        name: str = metadata["name"]
        return f"{metadata['namespace']}/{name}" if self.kind.namespaced else name

    @property
    def prefix(self) -> str:
        """What the keys of the collection that the path names begin with."""
        return f"{self.route.namespace}/" if self.kind.namespaced and self.route.namespace else ""

    @property
    def dry(self) -> bool:
        """Whether nothing is to be written (``dryRun=All``)."""
        return any(name == "dryRun" for name, _ in self.request.query)

    def found(self) -> FrozenDict:
        """Return the object that the path names.

        Raises:
            Refused: 404, there is none.
        """
        item = self.objects.objects.get(self.key)
        if item is None:
            raise not_found(self.kind.group, self.kind.plural, self.route.name)
        return item

    def invalid(self, name: str, causes: list[Cause]) -> Refused:
        """Return the 422 for an object of this kind."""
        return invalid(self.kind.group, self.kind.kind, name, causes)
