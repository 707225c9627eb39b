"""The story of one run of a world of nodes: what was written down, what went wrong, and when."""

from __future__ import annotations

from typing import Any

import attrs

from iriscw.freeze.records import (
    FreezeAccepted,
    FreezeBegan,
    FreezeEnded,
    FreezeFateKnown,
    FreezeUndoing,
    ThawAccepted,
    ThawEnded,
    ThawEnding,
)
from iriscw_sims.nodes.world import NodesWorld


@attrs.frozen
class Event:
    """Something that happened: when (ns), to whom, what."""

    at: int
    who: str
    what: str


class Story:
    """Listens to a world that has not begun; listening changes nothing."""

    def __init__(self, world: NodesWorld) -> None:
        self.events: list[Event] = []
        self._world = world
        self._recorded = world.recorded
        world.recorded = self._record  # type: ignore[method-assign]
        world.observers.append(self._fault)

    def _tell(self, who: str, what: str) -> None:
        self.events.append(Event(self._world.simulation.now, who, what))

    def _fault(self, name: str, about: str, lasts: int) -> None:
        self._tell("fault", f"{name}: {about}" if about else name)

    def _record(self, node: Any, operation: str, record: Any) -> None:
        self._tell(f"{node.name}/{operation}", said(record))
        self._recorded(node, operation, record)


def said(record: Any) -> str:
    """Say what a record says."""
    match record:
        case FreezeAccepted(plan=plan):
            leave = ", and leave it running" if plan.leave_running else ""
            return f"accepted: freeze process {plan.root.pid} to {plan.tier}{leave}"
        case ThawAccepted(plan=plan):
            return f"accepted: thaw {plan.artifact}"
        case FreezeBegan(phase=phase):
            return phase.value
        case FreezeUndoing(kind=kind, text=text):
            return f"undoing: {kind}: {text}"
        case ThawEnding(kind=kind, text=text):
            return f"ending: {kind}: {text}"
        case FreezeFateKnown(gone=gone):
            return f"its tree is gone: {gone}" if gone else "its tree runs"
        case FreezeEnded(outcome=outcome, kind=kind, text=text) | ThawEnded(outcome=outcome, kind=kind, text=text):
            why = ": ".join(each for each in (kind, text) if each)
            return f"{outcome.value}: {why}" if why else outcome.value
    name = type(record).__name__.removeprefix("Freeze").removeprefix("Thaw")
    return "".join(f" {each.lower()}" if each.isupper() else each for each in name).strip()
