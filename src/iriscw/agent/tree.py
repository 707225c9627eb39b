"""The agent's tree: ``/operations`` with one actor for each operation, beside ``/controller``, which is what the
controller orders and is told. Decisions meet effects here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from iriscw.agent.operations import Asked, Claim, CleanUp, OperationKind, Operations, OperationsDecisions
from iriscw.checkpoint import actor as moves
from iriscw.freeze import actor
from iriscw.runtime import SECOND, Behavior, ChildSpec, Restart, Supervision

Effects = Mapping[type, Callable[..., Awaitable[object]]]

ACTORS = {OperationKind.FREEZE: actor.freeze, OperationKind.THAW: actor.thaw, OperationKind.MOVE: moves.move}
"""What makes the actor of an operation."""

STOP_NS = 20 * SECOND
"""What an operation may take to end the call that it is in, when the agent does not wait for its undoing any more."""


def operation(asked: Asked, effects: Effects) -> ChildSpec:
    """Return the actor of one operation: durable, put aside when it fails again and again."""
    made = ACTORS[asked.kind](effects)
    return ChildSpec(asked.operation, made, restart=Restart.TRANSIENT, shutdown_budget=STOP_NS, entity=True)


def tree(
    begins_with: Operations,
    effects_of: Callable[[str], Effects],
    *,
    claim: Callable[[Claim], Awaitable[None]],
    clean_up: Callable[[CleanUp], Awaitable[None]],
    controller: ChildSpec | None = None,
) -> Behavior:
    """Return the root. A failure of ``/operations`` ends the agent: see :mod:`iriscw.agent.operations`.

    Args:
        begins_with: what an earlier life left.
        effects_of: gives what carries out the effects of the operation with an id.
        claim: takes the target of an operation.
        clean_up: removes what an operation left, and gives its target back.
        controller: what the controller is told, and orders: stopped last, because operations that end say so there;
            None: there is none.
    """
    decisions = OperationsDecisions(lambda asked: operation(asked, effects_of(asked.operation)))
    operations = Behavior(
        initial=lambda: begins_with,
        on=decisions.rules(),
        resume=decisions.resume,
        effects={Claim: claim, CleanUp: clean_up},
        name="operations",
    )
    spec = ChildSpec("operations", operations, shutdown_budget=2 * STOP_NS)
    children = (spec,) if controller is None else (controller, spec)
    return Behavior(children=children, supervision=Supervision(restarts=0), name="agent")
