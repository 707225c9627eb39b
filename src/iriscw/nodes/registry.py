"""The registry of a cluster's checkpoints: one entry for each, from what all nodes' agents have told. Pure.

Nothing of it is kept. The manifests beside the copies are the truth, each mirror holds what its agent has read in them,
and the entries are joined anew for whoever asks: after a loss of all that the controller knows they are the same again
as soon as the agents have dialled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter

import attrs

from iriscw.nodes.model import CheckpointRow, NodeState, NodeView
from iriscw.runtime.vocabulary import MILLISECOND


@attrs.frozen
class NodeCopy:
    """One copy, on one node, as its agent last told of it."""

    node: str
    row: CheckpointRow
    unknown_since_ms: int = 0
    """Since when nobody can say whether it is still there; 0: it is."""


@attrs.frozen
class RegisteredCheckpoint:
    """A checkpoint with all of its copies; the first one is that to use: readable, and on a node that is heard of."""

    checkpoint: str
    copies: tuple[NodeCopy, ...]

    @property
    def told(self) -> NodeCopy:
        """The copy to use, whose manifest says what the checkpoint is."""
        return self.copies[0]


def joined(views: Sequence[NodeView]) -> Iterator[RegisteredCheckpoint]:
    """Yield each checkpoint once, by id. Only the order is made before the first one: as plain rows, each of which
    takes 0.1 KiB for as long as that lasts.
    """
    order = [
        (fact.checkpoint, bool(fact.trouble), view.state is NodeState.UNKNOWN, view.node, at, number)
        for number, view in enumerate(views)
        for at, fact in enumerate(view.facts)
        if isinstance(fact, CheckpointRow)
    ]
    order.sort()  # of one node the order is its agent's
    for checkpoint, copies in groupby(order, itemgetter(0)):
        yield RegisteredCheckpoint(checkpoint, tuple(_copy(views[number], at) for *_, at, number in copies))


def _copy(view: NodeView, at: int) -> NodeCopy:
    row = view.facts[at]
    assert isinstance(row, CheckpointRow)
    return NodeCopy(view.node, row, view.since_wall_ns // MILLISECOND if view.state is NodeState.UNKNOWN else 0)
