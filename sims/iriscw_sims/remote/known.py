"""All objects of a kind, as far as a watch of a real server has told of them."""

from __future__ import annotations

from iriscw_sims.kube.kinds import Json
from iriscw_sims.kube.messages import Request
from iriscw_sims.remote.store import RemoteStore, RemoteWatch


class Known:
    """What is there, by kind.

    Args:
        store: The API server.
    """

    def __init__(self, store: RemoteStore) -> None:
        self._store = store
        self._watches: dict[str, RemoteWatch] = {}
        self._known: dict[str, dict[str, Json]] = {}

    def of(self, path: str, now: int) -> dict[str, Json]:
        """Return the objects of the kind at a path, by uid. A watch that ended is opened anew, and all is listed."""
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
