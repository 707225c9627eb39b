"""References: how the host speaks to one actor.

A message goes straight into the actor's mailbox. A question is answered at once if its actor and all others are idle;
otherwise the asker first drives the dispatcher for a while in its own task, and only sleeps if that gave no answer.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import anyio
import anyio.lowlevel

from iriscw._errors import (
    ActorStopped,
    AskInsideDecision,
    AskTimeout,
    MailboxFull,
    OutcomeUnknown,
    SystemClosed,
    TellInsideDecision,
)
from iriscw.runtime.cell import STOPPED, WAITING, Cell
from iriscw.runtime.edge.driver import Driver
from iriscw.runtime.envelope import Envelope, EnvelopeKind, Slot
from iriscw.runtime.interpreter import supersede
from iriscw.runtime.tree import Tree
from iriscw.runtime.vocabulary import ActorPath, Key

DEFAULT_ASK_TIMEOUT_S = 5.0
"""Erlang/OTP's default for a call."""

CHECKPOINT_EVERY = 64
"""An ask that is answered at once yields to the loop this often: fairness and cancellation at 1/64 of their cost."""


class ActorRef:
    """One actor, as the host sees it. Of the actor that was spawned: not of a later one at the same path."""

    __slots__ = ("_cell", "_dispatcher", "_driver")

    def __init__(self, driver: Driver, cell: Cell) -> None:
        self._driver = driver
        self._cell = cell
        self._dispatcher = cell.tree.dispatcher

    @property
    def path(self) -> ActorPath:
        """Where the actor stands."""
        return self._cell.path

    @property
    def alive(self) -> bool:
        """Whether the actor has neither stopped nor been quarantined."""
        return self._cell.status < STOPPED

    def tell(self, message: Any) -> None:
        """Send a message; to a stopped actor it is a dead letter.

        Raises:
            MailboxFull: as many messages wait as the mailbox holds.
            SystemClosed: the system is stopping.
            TellInsideDecision: a decision is running; it returns ``Tell`` instead.
        """
        cell = self._cell
        dispatcher = self._dispatcher
        if dispatcher.deciding:
            raise TellInsideDecision(f"{cell.path} was told something while a decision was running")
        tree = cell.tree
        if cell.status > WAITING or tree.closing:
            refuse_late(tree)
            return
        mailbox = cell.mailbox
        if mailbox is None:
            mailbox = cell.mailbox = deque()
        elif len(mailbox) >= cell.capacity and cell.full:
            raise MailboxFull(f"{cell.path} has {cell.spec.capacity} messages waiting")
        mailbox.append(message)
        tree.sent += 1
        if not cell.scheduled:
            dispatcher.schedule(cell)

    def tell_latest(self, message: Any, key: Key) -> None:
        """Send a message that replaces one with the same key that still waits. Raises as :meth:`tell` does."""
        cell = self._cell
        if self._dispatcher.deciding:
            raise TellInsideDecision(f"{cell.path} was told something while a decision was running")
        tree = cell.tree
        if cell.status > WAITING or tree.closing:
            refuse_late(tree)
            return
        item = Envelope(EnvelopeKind.PLAIN, message, (None, key))
        supersede(tree, cell, item)
        if cell.full:
            assert cell.conflated is not None
            del cell.conflated[None, key]
            raise MailboxFull(f"{cell.path} has {cell.spec.capacity} messages waiting")
        tree.sent += 1
        cell.box().append(item)
        if not cell.scheduled:
            self._dispatcher.schedule(cell)

    def tell_from_thread(self, message: Any) -> None:
        """Send a message from another thread, in the order of the calls. Failures are counted as dead letters."""
        self._driver.call_soon(self._tell_or_drop, message)

    def _tell_or_drop(self, message: Any) -> None:
        try:
            self.tell(message)
        except (MailboxFull, SystemClosed):
            self._cell.tree.sent += 1
            self._cell.tree.dead += 1

    async def ask(self, message: Any, timeout_s: float = DEFAULT_ASK_TIMEOUT_S) -> Any:
        """Send a message and wait for its answer.

        Raises:
            ActorStopped: the actor is gone, or went before it answered.
            ActorRestarted: it was restarted between taking the question and answering it.
            AskTimeout: no answer within ``timeout_s``.
            OutcomeUnknown: the answer exists but its records were not durable within ``timeout_s``.
            OutcomePending: the same, told at once, since the journal's disk is full.
            JournalUnavailable: the answer needs records, and the journal takes none for now; nothing was done.
            JournalFull: the same, since its disk is full.
            MailboxFull: as many messages wait as the mailbox holds.
            SystemClosed: the system is stopping.
            Exception: what the decision raised.
        """
        cell = self._cell
        dispatcher = self._dispatcher
        if dispatcher.deciding:
            raise AskInsideDecision("inside the tree a request is a command and its answer a message")
        tree = cell.tree
        if tree.closing:
            raise SystemClosed("the actor system is stopping")
        slot = Slot(cell, message)
        if cell.status > WAITING:
            tree.disown(slot, ActorStopped(f"{cell.path} has stopped"))
            return await self._answer(slot, timeout_s)
        driver = self._driver
        try:
            answered = dispatcher.ask_now(slot)
        except Exception as bug:
            driver.crash(bug)
            raise
        if answered:
            if dispatcher.ready or dispatcher.control or driver.outbox or driver.oversleeps:
                driver.wake()
        else:
            if cell.full:
                raise MailboxFull(f"{cell.path} has {cell.spec.capacity} messages waiting")
            tree.sent += 1
            cell.box().append(slot)
            driver.pump(slot)
        return await self._answer(slot, timeout_s)

    async def _answer(self, slot: Slot, timeout_s: float) -> Any:
        if not slot.done:
            await self._wait(slot, timeout_s)
        elif not self._dispatcher.inline_budget % CHECKPOINT_EVERY:
            await anyio.lowlevel.checkpoint()
        if slot.error is not None:
            raise slot.error
        return slot.value

    async def _wait(self, slot: Slot, timeout_s: float) -> None:
        waiting = self._driver.waiting
        slot.waiter = anyio.Event()
        waiting[id(slot)] = slot
        try:
            with anyio.move_on_after(timeout_s):
                await slot.waiter.wait()
        finally:
            del waiting[id(slot)]
            slot.waiter = None
            if not slot.done:
                slot.abandoned = True
                if slot.cell.slots is not None:
                    slot.cell.slots.pop(slot.id, None)
        if not slot.done:
            trouble = slot.cell.tree.trouble
            because = f": {trouble}" if trouble else ""
            if slot.held:
                raise OutcomeUnknown(f"{slot.cell.path} answered, but its records are not on disk yet{because}")
            raise AskTimeout(f"{slot.cell.path} did not answer within {timeout_s:g} s{because}")

    def __repr__(self) -> str:
        return f"<ActorRef {self._cell.path}>"


def refuse_late(tree: Tree) -> None:
    """Count a message that nobody is there to take as a dead letter.

    Raises:
        SystemClosed: the system is stopping.
    """
    if tree.closing:
        raise SystemClosed("the actor system is stopping")
    tree.sent += 1
    tree.dead += 1


__all__ = ["CHECKPOINT_EVERY", "DEFAULT_ASK_TIMEOUT_S", "ActorRef", "refuse_late"]
