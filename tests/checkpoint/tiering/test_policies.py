"""What the built-in policies propose: they empty what is too full, bring back what is worth it, and stop."""

import pytest
from hypothesis import given, strategies as st

from iriscw.checkpoint.drivers.policies import SPEEDS, first_ledger
from iriscw.checkpoint.tiering.model import CheckpointView, Speed, TieringView, TierView, Watermarks
from iriscw.checkpoint.tiering.policies import ByWorth, GreedyDual, LeastRecentlyUsed
from iriscw.checkpoint.tiering.usage import Usage, UsageLedger
from iriscw_sims.tiering.shelves import REPOSITORY, Shelves
from profiles import examples

POLICIES = [LeastRecentlyUsed(), GreedyDual()]
NAMES = tuple("abcdefgh")


def machine(copies, *, sizes=None, used=(), budgets=None, backed=False):
    """Return a machine whose checkpoints were thawed in this order, each as often as it is named."""
    ledger = first_ledger()
    for at, each in enumerate(used, 1):
        ledger = ledger.used(each, at)
    sizes = sizes or dict.fromkeys(copies, 10)
    return Shelves(budgets or {"ram": 100, "disk": 1000}, sizes, copies, backed=backed, ledger=ledger)


@pytest.mark.parametrize("limit", [1, 20])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_full_tier_is_emptied_to_its_low_mark(policy, limit):
    """Ten of ten in RAM: what was thawed last and most stays, down to seven."""
    copies = {f"c{number}": ["ram"] for number in range(10)}
    made = machine(copies, used=[name for name in copies if name not in ("c3", "c5", "c8")] * 2)
    made.round(policy, limit)
    assert sorted(each for each, tiers in copies.items() if tiers == ["disk"]) == ["c3", "c5", "c8"]


@pytest.mark.parametrize("policy", POLICIES)
def test_between_the_marks_nothing_moves(policy):
    """Nine of ten are at the high mark and not above."""
    made = machine({f"c{number}": ["ram"] for number in range(9)})
    assert not made.round(policy)[0].moves


@pytest.mark.parametrize("policy", POLICIES)
def test_what_lies_further_down_is_dropped_and_not_copied(policy):
    """A drop needs no room below."""
    made = machine({f"c{number}": ["ram", "disk"] for number in range(10)}, budgets={"ram": 100, "disk": 100})
    made.round(policy)
    assert made.used_bytes("ram") == 70
    assert made.used_bytes("disk") == 100


@pytest.mark.parametrize("policy", POLICIES)
def test_what_was_thawed_comes_to_a_faster_tier(policy):
    """And stays below, so that it can be dropped later."""
    copies = {"a": ["disk"], "b": ["disk"]}
    machine(copies, used=["b"]).round(policy)
    assert copies == {"a": ["disk"], "b": ["disk", "ram"]}


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_worth_less_makes_room(policy):
    """RAM is at its high mark with what nobody wants: what is wanted comes instead, in the same round."""
    copies = {**{f"c{number}": ["ram"] for number in range(9)}, "x": ["disk"]}
    made = machine(copies, used=["x", "x", "c0", "x"])
    made.round(policy)
    assert "ram" in copies["x"]
    assert "ram" in copies["c0"]
    assert made.used_bytes("ram") == 90


def test_greedy_dual_prefers_small_ones_that_are_used_often():
    """The large one was used last, and goes: it takes ten times as much for each second that it saves."""
    copies = {"large": ["ram"], "small": ["ram"]}
    made = machine(copies, sizes={"large": 90, "small": 9}, used=["small", "small", "large"])
    made.round(GreedyDual())
    assert copies == {"large": ["disk"], "small": ["ram"]}


def test_greedy_dual_forgets_what_was_popular_once():
    """What was demoted raises the floor under what is used after that."""
    ledger = first_ledger().used("old", 1).used("old", 2)
    tiers = (TierView("ram", Speed(0, 100), 100, 0), TierView("disk", Speed(0, 10), 100, 0))
    for _ in range(2):
        ledger = ledger.demoted("ram", 1.0)
    ledger = ledger.used("new", 3)
    old, new = (
        CheckpointView(x, 10, ("ram",), 0, ledger.usage[x].uses, ledger.usage[x].floors) for x in ("old", "new")
    )
    view = TieringView(tiers, (old, new))
    assert GreedyDual().worth(view, old, tiers[0]) < GreedyDual().worth(view, new, tiers[0])


def test_the_lowest_tier_is_left_alone():
    """There is nowhere to go from a full disk without a repository."""
    made = machine({f"c{number}": ["disk"] for number in range(10)}, budgets={"ram": 5, "disk": 100})
    assert not made.round(GreedyDual())[0].moves


class SmallOnes(ByWorth):
    """The one of the documentation."""

    def worth(self, view, checkpoint, tier):
        return -checkpoint.size_bytes


machines = st.builds(
    lambda ram, disk, sizes, copies, used, backed, low, high: Shelves(
        {"ram": ram, "disk": disk},
        sizes,
        {each: [tier for tier in tiers if backed or tier != REPOSITORY] or ["disk"] for each, tiers in copies.items()},
        backed=backed,
        marks={"ram": Watermarks(low / 10, high / 10), "disk": Watermarks(low / 10, high / 10)},
        ledger=UsageLedger({each: Usage(count, count) for each, count in used.items()}, speeds=dict(SPEEDS)),
    ),
    st.integers(1, 200),
    st.integers(1, 300),
    st.fixed_dictionaries({each: st.integers(1, 50) for each in NAMES}),
    st.fixed_dictionaries(
        {
            each: st.lists(st.sampled_from(("ram", "disk", REPOSITORY)), min_size=1, max_size=3, unique=True)
            for each in NAMES
        }
    ),
    st.dictionaries(st.sampled_from(NAMES), st.integers(1, 5)),
    st.booleans(),
    st.integers(0, 5),
    st.integers(6, 10),
)


@examples(50)
@given(machines, st.sampled_from([*POLICIES, SmallOnes()]), st.integers(1, 3))
def test_it_stops(made, policy, limit):
    """With nothing new from outside the first rounds move what has to be, and the next ones nothing."""
    for _ in range(len(NAMES)):
        if not any(answer.moves for answer in made.round(policy, limit)):
            break
    assert not made.round(policy, limit)[0].moves


@examples(50)
@given(machines, st.sampled_from([*POLICIES, SmallOnes()]))
def test_ram_is_kept_under_its_high_mark(made, policy):
    """Where what is below takes everything, no tier above it stays too full."""
    if made.backed:
        for _ in range(len(NAMES)):
            made.round(policy)
        assert all(tier.used_bytes <= tier.high_bytes for tier in made.view().tiers)
