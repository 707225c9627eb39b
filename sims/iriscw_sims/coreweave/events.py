"""Events: what controllers tell people, and some programs, about an object.

An event of the same object, reason and message counts up instead of being written anew, as the recorders of real
controllers do it, and all are forgotten after a while.
"""

from __future__ import annotations

from typing import TypeAlias

import attrs

from iriscw_sims.coreweave.site import KUBELET, Site
from iriscw_sims.kube.kinds import Json

NORMAL, WARNING = "Normal", "Warning"

NAME_LIMIT = 200
"""Characters of the object's name in an event's: both together must stay below 253."""

_About: TypeAlias = tuple[str, str, str]


@attrs.define(eq=False)
class _Told:
    """An event that is there."""

    path: str
    count: int = 1


class Events:
    """Writes events, and forgets them."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._serial = 0
        self._told: dict[_About, _Told] = {}

    def normal(self, item: Json, reason: str, message: str, source: str = "coreweave") -> None:
        """Tell that something happened as it should."""
        if self._site.settings.normal_events:
            self._tell(item, NORMAL, reason, message, source)

    def warning(self, item: Json, reason: str, message: str, source: str = "coreweave") -> None:
        """Tell that something is wrong."""
        self._tell(item, WARNING, reason, message, source)

    def _tell(self, item: Json, kind: str, reason: str, message: str, source: str) -> None:
        site, metadata = self._site, item["metadata"]
        about = (metadata["uid"], reason, message)
        told = self._told.get(about)
        if told is not None:
            told.count += 1
            counted = {"count": told.count, "lastTimestamp": site.stamp}
            if site.ask("PATCH", told.path, counted, KUBELET, accept=(404,)) is not None:
                return
        self._serial += 1
        namespace = metadata.get("namespace", "default")
        name = f"{metadata['name'][:NAME_LIMIT].rstrip('-.')}.{self._serial:016x}"
        body = self._body(item, kind, reason, message, source)
        body["metadata"] = {"name": name, "namespace": namespace, "managedFields": []}
        path = f"/api/v1/namespaces/{namespace}/events"
        created = site.ask("POST", path, body, KUBELET, accept=(403, 404))  # the namespace is gone, or going
        if created is not None:
            self._told[about] = _Told(f"{path}/{name}")
            site.later(site.settings.event_lifetime, self._forget, about)

    def _body(self, item: Json, kind: str, reason: str, message: str, source: str) -> Json:
        metadata, stamp = item["metadata"], self._site.stamp
        involved = {
            name: metadata[name] for name in ("name", "namespace", "uid", "resourceVersion") if name in metadata
        }
        return {
            "involvedObject": {"kind": item["kind"], "apiVersion": item["apiVersion"], **involved},
            "type": kind,
            "reason": reason,
            "message": message,
            "source": {"component": source},
            "reportingComponent": source,
            "reportingInstance": "",
            "count": 1,
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
        }

    def _forget(self, about: _About) -> None:
        told = self._told.pop(about, None)
        if told is not None:
            body = {"kind": "DeleteOptions", "apiVersion": "v1"}
            self._site.ask("DELETE", told.path, body, KUBELET, accept=(404,))
