"""What must hold of what is said to the API server, judged by what was asked before and by what was told.

The server itself counts requests (INV-F9). Two more things keep it from being worn out, and both are promised; and
what is somebody else's is left alone, whatever its name is:

========  ============================================================================================
INV-F2    nothing of others is deleted, nor taken for what was asked for
INV-F9    who is told that a name is taken looks who has it, before the name is asked for again; a
          watch is taken up behind the last thing that the one before it told, bookmarks too
========  ============================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from iriscw.cloud.kube.messages import ApiRequest
from iriscw.cloud.model import LABEL_CLUSTER, LABEL_ROLE, ROLE_CONTROLLER
from iriscw_sims.kube.messages import Response
from iriscw_sims.pace import CLUSTER

if TYPE_CHECKING:
    from iriscw_sims.world import World

MOST_CONFLICTS = 2
"""Times in a row that one process may ask for a name and find it taken: an answer may come when nobody waits."""


class ConflictChecks:
    """Looks at what the API server is asked for and answers."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._taken: dict[str, int] = {}
        """How often it was told of an object, in a row, that there is one already; by path."""
        self._boot = 0
        """Which process of the controller it was."""

    def sends(self, request: ApiRequest) -> None:
        """A request leaves."""
        if request.method == "GET":
            self._taken.pop(request.path, None)

    def answered(self, request: ApiRequest, code: int) -> None:
        """An answer is on its way to who asked."""
        if request.method != "POST" or request.body is None:
            return
        path = f"{request.path}/{request.body['metadata']['name']}"
        if self._boot != self.world.system.boot:  # another process, which has to find out for itself
            self._boot = self.world.system.boot
            self._taken.clear()
        if code != 409:
            self._taken.pop(path, None)
            return
        self._taken[path] = self._taken.get(path, 0) + 1
        if self._taken[path] > MOST_CONFLICTS:
            self.world.violate("F9", f"{path} is asked for, {self._taken[path]} times after it was told to be there")


class OwnershipChecks:
    """Looks at what requests do to things of others, however they were meant."""

    def __init__(self, world: World) -> None:
        self.world = world

    def lands(self, request: ApiRequest) -> Callable[[Response], None]:
        """A request is about to have its effect; give what judges it by the answer."""
        if request.method in ("GET", "POST"):
            return _nothing
        name = request.path.rpartition("/")[2]
        cloud = self.world.cloud
        thing = (cloud.pools if "/nodepools/" in request.path else cloud.pods).get(name)
        if thing is None or is_ours(thing.labels):
            return _nothing

        def judge(response: Response) -> None:
            if response.code < 300:
                self.world.violate("F2", f"{request.method} {request.path} had its effect on what is not ours")

        return judge

    def returned(self, value: Any) -> None:
        """The driver has answered a create, with what it believes to be the pool or pod that was asked for."""
        if getattr(value, "uid", "") in self.world.cloud.strangers.uids:
            self.world.violate("F2", f"{value.name} is somebody else's and is taken for what was asked for")


def is_ours(labels: Mapping[str, str]) -> bool:
    """Whether the controller may touch what has these labels."""
    return labels.get(LABEL_CLUSTER) == CLUSTER and labels.get(LABEL_ROLE) != ROLE_CONTROLLER


def _nothing(response: Response) -> None:
    """Judge a request that cannot hurt others."""


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
