"""Cells: small while idle, exact about their room, unique by identity."""

import sys

from hypothesis import given, strategies as st
from puppet import Do, puppet

from iriscw.runtime import Behavior, ChildSpec, Restart, StopSelf
from iriscw.runtime.cell import STATUS_NAMES, WAITING, Cell
from iriscw.runtime.vocabulary import ROOT
from iriscw.testing import SimSystem

IDLE_BYTES_MAX = 400
"""The runtime's goal for an idle actor; ``iriscw bench runtime`` measures it with all that belongs to it."""


def cell(capacity=4, parent=None, name="a", birth=1):
    """Give a cell that belongs to no tree."""
    path = ROOT if parent is None else parent.path / name
    return Cell(None, path, parent, ChildSpec(name, Behavior(), capacity=capacity), birth)


def test_idle_cells_are_small():
    """What a cell may never need is not allocated: no mailbox, no tables, no dictionary."""
    made = cell()
    assert made.mailbox is None
    assert made.__dict__ == {}
    assert sys.getsizeof(made) <= IDLE_BYTES_MAX
    assert not made.full


def test_defaults_are_not_shared():
    """Setting what the class has a default for touches this cell only."""
    one, two = cell(), cell()
    one.timers = {"k": 1}
    assert two.timers is None


@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5), st.integers(0, 5))
def test_room(waiting, stashed, parked, answers):
    """Messages that wait, are stashed or parked count against the capacity; answers have room of their own."""
    made = cell(capacity=4)
    made.box().extend(["m"] * (waiting + answers))
    made.reserved = answers
    made.stash = made.box().__class__(["m"] * stashed)
    made.parked = made.box().__class__(["m"] * parked)
    assert made.full == (waiting + stashed + parked >= 4)
    made.set_room()
    assert made.capacity == 4 - stashed - parked


def test_identity():
    """The identity names each ancestor's birth and incarnation: a successor at the same path has another one."""
    root = cell(name="")
    child = cell(parent=root, birth=3)
    grandchild = cell(parent=child, name="b", birth=1)
    assert grandchild.identity() == "#1.0/a#3.0/b#1.0"
    child.incarnation = 2
    assert grandchild.identity() == "#1.0/a#3.2/b#1.0"
    assert child.identity() != cell(parent=root, birth=4).identity()


def test_repr_names_the_state():
    """A failure message shows path, status and incarnation."""
    made = cell()
    assert made.status == WAITING
    assert repr(made) == "<Cell / waiting incarnation 0>"
    assert len(STATUS_NAMES) == 6


def test_births_count_on():
    """A name that is used again gets a new birth: nothing of the old actor is taken for the new one's."""
    made = SimSystem()
    identities = []
    for _ in range(3):
        made.spawn("a", puppet(), restart=Restart.TEMPORARY)
        made.run_until_idle()
        identities.append(made.tree.cells[ROOT / "a"].identity())
        made.tell("/a", Do((StopSelf(),)))
        made.run_until_idle()
    assert identities == ["#0.0/a#1.0", "#0.0/a#2.0", "#0.0/a#3.0"]
