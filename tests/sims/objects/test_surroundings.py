"""The worlds that there are can be the surroundings of object storage."""

import inspect

import pytest

from iriscw_sims.coreweave import surroundings as cloud
from iriscw_sims.objects.surroundings import Surroundings
from iriscw_sims.objects.virtual import LoopSurroundings

NAMES = [name for name in vars(Surroundings) if not name.startswith("_")]


@pytest.mark.parametrize("other", [cloud.Surroundings, LoopSurroundings])
def test_the_same_calls_are_understood(other):
    """What the front gives as arguments, they take."""
    assert sorted(NAMES) == ["after", "chance", "note", "now", "rng"]
    for name in NAMES:
        if name == "now":
            assert isinstance(vars(other)["now"], property)
            continue
        mine, theirs = (list(inspect.signature(vars(each)[name]).parameters.values()) for each in (Surroundings, other))
        assert [(each.name, each.kind) for each in mine] == [(each.name, each.kind) for each in theirs][: len(mine)]
        assert all(each.default is not each.empty for each in theirs[len(mine) :])
