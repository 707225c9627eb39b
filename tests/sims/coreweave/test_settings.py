"""Delays with bounds, and the two presets."""

from random import Random

import attrs
import pytest

from iriscw._errors import InvalidArgument
from iriscw_sims.coreweave.settings import FAITHFUL, MINUTE, QUICK, Settings, Span, minutes, seconds
from iriscw_sims.pace import TIMING

SECOND = 1_000_000_000


def spans(settings):
    """Return all spans of some settings, by name."""
    return {each.name: getattr(settings, each.name) for each in attrs.fields(Settings) if "Span" in str(each.type)}


@pytest.mark.parametrize("bounds", [(-1, 5), (5, 4), (1, 5, 4)])
def test_bounds_are_in_order(bounds):
    """Or refused."""
    with pytest.raises(InvalidArgument):
        Span(*bounds)


def test_draws_lie_within_the_bounds():
    """Both of which are reached."""
    rng = Random(1)
    assert {Span(3, 5).draw(rng) for _ in range(200)} == {3, 4, 5}
    assert Span(7, 7).draw(rng) == 7


def test_one_in_ten_draws_lies_in_the_tail():
    """If there is one."""
    rng = Random(1)
    drawn = [Span(0, 10, 1000).draw(rng) for _ in range(2000)]
    assert max(drawn) > 500
    assert 100 < sum(1 for each in drawn if each > 10) < 300


def test_units():
    """Seconds and minutes become ns."""
    assert seconds(1, 2.5) == Span(SECOND, 2_500_000_000)
    assert minutes(1, 2, tail=3) == Span(MINUTE, 2 * MINUTE, 3 * MINUTE)


def test_the_small_world_is_in_proportion_to_the_fleets_patience():
    """Ordinary boots are within it, slow ones may not be; deletions are, and slow ones, too."""
    assert QUICK.boot.most + QUICK.node_ready.most + QUICK.validation.most < TIMING.boot_timeout
    assert QUICK.boot_slow.most < TIMING.boot_timeout
    assert QUICK.capacity.most > TIMING.boot_timeout
    assert QUICK.deletion_slow.most < TIMING.deletion_patience
    assert QUICK.detection.most + QUICK.repair.most < TIMING.boot_timeout


def test_the_faithful_world_is_slower_in_everything():
    """No preset has a shorter bound for the longer name."""
    quick, faithful = spans(QUICK), spans(FAITHFUL)
    assert [*quick] == [*faithful]
    assert len(quick) > 20
    for name, span in quick.items():
        if name not in ("scheduling", "sync", "stop", "pull"):
            assert faithful[name].most >= span.most, name
    for slow, usual in (("boot_slow", "boot"), ("deletion_slow", "deletion"), ("pull_slow", "pull")):
        for each in (quick, faithful):
            assert each[slow].most > each[usual].most


def test_boots_are_as_documented():
    """14 to 30 minutes."""
    assert (FAITHFUL.boot.least, FAITHFUL.boot.most) == (14 * MINUTE, 30 * MINUTE)
