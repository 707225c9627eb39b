"""What decisions are told about themselves: one object per dispatcher, pointed at the deciding cell."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from iriscw.runtime.cell import Cell
from iriscw.runtime.envelope import Slot
from iriscw.runtime.interpreter import unavailable
from iriscw.runtime.vocabulary import ActorPath, ReplyTo

if TYPE_CHECKING:
    from iriscw.runtime.dispatcher import Dispatcher

ID_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
"""RFC 4648 base32 in lower case: legal in DNS labels, file names and Kubernetes names."""

ID_LENGTH = 12
"""60 bits: a collision among a million ids has a chance of one in two million."""


class DispatcherContext:
    """Implements :class:`~iriscw.runtime.vocabulary.Context`."""

    __slots__ = ("_dispatcher", "cell", "slot", "stashed")

    cell: Cell

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self.slot: Slot | None = None
        self.stashed = False

    @property
    def path(self) -> ActorPath:
        """Where the deciding actor stands."""
        return self.cell.path

    @property
    def incarnation(self) -> int:
        """How many times the actor was started before."""
        return self.cell.incarnation

    @property
    def now(self) -> int:
        """The monotonic clock, ns."""
        return self._dispatcher.now

    @property
    def attentive(self) -> int:
        """The attentive clock, ns."""
        dispatcher = self._dispatcher
        dispatcher.attends = True
        return dispatcher.attentive

    @property
    def wall(self) -> int:
        """The wall clock, ns since 1970."""
        return self._dispatcher.wall + self.cell.tree.wall_offset

    @property
    def sim(self) -> bool:
        """Whether time is virtual."""
        return self._dispatcher.virtual

    @property
    def rng(self) -> Random:
        """This incarnation's own random stream."""
        cell = self.cell
        if cell.rng is None:
            # Seeded by identity: a new actor elsewhere leaves every other stream, and so every regression seed, alone.
            cell.rng = Random(f"{cell.tree.seed}:{cell.identity()}")  # noqa: S311 - not for secrets
        return cell.rng

    @property
    def reply_to(self) -> ReplyTo | None:
        """Where the answer to the current message goes."""
        slot = self.slot
        if slot is None:
            return None
        if slot.id == 0:
            slot.id = self.cell.tree.serial()
        return ReplyTo(slot.id)

    def await_journal(self) -> None:
        """Go on only if the journal takes records; else the message is decided on when it does.

        Raises:
            Unavailable: it takes none for now. The dispatcher puts the message aside.
        """
        journal = self.cell.tree.journal
        if journal is not None and journal.status.name != "READY":
            raise unavailable(self.cell.tree)

    def new_id(self, prefix: str = "") -> str:
        """Return an id that no other call gives."""
        bits = self.rng.getrandbits(5 * ID_LENGTH)
        return prefix + "".join(ID_ALPHABET[bits >> 5 * place & 31] for place in range(ID_LENGTH))
