"""The registry of a cluster's checkpoints: one entry for each, from what all nodes' agents have told. Pure.

Nothing of it is kept. The manifests beside the copies are the truth, each mirror holds what its agent has read in them,
and the entries are joined anew for whoever asks: after a loss of all that the controller knows they are the same again
as soon as the agents have dialled.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Final, TypeAlias

import attrs

from iriscw.nodes.model import STORED, CheckpointRow, NodeState, NodeView
from iriscw.runtime.vocabulary import MILLISECOND

SLICE_ROWS: Final = 1024
SLICE_ENTRIES: Final = 256
"""What one step of a join takes at most: about two milliseconds."""

_Place: TypeAlias = tuple[str, bool, bool, bool, str, int, int]
"""A row as the order goes: the checkpoint, whether it cannot be read, whether its node is not heard of, whether a
repository has it, the node, and where the row is."""


@attrs.frozen
class NodeCopy:
    """One copy, on one node, as its agent last told of it."""

    node: str
    row: CheckpointRow
    unknown_since_ms: int = 0
    """Since when nobody can say whether it is still there; 0: it is."""


@attrs.frozen
class RegisteredCheckpoint:
    """A checkpoint with all of its copies; the first one is that to use: readable, on a node that is heard of, and
    rather in a tier of it than in its repository.
    """

    checkpoint: str
    copies: tuple[NodeCopy, ...]

    @property
    def told(self) -> NodeCopy:
        """The copy to use, whose manifest says what the checkpoint is."""
        return self.copies[0]


def joined(views: Sequence[NodeView], stored_by: Container[str] = ()) -> Iterator[tuple[RegisteredCheckpoint, ...]]:
    """Yield each checkpoint once, by id, in slices, of which the first ones are empty.

    What agents have told of their repositories is as old as the order to list that, and several may have told of one.
    So it is left out but for nodes that have just been asked: ``stored_by``.

    No step takes more than some milliseconds, however many checkpoints there are, so whoever walks along can let others
    have their turn between two slices. Rows are put in order by runs, which are merged; a row takes 0.1 KiB for as long
    as that lasts.
    """
    runs: list[list[_Place]] = []
    for number, view in enumerate(views):
        for at in range(0, len(view.facts), SLICE_ROWS):
            runs.append(_run(view, number, at, stored=view.node in stored_by))
            yield ()
    found: list[RegisteredCheckpoint] = []
    for checkpoint, copies in groupby(merge(*runs), itemgetter(0)):
        found.append(RegisteredCheckpoint(checkpoint, tuple(_copy(views[number], at) for *_, at, number in copies)))
        if len(found) == SLICE_ENTRIES:
            yield tuple(found)
            found.clear()
    yield tuple(found)


def _run(view: NodeView, number: int, start: int, *, stored: bool) -> list[_Place]:
    """Return the next rows of a view, in order; of one node the order is its agent's."""
    unknown = view.state is NodeState.UNKNOWN
    facts = view.facts[start : start + SLICE_ROWS]
    return sorted(
        (fact.checkpoint, bool(fact.trouble), unknown, fact.tier == STORED, view.node, at, number)
        for at, fact in enumerate(facts, start)
        if isinstance(fact, CheckpointRow) and (stored or fact.tier != STORED)
    )


def _copy(view: NodeView, at: int) -> NodeCopy:
    row = view.facts[at]
    assert isinstance(row, CheckpointRow)
    return NodeCopy(view.node, row, view.since_wall_ns // MILLISECOND if view.state is NodeState.UNKNOWN else 0)
