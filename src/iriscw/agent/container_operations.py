"""The containers on which operations run."""

from __future__ import annotations

import json
from collections.abc import Iterable

from iriscw.agent.operation_views import RunningOperation
from iriscw.freeze.model import Container
from iriscw.rpc.http1 import HttpResponse


class Boxes:
    """Which operation is on which container. An operation that ended is forgotten by whoever told of it."""

    def __init__(self) -> None:
        self._containers: dict[str, Container] = {}

    def add(self, operation: str, container: Container | None) -> None:
        """Note an operation, if it is one on a container."""
        if container is not None:
            self._containers[operation] = container

    def drop(self, operation: str) -> None:
        """Forget it."""
        self._containers.pop(operation, None)

    def on(self, container_id: str, root: str, running: Iterable[RunningOperation]) -> list[RunningOperation]:
        """Return those views that are of a container, as its runtime with this state folder knows it."""
        meant = (container_id, root)
        found = [(view, self._containers.get(view.asked.operation)) for view in running]
        return [view for view, each in found if each is not None and (each.container_id, each.root) == meant]

    def page(self, running: Iterable[RunningOperation]) -> HttpResponse:
        """Answer what ``iriscw-runc`` asks before it does something to a container; it has no time for gRPC."""
        body = [
            {
                "operation": view.asked.operation,
                "kind": view.asked.kind.value,
                "container_id": each.container_id,
                "root": each.root,
            }
            for view in running
            if (each := self._containers.get(view.asked.operation)) is not None
        ]
        return HttpResponse(200, "application/json", json.dumps(body).encode() + b"\n")
