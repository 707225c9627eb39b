"""What controllers finish after a delete: the garbage collector and the emptying of namespaces, as one pure step.

The API server only marks: finalizers hold what waits for its dependents. :func:`collect` looks once at everything and
gives the requests that the controllers would send now; whoever runs the world sends them, when and in which order it
likes (each carries preconditions, so one that is late is refused). Called until it gives nothing, it converges.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from iriscw_sims.kube.collection import Collection
from iriscw_sims.kube.deletion import FOREGROUND, ORPHAN
from iriscw_sims.kube.frozen import EMPTY, FrozenDict
from iriscw_sims.kube.kinds import Json, Kind, nested
from iriscw_sims.kube.messages import Request

COLLECTOR = "system:serviceaccount:kube-system:generic-garbage-collector"
NAMESPACES = "system:serviceaccount:kube-system:namespace-controller"
MERGE_PATCH = "application/merge-patch+json"


@attrs.frozen
class _Found:
    """One object, and where it is."""

    kind: Kind
    item: FrozenDict

    @property
    def uid(self) -> str:
        uid: str = self.item["metadata"]["uid"]
        return uid

    @property
    def path(self) -> str:
        return path_of(self.kind, self.item["metadata"].get("namespace", ""), self.item["metadata"]["name"])

    @property
    def owners(self) -> list[Json]:
        owners: list[Json] = self.item["metadata"].get("ownerReferences") or []
        return owners


def path_of(kind: Kind, namespace: str, name: str) -> str:
    """Return the path of an object."""
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    where = f"/namespaces/{namespace}" if kind.namespaced else ""
    return f"{root}{where}/{kind.plural}/{name}"


def collect(collections: Iterable[Collection]) -> list[Request]:
    """Return the requests that the garbage collector and the namespace controller would send now."""
    everything = [_Found(each.kind, item) for each in collections for item in each.objects.values()]
    by_uid = {found.uid: found for found in everything}
    dependents: dict[str, list[_Found]] = {}
    for found in everything:
        for owner in found.owners:
            dependents.setdefault(owner.get("uid", ""), []).append(found)
    requests = [request for found in everything for request in _judge(found, by_uid, dependents)]
    return [*requests, *_empty_namespaces(everything)]


def _judge(found: _Found, by_uid: dict[str, _Found], dependents: dict[str, list[_Found]]) -> Iterator[Request]:
    metadata = found.item["metadata"]
    finalizers = metadata.get("finalizers") or ()
    mine = dependents.get(found.uid, [])
    if metadata.get("deletionTimestamp"):
        if ORPHAN in finalizers:
            yield from (_disowned(each, found.uid) for each in mine)
            if not mine:
                yield _without(found, ORPHAN)
        elif FOREGROUND in finalizers:
            blocking = [each for each in mine if _blocks(each, found.uid)]
            yield from (_deleted(each, "Foreground") for each in mine if not _is_going(each))
            if not blocking:
                yield _without(found, FOREGROUND)
        return
    owners = found.owners
    living = [owner for owner in owners if owner.get("uid") in by_uid]
    if owners and not living:
        yield _deleted(found, "Background")


def _blocks(found: _Found, owner: str) -> bool:
    return any(each.get("uid") == owner and each.get("blockOwnerDeletion") for each in found.owners)


def _is_going(found: _Found) -> bool:
    return bool(found.item["metadata"].get("deletionTimestamp"))


def _disowned(found: _Found, owner: str) -> Request:
    kept = [dict(each) for each in found.owners if each.get("uid") != owner]
    return _patch(found, {"ownerReferences": kept or None})


def _without(found: _Found, finalizer: str) -> Request:
    kept = [name for name in found.item["metadata"]["finalizers"] if name != finalizer]
    return _patch(found, {"finalizers": kept or None})


def _patch(found: _Found, metadata: Json) -> Request:
    known = {"uid": found.uid, "resourceVersion": found.item["metadata"]["resourceVersion"]}
    body = {"metadata": {**metadata, **known}}
    return Request("PATCH", found.path, body=body, content_type=MERGE_PATCH, user=COLLECTOR)


def _deleted(found: _Found, policy: str) -> Request:
    known = {"uid": found.uid, "resourceVersion": found.item["metadata"]["resourceVersion"]}
    body = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy, "preconditions": known}
    return Request("DELETE", found.path, body=body, user=COLLECTOR)


def _empty_namespaces(everything: list[_Found]) -> Iterator[Request]:
    """Empty the namespaces that are going away, and let go of those that are empty."""
    going = [
        found.item
        for found in everything
        if found.kind.kind == "Namespace" and not found.kind.group and _is_going(found)
    ]
    for namespace in going:
        name = namespace["metadata"]["name"]
        content = [found for found in everything if (found.item["metadata"].get("namespace") or "") == name]
        content = [found for found in content if found.kind.namespaced]
        for found in content:
            if not _is_going(found):
                body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": found.uid}}
                yield Request("DELETE", found.path, body=body, user=NAMESPACES)
        if not content and "kubernetes" in (nested(namespace, "spec", "finalizers") or ()):
            yield _finalized(namespace)


def _finalized(namespace: FrozenDict) -> Request:
    spec = namespace.get("spec") or EMPTY
    kept = [name for name in spec.get("finalizers") or () if name != "kubernetes"]
    body = {**namespace, "spec": {**spec, "finalizers": kept}}
    path = f"/api/v1/namespaces/{namespace['metadata']['name']}/finalize"
    return Request("PUT", path, body=body, user=NAMESPACES)
