"""What stands in a mailbox beside plain messages.

Most messages stand in a mailbox as they are: wrapping each would cost more than delivering it. An :class:`Envelope`
stands there when delivery needs more than the message: an answer that must be checked
against the incarnation that asked for it, a message that can be conflated, or one that rests on records which are not
on disk yet. A question is its own entry, a :class:`Slot`.
"""

from __future__ import annotations

from typing import Any, Final


class EnvelopeKind:
    """What an envelope holds, and so how it is checked when it is delivered.

    Plain integers: in Python 3.11 looking a member of an enum up costs as much as a call, and each delivery does.
    """

    PLAIN: Final = 0
    """A message that carries a mark of the records it rests on, or that can be conflated."""
    NOTE: Final = 2
    """An answer for one incarnation: undelivered messages, reports on children, ``Continue``."""
    TIMER: Final = 3
    """A timer that is due; ``token`` is its generation."""
    EFFECT: Final = 4
    """The end of an effect or session; ``token`` is the operation."""
    ITEM: Final = 5
    """An item from a session; ``token`` is the operation."""
    WATCH: Final = 6
    """The end of a watched actor; ``token`` is the watch's generation."""
    ANSWER: Final = 7
    """The answer to a request; ``token`` is the reply slot."""


FIRST_ANSWER = EnvelopeKind.NOTE
"""Kinds from here on are answers: they stand on reserved slots and do not count against a mailbox's capacity."""


class Envelope:
    """One entry of a mailbox that is not a plain message."""

    __slots__ = ("incarnation", "key", "kind", "message", "rests_on", "token")

    def __init__(
        self,
        kind: int,
        message: Any,
        key: Any = None,
        token: Any = None,
        incarnation: int = 0,
        rests_on: int = 0,
    ) -> None:
        self.kind = kind
        self.message = message
        self.key = key
        self.token = token
        self.incarnation = incarnation
        self.rests_on = rests_on


class Slot:
    """A question in a mailbox, and where its answer goes: to a task of the host, or to the actor that requested it.

    A slot is filled once. It belongs to the cell and incarnation that were asked: when those end it is failed at once,
    so nobody waits for an answer that cannot come.
    """

    __slots__ = (
        "abandoned",
        "asker",
        "cell",
        "done",
        "error",
        "held",
        "id",
        "key",
        "message",
        "rests_on",
        "undone",
        "value",
        "waiter",
    )

    key: Any
    value: Any

    def __init__(self, cell: Any, message: Any) -> None:
        self.cell = cell
        """The cell that was asked."""
        self.message = message
        self.id = 0
        """Given when the answer is put off: see :attr:`Context.reply_to`."""
        self.asker: Any = None
        """The cell that requested, or None for the host."""
        self.rests_on = 0
        self.done = False
        self.held = False
        """The answer exists but waits for the disk."""
        self.abandoned = False
        """Nobody waits any more."""
        self.undone = False
        """Nobody decided on it, and nobody will: whom it was for is gone."""
        self.error: Exception | None = None
        self.waiter: Any = None
        """What the host's task sleeps on, once it does; has ``set()``."""
        # `value` is set with `done`, `key` with `asker`: a question answered at once needs neither before.

    def fill(self, value: Any, error: Exception | None) -> None:
        """Give the answer to a waiting host; later calls change nothing."""
        if not self.done:
            self.done = True
            self.value = value
            self.error = error
            if self.waiter is not None:
                self.waiter.set()
