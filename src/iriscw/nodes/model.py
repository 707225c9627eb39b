"""Values of nodes: who an agent is, what it tells of its machine, and what it is ordered to do.

What an agent tells is a set of *facts*, each under a key: a copy of a checkpoint, an operation that runs, how full a
tier is, what became of an order. A fact is a level: the last one said under its key holds, and saying it again changes
nothing.
"""

from __future__ import annotations

import enum
import re
from typing import TypeAlias

import attrs

MAX_NODES = 4096
"""Nodes that one controller knows; the largest fleets of one Kubernetes cluster have 5,000."""

MAX_CHECKPOINTS = 4096
"""Copies of checkpoints that one agent tells of, the latest first: each takes 0.5 KiB of the controller's memory."""

MAX_OPEN_ORDERS = 1024
"""Orders that have not ended, of all nodes together."""

MAX_ENDED_ORDERS = 1024
"""Ends of orders that are remembered, for whoever asks late."""

MAX_KEY_CHARS = 128

MAX_FACTS = 32
"""Of one report: with 64 labels each they are within what the door takes as one message."""

MAX_STEPS = 64
"""Of an operation, the last ones: the tables of freezing have a dozen phases."""

MAX_LABELS = 64
MAX_LABEL_CHARS = 256
"""Of a checkpoint, as manifests take them."""

MAX_CHECKPOINT_BYTES = 8 << 20
"""Of the copies that one agent tells of, by :func:`size_of`: those beyond are counted as omitted."""

MAX_SAID_BYTES = 32 << 20
"""Of all that holds of one node, by :func:`size_of`. An agent that keeps to the limits above is far below."""

NODE_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
"""As Kubernetes names nodes, and as machines name themselves."""

OPERATION_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")

REFUSED = "refused"
"""The outcome of an order of which nothing was begun."""

REMOVED = "removed"
VERIFIED = "verified"
LISTED = "listed"
STORED = "repository"
"""Where a copy lies that a repository has, in the place of a tier's name."""
UNKNOWN = "unknown"
"""The outcome of an order of which nobody can say what became: its agent is another one now."""


@attrs.frozen
class AgentIdentity:
    """Which life of which agent speaks for which node.

    ``agent_id`` is drawn with the agent's state folder, and ``starts`` counts how often an agent of that was started:
    of two of the same id the one with fewer starts is the older one.
    """

    node: str
    agent_id: str
    starts: int
    boot_id: str


@attrs.frozen
class GpuRow:
    """One GPU of a node."""

    uuid: str
    model: str
    index: int
    total_bytes: int


@attrs.frozen
class Abilities:
    """What an agent's machine can freeze, as it was when the stream began."""

    software: str = ""
    criu_version: str = ""
    criu_trouble: str = ""
    criu_features: tuple[str, ...] = ()
    cuda_available: bool = False
    cuda_driver_version: str = ""
    cuda_trouble: str = ""
    gpus: tuple[GpuRow, ...] = ()
    max_operations: int = 0
    repository: str = ""
    """The URL of its repository, without secrets; nodes that say the same share one. Empty: it has none."""


# Facts


@attrs.frozen
class CheckpointRow:
    """One copy of a checkpoint: in one tier of one node."""

    checkpoint: str
    tier: str
    size_bytes: int
    trouble: str = ""
    """What is wrong with it; then only the fields before this are set."""
    pid: int = 0
    processes: int = 0
    program: str = ""
    sealed_at_ms: int = 0
    labels: tuple[tuple[str, str], ...] = ()


@attrs.frozen
class OperationRow:
    """An operation that runs. ``steps`` are phases and the milliseconds after which each was entered."""

    operation: str
    kind: str
    checkpoint: str
    tier: str
    owed: bool = False
    steps: tuple[tuple[str, int], ...] = ()
    done_bytes: int = 0
    total_bytes: int = 0
    aside: str = ""
    """Why it was put aside; empty if it was not."""


@attrs.frozen
class TierRow:
    """How full a tier is."""

    tier: str
    folder: str
    budget_bytes: int
    used_bytes: int
    reserved_bytes: int
    free_bytes: int


@attrs.frozen
class OrderEnd:
    """What became of an order."""

    operation: str
    outcome: str
    """That of the operation, or one of the words above."""
    kind: str = ""
    """The name of the error that turned it round, or for which nothing was begun."""
    text: str = ""
    lasted_ms: int = 0
    size_bytes: int = 0
    pid: int = 0
    processes: int = 0
    tier: str = ""


Fact: TypeAlias = CheckpointRow | OperationRow | TierRow | OrderEnd
FactKey: TypeAlias = tuple[str, ...]
"""What a fact is about; the first word says which kind it is."""

CHECKPOINT, OPERATION, TIER, ORDER = "checkpoint", "operation", "tier", "order"


def key_of(fact: Fact) -> FactKey:
    """Return the key of a fact."""
    match fact:
        case CheckpointRow():
            return (CHECKPOINT, fact.checkpoint, fact.tier)
        case OperationRow():
            return (OPERATION, fact.operation)
        case TierRow():
            return (TIER, fact.tier)
        case OrderEnd():
            return (ORDER, fact.operation)


def size_of(value: object) -> int:
    """Say about how many bytes of memory a fact, or a part of one, takes."""
    match value:
        case str():
            return 64 + len(value) * (1 if value.isascii() else 4)
        case tuple():
            return 64 + sum(8 + size_of(each) for each in value)
        case CheckpointRow() | OperationRow() | TierRow() | OrderEnd():
            return size_of(attrs.astuple(value, recurse=False))
        case _:
            return 32


# Orders


@attrs.frozen
class FreezeOrder:
    """Freeze the process with this number, start time and boot, and all below it.

    With an ``attempt_uid`` the process has to be one of that attempt: it carries it in its environment.
    """

    pid: int
    start_ticks: int
    boot_id: str
    attempt_uid: str
    tier: str
    leave_running: bool
    force: bool = False
    tcp_established: bool = False
    labels: tuple[tuple[str, str], ...] = ()
    pid_namespace: int = 0
    """Of which ``pid`` is a number, as an inode; 0: not compared."""
    tcp_close: bool = False
    """Established connections are given up. Not together with ``tcp_established``."""
    guard: str = ""
    """The folder of the attempt, absolute: the process has to be its supervisor, and has a say in each thaw."""
    carries_folder: bool = False
    """The attempt's folder becomes a part of the checkpoint. Without a ``guard`` it is looked for."""


@attrs.frozen
class ThawOrder:
    """Bring a checkpoint back."""

    checkpoint: str
    force: bool = False
    new_numbers: bool = False
    """If somebody has a number of the tree, it comes back in a PID namespace of its own."""
    gpus: tuple[tuple[str, str], ...] = ()
    """Pairs of UUIDs: where it was on the first, it comes to the second."""
    repository: str = ""
    """The URL of the repository that has it, if no tier has; an agent that has another one refuses. Empty: whichever it
    has."""


@attrs.frozen
class RemoveOrder:
    """Remove a checkpoint; ``here_only``: not what the agent's repository has of it."""

    checkpoint: str
    here_only: bool = False


@attrs.frozen
class MoveOrder:
    """Have a checkpoint lie in this tier, or in the agent's repository; with ``keep`` it stays where it lay, too.

    With no target it is to lie in any tier of the node: if only the repository has it, it is copied from there.
    """

    checkpoint: str
    target: str
    keep: bool = False
    repository: str = ""
    """The URL of the repository that is meant; an agent that has another one refuses. Empty: whichever it has."""


@attrs.frozen
class VerifyOrder:
    """Read every byte of every copy of a checkpoint that the agent reaches, and compare."""

    checkpoint: str


@attrs.frozen
class ListOrder:
    """List what the agent's repository has: its reports have that from then on, as it was."""


@attrs.frozen
class Order:
    """What one agent is to do: exactly one of the last six. The operation's id is the order's."""

    operation: str
    freeze: FreezeOrder | None = None
    thaw: ThawOrder | None = None
    remove: RemoveOrder | None = None
    move: MoveOrder | None = None
    verify: VerifyOrder | None = None
    listing: ListOrder | None = None

    @property
    def kind(self) -> str:
        """What it is, in one word."""
        asked = {
            "freeze": self.freeze,
            "thaw": self.thaw,
            "remove": self.remove,
            "move": self.move,
            "verify": self.verify,
            "list": self.listing,
        }
        return next(kind for kind, order in asked.items() if order is not None)

    @property
    def checkpoint(self) -> str:
        """The checkpoint that it makes or uses; empty if it is of none."""
        if self.listing is not None:
            return ""
        used = self.thaw or self.remove or self.move or self.verify
        return self.operation if used is None else used.checkpoint


# What passes through the stream, both ways


@attrs.frozen
class AgentUp:
    """A stream has begun: from here on the agent says everything again."""

    identity: AgentIdentity
    abilities: Abilities


@attrs.frozen
class AgentReport:
    """Some facts, and the keys of some that hold no more. With ``complete`` all that there is has been said once."""

    sequence: int
    complete: bool
    facts: tuple[Fact, ...] = ()
    gone: tuple[FactKey, ...] = ()
    omitted: int = 0
    """Copies of checkpoints beyond those that an agent tells of."""


@attrs.frozen
class ReportAcked:
    """The controller has taken a report: the next one may come."""

    sequence: int


@attrs.frozen
class Orders:
    """What an agent is to do. ``complete``: these are all orders that the controller has no end of."""

    complete: bool = False
    begin: tuple[Order, ...] = ()
    cancel: tuple[str, ...] = ()
    release: tuple[str, ...] = ()


@attrs.frozen
class AgentStream:
    """The session: one stream of the agent of a node."""

    node: str


# What is shown


@attrs.frozen
class OrderView:
    """An order, and its end if it has one."""

    node: str
    agent_id: str
    order: Order
    wall_ns: int
    cancelled: bool = False
    end: OrderEnd | None = None


class NodeState(enum.Enum):
    """Whether what is known of a node is known to be so now."""

    SYNCING = "syncing"
    """Its agent has a stream, and has not said everything yet: what an earlier stream said is shown."""
    CONNECTED = "connected"
    UNKNOWN = "unknown"
    """Its agent has no stream. What is known is from before, and none of it is said to be gone (INV-C11)."""


@attrs.frozen
class NodeView:
    """A node as its mirror has it."""

    node: str
    state: NodeState
    since_wall_ns: int
    """Since when the state is what it is."""
    identity: AgentIdentity | None
    """None if no agent has dialled since the controller started."""
    abilities: Abilities | None
    facts: tuple[Fact, ...] = ()
    omitted: int = 0
