"""What is remembered of checkpoints, and the view that is made of it."""

import pytest

from iriscw.checkpoint.drivers.policies import SPEEDS, first_ledger
from iriscw.checkpoint.model import ListedArtifact, TierUse
from iriscw.checkpoint.tiering.model import Speed, TierView, Watermarks
from iriscw.checkpoint.tiering.usage import UNKNOWN_SPEED, tier_views, view_of
from iriscw_sims.tiering.shelves import MANIFEST
from raised import that

RAM = TierView("ram", SPEEDS["ram"], 100, 0)


def filled(count):
    """Return RAM with so many bytes in it."""
    return (TierView("ram", SPEEDS["ram"], 100, count),)


def test_a_tier_drains_from_above_its_high_mark_to_its_low_one():
    """In between it depends on where it came from."""
    ledger, seen = first_ledger(), []
    for count in (80, 90, 91, 80, 71, 70, 80):
        ledger = ledger.looked(filled(count))
        seen.append(bool(ledger.draining))
    assert seen == [False, False, True, True, True, False, False]


@pytest.mark.parametrize("marks", [(0.9, 0.7), (0.5, 0.5), (-0.1, 0.5), (0.5, 1.1)])
def test_marks_that_would_empty_for_ever_are_refused(marks):
    """The low one is below the high one, and both are shares."""
    with pytest.raises(ValueError, check=that(comes_from="model.Watermarks.__attrs_post_init__")):
        Watermarks(*marks)


def test_a_thaw_measures_its_tier():
    """One that takes longer makes it slower, a small one says nothing."""
    ledger = first_ledger().took("disk", 1 << 30, 10.0)
    assert ledger.speed("disk").bytes_per_s < SPEEDS["disk"].bytes_per_s
    assert ledger.took("disk", 1000, 10.0) == ledger
    assert ledger.took("disk", 1 << 30, 0.001) == ledger
    assert ledger.speed("tape") == UNKNOWN_SPEED


def test_what_is_gone_is_forgotten():
    """What is remembered is bounded by what there is."""
    ledger = first_ledger().used("a", 1).used("b", 2).only(["b", "c"])
    assert list(ledger.usage) == ["b"]


def listed(artifact, tier, **words):
    """Return a copy."""
    return ListedArtifact(artifact, tier, 10, **{"manifest": MANIFEST, **words})


def test_a_view_has_whole_copies_alone():
    """A damaged copy is none, so it does not count as another one; who is pinned anywhere is busy."""
    uses = [TierUse("ram", "", 100, 20, 5, 100), TierUse("disk", "", 100, 20, 0, 100)]
    tiers = tier_views(first_ledger(), uses, marks={}, leaving={"ram": 3}, repository="repository")
    copies = [
        listed("b", "disk", pinned_by=("th-1",)),
        listed("b", "ram"),
        listed("a", "disk", manifest=None, trouble="damaged"),
        listed("a", "ram"),
        listed("c", "disk", manifest=None, trouble="damaged"),
        listed("d", "path:x"),
    ]
    view = view_of(first_ledger().used("a", 7), tiers, copies, moved=["a"])
    assert [(each.artifact, each.tiers, bool(each.busy)) for each in view.checkpoints] == [
        ("a", ("ram",), True),
        ("b", ("ram", "disk"), True),
    ]
    assert (view.checkpoints[0].uses, view.checkpoints[0].last_used_ns) == (1, 7)
    assert view.tiers[0].filled_bytes == 22
    assert view.tier("repository") is not None


def test_speed_is_latency_and_bytes():
    """Both are measured."""
    assert Speed(0.5, 100).seconds(50) == 1.0
