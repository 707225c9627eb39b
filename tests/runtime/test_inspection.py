"""Inspecting a tree: pages hold everything once, say what goes wrong, and never take long."""

import pytest
from hypothesis import given, strategies as st
from puppet import Do, puppet

from iriscw._errors import InvalidArgument, NoSuchActor
from iriscw.runtime import SECOND, Behavior, SetTimer, Spawn, Stash, StopChild, inspection
from iriscw.runtime.behavior import Backoff, ChildSpec, Supervision
from iriscw.runtime.inspection import failure_text, inspect
from iriscw.testing import SimSystem

NAMES = st.sampled_from(["a", "a-", "a.b", "b", "ab", "Z", "ü"])
"""Some sort before, some behind the slash of a path whose name they begin with."""


def tree_of(paths):
    """Return a system that has actors at these paths, and at those above them."""
    made = SimSystem(puppet())
    made.run_until_idle()
    for path in paths:
        for end in range(1, len(path) + 1):
            above = f"/{'/'.join(path[: end - 1])}"
            if f"{above.rstrip('/')}/{path[end - 1]}" not in made.tree.cells:
                made.tell(above, Do((Spawn(ChildSpec(path[end - 1], puppet())),)))
                made.run_until_idle()
    return made


def look(made, **asked):
    """Return a page of a system's tree."""
    return inspect(made.tree, made.simulation.dispatcher.clock.now(), **asked)


def pages(made, between=lambda: None, **asked):
    """Return all rows, page by page; ``between`` runs before each further page."""
    page = look(made, **asked)
    rows = list(page.actors)
    while page.next:
        between()
        page = look(made, after=page.next, **asked)
        rows += page.actors
    return rows


@given(st.lists(st.lists(NAMES, min_size=1, max_size=4), max_size=12), st.integers(1, 5))
def test_pages_hold_each_actor_once(paths, limit):
    """However small they are, in one order: each supervisor right before what is below it."""
    made = tree_of(paths)
    seen = [row.path for row in pages(made, limit=limit)]
    assert seen == [row.path for row in look(made).actors]
    assert sorted(seen) == sorted(made.tree.cells)
    assert all(seen.index(path.rpartition("/")[0] or "/") < at for at, path in enumerate(seen) if path != "/")


@given(
    st.lists(st.lists(NAMES, min_size=1, max_size=3), min_size=1, max_size=8),
    st.lists(st.tuples(st.booleans(), NAMES), max_size=6),
    st.integers(1, 3),
)
def test_what_lives_all_the_while_is_seen_once(paths, changes, limit):
    """Others come and go between two pages."""
    made = tree_of(paths)
    there = dict.fromkeys(made.tree.cells)
    changes = iter(changes)

    def between():
        comes, name = next(changes, (True, ""))
        known = f"/{name}" in made.tree.cells
        if name and known != comes:
            made.tell("/", Do((Spawn(ChildSpec(name, puppet())) if comes else StopChild(name),)))
            made.run_until_idle()
            for gone in [path for path in there if path not in made.tree.cells]:
                del there[gone]

    seen = [row.path for row in pages(made, between, limit=limit)]
    assert [path for path in there if seen.count(path) != 1] == []
    assert len(seen) == len(dict.fromkeys(seen))


def test_a_part_of_a_tree():
    """From one actor, down to a depth; a sibling whose name begins alike is none of it."""
    made = tree_of([["a", "b", "c"], ["a", "d"], ["ab", "x"]])
    assert [row.path for row in look(made, under="/a").actors] == ["/a", "/a/b", "/a/b/c", "/a/d"]
    assert [row.path for row in look(made, under="/a", depth=1).actors] == ["/a", "/a/b", "/a/d"]
    assert [row.path for row in look(made, depth=0).actors] == ["/"]
    assert [row.path for row in pages(made, under="/a", limit=1)] == ["/a", "/a/b", "/a/b/c", "/a/d"]
    assert look(made, under="/a").actors[0].children == 2


@pytest.mark.parametrize("asked", [{"limit": 0}, {"depth": -1}, {"under": "/a", "after": "/ab"}])
def test_what_cannot_be_asked_for(asked):
    """No rows, less than no levels, a page of another part."""
    with pytest.raises(InvalidArgument):
        look(tree_of([["a"], ["ab"]]), **asked)


def test_a_part_that_is_not_there():
    """It is told by its path."""
    with pytest.raises(NoSuchActor) as caught:
        look(tree_of([["a"]]), under="/a/b")
    assert "/a/b" in str(caught.value)


def test_failures_are_told():
    """A restarted actor says how often and why; one that failed too often is quarantined, and says since when."""
    made = SimSystem(puppet(supervision=Supervision(restarts=1, backoff=Backoff(initial=5 * SECOND))))
    made.run_until_idle()
    made.tell("/", Do(tuple(Spawn(ChildSpec(name, puppet(), entity=True)) for name in ("ill", "well"))))
    made.run_until_idle()
    made.tell("/ill", Do(error=RuntimeError("first\nline")))
    made.advance(1)
    ill, well = (row for row in look(made).actors if row.path != "/")
    assert (ill.state, ill.restarts, ill.failure) == ("waiting", 1, "RuntimeError: first line")
    assert ill.failed_ns >= SECOND
    assert (well.state, well.restarts, well.failure, well.failed_ns) == ("active", 0, "", 0)
    made.advance(10)
    (ill,) = look(made, troubled=True).actors
    assert (ill.path, ill.state, ill.restarts) == ("/ill", "active", 1)
    made.tell("/ill", Do(error=ValueError()))
    made.advance(1)
    (ill,) = look(made, troubled=True).actors
    assert (ill.state, ill.failure) == ("quarantined", "ValueError")
    assert SECOND <= ill.failed_ns < 2 * SECOND


def test_a_full_mailbox_is_trouble():
    """Stashed messages count, and so do those that wait in the mailbox; answers have room of their own."""
    made = SimSystem(puppet())
    made.spawn("stashing", puppet(), capacity=4)
    made.spawn("answered", Behavior(decide=lambda state, told, ctx: told), capacity=4)
    made.run_until_idle()
    for _ in range(2):
        made.tell("/stashing", Do((Stash(),)))
        made.tell("/answered", tuple(SetTimer(name, SECOND, (Stash(),)) for name in "abc"))
    made.advance(2)
    assert made.statistics().answers_queued == 3
    assert [(row.path, row.queued, row.capacity) for row in look(made, troubled=True).actors] == [("/stashing", 2, 4)]
    for number in range(3):
        made.tell("/answered", (number,))
    made.tree.note(made.tree.cells["/answered"], "an answer")
    assert [row.queued for row in look(made, under="/answered").actors] == [3]


def test_a_page_looks_at_a_bounded_number(monkeypatch):
    """Few rows of a large tree do not make one long page: it ends early, and says where to go on."""
    monkeypatch.setattr(inspection, "MAX_LOOKED_AT", 3)
    made = tree_of([[name] for name in "abcdefg"])
    page = look(made, troubled=True)
    assert (page.actors, page.next) == ((), "/b")
    assert pages(made, troubled=True) == []
    monkeypatch.setattr(inspection, "MAX_ROWS", 2)
    assert len(look(made, limit=1_000).actors) == 2


class Mute(Exception):
    """An error that cannot say what it is."""

    def __str__(self):
        raise ZeroDivisionError


def test_the_text_of_a_failure():
    """One line of 200 characters at most; an error whose text fails cannot take the tree down."""
    assert failure_text(KeyError("k")) == "KeyError: 'k'"
    assert failure_text(ValueError("cannot read /a\udcff")) == r"ValueError: cannot read /a\udcff"  # a path of bytes
    assert failure_text(Mute()) == "Mute: its text cannot be made: ZeroDivisionError"
    assert len(failure_text(ValueError("x" * 10_000))) == 200
    made = SimSystem(puppet())
    made.spawn("a", Behavior(decide=puppet().decide))
    made.run_until_idle()
    made.tell("/a", Do(error=Mute()))
    made.advance(60)
    assert made.tree.cells["/a"].failure.startswith("Mute")
    assert made.tree.fatal is None
