"""The feature ``nodes``: agents of nodes, their checkpoints, orders to them, and what jobs want of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from iriscw.controller.doors.agents import AgentDoor
from iriscw.controller.doors.figures import COUNTER, counter, gauge, histogram, labelled
from iriscw.controller.doors.freezing import NodesDoor
from iriscw.controller.feature import Feature, FeatureContext, Parts
from iriscw.controller.moving import Moves
from iriscw.controller.suspension_figures import BOUNDS_S, COPIES, OUTCOMES, Phases, PhaseStatistics
from iriscw.jobs.ports import Freezer
from iriscw.nodes.actor import nodes_child
from iriscw.nodes.messages import ORDERS, CountOrders

if TYPE_CHECKING:
    from iriscw.controller.doors.figures import Family
    from iriscw.rpc.server import Service
    from iriscw.runtime import ChildSpec


class NodesParts(Parts):
    """See the module."""

    def __init__(self, context: FeatureContext) -> None:
        access, hub, workers = context.access, context.hub, context.workers
        self._access = access
        self.agents = AgentDoor(context.config.name, access.actors)
        self.moves = Moves(access, hub, workers)
        self._door = NodesDoor(access, hub, workers, context.tokens, self.agents.board)
        self._phases = Phases()
        self._proofs = context.platform.proofs
        self._orders_open: int | None = None

    def ports(self) -> Mapping[type, object]:
        """Return what freezes and thaws attempts."""
        return {Freezer: self.moves}

    def children(self) -> tuple[ChildSpec, ...]:
        """Return ``/nodes``."""
        return (nodes_child(self.agents),)

    def services(self) -> tuple[Service, ...]:
        """Return the agents' door, and what clients ask of nodes."""
        return (self.agents, self._door)

    async def sample(self) -> None:
        """Count the open orders."""
        self._orders_open = await self._access.ask(ORDERS, CountOrders())

    def notice(self, event: Any) -> None:
        """Count what becomes of suspensions."""
        self._phases.notice(event)

    def statistics(self) -> Mapping[str, Any]:
        """Return figures for programs."""
        return {
            "agents_connected": len(self.agents.board),
            "agents_refused": self.agents.refused,
            "orders_open": self._orders_open,
            "token_reviews": None if self._proofs is None else dict(self._proofs.counts),
            "moves": dict(self.moves.ends),
            "phases": self._phases.statistics(),
        }

    def figures(self) -> Iterator[Family]:
        """Yield agents, orders and suspensions."""
        yield gauge("iriscw_agents_connected", "Node agents with a stream.", len(self.agents.board))
        yield counter("iriscw_agents_refused", "Hellos of node agents that were refused.", self.agents.refused)
        if self._orders_open is not None:
            yield gauge("iriscw_orders_open", "Orders to node agents that have not ended.", self._orders_open)
        if self._proofs is not None:
            yield review_figures(self._proofs.counts)
        text = "Orders of jobs to node agents, by kind and outcome."
        ends = sorted(self.moves.ends.items())
        yield labelled(COUNTER, "iriscw_attempt_moves", text, ("kind", "outcome"), ends)
        yield from phase_figures(self._phases.statistics())


def review_figures(counts: Mapping[str, int]) -> Family:
    """Return the family of agents' tokens."""
    text = "Tokens of node agents' pods that were shown, by what became of them."
    values = [((outcome,), count) for outcome, count in counts.items()]
    return labelled(COUNTER, "iriscw_agent_tokens", text, ("outcome",), values)


def phase_figures(phases: PhaseStatistics) -> Iterator[Family]:
    """Yield the families of suspensions."""
    text = "Steps of suspending and resuming attempts, by what came of them."
    steps = [((outcome,), phases.outcomes.get(outcome, 0)) for outcome in OUTCOMES]
    yield labelled(COUNTER, "iriscw_suspensions", text, ("outcome",), steps)
    text = "How long attempts were in a phase of being suspended and resumed, by what came of it."
    yield histogram("iriscw_suspension_phase_seconds", text, ("phase", "outcome"), BOUNDS_S, phases.lasted)
    text = "Checkpoints of suspensions that nobody needs and that could not be removed."
    yield counter("iriscw_checkpoints_left", text, phases.left)
    text = "Checkpoints of tasks that run on, by what became of them."
    copies = [((outcome,), phases.copies.get(outcome, 0)) for outcome in COPIES.values()]
    yield labelled(COUNTER, "iriscw_task_checkpoints", text, ("outcome",), copies)


NODES = Feature(name="nodes", open=NodesParts)
