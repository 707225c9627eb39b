"""Operations: effects and sessions from the command to their end.

Theory of operation. ``Run`` and ``Open`` make an :class:`Operation`. It passes these states:

    HELD       the records it rests on are not on disk yet; a cancel annihilates it
    QUEUED     an older operation of the same path and key has not ended yet
    RUNNING    handed to the edge
    CANCELLING asked to stop; its slot stays taken until it really ended
    ENDED

The table of slots, by path and key, belongs to the tree and not to the cell: an operation that does not heed its cancel
(a thread, a request that is already on the wire) outlives the incarnation that asked for it and even the actor, and
whoever next uses the path and key has to wait for it.
"""

from __future__ import annotations

import enum
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from iriscw.runtime.vocabulary import ActorPath, Key

if TYPE_CHECKING:
    from iriscw.runtime.cell import Cell


class OperationPhase(enum.Enum):
    """How far an operation is."""

    HELD = "held"
    QUEUED = "queued"
    RUNNING = "running"
    CANCELLING = "cancelling"
    ENDED = "ended"


class Operation:
    """One effect or session."""

    __slots__ = (
        "cell",
        "edge_state",
        "effect",
        "function",
        "id",
        "inbound",
        "incarnation",
        "key",
        "outbound",
        "outbox",
        "path",
        "phase",
        "promised",
        "session",
        "unseen",
        "wanted",
    )

    def __init__(
        self, operation_id: int, cell: Cell, key: Key, effect: Any, function: Any, inbound: int, outbound: int
    ) -> None:
        self.id = operation_id
        self.cell = cell
        self.path: ActorPath = cell.path
        self.incarnation = cell.incarnation
        self.key = key
        self.effect = effect
        self.function = function
        self.phase = OperationPhase.HELD
        self.wanted = True
        """Whether anybody still waits for the answer."""
        self.session = inbound > 0
        self.inbound = inbound
        """Items that may wait in the mailbox; 0 for an effect."""
        self.outbound = outbound
        self.unseen = 0
        """Items in the mailbox."""
        self.promised = 0
        """Fed items that wait for the disk or for the session."""
        self.outbox: deque[Any] | None = deque() if inbound > 0 else None
        """Fed items that may leave."""
        self.edge_state: Any = None
        """For the edge alone: the cancel scope, the events."""

    @property
    def slot(self) -> tuple[ActorPath, Key]:
        """What at most one running operation holds."""
        return (self.path, self.key)

    def __repr__(self) -> str:
        return f"<Operation {self.id} {self.path} {self.key!r} {self.phase.value}>"


class Edge(Protocol):
    """Where effects become real: tasks in a process, or events of a simulated world.

    None of these calls may run decisions or raise. The edge reports back through the tree's ``completed``, ``failed``
    and ``arrived``, never from within one of these calls.
    """

    def start(self, operation: Operation) -> None:
        """Begin a running operation."""

    def cancel(self, operation: Operation) -> None:
        """Ask a running operation to stop. Its end is still reported."""

    def fed(self, operation: Operation) -> None:
        """Tell that ``operation.outbox`` has something to send."""

    def room(self, operation: Operation) -> None:
        """Tell that the actor takes items again."""

    def publish(self, event: Any) -> None:
        """Hand an emitted event or a failure report to the listeners."""

    def wake(self) -> None:
        """Tell that there is something to do for the dispatcher."""
