"""Where a program of requests runs: a real API server or the simulated store, behind the same few calls.

:func:`run_program` runs a program in either; ``kube_real_world`` and ``kube_store_world`` have the two.
"""

from __future__ import annotations

import http.client
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import attrs
from kube_program import Answer, Ask, Compact, Drain, Events, Memory, OpenWatch, Program, Step, Wait, complete

NAMESPACES = ("alpha", "beta")
"""There before each program. Programs make others under names with ``${run}``: caches remember names."""
NAMESPACE_PATH = "/api/v1/namespaces"
CRD_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class World(Protocol):
    """Where a program runs."""

    def begin(self) -> Memory:
        """Forget all programs before; :data:`NAMESPACES` and the custom resources are there."""

    def ask(self, step: Ask) -> Answer:
        """Answer a resolved request."""

    def open_watch(self, step: OpenWatch) -> Answer:
        """Open a watch under its name; code 200 and no body when it began."""

    def drain(self, name: str, expected: int | None) -> Events:
        """Return the watch's next events; ``expected`` is how many there should be, where that is known."""

    def compact(self) -> None:
        """Forget all versions before the present."""

    def wait(self, time_s: int) -> None:
        """Let time pass."""


@attrs.frozen
class Exchange:
    """A step as it was sent, and what came back."""

    step: Step
    answer: Answer | Events


def run_program(program: Program, world: World, expected: Sequence[Exchange] | None = None) -> list[Exchange]:
    """Run all steps in ``world``, every watch drained at the end.

    Args:
        expected: The same program's run in another world, which tells how many events to wait for.
    """
    memory = world.begin()
    exchanges = []
    opened = set()
    for index, step in enumerate(complete(program)):
        answer: Answer | Events
        if isinstance(step, Drain):
            other = expected[index].answer if expected else None
            count = len(other.events) if isinstance(other, Events) else None
            answer = world.drain(step.name, count) if step.name in opened else Events(())
            exchanges.append(Exchange(step, answer))
            continue
        if isinstance(step, Compact | Wait):
            world.compact() if isinstance(step, Compact) else world.wait(step.time_s)
            exchanges.append(Exchange(step, Answer(http.client.OK, None)))
            continue
        resolved = memory.resolve_step(step)
        if isinstance(resolved, OpenWatch):
            answer = world.open_watch(resolved)
            if answer.code == http.client.OK:
                opened.add(resolved.name)
        else:
            answer = world.ask(resolved)
            memory.learn(resolved, answer)
        exchanges.append(Exchange(resolved, answer))
    return exchanges


def is_stray_bookmark(event: Mapping[str, Any]) -> bool:
    """Tell bookmarks that come when the server likes; the one that ends initial events comes at its place."""
    annotations = event["object"].get("metadata", {}).get("annotations", {})
    return event["type"] == "BOOKMARK" and "k8s.io/initial-events-end" not in annotations
