"""The garbage collector, as far as a fleet needs it: what belongs to pools or deployments that are gone is deleted.

Theory of operation. Watches of several kinds do not wait for each other: a pod may be told of before the pool that owns
it. So an owner that seems to be gone is looked up before anything is deleted, as the real collector does it.
"""

from __future__ import annotations

from iriscw_sims.coreweave.crd import POOLS
from iriscw_sims.kube.kinds import Json
from iriscw_sims.kube.messages import Request
from iriscw_sims.remote.known import Known
from iriscw_sims.remote.store import RemoteStore

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
        self._known = Known(store)
        self._seen = -1

    def react(self, now: int) -> None:
        """Look, if anything changed."""
        if self._store.revision == self._seen:
            return
        self._seen = self._store.revision
        there = {uid for path in OWNERS.values() for uid in self._known.of(path, now)}
        for path in DEPENDENTS:
            for item in [*self._known.of(path, now).values()]:
                owners = [each for each in item["metadata"].get("ownerReferences") or () if each["kind"] in OWNERS]
                if not owners or _is_going(item) or any(each["uid"] in there for each in owners):
                    continue
                if not any(self._is_there(each, item["metadata"]["namespace"], now) for each in owners):
                    self._delete(path, item, now)

    def _is_there(self, owner: Json, namespace: str, now: int) -> bool:
        collection = OWNERS[owner["kind"]]
        if collection != POOLS:
            group, _, plural = collection.rpartition("/")
            collection = f"{group}/namespaces/{namespace}/{plural}"
        found = self._store.handle(Request("GET", f"{collection}/{owner['name']}"), now)
        return found.code == 200 and bool(found.body["metadata"]["uid"] == owner["uid"])

    def _delete(self, path: str, item: Json, now: int) -> None:
        metadata = item["metadata"]
        kind = path.rpartition("/")[2]
        where = f"/api/v1/namespaces/{metadata['namespace']}/{kind}/{metadata['name']}"
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": metadata["uid"]}}
        response = self._store.handle(Request("DELETE", where, body=options), now)
        assert response.code in (200, 202, 404, 409), response.body


def _is_going(item: Json) -> bool:
    return bool(item["metadata"].get("deletionTimestamp"))
