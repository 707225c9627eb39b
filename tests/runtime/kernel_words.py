"""The words of the reference: what its actors tell each other, what sort of actors there are, what is known of each."""

from collections import deque
from typing import Any

import attrs

from iriscw.journal.records import record
from iriscw.runtime import vocabulary as v
from iriscw.runtime.behavior import Restart, Shutdown, Strategy

FAMILY = 1_000_000
"""A restart budget that no run exhausts."""


class Planned(Exception):
    """What a decision raises when its plan says so; ``token`` and ``mark`` are those of the message.

    ``starting`` is who failed to start: that is judged after the turn of who spawned it, when it is reported.
    """

    def __init__(self, token, mark, starting=None):
        super().__init__(token)
        self.token = token
        self.mark = mark
        self.starting = starting


@v.message
class Act:
    """Do what ``plan`` says. ``mark`` is the last journal sequence that this message rests on."""

    number: int
    sender: int
    sender_path: str
    mark: int
    plan: tuple


@v.message
class Tick:
    """A timer's message."""

    token: int


@v.message
class Work:
    """An effect, a session, an item or an event, by the token of whoever asked."""

    token: int
    mark: int
    number: int = 0


@v.message
class Value:
    """An answer to the question with this token."""

    token: int
    mark: int


@record("test.kernel_fact")
@v.message
class Fact:
    """What a durable actor records; a poisonous one cannot be applied."""

    number: int
    poison: bool = False


@attrs.frozen
class Kind:
    """What sort of actor to start."""

    restart: Restart = Restart.PERMANENT
    entity: bool = False
    strategy: Strategy = Strategy.ONE_FOR_ONE
    durable: bool = False
    capacity: int = 8
    shutdown: Shutdown = Shutdown.STOP
    restarts: int = FAMILY
    period_s: int = 10
    delay_ms: int = 0
    failing_starts: int = 0
    resumes: bool = False

    def _repr_pretty_(self, printer, cycle):
        """Show in a falsifying example only what was chosen."""
        chosen = [field.name for field in attrs.fields(Kind) if getattr(self, field.name) != field.default]
        printer.text(f"Kind({', '.join(f'{name}={getattr(self, name)}' for name in chosen)})")


@attrs.define(eq=False)
class Node:
    """What the oracle knows of an actor: where it belongs and whether it ought to be there."""

    uid: int
    path: v.ActorPath
    parent: Any
    kind: Kind
    mark: int = 0
    status: str = "alive"
    children: dict = attrs.field(factory=dict)
    times: list = attrs.field(factory=list)
    group_times: list = attrs.field(factory=list)
    failing: int = 0
    life: Any = None
    returned: deque = attrs.field(factory=deque)
    """What was put aside and waits again, in order."""
    passing: dict = attrs.field(factory=dict)
    """Host's questions among it that did not go back in front of what waits for the disk."""
    forgot: bool = False


@attrs.define(eq=False)
class Life:
    """One incarnation: what it waits for, and what it knows."""

    node: Node
    incarnation: int
    mark: int
    over: bool = False
    timers: dict = attrs.field(factory=dict)
    works: dict = attrs.field(factory=dict)
    requests: dict = attrs.field(factory=dict)
    watches: dict = attrs.field(factory=dict)
    stash: list = attrs.field(factory=list)
    kept: list = attrs.field(factory=list)
    gone: set = attrs.field(factory=set)
    items: dict = attrs.field(factory=dict)


class Bag:
    """A durable actor's state: the facts it was told, in order."""

    def __init__(self):
        self.facts = []


def evolve(state, fact):
    """Apply a fact."""
    if fact.poison:
        state.facts.append(-1)
        raise ValueError("poison")
    state.facts.append(fact.number)
