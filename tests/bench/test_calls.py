"""Calls of hosted actors are compared with a peer: which rounds count, and that everything is measured."""

import pytest

from iriscw.bench import calls
from iriscw.bench.plane import MeasurementFailed


def test_the_round_in_the_middle_counts():
    """A ratio is the peer's time by ours, of one round."""
    rounds = [
        {"iriscw": {"x": ours}, "iriscw-thread": {"x": 2 * ours}, "xoscar": {"x": theirs}}
        for ours, theirs in ((1.0, 3.0), (100.0, 1.0), (2.0, 4.0))
    ]
    (found,) = calls.figures_of(rounds)["x"]
    assert (found["async_us"], found["async_beside_xoscar"], found["thread_beside_xoscar"]) == (2, 2, 1)
    del rounds[0]["xoscar"]
    assert not [name for name in calls.figures_of(rounds[:1])["x"][0] if "xoscar" in name]


@pytest.mark.slow
def test_calls_are_measured():
    """A round of ours, with all sizes; a contender that fails is said."""
    found = calls.contend("iriscw-thread", quick=True)
    assert len(found) == 2 * len(calls.SIZES)
    assert all(each > 0 for each in found.values())
    with pytest.raises(MeasurementFailed):
        calls.contend("nobody", quick=True)
