"""The cell: everything the runtime keeps about one actor.

A cell is passive. It has no task and no lock; the dispatcher owns it and is the only one to change it. An idle cell is
small, because whatever it may never need (mailbox, children, timers, ...) is allocated with its first use.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import TYPE_CHECKING, Any

from iriscw.runtime.behavior import Behavior, ChildSpec
from iriscw.runtime.vocabulary import ActorPath, Key

if TYPE_CHECKING:
    from iriscw.runtime.envelope import Slot
    from iriscw.runtime.lifecycle import Recovery, StopChain
    from iriscw.runtime.operations import Operation
    from iriscw.runtime.supervision import History
    from iriscw.runtime.tree import Tree

# The life of a cell. Up to WAITING it takes messages; ACTIVE and DRAINING cells decide.
ACTIVE = 0
WAITING = 1
"""Starting, or between two incarnations: messages queue up, nothing is decided."""
DRAINING = 2
"""Stopping after its mailbox."""
STOPPING = 3
"""Waiting for its children and effects to end."""
STOPPED = 4
QUARANTINED = 5

STATUS_NAMES = ("active", "waiting", "draining", "stopping", "stopped", "quarantined")


class _Rare:
    """What most actors never need, as defaults of the class: an instance has a dictionary only once it differs."""

    births: int = 0
    """Children spawned so far."""
    incarnation: int = 0
    processed: int = 0
    """Entries of the mailbox taken so far."""
    records_since_snapshot: int = 0
    running: int = 0
    """Operations at the edge, cancelled ones included."""
    stash: deque[Any] | None = None
    stashed_answers: int = 0
    """Answers among what is stashed: there too they do not count against the capacity."""
    children: dict[str, Cell] | None = None
    timers: dict[Key, int] | None = None
    operations: dict[Key, Operation] | None = None
    requests: dict[Key, Slot] | None = None
    slots: dict[int, Slot] | None = None
    """Questions that were delivered and not answered yet."""
    watchers: dict[ActorPath, int] | None = None
    watching: dict[ActorPath, int] | None = None
    conflated: dict[Any, Any] | None = None
    failures: History | None = None
    """The restarts that count against its own budget."""
    group_failures: History | None = None
    """Those of its children that count against one budget for all of them."""
    failure: str = ""
    """Its last failure, in one line."""
    failed_at: int = 0
    over: bool = False
    """Whether its incarnation has failed or ended, and the next has not begun to start."""
    recovery: Recovery | None = None
    """The restart of a group of its children that is under way."""
    pending_stop: StopChain | None = None
    """The children that still have to stop, and what comes after."""
    rng: Random | None = None


class Cell(_Rare):
    """One actor."""

    __slots__ = (
        "birth",
        "capacity",
        "mailbox",
        "parent",
        "parked",
        "path",
        "reserved",
        "rests_on",
        "rules",
        "scheduled",
        "spec",
        "started_at",
        "state",
        "status",
        "tree",
    )

    def __init__(self, tree: Tree, path: ActorPath, parent: Cell | None, spec: ChildSpec, birth: int) -> None:
        self.tree = tree
        self.path = path
        self.parent = parent
        self.spec = spec
        self.rules = spec.behavior.rules
        self.capacity = spec.capacity
        """Messages that may wait, less what is stashed and parked."""
        self.birth = birth
        """Which of its parent's children it is, counted from the parent's first: with the path a unique identity."""
        self.state: Any = None
        self.status = WAITING
        self.scheduled = False
        """Whether it stands in the run queue, or must not."""
        self.reserved = 0
        """Answers among what waits in the mailbox: they do not count against the capacity."""
        self.rests_on = 0
        """The last record that its state may depend on."""
        self.started_at = 0
        self.mailbox: deque[Any] | None = None
        self.parked: deque[Any] | None = None
        """While the journal takes nothing: what waits for it, in order."""

    @property
    def behavior(self) -> Behavior:
        """What the actor does."""
        return self.spec.behavior

    @property
    def full(self) -> bool:
        """Whether the mailbox takes no more messages (answers have their own room)."""
        stashed = 0 if self.stash is None else len(self.stash)
        parked = 0 if self.parked is None else len(self.parked)
        queued = 0 if self.mailbox is None else len(self.mailbox)
        return queued + stashed + parked - self.reserved - self.stashed_answers >= self.spec.capacity

    def box(self) -> deque[Any]:
        """Return the mailbox; most actors of a large tree never need one."""
        if self.mailbox is None:
            self.mailbox = deque()
        return self.mailbox

    def set_room(self) -> None:
        """Let what is stashed or parked count against the capacity."""
        aside = (0 if self.stash is None else len(self.stash)) + (0 if self.parked is None else len(self.parked))
        self.capacity = self.spec.capacity - aside

    def identity(self) -> str:
        """Name this incarnation of this actor, unlike any other of the same process."""
        parts: list[str] = []
        cell: Cell | None = self
        while cell is not None:
            parts.append(f"{cell.path.name}#{cell.birth}.{cell.incarnation}")
            cell = cell.parent
        return "/".join(reversed(parts))

    def __repr__(self) -> str:
        return f"<Cell {self.path} {STATUS_NAMES[self.status]} incarnation {self.incarnation}>"
