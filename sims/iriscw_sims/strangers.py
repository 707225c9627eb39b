"""Somebody else in the same cluster, who makes things of exactly the names that the controller uses.

Theory of operation. A stranger is quicker than a create of the controller's (the name of a pool or pod is taken when it
lands), or takes the name of a pool that is gone. What strangers make carries no labels, or those of another cluster, or
of another program; the controller must never touch it nor take it for its own (INV-F2). One kind of them copies a pool
of the controller's with its labels: that one *is* the controller's by all that is agreed, though it did not ask for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from iriscw.cloud.kube.messages import ApiRequest
from iriscw.cloud.model import LABEL_CLUSTER, LABEL_MANAGED
from iriscw_sims.coreweave.crd import POOLS
from iriscw_sims.kube.messages import Request
from iriscw_sims.pace import CLUSTER

if TYPE_CHECKING:
    from iriscw_sims.cloud import Cloud

FOREIGN: Final = ("no labels", "another cluster", "another program")
COPY: Final = "a copy of ours"
"""What a stranger's labels may be."""


class Strangers:
    """All strangers."""

    def __init__(self, cloud: Cloud, pods: str) -> None:
        self._cloud = cloud
        self._pods = pods
        self._rng = cloud.world.stream("strangers")
        self.uids: dict[str, str] = {}
        """Names of the things that are not the controller's, by uid: those that have a name of its."""
        self._heirs: dict[str, tuple[str, Mapping[str, str]]] = {}
        """What kind of stranger takes the name of a pool once it is gone, and the labels that the pool has."""

    def is_quicker(self, request: ApiRequest) -> None:
        """Let a stranger take the name that a create asks for, or not."""
        if request.method != "POST" or request.path not in (POOLS, self._pods):
            return
        name, labels = request.body["metadata"]["name"], request.body["metadata"].get("labels", {})
        pools = request.path == POOLS
        there = self._cloud.pools if pools else self._cloud.pods
        about = f"pool/{name}" if pools else f"pod/{name}"
        if name not in there and self._cloud.chance("pool name taken" if pools else "pod name taken", about):
            self._make(name, self._rng.choice(FOREIGN), labels, pools=pools)

    def inherits(self, name: str, kind: str) -> None:
        """Let a stranger of a kind take the name of a pool as soon as the pool is gone."""
        self._heirs[name] = kind, self._cloud.pools[name].labels

    def look(self) -> None:
        """See which names have become free."""
        for name in [name for name in self._heirs if name not in self._cloud.pools]:
            heir = self._heirs.pop(name, None)
            if heir is not None:  # what is made here makes others look, too
                kind, labels = heir
                self._make(name, kind, labels, pools=True)

    def _make(self, name: str, kind: str, labels: Mapping[str, str], *, pools: bool) -> None:
        worn: dict[str, str] = {}
        if kind == "another cluster":
            worn = {**labels, LABEL_MANAGED: "true", LABEL_CLUSTER: f"not-{CLUSTER}"}
        elif kind == "another program":
            worn = {"app.kubernetes.io/name": "batch"}
        elif kind == COPY:
            worn = dict(labels)
        if pools:
            self._cloud.furnish(name, worn)
            uid = self._cloud.pools[name].uid
        else:
            uid = self._pod(name, worn)
        if kind != COPY:
            self.uids[uid] = name

    def _pod(self, name: str, labels: Mapping[str, str]) -> str:
        """Make a pod that no node is fit for, so that it takes nobody's room."""
        spec = {"containers": [{"name": "main", "image": "busybox"}], "nodeSelector": {"somebody": "else"}}
        metadata = {"name": name, "labels": dict(labels)}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        self._cloud.must(Request("POST", self._pods, body=body))
        self._cloud.changed()
        return self._cloud.pods[name].uid
