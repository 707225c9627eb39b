"""The Deployment controller: a Deployment has as many pods as it says, of the template that it has now.

Theory of operation. Pods are made when too few are on their way, run, or are being ended; so one that was evicted, or
that somebody deleted, is replaced. One that has failed for good is left as it is, and does not count. Pods of an
earlier template are ended first, and those of the present one are made when they are gone, whatever the strategy is.
ReplicaSets are left out: the pods are the Deployment's own, and a label has the template's hash.

What is to be done is done a moment after the news, as a timer, so that whoever places pods hears of new ones. As long
as there is no Deployment, pods are not looked at.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Final

from iriscw_sims.coreweave.following import Following
from iriscw_sims.coreweave.guests import FINAL
from iriscw_sims.coreweave.site import COREWEAVE, TOO_LATE, Site
from iriscw_sims.kube.frozen import FrozenDict, thaw
from iriscw_sims.kube.kinds import Json, nested
from iriscw_sims.kube.messages import Request

DEPLOYMENTS: Final = "/apis/apps/v1/deployments"
PODS: Final = "/api/v1/pods"
HASH: Final = "pod-template-hash"
DELAY: Final = 100_000_000
"""ns from the news until it is acted on; the real controller takes some tens of ms."""

RETRY: Final = 10_000_000_000
"""ns until a pod that was refused is asked for again; the real controller begins with less, and ends with minutes."""

GONE, TAKEN = 404, 409
"""Answers to a pod's creation: there is no such namespace; there is a pod of this name."""

_COUNTS = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas")


class Deployments:
    """Makes and ends the pods of Deployments, and tells how many there are.

    Args:
        site: The API server, and its time.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._following = Following(site, DEPLOYMENTS)
        self._following_pods: Following | None = None
        self._items: dict[str, FrozenDict] = {}
        self._pods: dict[str, FrozenDict] = {}
        """Those that belong to a Deployment, by uid."""
        self._made: dict[str, int] = {}
        """How many pods each Deployment has had, by its uid: for their names."""
        self._refused: dict[str, str] = {}
        """Of which Deployments no pod could be made when it was last tried, and why."""
        self._pausing: set[str] = set()
        """Of which it is not tried for a while."""
        self._seen = -1
        self._is_due = False

    def react(self) -> None:
        """Take in what changed; act on it a moment later."""
        if self._site.store.revision == self._seen:
            return
        self._seen = self._site.store.revision
        if self._take():
            self._act_soon()

    def _act_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._site.later(DELAY, self._act)

    def _take(self) -> bool:
        told = self._following.take()
        _note(self._items, told)
        if self._following_pods is None and self._items:
            self._following_pods = Following(self._site, PODS)
        events = self._following_pods.take() if self._following_pods is not None else []
        ours = [event for event in events if _owner(event["object"])]
        _note(self._pods, ours)
        return bool(told or ours)

    def _act(self) -> None:
        self._is_due = False
        self._take()
        for uid in [uid for uid in self._made if uid not in self._items]:
            del self._made[uid]
            self._refused.pop(uid, None)
        for item in [*self._items.values()]:
            if not item["metadata"].get("deletionTimestamp"):
                self._settle(item)

    def _settle(self, item: FrozenDict) -> None:
        uid, template, wanted = item["metadata"]["uid"], _hash(item), item["spec"].get("replicas", 1)
        pods = [pod for pod in self._pods.values() if _owner(pod) == uid and not _is_over(pod)]
        current = [pod for pod in pods if _template_of(pod) == template]
        if not item["spec"].get("paused"):
            outdated = [pod for pod in pods if _template_of(pod) != template and not _is_going(pod)]
            staying = sorted((pod for pod in current if not _is_going(pod)), key=_is_ready, reverse=True)
            for pod in (*outdated, *staying[wanted:]):
                self._site.delete(_path(pod), pod["metadata"]["uid"])
            for _ in range(wanted - len(pods)):
                self._make(item, template)
        self._tell(item, pods, current, wanted)

    def _make(self, item: FrozenDict, template: str) -> None:
        """Make one more pod, unless it was refused a moment ago."""
        metadata = item["metadata"]
        uid = metadata["uid"]
        if uid in self._pausing:
            return
        number = self._made[uid] = self._made.get(uid, 0) + 1
        owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": metadata["name"], "uid": uid}
        pod = {"apiVersion": "v1", "kind": "Pod", **thaw(item["spec"]["template"])}
        pod["metadata"] |= {
            "name": f"{metadata['name']}-{number}",
            "labels": {**(pod["metadata"].get("labels") or {}), HASH: template},
            "ownerReferences": [{**owner, "controller": True}],
        }
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods"
        response = self._site.store.handle(Request("POST", path, body=pod, user=COREWEAVE), self._site.now)
        if response.code == 201:
            self._refused.pop(uid, None)
            self._pods[response.body["metadata"]["uid"]] = response.body  # type: ignore[assignment]  # the store's own
        elif response.code == TAKEN:
            self._act_soon()  # with the next number
        elif response.code != GONE:
            self._refused[uid] = str(response.body.get("message"))
            self._pausing.add(uid)
            self._site.later(RETRY, self._resume, uid)

    def _resume(self, uid: str) -> None:
        self._pausing.discard(uid)
        self._act_soon()

    def _tell(self, item: FrozenDict, pods: list[FrozenDict], current: list[FrozenDict], wanted: int) -> None:
        """Write the status, if it is another one."""
        ready = sum(map(_is_ready, pods))
        counts = dict(zip(_COUNTS, (len(pods), len(current), ready, ready, max(0, wanted - ready)), strict=True))
        was = item.get("status") or {}
        conditions = [self._condition(was, *each) for each in self._conditions(item, ready, len(current), wanted)]
        status = {
            "observedGeneration": item["metadata"].get("generation", 0),
            **{name: count or None for name, count in counts.items()},
            "conditions": conditions,
        }
        if any(was.get(name) != value for name, value in status.items()):
            path = f"{_path(item, 'apis/apps/v1', 'deployments')}/status"
            self._site.ask("PATCH", path, {"status": status}, COREWEAVE, accept=TOO_LATE)

    def _conditions(
        self, item: FrozenDict, ready: int, current: int, wanted: int
    ) -> Iterator[tuple[str, bool, str, str]]:
        if ready >= wanted:
            yield "Available", True, "MinimumReplicasAvailable", "Deployment has minimum availability."
        else:
            yield "Available", False, "MinimumReplicasUnavailable", "Deployment does not have minimum availability."
        if ready >= wanted and current == wanted:
            yield "Progressing", True, "NewReplicaSetAvailable", "All pods run, of the present template."
        else:
            yield "Progressing", True, "ReplicaSetUpdated", "Pods are on their way."
        if (why := self._refused.get(item["metadata"]["uid"])) is not None:
            yield "ReplicaFailure", True, "FailedCreate", why

    def _condition(self, was: Json, kind: str, holds: bool, reason: str, message: str) -> Json:
        """Return a condition, with its times as they were if it says the same."""
        said = {"type": kind, "status": str(holds), "reason": reason, "message": message}
        earlier: Json = next((each for each in was.get("conditions") or () if each["type"] == kind), {})
        since = earlier.get("lastTransitionTime") if earlier.get("status") == str(holds) else None
        same = all(earlier.get(name) == text for name, text in said.items())
        updated = earlier.get("lastUpdateTime") if same else self._site.stamp
        return {**said, "lastUpdateTime": updated, "lastTransitionTime": since or self._site.stamp}


def _note(known: dict[str, FrozenDict], events: list[Json]) -> None:
    for event in events:
        uid = event["object"]["metadata"]["uid"]
        if event["type"] == "DELETED":
            known.pop(uid, None)
        else:
            known[uid] = event["object"]


def _owner(pod: Json) -> str:
    """Return the uid of the Deployment that a pod belongs to, empty if it belongs to none."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((each["uid"] for each in owners if each["kind"] == "Deployment"), "")


def _hash(item: Json) -> str:
    return hashlib.sha256(json.dumps(thaw(item["spec"]["template"]), sort_keys=True).encode()).hexdigest()[:10]


def _template_of(pod: Json) -> str:
    return str((pod["metadata"].get("labels") or {}).get(HASH))


def _is_going(pod: Json) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _is_over(pod: Json) -> bool:
    return nested(pod, "status", "phase") in FINAL


def _is_ready(pod: Json) -> bool:
    conditions = nested(pod, "status", "conditions") or ()
    return not _is_going(pod) and any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _path(item: Json, prefix: str = "api/v1", plural: str = "pods") -> str:
    return f"/{prefix}/namespaces/{item['metadata']['namespace']}/{plural}/{item['metadata']['name']}"
