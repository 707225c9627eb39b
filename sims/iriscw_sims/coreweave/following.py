"""What a controller sees of one kind: all of its objects and every change, whatever becomes of the watch.

Theory of operation. A :class:`Following` is a watch that is opened anew when it ends, as every controller's is: because
the server forgot what it had not told yet, or because somebody removed the definition of the kind. What was known and
is not there any more is then told as gone, and all that is there as new; who is told twice does not mind. A kind that
is not served has no objects; each look asks again whether it is.
"""

from __future__ import annotations

from iriscw_sims.coreweave.site import COREWEAVE, Site
from iriscw_sims.coreweave.surroundings import Watching
from iriscw_sims.kube.frozen import FrozenDict
from iriscw_sims.kube.kinds import Json
from iriscw_sims.kube.messages import Request, Response

FOREVER_S = 10**10
"""Seconds until the server ends our watches: longer than a simulation."""


class Following:
    """All objects of a kind, and what becomes of them.

    Args:
        site: Where the API server is.
        path: Of the kind, in all namespaces.
    """

    def __init__(self, site: Site, path: str) -> None:
        self._site = site
        self._path = path
        self._watch: Watching | None = None
        self._known: dict[str, FrozenDict] = {}
        """Every object that was told and is there, by uid."""

    def take(self) -> list[Json]:
        """Return what happened since the last call: ADDED, MODIFIED and DELETED, with the objects."""
        told = self._news()
        if self._watch is None or self._watch.closed:
            was = self._known
            self._watch, self._known = self._opened(), {}
            present = self._news()
            gone = [item for uid, item in was.items() if uid not in self._known]
            told += [{"type": "DELETED", "object": item} for item in gone] + present
        return told

    def _opened(self) -> Watching | None:
        query = (("watch", "1"), ("timeoutSeconds", str(FOREVER_S)))
        watch = self._site.store.watch(Request("GET", self._path, query, user=COREWEAVE), self._site.now)
        return None if isinstance(watch, Response) else watch

    def _news(self) -> list[Json]:
        found = self._watch.take(self._site.now) if self._watch is not None else []
        told = [event for event in found if event["type"] != "ERROR"]
        for event in told:
            item: FrozenDict = event["object"]
            uid = item["metadata"]["uid"]
            if event["type"] == "DELETED":
                self._known.pop(uid, None)
            else:
                self._known[uid] = item
        return told
