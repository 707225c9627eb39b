"""Custom resources in several versions: stored in one of them, shown in each.

Theory of operation. The objects of a kind are stored as its storage version has them. Each other version is a
collection of its own, a view, that follows the storage revision by revision: what lists, watches, selectors and 410
are of a version falls out of that. Nothing is converted but ``apiVersion`` (strategy ``None``): a field that the other
version does not have is gone, and what is written through a version loses what only the storage version knew.
Defaults are those of the version that reads a body and of the version that stores; a view adds none.
"""

from __future__ import annotations

from iriscw_sims.kube import structural
from iriscw_sims.kube.collection import Collection
from iriscw_sims.kube.frozen import FrozenDict, freeze, thaw
from iriscw_sims.kube.kinds import Json, Kind


def body_of(kind: Kind, item: Json) -> FrozenDict:
    """Return what ``kind``, the storage version, writes of an object beside its metadata: no defaults are added."""
    body: FrozenDict = freeze(_pruned(kind, item))
    return body


def stored(kind: Kind, item: Json) -> FrozenDict:
    """Return an object of another version as it is read from storage: with the defaults of ``kind``."""
    assert kind.schema is not None
    pruned = _pruned(kind, item)
    found: FrozenDict = freeze({**structural.complete(kind.schema, pruned, []), "metadata": item["metadata"]})
    return found


def shown(kind: Kind, item: FrozenDict) -> FrozenDict:
    """Return a stored object as the version ``kind`` shows it: without what that does not have."""
    found: FrozenDict = freeze({**_pruned(kind, item), "metadata": item["metadata"]})
    return found


def _pruned(kind: Kind, item: Json) -> Json:
    assert kind.schema is not None
    body: Json = thaw({name: part for name, part in item.items() if name != "metadata"})
    return structural.prune(kind.schema, {**body, "apiVersion": kind.api_version})


def view_of(kind: Kind, storage: Collection, revision: int) -> Collection:
    """Return the view of a version on what is stored, with no past before ``revision``."""
    view = Collection(kind, revision)
    view.storage, view.hollow = storage, storage.hollow
    view.keys = [*storage.keys]
    view.objects = {key: shown(kind, item) for key, item in storage.objects.items()}
    return view
