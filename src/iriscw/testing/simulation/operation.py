"""Effects and sessions in the hands of the simulated world: a test or a model says how and when they end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from iriscw.runtime.operations import Operation, OperationPhase
from iriscw.runtime.vocabulary import ActorPath, Arrived

if TYPE_CHECKING:
    from iriscw.testing.simulation.system import SimSystem


@attrs.define(eq=False)
class SimOperation:
    """An effect or session in the hands of the simulated world."""

    system: SimSystem
    operation: Operation
    deaf: bool = False
    """Whether it goes on when it is cancelled, as a thread or a request on the wire does."""
    on_cancel: Callable[[], None] | None = None
    on_fed: Callable[[], None] | None = None
    on_room: Callable[[], None] | None = None
    ended: bool = False

    @property
    def effect(self) -> Any:
        """What the actor asked for."""
        return self.operation.effect

    @property
    def key(self) -> Any:
        """The actor's name for it."""
        return self.operation.key

    @property
    def path(self) -> ActorPath:
        """The actor that asked."""
        return self.operation.path

    @property
    def cancelled(self) -> bool:
        """Whether the actor gave it up."""
        return self.operation.phase is OperationPhase.CANCELLING

    def complete(self, value: Any = None) -> None:
        """End it well. Too late an end (the system crashed, it ended before) changes nothing."""
        self._end(value, None)

    def fail(self, error: Exception) -> None:
        """End it with an error."""
        self._end(None, error)

    def _end(self, value: Any, error: Exception | None) -> None:
        if not self.ended:
            self.ended = True
            if self.system.pending.get(self.operation.id) is self:  # numbers begin anew with each boot
                del self.system.pending[self.operation.id]
            self.system.simulation.note("end", self.system.name, self.path, self.key, type(error).__name__)
            self.operation.cell.tree.ended(self.operation, value, error)

    @property
    def system_restarted(self) -> bool:
        """Whether the system that asked has crashed since."""
        return self.operation.cell.tree.crashed

    def send(self, item: Any) -> bool:
        """Return the actor an item of a session; False if there is no room."""
        if self.ended or self.system_restarted:
            return False
        return self.operation.cell.tree.arrived(self.operation, Arrived(self.key, item))

    def take_fed(self) -> list[Any]:
        """Take all items that the actor fed and that have left."""
        outbox = self.operation.outbox
        items = list(outbox or ())
        if outbox:
            self.operation.promised -= len(items)
            outbox.clear()
        return items


World: TypeAlias = Callable[[SimOperation], None]
"""What is called for each effect and session that starts."""


def leave_pending(operation: SimOperation) -> None:
    """Do nothing: the test ends the operation through :attr:`SimSystem.pending`."""


__all__ = ["SimOperation", "World", "leave_pending"]
