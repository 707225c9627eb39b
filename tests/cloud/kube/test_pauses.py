"""Pauses grow, stay below the most, and differ."""

from random import Random

from hypothesis import given, strategies as st

from iriscw.cloud.kube.pauses import growing


@given(st.integers(0, 10**9), st.integers(1, 10**10), st.integers(0, 10**10), st.integers())
def test_a_pause_is_within_its_bounds(failures, least, more, seed):
    """Between half of the span and all of it; the span doubles, up to the most."""
    most = least + more
    span = min(most, least * 2 ** min(max(0, failures - 1), 40))
    pause = growing(failures, least, most, Random(seed))
    assert span - span // 2 <= pause <= span
    assert pause > 0


def test_two_do_not_come_back_at_once():
    """The pause is random."""
    assert len({growing(3, 10**9, 10**12, Random(seed)) for seed in range(50)}) == 50
