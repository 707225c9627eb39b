"""The named errors of nodes: what a caller of the doors can be told."""

from __future__ import annotations

from typing import Final

from iriscw._errors import OperationError, UsageError

STARTS_AGENT: Final = (
    "`iriscw agent token FILE` gives the token for one, and `iriscw agent serve --controller HOST:PORT "
    "--token-file FILE` runs it there"
)
"""What to do about a node that no agent has dialled from."""


class NoSuchNode(UsageError, LookupError):
    """No agent has ever dialled from a node of this name."""


class AgentAway(OperationError):
    """The node's agent has no stream to the controller now: it runs no orders. What it holds is not gone."""

    retryable = True


class NodeConnected(OperationError):
    """The node's agent has a stream to the controller, or begins one: end the agent before its node is forgotten."""


class NoSuchOrder(UsageError, LookupError):
    """The controller has given no such order, or it ended so long ago that it was forgotten."""


class OrderKeyReused(UsageError):
    """The idempotency key was used before, for another order."""


class TooManyOrders(OperationError):
    """As many orders as the controller gives, or an agent takes, have not ended yet."""

    retryable = True


class TooManyNodes(OperationError):
    """The controller knows as many nodes as it can, and each of them has an agent or an order."""

    retryable = True


class NodeSaysTooMuch(UsageError):
    """An agent told of more than the controller keeps of one node: its stream is ended."""


class AgentFenced(OperationError):
    """A later start of this agent has been at the controller: the earlier one has no say any more."""


class CheckpointUnknown(UsageError, LookupError):
    """No node that the controller hears of has such a checkpoint. One whose agent is away may."""


class CheckpointAmbiguous(UsageError):
    """Several nodes have a checkpoint of this id: name the node."""


class TaskOutOfReach(UsageError):
    """The attempt's processes are none that a node's agent can freeze, and the text says why."""


class CheckpointNeeded(UsageError):
    """The checkpoint is what a suspended task goes on from, with `iriscw resume`, unless its job is stopped."""
