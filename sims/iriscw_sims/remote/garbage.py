"""The garbage collector, as far as a fleet needs it: what belongs to pools or deployments that are gone is deleted."""

from __future__ import annotations

from iriscw_sims.coreweave.crd import POOLS
from iriscw_sims.kube.kinds import Json
from iriscw_sims.kube.messages import Request
from iriscw_sims.remote.store import RemoteStore, RemoteWatch

OWNERS = {"NodePool": POOLS, "Deployment": "/apis/apps/v1/deployments"}
DEPENDENTS = ("/api/v1/pods", "/api/v1/secrets")
"""The kinds that may belong to one of these, in all namespaces."""


class Garbage:
    """Deletes what belonged to owners that are gone.

    Args:
        store: The API server.
    """

    def __init__(self, store: RemoteStore) -> None:
        self._store = store
        self._watches: dict[str, RemoteWatch] = {}
        self._known: dict[str, dict[str, Json]] = {}
        self._seen = -1

    def react(self, now: int) -> None:
        """Look, if anything changed."""
        if self._store.revision == self._seen:
            return
        self._seen = self._store.revision
        there = {uid for path in OWNERS.values() for uid in self._objects(path, now)}
        for path in DEPENDENTS:
            for item in [*self._objects(path, now).values()]:
                owners = [each for each in item["metadata"].get("ownerReferences") or () if each["kind"] in OWNERS]
                if owners and not any(each["uid"] in there for each in owners) and not _is_going(item):
                    self._delete(path, item, now)

    def _objects(self, path: str, now: int) -> dict[str, Json]:
        watch = self._watches.get(path)
        if watch is None or watch.closed:
            opened = self._store.watch(Request("GET", path), now)
            assert isinstance(opened, RemoteWatch), opened.body
            watch, self._known[path] = opened, {}
            self._watches[path] = watch
        known = self._known[path]
        for event in watch.take(now):
            uid = event["object"]["metadata"]["uid"]
            if event["type"] == "DELETED":
                known.pop(uid, None)
            else:
                known[uid] = event["object"]
        return known

    def _delete(self, path: str, item: Json, now: int) -> None:
        metadata = item["metadata"]
        kind = path.rpartition("/")[2]
        where = f"/api/v1/namespaces/{metadata['namespace']}/{kind}/{metadata['name']}"
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": metadata["uid"]}}
        response = self._store.handle(Request("DELETE", where, body=options), now)
        assert response.code in (200, 202, 404, 409), response.body


def _is_going(item: Json) -> bool:
    return bool(item["metadata"].get("deletionTimestamp"))
