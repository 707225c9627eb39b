"""Whatever a policy proposes: no last copy goes, nothing that is used is touched, and a round ends."""

import attrs
import pytest
from hypothesis import given, strategies as st

from iriscw.checkpoint.tiering.guard import admitted, ask, guarded
from iriscw.checkpoint.tiering.model import (
    CheckpointView,
    MoveReason,
    MoveRefusal,
    Proposal,
    Speed,
    TieringView,
    TierView,
)
from iriscw_sims.tiering.shelves import REPOSITORY, Shelves
from profiles import examples

ARTIFACTS = ("a", "b", "c", "d")
TIERS = ("ram", "disk", REPOSITORY)
SPEED = Speed(0.0, 1e9)

RAM, DISK = TierView("ram", SPEED, 100, 40), TierView("disk", SPEED, 200, 40)


def a_view(tiers=(RAM, DISK), copies=("ram",), *, busy="", size=10, **words):
    """Return a view with the checkpoint ``a`` alone."""
    return TieringView(tiers, (CheckpointView("a", size, copies, 0, busy=busy),), **words)


def verdict(view, proposal, limit=1):
    """Return why a proposal is refused, or as what it is let through."""
    answer = guarded(view, (proposal,), limit)
    return answer.refused[0].refusal if answer.refused else answer.moves[0][1]


DEMOTION = Proposal("a", "ram", "disk")


@pytest.mark.parametrize(
    ("view", "proposal", "expected"),
    [
        (a_view(), DEMOTION, MoveReason.DEMOTE),
        (a_view(copies=("ram", "disk")), DEMOTION, MoveReason.DROP),
        (a_view(copies=("disk",)), Proposal("a", "disk", "ram", keep=True), MoveReason.PROMOTE),
        (a_view(), Proposal("a", "ram", "disk", keep=True), MoveReason.COPY),
        (a_view(), Proposal("b", "ram", "disk"), MoveRefusal.UNKNOWN),
        (a_view(), Proposal("a", "ram", "tape"), MoveRefusal.UNKNOWN),
        (a_view(copies=("disk",)), DEMOTION, MoveRefusal.UNKNOWN),
        (a_view(), Proposal("a", "ram", "ram"), MoveRefusal.POINTLESS),
        (a_view(copies=("ram", "disk")), Proposal("a", "disk", "ram", keep=True), MoveRefusal.POINTLESS),
        (a_view(busy="th-1"), DEMOTION, MoveRefusal.IN_USE),
        (a_view(copies=("disk",)), Proposal("a", "disk", "ram"), MoveRefusal.LAST_COPY),
        (a_view(copies=("ram", "disk")), Proposal("a", "disk", "ram"), MoveRefusal.LAST_COPY),
        (a_view(size=161), DEMOTION, MoveRefusal.NO_ROOM),
        (a_view(size=160), DEMOTION, MoveReason.DEMOTE),
        (a_view(copies=("disk",), size=51), Proposal("a", "disk", "ram", keep=True), MoveRefusal.NO_ROOM),
        (a_view(copies=("disk",), size=50), Proposal("a", "disk", "ram", keep=True), MoveReason.PROMOTE),
        (a_view(demands=1), DEMOTION, MoveRefusal.DEMAND_FIRST),
        (a_view(moving=1), DEMOTION, MoveRefusal.TOO_MANY),
    ],
)
def test_each_refusal(view, proposal, expected):
    """One proposal at a time."""
    assert verdict(view, proposal) is expected


def test_what_was_let_through_before_counts():
    """The same checkpoint is not moved twice, and room is not given twice."""
    view = TieringView(
        (RAM, attrs.evolve(DISK, used_bytes=185)), tuple(CheckpointView(x, 10, ("ram",), 0) for x in "ab")
    )
    answer = guarded(view, (DEMOTION, DEMOTION, Proposal("b", "ram", "disk")), 5)
    assert [each.refusal for each in answer.refused] == [MoveRefusal.IN_USE, MoveRefusal.NO_ROOM]


class Raising:
    """Fails, or answers nonsense."""

    def __init__(self, answer=None):
        self.answer = answer

    def balance(self, view):
        if self.answer is None:
            raise LookupError("no idea")
        return self.answer

    def admit(self, view, size_bytes):
        raise LookupError("no idea")


@pytest.mark.parametrize("answer", [None, 3, ["ram"], [DEMOTION, None]])
def test_a_policy_that_fails_moves_nothing(answer):
    """Its error is told, and nobody else fails."""
    got = ask(Raising(answer), a_view(), 1)
    assert got.error
    assert not got.moves


def test_a_policy_that_never_ends_is_cut_off():
    """An endless answer is an answer of so many proposals."""

    def endless():
        while True:
            yield Proposal("b", "ram", "disk")

    assert len(ask(Raising(endless()), a_view(), 1).refused) == 1024


class Admits(Raising):
    """Has everything fetched into one tier."""

    def admit(self, view, size_bytes):
        return self.answer


@pytest.mark.parametrize(
    ("tier", "size", "expected"),
    [("ram", 60, "ram"), ("ram", 61, ""), ("tape", 1, ""), ([], 1, ""), ("disk", 61, "disk")],
)
def test_admission_is_held_to_budgets(tier, size, expected):
    """What has no room, or is no tier, counts as no opinion."""
    assert admitted(Admits(tier), a_view(), size)[0] == expected


def test_a_policy_that_fails_admits_nothing():
    """And says why."""
    tier, error = admitted(Raising(), a_view(), 1)
    assert (tier, bool(error)) == ("", True)


proposals = st.builds(
    Proposal,
    st.sampled_from((*ARTIFACTS, "x")),
    st.sampled_from((*TIERS, "y")),
    st.sampled_from((*TIERS, "y")),
    st.booleans(),
)
shelves = st.builds(
    Shelves,
    st.builds(lambda ram, disk: {"ram": ram, "disk": disk}, st.integers(0, 60), st.integers(0, 90)),  # in this order
    st.fixed_dictionaries({each: st.integers(1, 30) for each in ARTIFACTS}),
    st.fixed_dictionaries(
        {each: st.lists(st.sampled_from(TIERS), min_size=1, max_size=3, unique=True) for each in ARTIFACTS}
    ),
    used_by=st.dictionaries(st.sampled_from(ARTIFACTS), st.just("th-1"), max_size=2),
)


class Adversary:
    """Proposes what was drawn, again and again."""

    def __init__(self, drawn):
        self.drawn = drawn

    def balance(self, view):
        return self.drawn


@examples(100)
@given(shelves, st.lists(proposals, max_size=30), st.integers(1, 3))
def test_no_policy_loses_a_checkpoint(made, drawn, limit):
    """Random proposals: what is on the slowest tier stays, budgets hold, what is used stays, the round ends."""
    before = {each: list(tiers) for each, tiers in made.copies.items()}
    most = {tier: max(budget, made.used_bytes(tier)) for tier, budget in made.budgets.items()}
    answers = made.round(Adversary(drawn), limit)
    for each, tiers in made.copies.items():
        slowest = max(map(TIERS.index, before[each]))
        assert max(map(TIERS.index, tiers)) >= slowest
        if each in made.used_by:
            assert tiers == before[each]
    assert all(made.used_bytes(tier) <= most[tier] for tier in most)
    assert all(len(answer.moves) <= limit for answer in answers)
    assert sum(len(answer.moves) for answer in answers) <= len(ARTIFACTS)


@examples(50)
@given(shelves, st.lists(proposals, max_size=30), st.integers(0, 4), st.integers(0, 2))
def test_demand_goes_first(made, drawn, moving, demands):
    """While somebody waits nothing begins, nor beside as many moves as may run."""
    answer = ask(Adversary(drawn), made.view(moving=moving, demands=demands), 3)
    assert len(answer.moves) <= (0 if demands else max(0, 3 - moving))
    assert len(answer.moves) + len(answer.refused) == len(drawn)
