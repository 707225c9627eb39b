"""The Deployment controller, as far as one pod needs it: a Deployment has a pod, and another one when that is over.

Theory of operation. Deployments here have one replica and the strategy ``Recreate``: a pod is made when there is none
that is on its way, runs, or is being ended. One that has failed for good (an eviction) is left as it is, and does not
count; one that is ended counts until it is gone. ReplicaSets and status are left out: nobody here looks at them.
"""

from __future__ import annotations

from iriscw_sims.coreweave.guests import FINAL
from iriscw_sims.kube.frozen import thaw
from iriscw_sims.kube.kinds import Json, nested
from iriscw_sims.kube.messages import Request
from iriscw_sims.remote.known import Known
from iriscw_sims.remote.store import RemoteStore

DEPLOYMENTS = "/apis/apps/v1/deployments"
PODS = "/api/v1/pods"
GONE = (403, 404, 409)
"""Answers to a pod's creation: its namespace ends, or is gone, or somebody was faster."""


class Deployments:
    """Makes the pods of Deployments.

    Args:
        store: The API server.
    """

    def __init__(self, store: RemoteStore) -> None:
        self._store = store
        self._known = Known(store)
        self._seen = -1
        self._made: dict[str, int] = {}
        """How many pods each Deployment has had, by its uid: for their names."""

    def react(self, now: int) -> None:
        """Look, if anything changed."""
        if self._store.revision == self._seen:
            return
        self._seen = self._store.revision
        deployments, pods = self._known.of(DEPLOYMENTS, now), self._known.of(PODS, now)
        held = {owner for pod in pods.values() if not _is_over(pod) for owner in _owners(pod)}
        for uid, item in [*deployments.items()]:
            wanted = item["spec"].get("replicas", 1) and not item["metadata"].get("deletionTimestamp")
            if wanted and uid not in held:
                self._make(item, now)

    def _make(self, item: Json, now: int) -> None:
        """Make the next pod of a Deployment, and take note of it before the watch tells."""
        metadata = item["metadata"]
        number = self._made[metadata["uid"]] = self._made.get(metadata["uid"], 0) + 1
        owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": metadata["name"], "uid": metadata["uid"]}
        pod = {"apiVersion": "v1", "kind": "Pod", **thaw(item["spec"]["template"])}
        pod["metadata"] = {**pod["metadata"], "name": f"{metadata['name']}-{number}", "ownerReferences": [owner]}
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods"
        response = self._store.handle(Request("POST", path, body=pod), now)
        if response.code == 201:
            self._known.of(PODS, now).setdefault(response.body["metadata"]["uid"], response.body)
        else:
            assert response.code in GONE, response.body


def _owners(pod: Json) -> list[str]:
    return [each["uid"] for each in pod["metadata"].get("ownerReferences") or () if each["kind"] == "Deployment"]


def _is_over(pod: Json) -> bool:
    return nested(pod, "status", "phase") in FINAL
