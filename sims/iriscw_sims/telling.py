"""What one watch of the driver has been told so far, read off its connections: whole lists, and what happened since.

Theory of operation. Lists come in pages, and may begin anew; only a whole one counts. A watch of pools has two lists,
of pools and of their nodes, and shows nothing before both are there: what is told of pools until then changes the list
that is told at last. Only pools and pods are passed on; a pool's nodes are counted in its own status, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from iriscw.cloud.kube.messages import ApiRequest, ApiResponse

if TYPE_CHECKING:
    from iriscw_sims.told_checks import ToldChecks

POOLS, NODES, PODS = "pools", "nodes", "pods"


class Telling:
    """What one watch of the driver is told: lists page by page, then events, of pools and their nodes or of pods."""

    def __init__(self, checks: ToldChecks, kind: str) -> None:
        self.kind = kind
        self.refused = False
        """Whether the last that was told is that there is no right to it."""
        self._checks = checks
        self._pages: dict[str, dict[str, Any]] = {}
        """Of lists that are not complete, by collection."""
        self._listed = {NODES: False, POOLS: False} if kind == POOLS else {PODS: False}
        self._held: dict[str, Any] = {}
        """What was told while the watch still waits for another list: it shows nothing before."""

    def answers(self, source: str, request: ApiRequest, response: ApiResponse | None) -> None:
        """A page of a list has arrived, or a refusal, or None: nothing did."""
        self.refused = response is not None and is_refusal(response.code, response.body)
        if response is None or response.code != 200:
            return
        if not any(name == "continue" for name, _ in request.query):
            self._pages[source] = {}
        page = self._pages.setdefault(source, {})
        page.update({each["metadata"]["name"]: each for each in response.body["items"]})
        if response.body["metadata"].get("continue"):
            return
        complete, self._pages[source] = page, {}
        first = not all(self._listed.values())
        self._listed[source] = True
        if source != NODES:
            self._held = complete
        if all(self._listed.values()) and (first or source != NODES):
            self._checks.listed(self.kind, self._held)
            self._held = {}

    def told(self, source: str, event: Mapping[str, Any]) -> None:
        """A watch has told something."""
        thing = event["object"]
        self.refused = event["type"] == "ERROR" and is_refusal(thing.get("code", 0), thing)
        if source == NODES or event["type"] in ("ERROR", "BOOKMARK"):
            return
        name, gone = thing["metadata"]["name"], event["type"] == "DELETED"
        if not all(self._listed.values()):
            self._held.pop(name, None)
            if not gone:
                self._held[name] = thing
        elif gone:
            self._checks.vanished(self.kind, thing)
        else:
            self._checks.shown(self.kind, thing)


def is_refusal(code: int, body: Any) -> bool:
    """Tell whether an answer refuses the credentials: an authorizer's 403 names them, a webhook's does not."""
    return code == 401 or (code == 403 and 'User "' in str(body.get("message")))
