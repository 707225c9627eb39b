"""Where things are in the API, and how requests for lists and watches are written."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from iriscw.cloud.kube.messages import ApiRequest
from iriscw.cloud.model import LABEL_MANAGED
from iriscw.runtime.vocabulary import SECOND

POOL_API = "compute.coreweave.com/v1alpha1"
NODE_POOLS = f"/apis/{POOL_API}/nodepools"
NODES = "/api/v1/nodes"


def pods_of(namespace: str) -> str:
    """Return the path of a namespace's pods."""
    return f"/api/v1/namespaces/{namespace}/pods"


def secrets_of(namespace: str) -> str:
    """Return the path of a namespace's Secrets."""
    return f"/api/v1/namespaces/{namespace}/secrets"


def events_of(namespace: str) -> str:
    """Return the path of a namespace's Events."""
    return f"/api/v1/namespaces/{namespace}/events"


def selector(labels: Mapping[str, str]) -> str:
    """Write a label selector for what is managed by us and has all these labels."""
    return ",".join(f"{name}={value}" for name, value in sorted({LABEL_MANAGED: "true", **labels}.items()))


@attrs.frozen
class Source:
    """What a list or watch is of: a collection, restricted by a label selector."""

    path: str
    selector: str

    def page(self, limit: int = 0, token: str = "") -> ApiRequest:
        """Ask for a page of at most ``limit`` objects (0: for all), from where ``token`` says.

        No resource version is named: the answer is as recent as the storage, never one of the server's caches.
        """
        query = [("labelSelector", self.selector)]
        if limit:
            query.append(("limit", str(limit)))
        if token:
            query.append(("continue", token))
        return ApiRequest("GET", self.path, tuple(query))

    def watch(self, version: str, timeout: int) -> ApiRequest:
        """Ask for what happens after ``version``; the server ends it after ``timeout`` ns, rounded to seconds."""
        query = (
            ("watch", "1"),
            ("labelSelector", self.selector),
            ("resourceVersion", version),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", str(max(1, timeout // SECOND))),
        )
        return ApiRequest("GET", self.path, query)
