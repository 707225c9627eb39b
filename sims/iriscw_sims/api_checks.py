"""What must hold of what is said to the API server, judged by what was asked before and by what was told.

The server itself counts requests (INV-F9). Two more things keep it from being worn out, and both are promised:

========  ============================================================================================
INV-F9    who is told that a name is taken looks who has it, before the name is asked for again; a
          watch is taken up behind the last thing that the one before it told, bookmarks too
========  ============================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from iriscw.cloud.kube.messages import ApiRequest

if TYPE_CHECKING:
    from iriscw_sims.world import World

MOST_CONFLICTS = 2
"""Times in a row that a name may be asked for and found taken: a process that dies between the answer and its look
leaves one, and its successor may do the same."""


class ConflictChecks:
    """Looks at what the API server is asked for and answers."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._taken: dict[str, int] = {}
        """How often it was told of an object, in a row, that there is one already; by path."""

    def sends(self, request: ApiRequest) -> None:
        """A request leaves."""
        if request.method == "GET":
            self._taken.pop(request.path, None)

    def answered(self, request: ApiRequest, code: int) -> None:
        """An answer is on its way to who asked."""
        if request.method != "POST" or request.body is None:
            return
        path = f"{request.path}/{request.body['metadata']['name']}"
        if code != 409:
            self._taken.pop(path, None)
            return
        self._taken[path] = self._taken.get(path, 0) + 1
        if self._taken[path] > MOST_CONFLICTS:
            self.world.violate("F9", f"{path} is asked for, {self._taken[path]} times after it was told to be there")


class WatchChecks:
    """Looks at what one watch of the driver asks for and is told, on all its connections."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._told: dict[str, int] = {}
        """The last version that was told, by path."""

    def lists(self, request: ApiRequest) -> None:
        """A list is asked for: what follows begins where that one ends."""
        self._told.pop(request.path, None)

    def opens(self, request: ApiRequest) -> None:
        """A connection is opened."""
        version, told = dict(request.query).get("resourceVersion", ""), self._told.get(request.path)
        if told is not None and not (version.isdigit() and int(version) >= told):
            self.world.violate("F9", f"a watch of {request.path} begins at {version!r} and {told} was told before")

    def took(self, request: ApiRequest, event: Mapping[str, Any]) -> None:
        """A connection has told something."""
        if event["type"] != "ERROR":
            self._told[request.path] = int(event["object"]["metadata"]["resourceVersion"])
