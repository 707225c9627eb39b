"""What is drawn for a commit is the same everywhere, and what is not drawn is run in the phase after."""

from types import SimpleNamespace

import pytest

from sampling import drawn, pytest_collection_modifyitems

NAMES = [f"test_it[{number}]" for number in range(20)]


def test_a_share_is_drawn():
    """The same for the same commit, in whichever order tests were found; another one for another commit."""
    first = drawn(NAMES, 3, "1f3a")
    assert len(first) == 7
    assert first == drawn(reversed(NAMES), 3, "1f3a") != drawn(NAMES, 3, "1f3b")


def test_a_few_commits_have_run_everything():
    """None is left out for ever."""
    assert {*NAMES} == set().union(*(drawn(NAMES, 3, str(commit)) for commit in range(20)))


def test_one_at_least_is_drawn():
    """Of few cases, too."""
    assert len(drawn(NAMES[:2], 3, "1f3a")) == 1


class Item:
    """A case as pytest has it."""

    def __init__(self, name, **marks):
        self.nodeid = f"tests/test_it.py::{name}"
        self.marks = {mark: getattr(pytest.mark, mark)(given).mark for mark, given in marks.items()}
        self.added = []

    def get_closest_marker(self, name):
        """Return a mark that it has."""
        return self.marks.get(name)

    def add_marker(self, name):
        """Remember what it is told to be."""
        self.added.append(name)


class Config:
    """The options of a run."""

    def __init__(self, seed, marks):
        self.seed, self.option = seed, self
        self.markexpr = marks

    def getoption(self, name):
        """Return the commit."""
        assert name == "--hypothesis-seed"
        return self.seed


@pytest.mark.parametrize(
    ("seed", "chosen", "left"),
    [
        ("1f3a", "slow and not soak and not coreweave", 13),
        ("1f3a", "not slow and not soak and not coreweave", 13),
        (None, "slow and not soak", 0),
        (None, "", 0),
        ("1f3a", "soak or hypothesis", 20),
        (None, "soak or hypothesis", 20),
    ],
)
@pytest.mark.parametrize(("marks", "becomes"), [({}, "slow"), ({"slow": True}, "soak")])
def test_what_is_left_to_the_next_phase(seed, chosen, left, marks, becomes):
    """What is not drawn for a commit; a soak has all of a slow test; by hand, nothing is left out."""
    items = [Item(name, sampled=3, **marks) for name in NAMES] + [Item("test_another", **marks)]
    pytest_collection_modifyitems(Config(seed, chosen), items)
    assert [item.added for item in items].count([becomes]) == left
    assert items[-1].added == []


def test_slow_cases_are_drawn_apart():
    """Of a test with one quick case and many slow ones the quick one stays, and a third of the others run."""
    items = [Item(NAMES[0], sampled=3), *(Item(name, sampled=3, slow=True) for name in NAMES[1:])]
    pytest_collection_modifyitems(Config("1f3a", "slow and not soak"), items)
    assert items[0].added == []
    assert [item.added for item in items].count(["soak"]) == 19 - 7


def test_a_case_is_of_one_phase():
    """The two phases of a commit draw alike: what one leaves out is what the other runs."""
    phases = ("not slow and not soak and not coreweave", "slow and not soak and not coreweave")
    items = [[Item(name, sampled=3) for name in NAMES] for _ in phases]
    for phase, of_it in zip(phases, items, strict=True):
        pytest_collection_modifyitems(Config("1f3a", phase), of_it)
    assert [item.added for item in items[0]] == [item.added for item in items[1]]


def test_each_kind_of_case_is_drawn_from():
    """One of each value of the parameter that the mark names, however few there are."""
    items = []
    for kind in ("often", "rare"):
        for number in range(9 if kind == "often" else 2):
            item = Item(f"test_it[{kind}-{number}]", slow=True, sampled=3)
            item.marks["sampled"] = pytest.mark.sampled(3, by="kind").mark
            item.callspec = SimpleNamespace(params={"kind": kind, "number": number})
            items.append(item)
    pytest_collection_modifyitems(Config("1f3a", "slow and not soak"), items)
    here = [item.callspec.params["kind"] for item in items if not item.added]
    assert (here.count("often"), here.count("rare")) == (3, 1)
