"""The registry: one entry for each checkpoint, from what mirrors hold."""

import random
import time
import tracemalloc
from itertools import chain

import pytest
from hypothesis import given, strategies as st

from iriscw.nodes.model import STORED, CheckpointRow, NodeState, NodeView
from iriscw.nodes.registry import SLICE_ENTRIES, joined
from profiles import examples

ROWS = st.builds(
    CheckpointRow,
    checkpoint=st.sampled_from(["ck-1", "ck-2", "ck-3"]),
    tier=st.sampled_from(["ram", "disk"]),
    size_bytes=st.integers(0, 9),
    trouble=st.sampled_from(["", "", "torn"]),
    sealed_at_ms=st.integers(1, 5),
)


def view(node, *rows, state=NodeState.CONNECTED, since_s=0):
    """Return what a mirror says."""
    return NodeView(node, state, since_s * 10**9, None, None, rows)


def entries_of(views):
    """Return what a join gives in all of its slices."""
    return list(chain.from_iterable(joined(views)))


VIEWS = st.lists(
    st.builds(
        lambda node, rows, state: view(node, *rows, state=state, since_s=7),
        st.sampled_from(["n1", "n2", "n3"]),
        st.lists(ROWS, max_size=4, unique_by=lambda row: (row.checkpoint, row.tier)),
        st.sampled_from(NodeState),
    ),
    max_size=3,
    unique_by=lambda each: each.node,
)


def test_copies_of_one_checkpoint():
    """It is one entry; the first copy is one that can be used, of a node that is heard of."""
    whole = CheckpointRow("ck-1", "disk", 4, sealed_at_ms=5, labels=(("model", "a"),))
    torn = CheckpointRow("ck-1", "ram", 0, "torn")
    away = view("n1", whole, state=NodeState.UNKNOWN, since_s=9)
    (entry,) = entries_of([away, view("n2", torn, whole)])
    assert [(copy.node, copy.row.tier, copy.unknown_since_ms) for copy in entry.copies] == [
        ("n2", "disk", 0),
        ("n1", "disk", 9000),
        ("n2", "ram", 0),
    ]
    assert entry.told is entry.copies[0]


def test_what_a_repository_has_is_shown_by_whoever_has_just_listed_it():
    """Once, however many agents have told of it; a copy in a tier is rather used."""
    here, there = CheckpointRow("ck-1", "disk", 4), CheckpointRow("ck-1", STORED, 4)
    only = CheckpointRow("ck-2", STORED, 4)
    views = [view("n1", there, only), view("n2", here, there), view("n3", there)]
    assert [[(copy.node, copy.row.tier) for copy in each.copies] for each in entries_of(views)] == [[("n2", "disk")]]
    listed = chain.from_iterable(joined(views, {"n1"}))
    assert [[(copy.node, copy.row.tier) for copy in each.copies] for each in listed] == [
        [("n2", "disk"), ("n1", STORED)],
        [("n1", STORED)],
    ]


@examples(30)
@given(VIEWS, st.randoms(use_true_random=False))
def test_every_copy_is_in_one_entry(views, rng):
    """Whatever the order in which mirrors answer; and nothing is told of a checkpoint by a copy that cannot be read."""
    entries = entries_of(views)
    told = [(each.node, row) for each in views for row in each.facts]
    assert sorted((c.node, c.row.checkpoint, c.row.tier) for e in entries for c in e.copies) == sorted(
        (node, row.checkpoint, row.tier) for node, row in told
    )
    assert len({entry.checkpoint for entry in entries}) == len(entries)
    for entry in entries:
        assert {copy.row.checkpoint for copy in entry.copies} == {entry.checkpoint}
        assert not entry.told.row.trouble or all(copy.row.trouble for copy in entry.copies)
    assert entries_of(rng.sample(views, len(views))) == entries


def fleet(checkpoints):
    """Return mirrors with so many checkpoints, each of which has two copies on one node and one on another."""
    nodes = checkpoints // 1000
    rows = [[] for _ in range(nodes)]
    for number in range(checkpoints):
        for at, tier in ((number, "ram"), (number, "disk"), (number + 1, "disk")):
            rows[at % nodes].append(CheckpointRow(f"ck-{number:06}", tier, 1, sealed_at_ms=number))
    for each in rows:
        random.Random(1).shuffle(each)
    return [view(f"n{number}", *each) for number, each in enumerate(rows)]


def seconds(views):
    """Return the least CPU time that a join takes."""
    took = []
    for _ in range(3):
        begun = time.process_time()
        for _entries in joined(views):
            pass
        took.append(time.process_time() - begun)
    return min(took)


def test_no_step_is_long():
    """However many rows a node has: between two slices there is never more than a slice's worth of them to read."""
    rows = [CheckpointRow(f"ck-{number:05}", "disk", 1) for number in range(5_000)]
    random.Random(1).shuffle(rows)
    views = [view("n1", *rows), view("n2", *rows[:100])]
    slices = list(joined(views))
    assert [len(each) for each in slices[:6]] == [0] * 6  # five runs of one node, and one of the other
    assert [len(each) for each in slices[6:]] == [SLICE_ENTRIES] * (5_000 // SLICE_ENTRIES) + [5_000 % SLICE_ENTRIES]
    assert [entry.checkpoint for entry in chain.from_iterable(slices)] == sorted(row.checkpoint for row in rows)


@pytest.mark.slow
def test_it_is_linear():
    """A hundred thousand checkpoints take at most twice what ten times ten thousand do, in time, and in memory."""
    few, many = fleet(10_000), fleet(100_000)
    assert seconds(many) < 20 * seconds(few)
    assert peak_bytes(many) < 20 * peak_bytes(few)


def peak_bytes(views):
    """Return the most memory that a join takes while its entries are passed on, one by one."""
    tracemalloc.start()
    try:
        for _entries in joined(views):
            pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
